"""Sandboxes that come to rest by themselves, and wake for the next request."""

import time
import unittest

from space_server import ServerTest

BUDGET_S = 180


class Rest(ServerTest):
    options = {"pool_ready": 0, "pool_spawned": 0}

    def until(self, sandbox, state, limit=40):
        self.server.wait_for(lambda: sandbox.get()["state"] == state, limit, f"a sandbox that is {state}")

    def test_an_idle_one_is_paused_then_suspended_and_the_next_request_wakes_it(self):
        with self.api.create(idle_pause_s=3, idle_suspend_s=9) as sandbox:
            self.assertEqual(sandbox.get()["idle_suspend_s"], 9)
            sandbox.run("echo here > /dev/shm/x")
            self.until(sandbox, "paused")
            self.until(sandbox, "suspended")
            self.assertEqual(sandbox.output("cat /dev/shm/x"), "here")
            self.assertEqual(sandbox.get()["state"], "running")
            kinds = [(one["kind"], one.get("reason")) for one in self.api.ok("GET", f"/v1/operations?sandbox={sandbox.id}")["operations"]]
            self.assertIn(("suspend", "idle"), kinds)
            self.assertIn(("wake", "request"), kinds)

    def test_one_that_works_or_is_watched_is_not_idle(self):
        with self.api.create(idle_suspend_s=4) as sandbox:
            command = sandbox.start("sleep 14; echo done")
            reader = command.in_background()
            time.sleep(9)
            self.assertEqual(sandbox.get()["state"], "running", "somebody is attached")
            reader.wait()
            busy = sandbox.start("timeout 12 sh -c 'while :; do :; done' >/dev/null 2>&1 &")
            busy.finish()
            time.sleep(9)
            self.assertEqual(sandbox.get()["state"], "running", "it computes")
            self.until(sandbox, "suspended")

    def test_a_time_limit_may_suspend(self):
        with self.api.create(time_limit_s=3, at_time_limit="suspend") as sandbox:
            sandbox.run("echo here > /dev/shm/x")
            self.until(sandbox, "suspended")
            self.assertEqual(sandbox.output("cat /dev/shm/x"), "here")


if __name__ == "__main__":
    unittest.main()
