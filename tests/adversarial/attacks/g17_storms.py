"""Taking all of the platform: storms of pauses, checkpoints, creates and forks, watches, connections that are cut. The bars are world.Meter's."""

import os
import threading
import time

from framework import attack
from g01_exhaustion import after
from world import Meter


def together(count, work):
    """By threads that yield: an attacker's client has a machine of its own, and what it takes of this one is no harm that SPACE lets happen."""
    def yielding(i):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 19)
        work(i)
    threads = [threading.Thread(target=yielding, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@attack("G17", seconds=120, alone=True)
def life_storm(t):
    """Fifty pauses, resumes and checkpoints at once on one sandbox; a checkpoint while the disk is full"""
    box = t.world.fresh()
    try:
        statuses = []

        def one(i):
            try:
                answer = box.api.call("POST", f"{box.path}/{('pause', 'resume', 'checkpoint')[i % 3]}", {}, {"Prefer": "wait=20"}, timeout=60)
                statuses.append(answer.status)
            except OSError:
                statuses.append(0)
        with Meter(t):
            until = time.monotonic() + (40 if t.world.long else 4)
            while time.monotonic() < until:
                together(50, one)
        box.api.call("POST", box.path + "/resume", {}, {"Prefer": "wait=30"}, timeout=60)
        t.control("some were carried out", any(status == 200 for status in statuses), sorted(set(statuses)))
        t.attempt("the server broke", any(status in (0, 500) for status in statuses), sorted(set(statuses)))
        after(t, box)
        t.guest(box, "for size in 2000M 500M 100M 20M 5M 1M 128K 4K; do while fallocate -l $size /root/full-$size-$((n++)) 2>/dev/null; do :; done; done", timeout=60, time_limit_ms=30000)
        t.control("its disk is full", t.guest(box, "echo x > /root/more && sync && [ -s /root/more ]").code != 0)
        operation = box.change("checkpoint")
        t.note(f"a checkpoint with the disk full: {operation['state']}")
        after(t, box, "answers after a checkpoint with its disk full")
        listed = box.api.ok("GET", f"/v1/checkpoints?sandbox={box.id}")["checkpoints"]
        for one in listed[:2]:
            made = box.change("fork", {"checkpoint": one["id"]})
            t.attempt("a checkpoint is listed that cannot be used", made["state"] != "succeeded", made)
            for id in made.get("children", []):
                box.api.delete(id)
        for one in listed:
            box.api.call("DELETE", f"/v1/checkpoints/{one['id']}")
    finally:
        t.world.drop(box)


@attack("G18", seconds=150, alone=True)
def create_storm(t):
    """One tenant asks for sandboxes without end, forks forks, and asks for any size and number"""
    api, made, statuses = t.world.attacker, [], []
    count = 200 if t.world.long else 12

    def one(_):
        try:
            answer = api.call("POST", "/v1/sandboxes", {"memory_mib": 256}, timeout=60)
            statuses.append(answer.status)
            if answer.status < 300:
                made.append(answer.json["sandbox"]["id"])
        except OSError:
            statuses.append(0)
    try:
        with Meter(t):
            together(count, one)
            time.sleep(4)
        t.control("creates were taken or refused", statuses and all(status in (201, 202, 429, 503) for status in statuses), sorted(set(statuses)))
        t.attempt("health is not answered", api.call("GET", "/v1/health", timeout=20).status != 200)
        for id in made:
            api.delete(id)
        for size in ({"memory_mib": 1 << 20}, {"cpus": 64}, {"disk_mib": 1 << 24}):
            answer = api.call("POST", "/v1/sandboxes", size, {"Prefer": "wait=20"}, timeout=60)
            state = answer.json.get("sandbox", {}).get("state") if answer.json else None
            t.attempt(f"{size} is given", state == "running" and "disk_mib" not in size, f"{answer.status} {answer.body[:100]}")
            if answer.json and "sandbox" in answer.json:
                made.append(answer.json["sandbox"]["id"])
        box = t.world.fresh(memory_mib=256)
        made.append(box.id)
        for number in (2147483647, 65, 0, -1, 1e9, "2"):
            answer = api.call("POST", f"{box.path}/fork", {"count": number}, {"Prefer": "wait=20"}, timeout=60)
            t.attempt(f"{number!r} forks are begun", answer.status < 400, f"{answer.status} {answer.body[:100]}")
        line = [box.id]
        with Meter(t):
            for _ in range(6 if t.world.long else 3):  # a fork of a fork of a fork
                answer = api.call("POST", f"/v1/sandboxes/{line[-1]}/fork", {"count": 1}, {"Prefer": "wait=60"}, timeout=90)
                if answer.status >= 400:
                    break
                line += api.operation(answer.json["operation"]["id"]).get("children", [])
        made += line[1:]
        t.control("forks of forks were made or refused", len(line) > 1 or answer.status in (409, 429, 503), answer.status)
    finally:
        for id in made:
            api.delete(id)


@attack("G22", "G23", seconds=90, alone=True)
def watchers(t):
    """Watches without end, and streams that are cut at any moment"""
    box = t.world.sandbox()
    before = t.world.counts()
    statuses = []
    with Meter(t):
        for i in range(2000 if t.world.long else 80):
            connection = box.api.connection(5)
            try:
                target = [box.files("watch", "/", recursive="true"), "/v1/events?after=0", box.files("content", "/etc/hostname"), box.path + "/commands"][i % 4]
                connection.request("GET", target, headers=box.api.headers({"Accept": "text/event-stream"} if i % 4 < 2 else {}))
                if i % 3:
                    statuses.append(connection.getresponse().status)
            except OSError:
                pass
            connection.close()
        box.run("mkdir -p /tmp/w; for i in $(seq 2000); do mv /tmp/w/$((i - 1)) /tmp/w/$i 2>/dev/null || : > /tmp/w/$i; done", timeout=40, time_limit_ms=8000)
    t.control("some were answered", 200 in statuses, sorted(set(statuses)))
    t.attempt("the server broke", 500 in statuses, sorted(set(statuses)))
    until = time.monotonic() + 15
    while time.monotonic() < until:
        now = t.world.counts()
        if all(now.get(name, 0) <= value + 12 for name, value in before.items() if name != "VMMs"):
            break
        time.sleep(1)
    t.control("counts can be taken", len(before) > 4, before)
    for name, value in before.items():
        if name != "VMMs":
            t.attempt(f"{name} stay taken", now.get(name, 0) > value + 12, f"{value} to {now.get(name)}")
    after(t, box)
