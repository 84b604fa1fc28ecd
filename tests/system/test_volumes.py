"""Volumes: their files by E2B's content API, in sandboxes that have them mounted, and over everything that happens to either."""

import os
import signal
import time
import unittest
import urllib.parse
from pathlib import Path

import leaks
from api_client import Sandbox
from space_server import TEMPLATES, ServerTest

BUDGET_S = 420


def has_fuse():
    """Whether the guest's kernel has what a mount needs: templates of an earlier version have not."""
    return bool(list(Path(TEMPLATES).glob("kernels/*/modules/fuse.ko")))


class Volume:
    """One volume by its content API."""

    def __init__(self, api, made):
        self.api, self.id, self.name, self.token = api, made["volumeID"], made["name"], made["token"]

    def call(self, method, kind, path, body=None, token=None, **query):
        query = urllib.parse.urlencode({"path": path, **query})
        return self.api.with_key(token or self.token).call(method, f"/volumecontent/{self.id}/{kind}?{query}", body)

    def write(self, path, content, **query):
        return self.call("PUT", "file", path, content, **query)

    def read(self, path):
        return self.call("GET", "file", path)

    def stat(self, path):
        return self.call("GET", "path", path)

    def paths(self, path="/", **query):
        return [entry["path"] for entry in self.call("GET", "dir", path, **query).json]


class VolumeTest(ServerTest):
    def setUp(self):
        with self.api.create():  # by E2B's API nobody waits as long as a base may take
            pass

    def volume(self, name):
        answer = self.api.call("POST", "/volumes", {"name": name})
        self.assertEqual(answer.status, 201, answer.body)
        volume = Volume(self.api, answer.json)
        self.addCleanup(lambda: self.api.call("DELETE", f"/volumes/{volume.id}"))
        return volume

    def sandbox(self, **body):
        answer = self.api.call("POST", "/v2/sandboxes", {"templateID": "base", "timeout": 600, **body})
        self.assertEqual(answer.status, 201, answer.body)
        sandbox = Sandbox(self.api, answer.json["sandboxID"])
        self.addCleanup(lambda: self.api.delete(sandbox.id))
        return sandbox


class Content(VolumeTest):
    options = {"tenants_on_tcg": True}

    def test_they_are_made_listed_found_and_removed(self):
        one, two = self.volume("one"), self.volume("Two_2-x")
        listed = {(v["volumeID"], v["name"]) for v in self.api.ok("GET", "/volumes")}
        self.assertLessEqual({(one.id, "one"), (two.id, "Two_2-x")}, listed)
        found = self.api.ok("GET", f"/volumes/{one.id}")
        self.assertEqual((found["name"], found["token"]), ("one", one.token))
        self.assertEqual(self.api.call("POST", "/volumes", {"name": "one"}).status, 400)
        for wrong in ("", "a b", "a/b", "ä", "a" * 200, None, 7):
            self.assertEqual(self.api.call("POST", "/volumes", {"name": wrong}).status, 400, wrong)
        # Nobody sees the sandbox behind it as one of theirs.
        self.assertNotIn(one.id, [s["id"] for s in self.api.sandboxes()])
        self.assertNotIn(one.id, [s["sandboxID"] for s in self.api.ok("GET", "/v2/sandboxes")])
        self.assertEqual(self.api.call("GET", f"/sandboxes/{one.id}").status, 404)
        self.assertEqual(self.api.call("DELETE", f"/sandboxes/{one.id}").status, 404)
        # What it is known by is nobody's to say: neither for it nor for a sandbox of one's own.
        labels = {"space.kind": "volume", "space.volume": "three"}
        for method, path, body in (("PATCH", f"/v1/sandboxes/{one.id}", {"metadata": {"space.kind": None}}), ("PATCH", f"/v1/sandboxes/{one.id}", {"metadata": {"space.volume": "two"}}),
                                   ("POST", "/v1/sandboxes", {"metadata": labels}), ("POST", f"/v1/sandboxes/{one.id}/fork", {"metadata": labels})):
            self.assertRefused(self.api.call(method, path, body), 400, "label_reserved")
        refused = self.api.call("POST", "/v2/sandboxes", {"templateID": "base", "metadata": labels})
        self.assertEqual((refused.status, refused.json["error_code"]), (400, "label_reserved"), refused.body)
        self.assertEqual(self.api.ok("GET", f"/volumes/{one.id}")["name"], "one")
        child = Sandbox(self.api, Sandbox(self.api, one.id).change("fork")["children"][0])  # a sandbox like any other
        self.assertEqual(child.get()["metadata"], {})
        self.assertEqual([v["volumeID"] for v in self.api.ok("GET", "/volumes") if v["name"] == "one"], [one.id])
        self.api.delete(child.id)
        self.assertEqual(self.api.call("DELETE", f"/volumes/{one.id}").status, 204)
        for method in ("GET", "DELETE"):
            self.assertEqual(self.api.call(method, f"/volumes/{one.id}").status, 404)
            self.assertEqual(self.api.call(method, "/volumes/nothing").status, 404)
        self.assertEqual(one.read("/f").status, 404)
        again = self.volume("one")  # the name is free
        self.assertNotEqual(again.id, one.id)
        with self.sandbox() as sandbox:  # an ordinary sandbox is no volume
            self.assertEqual(self.api.call("GET", f"/volumes/{sandbox.id}").status, 404)

    def test_the_command_makes_lists_and_deletes_the_same_ones(self):
        theirs = self.volume("theirs")
        made = self.cli("volume", "create", "ours")
        self.assertEqual(made.returncode, 0, made.stderr)
        ours = Volume(self.api, self.api.ok("GET", f"/volumes/{made.stdout.decode().strip()}"))
        self.addCleanup(lambda: self.api.delete(ours.id))
        self.assertEqual((ours.name, ours.write("/f", b"x").status, ours.read("/f").body), ("ours", 201, b"x"))
        again = self.cli("volume", "create", "theirs")
        self.assertIn(b"volume_exists", again.stderr)
        self.assertEqual(self.api.call("POST", "/volumes", {"name": "ours"}).json["error_code"], "volume_exists")
        self.assertRefused(self.api.call("POST", "/v1/volumes", {"name": "a/b"}), 400, "invalid_field")
        rows = [line.split()[:2] for line in self.cli("volume", "ls").stdout.decode().splitlines()]
        self.assertEqual(sorted(rows), sorted([["ID", "NAME"], [theirs.id, "theirs"], [ours.id, "ours"]]))
        with self.api.create() as sandbox:  # never anything but volumes
            refused = self.cli("volume", "rm", "ours", sandbox.id)
            self.assertIn(b"volume_not_found", refused.stderr)
        self.assertEqual(self.cli("volume", "rm", "ours", theirs.id).returncode, 0)
        self.assertEqual(self.api.ok("GET", "/volumes"), [])

    def test_files_and_folders(self):
        v = self.volume("files")
        every = bytes(range(256)) * 8192
        answer = v.write("/a", every, uid=5, gid=6, mode=0o640)
        self.assertEqual(answer.status, 201, answer.body)
        self.assertEqual(v.read("/a").body, every)
        entry = v.stat("/a").json
        self.assertEqual([entry[k] for k in ("name", "type", "path", "size", "mode", "uid", "gid")], ["a", "file", "/a", len(every), 0o640, 5, 6])
        self.assertEqual(v.call("PATCH", "path", "/a", {"mode": 0o600, "uid": 7}).json["mode"], 0o600)
        self.assertEqual(v.stat("/a").json["uid"], 7)
        self.assertEqual(v.call("POST", "dir", "/d/e", mode=0o700).status, 404)
        made = v.call("POST", "dir", "/d/e", mode=0o700, force="true")
        self.assertEqual((made.status, made.json["type"], made.json["mode"]), (201, "directory", 0o700))
        self.assertEqual(v.call("POST", "dir", "/d/e").status, 409)
        self.assertEqual(v.write("/x/y", b"1").status, 404)
        self.assertEqual(v.write("/x/y", b"1", force="true").status, 201)
        self.assertEqual(v.write("/x/y", b"22").json["size"], 2)
        self.assertEqual(v.paths(), ["/a", "/d", "/x"])
        self.assertEqual(v.paths(depth=2), ["/a", "/d", "/d/e", "/x", "/x/y"])
        self.assertEqual(v.call("DELETE", "path", "/d").status, 204)
        for answer in (v.stat("/d"), v.read("/none"), v.call("DELETE", "path", "/d"), v.call("GET", "dir", "/d"), v.call("PATCH", "path", "/d", {"mode": 1})):
            self.assertEqual(answer.status, 404, answer.body)

    def test_what_is_wrong_is_refused(self):
        v = self.volume("wrong")
        v.write("/f", b"x")
        for path in ("", "f", "/../etc/passwd", "/a/../f", "/.", "//../f", "/a\0b", "/" + "a" * 5000):
            for method, kind in (("GET", "path"), ("GET", "file"), ("GET", "dir"), ("DELETE", "path"), ("POST", "dir"), ("PUT", "file")):
                self.assertEqual(v.call(method, kind, path, b"x" if method == "PUT" else None).status, 400, (method, kind, path))
        for query in ({"mode": 0o10000}, {"mode": "rw"}, {"uid": -1}, {"uid": 2**32}, {"force": "yes"}, {"more": 1}):
            self.assertEqual(v.write("/g", b"x", **query).status, 400, query)
        for body in ({"mode": -1}, {"mode": "600"}, {"uid": 1.5}, [], "x"):
            self.assertEqual(v.call("PATCH", "path", "/f", body).status, 400, body)
        self.assertEqual(v.call("DELETE", "path", "/").status, 400)
        self.assertEqual(v.read("/").status, 400)
        self.assertEqual(v.paths(), ["/f"])

    def test_a_token_opens_its_volume_alone(self):
        one, two = self.volume("mine"), self.volume("other")
        self.assertEqual(one.write("/f", b"x").status, 201)
        for token in (two.token, self.api.key, "vol_" + "0" * 64, "x"):
            self.assertEqual(one.call("GET", "file", "/f", token=token).status, 401, token)
        self.assertEqual(self.api.with_key(None).call("GET", f"/volumecontent/{one.id}/file?path=/f").status, 401)
        key = self.api.ok("POST", "/v1/keys", {"name": "second", "tenant": "second", "scopes": ["run"]})["key"]
        second = self.api.with_key(key)
        self.assertEqual(second.ok("GET", "/volumes"), [])
        self.assertEqual(second.call("GET", f"/volumes/{one.id}").status, 404)
        self.assertEqual(second.call("DELETE", f"/volumes/{one.id}").status, 404)
        refused = second.call("POST", "/v2/sandboxes", {"templateID": "base", "volumeMounts": [{"name": "mine", "path": "/mnt/data"}]})
        self.assertEqual(refused.status, 400, refused.body)
        theirs = second.ok("POST", "/volumes", {"name": "mine"})  # a name is a tenant's own
        self.addCleanup(lambda: second.call("DELETE", f"/volumes/{theirs['volumeID']}"))
        self.assertEqual(one.call("GET", "file", "/f", token=theirs["token"]).status, 401)
        self.assertEqual(Volume(second, theirs).read("/f").status, 404)

    def test_it_rests_and_wakes_for_the_next_request(self):
        v = self.volume("resting")
        v.write("/f", b"kept")
        for verb in ("suspend", "stop"):
            self.assertEqual(Sandbox(self.api, v.id).change(verb)["state"], "succeeded")
            self.assertEqual(v.read("/f").body, b"kept")

    def test_what_was_written_is_there_when_its_machine_dies_at_once(self):
        v = self.volume("cut-off")
        v.write("/before", b"x")
        machine = leaks.vmm_pid(self.server, v.id)
        self.assertEqual(v.write("/f", b"kept").status, 201)
        self.assertEqual(v.write("/a/b/g", b"kept too", force="true").status, 201)
        os.kill(machine, signal.SIGKILL)
        self.server.wait_for(lambda: v.read("/before").status == 200, 90, "the volume to be back")
        self.assertEqual((v.read("/f").body, v.read("/a/b/g").body), (b"kept", b"kept too"))

    def test_it_outlives_its_machine_and_the_server(self):
        v = self.volume("lasting")
        v.write("/f", b"kept")
        self.assertEqual(self.server.stop(), 0)
        self.server.start()
        self.assertEqual(v.read("/f").body, b"kept")
        self.server.kill_role("node")
        self.server.wait_for(lambda: v.read("/f").body == b"kept", 30, "the file after another node")


@unittest.skipUnless(has_fuse(), "the templates were published by a version without FUSE: publish them again")
class Mounted(VolumeTest):
    def both(self, name):
        """A volume and two sandboxes with it."""
        volume = self.volume(name)
        mounts = [{"name": name, "path": "/mnt/data"}]
        return volume, self.sandbox(volumeMounts=mounts), self.sandbox(volumeMounts=mounts)

    def sees(self, sandbox, command, wanted):
        """Another's change is seen after a second."""
        return self.server.wait_for(lambda: sandbox.run(command).stdout.decode() == wanted, 10, f"{wanted!r} of {command}")

    def test_several_sandboxes_share_it_at_once(self):
        volume, one, two = self.both("shared")
        self.assertEqual(one.output("echo hello >/mnt/data/f && id -u && stat -c '%u %a' /mnt/data/f && cat /mnt/data/f"), "1000\n1000 644\nhello")
        self.assertEqual(two.output("cat /mnt/data/f"), "hello")
        self.assertEqual(volume.read("/f").body, b"hello\n")
        volume.write("/g", b"from outside", mode=0o666)
        self.sees(one, "cat /mnt/data/g", "from outside")
        two.output("echo more >>/mnt/data/f")
        self.sees(one, "cat /mnt/data/f", "hello\nmore\n")
        # What programs do: a tree, a repository, a file of some megabytes, a program that is run from there, a full disk's worth of names.
        one.output("cd /mnt/data && git init -q r && cd r && echo x >a && git add a && git -c user.name=a -c user.email=a@b commit -qm one && git status --porcelain")
        self.assertEqual(two.output("cd /mnt/data/r && git log --format=%s"), "one")
        self.assertEqual(one.output("head -c 20000000 /dev/urandom >/mnt/data/big && sha256sum </mnt/data/big"), two.output("sha256sum </mnt/data/big"))
        self.assertEqual(one.output("cp /bin/echo /mnt/data/program && /mnt/data/program works", cwd="/mnt/data"), "works")
        self.assertEqual(one.output("mkdir /mnt/data/many && cd /mnt/data/many && seq 1 500 | xargs touch && ls | wc -l"), "500")
        self.assertEqual(two.output("rm -r /mnt/data/many && ls /mnt/data | tr '\\n' ' '"), "big f g program r ")
        listed = next(s for s in self.api.ok("GET", "/v2/sandboxes") if s["sandboxID"] == one.id)
        self.assertEqual(listed["volumeMounts"], [{"name": "shared", "path": "/mnt/data"}])
        self.assertEqual(self.api.ok("GET", f"/sandboxes/{one.id}")["volumeMounts"], listed["volumeMounts"])

    def test_a_program_with_an_open_file_goes_on_over_everything(self):
        volume, one, _ = self.both("lasting")
        ticks = "import time\nf = open('/mnt/data/ticks', 'w')\ni = 0\nwhile True:\n  i += 1\n  f.write(f'{i}\\n'); f.flush(); time.sleep(0.05)"
        one.write("/tmp/ticks.py", ticks.encode())
        one.output("nohup python3 /tmp/ticks.py >/tmp/ticks.out 2>&1 & until [ -s /mnt/data/ticks ]; do sleep 0.1; done")

        def goes_on(limit=60):
            before = len(volume.read("/ticks").body.split())
            self.server.wait_for(lambda: len(volume.read("/ticks").body.split()) > before + 5, limit, "more lines in the file")

        goes_on()
        for role in ("node", "api"):
            with self.subTest(killed=role):
                self.server.kill_role(role)
                self.server.wait_for(lambda: volume.read("/ticks").status == 200, 60, "the volume to answer")
                goes_on()
        with self.subTest("pause and connect"):
            self.assertEqual(self.api.call("POST", f"/sandboxes/{one.id}/pause", {}).status, 204)
            self.assertEqual(self.api.call("POST", f"/v2/sandboxes/{one.id}/connect", {}).status, 201)
            goes_on()
        with self.subTest("the volume is put away"):
            Sandbox(self.api, volume.id).change("suspend")
            goes_on()
        with self.subTest("the server is restarted"):
            self.assertEqual(self.server.stop(), 0)
            self.server.start()
            self.server.wait_for(lambda: volume.read("/ticks").status == 200, 60, "the volume to answer")
            goes_on()
        lines = volume.read("/ticks").body.split()
        self.assertEqual(lines, [str(i).encode() for i in range(1, len(lines) + 1)])
        self.assertEqual(one.output("cat /tmp/ticks.out"), "")

    def test_copies_have_it_too(self):
        volume, one, _ = self.both("copied")
        one.output("echo parent >/mnt/data/f")
        forked = self.api.ok("POST", f"/sandboxes/{one.id}/fork", {"count": 1})[0]
        self.assertIn("sandbox", forked, forked)
        child = Sandbox(self.api, forked["sandbox"]["sandboxID"])
        self.addCleanup(lambda: self.api.delete(child.id))
        self.assertEqual(child.output("cat /mnt/data/f && echo child >/mnt/data/g"), "parent")
        self.sees(one, "cat /mnt/data/g", "child\n")
        snapshot = self.api.ok("POST", f"/sandboxes/{one.id}/snapshots", {"name": "with-a-volume"})["snapshotID"]
        later = self.sandbox(templateID=snapshot)
        self.assertEqual(later.output("cat /mnt/data/g && echo later >/mnt/data/h"), "child")
        self.assertEqual(volume.read("/h").body, b"later\n")
        self.assertEqual(self.api.ok("GET", f"/sandboxes/{later.id}")["volumeMounts"], [{"name": "copied", "path": "/mnt/data"}])
        files = self.api.ok("POST", f"/sandboxes/{one.id}/snapshots", {"memory": False})["snapshotID"]  # of the files alone
        booted = self.sandbox(templateID=files)
        self.assertEqual(booted.output("cat /mnt/data/h && echo booted >/mnt/data/i"), "later")
        self.assertEqual(volume.read("/i").body, b"booted\n")
        self.assertEqual(self.api.call("DELETE", f"/templates/{urllib.parse.quote(files)}").status, 204)
        # From its disk, which holds nothing of the volume's.
        self.assertEqual(self.api.call("POST", f"/sandboxes/{one.id}/pause", {"memory": False}).status, 204)
        self.assertEqual(self.api.call("POST", f"/v2/sandboxes/{one.id}/connect", {"memory": False}).status, 201)
        self.assertEqual(one.output("cat /mnt/data/h"), "later")
        self.api.call("DELETE", f"/templates/{urllib.parse.quote(snapshot)}")

    def test_what_cannot_be_mounted_is_refused(self):
        self.volume("there")
        before = {s["id"] for s in self.api.sandboxes()}
        for mounts in ([{"name": "none", "path": "/mnt/x"}], [{"name": "there", "path": "mnt"}], [{"name": "there", "path": "/mnt/../x"}], [{"name": "there", "path": "/mnt/"}],
                       [{"name": "there", "path": "/"}], [{"name": "there", "path": "/etc"}], [{"name": "there", "path": "/proc/x"}], [{"name": "there"}], [{"path": "/mnt/x"}], ["there"],
                       [{"name": "there", "path": "/mnt/x"}, {"name": "there", "path": "/mnt/x"}], [{"name": "there", "path": "/mnt/x"}, {"name": "there", "path": "/mnt/x/y"}], {"name": "there"}, [{"name": "there", "path": f"/mnt/{i}"} for i in range(17)]):
            answer = self.api.call("POST", "/v2/sandboxes", {"templateID": "base", "volumeMounts": mounts})
            self.assertEqual(answer.status, 400, (mounts, answer.body))
        self.assertEqual({s["id"] for s in self.api.sandboxes()}, before)

    def test_a_volume_that_is_deleted_fails_in_its_sandboxes_and_hangs_nobody(self):
        volume, one, _ = self.both("going")
        one.output("echo x >/mnt/data/f")
        self.assertEqual(self.api.call("DELETE", f"/volumes/{volume.id}").status, 204)
        self.server.wait_for(lambda: one.run("cat /mnt/data/f 2>/dev/null", timeout=30).code != 0, 30, "an error in place of the file")
        self.assertEqual(one.output("echo the rest works"), "the rest works")

    def test_a_volume_whose_machine_dies_comes_back_from_its_disk(self):
        volume, one, two = self.both("dying")
        one.output("mkdir /mnt/data/d && echo kept >/mnt/data/d/f && sync /mnt/data/d/f")
        self.assertEqual(two.output("cat /mnt/data/d/f"), "kept")
        os.kill(leaks.vmm_pid(self.server, volume.id), signal.SIGKILL)
        self.assertEqual(two.output("echo more >>/mnt/data/d/f && cat /mnt/data/d/f"), "kept\nmore")
        self.assertEqual(volume.read("/d/f").body, b"kept\nmore\n")
        self.assertEqual(one.output("ls /mnt/data /mnt/data/d"), "/mnt/data:\nd\n\n/mnt/data/d:\nf")

    def test_one_that_is_unmounted_inside_is_mounted_anew_and_keeps_nobody_busy(self):
        volume, one, _ = self.both("unmounted")
        one.output("echo kept >/mnt/data/f")
        links = lambda: sum("volume.linked" in line and one.id in line for line in self.server.log.read_text(errors="replace").splitlines())
        before = links()
        one.output("umount /mnt/data", user="root")
        self.server.wait_for(lambda: one.run("cat /mnt/data/f 2>/dev/null").stdout == b"kept\n", 30, "the mount to be there again")
        time.sleep(3)
        self.assertLessEqual(links() - before, 3)
        self.assertEqual(one.output("echo more >>/mnt/data/f && cat /mnt/data/f"), "kept\nmore")

    def test_one_sandbox_has_several(self):
        self.volume("left"), self.volume("right")
        one = self.sandbox(volumeMounts=[{"name": "left", "path": "/left"}, {"name": "right", "path": "/home/user/right"}])
        self.assertEqual(one.output("echo 1 >/left/f && echo 2 >~/right/f && cat /left/f ~/right/f && grep -c fuse.volume /proc/mounts"), "1\n2\n2")


if __name__ == "__main__":
    unittest.main()
