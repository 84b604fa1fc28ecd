"""Disks that are kept again and again: few files open, nothing lost, and ways back to the whole disk or to one path of it."""

import json
import os
import stat
import time
import unittest

import leaks
from api_client import Sandbox
from space_server import ServerTest

BUDGET_S = 300
STEPS = 13

# Writes file after file with its digest beside it, until it is told to end; what lies on the disk must be what was written.
WRITER = """
i=0
while [ ! -e /root/stop ]; do
  i=$((i+1))
  head -c $((RANDOM * 8 + 1)) /dev/urandom > /root/w/$((i % 200))
  (cd /root/w && sha256sum $((i % 200)) > sum.$((i % 200)))
  sleep 0.1
done
sync
"""


class Disks(ServerTest):
    options = {"pool_ready": 0, "pool_spawned": 0}

    def succeed(self, sandbox, verb, body=None):
        operation = sandbox.change(verb, body)
        self.assertEqual(operation["state"], "succeeded", operation)
        return operation

    def listed(self, sandbox):
        return self.api.ok("GET", f"/v1/checkpoints?sandbox={sandbox.id}")["checkpoints"]

    def images_open(self, sandbox):
        """Images of its disk that the VMM has open: the template's, which is raw, and all that are qcow2."""
        folder, files = f"/proc/{leaks.vmm_pid(self.server, sandbox.id)}/fd", set()
        for name in os.listdir(folder):
            info = os.stat(f"{folder}/{name}")
            if stat.S_ISREG(info.st_mode) and info.st_size > 4:
                with open(f"{folder}/{name}", "rb") as file:
                    if file.read(4) == b"QFI\xfb":
                        files.add((info.st_dev, info.st_ino))
        return len(files) + 1

    def merged(self):
        return self.server.log.read_text().count("sandbox.disk_merged")

    def test_a_disk_that_is_kept_often_has_few_files_and_loses_nothing(self):
        with self.api.create() as sandbox:
            sandbox.output("mkdir -p /root/w && rm -f /root/stop", user="root")
            writer = sandbox.start(["bash", "-c", WRITER], user="root").in_background()
            before = self.merged()
            for number in range(STEPS):
                # Checkpoints and snapshots in turns, and files that stay, written before each.
                sandbox.output(f"echo {number} > ~/step{number}")
                self.succeed(sandbox, "checkpoint" if number % 3 == 0 else "snapshot")
                self.server.wait_for(lambda: self.images_open(sandbox) <= 8, 20, "the merge of older generations")
            self.assertGreaterEqual(self.merged(), before + 2)
            sandbox.output("touch /root/stop", user="root")
            writer.wait(60)
            check = "sync; echo 3 > /proc/sys/vm/drop_caches; cd /root/w && cat sum.* | sha256sum -c --quiet && cat /home/user/step*"
            steps = [str(n) for n in sorted(range(STEPS), key=str)]
            self.assertEqual(sandbox.output(check, user="root").split(), steps)
            self.assertEqual(len(self.listed(sandbox)), STEPS)
            self.succeed(sandbox, "suspend")
            self.succeed(sandbox, "wake")
            self.assertEqual(sandbox.output(check, user="root").split(), steps)
            # From a checkpoint in the middle, whose generations were merged since.
            middle = [one for one in self.listed(sandbox) if one["kind"] == "checkpoint"][2]
            child = Sandbox(self.api, self.succeed(sandbox, "fork", {"checkpoint": middle["id"]})["children"][0])
            self.assertEqual(child.output("cat ~/step*").split(), [str(n) for n in sorted(range(7), key=str)])
            self.assertLessEqual(self.images_open(child), 8)
            self.api.delete(child.id)
            self.succeed(sandbox, "stop")
            self.succeed(sandbox, "start")
            self.assertEqual(sandbox.output(check, user="root").split(), steps)
            for one in self.listed(sandbox):
                self.api.ok("DELETE", f"/v1/checkpoints/{one['id']}")

    def test_the_whole_disk_comes_back_and_one_path_of_it(self):
        with self.api.create() as sandbox:
            sandbox.output("mkdir -p ~/project/src && echo then > ~/project/src/a && ln -s a ~/project/src/b && chmod 640 ~/project/src/a; echo then > ~/other; echo memory > /dev/shm/m")
            snapshot = self.succeed(sandbox, "snapshot", {"name": "before"})["checkpoint"]
            listed = self.api.ok("GET", f"/v1/checkpoints/{snapshot}")
            self.assertEqual((listed["kind"], listed["name"], listed["automatic"]), ("file_snapshot", "before", False))
            (node,) = [one for one in self.api.ok("GET", "/v1/tree")["nodes"] if one["id"] == snapshot]
            self.assertEqual((node["kind"], node["parent"], node["automatic"], node["memory_own_bytes"]), ("file_snapshot", sandbox.id, False, 0))
            self.assertGreater(node["disk_own_bytes"] + node["disk_shared_bytes"], 0)
            self.assertIn(snapshot.encode(), self.cli("tree").stdout)
            sandbox.output("echo now > ~/other; rm -r ~/project; mkdir ~/project; echo new > ~/project/new")
            # One path: the sandbox goes on, everything else stays as it is.
            self.succeed(sandbox, "restore", {"checkpoint": snapshot, "path": "/home/user/project"})
            self.assertEqual(sandbox.output("cat ~/other ~/project/src/a ~/project/src/b ~/project/new /dev/shm/m; stat -c '%a %U' ~/project/src/a").split(),
                             ["now", "then", "then", "new", "memory", "640", "user"])
            self.succeed(sandbox, "restore", {"checkpoint": snapshot, "path": "/home/user/other", "into": "/tmp/back"})
            self.assertEqual(sandbox.output("cat /tmp/back/other ~/other").split(), ["then", "now"])
            for path, code in (("/home/user/nothing", "path_not_found"), ("relative", "invalid_path"), ("/", "invalid_path")):
                operation = sandbox.change("restore", {"checkpoint": snapshot, "path": path})
                self.assertEqual(operation["error"]["code"], code)
            # The whole disk: what is in memory is given up, and the sandbox has booted.
            self.succeed(sandbox, "restore", {"checkpoint": snapshot})
            self.assertEqual(sandbox.output("cat ~/other ~/project/src/a; ls ~/project; ls /dev/shm/m 2>/dev/null | wc -l").split(), ["then", "then", "src", "0"])
            # A stopped one too, and new sandboxes from it.
            self.succeed(sandbox, "stop")
            stopped = self.succeed(sandbox, "snapshot")["checkpoint"]
            self.succeed(sandbox, "start")
            child = Sandbox(self.api, self.succeed(sandbox, "fork", {"checkpoint": stopped})["children"][0])
            self.assertEqual(child.output("cat ~/other").split(), ["then"])
            self.api.delete(child.id)
            for id in (snapshot, stopped):
                self.api.ok("DELETE", f"/v1/checkpoints/{id}")

    def test_snapshots_are_taken_and_let_go_by_themselves(self):
        sandbox = self.api.create()
        settings = f"{sandbox.path}/snapshots"
        self.assertEqual(self.api.ok("GET", settings), {"every_s": 0, "keep": 20})
        self.assertEqual(self.api.ok("PUT", settings, {"every_s": 1, "keep": 2}), {"every_s": 1, "keep": 2})
        self.assertRefused(self.api.call("PUT", settings, {"every_s": -1}), 400, "invalid_field")
        seen = set()
        until = time.monotonic() + 60
        while len(seen) < 5 and time.monotonic() < until:
            sandbox.output("date >> ~/log")
            seen.update(one["id"] for one in self.listed(sandbox) if one["automatic"])
            time.sleep(0.5)
        self.assertGreaterEqual(len(seen), 5)
        with self.api.events("/v1/events?after=0") as stream:
            told = next(event for event in stream if event.kind == "sandbox.snapshot")
        self.assertEqual(told.data["sandbox"], sandbox.id)
        self.assertTrue(told.data["data"]["checkpoint"])
        # Nothing is written any more: nothing new comes, and what is too many goes.
        self.server.wait_for(lambda: len(self.listed(sandbox)) == 2, 30, "the older ones to go")
        # The last write, and what the guest's kernel writes after it, may still make one or two.
        still, since, until = [], time.monotonic(), time.monotonic() + 60
        while time.monotonic() - since < 5:
            now = [one["id"] for one in self.listed(sandbox)]
            if now != still:
                still, since = now, time.monotonic()
            self.assertLess(time.monotonic(), until, "new ones go on coming though nothing is written")
            time.sleep(0.5)
        self.assertEqual(len(still), 2)
        named = self.succeed(sandbox, "snapshot", {"name": "mine"})["checkpoint"]
        self.api.delete(sandbox.id)
        self.server.wait_for(lambda: [one["id"] for one in self.listed(sandbox)] == [named], 60, "the automatic ones to go with their sandbox")
        self.api.ok("DELETE", f"/v1/checkpoints/{named}")

    def test_kill_9_of_node_at_many_moments(self):
        with self.api.create() as sandbox:
            for round in range(7):
                sandbox.output(f"echo {round} > ~/round{round}; sync")
                id = self.api.ok("POST", f"{sandbox.path}/snapshot", {})["operation"]["id"]
                time.sleep(0.05 * round)
                self.server.kill_role("node")
                self.server.wait_for(lambda: self.api.ok("GET", f"/v1/operations/{id}")["state"] not in ("pending", "running"), 60, "the end of the operation")
                self.assertEqual(sandbox.get()["state"], "running")
                found = sandbox.output("sync; echo 3 > /proc/sys/vm/drop_caches; cat /home/user/round*", user="root").split()
                self.assertEqual(found, [str(n) for n in range(round + 1)])
            self.succeed(sandbox, "stop")
            self.succeed(sandbox, "start")
            self.assertEqual(sandbox.output("cat ~/round*").split(), [str(n) for n in range(7)])
            done = self.cli("--json", "store", "verify", "--data-dir", str(self.server.data_dir))
            self.assertEqual(json.loads(done.stdout)["faults"], [])
            for one in self.listed(sandbox):
                self.api.ok("DELETE", f"/v1/checkpoints/{one['id']}")


class Limits(ServerTest):
    # The quota for one tenant goes before that for all of them.
    options = {"pool_ready": 0, "pool_spawned": 0, "storage_quota_mib": 1, "storage_quota_for": "default=40", "keep_checkpoints": 2}

    def test_a_quota_refuses_by_name_and_old_checkpoints_go_by_themselves(self):
        with self.api.create() as sandbox:
            taken = [sandbox.change("snapshot")["checkpoint"] for _ in range(4)]
            named = sandbox.change("snapshot", {"name": "kept"})["checkpoint"]
            left = lambda: {one["id"] for one in self.api.ok("GET", f"/v1/checkpoints?sandbox={sandbox.id}")["checkpoints"]}  # noqa: E731
            self.server.wait_for(lambda: left() == {*taken[2:], named}, 60, "the oldest to go")
            sandbox.output("head -c 60000000 /dev/urandom > ~/big; sync")
            folder = self.server.data_dir / "node"
            disks = lambda: sorted(path.name for path in (folder / "sandboxes" / sandbox.id).iterdir())  # noqa: E731
            blobs = lambda: sorted(path.name for path in (folder / "store" / "tenants" / "default" / "blobs").iterdir())  # noqa: E731
            before = disks(), blobs()
            for verb in ("snapshot", "checkpoint"):
                operation = sandbox.change(verb)
                self.assertEqual((operation["state"], operation["error"]["code"]), ("failed", "storage_quota"), verb)
                self.assertIn("delete checkpoints", operation["error"]["next"])
                self.assertEqual((disks(), blobs()), before, "nothing is written for what would not fit")
                self.assertEqual(sandbox.output("echo on > ~/on; cat ~/on"), "on")
            self.assertEqual(left(), {*taken[2:], named})
            for id in left():
                self.api.ok("DELETE", f"/v1/checkpoints/{id}")


if __name__ == "__main__":
    unittest.main()
