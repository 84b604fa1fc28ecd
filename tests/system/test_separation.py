"""Who may do what, for every operation of the API's own contract: keys that are missing, wrong, revoked, expired or without the scope, and
another tenant's ids. Made from /openapi.json, so an endpoint that is added without these checks fails here."""

import json
import re
import time
import unittest

from space_server import ServerTest

BUDGET_S = 150
METHODS = ("get", "put", "post", "delete", "patch", "head", "options", "trace")
UNKNOWN = "a" * 24
# A key that lacks each scope.
WITHOUT = {"read": "publish", "run": "read", "publish": "run", "admin": "run", "host": "publish"}
# Path parameters that are ids of something that belongs to a tenant.
THEIRS = ("id", "session", "operation", "key", "checkpoint", "build")
# They say so of what is not there too; test_zz_the_victim_noticed_nothing sees that it is there.
GONE_IS_FINE = ("deleteCheckpoint",)
# Queries and bodies that are right, so that nothing but the key or the id can be what is refused.
QUERY = {"path": "/etc/hostname", "recursive": "false"}
BODIES = {
    "createSandbox": {}, "createCommand": {"argv": ["true"]}, "makeFolder": {"path": "/tmp/x"}, "moveFile": {"from": "/tmp/x", "to": "/tmp/y"},
    "signalCommand": {"signal": "TERM"}, "resizeCommand": {"rows": 24, "cols": 80}, "createKey": {"name": "made by the test of separation"},
    "restoreSandbox": {"checkpoint": UNKNOWN}, "explainEgress": {"method": "GET", "url": "https://example.org/"},
}


class Operation:
    def __init__(self, path, method, shared, spec, document):
        self.path, self.method, self.spec = path, method.upper(), spec
        self.name = spec.get("operationId", f"{self.method} {path}")
        self.scope = spec.get("x-space-scope")
        self.open = spec.get("security") == []
        parameters = [self.resolve(one, document) for one in [*shared, *spec.get("parameters", [])]]
        self.query = {one["name"]: QUERY.get(one["name"]) for one in parameters if one["in"] == "query" and one.get("required")}
        self.holes = re.findall(r"\{(\w+)\}", path)

    @staticmethod
    def resolve(one, document):
        if "$ref" not in one:
            return one
        for part in one["$ref"].removeprefix("#/").split("/"):
            document = document[part]
        return document

    def target(self, names):
        missing = [hole for hole in self.holes if hole not in names]
        assert not missing, f"{self.name}: NAMES of this test knows no {missing}"
        unknown = [name for name, value in self.query.items() if value is None]
        assert not unknown, f"{self.name}: QUERY of this test knows no {unknown}"
        path = re.sub(r"\{(\w+)\}", lambda hole: names[hole.group(1)], self.path)
        return path + ("?" + "&".join(f"{name}={value}" for name, value in self.query.items()) if self.query else "")

    def body(self):
        if "requestBody" not in self.spec:
            return None, {}
        content = self.spec["requestBody"].get("content", {})
        if "application/json" not in content:
            return b"x", {"Content-Type": "application/octet-stream"}
        media = content["application/json"]
        body = BODIES.get(self.name, media.get("example", {}))
        return json.dumps(body).encode(), {"Content-Type": "application/json"}


class Separation(ServerTest):
    options = {"tenants_on_tcg": True, "pool_ready": 0}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        document = cls.api.with_key(None).ok("GET", "/openapi.json")
        cls.operations = [Operation(path, method, item.get("parameters", []), item[method], document)
                          for path, item in document["paths"].items() for method in METHODS if method in item]
        cls.sandbox = cls.api.create()
        cls.sandbox.write("/tmp/kept", b"ours")
        command = cls.sandbox.start(["sleep", "600"])
        own_key = cls.api.ok("POST", "/v1/keys", {"name": "victim", "scopes": ["read"]})
        operation = cls.api.ok("GET", "/v1/operations")["operations"][0]["id"]
        checkpoint = cls.sandbox.change("checkpoint", {"name": "victim"})["checkpoint"]
        build = cls.api.ok("POST", "/v1/builds", {"name": "separation:1", "parent": "not-there"})["id"]  # it fails, and its record stays
        cls.api.ok("PUT", "/v1/credentials/separation", b"kept from others", {"Content-Type": "application/octet-stream"})
        # What is ours, by the names that path parameters have.
        cls.names = {"id": cls.sandbox.id, "session": command.session, "operation": operation, "key": own_key["id"], "ref": "base:latest",
                     "port": "8080", "name": "separation", "checkpoint": checkpoint, "build": build, "digest": "a" * 64, "a": "filesystem", "b": "x"}
        cls.nobodys = {**cls.names, **dict.fromkeys(THEIRS, UNKNOWN)}
        cls.keys = {scope: cls.key(scopes=[scope]) for scope in ("read", "run", "publish", "admin")}
        cls.other = cls.key(tenant="second", scopes=["admin"])
        cls.expired = cls.key(scopes=["admin"], expires_in_s=1)
        revoked = cls.api.ok("POST", "/v1/keys", {"name": "revoked", "scopes": ["admin"]})
        cls.api.ok("DELETE", f"/v1/keys/{revoked['id']}")
        cls.revoked = revoked["key"]
        time.sleep(1.1)

    @classmethod
    def key(cls, **wanted):
        return cls.api.ok("POST", "/v1/keys", {"name": "separation", **wanted})["key"]

    def ask(self, operation, key, names=None, limit=10):
        """(status, code, body). Of a stream only the beginning is read."""
        body, headers = operation.body()
        connection = self.api.connection(limit)
        try:
            connection.request(operation.method, operation.target(names or self.names), body=body, headers={**self.api.with_key(key).headers(), **headers})
            response = connection.getresponse()
            streams = "event-stream" in response.headers.get("Content-Type", "")
            text = b"" if streams else response.read()
            try:
                code = json.loads(text).get("code", "")
            except (ValueError, AttributeError):
                code = ""
            return response.status, code, text
        finally:
            connection.close()

    def each(self, condition=lambda operation: True):
        return [operation for operation in self.operations if condition(operation) and not operation.open]

    def test_every_operation_says_what_it_needs(self):
        self.assertGreater(len(self.operations), 25)
        for operation in self.operations:
            self.assertIn(operation.scope, (None,) if operation.open else WITHOUT, operation.name)
        self.assertEqual({operation.path for operation in self.operations if operation.open}, {"/v1/health", "/openapi.json"})

    def test_without_a_good_key_nothing_answers(self):
        bad = {"": "key_missing", "sk_" + "A" * 43: "key_unknown", self.revoked: "key_revoked", self.expired: "key_expired"}
        for operation in self.each():
            with self.subTest(operation.name):
                for key, code in bad.items():
                    self.assertEqual(self.ask(operation, key)[:2], (401, code))

    def test_without_the_scope_nothing_happens(self):
        for operation in self.each():
            with self.subTest(operation.name):
                status, code, _ = self.ask(operation, self.keys[WITHOUT[operation.scope]])
                self.assertEqual((status, code), (403, "scope_missing"))

    def test_with_the_scope_the_door_is_open(self):
        # The control of the test above: what a key with the scope gets for what nobody has is never a refusal of the key.
        for operation in self.each(lambda one: one.method == "GET" and one.scope in ("read", "host")):
            with self.subTest(operation.name):
                self.assertNotIn(self.ask(operation, self.keys["read"], self.nobodys)[0], (401, 403))

    def test_what_is_another_tenants_looks_like_what_is_not_there(self):
        for operation in self.each(lambda one: set(one.holes) & set(THEIRS) and one.scope not in ("host", "publish")):
            with self.subTest(operation.name):
                theirs, nobodys = self.ask(operation, self.other), self.ask(operation, self.other, self.nobodys)
                self.assertEqual(theirs[0], 200 if operation.name in GONE_IS_FINE else 404, theirs)
                self.assertEqual(self.without_ids(theirs), self.without_ids(nobodys))

    def test_what_is_the_hosts_is_not_for_another_tenant(self):
        for operation in self.each(lambda one: one.scope in ("host", "publish")):
            with self.subTest(operation.name):
                self.assertEqual(self.ask(operation, self.other)[:2], (403, "host_only"))

    def test_lists_hold_nothing_of_another_tenant(self):
        for operation in self.each(lambda one: one.method == "GET" and not one.holes and one.scope == "read"):
            with self.subTest(operation.name):
                status, _, text = self.ask(operation, self.other)
                self.assertLess(status, 400)
                for name in (*THEIRS, "name"):
                    self.assertNotIn(self.names[name].encode(), text)
        self.assertNotIn(self.names["key"], json.dumps(self.api.with_key(self.other).ok("GET", "/v1/keys")))

    def test_ids_in_bodies_queries_and_events_are_judged_too(self):
        other = self.api.with_key(self.other)
        self.assertEqual(other.ok("GET", f"/v1/operations?sandbox={self.sandbox.id}")["operations"], [])
        self.assertRefused(other.call("POST", "/v1/keys", {"name": "x", "tenant": "default"}), 403, "host_only")
        self.assertRefused(other.call("GET", "/v1/keys?tenant=default"), 403, "host_only")
        for checkpoint in (self.names["checkpoint"], UNKNOWN):
            self.assertRefused(other.call("POST", "/v1/sandboxes", {"checkpoint": checkpoint}), 404, "checkpoint_not_found")
        self.assertEqual(other.ok("DELETE", "/v1/credentials/separation"), {})  # his own, of which there is none
        with other.events("/v1/events?after=0", timeout=2) as stream:
            try:
                for event in stream:
                    self.assertNotIn(self.sandbox.id, json.dumps(event.data))
            except OSError:
                pass  # nothing more came

    def test_by_e2bs_api_a_key_that_may_only_look_gets_no_token(self):
        looks = self.api.with_key(self.api.ok("POST", "/v1/keys", {"name": "looks", "scopes": ["read"]})["key"])
        volume = self.api.ok("POST", "/volumes", {"name": "separation"})
        self.addCleanup(lambda: self.api.call("DELETE", f"/volumes/{volume['volumeID']}"))
        self.assertIn("envdAccessToken", self.api.ok("GET", f"/sandboxes/{self.sandbox.id}"), "the control")
        seen = looks.ok("GET", f"/sandboxes/{self.sandbox.id}")
        self.assertEqual((seen["sandboxID"], [name for name, value in seen.items() if "oken" in name and value]), (self.sandbox.id, []))
        self.assertEqual(looks.call("GET", f"/volumes/{volume['volumeID']}").status, 403)
        for shown in looks.ok("GET", "/volumes") + looks.ok("GET", "/v2/sandboxes"):
            self.assertEqual([name for name in shown if "oken" in name], [])

    def test_zz_the_victim_noticed_nothing(self):
        self.assertEqual(self.sandbox.get()["state"], "running")
        self.assertEqual(self.sandbox.read("/tmp/kept"), b"ours")
        self.assertEqual(self.api.ok("GET", f"{self.sandbox.path}/commands/{self.names['session']}")["state"], "created")
        self.assertEqual(self.api.ok("GET", f"/v1/checkpoints/{self.names['checkpoint']}")["name"], "victim")
        self.assertIn("separation", [one["name"] for one in self.api.ok("GET", "/v1/credentials")["credentials"]])

    def without_ids(self, answer):
        status, code, text = answer
        text = re.sub(rb"[a-z0-9]{24}", b"ID", text)
        return status, code, re.sub(rb'"(request|instance)":"[^"]*"', b"", text)


if __name__ == "__main__":
    unittest.main()
