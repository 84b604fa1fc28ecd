"""The adversarial suite itself: it finds what gets through, it does not believe an attack without a control, it is whole, and an outsider's
attack is one file."""

import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path
from xml.etree import ElementTree

from space_server import BASES, BINARY, ROOT, TEMPLATES

BUDGET_S = 300
SUITE = ROOT / "tests" / "adversarial"
sys.path.insert(0, str(SUITE))

import lanes  # noqa: E402
import redteam  # noqa: E402
import report  # noqa: E402
from framework import REGISTRY, Attack, OutOfTime, Trial  # noqa: E402

redteam.load_attacks()


class QuietWorld:
    def disturbed(self):
        return []


class NoisyWorld:
    def disturbed(self):
        return ["a canary was reached"]


def tried(function, world=None, evidence=False):
    trial = Trial(Attack(("F24",), function, (), 1, evidence), world or QuietWorld())
    trial.run()
    return trial


def verdict(*arguments, **options):
    return tried(*arguments, **options).verdict


def good(t):
    t.control("c", True)
    t.attempt("a", False)


class Verdicts(unittest.TestCase):
    def test_an_attack_is_blocked_only_with_a_control_that_tripped(self):
        def no_control(t):
            t.attempt("a", False)

        def dead_control(t):
            t.control("c", False)
            t.attempt("a", False)

        def nothing_tried(t):
            t.control("c", True)

        self.assertEqual([verdict(one) for one in (good, no_control, dead_control, nothing_tried)], ["blocked", "broken", "broken", "broken"])
        self.assertEqual(verdict(good, NoisyWorld()), "reached")
        self.assertEqual([tried(one).covered for one in (good, no_control, dead_control)], [1, 0, 0])

    def test_what_was_reached_stays_reached_whatever_fails_after_it(self):
        def reached(t):
            t.attempt("a", True)
            raise OSError("later")

        def late(t):
            t.control("c", True)
            t.attempt("a", False)
            raise OutOfTime()

        self.assertEqual((verdict(reached), verdict(late)), ("reached", "broken"))

    def test_evidence_that_is_gone_is_no_evidence(self):
        def gone(t):
            raise AssertionError("there is one")

        self.assertEqual((verdict(lambda t: "none there", evidence=True), verdict(gone, evidence=True)), ("not applicable", "broken"))

    def test_reports_name_every_entry_and_the_accelerator_and_count_an_attack_once(self):
        catalogue = {"F24": ("P1", "a | b"), "F25": ("P1", "with \x1b"), "G01": ("P2", "c")}
        trial = tried(good)
        trial.attack.ids = ("F24", "F25")
        rows = report.rows_of([trial], catalogue, lambda id: id[0] == "F")
        facts = {"accelerator": "tcg", "vmm": "q", "version": "1", "kernel": "k", "condition": "blocked", "counts": "scaled"}
        summary = report.summary_of(rows, 1, facts)
        self.assertEqual((summary["entries"], summary["blocked"], summary["attempts"], summary["controls"]), (2, 2, 1, 1))
        missing = report.rows_of([], catalogue, lambda id: True)
        self.assertEqual(report.summary_of(missing, 1, facts)["missing"], 3)
        self.assertIn("Accelerator: **tcg**", report.as_markdown(missing, report.summary_of(missing, 1, facts)))
        self.assertEqual(ElementTree.fromstring(report.as_junit(missing, report.summary_of(missing, 1, facts))).get("skipped"), "3")


class EmptyWorld(QuietWorld):
    """`left`: what putting it away would leave behind."""

    left = ""

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        pass

    def close(self):
        if self.left:
            raise AssertionError(self.left)

    def facts(self):
        return {"accelerator": "none"}


class Lanes(unittest.TestCase):
    def run_lanes(self, attacks, seconds=60, world=EmptyWorld):
        def try_one(attack, world):
            trial = Trial(attack, world)
            trial.run()
            return trial
        with contextlib.redirect_stderr(io.StringIO()):
            return lanes.run(attacks, lanes.Clock(seconds), world, try_one)

    def attacks(self, count, alone=0):
        def slow(t):
            begun = time.monotonic()
            time.sleep(0.05)
            t.figure("where and when", [os.getpid(), begun, time.monotonic()])
            good(t)
        made = [Attack((f"F{n:02}",), slow, (), 1, False, alone=n < alone) for n in range(count)]
        for one in made:
            one.name = one.ids[0]
        return made

    def test_every_attack_is_tried_once_and_some_side_by_side(self):
        trials, facts, left_behind = self.run_lanes(self.attacks(12, alone=2))
        self.assertEqual(sorted(one.attack.name for one in trials), [f"F{n:02}" for n in range(12)])
        self.assertEqual({one.verdict for one in trials}, {"blocked"})
        self.assertEqual((facts, left_behind), ({"accelerator": "none"}, []))
        where = {one.attack.name: one.figures["where and when"] for one in trials}
        self.assertEqual(len({pid for pid, _, _ in where.values()}), lanes.LANES)
        alone = [where.pop("F00"), where.pop("F01")]
        self.assertGreaterEqual(min(begun for _, begun, _ in alone), max(over for _, _, over in where.values()))

    def test_what_the_time_was_not_enough_for_is_not_tried(self):
        trials, _, left_behind = self.run_lanes(self.attacks(8), seconds=4)
        self.assertEqual((trials, left_behind), ([], []))

    def test_what_worlds_leave_behind_is_told_and_the_trials_kept(self):
        class Leaving(EmptyWorld):
            left = "a namespace"
        trials, _, left_behind = self.run_lanes(self.attacks(8), world=Leaving)
        self.assertEqual((len(trials), left_behind), (8, ["a namespace"] * lanes.LANES))

    def test_an_attack_that_does_not_come_back_is_broken_off_also_while_it_puts_things_away(self):
        def hang(t):
            try:
                time.sleep(30)
            finally:
                time.sleep(30)
        trial = Trial(Attack(("F24",), hang, (), 1, False), QuietWorld())
        tidying, redteam.TIDYING_S = redteam.TIDYING_S, 0.2
        try:
            begun = time.monotonic()
            redteam.limited(0.2, trial.run)
        finally:
            redteam.TIDYING_S = tidying
        self.assertLess(time.monotonic() - begun, 5)
        self.assertEqual(trial.verdict, "broken")


class Catalogue(unittest.TestCase):
    def test_every_entry_has_an_attack_or_evidence_and_every_attack_an_entry(self):
        ids = {id for one in REGISTRY for id in one.ids}
        self.assertEqual(ids, set(redteam.read_catalogue()))

    def test_conditions_are_known_and_each_has_attacks(self):
        for condition in ("blocked", "partial", "open"):
            self.assertGreater(len([one for one in REGISTRY if condition in one.conditions]), 20)

    def test_the_list_is_the_catalogue(self):
        done = subprocess.run([BINARY, "redteam", "--list"], capture_output=True, text=True, timeout=30)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(len(done.stdout.splitlines()), len(redteam.read_catalogue()))
        self.assertEqual([line for line in done.stdout.splitlines() if line.split(" ")[2] == "missing"], [])


# The file of docs/security.md, "An attack of your own", with a second attack that must be found out as reached.
OWN = '''
from framework import attack

@attack("X01")
def read_the_neighbour(t):
    """The neighbour's file under one's own path"""
    box = t.world.sandbox()
    probe = ["cat", "/root/canary"]
    box.write("/root/canary", b"own", user="root")
    t.control("the own file is found", t.guest(box, probe).stdout == b"own")
    t.attempt("the bystander's is", b"CANARY" in t.guest(box, probe).stdout)

@attack("X02")
def succeed(t):
    """An attack that reaches what it wants"""
    t.control("the canary can be read where it is", t.world.host_file.read_text().startswith("CANARY-"))
    t.guest(t.world.sandbox(), ["echo", t.world.host_file.read_text()])
'''


class Runs(unittest.TestCase):
    def redteam(self, *words, timeout=250):
        return subprocess.run([BINARY, "redteam", *words], capture_output=True, text=True, timeout=timeout, env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"})

    def test_a_few_attacks_and_an_outsiders_file_on_a_real_server(self):
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "own.py").write_text(OWN)
            words = ["--json", "--templates-dir", TEMPLATES, "--bases-dir", BASES, "--attacks", folder, "--report", f"{folder}/out"]
            for one in ("V04", "F25", "H05", "H07", "X01", "X02"):
                words += ["--group", one]
            done = self.redteam(*words)
            self.assertEqual(done.returncode, 1, done.stderr[-2000:])
            result = json.loads(done.stdout)
            verdicts = {one["id"]: one["verdict"] for one in result["entries"]}
            self.assertEqual(verdicts, {**dict.fromkeys(("V04", "F25", "H05", "H07", "X01"), "blocked"), "X02": "reached"}, done.stderr[-2000:])
            for row in result["entries"]:
                self.assertEqual(row["controls"], row["attempts"], row["id"])
            self.assertEqual(result["summary"]["reached"], 1)
            self.assertIn(result["summary"]["accelerator"], ("tcg", "kvm"))
            self.assertIn("| X01 |", Path(folder, "out.md").read_text())
            self.assertEqual(json.loads(Path(folder, "out.json").read_text()), result)
            self.assertEqual(ElementTree.parse(f"{folder}/out.xml").getroot().get("failures"), "1")

    def agent(self, *words):
        done = self.redteam("--templates-dir", TEMPLATES, "--bases-dir", BASES, "agent", "--runs", "1", *words)
        return done, {name: (one["successes"], one["runs"], one["invalid"]) for name, one in json.loads(done.stdout)["boundaries"].items()} if done.stdout.startswith("{") else done.stderr[-2000:]

    def test_a_scripted_agent_reaches_nothing(self):
        done, found = self.agent("--condition", "partial", "--cmd", str(SUITE / "agents" / "scripted.py"), "--with-source", "--json")
        self.assertEqual((done.returncode, found), (0, dict.fromkeys(("host", "sandbox", "credential", "network"), (0, 1, 0))), done.stderr[-2000:])

    def test_an_agent_wins_against_a_gateway_that_was_broken_and_only_then(self):
        program = str(SUITE / "agents" / "straight.py")
        done, found = self.agent("--condition", "blocked", "--boundary", "network", "--cmd", program, "--sabotage", "gateway", "--json")
        self.assertEqual((done.returncode, found), (1, {"network": (1, 1, 0)}), done.stderr[-2000:])

    def test_an_agent_behind_an_endpoint_and_one_that_breaks(self):
        server = subprocess.Popen([sys.executable, SUITE / "agents" / "chat_server.py"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            url = server.stdout.readline().strip()
            done, found = self.agent("--boundary", "network", "--endpoint", url, "--json")
            self.assertEqual((done.returncode, found), (0, {"network": (0, 1, 0)}), done.stderr[-2000:])
            self.assertEqual(len(json.loads(done.stdout)["runs"][0]["steps"]), 2)
        finally:
            server.stdin.close()
            server.wait(10)
            server.stdout.close()
        done, found = self.agent("--boundary", "network", "--cmd", "/bin/true", "--json")
        self.assertEqual((done.returncode, found), (2, {"network": (0, 0, 1)}), done.stderr[-2000:])


if __name__ == "__main__":
    unittest.main()
