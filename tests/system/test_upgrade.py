"""A server that is brought up to date: what an earlier arrangement of VMM, kernel and agent has saved goes on, or says what remains.

The earlier arrangement: a copy of the VMM that is another build by its digest, and a template store whose guests have the agent of an earlier
state of this repository (scripts/older-agent). Where the checkout has no such history, it is today's agent in another initramfs.
SPACE_TEST_OLDER_TEMPLATES names a store of an earlier release to be used in its place."""

import hashlib
import json
import os
import shutil
import subprocess
import time
import unittest
from pathlib import Path

from api_client import Sandbox
from space_server import BINARY, ROOT, TEMPLATES, ServerTest, SpaceServer

BUDGET_S = 270
SLOW = True
VMM = Path("/usr/bin/qemu-system-x86_64")


def older_vmm(folder):
    """The same program with other bytes: as a saved state goes, another build."""
    (folder / "bin").mkdir(parents=True)
    shutil.copy(VMM, folder / "bin" / VMM.name)
    with open(folder / "bin" / VMM.name, "ab") as program:
        program.write(b"earlier")
    for name in ("share", "lib"):
        (folder / name).symlink_to(VMM.parent.parent / name)
    return folder / "bin" / VMM.name


def older_templates(folder):
    if "SPACE_TEST_OLDER_TEMPLATES" in os.environ:
        return os.environ["SPACE_TEST_OLDER_TEMPLATES"]
    folder.mkdir()
    for name in ("content", "kernels", "tags"):  # no links to the other store: node may read its own alone
        if subprocess.run(["cp", "-al", Path(TEMPLATES) / name, folder], check=False, stderr=subprocess.DEVNULL).returncode != 0:  # another filesystem
            subprocess.run(["cp", "-a", "--sparse=always", Path(TEMPLATES) / name, folder], check=True)
    agent = older_agent()
    for version in (Path(TEMPLATES) / "initramfs").iterdir():
        target = folder / "initramfs" / version.name
        target.mkdir(parents=True)
        shutil.copy(os.path.realpath(version / "current"), target / "older.cpio")
        if agent is None:
            with open(target / "older.cpio", "ab") as archive:
                archive.write(b"\0" * 512)  # the kernel skips zeros between archives
        (target / "current").symlink_to("older.cpio")
    if agent is not None:
        subprocess.run([BINARY, "template", "build", "base:latest", "--if-absent", "--templates-dir", folder, "--agent", agent], check=True, stdout=subprocess.DEVNULL)
    return folder


def older_agent():
    """None where the history does not reach so far."""
    built = subprocess.run([ROOT / "scripts" / "older-agent"], capture_output=True, text=True, check=False)
    if built.returncode == 3:
        return None
    if built.returncode != 0:
        raise AssertionError(built.stderr)
    return built.stdout.strip()


class Upgrade(ServerTest):
    @classmethod
    def setUpClass(cls):
        cls.server = SpaceServer()
        cls.addClassCleanup(cls.server.close)
        folder = cls.server.folder
        cls.server.options = {"pool_ready": 0, "pool_spawned": 0, "bases_dir": cls.server.data_dir / "bases", "templates_dir": older_templates(folder / "older-templates"),
                              "vmm_binary": older_vmm(folder / "older-vmm")}
        cls.server.start()
        cls.api = cls.server.api

    def bring_up_to_date(self):
        self.assertEqual(self.server.stop(), 0)
        del self.server.options["vmm_binary"]
        self.server.options["templates_dir"] = TEMPLATES
        self.server.start()

    def agent_of(self, sandbox):
        """Its size in the guest, and the digest of what follows the ELF header: the initramfs holds the part that is loaded, and says so there."""
        size, digest = sandbox.output("sudo stat -Lc %s /proc/1/exe; sudo tail -c +65 /proc/1/exe | sha256sum").split()[:2]
        return int(size), digest

    def bases(self):
        return {path.name for path in (self.server.data_dir / "bases").iterdir() if len(path.name) == 64}

    def builds(self):
        return {path.name for path in (self.server.data_dir / "vmm").iterdir() if len(path.name) == 64}

    def looked(self, since):
        """Node has looked for bases that nobody needs."""
        current = self.server.data_dir / "bases" / "current.json"
        self.server.wait_for(lambda: current.exists() and json.loads(current.read_text())["as_of_ms"] > since * 1000, 40, "a look at the bases")
        time.sleep(0.5)

    def test_what_was_saved_before_goes_on_after(self):
        sandbox = self.api.create(env={"A": "1"})
        old_agent = self.agent_of(sandbox)
        sandbox.run("echo disk > ~/a; sync; echo memory > /dev/shm/m")
        checkpoint = sandbox.change("checkpoint")["checkpoint"]
        sandbox.run("echo later > ~/b; sync")  # what a guest has not flushed is lost with its memory
        self.assertEqual(sandbox.change("suspend")["state"], "succeeded")
        (old_base,), (old_build,) = self.bases(), self.builds()
        begun = time.time()
        self.bring_up_to_date()
        (new_build,) = self.builds() - {old_build}
        with self.api.create() as other:
            new_agent = self.agent_of(other)

        # Both states load, each on the base and the build that wrote it.
        self.assertEqual(sandbox.change("wake")["state"], "succeeded")
        self.assertEqual(sandbox.output("cat ~/a ~/b /dev/shm/m; echo $A").split(), ["disk", "later", "memory", "1"])
        self.assertEqual(self.agent_of(sandbox), old_agent, "memory keeps the agent that it was saved with")
        if (agent := older_agent()) is not None:
            size, digest = old_agent
            self.assertEqual(digest, hashlib.sha256(Path(agent).read_bytes()[64:size]).hexdigest())
            self.assertNotEqual(new_agent, old_agent)
        sandbox.write("/home/user/c", b"by the old agent")
        self.assertEqual(sandbox.read("/home/user/c"), b"by the old agent")
        self.assertEqual(sandbox.change("pause")["state"], "succeeded")
        self.assertEqual(sandbox.change("wake")["state"], "succeeded")
        self.assertEqual(sandbox.change("snapshot")["state"], "succeeded")
        self.assertEqual(sandbox.change("checkpoint")["state"], "succeeded")
        with self.api.create(checkpoint=checkpoint, env={"A": "2"}) as child:
            self.assertEqual(child.output("cat ~/a /dev/shm/m; echo $A; ls ~/b 2>/dev/null | wc -l").split(), ["disk", "memory", "2", "0"])
            self.assertEqual(child.change("suspend")["state"], "succeeded")
            self.assertEqual(child.change("wake")["state"], "succeeded")
            self.assertEqual(child.output("cat /dev/shm/m"), "memory")

        # What they stand on stays.
        self.looked(begun)
        self.assertIn(old_base, self.bases())
        self.assertNotIn(old_base, subprocess.run([*self.gc()], capture_output=True, text=True, check=True).stdout)
        refused = self.api.call("DELETE", "/v1/templates/base:latest")
        self.assertRefused(refused, 409, "template_in_use")
        self.assertIn(sandbox.id, refused.json["detail"])

        # Without the build its memory is lost, and that is said; the disk is not.
        self.assertEqual(sandbox.change("suspend")["state"], "succeeded")
        shutil.move(self.server.data_dir / "vmm" / old_build, self.server.folder / "build-away")
        operation = sandbox.change("wake")
        self.assertEqual((operation["state"], operation["error"]["code"]), ("failed", "saved_state_unusable"))
        self.assertIn("start", operation["error"]["next"])
        self.assertEqual(sandbox.get()["state"], "suspended")
        operation = sandbox.change("restore", {"checkpoint": checkpoint})
        self.assertEqual((operation["state"], operation["error"]["code"]), ("failed", "saved_state_unusable"))
        self.assertEqual(sandbox.change("start")["state"], "succeeded")
        self.assertEqual(sandbox.output("cat ~/a ~/b; ls /dev/shm | wc -l; echo $A").split(), ["disk", "later", "0", "1"])
        # From here on it is the new build's and the new agent's, over the disk of its own base.
        self.assertEqual(self.agent_of(sandbox), new_agent)
        self.assertEqual(sandbox.change("suspend")["state"], "succeeded")
        self.assertEqual(sandbox.change("wake")["state"], "succeeded")
        self.assertEqual(sandbox.output("cat ~/a ~/b").split(), ["disk", "later"])

        # Nobody's any more: the next look takes it away.
        for one in self.api.ok("GET", "/v1/checkpoints")["checkpoints"]:
            self.api.call("DELETE", f"/v1/checkpoints/{one['id']}")
        self.api.delete(sandbox.id)
        self.assertIn(old_base, subprocess.run([*self.gc()], capture_output=True, text=True, check=True).stdout)
        begun = time.time()
        self.server.stop()
        self.server.start()
        self.looked(begun)
        self.server.wait_for(lambda: old_base not in self.bases(), 20, "the end of the base")
        self.assertIn(new_build, self.builds())

    def gc(self):
        return [BINARY, "gc", "--dry-run", "--data-dir", self.server.data_dir]


if __name__ == "__main__":
    unittest.main()
