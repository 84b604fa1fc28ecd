"""The power goes in the middle of an operation: what a disk holds then is started from, verifies, and has all that was reported as done.

The server's data lie in a file system of their own in an image. A cut is a copy of that image at some change of a file: only what had
been synced is in it, since the file system writes nothing else by itself (commit=300), and its journal is replayed when the copy is
mounted. Four cuts, always the same ones; SPACE_TEST_CUTS=40 makes more, SPACE_TEST_SEED chooses others."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import leaks
from api_client import Sandbox
from file_events import FileEvents
from space_server import BINARY, SpaceServer

BUDGET_S = 240
SLOW = True
CUTS = int(os.environ.get("SPACE_TEST_CUTS", "4"))
SEED = os.environ.get("SPACE_TEST_SEED", "space")


class PowerCut(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="space-cut-", dir="/var/tmp"))
        self.folder.chmod(0o755)
        self.addCleanup(shutil.rmtree, self.folder, True)
        self.image = self.folder / "image"
        subprocess.run(["truncate", "-s", "3G", self.image], check=True)
        subprocess.run(["mkfs.ext4", "-q", "-E", "lazy_itable_init=0,lazy_journal_init=0", self.image], check=True)
        self.facts, self.cuts = {}, []

    def mounted(self, image):
        place = self.folder / f"of-{image.name}"
        place.mkdir()
        subprocess.run(["mount", "-o", "loop,commit=300", image, place], check=True)
        place.chmod(0o755)
        self.addCleanup(subprocess.run, ["umount", "-l", place], stderr=subprocess.DEVNULL)
        return place

    def roles(self):
        return [self.server.process.pid, *leaks.children(self.server.process.pid)]

    def cut(self, when):
        """Copies the disk while nobody writes; the facts that were reported so far go with it."""
        pids = self.roles()
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            copy = self.folder / f"cut{len(self.cuts)}"
            subprocess.run(["cp", "--sparse=always", self.image, copy], check=True)
            self.cuts.append((copy, when, dict(self.facts)))
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGCONT)

    def during(self, name, share, call):
        """Runs `call` with cuts at random moments; how many changes there are was counted in a first round."""
        counted = self.counts.get(name)
        moments = sorted({self.choice.randint(1, counted) for _ in range(share)}) if counted else []
        with FileEvents([self.server.data_dir / "node", self.server.data_dir / "control"], {at: lambda at=at: self.cut(f"{name}, change {at} of {counted}") for at in moments}) as events:
            result = call()
            self.counts[name] = events.count
        return result

    def one_round(self, share):
        """A life: what was reported is noted as a fact."""
        api, facts = self.server.api, self.facts
        sandbox = self.during("create", share, api.create)
        facts[sandbox.id] = "ended"  # it ran, and its VM is gone with the power
        if share:
            self.cut("created")
        sandbox.output("echo disk > ~/word; sync; echo memory > /dev/shm/word")
        done = lambda operation: self.assertEqual(operation["state"], "succeeded", operation) or operation  # noqa: E731
        first = done(self.during("checkpoint", share, lambda: sandbox.change("checkpoint")))["checkpoint"]
        facts[first] = "checkpoint"
        operation = done(self.during("fork", share, lambda: sandbox.change("fork")))
        facts[operation["checkpoint"]], facts[operation["children"][0]] = "checkpoint", "ended"
        child = Sandbox(api, operation["children"][0])
        facts.pop(sandbox.id)  # from here to the answer it may be either
        done(self.during("suspend", share, lambda: sandbox.change("suspend")))
        facts[sandbox.id] = "suspended"
        facts.pop(child.id)
        self.during("delete", share, lambda: api.delete(child.id))
        facts[child.id] = "gone"
        facts.pop(first)
        self.during("checkpoint delete", share, lambda: api.ok("DELETE", f"/v1/checkpoints/{first}"))
        facts[first] = "no checkpoint"
        facts.pop(sandbox.id)
        done(self.during("wake", share, lambda: sandbox.change("wake")))
        facts[sandbox.id] = "ended"
        facts.pop(sandbox.id)
        done(self.during("restore", share, lambda: sandbox.change("restore", {"checkpoint": operation["checkpoint"]})))
        facts[sandbox.id] = "ended"
        facts.pop(sandbox.id)
        done(self.during("stop", share, lambda: sandbox.change("stop")))
        facts[sandbox.id] = "stopped"

    def check(self, copy, facts, created, start):
        place = self.mounted(copy)
        server = SpaceServer(folder=place / "server", pool_ready=0, pool_spawned=0)
        shutil.rmtree(server.run_dir, ignore_errors=True)  # gone with the power
        server.log.unlink(missing_ok=True)
        server.start()
        try:
            api = server.api
            server.wait_for(lambda: all(one["state"] not in ("pending", "running") for one in api.ok("GET", "/v1/operations?limit=100")["operations"]), 60, "the end of all operations")
            done = subprocess.run([BINARY, "--json", "store", "verify", "--data-dir", server.data_dir], capture_output=True)
            self.assertEqual((done.returncode, json.loads(done.stdout)["faults"]), (0, []), done.stderr)
            # That its VM went with the power is found out beside everything else.
            running = lambda: {one["id"] for one in api.sandboxes() if one["state"] == "running"}  # noqa: E731
            server.wait_for(lambda: not running() & {id for id, fact in facts.items() if fact == "ended"}, 30, "the end of what had lost its VM")
            states = {one["id"]: one["state"] for one in api.sandboxes()}
            checkpoints = {one["id"] for one in api.ok("GET", "/v1/checkpoints")["checkpoints"]}
            for id, fact in facts.items():
                found = ("checkpoint" if id in checkpoints else "no checkpoint") if "checkpoint" in fact else states.get(id, "gone")
                self.assertEqual(found, fact, id)
            self.assertLessEqual(set(states.values()), {"ended", "suspended", "stopped", "failed", "running"})
            for id, state in states.items():
                one = Sandbox(api, id)
                if state == "suspended":
                    self.assertEqual(one.change("wake")["state"], "succeeded")
                    self.assertEqual(one.output("cat ~/word /dev/shm/word").split(), ["disk", "memory"])
                elif state in ("ended", "stopped") and facts.get(id) and start:
                    self.assertEqual(one.change("start")["state"], "succeeded")
                    self.assertEqual(one.output("cat ~/word || true"), "" if created and id == list(facts)[-1] else "disk")
            for id in checkpoints:
                if any(state in ("ended", "stopped") for state in states.values()) and start and not created:
                    child = api.create(checkpoint=id)
                    self.assertEqual(child.output("cat ~/word /dev/shm/word").split(), ["disk", "memory"])
                    break
            for id in checkpoints:
                api.call("DELETE", f"/v1/checkpoints/{id}")
        except Exception:
            print(server.log_tail(80), file=sys.stderr)  # it goes with the copy
            raise
        finally:
            server.close()
            subprocess.run(["umount", "-l", place], check=True)

    def test_whatever_was_reported_is_there_and_the_store_is_whole(self):
        self.choice, self.counts = random.Random(SEED), {}
        (self.mounted(self.image) / "server").mkdir()
        self.server = SpaceServer(folder=self.folder / "of-image" / "server", pool_ready=0, pool_spawned=0).start()
        try:
            self.one_round(0)
            self.one_round(max(1, CUTS // 4))
        finally:
            self.server.close()
        self.choice.shuffle(self.cuts)
        self.cuts.sort(key=lambda cut: cut[1] != "created")  # that one always
        for number, (copy, when, facts) in enumerate(self.cuts[:CUTS]):
            with self.subTest(when=when, seed=SEED):
                self.check(copy, facts, when == "created", number % 4 == 0)
            copy.unlink()


if __name__ == "__main__":
    unittest.main()
