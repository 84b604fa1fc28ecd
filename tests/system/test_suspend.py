"""A life longer than its process: suspend and wake, stop and start, over a kill -9 of the whole server."""

import time
import unittest

import leaks
from running_programs import clock_off_by
from space_server import ServerTest

BUDGET_S = 240
COUNT = "i=0; while true; do i=$((i+1)); echo $i; sleep 0.1; done"


def numbers(result):
    return [int(line) for line in result.stdout.decode().split()]


class SuspendAndWake(ServerTest):
    options = {"pool_ready": 0, "pool_spawned": 0}

    def kill_server(self):
        self.server.process.kill()  # its roles end with it
        self.server.start_again()
        type(self).api = self.server.api

    def test_a_program_goes_on_where_it_stood_after_the_server_was_killed(self):
        with self.api.create() as sandbox:
            command = sandbox.start(COUNT)
            reader = command.in_background()
            reader.until(lambda r: len(r.stdout) > 20)
            self.assertEqual(sandbox.change("suspend")["state"], "succeeded")
            self.assertEqual(sandbox.get()["state"], "suspended")
            self.kill_server()
            sandbox.api = command.api = self.api
            self.assertEqual(sandbox.get()["state"], "suspended")
            before = numbers(reader.result)
            last = reader.result.events[-1].id
            self.assertEqual(sandbox.change("wake")["state"], "succeeded")
            # The same session, from the last event that was seen: nothing is lost, nothing comes twice.
            seen = list(before)
            with command.attach(last) as stream:
                text = b""
                for event in stream:
                    if event.kind == "stdout":
                        text += event.bytes
                    if text.count(b"\n") > 20:
                        break
            seen += [int(line) for line in text.decode().split("\n")[:-1]]
            self.assertEqual(seen, list(range(1, len(seen) + 1)))

    def test_an_attached_stream_lasts_over_a_suspend(self):
        with self.api.create() as sandbox:
            reader = sandbox.start(COUNT).in_background()
            reader.until(lambda r: len(r.stdout) > 10)
            sandbox.change("suspend")
            sandbox.change("wake")
            length = len(reader.result.stdout)
            reader.until(lambda r: len(r.stdout) > length + 60)
            with reader.change:
                seen = numbers(reader.result)
            self.assertEqual(seen, list(range(1, len(seen) + 1)))

    def test_memory_and_files_are_there_and_the_clock_is_right(self):
        with self.api.create() as sandbox:
            sandbox.run("echo on-disk > ~/a; sync; echo in-cache > ~/b; echo in-memory > /dev/shm/c")
            python = sandbox.start(["python3", "-i", "-q"], stdin=True)
            reader = python.in_background()
            python.stdin(b"x = 40\n")
            machine = sandbox.output("cat /etc/machine-id")
            for _ in range(2):
                sandbox.change("suspend")
                time.sleep(1)
                sandbox.change("wake")
                self.assertLess(clock_off_by(sandbox), 0.2)
                self.assertEqual(sandbox.output("cat ~/a ~/b /dev/shm/c").split(), ["on-disk", "in-cache", "in-memory"])
                self.assertEqual(sandbox.output("cat /etc/machine-id"), machine)
            python.stdin(b"print(x + 2)\n")
            reader.until(lambda r: b"42" in r.stdout)

    def test_a_paused_sandbox_can_be_suspended_and_what_it_used_is_free(self):
        with self.api.create() as sandbox:
            sandbox.output("echo here > /dev/shm/x")
            sandbox.change("pause")
            sandbox.change("suspend")
            self.assertEqual(sandbox.get()["state"], "suspended")
            self.assertEqual(leaks.vmms(self.server), [])
            sandbox.change("wake")
            self.assertEqual(sandbox.output("cat /dev/shm/x"), "here")

    def test_files_that_nobody_synced_are_there_after_a_start_in_place_of_a_wake(self):
        with self.api.create() as sandbox:
            for rest in (("suspend",), ("pause", "suspend"), ("pause", "stop")):
                with self.subTest(rest=rest):
                    sandbox.output(f"echo {'-'.join(rest)} > ~/fresh")
                    for verb in rest:
                        self.assertEqual(sandbox.change(verb)["state"], "succeeded")
                    self.assertEqual(sandbox.change("start")["state"], "succeeded")
                    self.assertEqual(sandbox.output("cat ~/fresh"), "-".join(rest))

    def test_a_stop_keeps_the_disk_and_a_start_boots_from_it(self):
        with self.api.create(env={"COLOUR": "blue"}) as sandbox:
            sandbox.run("echo kept > ~/a; echo gone > /dev/shm/b")
            host = sandbox.output("hostname")
            sandbox.change("stop")
            self.assertEqual(sandbox.get()["state"], "stopped")
            self.assertRefused(self.api.call("POST", f"{sandbox.path}/commands", {"command": "true"}), 409, "sandbox_stopped")
            sandbox.change("start")
            self.assertEqual(sandbox.output("cat ~/a; ls /dev/shm; hostname; echo $COLOUR").split(), ["kept", host, "blue"])
            # One that was started has its memory over nothing; it is suspended and woken like any other.
            sandbox.change("suspend")
            sandbox.change("wake")
            self.assertEqual(sandbox.output("cat ~/a; echo $COLOUR").split(), ["kept", "blue"])

    def test_what_the_state_forbids_is_refused_and_says_what_to_do(self):
        with self.api.create() as sandbox:
            for verb, code in (("wake", "sandbox_running"), ("start", "sandbox_running")):
                self.assertRefused(self.api.call("POST", f"{sandbox.path}/{verb}", {}), 409, code)
            sandbox.change("suspend")
            for verb in ("pause", "suspend", "resume", "checkpoint"):
                answer = self.api.call("POST", f"{sandbox.path}/{verb}", {})
                self.assertRefused(answer, 409, "sandbox_suspended")
                self.assertIn("wake", answer.json["next"])


class KilledInTheMiddle(ServerTest):
    """kill -9 of node or warden while a suspend or wake is under way: the old state or the new one, and the program goes on."""

    options = {"pool_ready": 0, "pool_spawned": 0}

    def test_every_outcome_is_one_of_two(self):
        with self.api.create() as sandbox:
            sandbox.output("echo here > /dev/shm/x")
            for round, role in enumerate(("node", "warden", "node", "node")):
                for verb, states in (("suspend", ("running", "suspended")), ("wake", ("running", "suspended"))):
                    if (verb == "suspend") != (sandbox.get()["state"] == "running"):
                        continue
                    with self.subTest(role=role, verb=verb, round=round):
                        self.api.call("POST", f"{sandbox.path}/{verb}", {})
                        time.sleep(0.02 * round)
                        self.server.kill_role(role)
                        self.server.wait_for(lambda: all(one["state"] not in ("pending", "running") for one in self.api.ok("GET", "/v1/operations?limit=5")["operations"]), 60, "the end")
                        self.assertIn(sandbox.get()["state"], states)
            if sandbox.get()["state"] == "suspended":
                sandbox.change("wake")
            self.assertEqual(sandbox.output("cat /dev/shm/x"), "here")


if __name__ == "__main__":
    unittest.main()
