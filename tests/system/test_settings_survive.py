"""Every field of a sandbox's settings is what it was after each operation. The fields come from the API's own description: one that is
new there and not set here fails this test, so that nobody forgets to carry it over."""

import unittest

from api_client import Sandbox
from space_server import ServerTest

BUDGET_S = 150

CREATE = {
    "template": "base:latest", "cpus": 2, "memory_mib": 384, "disk_mib": 5120, "env": {"COLOUR": "blue", "EMPTY": "", "LONG": "x y'\"$ü" * 50},
    "metadata": {"owner": "somebody", "note": "a=b, c"}, "time_limit_s": 86400, "at_time_limit": "suspend", "idle_pause_s": 7200, "idle_suspend_s": 14400, "idle_cpu_percent": 40,
    "egress": {"policy": {"mode": "allowlist", "monitor": True, "rules": [{"id": "one", "name": "one.test"}, {"id": "two", "name": "*.two.test", "ports": [8443]}]},
               "limits": {"connections": 17, "requests_per_second": 23, "bytes_per_second": 1000000, "total_bytes": 50000000},
               "credentials": [{"credential": "api", "name": "one.test", "port": 443, "bearer": True}]},
}
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
        return {"shown": shown, "egress": {name: egress[name] for name in ("policy", "limits", "credentials")}, "inside": inside.split("\n")}

    def test_every_field_can_be_set_and_is_walked(self):
        create = set(self.schema("CreateSandbox")) - SOURCES
        self.assertEqual(create - set(CREATE), set(), "fields of a create that this test does not set")
        self.assertEqual(set(self.schema("EgressSettings")) - {"generation"} - set(CREATE["egress"]), set())
        self.assertEqual(set(self.schema("Sandbox")) - SHOWN - set(CREATE), set(), "fields of a sandbox that this test does not set")

    def test_all_fields_over_all_operations(self):
        sandbox = self.api.create(**CREATE)
        self.api.ok("PUT", f"{sandbox.path}/public-ports/8080", {})
        before = self.everything(sandbox)
        shown = before["shown"]
        for name in set(shown) & set(CREATE):
            self.assertEqual(shown[name], CREATE[name], name)
        self.assertEqual(before["inside"][0], "2")
        self.assertEqual(before["egress"]["policy"]["monitor"], True)
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

        checkpoint = None
        for step in ("pause", "resume", "pause", "wake", "suspend", "wake", "checkpoint", "stop", "start", "stop", "wake", "restore", "suspend", "stop", "start"):
            operation = sandbox.change(step, {"checkpoint": checkpoint} if step == "restore" else {})
            self.assertEqual(operation["state"], "succeeded", (step, operation))
            checkpoint = operation.get("checkpoint", checkpoint)
            if step in ("pause", "suspend", "stop"):
                at_rest(step)
            else:
                same(step)
        for body in ({}, {"checkpoint": checkpoint}):
            operation = sandbox.change("fork", body)
            self.assertEqual(operation["state"], "succeeded", operation)
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
