"""Sandboxes that come to rest by themselves, and wake for the next request."""

import hashlib
import hmac
import time
import unittest

from egress_case import EgressTest
from space_server import ServerTest

BUDGET_S = 300
SLOW = True
BESIDE = True


class Rest(ServerTest):
    options = {"pool_ready": 0, "pool_spawned": 0}

    def until(self, sandbox, state, limit=40):
        self.server.wait_for(lambda: sandbox.get()["state"] == state, limit, f"a sandbox that is {state}")

    def traffic_token(self, sandbox):
        """As node makes it (src/node/tokens.h)."""
        key = bytes.fromhex((self.server.data_dir / "node" / "token.key").read_text().strip())
        message = "".join(f"{len(part)}:{part}" for part in ("traffic", "default", sandbox))
        return hmac.new(key, message.encode(), hashlib.sha256).hexdigest()

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

    def test_a_request_to_a_port_wakes_it_and_waits(self):
        with self.api.create(idle_suspend_s=3600) as sandbox:
            sandbox.run("mkdir /tmp/w && echo served > /tmp/w/f")
            sandbox.start("cd /tmp/w && exec python3 -m http.server 8000").in_background()
            port = f"{sandbox.path}/ports/8000/f"
            self.server.wait_for(lambda: self.api.call("GET", port).status == 200, 30, "the server in the guest")
            sandbox.change("suspend")
            self.assertEqual(self.api.call("GET", port).body, b"served\n")
            self.assertEqual(sandbox.get()["state"], "running")
            # Nobody without a right wakes it; a public port is anybody's.
            sandbox.change("suspend")
            stranger = self.api.with_key(None)
            self.assertEqual(stranger.call("GET", port).status, 401)
            self.assertEqual(stranger.call("GET", port, headers={"Space-Traffic-Token": "0" * 64}).status, 401)
            self.assertEqual(stranger.call("GET", "/f", headers={"E2b-Sandbox-Id": sandbox.id, "E2b-Sandbox-Port": "8000", "E2b-Traffic-Access-Token": "0" * 64}).status, 403)
            self.assertEqual(sandbox.get()["state"], "suspended")
            self.api.ok("PUT", f"{sandbox.path}/public-ports/8000", {})
            self.assertEqual(stranger.call("GET", port).body, b"served\n")
            self.assertEqual(sandbox.get()["state"], "running")
            # One that comes while it is on its way to rest waits as well.
            operation = self.api.ok("POST", f"{sandbox.path}/suspend", {})["operation"]
            self.assertEqual(self.api.call("GET", port).body, b"served\n")
            self.assertEqual(self.api.operation(operation["id"])["state"], "succeeded")

    def test_who_has_not_the_token_of_the_in_sandbox_protocol_wakes_nobody(self):
        with self.api.create(idle_suspend_s=3600) as sandbox:
            token = self.api.ok("GET", f"/sandboxes/{sandbox.id}")["envdAccessToken"]
            sandbox.change("suspend")
            stranger, way = self.api.with_key(None), {"E2b-Sandbox-Id": sandbox.id, "E2b-Sandbox-Port": "49983"}
            for method, path, more in (("GET", "/health", {}), ("POST", "/process.Process/List", {}), ("GET", "/files?path=/etc/hostname&username=root&signature=v1_x", {}),
                                       ("GET", "/health", {"X-Access-Token": "0" * 64})):
                self.assertEqual(stranger.call(method, path, headers={**way, **more}).status, 403, (path, more))
            self.assertEqual(sandbox.get()["state"], "suspended")
            self.assertEqual(stranger.call("GET", "/health", headers={**way, "X-Access-Token": token}).status, 204)
            self.assertEqual(sandbox.get()["state"], "running")

    def test_traffic_by_e2bs_headers_wakes_it_too(self):
        with self.api.create(idle_suspend_s=3600) as sandbox:
            sandbox.run("mkdir /tmp/w && echo served > /tmp/w/f")
            sandbox.start("cd /tmp/w && exec python3 -m http.server 8000").in_background()
            self.server.wait_for(lambda: self.api.call("GET", f"{sandbox.path}/ports/8000/f").status == 200, 30, "the server in the guest")
            token = self.traffic_token(sandbox.id)
            for _ in range(2):
                sandbox.change("suspend")
                answer = self.api.with_key(None).call("GET", "/f", headers={"E2b-Sandbox-Id": sandbox.id, "E2b-Sandbox-Port": "8000", "E2b-Traffic-Access-Token": token})
                self.assertEqual((answer.status, answer.body), (200, b"served\n"), answer.body)
                self.assertEqual(sandbox.get()["state"], "running")
            sandbox.change("suspend")
            answer = self.api.with_key(None).call("GET", f"{sandbox.path}/ports/8000/f", headers={"Space-Traffic-Token": token})
            self.assertEqual(answer.body, b"served\n")

    def test_without_a_policy_a_suspended_one_stays_so(self):
        with self.api.create() as sandbox:
            sandbox.change("suspend")
            self.assertRefused(self.api.call("GET", f"{sandbox.path}/ports/8000/"), 409, "sandbox_suspended")
            self.assertEqual(sandbox.get()["state"], "suspended")

    def test_a_time_limit_may_suspend(self):
        with self.api.create(time_limit_s=3, at_time_limit="suspend") as sandbox:
            sandbox.run("echo here > /dev/shm/x")
            self.until(sandbox, "suspended")
            self.assertEqual(sandbox.output("cat /dev/shm/x"), "here")


class Waiting(EgressTest):
    """A program that waits for somebody's answer computes nothing, and has no session."""

    options = {"pool_ready": 0, "pool_spawned": 0}

    def test_an_answer_that_takes_longer_than_the_idle_time_is_not_lost(self):
        with self.api.create(idle_suspend_s=5, egress={"policy": self.policy}) as sandbox:
            for scheme in ("http", "https"):
                sandbox.run(f"setsid curl -sS -m 120 '{scheme}://allowed.test/slow?s=30' >/tmp/{scheme} 2>&1 </dev/null &")
            began = time.monotonic()
            while time.monotonic() < began + 24:
                self.assertEqual(sandbox.get()["state"], "running", f"{time.monotonic() - began:.0f} s after it had asked")
                time.sleep(1)
            # The answers have come, nothing is open any more, and nobody looked: it rests, with them.
            self.server.wait_for(lambda: sandbox.get()["state"] == "suspended", 60, "a sandbox that is suspended")
            self.assertGreater(time.monotonic(), began + 28)
            for scheme in ("http", "https"):
                self.assertIn("shared GET allowed.test /slow", sandbox.output(f"cat /tmp/{scheme}"))

    def test_without_anything_under_way_it_rests_though_its_network_is_open(self):
        with self.api.create(idle_suspend_s=5, egress={"policy": self.policy}) as sandbox:
            self.assertIn("shared GET", sandbox.output("curl -sS -m 30 http://allowed.test/"))
            self.server.wait_for(lambda: sandbox.get()["state"] == "suspended", 40, "a sandbox that is suspended")


if __name__ == "__main__":
    unittest.main()
