"""The gateway under a partial allowlist: the attacks of tests/system/test_egress_attacks.py, which have an internet of their own (servers, an
authority for names, an attacker's host). One test is one attack; its name holds the catalogue's ids, `test_controls` is the control."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

from framework import REGISTRY, Attack

SYSTEM = Path(__file__).resolve().parents[2] / "system"
FILE = SYSTEM / "test_egress_attacks.py"

def tests_by_id():
    found = {}
    for name in re.findall(r"def (test_\w+)\(", FILE.read_text()):
        for id in re.findall(r"_([b-e]\d\d)(?=_)", name):
            found.setdefault(id.upper(), []).append(name)
    return found


OUTCOMES = {}
REACHED = ("server was reached", "host was reached", "policy was resolved", "secret")


def run_all():
    """Once a run: name of the test → "" when it passed, else what it said."""
    if not OUTCOMES:
        OUTCOMES["setUp"] = "error: it was not over in time"  # unless it is, below
        program = ("import json, sys, unittest\nsys.path.insert(0, sys.argv[1])\nimport test_egress_attacks as m\n"
                   "class R(unittest.TextTestResult):\n"
                   "  def addSuccess(self, test): seen[test._testMethodName] = ''\n"
                   "  def addFailure(self, test, err): seen[test._testMethodName] = 'failed: ' + str(err[1])[-300:]\n"
                   "  def addError(self, test, err): seen[getattr(test, '_testMethodName', 'setUp')] = 'error: ' + str(err[1])[-300:]\n"
                   "seen = {}\nunittest.TextTestRunner(stream=sys.stderr, resultclass=R).run(unittest.defaultTestLoader.loadTestsFromModule(m))\nprint(json.dumps(seen))")
        done = subprocess.run([sys.executable, "-c", program, SYSTEM], capture_output=True, text=True, env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"})
        OUTCOMES["setUp"] = "error: " + done.stderr[-300:]
        OUTCOMES.update(json.loads(done.stdout.splitlines()[-1]) if done.stdout.strip() else {})
    return OUTCOMES


def judge(id, names):
    def gateway(t):
        outcomes = run_all()
        t.control("the same tools reach what is allowed", outcomes.get("test_controls") == "", outcomes.get("test_controls", outcomes.get("setUp", "")))
        for name in names:
            outcome = outcomes.get(name, outcomes["setUp"])
            # A test that failed for another reason than its oracle's word proves nothing either way.
            if outcome and not any(word in outcome for word in REACHED):
                raise AssertionError(f"{name}: {outcome}")
            t.attempt(name, outcome != "", outcome)
    gateway.__doc__ = f"{', '.join(names)} of {FILE.name}"[:90]
    return gateway


if FILE.exists():
    for id, names in tests_by_id().items():
        REGISTRY.append(Attack((id,), judge(id, names), ("blocked", "partial", "open"), 420, False))
