"""Settings of a sandbox that is there: at once while it runs, at its wake while it rests."""

import time
import unittest

from space_server import ServerTest

BUDGET_S = 150


class Update(ServerTest):
    options = {"pool_ready": 0, "pool_spawned": 0}

    def update(self, sandbox, **body):
        answer = self.api.ok("PATCH", sandbox.path, body, {"Prefer": "wait=60"})
        self.assertEqual(answer["operation"]["state"], "succeeded", answer)
        self.assertEqual(answer["operation"]["kind"], "update")
        return sandbox.get()

    def refuse(self, sandbox, status, code, **body):
        self.assertRefused(self.api.call("PATCH", sandbox.path, body, {"Prefer": "wait=60"}), status, code)

    def test_a_running_one_has_them_at_once(self):
        with self.api.create(env={"A": "1", "B": "1"}, metadata={"project": "x", "draft": "yes"}) as sandbox:
            now = self.update(sandbox, env={"A": "2", "B": None, "C": "3"}, metadata={"draft": None, "state": "good"}, time_limit_s=3600, idle_suspend_s=600)
            self.assertEqual(sandbox.output("echo $A-$B-$C"), "2--3")
            self.assertEqual(now["metadata"], {"project": "x", "state": "good"})
            self.assertEqual((now["time_limit_s"], now["idle_suspend_s"], now["state"]), (3600, 600, "running"))
            self.assertIn("ends_at", now)
            self.assertEqual([one["id"] for one in self.api.sandboxes("&metadata.state=good")], [sandbox.id])
            self.assertEqual(self.api.sandboxes("&metadata.draft=yes"), [])
            now = self.update(sandbox, time_limit_s=None, idle_suspend_s=None)
            self.assertNotIn("ends_at", now)
            self.assertNotIn("idle_suspend_s", now)
            # What came of it survives the roles.
            self.server.kill_role("node")
            self.assertEqual(sandbox.output("echo $A-$B-$C"), "2--3")
            self.assertEqual(self.api.ok("GET", f"{sandbox.path}/egress")["policy"]["mode"], "none")
            self.update(sandbox, egress="open")
            self.assertTrue(self.api.ok("GET", f"{sandbox.path}/egress")["applied"], "the gateway knows before the update ends")
            self.assertEqual(self.api.ok("GET", f"{sandbox.path}/egress")["policy"]["mode"], "open")

    def test_one_that_rests_has_them_when_it_goes_on(self):
        with self.api.create(env={"A": "1"}, time_limit_s=3600) as sandbox:
            for round, (rest, back) in enumerate((("pause", "resume"), ("suspend", "wake"), ("stop", "start"))):
                with self.subTest(rest=rest):
                    sandbox.change(rest)
                    now = self.update(sandbox, env={"A": rest}, metadata={"round": str(round)}, time_limit_s=1000 * (round + 1), idle_pause_s=500 + round, egress={"policy": {"mode": "allowlist", "rules": [{"name": f"r{round}.test"}]}})
                    self.assertEqual(now["metadata"], {"round": str(round)})
                    self.assertNotIn("ends_at", now, "the clock stands still")
                    sandbox.change(back)
                    self.assertEqual(sandbox.output("echo $A"), rest)
                    now = sandbox.get()
                    self.assertEqual((now["time_limit_s"], now["idle_pause_s"]), (1000 * (round + 1), 500 + round))
                    left = time.mktime(time.strptime(now["ends_at"][:19], "%Y-%m-%dT%H:%M:%S")) - time.mktime(time.gmtime())
                    self.assertLess(abs(left - 1000 * (round + 1)), 60)
                    network = self.api.ok("GET", f"{sandbox.path}/egress")
                    self.assertEqual(network["policy"]["rules"][0]["name"], f"r{round}.test")
                    self.assertTrue(network["applied"])

    def test_a_size_waits_for_a_start_from_the_disk(self):
        with self.api.create() as sandbox:
            sandbox.run("echo kept > ~/a")
            self.refuse(sandbox, 409, "size_in_memory", memory_mib=768)
            sandbox.change("suspend")
            self.refuse(sandbox, 409, "size_in_memory", cpus=2)
            sandbox.change("wake")
            small = sandbox.change("checkpoint")["checkpoint"]
            sandbox.change("stop")
            now = self.update(sandbox, memory_mib=768, cpus=2)
            self.assertEqual((now["memory_mib"], now["cpus"]), (768, 2))
            self.assertEqual(sandbox.change("start")["state"], "succeeded")
            self.assertEqual(sandbox.output("cat ~/a; nproc").split(), ["kept", "2"])
            self.assertGreater(int(sandbox.output("awk '/MemTotal/{print $2}' /proc/meminfo")), 600 << 10)
            # With its new size it is put away and comes back like any other.
            sandbox.run("echo here > /dev/shm/m")
            self.assertEqual(sandbox.change("suspend")["state"], "succeeded")
            self.assertEqual(sandbox.change("wake")["state"], "succeeded")
            self.assertEqual(sandbox.output("cat ~/a /dev/shm/m; nproc").split(), ["kept", "here", "2"])
            # Back to a point before: with the size of then, and it says so.
            self.assertEqual(sandbox.change("restore", {"checkpoint": small})["state"], "succeeded")
            self.assertEqual(sandbox.output("cat ~/a; nproc").split(), ["kept", "1"])
            self.assertEqual((sandbox.get()["memory_mib"], sandbox.get()["cpus"]), (512, 1))

    def test_what_is_wrong_is_named_and_changes_nothing(self):
        with self.api.create(metadata={"m": "1"}) as sandbox:
            for body in ({"nonsense": 1}, {"template": "base"}, {"disk_mib": 1 << 14}, {"cpus": 0}, {"cpus": None}, {"env": {"1": "x"}}, {"env": ["A"]}, {"env": {"A=": None}},
                         {"metadata": {"": "x"}}, {"metadata": {"m": 1}}, {"time_limit_s": 0}, {"at_time_limit": "explode"}, {"metadata": {str(i): "" for i in range(65)}}):
                self.assertRefused(self.api.call("PATCH", sandbox.path, body), 400, "invalid_field")
            self.assertEqual(self.api.call("PATCH", sandbox.path, {"egress": {"policy": {"mode": "everything"}}}).status, 400)
            self.assertEqual(sandbox.get()["metadata"], {"m": "1"})
            self.assertRefused(self.api.call("PATCH", "/v1/sandboxes/" + "a" * 24, {}), 404, "sandbox_not_found")
            for name, value in (("space.kind", "volume"), ("space.kind", None), ("space.x", "")):  # the server's own
                self.assertRefused(self.api.call("PATCH", sandbox.path, {"metadata": {"n": "2", name: value}}), 400, "label_reserved")
            self.assertEqual(sandbox.get()["metadata"], {"m": "1"})
            # The same request under the same key is done once.
            first = self.api.call("PATCH", sandbox.path, {"metadata": {"m": "2"}}, {"Idempotency-Key": "k1", "Prefer": "wait=30"})
            again = self.api.call("PATCH", sandbox.path, {"metadata": {"m": "2"}}, {"Idempotency-Key": "k1", "Prefer": "wait=30"})
            self.assertEqual(first.json["operation"]["id"], again.json["operation"]["id"])

    def test_the_command(self):
        with self.api.create() as sandbox:
            done = self.cli("update", sandbox.id, "-e", "A=cli", "-m", "who=cli", "--ttl", "900", "--at-ttl", "suspend", "--idle-pause", "300", "--idle-cpu", "30")
            self.assertEqual((done.returncode, done.stdout.decode().split()), (0, [sandbox.id]), done.stderr)
            self.assertEqual(sandbox.output("echo $A"), "cli")
            now = sandbox.get()
            self.assertEqual((now["metadata"], now["time_limit_s"], now["at_time_limit"], now["idle_pause_s"], now["idle_cpu_percent"]), ({"who": "cli"}, 900, "suspend", 300, 30))
            done = self.cli("update", sandbox.id, "--unset-env", "A", "--unset-metadata", "who", "--ttl", "none", "--idle-pause", "none", "--idle-cpu", "none")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(sandbox.output("echo [$A]"), "[]")
            self.assertFalse({"time_limit_s", "idle_cpu_percent"} & set(sandbox.get()))
            self.assertEqual(self.cli("update", sandbox.id).returncode, 65)


if __name__ == "__main__":
    unittest.main()
