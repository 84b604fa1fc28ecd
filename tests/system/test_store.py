"""The store of checkpoints as an operator has it: small, verified, backed up, damaged, refused by name, healed."""

import json
import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

from api_client import Sandbox
from space_server import ServerTest

BUDGET_S = 150
MIB = 1 << 20


class Store(ServerTest):
    options = {"pool_ready": 0, "pool_spawned": 0, "tenants_on_tcg": True}

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

    def test_what_was_altered_or_cut_or_is_anothers_is_refused_by_name(self):
        second = self.api.with_key(self.api.ok("POST", "/v1/keys", {"name": "second", "tenant": "second", "scopes": ["admin"]})["key"])
        tenants = self.server.data_dir / "node" / "store" / "tenants"
        with self.api.create() as sandbox, second.create() as theirs:
            sandbox.output("head -c 3000000 /dev/urandom > /dev/shm/big; md5sum /dev/shm/big > ~/sum")
            checkpoint, anothers = self.checkpoint(sandbox), self.checkpoint(theirs)
            self.assertEqual(sandbox.change("suspend")["state"], "succeeded")
            self.assertIn(checkpoint, self.added(sandbox), "listed, so that a fork of it is not refused as unknown")
            record = json.loads((self.server.data_dir / "node" / "sandboxes" / sandbox.id / "record.json").read_text())
            manifests = [tenants / "default" / "manifests" / id for id in (checkpoint, record["saved"])]
            whole = [manifest.read_bytes() for manifest in manifests]
            foreign = tenants / "second" / "manifests" / anothers

            def refused(code):
                for verb, body in (("fork", {"checkpoint": checkpoint}), ("wake", {})):
                    with self.subTest(code=code, verb=verb):
                        self.assertRefused(self.api.call("POST", f"{sandbox.path}/{verb}", body, {"Prefer": "wait=60"}), 500, code)
                        self.assertEqual(sandbox.get()["state"], "suspended")

            # Written in place, so that owner and mode stay. One byte of the body, its last, and all of it.
            for code, change in (("manifest_wrong_hmac", lambda text: text[:-1] + b"]"), ("manifest_truncated", lambda text: text[:-1]),
                                 ("manifest_other_tenant", lambda text: foreign.read_bytes())):
                for manifest, text in zip(manifests, whole):
                    manifest.write_bytes(change(text))
                refused(code)
                for manifest, text in zip(manifests, whole):
                    manifest.write_bytes(text)

            # The other tenant's under its own name: it is listed for nobody here, and nobody goes back to it.
            stray = tenants / "default" / "manifests" / anothers
            shutil.copy(foreign, stray)
            os.chown(stray, foreign.stat().st_uid, foreign.stat().st_gid)
            self.assertRefused(self.api.call("POST", f"{sandbox.path}/restore", {"checkpoint": anothers}, {"Prefer": "wait=60"}), 500, "manifest_other_tenant")
            self.assertNotIn(anothers, [one["id"] for one in self.api.ok("GET", "/v1/checkpoints")["checkpoints"]])
            stray.unlink()

            # A layer of memory that both name, without its last byte.
            layers = [{layer["digest"]: layer["bytes"] for layer in json.loads(text.split(b"\n", 1)[1])["memory"]["layers"]} for text in whole]
            digest = max(layers[0], key=layers[0].get)
            self.assertIn(digest, layers[1])
            blob = tenants / "default" / "blobs" / digest.removeprefix("sha256:")
            content = blob.read_bytes()
            os.truncate(blob, len(content) - 1)
            refused("blob_truncated")
            blob.write_bytes(content)

            # Each of them was refused for what it was, and for nothing else.
            _, (child,) = self.fork(sandbox, checkpoint)
            self.assertEqual(sandbox.change("wake")["state"], "succeeded")
            for one in (child, sandbox):
                self.assertEqual(one.output("md5sum -c ~/sum").split(), ["/dev/shm/big:", "OK"])
            self.api.delete(child.id)
            self.api.ok("DELETE", f"/v1/checkpoints/{checkpoint}")
            second.ok("DELETE", f"/v1/checkpoints/{anothers}")

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
