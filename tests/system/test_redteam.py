"""The adversarial suite itself: it finds what gets through, it does not believe an attack without a control, and a few of its attacks."""

import json
import subprocess
import sys
import unittest
from pathlib import Path

from space_server import BASES, BINARY, ROOT, TEMPLATES

BUDGET_S = 120
SUITE = ROOT / "tests" / "adversarial"
sys.path.insert(0, str(SUITE))

import report  # noqa: E402
from framework import Attack, OutOfTime, Trial  # noqa: E402


class QuietWorld:
    def disturbed(self):
        return []


class NoisyWorld:
    def disturbed(self):
        return ["a canary was reached"]


def verdict(function, world=None, evidence=False):
    trial = Trial(Attack(("F24",), function, (), 1, evidence), world or QuietWorld())
    trial.run()
    return trial.verdict


class Verdicts(unittest.TestCase):
    def test_an_attack_is_blocked_only_with_a_control_that_tripped(self):
        def good(t):
            t.control("c", True)
            t.attempt("a", False)

        def no_control(t):
            t.attempt("a", False)

        def dead_control(t):
            t.control("c", False)
            t.attempt("a", False)

        def nothing_tried(t):
            t.control("c", True)

        self.assertEqual([verdict(one) for one in (good, no_control, dead_control, nothing_tried)], ["blocked", "broken", "broken", "broken"])
        self.assertEqual(verdict(good, NoisyWorld()), "reached")

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

    def test_reports_name_every_entry_and_the_accelerator(self):
        rows = report.rows_of([], {"F01": ("P1", "a | b"), "G01": ("P2", "c")}, {"F"}, False)
        facts = {"accelerator": "tcg", "vmm": "q", "version": "1", "kernel": "k", "condition": "blocked", "counts": "scaled"}
        summary = report.summary_of(rows, 1, facts)
        self.assertEqual((summary["entries"], summary["missing"]), (1, 1))
        self.assertIn("Accelerator: **tcg**", report.as_markdown(rows, summary))
        self.assertIn("skipped", report.as_junit(rows, summary))


class Run(unittest.TestCase):
    def test_a_few_attacks_on_a_real_server(self):
        words = [BINARY, "redteam", "--json", "--templates-dir", TEMPLATES, "--bases-dir", BASES]
        for one in ("V04", "F25", "H05", "H07"):
            words += ["--group", one]
        done = subprocess.run(words, capture_output=True, text=True, timeout=110)
        self.assertEqual(done.returncode, 0, done.stderr[-2000:])
        result = json.loads(done.stdout)
        self.assertEqual({one["id"]: one["verdict"] for one in result["entries"]}, dict.fromkeys(("V04", "F25", "H05", "H07"), "blocked"))
        self.assertGreater(result["summary"]["controls"], 5)
        self.assertIn(result["summary"]["accelerator"], ("tcg", "kvm"))

    def test_the_catalogue_is_whole(self):
        done = subprocess.run([BINARY, "redteam", "--list"], capture_output=True, text=True, timeout=30)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(len(done.stdout.splitlines()), len([line for line in Path(SUITE / "catalogue.txt").read_text().splitlines() if line[0] != "#"]))


if __name__ == "__main__":
    unittest.main()
