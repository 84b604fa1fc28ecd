"""The power goes in the middle of an operation: what a disk holds then is started from, verifies, and has all that was reported as done.

The server's data lie in a file system of their own in an image. A cut is a copy of that image at some change of a file: only what had
been synced is in it, since the file system writes nothing else by itself (commit=300), and its journal is replayed when the copy is
mounted. One cut in each operation and one between two; SPACE_TEST_CUTS=60 makes more, 4 so few, SPACE_TEST_SEED=WORD chooses other moments."""

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

import disk_generations
import leaks
from api_client import Sandbox
from file_events import FileEvents, of_data
from space_server import BINARY, SpaceServer

BUDGET_S = 360
SLOW = True
BESIDE = True
CUTS = os.environ.get("SPACE_TEST_CUTS")
SEED = os.environ.get("SPACE_TEST_SEED", "space")
NAMES = ("first.test", "second.test")  # the order decides about the addresses that stand for them
ADDRESS = "getent ahostsv4 {} | head -n1 | cut -d' ' -f1"


class PowerCut(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="space-cut-", dir="/var/tmp"))
        self.folder.chmod(0o755)
        self.addCleanup(shutil.rmtree, self.folder, True)
        self.image = self.folder / "image"
        subprocess.run(["truncate", "-s", "3G", self.image], check=True)
        subprocess.run(["mkfs.ext4", "-q", "-E", "lazy_itable_init=0,lazy_journal_init=0", self.image], check=True)
        # What may be found, by kind and id: all that may be while something is under way, one thing when its end was reported.
        self.facts, self.cuts = {}, []
        # Of each operation: how many changes it makes, and those at which it is cut; None in the first round, which only counts.
        self.counts, self.moments = {}, None

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

    def during(self, name, call):
        """Runs `call`, with cuts at the chosen moments."""
        counted = self.counts.get(name)
        moments = (self.moments or {}).get(name, ())
        with FileEvents(of_data(self.server), {at: lambda at=at: self.cut(f"{name}, change {at} of {counted}") for at in moments}) as events:
            result = call()
            self.counts[name] = events.count
        return result

    def choose(self):
        """Moments out of those that a first round counted; no operation is cut a second time before each was cut once."""
        names, self.moments = list(self.counts), {}
        self.choice.shuffle(names)
        for number in range(int(CUTS) - 1 if CUTS else len(names)):
            name = names[number % len(names)]
            self.moments.setdefault(name, set()).add(self.choice.randint(1, max(1, self.counts[name])))

    def fact(self, kind, id, *values):
        self.facts[kind, id] = values

    def done(self, name, call):
        """An operation that must succeed."""
        operation = self.during(name, call)
        self.assertEqual(operation["state"], "succeeded", operation)
        return operation

    def one_round(self):
        """A life: what was reported is noted as a fact. An operation that was recorded is gone on with after a cut, so what may come back to
        life in it may also run."""
        api, fact = self.server.api, self.fact
        sandbox = self.during("create", api.create)
        fact("sandbox", sandbox.id, "ended")  # it ran, and its VM is gone with the power
        if self.moments is not None:
            self.cut("created")
        sandbox.output("echo disk > ~/word; sync; echo memory > /dev/shm/word")
        self.network(sandbox)
        first = self.done("checkpoint", lambda: sandbox.change("checkpoint"))["checkpoint"]
        fact("checkpoint", first, "there")
        operation = self.done("fork", lambda: sandbox.change("fork"))
        forked, child = operation["checkpoint"], Sandbox(api, operation["children"][0])
        fact("checkpoint", forked, "there")
        fact("sandbox", child.id, "ended")
        fact("sandbox", sandbox.id, "ended", "suspended")
        self.done("suspend", lambda: sandbox.change("suspend"))
        fact("sandbox", sandbox.id, "suspended")
        fact("sandbox", child.id, "ended", "gone")
        self.during("delete", lambda: api.delete(child.id))
        fact("sandbox", child.id, "gone")
        fact("checkpoint", first, "there", "gone")
        self.during("checkpoint delete", lambda: api.ok("DELETE", f"/v1/checkpoints/{first}"))
        fact("checkpoint", first, "gone")
        fact("sandbox", sandbox.id, "suspended", "ended", "running")
        self.done("wake", lambda: sandbox.change("wake"))
        fact("sandbox", sandbox.id, "ended")
        snapshot = self.points_of_the_disk(sandbox)
        label, limit = f"of {sandbox.id}", 7200
        fact("settings", sandbox.id, (None, None), (label, limit))
        body = {"metadata": {"round": label}, "time_limit_s": limit, "env": {"ROUND": label}}
        self.done("update", lambda: api.ok("PATCH", sandbox.path, body, {"Prefer": "wait=60"})["operation"])
        fact("settings", sandbox.id, (label, limit))
        for name, point in (("restore disk", snapshot), ("restore", forked)):
            fact("sandbox", sandbox.id, "ended", "running")
            self.done(name, lambda point=point: sandbox.change("restore", {"checkpoint": point}))
            fact("sandbox", sandbox.id, "ended")
        fact("sandbox", sandbox.id, "ended", "stopped")
        self.done("stop", lambda: sandbox.change("stop"))
        fact("sandbox", sandbox.id, "stopped")
        fact("sandbox", sandbox.id, "stopped", "ended", "running")
        self.done("start", lambda: sandbox.change("start"))
        fact("sandbox", sandbox.id, "ended", "stopped")
        self.assertEqual(sandbox.change("stop")["state"], "succeeded")
        fact("sandbox", sandbox.id, "stopped")

    def network(self, sandbox):
        """What the gateway keeps: a policy, the names that a guest was told addresses of, a credential."""
        api, fact = self.server.api, self.fact
        policy = {"policy": {"mode": "allowlist", "rules": [{"name": name} for name in NAMES]}}
        fact("policy", sandbox.id, (), NAMES)
        self.during("policy", lambda: api.ok("PUT", f"{sandbox.path}/egress", policy))
        fact("policy", sandbox.id, NAMES)

        def ask():
            for name in NAMES:
                self.server.wait_for(lambda: sandbox.output(ADDRESS.format(name)), 20, f"an address for {name}")

        self.during("names", ask)
        sandbox.output(ADDRESS.format(NAMES[-1]) + " > /dev/shm/address")
        secret, version = f"a secret of {sandbox.id}".encode(), self.facts.get(("credential", "kept"), (None,))[-1]
        fact("credential", "kept", version, (version or 0) + 1)
        self.during("credential", lambda: api.ok("PUT", "/v1/credentials/kept", secret, {"Content-Type": "application/octet-stream"}))
        fact("credential", "kept", (version or 0) + 1)

    def points_of_the_disk(self, sandbox):
        """A snapshot, and as many more as begin a merge; the first one's id."""
        snapshot = self.done("snapshot", lambda: sandbox.change("snapshot"))["checkpoint"]
        self.fact("checkpoint", snapshot, "there")
        for id in disk_generations.fill(self.server, sandbox):
            self.fact("checkpoint", id, "there")

        def one_too_many():
            operation = sandbox.change("snapshot")
            self.assertEqual(operation["state"], "succeeded", operation)
            self.fact("checkpoint", operation["checkpoint"], "there")
            disk_generations.merged(self.server, sandbox)

        self.during("merge", one_too_many)
        return snapshot

    def found(self, server, facts):
        """What there is of what the facts are about."""
        api = server.api
        sandboxes = {one["id"]: one for one in api.sandboxes()}
        checkpoints = {one["id"] for one in api.ok("GET", "/v1/checkpoints")["checkpoints"]}
        listed = server.wait_for(lambda: (now := api.call("GET", "/v1/credentials")).status == 200 and now.json, 30, "the gateway")
        versions = {one["name"]: one["version"] for one in listed["credentials"]}

        def policy(id):
            """As the store and the gateway have it, when they agree."""
            egress = server.wait_for(lambda: (now := api.ok("GET", f"/v1/sandboxes/{id}/egress"))["applied"] and now, 40, "the gateway to know the policy")
            return tuple(rule["name"] for rule in egress["policy"].get("rules", []))

        look = {
            "sandbox": lambda id: sandboxes[id]["state"] if id in sandboxes else "gone",
            "checkpoint": lambda id: "there" if id in checkpoints else "gone",
            "settings": lambda id: (sandboxes[id].get("metadata", {}).get("round"), sandboxes[id].get("time_limit_s")),
            "policy": policy,
            "credential": versions.get,
        }
        return {(kind, id): look[kind](id) for kind, id in facts}

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
            lost = {id for (kind, id), fact in facts.items() if kind == "sandbox" and "ended" in fact and "running" not in fact}
            server.wait_for(lambda: not running() & lost, 30, "the end of what had lost its VM")
            for about, found in self.found(server, facts).items():
                self.assertIn(found, facts[about], about)
            states = {one["id"]: one["state"] for one in api.sandboxes()}
            checkpoints = {one["id"]: one["kind"] for one in api.ok("GET", "/v1/checkpoints")["checkpoints"]}
            self.assertLessEqual(set(states.values()), {"ended", "suspended", "stopped", "failed", "running"})
            for id, state in states.items():
                one = Sandbox(api, id)
                if state == "suspended":
                    woken = one.change("wake")
                    if woken["state"] != "succeeded" and "ended" in facts[("sandbox", id)]:
                        # The cut came in its wake, behind the record: that its new VM is gone is found out beside everything else.
                        self.assertEqual(woken["error"]["code"], "sandbox_ended")
                        state = server.wait_for(lambda: one.get()["state"] == "ended" and "ended", 10, "its end")
                if state == "suspended":
                    self.assertEqual(woken["state"], "succeeded", woken)
                    self.assertEqual(one.output("cat ~/word /dev/shm/word").split(), ["disk", "memory"])
                    # Where the map of names were lost, this name would be given the address of another.
                    address = server.wait_for(lambda: one.output(ADDRESS.format(NAMES[-1])), 20, "the network of one that was woken")
                    self.assertEqual(address, one.output("cat /dev/shm/address"))
                elif state in ("ended", "stopped") and ("sandbox", id) in facts and start:
                    self.assertEqual(one.change("start")["state"], "succeeded")
                    self.assertEqual(one.output("cat ~/word || true"), "" if created and ("sandbox", id) == list(facts)[-1] else "disk")
            if any(state in ("ended", "stopped") for state in states.values()) and start and not created:
                for kind, words in (("checkpoint", ["disk", "memory"]), ("file_snapshot", ["disk"])):
                    for id in [id for id, one in checkpoints.items() if one == kind][:1]:
                        child = api.create(checkpoint=id)
                        self.assertEqual(child.output("cat ~/word /dev/shm/word 2>/dev/null || true").split(), words)
            for id in checkpoints:
                api.call("DELETE", f"/v1/checkpoints/{id}")
            # A policy, a list of names, a credential or a key that cannot be read is told in the log and nowhere else.
            self.assertNotIn("egress.bad_", server.log.read_text(errors="replace"))
        except Exception:
            print(server.log_tail(80), file=sys.stderr)  # it goes with the copy
            raise
        finally:
            server.close()
            subprocess.run(["umount", "-l", place], check=True)

    def test_whatever_was_reported_is_there_and_the_store_is_whole(self):
        self.choice = random.Random(SEED)
        (self.mounted(self.image) / "server").mkdir()
        self.server = SpaceServer(folder=self.folder / "of-image" / "server", pool_ready=0, pool_spawned=0).start()
        try:
            self.one_round()
            self.choose()
            self.one_round()
        finally:
            self.server.close()
        # The second round may make a few changes less than the first, so that not every moment comes.
        wanted = 1 + sum(len(moments) for moments in self.moments.values())
        print(f"{len(self.cuts)} cuts of {wanted}; SPACE_TEST_SEED={SEED}", file=sys.stderr, flush=True)
        self.assertGreaterEqual(len(self.cuts), wanted * 3 // 4)
        self.choice.shuffle(self.cuts)
        self.cuts.sort(key=lambda cut: cut[1] != "created")  # that one first: its sandbox is started
        for number, (copy, when, facts) in enumerate(self.cuts):
            with self.subTest(when=when, seed=SEED):
                self.check(copy, facts, when == "created", number % 4 == 0)
            copy.unlink()


if __name__ == "__main__":
    unittest.main()
