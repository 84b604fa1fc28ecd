"""api/openapi.yaml is the contract: every operation of it is carried out here once with success, and refuses what it does not describe.
contract.py holds each answer (of these tests and of all others) against its statuses, media types and schemas."""

import hashlib
import io
import json
import re
import tarfile
import time
import unittest

from space_server import ServerTest

BUDGET_S = 150
UNKNOWN = "a" * 24
QUERY = {"path": "/etc/hostname"}
BODIES = {"restoreSandbox": {"checkpoint": UNKNOWN}, "updateSandbox": {"time_limit_s": 60}, "makeFolder": {"path": "x"}, "moveFile": {"from": "x", "to": "y"},
          "createVolume": {"name": "results"}}
# Statuses that follow from what an operation is, whatever it does.
NEEDS_KEY = {"401", "403"}
TAKES_A_KEY_TO_REPEAT = {"400", "409", "413", "422"}  # Idempotency-Key: bad, in flight or unknown, a body that is too large, reused
WITHOUT_A_KEY = {"putCredential", "explainEgress", "getTrafficToken"}  # nothing of a secret is kept, not even a digest; the others change nothing


class Contract(ServerTest):
    options = {"pool_ready": 0}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.contract = cls.server.contract
        cls.sandbox = cls.api.create()
        cls.command = cls.sandbox.start("true")

    def each(self):
        for name, method, path, operation in self.contract.operations():
            yield name, method, path, operation, self.target(path, operation)

    def target(self, path, operation):
        """With the query that the operation asks for. What a sandbox's agent answers needs one that is there; else the ids are nobody's."""
        shared = self.contract.document["paths"][path].get("parameters", [])
        parameters = [self.contract.resolve(one) for one in [*shared, *operation.get("parameters", [])]]
        query = "&".join(f"{one['name']}={QUERY[one['name']]}" for one in parameters if one["in"] == "query" and one.get("required"))
        holes = {"ref": "nosuch", "port": "8080", "name": "nosuch", "digest": "0" * 64}
        if re.search(r"/(commands|files|snapshots|egress)\b", path):
            holes.update(id=self.sandbox.id, session=self.command.session)
        return re.sub(r"\{(\w+)\}", lambda hole: holes.get(hole.group(1), UNKNOWN), path) + "?" + query

    def body(self, name, operation):
        return json.dumps(BODIES.get(name, {})).encode() if self.takes_json(operation) else b""

    def takes_json(self, operation):
        return "application/json" in self.contract.resolve(operation.get("requestBody", {})).get("content", {})

    def test_every_operation_declares_what_it_may_answer(self):
        for name, method, path, operation, _ in self.each():
            declared, needed = set(operation["responses"]), set()
            if operation.get("security") != []:
                needed |= NEEDS_KEY | {"400", "500"}
            if {"{id}", "{operation}", "{session}", "{checkpoint}", "{build}", "{ref}", "{key}"} & set(re.findall(r"\{\w+\}", path)):
                needed |= {"404"}
            if method != "GET":
                needed |= TAKES_A_KEY_TO_REPEAT if name not in WITHOUT_A_KEY else set()
            if self.takes_json(operation):
                needed |= {"413", "415"}
            with self.subTest(name):
                self.assertLessEqual(needed, declared)
                self.assertTrue(operation.get("summary"))
                self.assertTrue({"200", "201", "202"} & declared)

    def test_every_operation_refuses_a_query_that_it_does_not_have(self):
        for name, method, _, operation, target in self.each():
            if operation.get("security") == [] or name == "getMetrics":  # what monitors and browsers ask
                continue
            with self.subTest(name):
                answer = self.api.call(method, target + "&colour=red", self.body(name, operation))
                self.assertEqual(answer.status, 400, answer.body)
                self.assertIn("colour", answer.json["detail"])

    def test_every_operation_that_takes_json_takes_nothing_else(self):
        for name, method, _, operation, target in self.each():
            if not self.takes_json(operation):
                continue
            with self.subTest(name):
                self.assertEqual(self.api.call(method, target, b"a=b", {"Content-Type": "application/x-www-form-urlencoded"}).status, 415)
                for body in (b"{", b"[]", b"\xff", b'{"colour":"red"}', b'{"a":' * 100 + b"1" + b"}" * 100):
                    answer = self.api.call(method, target, body, {"Content-Type": "application/json"})
                    self.assertEqual(answer.status, 400, (body[:20], answer.body))
                size = 9 << 20 if name in ("putEgress", "createBuild") else 2 << 20
                self.assertEqual(self.api.call(method, target, b'{"a":"' + b"x" * size + b'"}', {"Content-Type": "application/json"}).status, 413)

    def test_every_change_minds_its_idempotency_key(self):
        for name, method, _, operation, target in self.each():
            if method == "GET" or name in WITHOUT_A_KEY:
                continue
            with self.subTest(name):
                self.assertRefused(self.api.call(method, target, self.body(name, operation), {"Idempotency-Key": "two words"}), 400, "invalid_header")

    def test_a_repeated_change_is_answered_from_what_was_kept(self):
        path, octets = self.sandbox.path, {"Content-Type": "application/octet-stream"}
        digest, name = hashlib.sha256(b"uploaded twice").hexdigest(), f"twice:{time.time_ns()}"
        for method, target, body in (("PUT", f"{path}/egress", {"policy": {"mode": "none"}}), ("PUT", f"{path}/snapshots", {"every_s": 0}),
                                     ("PUT", f"{path}/public-ports/9000", None), ("DELETE", f"{path}/public-ports/9000", None), ("PUT", f"/v1/uploads/{digest}", b"uploaded twice"),
                                     ("POST", "/v1/builds", {"name": name, "steps": [{"type": "RUN", "args": ["sleep 600"]}]})):
            with self.subTest(f"{method} {target}"):
                headers = {"Idempotency-Key": f"{time.time_ns()}", **(octets if isinstance(body, bytes) else {})}
                first, again = (self.api.call(method, target, body, headers) for _ in range(2))
                self.assertLess(first.status, 300, first.body)
                self.assertEqual((again.status, again.body, again.headers["Idempotency-Replayed"]), (first.status, first.body, "true"))
                if target == "/v1/builds":
                    self.api.ok("DELETE", f"/v1/builds/{first.json['id']}")

    def test_every_path_names_the_methods_that_it_answers_to(self):
        for path, item in self.contract.document["paths"].items():
            known = {method.upper() for method in item if method != "parameters"}
            answer = self.api.call("TRACE", self.target(path, {}).split("?")[0])
            with self.subTest(path):
                self.assertRefused(answer, 405, "method_not_allowed")
                self.assertLessEqual(known, set(answer.headers["Allow"].split(", ")))

    def test_every_operation_succeeds_as_it_is_described(self):
        self.walk_sandboxes()
        self.walk_commands_and_files()
        self.walk_network()
        self.walk_the_server()
        missed = {name for name, *_ in self.contract.operations()} - self.contract.succeeded
        self.assertEqual(missed, set(), "operations that no step of this test carried out")

    def walk_sandboxes(self):
        sandbox = self.api.create(metadata={"walked": "yes"}, time_limit_s=3600)
        path, wait = sandbox.path, {"Prefer": "wait=60"}
        sandbox.get()
        self.api.ok("GET", "/v1/sandboxes?metadata.walked=yes&state=running&limit=5")
        self.api.ok("PATCH", path, {"metadata": {"more": "yes"}, "time_limit_s": None}, wait)
        for verb in ("pause", "resume", "snapshot", "suspend", "wake", "stop", "start"):
            self.assertEqual(sandbox.change(verb)["state"], "succeeded", verb)
        checkpoint = sandbox.change("checkpoint", {"name": "here"})["checkpoint"]
        self.assertEqual(sandbox.change("restore", {"checkpoint": checkpoint})["state"], "succeeded")
        children = sandbox.change("fork", {"count": 1})["children"]
        self.api.ok("PUT", f"{path}/snapshots", {"every_s": 3600})
        operations = self.api.ok("GET", f"/v1/operations?sandbox={sandbox.id}")["operations"]
        for target in (f"{path}/snapshots", "/v1/checkpoints", f"/v1/checkpoints/{checkpoint}", "/v1/tree", f"/v1/operations/{operations[0]['id']}"):
            self.api.ok("GET", target)
        with self.api.events(f"/v1/operations/{operations[0]['id']}/events") as stream:
            self.assertEqual([event.kind for event in stream][-1], "operation")
        self.api.ok("DELETE", f"/v1/checkpoints/{checkpoint}")
        volume = self.api.ok("POST", "/v1/volumes", {"name": "walked"}, wait)["sandbox"]
        self.assertEqual((volume["state"], volume["metadata"]["space.volume"]), ("running", "walked"))
        for id in (*children, sandbox.id, volume["id"]):
            self.api.delete(id)
        operation = self.api.ok("POST", "/v1/sandboxes", {"disk_mib": 6000, "cpus": 2})["operation"]["id"]  # a base that has to be made first
        self.api.ok("POST", f"/v1/operations/{operation}/cancel", {})
        self.assertEqual(self.api.operation(operation)["state"], "cancelled")

    def walk_commands_and_files(self):
        sandbox = self.sandbox
        command = sandbox.start("read line; read rest; echo $line; sleep 600", stdin=True, pty={"rows": 24, "cols": 80})
        self.api.ok("POST", f"{command.path}/token", {})
        running = command.in_background()
        running.until(lambda result: result.events)
        command.get()
        for answer in (command.stdin(b"one\ntwo\n"), command.resize(30, 100), command.signal("WINCH")):
            self.assertLess(answer.status, 300, answer.body)
        self.api.ok("GET", f"{sandbox.path}/commands")
        command.kill()
        running.wait(20)
        sandbox.write("/home/user/f", b"x")
        sandbox.read("/home/user/f")
        sandbox.stat("/home/user/f")
        sandbox.list("/home/user")
        self.api.ok("POST", f"{sandbox.path}/files/mkdir", {"path": "/home/user/d"})
        self.api.ok("POST", f"{sandbox.path}/files/move", {"from": "/home/user/f", "to": "/home/user/d/f"})
        self.api.ok("DELETE", f"{sandbox.path}/files?path=/home/user/d&recursive=1")
        self.api.events(sandbox.files("watch", "/home/user")).close()

    def walk_network(self):
        path, octets = self.sandbox.path, {"Content-Type": "application/octet-stream"}
        self.api.ok("GET", f"{path}/egress")
        self.api.ok("PUT", f"{path}/egress", {"policy": {"mode": "allowlist", "rules": [{"name": "one.test"}]}})
        self.api.ok("POST", f"{path}/egress/explain", {"method": "GET", "url": "https://one.test/"})
        for target in (f"{path}/egress/observed", f"{path}/egress/log", "/v1/egress/log", "/v1/credential-key"):
            self.api.ok("GET", target)
        self.api.ok("PUT", "/v1/credentials/walked", b"a-secret-of-some-length", octets)
        self.api.ok("GET", "/v1/credentials")
        self.api.ok("DELETE", "/v1/credentials/walked")
        self.api.ok("PUT", f"{path}/public-ports/8080", {})
        self.api.ok("GET", f"{path}/public-ports")
        self.api.ok("DELETE", f"{path}/public-ports/8080")
        self.api.ok("POST", f"{path}/traffic-token")

    def walk_the_server(self):
        for target in ("/v1/health", "/v1/version", "/openapi.json", "/metrics", "/v1/keys", "/v1/builds", "/v1/templates", "/v1/templates/base:latest"):
            self.assertEqual(self.api.call("GET", target).status, 200, target)
        self.api.ok("DELETE", f"/v1/keys/{self.api.ok('POST', '/v1/keys', {'name': 'walked'})['id']}")
        self.api.events("/v1/events?after=0").close()
        name = f"walked:{time.time_ns()}"  # the templates folder is shared with other servers
        self.api.ok("POST", "/v1/templates", {"name": name, "sandbox": self.sandbox.id}, timeout=120)
        self.api.ok("DELETE", f"/v1/templates/{name}")
        archive = io.BytesIO()
        tarfile.open(fileobj=archive, mode="w").close()
        digest = hashlib.sha256(archive.getvalue()).hexdigest()
        self.api.ok("GET", f"/v1/uploads/{digest}")
        self.api.ok("PUT", f"/v1/uploads/{digest}", archive.getvalue(), {"Content-Type": "application/x-tar"})
        build = self.api.ok("POST", "/v1/builds", {"name": name, "steps": [{"type": "RUN", "args": ["sleep 600"]}]})["id"]
        self.api.ok("GET", f"/v1/builds/{build}")
        self.api.ok("DELETE", f"/v1/builds/{build}")
        with self.api.events(f"/v1/builds/{build}/logs") as stream:
            self.assertTrue(list(stream))
        self.assertEqual(self.api.ok("GET", f"/v1/builds/{build}")["state"], "cancelled")


if __name__ == "__main__":
    unittest.main()
