"""Templates made on a running server: what is published of a sandbox, and builds from Dockerfiles."""

import hashlib
import json
import shutil
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

from space_server import BASES, ServerTest

BUDGET_S = 300
SLOW = True


class TemplateTest(ServerTest):
    options = {"pool_ready": 0, "pool_spawned": 0}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.addClassCleanup(remove_bases)
        cls.addClassCleanup(cls.server.delete_published)

    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="space-build-"))
        self.addCleanup(shutil.rmtree, self.folder)

    def put(self, name, content):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
        return path

    def build(self, tag, *words, status=0):
        """`space template build -t TAG`; gives what it printed on standard error."""
        made = self.cli("template", "build", "-t", tag, *words, timeout=600)
        printed = made.stderr.decode()
        self.assertEqual(made.returncode, status, printed + made.stdout.decode() + self.server.log_tail(15))
        return printed

    def dockerfile(self, tag, text, *words, status=0):
        self.put("Dockerfile", text)
        return self.build(tag, str(self.folder), *words, status=status)

    def over(self, id):
        build = self.api.ok("GET", f"/v1/builds/{id}")
        return build if build["state"] not in ("waiting", "building") else None

    def log_so_far(self, id):
        out = []
        try:
            with self.api.events(f"/v1/builds/{id}/logs", timeout=2) as events:
                for event in events:
                    out.append(event)
        except OSError:
            pass  # nothing more came in time
        return out

    def nothing_is_left(self):
        self.assertEqual([one for one in self.api.sandboxes() if one["state"] not in ("deleted", "failed")], [])
        names = [one["name"] for one in self.api.ok("GET", "/v1/checkpoints")["checkpoints"]]
        self.assertEqual([name for name in names if not name.startswith("build-layer-")], [])


def remove_bases():
    """Those of templates that this file published: the folder of bases is shared by every test server of this machine."""
    for folder in Path(BASES).iterdir():
        try:
            name = json.loads((folder / "manifest.json").read_text())["release"]
        except OSError:
            continue
        if name.startswith("tt-"):
            shutil.rmtree(folder, ignore_errors=True)


class Publishing(TemplateTest):
    def test_a_checkpoint_gives_its_disk_and_nothing_of_its_saved_state(self):
        with self.api.create() as sandbox:
            sandbox.start("exec -a lives-in-memory sleep 1000")
            sandbox.run("echo kept > ~/kept; echo memory > /dev/shm/memory; sync; echo late > ~/late", timeout=60)
            checkpoint = sandbox.change("checkpoint", {"name": "to publish"})["checkpoint"]
            # Everything that was saved but the disk becomes something else.
            altered = 0
            for blob in (self.server.data_dir / "node" / "store").rglob("*"):
                if not blob.is_file() or blob.stat().st_size < 4096 or "manifests" in blob.parts:  # a manifest is signed: altered it opens nothing
                    continue
                with open(blob, "rb") as file:
                    if file.read(4) == b"QFI\xfb":
                        continue
                subprocess.run(["chattr", "-f", "-i", blob], check=False)
                blob.chmod(0o600)
                with open(blob, "r+b") as file:
                    size = blob.stat().st_size
                    for place in range(0, size, 4096):
                        file.seek(place)
                        file.write(b"ALTERED!")
                altered += 1
            self.assertGreater(altered, 0)
            # The control: it is the saved state that was altered.
            forked = sandbox.change("fork", {"checkpoint": checkpoint})
            self.assertEqual(forked["state"], "failed", forked)
            answer = self.api.call("POST", "/v1/templates", {"name": "tt-mine:1", "checkpoint": checkpoint}, timeout=200)
            self.assertEqual(answer.status, 201, answer.body)
            self.assertRefused(self.api.call("POST", "/v1/templates", {"name": "tt-mine:1", "checkpoint": checkpoint}, timeout=200), 409, "template_tag_exists")
            # Nor does anything of the checkpoint itself remain in it.
            self.assertEqual(self.api.call("DELETE", f"/v1/checkpoints/{checkpoint}").status, 200)
        with self.api.create(template="tt-mine:1") as sandbox:
            self.assertEqual(sandbox.output("cat ~/kept; ls /dev/shm | wc -l; pgrep -f lives-in-memor[y] | wc -l").split(), ["kept", "0", "0"])
            self.assertEqual(sandbox.get()["template_digest"], answer.json["digest"])
            self.assertEqual(sandbox.change("checkpoint", {"name": "of a published one"})["state"], "succeeded")
            self.assertRefused(self.api.call("DELETE", "/v1/templates/tt-mine:1"), 409, "template_in_use")
        for one in self.api.ok("GET", "/v1/checkpoints")["checkpoints"]:
            self.api.call("DELETE", f"/v1/checkpoints/{one['id']}")
        self.assertIn(b"tt-mine", self.cli("template", "ls").stdout)
        self.assertEqual(self.cli("template", "rm", "tt-mine:1").returncode, 0)
        self.assertNotIn(b"tt-mine", self.cli("template", "ls").stdout)
        self.assertEqual([one for one in (self.server.data_dir / "node" / "templates").rglob("*.qcow2")], [])

    def test_a_running_sandbox_is_published_with_what_its_programs_wrote_just_now(self):
        with self.api.create() as sandbox:
            sandbox.run("echo now > ~/now")
            printed = self.cli("template", "publish", sandbox.id, "tt-now:1", timeout=200)
            self.assertEqual(printed.returncode, 0, printed.stderr)
            self.assertEqual(self.cli("template", "publish", sandbox.id, "tt-now:1").returncode, 75)
            self.assertEqual(sandbox.output("cat ~/now").strip(), "now")
        with self.api.create(template="tt-now:1") as sandbox:
            self.assertEqual(sandbox.output("cat ~/now").strip(), "now")
        self.nothing_is_left()

    def test_what_is_wrong_is_refused(self):
        for body, code in (({"name": "tt-x:1"}, "invalid_field"), ({"name": "TT", "checkpoint": "a" * 24}, "template_reference"), ({"name": "sha256:1", "checkpoint": "a" * 24}, "template_reference")):
            self.assertRefused(self.api.call("POST", "/v1/templates", body), 400, code)
        self.assertRefused(self.api.call("POST", "/v1/templates", {"name": "tt-x:1", "checkpoint": "a" * 24}), 404, "checkpoint_not_found")
        self.assertRefused(self.api.call("POST", "/v1/templates", {"name": "tt-x:1", "sandbox": "a" * 24}), 404, "sandbox_not_found")
        run = self.api.ok("POST", "/v1/keys", {"name": "run", "scopes": ["run"]})["key"]
        for method, path in (("POST", "/v1/templates"), ("POST", "/v1/builds"), ("GET", "/v1/uploads/" + "a" * 64)):
            self.assertEqual(self.api.with_key(run).call(method, path, {} if method == "POST" else None).status, 403)


class Builds(TemplateTest):
    def test_a_dockerfile_becomes_a_template_whose_layers_are_kept(self):
        self.put("files/hello.txt", "hello\n")
        self.put("files/deep/more.txt", "more\n")
        self.put("one.sh", "#!/bin/sh\necho one\n").chmod(0o755)
        text = ("FROM base\nARG GREETING=hi\nENV WHO=world PLACE=/srv/app\nRUN echo \"$GREETING $WHO $(id -un) $PWD\" > /first\nCOPY files/ $PLACE/\n"
                "COPY --chown=user --chmod=0700 one.sh /usr/local/bin/\nUSER user\nWORKDIR $PLACE\nCMD exec -a the-start-command sleep 100000\n")
        begun = time.monotonic()
        printed = self.dockerfile("tt-built:1", text, "--ready", "pgrep -f the-start-command")
        first = time.monotonic() - begun
        self.assertNotIn("(kept)", printed)
        with self.api.create(template="tt-built:1") as sandbox:
            out = sandbox.output("cat /first; pwd; echo $WHO; id -un; cat hello.txt deep/more.txt; one.sh; stat -c %U:%a /usr/local/bin/one.sh; stat -c %U deep; pgrep -fc '^the-start'")
            self.assertEqual(out.splitlines(), ["hi world root /", "/srv/app", "world", "user", "hello", "more", "one", "user:700", "root", "1"])
        begun = time.monotonic()
        printed = self.dockerfile("tt-built:2", text, "--ready", "pgrep -f the-start-command")
        self.assertEqual(printed.count("(kept)"), 8 + 1, printed)
        print(f"first {first:.1f} s, again {time.monotonic() - begun:.1f} s", flush=True)
        # Another file: what stands before it is kept, it and what follows is not.
        self.put("files/hello.txt", "hello again\n")
        printed = self.dockerfile("tt-built:3", text.replace("CMD", "RUN cat $PLACE/hello.txt\nCMD"))
        self.assertEqual(printed.count("(kept)"), 5, printed)
        self.assertIn("hello again", printed)
        self.nothing_is_left()

    def test_a_template_stands_on_a_template(self):
        self.dockerfile("tt-below:1", "FROM base\nENV A=1\nRUN echo below > /below\nUSER user\nWORKDIR /tmp\n")
        self.put("Dockerfile", "FROM tt-below:1\nENV B=$A$A\nRUN echo above > /above\n")
        self.build("tt-above:1", str(self.folder))
        with self.api.create(template="tt-above:1") as sandbox:
            self.assertEqual(sandbox.output("cat /below /above; echo $A $B; pwd").split(), ["below", "above", "1", "11", "/home/user"])
        self.build("tt-same:1", "--from", "tt-above:1")
        with self.api.create(template="tt-same:1") as sandbox:
            self.assertEqual(sandbox.output("cat /below /above; echo $A $B; pwd").split(), ["below", "above", "1", "11", "/home/user"])
        # The one above goes on without the name below.
        self.assertEqual(self.cli("template", "rm", "tt-below:1").returncode, 0)
        with self.api.create(template="tt-above:1") as sandbox:
            self.assertEqual(sandbox.output("cat /below").strip(), "below")

    def test_a_step_that_fails_ends_the_build_and_leaves_nothing(self):
        printed = self.dockerfile("tt-fails:1", "FROM base\nRUN echo before\nRUN echo words; echo more >&2; exit 3\n", status=65)
        self.assertIn("words\n", printed)
        self.assertIn("more\n", printed)
        self.assertIn("step 4: failed to run command 'echo words; echo more >&2; exit 3': exit status 3", printed)
        nobody = self.api.ok("POST", "/v1/builds", {"name": "tt-fails:2", "steps": [{"type": "RUN", "args": ["whoami", "root123"]}]})
        over = self.server.wait_for(lambda: self.over(nobody["id"]), 240, "its end")
        self.assertIn("invalid username: 'root123'", over["error"]["message"])
        self.nothing_is_left()

    def test_a_parent_that_is_not_there_is_told(self):
        printed = self.dockerfile("tt-unready:1", "FROM base\nRUN true\n", "--from", "not-there", status=65)
        self.assertIn("template_not_found", printed)

    def test_what_a_dockerfile_may_not_say_is_refused_by_its_line(self):
        self.assertIn("line 3: EXPOSE", self.dockerfile("tt-x:1", "FROM base\n\nEXPOSE 80\n", status=65))
        self.assertIn("line 2: 'nothing' is not in", self.dockerfile("tt-x:1", "FROM base\nCOPY nothing /\n", status=66))
        self.assertIn("outside the build's folder", self.dockerfile("tt-x:1", "FROM base\nCOPY ../x /\n", status=65))

    def test_a_build_survives_a_kill_of_the_server(self):
        body = {"name": "tt-killed:1", "parent": "base", "steps": [{"type": "RUN", "args": ["echo once >> /count", "root"]}, {"type": "RUN", "args": ["sleep 4; echo slow"]}]}
        build = self.api.ok("POST", "/v1/builds", body)
        self.assertEqual(build["state"], "building")
        self.server.wait_for(lambda: any(e.kind == "log" and "sleep" in e.data.get("message", "") for e in self.log_so_far(build["id"])), 240, "the second step")
        self.server.kill_role("api")
        over = self.server.wait_for(lambda: self.over(build["id"]), 300, "the build's end")
        self.assertEqual(over["state"], "ready", over)
        with self.api.create(template="tt-killed:1") as sandbox:
            self.assertEqual(sandbox.output("cat /count").split(), ["once"])
        self.nothing_is_left()

    def test_a_build_is_cancelled(self):
        build = self.api.ok("POST", "/v1/builds", {"name": "tt-cancelled:1", "steps": [{"type": "RUN", "args": ["sleep 300"]}]})
        self.server.wait_for(lambda: any("sleep" in e.data.get("message", "") for e in self.log_so_far(build["id"])), 240, "the step")
        self.assertEqual(self.cli("template", "cancel", build["id"]).returncode, 0)
        self.assertEqual(self.server.wait_for(lambda: self.over(build["id"]), 240, "its end")["state"], "cancelled")
        self.nothing_is_left()

    def test_files_are_taken_by_their_digest_alone(self):
        data = b"not what it says"
        name = hashlib.sha256(b"other").hexdigest()
        self.assertRefused(self.api.call("PUT", f"/v1/uploads/{name}", data, {"Content-Type": "application/octet-stream"}), 400, "upload_digest")
        self.assertFalse(self.api.ok("GET", f"/v1/uploads/{name}")["present"])
        self.assertRefused(self.api.call("PUT", "/v1/uploads/..%2F..%2Fx", data, {"Content-Type": "application/octet-stream"}), 400, "upload_digest")
        missing = {"name": "tt-missing:1", "steps": [{"type": "COPY", "args": ["a", "/a"], "filesHash": name}]}
        build = self.api.ok("POST", "/v1/builds", missing)
        over = self.server.wait_for(lambda: self.over(build["id"]), 240, "its end")
        self.assertEqual((over["state"], over["error"]["code"], over["failed_step"]), ("failed", "upload_missing", "base"))


if __name__ == "__main__":
    unittest.main()
