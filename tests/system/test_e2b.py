"""What E2B's API does that its SDKs' own suites (tests/e2b) do not reach: snapshots of files alone, and servers in a sandbox that speak TLS."""

import unittest
import urllib.parse

from api_client import Sandbox
from space_server import ServerTest

BUDGET_S = 240


class E2bTest(ServerTest):
    def setUp(self):
        with self.api.create():  # by E2B's API nobody waits as long as a base may take
            pass

    def sandbox(self, **body):
        answer = self.api.call("POST", "/v2/sandboxes", {"templateID": "base", "timeout": 600, **body})
        self.assertEqual(answer.status, 201, answer.body)
        sandbox = Sandbox(self.api, answer.json["sandboxID"])
        sandbox.token = answer.json["envdAccessToken"]
        self.addCleanup(lambda: self.api.delete(sandbox.id))
        return sandbox

    def through(self, sandbox, port, path="/", method="GET", body=None, **headers):
        """A request as an SDK sends it to a sandbox's port."""
        headers = {"E2b-Sandbox-Id": sandbox.id, "E2b-Sandbox-Port": str(port), **headers}
        return self.api.with_key(None).call(method, path, body, headers)


class FilesAlone(E2bTest):
    BOOT = "cat /proc/sys/kernel/random/boot_id"

    def snapshot(self, sandbox, **body):
        answer = self.api.call("POST", f"/sandboxes/{sandbox.id}/snapshots", body)
        self.assertEqual(answer.status, 201, answer.body)
        return answer.json["snapshotID"]

    def test_what_is_made_of_one_boots_with_its_files(self):
        one = self.sandbox(envVars={"GIVEN": "parent"})
        boot = one.output(self.BOOT)
        one.output("echo kept >~/f; mkdir ~/d; echo memory >/dev/shm/m")  # nobody syncs
        full = self.snapshot(one)
        named = self.snapshot(one, name="files", memory=False)
        self.assertEqual(named, "files:default")
        unnamed = self.snapshot(one, memory=False)
        # The one that it was taken of goes on.
        self.assertEqual(one.output(f"{self.BOOT}; cat /dev/shm/m").split(), [boot, "memory"])
        listed = [one["snapshotID"] for one in self.api.ok("GET", f"/snapshots?sandboxID={one.id}")]
        self.assertEqual(listed, [unnamed, named, full])
        self.assertEqual(self.api.ok("GET", "/snapshots?name=files"), [{"snapshotID": named, "names": ["files"]}])
        kinds = {c["kind"]: c["name"] for c in self.api.ok("GET", f"/v1/checkpoints?sandbox={one.id}")["checkpoints"] if c["name"]}
        self.assertEqual(kinds, {"file_snapshot": "files"})
        one.output("echo later >~/f")
        self.assertEqual(self.api.call("DELETE", f"/sandboxes/{one.id}").status, 204)

        child = self.sandbox(templateID=named, metadata={"made": "here"}, envVars={"OWN": "child"})
        # It is ready when the create has answered: the first request to it is an SDK's.
        self.assertEqual(self.through(child, 49983, "/files?path=f", **{"X-Access-Token": child.token}).body, b"kept\n")
        self.assertNotEqual(child.output(self.BOOT), boot)
        self.assertEqual(child.output("ls /dev/shm; ls -d ~/d; echo $GIVEN $OWN $E2B_SANDBOX_ID").split(), ["/home/user/d", "parent", "child", child.id])
        self.assertEqual(self.api.ok("GET", f"/sandboxes/{child.id}")["metadata"], {"made": "here"})
        # One that booted so is put away and copied like any other.
        child.output("echo again >/dev/shm/m")
        self.assertEqual(self.api.call("POST", f"/sandboxes/{child.id}/pause", {}).status, 204)
        self.assertEqual(self.api.call("POST", f"/sandboxes/{child.id}/snapshots", {"memory": False}).status, 409)
        self.assertEqual(self.api.call("POST", f"/v2/sandboxes/{child.id}/connect", {}).status, 201)
        self.assertEqual(child.output("cat /dev/shm/m"), "again")
        # Deleted, it lives on in what was made of it.
        for snapshot in (named, unnamed, full):
            self.assertEqual([self.api.call("DELETE", f"/templates/{urllib.parse.quote(snapshot)}").status for _ in range(2)], [204, 404])
        self.assertEqual(child.output("cat ~/f"), "kept")
        self.assertEqual(self.api.call("POST", "/v2/sandboxes", {"templateID": named}).status, 404)
        self.assertEqual(self.api.call("POST", f"/sandboxes/{child.id}/snapshots", {"memory": "no"}).status, 400)


if __name__ == "__main__":
    unittest.main()
