"""The store of checkpoints as an operator has it: small, verified, backed up, damaged, refused by name, healed."""

import json
import os
import subprocess
import tempfile
import unittest
from pathlib import Path

from api_client import Sandbox
from space_server import ServerTest

BUDGET_S = 150
MIB = 1 << 20


class Store(ServerTest):
    options = {"pool_ready": 0, "pool_spawned": 0}

    def local(self, *words, status=0):
        done = self.cli("--json", *words, "--data-dir", str(self.server.data_dir))
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return json.loads(done.stdout) if done.stdout else json.loads(done.stderr)

    def checkpoint(self, sandbox):
        operation = sandbox.change("checkpoint")
        self.assertEqual(operation["state"], "succeeded", operation)
        return operation["checkpoint"]

    def added(self, sandbox):
        return {one["id"]: one["added_bytes"] for one in self.api.ok("GET", f"/v1/checkpoints?sandbox={sandbox.id}")["checkpoints"]}

    def fork(self, sandbox, checkpoint):
        operation = sandbox.change("fork", {"checkpoint": checkpoint})
        return operation, [Sandbox(self.api, id) for id in operation.get("children") or []]

    def test_a_checkpoint_stores_what_changed_and_damage_is_named_and_healed(self):
        with self.api.create() as sandbox, tempfile.TemporaryDirectory() as away:
            sandbox.run("head -c 40000000 /dev/urandom > /dev/shm/big; md5sum /dev/shm/big > ~/sum")
            first = self.checkpoint(sandbox)
            sandbox.run("echo small > /dev/shm/small")
            second = self.checkpoint(sandbox)
            added = self.added(sandbox)
            self.assertGreater(added[first], 38 * MIB)
            self.assertLess(added[second], 8 * MIB)
            self.assertNotIn("no_write_tracking", self.server.log.read_text())  # where the kernel cannot, nothing was handed over either

            found = self.local("store", "verify")
            self.assertEqual((found["checkpoints"], found["faults"]), (2, []))
            self.assertEqual(self.local("backup", away)["checkpoints"], 2)
            again = self.local("backup", away)
            self.assertEqual((again["checkpoints"], again["present"], again["blobs"]), (0, 2, 0))
            # One process writes to a store, and the server is that one.
            self.assertEqual(self.local("gc", status=75)["error"]["code"], "store_in_use")
            self.local("gc", "--dry-run")

            # The biggest blob that can be written to is the first one's layer of memory.
            blobs = self.server.data_dir / "node" / "store" / "tenants" / "default" / "blobs"
            layer = max((blob for blob in blobs.iterdir() if blob.is_file()), key=lambda blob: blob.stat().st_size)
            with layer.open("r+b") as file:
                file.seek(12 * MIB)
                byte = file.read(1)
                file.seek(12 * MIB)
                file.write(bytes([byte[0] ^ 1]))
            faults = self.local("store", "verify", status=70)["faults"]
            self.assertEqual({fault["code"] for fault in faults}, {"blob_corrupt"})
            self.assertEqual({fault["checkpoint"] for fault in faults}, {first, second}, "both have pages there")
            operation, _ = self.fork(sandbox, second)
            self.assertEqual((operation["state"], operation["error"]["code"]), ("failed", "layer_damaged"))
            self.assertEqual(sandbox.output("cat /dev/shm/small"), "small", "the sandbox itself goes on")

            self.server.stop()
            healed = self.local("restore-backup", away)
            self.assertEqual((healed["blobs"], healed["present"]), (1, 2))
            self.assertGreaterEqual(self.local("gc")["bytes"], 0)
            self.server.start()
            self.assertEqual(self.local("store", "verify")["faults"], [])
            _, (child,) = self.fork(sandbox, second)
            self.assertEqual(child.output("md5sum -c ~/sum; cat /dev/shm/small").split(), ["/dev/shm/big:", "OK", "small"])
            self.api.delete(child.id)


    def test_a_bit_that_turned_in_a_frozen_disk_is_found_before_a_guest_works_on_it(self):
        with self.api.create() as sandbox:
            sandbox.output("head -c 3000000 /dev/urandom > ~/big; sync")
            checkpoint = self.checkpoint(sandbox)
            sandbox.change("suspend")
            self.server.stop()  # what a process wrote itself it believes
            blobs = self.server.data_dir / "node" / "store" / "tenants" / "default" / "blobs"
            layer = max(blobs.glob("*/data"), key=lambda data: data.stat().st_blocks)
            self.turn(layer)
            self.server.start()
            for verb in ("wake", "start"):
                operation = sandbox.change(verb)
                self.assertEqual((operation["state"], operation["error"]["code"]), ("failed", "blob_corrupt"), verb)
                self.assertEqual(sandbox.get()["state"], "suspended")
            self.assertRefusedCreate(checkpoint)
            self.turn(layer)
            self.assertEqual(sandbox.change("wake")["state"], "succeeded")
            self.assertEqual(len(sandbox.read("/home/user/big")), 3_000_000)
            self.api.ok("DELETE", f"/v1/checkpoints/{checkpoint}")

    def assertRefusedCreate(self, checkpoint):
        answer = self.api.ok("POST", "/v1/sandboxes", {"checkpoint": checkpoint})
        operation = self.api.operation(answer["operation"]["id"])
        self.assertEqual((operation["state"], operation["error"]["code"]), ("failed", "blob_corrupt"))
        self.api.delete(answer["sandbox"]["id"])

    @staticmethod
    def turn(path):
        """One bit of an immutable file, in the middle of its data."""
        subprocess.run(["chattr", "-i", path], check=True)
        with path.open("r+b") as file:
            at = os.lseek(file.fileno(), path.stat().st_size // 2, os.SEEK_DATA)
            byte = os.pread(file.fileno(), 1, at)
            os.pwrite(file.fileno(), bytes([byte[0] ^ 1]), at)
        subprocess.run(["chattr", "+i", path], check=True)


if __name__ == "__main__":
    unittest.main()
