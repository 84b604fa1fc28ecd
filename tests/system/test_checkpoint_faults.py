"""What goes wrong while a checkpoint or a fork is made: the sandbox goes on, and nothing half-made is left."""

import os
import shutil
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

from space_server import ServerTest, SpaceServer

BUDGET_S = 240


class DiskFull(unittest.TestCase):
    """A server whose data lie on a small file system."""

    def setUp(self):
        self.image = tempfile.NamedTemporaryFile(prefix="space-small-")
        self.folder = Path(tempfile.mkdtemp(prefix="space-small-"))
        self.folder.chmod(0o755)  # the roles pass through it
        self.addCleanup(self.folder.rmdir)
        subprocess.run(["truncate", "-s", "1500M", self.image.name], check=True)
        subprocess.run(["mkfs.ext4", "-q", self.image.name], check=True)

    def mount(self, place):
        subprocess.run(["mount", "-o", "loop", self.image.name, place], check=True)
        self.addCleanup(subprocess.run, ["umount", "-l", place], check=True)

    def test_a_checkpoint_without_room_fails_clearly_and_the_sandbox_goes_on(self):
        self.mount(self.folder)
        (self.folder / "server").mkdir()
        server = SpaceServer(folder=self.folder / "server", pool_ready=0, pool_spawned=0).start()
        self.addCleanup(server.close)
        sandbox = server.api.create()
        sandbox.run("echo before > ~/a")
        subprocess.run(["fallocate", "-l", "600M", self.folder / "filler"], check=True)  # less stays free than checkpoints must leave
        for verb in ("checkpoint", "snapshot", "suspend"):
            with self.subTest(verb=verb):
                answer = server.api.call("POST", f"{sandbox.path}/{verb}", {}, {"Prefer": "wait=60"})
                self.assertEqual((answer.status, answer.json["code"]), (507, "store_low_water"), answer.body)
                self.assertEqual(sandbox.get()["state"], "running")
                self.assertEqual(sandbox.output("cat ~/a; echo still > ~/b; cat ~/b").split(), ["before", "still"])
        self.assertEqual(server.api.ok("GET", "/v1/checkpoints")["checkpoints"], [])
        self.assertEqual(list((server.data_dir / "node" / "store").glob("tenants/*/manifests/*")), [])

    def with_small_node(self, **options):
        """(server, its node's folder, which is the small file system)"""
        self.addCleanup(shutil.rmtree, self.folder / "server", True)
        self.folder.chmod(0o755)
        node = self.folder / "server" / "data" / "node"
        node.mkdir(parents=True)
        self.mount(node)
        server = SpaceServer(folder=self.folder / "server", pool_ready=0, pool_spawned=0, **options)
        server.mounts.add(str(node))
        self.addCleanup(server.start().close)
        return server, node

    @staticmethod
    def fill(node):
        """Leaves not one byte free until the file `filler` goes."""
        with (node / "filler").open("wb") as filler:
            step, at = 1 << 30, 0
            while step >= 4096:
                try:
                    os.posix_fallocate(filler.fileno(), at, step)
                    at += step
                except OSError:
                    step //= 2

    @staticmethod
    def names(node):
        return sorted(str(path.relative_to(node)) for path in node.rglob("*"))

    def test_a_snapshot_and_a_checkpoint_that_are_begun_without_room_leave_nothing(self):
        # With no low-water mark nothing refuses them before the disk does.
        server, node = self.with_small_node(store_low_water_mib=0)
        sandbox = server.api.create()
        sandbox.run("echo before > ~/a; echo memory > /dev/shm/m; sync")
        first = sandbox.change("snapshot")["checkpoint"]
        before = self.names(node)
        self.fill(node)
        for verb in ("snapshot", "checkpoint"):
            with self.subTest(verb=verb):
                answer = server.api.call("POST", f"{sandbox.path}/{verb}", {}, {"Prefer": "wait=60"})
                self.assertEqual((answer.status, answer.json["code"]), (507, "no_space"), answer.body)
                self.assertEqual(sandbox.get()["state"], "running")
                self.assertEqual(sandbox.output("cat ~/a /dev/shm/m").split(), ["before", "memory"])
                self.assertEqual([name for name in self.names(node) if name not in before], ["filler"])
        self.assertEqual([one["id"] for one in server.api.ok("GET", "/v1/checkpoints")["checkpoints"]], [first])
        (node / "filler").unlink()
        for verb in ("snapshot", "checkpoint"):
            operation = sandbox.change(verb)
            self.assertEqual(operation["state"], "succeeded", operation)
        self.assertEqual(sandbox.output("cat ~/a /dev/shm/m").split(), ["before", "memory"])

    def test_not_one_byte_is_free_where_sandboxes_and_checkpoints_lie(self):
        server, node = self.with_small_node()
        sandbox = server.api.create()
        sandbox.run("echo before > ~/a; echo memory > /dev/shm/m; sync")
        checkpoint = sandbox.change("checkpoint")["checkpoint"]
        before = self.names(node)
        self.fill(node)
        sandboxes = len(server.api.sandboxes())
        for verb, body in (("checkpoint", {}), ("snapshot", {}), ("suspend", {}), ("fork", {}), ("fork", {"checkpoint": checkpoint, "count": 2}), ("restore", {"checkpoint": checkpoint})):
            with self.subTest(verb=verb, body=body):
                answer = server.api.call("POST", f"{sandbox.path}/{verb}", body, {"Prefer": "wait=60"})
                self.assertEqual(answer.status, 507, answer.body)
                self.assertIn(answer.json["code"], ("no_space", "store_low_water"))
                self.assertEqual(sandbox.get()["state"], "running")
                self.assertEqual(sandbox.output("cat ~/a /dev/shm/m").split(), ["before", "memory"])
        answer = server.api.call("POST", "/v1/sandboxes", {}, {"Prefer": "wait=60"})
        self.assertEqual((answer.status, answer.json["code"]), (507, "no_space"), answer.body)
        self.assertEqual([one["state"] for one in server.api.sandboxes() if one["state"] != "failed"], ["running"] * sandboxes)
        (node / "filler").unlink()
        self.assertEqual([name for name in self.names(node) if name not in before], [], "nothing is left behind")
        for verb in ("suspend", "wake", "checkpoint", "fork"):
            operation = sandbox.change(verb)
            self.assertEqual(operation["state"], "succeeded", operation)
        self.assertEqual(sandbox.output("cat ~/a /dev/shm/m").split(), ["before", "memory"])
        for id in (*operation["children"], *(one["id"] for one in server.api.sandboxes() if one["state"] == "failed")):
            server.api.delete(id)


class Killed(ServerTest):
    """kill -9 of node at many moments of checkpoints and forks."""

    options = {"pool_ready": 0, "pool_spawned": 0}

    def finished(self, id):
        self.server.wait_for(lambda: self.api.ok("GET", f"/v1/operations/{id}")["state"] not in ("pending", "running"), 90, "the end of the operation")
        return self.api.ok("GET", f"/v1/operations/{id}")

    def test_all_or_nothing(self):
        with self.api.create() as sandbox:
            sandbox.run("echo memory > /dev/shm/m")
            for round in range(8):
                verb = ("checkpoint", "fork")[round % 2]
                with self.subTest(round=round, verb=verb):
                    sandbox.run(f"echo {round} > ~/round; sync")
                    body = {"count": 2} if verb == "fork" else {}
                    id = self.api.ok("POST", f"{sandbox.path}/{verb}", body)["operation"]["id"]
                    time.sleep(0.035 * round)
                    self.server.kill_role("node")
                    operation = self.finished(id)
                    self.assertEqual(sandbox.get()["state"], "running")
                    self.assertEqual(sandbox.output("cat ~/round /dev/shm/m").split(), [str(round), "memory"])
                    known = {one["id"] for one in self.api.ok("GET", "/v1/checkpoints")["checkpoints"]}
                    if operation["state"] == "succeeded":
                        self.assertIn(operation["checkpoint"], known)
                    states = [self.api.call("GET", f"/v1/sandboxes/{child}").json.get("state") for child in operation.get("children", [])]
                    self.assertEqual(set(states), ({"running"} if operation["state"] == "succeeded" else {"failed"}) if states else set())
                    for child in operation.get("children", []):
                        self.api.delete(child)
            self.assertEqual(sandbox.change("suspend")["state"], "succeeded")
            self.assertEqual(sandbox.change("wake")["state"], "succeeded")
            self.assertEqual(sandbox.output("cat ~/round /dev/shm/m").split(), ["7", "memory"])
            for one in self.api.ok("GET", "/v1/checkpoints")["checkpoints"]:
                self.api.call("DELETE", f"/v1/checkpoints/{one['id']}")


if __name__ == "__main__":
    unittest.main()
