"""Signed templates and the policy that judges them, against a real server: what is right runs, whatever is not is refused by name before
anything is made of it. And the bills of materials."""

import json
import os
import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

from space_server import BASES, BINARY, ROOT, TEMPLATES, ServerTest, SpaceServer

BUDGET_S = 400
SLOW = True  # it copies a template
COMPONENT_TYPES = {"application", "framework", "library", "container", "platform", "operating-system", "device", "device-driver", "firmware", "file"}


def space(*words, **options):
    return subprocess.run([BINARY, *map(str, words)], capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL, **options)


class Supply(ServerTest):
    """A server with a store of its own, that of `base` copied, and a policy that trusts one signer."""

    @classmethod
    def setUpClass(cls):
        folder = tempfile.mkdtemp(prefix="space-supply-", dir=os.environ.get("SPACE_TEST_DIR"))
        cls.addClassCleanup(shutil.rmtree, folder, ignore_errors=True)
        cls.folder = Path(folder)
        cls.folder.chmod(0o755)
        cls.store = cls.folder / "templates"
        digest = json.loads(Path(TEMPLATES, "tags/base/latest.json").read_text())["digest"].removeprefix("sha256:")
        for part in ("tags/base/latest.json", "kernels", "initramfs", f"content/{digest}"):
            (cls.store / part).parent.mkdir(parents=True, exist_ok=True)
            subprocess.run(["cp", "-a", "--reflink=auto", "--sparse=always", Path(TEMPLATES, part), cls.store / part], check=True)
        cls.key, cls.other = (cls.new_key(name) for name in ("ours", "other"))
        cls.sign(cls.folder / "ours")
        cls.trust = cls.policy(f'format = 1\nstores = ["{cls.store}"]\n[[signer]]\nname = "ours"\nkey = "{cls.key}"\ntemplates = ["base"]\n')
        cls.options = {"pool_ready": 0, "templates_dir": cls.store, "trust": cls.trust}
        super().setUpClass()

    @classmethod
    def new_key(cls, name):
        made = space("template", "key", "create", cls.folder / name)
        assert made.returncode == 0 and re.fullmatch(r"ed25519:[0-9a-f]{64}\n", made.stdout), made
        return made.stdout.strip()

    @classmethod
    def sign(cls, key):
        made = space("template", "sign", "base", "--key", key, "--templates-dir", cls.store)
        assert made.returncode == 0, made

    @classmethod
    def policy(cls, text, name="trust.toml"):
        (cls.folder / name).write_text(text)
        return cls.folder / name

    def setUp(self):
        self.sign(self.folder / "ours")

    @property
    def content(self):
        return self.store / "content" / json.loads((self.store / "tags/base/latest.json").read_text())["digest"].removeprefix("sha256:")

    def code_of_create(self, server=None):
        """How a create of `base` ends: "" when it runs."""
        api = (server or self.server).api
        made = api.call("POST", "/v1/sandboxes", {"template": "base"}, headers={"Prefer": "wait=60"})
        if made.status >= 400:
            return made.json["code"]
        operation = api.operation(made.json["operation"]["id"])
        api.delete(made.json["sandbox"]["id"])
        return "" if operation["state"] == "succeeded" else operation["error"]["code"]

    def on_disk(self):
        """What a server writes when it loads a template."""
        return sorted(str(path) for folder in (Path(BASES), self.server.data_dir / "node" / "sandboxes") for path in folder.iterdir())

    def refused(self, code):
        before = self.on_disk()
        self.assertEqual(self.code_of_create(), code)
        self.assertEqual(self.on_disk(), before)
        judged = space("template", "verify", "base", "--trust", self.trust, "--templates-dir", self.store)
        self.assertEqual((judged.returncode, f"({code})" in judged.stderr), (65, True), judged)

    def flip(self, file, at):
        with open(file, "r+b") as opened:
            opened.seek(at)
            byte = opened.read(1)[0]
            opened.seek(at)
            opened.write(bytes([byte ^ 1]))

    def test_a_signed_template_runs(self):
        with self.api.create() as sandbox:
            self.assertEqual(sandbox.output("echo runs").strip(), "runs")
        self.assertIn("template.verified", self.server.log.read_text())
        verified = space("template", "verify", "base", "--templates-dir", self.store)
        self.assertEqual((verified.returncode, self.key in verified.stdout), (0, True), verified)

    def test_whatever_was_altered_is_refused_and_runs_again_as_it_was(self):
        data = os.open(self.content / "rootfs.ext4", os.O_RDONLY)
        middle = os.lseek(data, os.fstat(data).st_size // 2, os.SEEK_DATA)
        os.close(data)
        kernel = next(self.store.glob("kernels/*"))
        for file, at in ((self.content / "rootfs.ext4", middle + 5000), (self.content / "manifest", 10), (self.content / "lock", 30), (kernel / "vmlinux", 100_000),
                         (next((kernel / "modules").glob("*.ko")), 100)):
            with self.subTest(file.name):
                self.flip(file, at)
                try:
                    self.refused("template_altered")
                finally:
                    self.flip(file, at)
        self.assertEqual(self.code_of_create(), "")

    def test_unsigned_foreign_and_broken_signatures_are_refused(self):
        signature = self.store / "tags/base/latest.signature"
        whole = signature.read_text()
        signature.unlink()
        self.refused("template_unsigned")
        self.sign(self.folder / "other")
        self.refused("template_signer_untrusted")
        for text in (whole[:-20], whole * 50, whole.replace(self.key, self.other), ""):
            signature.write_text(text)
            self.refused("template_signature")
        signature.write_text(whole)
        self.assertEqual(self.code_of_create(), "")

    def test_what_is_made_out_of_a_sandbox_is_refused_unless_the_policy_allows_it(self):
        with self.api.create() as sandbox:
            answer = self.api.call("POST", "/v1/templates", {"name": "ts-mine:1", "sandbox": sandbox.id}, timeout=200)
            self.assertEqual(answer.json["code"], "template_store_untrusted", answer.body)
        self.assertFalse(list((self.server.data_dir / "node").glob("templates/*/*")))

    def test_a_store_that_the_policy_does_not_name_is_refused(self):
        elsewhere = self.policy(f'format = 1\nstores = ["/nowhere"]\n[[signer]]\nname = "ours"\nkey = "{self.key}"\n', "elsewhere.toml")
        server = SpaceServer(pool_ready=0, templates_dir=self.store, trust=elsewhere).start()
        try:
            self.assertEqual(self.code_of_create(server), "template_store_untrusted")
        finally:
            server.close()

    def test_a_policy_with_a_mistake_serves_nothing_and_writes_nothing(self):
        wrong = self.policy("format = 1\nunsinged = \"allow\"\n", "wrong.toml")
        data = self.folder / "never"
        served = space("serve", "--trust", wrong, "--data-dir", data, "--run-dir", self.folder / "never-run", "--listen", "127.0.0.1:0")
        self.assertEqual((served.returncode, "(trust_policy)" in served.stderr, data.exists()), (78, True, False), served)

    def test_without_a_policy_an_unsigned_template_is_said_once(self):
        server = SpaceServer(pool_ready=0).start()
        try:
            self.assertEqual([self.code_of_create(server), self.code_of_create(server)], ["", ""])
            self.assertEqual(server.log.read_text().count("template.unsigned"), 1, server.log_tail())
        finally:
            server.close()


class BillsOfMaterials(unittest.TestCase):
    def check(self, bill):
        """What the schema of CycloneDX 1.5 demands of the parts that are there."""
        self.assertEqual((bill["bomFormat"], bill["specVersion"]), ("CycloneDX", "1.5"))
        self.assertGreaterEqual(bill["version"], 1)
        self.assertRegex(bill["serialNumber"], r"^urn:uuid:[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$")
        self.assertRegex(bill["metadata"]["timestamp"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$")
        components = [bill["metadata"]["component"], *bill["components"]]
        for one in components:
            self.assertIn(one["type"], COMPONENT_TYPES)
            self.assertTrue(one["name"])
            for digest in one.get("hashes", []):
                self.assertEqual((digest["alg"], len(digest["content"])), ("SHA-256", 64))
        names = [one["bom-ref"] for one in components]
        self.assertEqual(len(names), len(set(names)))

    def test_a_templates_names_what_its_lock_names(self):
        printed = space("template", "sbom", "base", "--templates-dir", TEMPLATES)
        self.assertEqual(printed.returncode, 0, printed)
        bill = json.loads(printed.stdout)
        self.check(bill)
        digest = json.loads(Path(TEMPLATES, "tags/base/latest.json").read_text())["digest"].removeprefix("sha256:")
        lock = [line.split()[1:] for line in Path(TEMPLATES, "content", digest, "lock").read_text().splitlines() if line.startswith("package ")]
        listed = {(one["name"], one["version"], one["hashes"][0]["content"]) for one in bill["components"]}
        self.assertEqual({(name, version, hash) for name, version, _, hash in lock}, {one for one in listed if not one[0].startswith("linux-image-")})
        self.assertEqual(len(listed), len(lock) + 1)
        self.assertEqual(space("template", "sbom", "base", "--templates-dir", TEMPLATES).stdout, printed.stdout)

    def test_the_programs_names_the_libraries_that_it_loads(self):
        if not (BINARY.parent / "space.cdx.json").exists():
            subprocess.run([ROOT / "scripts" / "sbom", BINARY.parent], check=True, capture_output=True)
        printed = space("version", "--sbom")
        self.assertEqual(printed.returncode, 0, printed)
        bill = json.loads(printed.stdout)
        self.check(bill)
        listed = {one["name"]: one["version"] for one in bill["components"]}
        for name in ("libssl3", "libc6", "libboost1.81-dev", "libsodium23", "libcli11-dev"):
            known = subprocess.run(["dpkg-query", "-W", "-f", "${Version}", name], capture_output=True, text=True).stdout
            self.assertEqual(listed.get(name), known, name)


if __name__ == "__main__":
    unittest.main()
