"""The server's database is lost, or an older copy of it is put back: what node has is taken up again, with its content, its settings and its
checkpoints; what was deleted stays away."""

import datetime
import subprocess
import time
import unittest

from api_client import Sandbox
from space_server import ServerTest

BUDGET_S = 300
SETTINGS = ("state", "template", "template_digest", "cpus", "memory_mib", "disk_mib", "metadata", "time_limit_s", "idle_suspend_s")


class LostDatabase(ServerTest):
    options = {"pool_ready": 0, "pool_spawned": 0, "tenants_on_tcg": True}

    def restart(self, meanwhile=lambda: None):
        self.assertEqual(self.server.stop(), 0)
        meanwhile()
        self.server.start()
        type(self).api = self.server.api

    def files(self):
        return sorted((self.server.data_dir / "control").glob("space.db*"))

    def lose(self):
        self.assertTrue(self.files())
        for file in self.files():
            file.unlink()

    def ids(self):
        return {one["id"] for one in self.api.sandboxes()}

    def wait_for_all(self, *sandboxes):
        self.server.wait_for(lambda: {one.id for one in sandboxes} <= self.ids(), 60, "what node has to be taken up")

    def network(self, sandbox):
        found = self.api.ok("GET", f"{sandbox.path}/egress")
        return {name: found[name] for name in ("policy", "generation")}

    def assertGone(self, *sandboxes):
        """Now, and after store and node have looked at each other once more."""
        self.restart()
        self.server.wait_for(lambda: self.api.ok("GET", "/v1/sandboxes") is not None, 30, "an answer")
        time.sleep(3)
        for one in sandboxes:
            self.assertEqual(one.api.call("GET", one.path).status, 404)
            self.assertFalse((self.server.data_dir / "node" / "sandboxes" / one.id).exists())

    def test_a_lost_database_loses_no_sandbox(self):
        key = self.api.ok("POST", "/v1/keys", {"name": "theirs", "tenant": "acme", "scopes": ["run"]})["key"]
        theirs = self.api.with_key(key).create()
        theirs.output("echo theirs > ~/file")
        policy = {"mode": "allowlist", "rules": [{"id": "one", "name": "one.test"}]}
        kept = self.api.create(metadata={"project": "demo"}, time_limit_s=86400, idle_suspend_s=7200, egress={"policy": policy})
        kept.output("echo content > ~/file; echo memory > /dev/shm/file")
        checkpoint = kept.change("checkpoint")["checkpoint"]
        asleep, deleted = self.api.create(), self.api.create()
        asleep.output("echo asleep > ~/file")
        self.assertEqual(asleep.change("suspend")["state"], "succeeded")
        before, network = kept.get(), self.network(kept)
        self.assertEqual(network["policy"]["mode"], "allowlist")

        def lose_and_collect():
            self.lose()
            collected = self.cli("gc", "--data-dir", str(self.server.data_dir))
            self.assertEqual(collected.returncode, 0, collected.stderr)

        self.restart(lose_and_collect)
        self.wait_for_all(kept, asleep, deleted)
        after = kept.get()
        self.assertEqual({name: after.get(name) for name in SETTINGS}, {name: before.get(name) for name in SETTINGS})
        made, there = (datetime.datetime.fromisoformat(one["created_at"]) for one in (before, after))
        self.assertLess(abs((there - made).total_seconds()), 5, "node's own time of it, which came to it after the request was accepted")
        self.assertEqual(kept.output("cat ~/file /dev/shm/file"), "content\nmemory")
        self.server.wait_for(lambda: self.network(kept) == network, 30, "its policy")
        self.assertEqual(asleep.get()["state"], "suspended")
        self.assertEqual(asleep.change("wake")["state"], "succeeded")
        self.assertEqual(asleep.output("cat ~/file"), "asleep")

        kept.output("rm ~/file")
        self.assertEqual([one["id"] for one in self.api.ok("GET", f"/v1/checkpoints?sandbox={kept.id}")["checkpoints"]], [checkpoint])
        self.assertEqual(kept.change("restore", {"checkpoint": checkpoint})["state"], "succeeded")
        self.assertEqual(kept.output("cat ~/file /dev/shm/file"), "content\nmemory")

        self.check_their_tenant(theirs, key)
        self.api.delete(deleted.id)
        self.assertGone(deleted)
        self.assertEqual(kept.output("cat ~/file"), "content")
        for one in (kept, asleep):
            self.api.delete(one.id)

    def check_their_tenant(self, theirs, key):
        """Its keys went with the database: its sandbox rests until somebody gives it another one."""
        self.assertRefused(theirs.api.call("GET", theirs.path), 401, "key_unknown")
        keyless = [{"tenant": "acme", "sandboxes": 1}]
        self.server.wait_for(lambda: self.api.ok("GET", "/v1/sandboxes").get("without_key") == keyless, 30, "the tenant without a key")
        listed = self.cli("ls")
        self.assertEqual(listed.returncode, 0)
        self.assertIn(b"tenant acme has no key", listed.stderr)
        self.assertIn("reconcile.tenant_without_key", self.server.log.read_text())
        other = self.api.ok("POST", "/v1/keys", {"name": "again", "tenant": "acme", "scopes": ["run"]})["key"]
        self.assertNotEqual(other, key)
        again = Sandbox(self.api.with_key(other), theirs.id)
        self.server.wait_for(lambda: again.get()["state"] == "paused", 30, "the sandbox at rest")
        self.assertNotIn("without_key", self.api.ok("GET", "/v1/sandboxes"))
        self.assertEqual(again.change("resume")["state"], "succeeded")
        self.assertEqual(again.output("cat ~/file"), "theirs")
        again.api.delete(again.id)

    def test_an_older_database_loses_no_sandbox_and_brings_none_back(self):
        older = self.server.folder / "older"
        older.mkdir()
        first, early = self.api.create(), self.api.create()
        first.output("echo first > ~/file")
        self.api.delete(early.id)
        self.restart(lambda: subprocess.run(["cp", "-a", *self.files(), older], check=True))
        late = self.api.create()
        self.api.delete(late.id)
        later = self.api.create(metadata={"made": "later"})
        later.output("echo later > ~/file")
        checkpoint = later.change("checkpoint")["checkpoint"]
        first.output("echo more >> ~/file")

        def put_back():
            self.lose()
            subprocess.run(["cp", "-a", *sorted(older.iterdir()), self.server.data_dir / "control"], check=True)

        self.restart(put_back)
        self.wait_for_all(first, later)
        self.assertEqual(first.output("cat ~/file"), "first\nmore")
        self.assertEqual(later.output("cat ~/file"), "later")
        self.assertEqual(later.get()["metadata"], {"made": "later"})
        later.output("rm ~/file")
        self.assertEqual(later.change("restore", {"checkpoint": checkpoint})["state"], "succeeded")
        self.assertEqual(later.output("cat ~/file"), "later")
        self.assertEqual(self.ids() & {early.id, late.id}, set())
        self.api.delete(later.id)
        self.assertGone(later, early, late)
        self.assertEqual(first.output("cat ~/file"), "first\nmore")
        self.api.delete(first.id)


if __name__ == "__main__":
    unittest.main()
