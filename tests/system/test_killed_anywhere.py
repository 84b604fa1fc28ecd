"""kill -9 of each role and of the VMM in the middle of each operation: afterwards the sandbox is in its old or its new state, holds what
it held, and the store verifies.

The middle is a change of a file of the server (file_events.py): an undisturbed run counts them, then somebody is killed at one of them.
Where most of the time passes inside a VM (a merge of generations, a path out of a snapshot) it is a moment in time. Eight kills, always the
same ones; SPACE_TEST_KILLS=1000 tries every operation and process at many moments, SPACE_TEST_SEED chooses others."""

import json
import os
import random
import signal
import socket
import threading
import time
import unittest

import leaks
from api_client import Sandbox
from file_events import FileEvents
from space_server import ServerTest

BUDGET_S = 240
SLOW = True
KILLS = int(os.environ.get("SPACE_TEST_KILLS", "8"))
SEED = os.environ.get("SPACE_TEST_SEED", "space")
VICTIMS = ("node", "node", "node", "warden", "vmm", "api", "egress")
# Operation: state before, state after.
OPERATIONS = {
    "create": (None, "running"), "pause": ("running", "paused"), "resume": ("paused", "running"), "suspend": ("running", "suspended"),
    "wake": ("suspended", "running"), "checkpoint": ("running", "running"), "fork": ("running", "running"), "restore": ("running", "running"),
    "snapshot": ("running", "running"), "merge": ("running", "running"), "restore path": ("running", "running"),
    "stop": ("running", "stopped"), "start": ("stopped", "running"), "delete": ("running", None),
}
VERBS = {"merge": "snapshot", "restore path": "restore"}  # where they are called otherwise
IN_TIME = ("merge", "restore path")
FULL = 5  # frozen generations of a disk with which a merge begins (src/snapshot/generations.h)


class KilledAnywhere(ServerTest):
    options = {"pool_ready": 0, "pool_spawned": 0}

    def setUp(self):
        self.sandbox = self.checkpoint = None
        self.counts = {}  # by operation: changes of files, or seconds

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
            self.memory = True
            self.sandbox.output("echo disk > ~/word; echo memory > /dev/shm/word; sync")
            self.checkpoint = self.sandbox.change("checkpoint")["checkpoint"]
        now = self.sandbox.get()["state"]
        if now != "running" and state != now:
            self.sandbox.change("start" if now == "stopped" else "wake")
        if state in ("paused", "suspended", "stopped") and state != now:
            self.sandbox.change({"paused": "pause", "suspended": "suspend", "stopped": "stop"}[state])
            self.memory = self.memory and state != "stopped"

    def generations(self):
        record = self.server.data_dir / "node" / "sandboxes" / self.sandbox.id / "record.json"
        return len(json.loads(record.read_text())["layers"])

    def bring_for(self, kind):
        self.bring(OPERATIONS[kind][0])
        while kind == "merge" and self.generations() != FULL - 1:  # the next snapshot is one too many
            self.sandbox.output("head -c 300000 /dev/urandom > ~/more; sync")
            self.assertEqual(self.sandbox.change("snapshot")["state"], "succeeded")
            self.server.wait_for(lambda: self.generations() < FULL, 30, "the merge of generations")

    def ask(self, kind):
        """Begins the operation; its id."""
        if kind == "create":
            answer = self.api.ok("POST", "/v1/sandboxes", {})
            self.made = Sandbox(self.api, answer["sandbox"]["id"])
            return answer["operation"]["id"]
        if kind == "delete":
            return self.api.ok("DELETE", self.sandbox.path)["operation"]["id"]
        path = {"checkpoint": self.checkpoint, "path": "/home/user/word", "into": "/tmp"}
        body = {"fork": {"count": 2}, "restore": {"checkpoint": self.checkpoint}, "restore path": path}.get(kind, {})
        return self.api.ok("POST", f"{self.sandbox.path}/{VERBS.get(kind, kind)}", body)["operation"]["id"]

    def goes_on(self, kind, id):
        return id is None or self.state_of(id) in ("pending", "running") or kind == "merge" and self.generations() >= FULL - 1

    def folders(self):
        return [self.server.data_dir / "node", self.server.data_dir / "control", self.server.run_dir / "node", self.server.run_dir / "warden"]

    def kill(self, victim, known):
        """At once: the role, or the VMM that was there before; else, of an operation that makes one, the newest VMM."""
        try:
            pid = known or max(leaks.vmms(self.server), default=0)
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
                operation = self.api.operation(id, 90)
                self.server.wait_for(lambda: not self.goes_on(kind, id), 60, "the end of what it began")
                self.counts[kind] = time.monotonic() - begun if kind in IN_TIME else events.count
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
                self.assertEqual(Sandbox(self.api, child).output("cat ~/word").split(), ["disk"])
            self.api.delete(child)
        if kind == "delete":
            self.assertEqual(operation["state"], "succeeded", operation)
            self.assertEqual(self.api.call("GET", self.sandbox.path).status, 404)
            self.sandbox = None
            return
        if kind in ("checkpoint", "snapshot"):
            listed = [one["id"] for one in self.api.ok("GET", f"/v1/checkpoints?sandbox={self.sandbox.id}")["checkpoints"]]
            self.assertEqual(operation["checkpoint"] in listed, operation["state"] == "succeeded", operation)
        before, after = OPERATIONS[kind]
        state = self.sandbox.get()["state"]
        self.assertIn(state, ({after} if operation["state"] == "succeeded" else {before}) | ended, operation)
        if kind == "restore" and operation["state"] == "succeeded":
            self.memory = True
        if kind in ("stop", "start"):
            self.memory = self.memory and state in ("running", "ended") and operation["state"] != "succeeded"
        if state == "ended":
            self.sandbox.change("start")
            self.assertEqual(self.sandbox.output("cat ~/word"), "disk")
            self.api.delete(self.sandbox.id)
            self.sandbox = None
        else:
            self.bring("running")
            if kind == "restore path" and operation["state"] == "succeeded":
                self.assertEqual(self.sandbox.output("cat /tmp/word; rm /tmp/word"), "disk")
            self.assertEqual(self.sandbox.output("cat ~/word; cat /dev/shm/word 2>/dev/null || true").split(), ["disk"] + ["memory"] * self.memory)

    def killed(self, kind, victim, moment):
        """`moment`: from 0, the first change, to 1, the last."""
        length = self.undisturbed(kind)
        self.made = None
        self.bring_for(kind)
        known = None
        if victim != "vmm":
            known = self.server.role_pid(victim)
        elif kind in ("pause", "resume", "suspend", "checkpoint", "snapshot", "stop", "delete"):
            known = leaks.vmm_pid(self.server, self.sandbox.id)
        killed = []
        kill = lambda: killed.append(self.kill(victim, known))  # noqa: E731
        in_time = threading.Timer(moment * length, kill) if kind in IN_TIME else None
        with FileEvents(self.folders(), {} if in_time else {1 + round(moment * (length - 1)): kill}):
            if in_time:
                in_time.start()
            try:
                id = self.ask(kind)
            except (OSError, ValueError, json.JSONDecodeError):  # the api died under it: whatever became of it is the operation
                id = None
            until = time.monotonic() + 20
            while not killed and time.monotonic() < until and self.goes_on(kind, id):
                time.sleep(0.02)
            if in_time:
                in_time.cancel()
                in_time.join()
            if not killed:
                kill()
        if victim != "vmm":
            self.server.wait_for(lambda: self.server.role_pid(victim) not in (None, known), 30, f"a new {victim}")
        self.server.wait_for(lambda: self.server.answers() and self.warden_listens(), 30, "an answer")
        if id is None:
            found = [one for one in self.api.ok("GET", "/v1/operations?limit=1")["operations"] if one["kind"] == VERBS.get(kind, kind)]
            if not found or found[0]["id"] == self.last:
                return  # it was never accepted
            id = found[0]["id"]
            if kind == "create":
                self.made = Sandbox(self.api, found[0]["sandbox"])
        operation = self.api.operation(id, 90)
        self.last = id
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

    last = None

    def state_of(self, id):
        try:
            return self.api.ok("GET", f"/v1/operations/{id}", timeout=5)["state"]
        except Exception:  # noqa: BLE001: whoever answers may be the victim
            return "running"

    def test_old_state_or_new_state_and_the_store_is_whole(self):
        plan = [(kind, victim) for kind in OPERATIONS for victim in VICTIMS if (kind, victim) != ("start", "vmm")]
        choice = random.Random(SEED)
        choice.shuffle(plan)
        plan = [(kind, victim, choice.random()) for kind, victim in (plan * (KILLS // len(plan) + 1))[:KILLS]]
        for kind, victim, moment in sorted(plan, key=lambda one: list(OPERATIONS).index(one[0])):
            with self.subTest(kind=kind, victim=victim, moment=round(moment, 4), seed=SEED):
                self.killed(kind, victim, moment)
        if self.sandbox:
            self.api.delete(self.sandbox.id)
        found = self.whole_store()
        self.assertEqual(found["faults"], [])
        for one in self.api.ok("GET", "/v1/checkpoints")["checkpoints"]:
            self.assertIn(self.api.call("DELETE", f"/v1/checkpoints/{one['id']}").status, (200, 204))


if __name__ == "__main__":
    unittest.main()
