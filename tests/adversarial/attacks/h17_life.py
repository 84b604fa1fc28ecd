"""Races over the life of a sandbox, and roles that die in the middle of it."""

import threading
import time

import leaks
from framework import attack


@attack("H17", seconds=60)
def delete_and_wake(t):
    """Resume and delete at once, over and over: what was deleted never comes back"""
    api = t.world.attacker
    rounds = 500 if t.world.long else 5
    before = len(leaks.vmms(t.world.server))
    for i in range(rounds):
        box = t.world.fresh()
        api.ok("POST", box.path + "/pause", {}, {"Prefer": "wait=30"})
        if i == 0:
            t.control("it is paused", box.get()["state"] == "paused")
        waker = threading.Thread(target=lambda: api.call("POST", box.path + "/resume", {}, {"Prefer": "wait=30"}))
        waker.start()
        time.sleep(0.02 * (i % 4))
        gone = api.call("DELETE", box.path, headers={"Prefer": "wait=60"})
        waker.join()
        t.attempt("the delete fails", gone.status != 200, f"{gone.status} {gone.body[:100]}")
        t.attempt("it comes back after its delete", api.call("GET", box.path).status != 404)
    time.sleep(1)
    t.attempt("a VMM is left", len(leaks.vmms(t.world.server)) > before + 1, f"{before} to {len(leaks.vmms(t.world.server))}")


@attack("H18", seconds=50)
def time_limit(t):
    """Pausing and resuming over and over: the limit counts the time that a sandbox runs, whatever moment it is paused at"""
    api, limit = t.world.attacker, 4
    plain, *stormed = [t.world.fresh() for _ in range(3)]
    # A guest counts the time that it runs: its clock stands still with it.
    ticking = [box.start("while :; do echo tick; sleep 0.1; done").in_background() for box in stormed]
    for one in ticking:
        one.until(lambda result: b"tick" in result.stdout, 20)
    t.control("one runs before it has a limit", plain.get()["state"] == "running")
    before = [one.result.stdout.count(b"tick") for one in ticking]
    for box in (plain, *stormed):
        api.ok("PATCH", box.path, {"time_limit_s": limit})
    until = time.monotonic() + 20
    while time.monotonic() < until and any(api.call("GET", box.path).status == 200 for box in stormed):
        for box in stormed:
            api.call("POST", box.path + "/pause", {})
            api.call("POST", box.path + "/resume", {})
        time.sleep(0.1)
    ran = [(one.result.stdout.count(b"tick") - already) / 10 for one, already in zip(ticking, before)]
    t.control("they ran, and said so", min(ran) > 1, ran)
    t.attempt("storms of pause and resume stop the clock", max(ran) > limit + 2, ran)
    for box in stormed:  # what was left of it when the storm was over
        api.call("POST", box.path + "/resume", {}, {"Prefer": "wait=10"})
    gone = [until_gone(api, box, limit + 5) for box in (plain, *stormed)]
    t.attempt("one lives on after its time", not all(gone), gone)
    for box in (plain, *stormed):
        api.delete(box.id)


def until_gone(api, box, seconds):
    until = time.monotonic() + seconds
    while api.call("GET", box.path).status == 200:
        if time.monotonic() > until:
            return False
        time.sleep(0.2)
    return True


@attack("H38", seconds=100)
def roles_die(t):
    """kill -9 of api and node while sandboxes are made and deleted"""
    api, server = t.world.attacker, t.world.server
    for role in ("node", "api"):
        threads = [threading.Thread(target=lambda: quietly(api.call, "POST", "/v1/sandboxes", {}, timeout=10)) for _ in range(2)]
        for thread in threads:
            thread.start()
        time.sleep(0.1)
        server.kill_role(role, limit=60)
        for thread in threads:
            thread.join()
    t.world.pids = t.world.role_pids()
    until = time.monotonic() + 60
    while any(one["state"] in ("creating", "deleting") for one in api.sandboxes()) and time.monotonic() < until:
        time.sleep(0.5)
    states = [one["state"] for one in api.sandboxes()]
    t.control("the roles came back and answer", api.call("GET", "/v1/health").status == 200)
    t.attempt("one stays half made", any(state in ("creating", "deleting") for state in states), states)
    for one in api.sandboxes():
        if one["id"] not in {box.id for box in t.world.boxes.values()}:
            api.delete(one["id"])
    known = {leaks.vm_of(server, one["id"]) for api in (t.world.attacker, t.world.victim) for one in api.sandboxes() if one["state"] == "running"}
    t.attempt("the bystander was lost", leaks.vm_of(server, t.world.bystander.id) not in known)
    t.attempt("its key means something else now", t.world.attacker.call("GET", t.world.bystander.path).status != 404)


def quietly(call, *arguments, **options):
    try:
        return call(*arguments, **options)
    except Exception:
        return None
