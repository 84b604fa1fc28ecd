"""kill -9 of any process at any moment: what ran goes on or is ended cleanly, and nothing is left without an owner.

The check for what is left runs when the class is over (leaks.py)."""

import os
import random
import signal
import subprocess
import threading
import time
import unittest

import leaks
from api_client import ApiError, Result, Sandbox
from space_server import BINARY, ServerTest

BUDGET_S = 240


def in_thread(call):
    """Runs `call` beside us; an error of the connection is expected when the server dies under it."""
    outcome = []

    def run():
        try:
            outcome.append(call())
        except (OSError, ApiError, AssertionError, ValueError) as error:
            outcome.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, outcome


class KilledRoles(ServerTest):
    options = {"pool_ready": 1, "pool_spawned": 1}

    def assertSettles(self):
        """Every sandbox is in a state that stays; those that run answer."""
        self.server.wait_for(lambda: all(one["state"] in ("running", "paused", "ended", "failed") for one in self.api.sandboxes()), 60, "settled states")

    def clear(self):
        self.server.delete_all()

    def test_running_commands_survive_a_new_api_and_a_new_node(self):
        for role in ("api", "node", "warden"):
            with self.subTest(role=role), self.api.create() as sandbox:
                command = sandbox.start("for i in $(seq 1 60); do echo $i; sleep 0.1; done; exit 5")
                stream = command.attach()
                seen = Result()
                events = iter(stream)
                for _ in range(4):
                    event = next(events)
                    seen.add(event)
                self.server.kill_role(role)
                try:  # what still arrived on the old connection counts
                    for event in events:
                        seen.add(event)
                        last = event
                    event = last
                except (OSError, ValueError, NameError, UnboundLocalError):
                    pass
                stream.close()
                if seen.exit is None:
                    rest = command.finish(last_id=event.id)
                    seen.stdout, seen.exit = seen.stdout + rest.stdout, rest.exit
                self.assertEqual([int(line) for line in seen.stdout.split()], list(range(1, 61)))
                self.assertEqual(seen.code, 5)
                self.assertEqual(sandbox.output("echo after"), "after")

    def test_an_attach_token_opens_its_session_after_a_new_node(self):
        with self.api.create() as sandbox:
            command = sandbox.start("for i in $(seq 1 60); do echo $i; sleep 0.1; done; exit 5")
            other = sandbox.start("echo other")
            seen, last = Result(), None
            with command.attach(key=command.token) as stream:
                for count, event in enumerate(stream):
                    seen.add(event)
                    last = event.id
                    if count == 5:
                        break
            self.server.kill_role("node")
            # The token alone, no key: from the last event on, nothing lost, nothing twice.
            with command.attach(last_id=last, key=command.token) as stream:
                for event in stream:
                    seen.add(event)
            self.assertEqual([int(line) for line in seen.stdout.split()], list(range(1, 61)))
            self.assertEqual(seen.code, 5)
            self.assertEqual(self.refused(lambda: other.attach(key=command.token)), (401, "token_invalid"))
            # One that is not attached to yet starts its program.
            with other.attach(key=other.token) as stream:
                self.assertEqual([event.kind for event in stream][-1], "exit")

    def test_a_paused_sandbox_is_still_paused_after_a_new_node(self):
        with self.api.create() as sandbox:
            self.api.operation(self.api.ok("POST", f"{sandbox.path}/pause", {})["operation"]["id"])
            self.server.kill_role("node")
            self.assertEqual(sandbox.get()["state"], "paused")
            self.api.operation(self.api.ok("POST", f"{sandbox.path}/resume", {})["operation"]["id"])
            self.assertEqual(sandbox.output("echo on"), "on")

    def test_creates_under_way_are_finished_or_failed(self):
        random.seed(4)
        for role in ("api", "node", "warden"):
            for _ in range(3):
                with self.subTest(role=role):
                    calls = [in_thread(lambda: self.api.call("POST", "/v1/sandboxes", {}, {"Prefer": "wait=30"})) for _ in range(3)]
                    time.sleep(random.uniform(0, 0.5))
                    self.server.kill_role(role)
                    for thread, _ in calls:
                        thread.join(60)
                    self.assertSettles()
                    for one in self.api.sandboxes("&state=running"):
                        self.assertEqual(Sandbox(self.api, one["id"]).output("echo ok"), "ok")
                    self.clear()

    def test_deletes_under_way_are_finished(self):
        for role in ("api", "node", "warden"):
            with self.subTest(role=role):
                made = [self.api.create() for _ in range(3)]
                calls = [in_thread(lambda path=one.path: self.api.call("DELETE", path)) for one in made]
                time.sleep(0.05)
                self.server.kill_role(role)
                for thread, _ in calls:
                    thread.join(60)
                for one in made:
                    self.api.delete(one.id)
                    self.assertEqual(self.api.call("GET", one.path).status, 404)

    def test_a_vmm_that_dies_ends_its_sandbox_alone(self):
        with self.api.create() as victim, self.api.create() as other:
            os.kill(leaks.vmm_pid(self.server, victim.id), signal.SIGKILL)
            self.server.wait_for(lambda: victim.get()["state"] == "ended", 20, "the end of the sandbox")
            self.assertTrue(victim.get()["end_reason"])
            self.assertRefused(self.api.call("POST", f"{victim.path}/commands", {"command": "true"}), 409, "sandbox_ended")
            self.assertEqual(other.output("echo fine"), "fine")

    def test_a_vmm_that_dies_while_its_node_is_away_is_noticed(self):
        sandbox = self.api.create()
        pid = leaks.vmm_pid(self.server, sandbox.id)
        os.kill(self.server.role_pid("node"), signal.SIGKILL)
        os.kill(pid, signal.SIGKILL)
        self.server.wait_for(self.server.answers, 30, "the server")
        self.server.wait_for(lambda: sandbox.get()["state"] == "ended", 30, "the end of the sandbox")
        self.api.delete(sandbox.id)


class KilledSupervisor(ServerTest):
    def test_a_killed_server_starts_again_and_finds_its_sandboxes(self):
        with self.api.create() as sandbox:
            command = sandbox.start("sleep 4; echo survived")
            with command.attach() as stream:
                next(iter(stream))
            os.kill(self.server.process.pid, signal.SIGKILL)
            self.server.start_again()
            self.assertEqual(sandbox.get()["state"], "running")
            self.assertEqual(command.finish().stdout, b"survived\n")

    def test_an_orderly_stop_leaves_sandboxes_running_for_the_next_start(self):
        with self.api.create() as sandbox:
            sandbox.output("echo kept > ~/file")
            self.assertEqual(self.server.stop(), 0)
            self.server.start()
            self.assertEqual(sandbox.output("cat ~/file"), "kept")

    def test_a_second_server_on_the_same_folder_is_refused(self):
        second = subprocess.run([BINARY, "serve", *self.server.arguments()], capture_output=True, timeout=30)
        self.assertEqual(second.returncode, 78)
        self.assertIn(b"already_running", second.stderr)
        self.assertIn(str(self.server.process.pid).encode(), second.stderr)


if __name__ == "__main__":
    unittest.main()
