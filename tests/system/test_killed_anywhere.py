"""kill -9 of each role and of the VMM in the middle of each operation: afterwards the sandbox is in its old or its new state, holds what
it held, and the store verifies.

The middle is a change of a file of the server (file_events.py): an undisturbed run counts them, then somebody is killed at one of them.
SPACE_TEST_KILLS=20 tries twenty of all moments, chosen anew for each day (a minute or two on a quiet machine; none by default), 1000 every
operation and process at many moments; SPACE_TEST_SEED chooses others."""

import json
import os
import random
import signal
import time
import unittest

import leaks
from api_client import Sandbox
from file_events import FileEvents
from space_server import ServerTest

BUDGET_S = 240
SLOW = True
KILLS = int(os.environ.get("SPACE_TEST_KILLS", "0"))
SEED = os.environ.get("SPACE_TEST_SEED", time.strftime("%Y-%m-%d"))
VICTIMS = ("node", "node", "node", "warden", "vmm", "api", "egress")
# Operation: state before, state after.
OPERATIONS = {
    "create": (None, "running"), "pause": ("running", "paused"), "resume": ("paused", "running"), "suspend": ("running", "suspended"),
    "wake": ("suspended", "running"), "checkpoint": ("running", "running"), "fork": ("running", "running"), "restore": ("running", "running"),
    "stop": ("running", "stopped"), "start": ("stopped", "running"), "delete": ("running", None),
}


@unittest.skipIf(KILLS == 0, "processes are killed at random moments with SPACE_TEST_KILLS=20")
class KilledAnywhere(ServerTest):
    options = {"pool_ready": 0, "pool_spawned": 0}

    def setUp(self):
        self.sandbox = self.checkpoint = None
        self.counts = {}

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

    def ask(self, kind):
        """Begins the operation; its id."""
        if kind == "create":
            answer = self.api.ok("POST", "/v1/sandboxes", {})
            self.made = Sandbox(self.api, answer["sandbox"]["id"])
            return answer["operation"]["id"]
        if kind == "delete":
            return self.api.ok("DELETE", self.sandbox.path)["operation"]["id"]
        body = {"fork": {"count": 2}, "restore": {"checkpoint": self.checkpoint}}.get(kind, {})
        return self.api.ok("POST", f"{self.sandbox.path}/{kind}", body)["operation"]["id"]

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
        """How many changes of files the operation takes."""
        if kind not in self.counts:
            self.bring(OPERATIONS[kind][0])
            self.made = None
            with FileEvents(self.folders()) as events:
                operation = self.api.operation(self.ask(kind), 90)
                self.counts[kind] = events.count
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
            self.assertEqual(self.sandbox.output("cat ~/word; cat /dev/shm/word 2>/dev/null || true").split(), ["disk"] + ["memory"] * self.memory)

    def killed(self, kind, victim, moment):
        """`moment`: from 0, the first change, to 1, the last."""
        at = 1 + round(moment * (self.undisturbed(kind) - 1))
        self.made = None
        self.bring(OPERATIONS[kind][0])
        known = None
        if victim != "vmm":
            known = self.server.role_pid(victim)
        elif kind in ("pause", "resume", "suspend", "checkpoint", "stop", "delete"):
            known = leaks.vmm_pid(self.server, self.sandbox.id)
        killed = []
        with FileEvents(self.folders(), {at: lambda: killed.append(self.kill(victim, known))}):
            try:
                id = self.ask(kind)
            except (OSError, ValueError, json.JSONDecodeError):  # the api died under it: whatever became of it is the operation
                id = None
            until = time.monotonic() + 20
            while not killed and time.monotonic() < until and (id is None or self.state_of(id) in ("pending", "running")):
                time.sleep(0.02)
            if not killed:
                killed.append(self.kill(victim, known))
        if victim != "vmm":
            self.server.wait_for(lambda: self.server.role_pid(victim) not in (None, known), 30, f"a new {victim}")
        self.server.wait_for(self.server.answers, 30, "an answer")
        if id is None:
            found = [one for one in self.api.ok("GET", "/v1/operations?limit=1")["operations"] if one["kind"] == kind]
            if not found or found[0]["id"] == self.last:
                return  # it was never accepted
            id = found[0]["id"]
            if kind == "create":
                self.made = Sandbox(self.api, found[0]["sandbox"])
        operation = self.api.operation(id, 90)
        self.last = id
        self.after(kind, operation, victim)

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
