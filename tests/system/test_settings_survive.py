"""Every field of a sandbox's settings is what it was after each operation. The fields come from the API's own description: one that is
new there and not set here fails this test, so that nobody forgets to carry it over."""

import json
import unittest

from api_client import Sandbox
from space_server import ServerTest
from test_volumes import has_fuse

BUDGET_S = 210
SLOW = True
BESIDE = True

CREATE = {
    "template": "base:latest", "cpus": 2, "memory_mib": 384, "disk_mib": 5120, "env": {"COLOUR": "blue", "EMPTY": "", "LONG": "x y'\"$ü" * 50},
    "metadata": {"owner": "somebody", "note": "a=b, c"}, "time_limit_s": 86400, "at_time_limit": "suspend", "idle_pause_s": 7200, "idle_suspend_s": 14400, "idle_cpu_percent": 40,
    "egress": {"policy": {"mode": "allowlist", "monitor": True, "rules": [{"id": "one", "name": "one.test"}, {"id": "two", "name": "*.two.test", "ports": [8443]}]},
               "limits": {"connections": 17, "requests_per_second": 23, "bytes_per_second": 1000000, "total_bytes": 50000000},
               "credentials": [{"credential": "api", "name": "one.test", "port": 443, "bearer": True}]},
}
# So seldom that none is taken meanwhile.
SNAPSHOTS = {"every_s": 86400, "keep": 7}
# Of a create from a checkpoint these are the checkpoint's.
OF_THE_CHECKPOINT = ("template", "cpus", "memory_mib", "disk_mib")
# What a sandbox shows and nobody sets: its state, and what follows from it.
SHOWN = {"id", "state", "created_at", "ends_at", "end_reason", "template_digest"}
# What makes a sandbox out of something else instead of setting a field.
SOURCES = {"checkpoint"}


def resolve(document, schema):
    while "$ref" in schema:
        node = document
        for word in schema["$ref"].removeprefix("#/").split("/"):
            node = node[word]
        schema = node
    return schema


class Settings(ServerTest):
    options = {"pool_ready": 0, "pool_spawned": 0}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.document = cls.api.ok("GET", "/openapi.json")
        cls.api.ok("PUT", "/v1/credentials/api", b"a-secret-of-some-length", {"Content-Type": "application/octet-stream"})

    def schema(self, name):
        return resolve(self.document, {"$ref": f"#/components/schemas/{name}"})["properties"]

    def everything(self, sandbox):
        """All that can be seen of a sandbox's settings, from outside and from inside."""
        shown = {name: value for name, value in sandbox.get().items() if name not in SHOWN - {"template_digest"}}
        egress = self.api.ok("GET", f"{sandbox.path}/egress")
        inside = sandbox.output("nproc; awk '/MemTotal/{print int($2 / 65536)}' /proc/meminfo; cat /sys/block/vda/size; env -0 | grep -zE '^(COLOUR|EMPTY|LONG)=' | sort -z | base64 -w0")
        return {"shown": shown, "egress": {name: egress[name] for name in ("policy", "limits", "credentials")}, "inside": inside.split("\n"),
                "snapshots": self.api.ok("GET", f"{sandbox.path}/snapshots")}

    def succeed(self, sandbox, verb, body=None):
        operation = sandbox.change(verb, body)
        self.assertEqual(operation["state"], "succeeded", (verb, operation))
        return operation

    def test_every_field_can_be_set_and_is_walked(self):
        create = set(self.schema("CreateSandbox")) - SOURCES
        self.assertEqual(create - set(CREATE), set(), "fields of a create that this test does not set")
        self.assertEqual(set(self.schema("EgressSettings")) - {"generation"} - set(CREATE["egress"]), set())
        self.assertEqual(set(self.schema("Sandbox")) - SHOWN - set(CREATE), set(), "fields of a sandbox that this test does not set")
        self.assertEqual(set(self.schema("SnapshotSettings")) - set(SNAPSHOTS), set())

    def test_all_fields_over_all_operations(self):
        sandbox = self.api.create(**CREATE)
        self.api.ok("PUT", f"{sandbox.path}/public-ports/8080", {})
        self.api.ok("PUT", f"{sandbox.path}/snapshots", SNAPSHOTS)
        before = self.everything(sandbox)
        shown = before["shown"]
        for name in set(shown) & set(CREATE):
            self.assertEqual(shown[name], CREATE[name], name)
        self.assertEqual(before["inside"][0], "2")
        self.assertEqual(before["egress"]["policy"]["monitor"], True)
        self.assertEqual(before["snapshots"], SNAPSHOTS)
        names = sandbox.output("hostname; cat /etc/machine-id")
        limit = sandbox.get()["ends_at"]

        def same(step, one=sandbox):
            with self.subTest(after=step):
                self.assertEqual(self.everything(one), before)
                if one is sandbox:
                    self.assertEqual(one.output("hostname; cat /etc/machine-id"), names)
                    self.assertEqual(self.api.ok("GET", f"{one.path}/public-ports")["ports"], [{"port": 8080}])
                self.assertGreaterEqual(one.get()["ends_at"], limit)

        def at_rest(step):
            with self.subTest(at_rest=step):
                self.assertEqual({name: value for name, value in sandbox.get().items() if name not in SHOWN - {"template_digest"}}, shown)
                self.assertEqual(self.api.ok("GET", f"{sandbox.path}/snapshots"), SNAPSHOTS)

        checkpoint = None
        for step in ("pause", "resume", "pause", "wake", "suspend", "wake", "checkpoint", "stop", "start", "stop", "wake", "restore", "suspend", "stop", "start"):
            operation = self.succeed(sandbox, step, {"checkpoint": checkpoint} if step == "restore" else {})
            checkpoint = operation.get("checkpoint", checkpoint)
            if step in ("pause", "suspend", "stop"):
                at_rest(step)
            else:
                same(step)
        sandbox.output("echo then > ~/kept")
        snapshot = self.succeed(sandbox, "snapshot")["checkpoint"]
        same("snapshot")
        for back in ({"checkpoint": snapshot, "path": "/home/user/kept"}, {"checkpoint": snapshot}):
            sandbox.output("echo now > ~/kept")
            self.succeed(sandbox, "restore", back)
            self.assertEqual(sandbox.output("cat ~/kept"), "then")
            same(f"restore {sorted(back)} of a snapshot")
        for value in ("x", None):
            answer = self.api.ok("PATCH", sandbox.path, {"metadata": {"more": value}}, {"Prefer": "wait=60"})
            self.assertEqual(answer["operation"]["state"], "succeeded", answer)
            if value:
                with self.subTest(after="update"):
                    self.assertEqual(self.everything(sandbox), {**before, "shown": {**shown, "metadata": {**shown["metadata"], "more": value}}})
        same("the update taken back")
        with self.api.create(checkpoint=checkpoint, **{name: value for name, value in CREATE.items() if name not in OF_THE_CHECKPOINT}) as late:
            same("create from a checkpoint", late)
        for body in ({}, {"checkpoint": checkpoint}):
            operation = self.succeed(sandbox, "fork", body)
            child = Sandbox(self.api, operation["children"][0])
            same(f"fork {body}", child)
            self.assertEqual(self.api.ok("GET", f"{child.path}/public-ports")["ports"], [], "who may reach a port was said of the parent alone")
            self.api.delete(child.id)
        for role in ("node", "api", "egress", "warden"):
            self.server.kill_role(role)
            same(f"kill -9 of {role}")
        sandbox.change("suspend")
        self.assertEqual(self.server.stop(), 0)
        self.server.start()
        type(self).api = sandbox.api = self.server.api
        at_rest("restart")
        sandbox.change("wake")
        same("restart")
        self.api.delete(sandbox.id)

    @unittest.skipUnless(has_fuse(), "the templates were published by a version without FUSE: publish them again")
    def test_mounts_of_volumes_over_all_operations(self):
        with self.api.create():  # by E2B's API nobody waits as long as a base may take
            pass
        volume = self.api.ok("POST", "/volumes", {"name": "walked"})["volumeID"]
        self.addCleanup(lambda: self.api.call("DELETE", f"/volumes/{volume}"))
        mounts = [{"name": "walked", "path": "/mnt/data"}]
        made = self.api.ok("POST", "/v2/sandboxes", {"templateID": "base", "timeout": 600, "volumeMounts": mounts})
        sandbox = Sandbox(self.api, made["sandboxID"])
        self.addCleanup(lambda: self.api.delete(sandbox.id))
        sandbox.output("echo kept > /mnt/data/f")

        def there(step, one=sandbox):
            with self.subTest(after=step):
                record = json.loads((self.server.data_dir / "node" / "sandboxes" / one.id / "record.json").read_text())
                self.assertEqual(record.get("mounts"), [{"volume": volume, "path": "/mnt/data"}])
                if one is sandbox:
                    self.assertEqual(self.api.ok("GET", f"/sandboxes/{one.id}")["volumeMounts"], mounts)
                # After a boot it is mounted a moment later.
                look = "grep -q ' /mnt/data fuse.volume ' /proc/mounts && cat /mnt/data/f"
                self.server.wait_for(lambda: one.run(look, time_limit_ms=20_000).stdout == b"kept\n", 40, "the volume's file")

        there("create")
        points = {}
        for step in ("pause", "resume", "suspend", "wake", "checkpoint", "snapshot"):
            points[step] = self.succeed(sandbox, step).get("checkpoint")
            if step not in ("pause", "suspend"):
                there(step)
        child = Sandbox(self.api, self.succeed(sandbox, "fork", {"checkpoint": points["checkpoint"]})["children"][0])
        there("fork", child)
        self.api.delete(child.id)
        with self.api.create(checkpoint=points["checkpoint"]) as late:
            there("create from a checkpoint", late)
        for point in ("checkpoint", "snapshot"):
            self.succeed(sandbox, "restore", {"checkpoint": points[point]})
            there(f"restore of a {point}")
        self.api.ok("PATCH", sandbox.path, {"env": {"A": "1"}}, {"Prefer": "wait=60"})
        there("update")
        self.server.kill_role("node")
        there("kill -9 of node")

    def test_a_fork_is_given_other_values_and_keeps_the_rest(self):
        with self.api.create(metadata={"a": "1"}, env={"A": "1", "B": "1"}, time_limit_s=5000, idle_pause_s=9000) as parent:
            operation = parent.change("fork", {"metadata": {"b": "2"}, "env": {"B": "2"}, "time_limit_s": 6000, "idle_suspend_s": 9900, "idle_cpu_percent": 50,
                                               "egress": {"policy": {"mode": "allowlist", "rules": [{"id": "one", "name": "one.test"}]}, "limits": {"connections": 7}}})
            with Sandbox(self.api, operation["children"][0]) as child:
                shown = child.get()
                self.assertEqual((shown["metadata"], shown["time_limit_s"], shown["idle_pause_s"]), ({"b": "2"}, 6000, 9000))
                self.assertEqual((shown["idle_suspend_s"], shown["idle_cpu_percent"]), (9900, 50))
                self.assertEqual(child.output("echo $A $B"), "1 2")
                egress = self.api.ok("GET", f"{child.path}/egress")
                self.assertEqual((egress["policy"]["mode"], egress["limits"]["connections"], egress["applied"]), ("allowlist", 7, True))
                self.assertEqual(self.api.ok("GET", f"{parent.path}/egress")["policy"], {"mode": "none"})
            for wrong in ({"egress": {"policy": {"mode": "sometimes"}}}, {"idle_suspend_s": 0}, {"idle_cpu_percent": 101}):
                self.assertEqual(self.api.call("POST", f"{parent.path}/fork", wrong).status, 400, wrong)
            operation = parent.change("fork")
            with Sandbox(self.api, operation["children"][0]) as child:
                self.assertEqual(self.api.ok("GET", f"{child.path}/egress")["policy"], {"mode": "none"})


if __name__ == "__main__":
    unittest.main()
