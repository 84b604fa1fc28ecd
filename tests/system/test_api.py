"""The HTTP API as a contract: keys, ids, pages, filters, repeated requests, and errors that say what to do."""

import time
import unittest
import uuid

from space_server import ServerTest


class Requests(ServerTest):
    options = {"pool_ready": 0}  # these need no machine kept ready

    def test_health_needs_no_key_and_everything_else_does(self):
        anonymous = self.api.with_key(None)
        self.assertEqual(anonymous.call("GET", "/v1/health").status, 200)
        for method, path in (("GET", "/v1/sandboxes"), ("POST", "/v1/sandboxes"), ("GET", "/v1/operations"), ("GET", "/v1/keys"), ("GET", "/v1/events")):
            answer = anonymous.call(method, path)
            self.assertEqual(answer.status, 401, path)
            self.assertIn("application/problem+json", answer.headers["Content-Type"])
        self.assertEqual(self.api.with_key("sk_" + "A" * 43).call("GET", "/v1/sandboxes").status, 401)

    def test_version_says_what_runs_the_vms(self):
        version = self.api.ok("GET", "/v1/version")
        self.assertEqual(version["driver"], "qemu")
        self.assertIn(version["accelerator"], ("kvm", "tcg"))
        self.assertTrue(version["vmm_version"])

    def test_the_contract_is_served(self):
        document = self.api.with_key(None).call("GET", "/openapi.json").json or self.api.ok("GET", "/openapi.json")
        self.assertTrue(document["openapi"].startswith("3.1"))
        self.assertIn("/v1/sandboxes", document["paths"])

    def test_errors_have_a_code_a_sentence_and_a_next_step(self):
        problem = self.api.call("POST", "/v1/sandboxes", {"template": "no-such-template"})
        self.assertRefused(problem, 404, "template_not_found")
        for field in ("type", "title", "status", "detail", "code", "next"):
            self.assertTrue(problem.json.get(field), field)
        self.assertIn("no-such-template", problem.json["detail"])

    def test_unknown_paths_and_methods(self):
        self.assertRefused(self.api.call("GET", "/v1/nothing"), 404, "route_not_found")
        wrong = self.api.call("PATCH", "/v1/sandboxes", {})
        self.assertEqual(wrong.status, 405)
        self.assertIn("POST", wrong.headers["Allow"])

    def test_wrong_types_and_unknown_fields_name_the_field(self):
        for body, field in (({"template": 7}, "template"), ({"cpus": "2"}, "cpus"), ({"cpus": 0}, "cpus"), ({"memory_mib": -5}, "memory_mib"),
                            ({"metadata": []}, "metadata"), ({"metadata": {"a": 1}}, "metadata"), ({"env": {"A": None}}, "env"), ({"colour": "red"}, "colour"),
                            ({"cpus": 1e9}, "cpus"), ({"disk_mib": 1.5}, "disk_mib"), ({"time_limit_s": True}, "time_limit_s")):
            answer = self.api.call("POST", "/v1/sandboxes", body)
            self.assertEqual(answer.status, 400, (body, answer.body))
            self.assertIn(field, answer.json["detail"])

    def test_bodies_that_are_no_json_object(self):
        for body in (b"", b"{", b"[]", b"null", b'"x"', b"{}{}", b'{"cpus":1,"cpus":2}', b"\xff\xfe", b"[" * 100_000, b'{"a":' * 100 + b"1" + b"}" * 100):
            answer = self.api.call("POST", "/v1/sandboxes", body, {"Content-Type": "application/json"})
            if body == b"" and answer.status == 202:  # an empty body is an empty object
                self.api.delete(answer.json["sandbox"]["id"])
                continue
            self.assertEqual(answer.status, 400, (body[:20], answer.body))

    def test_ids_of_any_shape_are_only_ever_not_found(self):
        for id in ("..", "%2e%2e", "a%2Fb", "..%2F..%2Fetc", "x", "A" * 24, "a" * 5000, "%00", "sandbox'--", "%F0%9F%98%80", "*"):
            for path in (f"/v1/sandboxes/{id}", f"/v1/operations/{id}", f"/v1/sandboxes/{id}/commands", f"/v1/sandboxes/{id}/files/stat?path=/"):
                self.assertIn(self.api.call("GET", path).status, (400, 404, 414), path)

    def test_a_repeated_request_gives_the_first_answer(self):
        key = {"Idempotency-Key": uuid.uuid4().hex}
        first = self.api.call("POST", "/v1/sandboxes", {"metadata": {"n": "1"}}, key)
        again = self.api.call("POST", "/v1/sandboxes", {"metadata": {"n": "1"}}, key)
        self.assertEqual((again.status, again.json["sandbox"]["id"]), (first.status, first.json["sandbox"]["id"]))
        other = self.api.call("POST", "/v1/sandboxes", {"metadata": {"n": "2"}}, key)
        self.assertIn(other.status, (409, 422), "the same key for another request is a mistake of the client")
        self.api.delete(first.json["sandbox"]["id"])

    def test_a_repeated_delete_gives_the_first_answer_too(self):
        sandbox = self.api.create()
        key = {"Idempotency-Key": uuid.uuid4().hex, "Prefer": "wait=60"}
        first, again = (self.api.call("DELETE", sandbox.path, headers=key) for _ in range(2))
        self.assertEqual((first.status, again.status), (200, 200))
        self.assertEqual(first.json["operation"]["id"], again.json["operation"]["id"])


class Lists(ServerTest):
    options = {"pool_ready": 0}  # these need no machine kept ready

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.made = [cls.api.create(metadata={"team": "red" if number % 2 else "blue", "number": str(number)}) for number in range(7)]

    def pages(self, query, limit=3):
        after, found, pages = "", [], 0
        while True:
            page = self.api.ok("GET", f"/v1/sandboxes?limit={limit}{query}" + (f"&after={after}" if after else ""))
            found += [sandbox["id"] for sandbox in page["sandboxes"]]
            pages += 1
            self.assertLessEqual(len(page["sandboxes"]), limit)
            after = page.get("next")
            if not after:
                return found, pages

    def test_pages_show_each_once(self):
        found, pages = self.pages("")
        self.assertEqual((sorted(found), pages), (sorted(sandbox.id for sandbox in self.made), 3))

    def test_pages_hold_while_things_come_and_go(self):
        page = self.api.ok("GET", "/v1/sandboxes?limit=3")
        with self.api.create():
            seen = [sandbox["id"] for sandbox in page["sandboxes"]]
            while page.get("next"):
                page = self.api.ok("GET", f"/v1/sandboxes?limit=3&after={page['next']}")
                seen += [sandbox["id"] for sandbox in page["sandboxes"]]
        self.assertEqual(len(seen), len(set(seen)))
        self.assertLessEqual({sandbox.id for sandbox in self.made}, set(seen))

    def test_filters_by_metadata_and_state(self):
        red, _ = self.pages("&metadata.team=red")
        self.assertEqual(sorted(red), sorted(sandbox.id for sandbox in self.made[1::2]))
        one, _ = self.pages("&metadata.team=red&metadata.number=3")
        self.assertEqual(one, [self.made[3].id])
        self.assertEqual(self.pages("&metadata.team=green")[0], [])
        self.assertEqual(self.pages("&state=paused")[0], [])
        self.assertEqual(len(self.pages("&state=running")[0]), 7)

    def test_queries_that_make_no_sense(self):
        for query in ("limit=0", "limit=x", "limit=100000", "state=sleeping", "after=nonsense%00", "colour=red"):
            self.assertEqual(self.api.call("GET", f"/v1/sandboxes?{query}").status, 400, query)

    def test_operations_are_listed_newest_findable(self):
        operations = self.api.ok("GET", "/v1/operations?limit=100")["operations"]
        self.assertEqual({operation["sandbox"] for operation in operations} & {sandbox.id for sandbox in self.made}, {sandbox.id for sandbox in self.made})


class Keys(ServerTest):
    options = {"pool_ready": 0}  # these need no machine kept ready

    def test_a_key_is_shown_once_works_and_ends_when_revoked(self):
        made = self.api.ok("POST", "/v1/keys", {"name": "robot"})
        other = self.api.with_key(made["key"])
        self.assertEqual(other.call("GET", "/v1/sandboxes").status, 200)
        listed = self.api.ok("GET", "/v1/keys")["keys"]
        self.assertIn("robot", [key["name"] for key in listed])
        self.assertNotIn(made["key"], str(listed))
        self.assertLess(self.api.call("DELETE", f"/v1/keys/{made['id']}").status, 300)
        self.assertEqual(other.call("GET", "/v1/sandboxes").status, 401)

    def test_keys_are_stored_as_hashes(self):
        made = self.api.ok("POST", "/v1/keys", {"name": "hashed"})
        time.sleep(0.1)
        stored = b"".join(path.read_bytes() for path in (self.server.data_dir / "control").rglob("*") if path.is_file())
        self.assertIn(b"hashed", stored)
        self.assertNotIn(made["key"].encode(), stored)
        self.assertNotIn(self.api.key.encode(), stored)

    def test_the_first_key_is_readable_by_its_owner_alone(self):
        self.assertEqual((self.server.data_dir / "first.key").stat().st_mode & 0o777, 0o600)


if __name__ == "__main__":
    unittest.main()
