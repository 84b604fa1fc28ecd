"""kill -9 of each role and of the VMM in the middle of each operation: afterwards the sandbox is in its old or its new state, holds what
it held, and the store verifies.

The middle is a change of a file of the server (file_events.py): an undisturbed run counts them, then somebody is killed at one of them.
Where most of the time passes inside a VM (a merge of generations, a path out of a snapshot) it is a moment in time.

All pairs of an operation and a victim stand in an order that is shuffled anew each time around, and a day takes the next 24 of them, so that
each comes once in a week. What a day takes is printed: SPACE_TEST_SEED=DAY (days since 1970) takes the same pairs and moments again.
SPACE_TEST_KILLS=40 takes so many, SPACE_TEST_KILLS=all every pair (with `tests/run --patience 4`)."""

import http.client
import json
import os
import random
import signal
import socket
import sys
import threading
import time
import unittest

import disk_generations
import leaks
from api_client import ApiError, Sandbox
from file_events import FileEvents, of_data
from space_server import ServerTest

BUDGET_S = 360
SLOW = True
BESIDE = True
KILLS = os.environ.get("SPACE_TEST_KILLS", "24")
DAY = int(os.environ.get("SPACE_TEST_SEED", time.time() // 86400))
WORKER = "egress worker"
VICTIMS = ("node", "node", "node", "warden", "vmm", "api", "egress", WORKER)  # node does most of the work
# Operation: state before, state after.
OPERATIONS = {
    "create": (None, "running"), "pause": ("running", "paused"), "resume": ("paused", "running"), "suspend": ("running", "suspended"),
    "wake": ("suspended", "running"), "checkpoint": ("running", "running"), "fork": ("running", "running"), "restore": ("running", "running"),
    "fork from": ("running", "running"), "checkpoint delete": ("running", "running"), "update": ("running", "running"), "policy": ("running", "running"),
    "snapshot": ("running", "running"), "automatic snapshot": ("running", "running"), "merge": ("running", "running"),
    "restore path": ("running", "running"), "restore disk": ("running", "running"),
    "stop": ("running", "stopped"), "start": ("stopped", "running"), "delete": ("running", None),
}
PAIRS = [(kind, victim) for kind in OPERATIONS for victim in VICTIMS if (kind, victim) != ("start", "vmm")]
# What each is to the API, where that is called otherwise.
VERBS = {"fork from": "fork", "policy": "update", "merge": "snapshot", "restore path": "restore", "restore disk": "restore"}
SET = ("update", "policy")  # settings: these or those, and never some of each
NO_OPERATION = ("checkpoint delete", "automatic snapshot")  # one is answered when it is done, the other is nobody's request
MAKES_A_VM = ("create", "wake", "fork", "fork from", "restore", "restore disk", "merge", "restore path")
IN_TIME = ("merge", "restore path")


def of_day(day, kills):
    """The pairs whose turn it is, each with its moment."""
    moment, plan = random.Random(f"moments of {day}"), []
    for number in range(day * kills, (day + 1) * kills):
        around, place = divmod(number, len(PAIRS))
        plan.append((*random.Random(f"order {around}").sample(PAIRS, len(PAIRS))[place], moment.random()))
    return sorted(plan, key=lambda one: list(OPERATIONS).index(one[0]))


class KilledAnywhere(ServerTest):
    options = {"pool_ready": 0, "pool_spawned": 0}

    def setUp(self):
        self.sandbox = self.checkpoint = self.snapshot = self.spare = None
        self.counts = {}  # by operation: changes of files, or seconds
        self.round, self.was, self.wanted = 0, None, None  # of settings

    def whole_store(self):
        done = self.cli("--json", "store", "verify", "--data-dir", str(self.server.data_dir))
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return json.loads(done.stdout)

    def bring(self, state):
        """A sandbox in this state that holds a word on its disk and one in memory."""
        if state is None:
            return
        if self.sandbox and self.sandbox.get()["state"] in ("ended", "failed"):
            self.api.delete(self.sandbox.id)
            self.sandbox = None
        if not self.sandbox:
            self.sandbox = self.api.create()
            self.memory, self.snapshot = True, None
            self.sandbox.output("echo disk > ~/word; echo memory > /dev/shm/word; sync")
            self.checkpoint = self.sandbox.change("checkpoint")["checkpoint"]
        now = self.sandbox.get()["state"]
        if now != "running" and state != now:
            self.sandbox.change("start" if now == "stopped" else "wake")
        if state in ("paused", "suspended", "stopped") and state != now:
            self.sandbox.change({"paused": "pause", "suspended": "suspend", "stopped": "stop"}[state])
            self.memory = self.memory and state != "stopped"

    def bring_for(self, kind):
        self.bring(OPERATIONS[kind][0])
        if kind == "merge":
            disk_generations.fill(self.server, self.sandbox)
        if kind == "restore disk" and not self.snapshot:
            self.snapshot = self.sandbox.change("snapshot")["checkpoint"]
        if kind == "checkpoint delete":
            self.spare = self.sandbox.change("checkpoint")["checkpoint"]
        if kind == "automatic snapshot":
            self.write_for_a_snapshot()
        if kind in SET:
            self.was = self.settings(kind)

    def settings(self, kind):
        """What an update or a change of the policy set last."""
        if kind == "policy":
            return [rule["name"] for rule in self.api.ok("GET", f"{self.sandbox.path}/egress")["policy"].get("rules", [])]
        shown = self.sandbox.get()
        return shown.get("metadata", {}).get("round"), shown.get("time_limit_s")

    def automatic(self):
        listed = self.api.ok("GET", f"/v1/checkpoints?sandbox={self.sandbox.id}", timeout=5)["checkpoints"]
        return {one["id"] for one in listed if one["automatic"]}

    def write_for_a_snapshot(self):
        self.kept = self.automatic()
        self.sandbox.output("head -c 300000 /dev/urandom > ~/more; sync")

    def let_be_kept(self, every_s):
        return self.api.ok("PUT", f"{self.sandbox.path}/snapshots", {"every_s": every_s, "keep": 2})

    def ask(self, kind):
        """Begins the operation; its id, if it has one."""
        if kind == "create":
            answer = self.api.ok("POST", "/v1/sandboxes", {})
            self.made = Sandbox(self.api, answer["sandbox"]["id"])
            return answer["operation"]["id"]
        if kind == "delete":
            return self.api.ok("DELETE", self.sandbox.path)["operation"]["id"]
        if kind == "checkpoint delete":
            self.api.ok("DELETE", f"/v1/checkpoints/{self.spare}")
            return None
        if kind == "automatic snapshot":
            self.let_be_kept(1)
            return None
        if kind in SET:
            self.round += 1
            label, limit, name = str(self.round), 7200 + self.round, f"round{self.round}.test"
            self.wanted = [name] if kind == "policy" else (label, limit)
            policy = {"egress": {"policy": {"mode": "allowlist", "rules": [{"name": name}]}}}
            body = policy if kind == "policy" else {"metadata": {"round": label}, "time_limit_s": limit, "env": {"ROUND": label}}
            return self.api.ok("PATCH", self.sandbox.path, body)["operation"]["id"]
        path = {"checkpoint": self.checkpoint, "path": "/home/user/word", "into": "/tmp"}
        body = {"fork": {"count": 2}, "fork from": {"count": 2, "checkpoint": self.checkpoint}, "restore": {"checkpoint": self.checkpoint},
                "restore disk": {"checkpoint": self.snapshot}, "restore path": path}.get(kind, {})
        return self.api.ok("POST", f"{self.sandbox.path}/{VERBS.get(kind, kind)}", body)["operation"]["id"]

    def outcome(self, kind, id, answered=True):
        if kind in NO_OPERATION:
            return {"state": "succeeded" if answered else "unknown"}
        return self.api.operation(id, 90)

    def goes_on(self, kind, id):
        if kind == "checkpoint delete":
            return False
        if kind == "automatic snapshot":
            try:
                return not self.automatic() - self.kept
            except Exception:  # noqa: BLE001: whoever answers may be the victim
                return True
        return id is None or self.state_of(id) in ("pending", "running") or kind == "merge" and disk_generations.count(self.server, self.sandbox) >= disk_generations.FULL - 1

    def folders(self):
        return [*of_data(self.server), self.server.run_dir / "node", self.server.run_dir / "warden"]

    def worker(self):
        """The gateway's process for the only tenant; 0: it is just being started."""
        parent = self.server.role_pid("egress")
        return next((pid for pid in leaks.children(parent) if leaks.command_line(pid)[1:2] == ["egress-worker"]), 0) if parent else 0

    def kill(self, victim, known):
        """At once: the role, or the VMM that was there before; else, of an operation that makes one, the newest VMM."""
        try:
            pid = known or (self.worker() if victim == WORKER else max(leaks.vmms(self.server), default=0))
            if pid:
                os.kill(pid, signal.SIGKILL)
            return pid
        except OSError:
            return 0

    def undisturbed(self, kind):
        """How many changes of files the operation takes, or how many seconds."""
        if kind not in self.counts:
            self.bring_for(kind)
            self.made = None
            begun = time.monotonic()
            with FileEvents(self.folders()) as events:
                id = self.ask(kind)
                operation = self.outcome(kind, id)
                self.server.wait_for(lambda: not self.goes_on(kind, id), 60, "the end of what it began")
                self.counts[kind] = time.monotonic() - begun if kind in IN_TIME else max(1, events.count)
            self.assertEqual(operation["state"], "succeeded", operation)
            self.after(kind, operation, None)
        return self.counts[kind]

    def after(self, kind, operation, victim):
        """What must hold now, and tidies up."""
        ended = {"ended"} if victim == "vmm" else set()
        if kind == "create":
            answer = self.api.call("GET", self.made.path)
            state = answer.json.get("state") if answer.status == 200 else None
            self.assertIn(state, {"running"} | ended if operation["state"] == "succeeded" else {"failed", None} | ended)
            if state == "running":
                self.assertEqual(self.made.output("echo ok"), "ok")
            self.api.delete(self.made.id)
            return
        for child in operation.get("children") or []:
            state = self.api.call("GET", f"/v1/sandboxes/{child}").json.get("state")
            self.assertIn(state, ({"running"} if operation["state"] == "succeeded" else {"failed", None}) | ended, operation)
            if state == "running":
                memory = kind == "fork from" or self.memory
                held = Sandbox(self.api, child).output("cat ~/word; cat /dev/shm/word 2>/dev/null || true").split()
                self.assertEqual(held, ["disk"] + ["memory"] * memory)
            self.api.delete(child)
        if kind == "delete":
            self.assertEqual(operation["state"], "succeeded", operation)
            self.assertEqual(self.api.call("GET", self.sandbox.path).status, 404)
            self.sandbox = None
            return
        if kind in ("checkpoint", "snapshot"):
            listed = [one["id"] for one in self.api.ok("GET", f"/v1/checkpoints?sandbox={self.sandbox.id}")["checkpoints"]]
            self.assertEqual(operation["checkpoint"] in listed, operation["state"] == "succeeded", operation)
        if kind == "checkpoint delete":
            there = self.api.call("GET", f"/v1/checkpoints/{self.spare}").status
            self.assertIn(there, {404} if operation["state"] == "succeeded" else {200, 404})
            self.api.ok("DELETE", f"/v1/checkpoints/{self.spare}")  # again, or after all
            self.assertEqual(self.api.call("GET", f"/v1/checkpoints/{self.spare}").status, 404)
        expected = self.wanted if operation["state"] == "succeeded" else self.was
        if kind in SET:
            self.assertEqual(self.settings(kind), expected, operation)
        if kind == "policy":
            self.server.wait_for(lambda: self.api.ok("GET", f"{self.sandbox.path}/egress")["applied"], 40, "the gateway to know the policy")
        before, after = OPERATIONS[kind]
        state = self.sandbox.get()["state"]
        self.assertIn(state, ({after} if operation["state"] == "succeeded" else {before}) | ended, operation)
        if kind in ("restore", "restore disk") and operation["state"] == "succeeded":
            self.memory = kind == "restore"
        if kind in ("stop", "start"):
            self.memory = self.memory and state in ("running", "ended") and operation["state"] != "succeeded"
        if state == "ended":
            self.sandbox.change("start")
            self.assertEqual(self.sandbox.output("cat ~/word"), "disk")
            self.api.delete(self.sandbox.id)
            self.sandbox = None
        else:
            self.bring("running")
            if victim in ("egress", WORKER):
                self.server.wait_for(self.has_its_network, 30, "the gateway to hold the network again")
            if kind == "update":
                self.assertEqual(self.sandbox.output("echo $ROUND"), expected[0] or "")
            if kind == "automatic snapshot":
                self.write_for_a_snapshot()
                self.let_be_kept(1)
                self.server.wait_for(lambda: self.automatic() - self.kept, 40, "the next snapshot by itself")
                self.let_be_kept(0)
            if kind == "restore path" and operation["state"] == "succeeded":
                self.assertEqual(self.sandbox.output("cat /tmp/word; rm /tmp/word"), "disk")
            self.assertEqual(self.sandbox.output("cat ~/word; cat /dev/shm/word 2>/dev/null || true").split(), ["disk"] + ["memory"] * self.memory)

    def has_its_network(self):
        shown = self.api.ok("GET", f"{self.sandbox.path}/egress")
        return shown.get("attached") and shown.get("serving")

    def newest(self):
        """The last operation that was accepted."""
        return next(iter(self.api.ok("GET", "/v1/operations?limit=1")["operations"]), {"id": None})

    def killed(self, kind, victim, moment):
        """`moment`: from 0, the first change, to 1, the last."""
        length = self.undisturbed(kind)
        self.made = None
        if victim == WORKER and not self.sandbox:
            self.bring("running")  # a tenant without a sandbox has none
        self.bring_for(kind)
        last = self.newest()["id"]
        known = None
        if victim == WORKER:
            known = self.worker()
        elif victim != "vmm":
            known = self.server.role_pid(victim)
        elif kind not in MAKES_A_VM:
            known = leaks.vmm_pid(self.server, self.sandbox.id)
        killed = []
        kill = lambda: killed or killed.append(self.kill(victim, known))  # noqa: E731
        in_time = threading.Timer(moment * length, kill) if kind in IN_TIME else None
        with FileEvents(self.folders(), {} if in_time else {1 + round(moment * (length - 1)): kill}):
            if in_time:
                in_time.start()
            id, answered = None, False
            try:
                id, answered = self.ask(kind), True
            except (OSError, ValueError, http.client.HTTPException):  # the api died under it: whatever became of it is the operation
                pass
            except ApiError as error:  # whom the api asked died
                if error.status != 503:
                    raise
            until = time.monotonic() + 20
            while not killed and time.monotonic() < until and self.goes_on(kind, id):
                time.sleep(0.02)
            if in_time:
                in_time.cancel()
                in_time.join()
            if not killed:
                kill()
        if victim not in ("vmm", WORKER):
            self.server.wait_for(lambda: self.server.role_pid(victim) not in (None, known), 30, f"a new {victim}")
        self.server.wait_for(lambda: self.server.answers() and self.warden_listens(), 30, "an answer")
        if id is None and kind not in NO_OPERATION:
            found = self.newest()
            if found["id"] == last:
                return  # it was never accepted
            self.assertEqual(found["kind"], VERBS.get(kind, kind))
            id = found["id"]
            if kind == "create":
                self.made = Sandbox(self.api, found["sandbox"])
        operation = self.outcome(kind, id, answered)
        if victim == "vmm":
            self.server.wait_for(lambda: self.told(killed[0]), 10, "node's word about a VMM that is gone")
        self.after(kind, operation, victim)

    def warden_listens(self):
        """One that was killed several times in a row is given some seconds by the supervisor."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as dialled:
            return dialled.connect_ex(str(self.server.run_dir / "warden.sock")) == 0

    def told(self, pid):
        """Whatever is said to run has a VMM, and that one is not among them."""
        if os.path.exists(f"/proc/{pid}") and pid:
            return False
        for one in self.api.sandboxes():
            if one["state"] in ("running", "paused") and not any(group.joinpath("cgroup.procs").read_text() for group in leaks.vm_groups(leaks.vm_of(self.server, one["id"])).values()):
                return False
        return True

    def state_of(self, id):
        try:
            return self.api.ok("GET", f"/v1/operations/{id}", timeout=5)["state"]
        except Exception:  # noqa: BLE001: whoever answers may be the victim
            return "running"

    def test_old_state_or_new_state_and_the_store_is_whole(self):
        kills = len(PAIRS) if KILLS == "all" else int(KILLS)
        print(f"{kills} of {len(PAIRS)} pairs; SPACE_TEST_SEED={DAY} SPACE_TEST_KILLS={KILLS} kills at the same moments again", file=sys.stderr, flush=True)
        for kind, victim, moment in of_day(DAY, kills):
            with self.subTest(kind=kind, victim=victim, moment=round(moment, 4), seed=DAY):
                self.killed(kind, victim, moment)
        if self.sandbox:
            self.api.delete(self.sandbox.id)
        found = self.whole_store()
        self.assertEqual(found["faults"], [])
        for one in self.api.ok("GET", "/v1/checkpoints")["checkpoints"]:
            self.assertIn(self.api.call("DELETE", f"/v1/checkpoints/{one['id']}").status, (200, 204))


if __name__ == "__main__":
    unittest.main()
