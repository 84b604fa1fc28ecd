"""The attacks of groups A to E of tests/adversarial, each a test: run inside a VM, judged by what the fake internet, the host's canaries and
the audit log have seen, each beside controls in which the same tool reaches what is allowed. The same code as `space redteam`."""

import os
import sys
import unittest

from space_server import ROOT

BUDGET_S = 420
SLOW = True
sys.path.insert(0, str(ROOT / "tests" / "adversarial"))

import redteam  # noqa: E402
from framework import REGISTRY, Trial  # noqa: E402

redteam.load_attacks()


class Attacks(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        from world import World
        cls.world = World()
        cls.addClassCleanup(cls.world.__exit__)
        cls.world.__enter__()

    def run_attack(self, attack):
        trial = Trial(attack, self.world, attack.conditions[0])
        redteam.limited(attack.seconds, trial.run)
        if os.environ.get("SPACE_REDTEAM_TRACE") and trial.error:
            print(getattr(trial, "trace", trial.error), file=sys.stderr)
        wrong = [f"{what}: {detail}" for what, reached, detail in trial.attempts if reached] + [f"control: {what}: {detail}" for what, tripped, detail in trial.controls if not tripped]
        self.assertEqual(trial.verdict, "not applicable" if attack.evidence else "blocked", "\n  ".join([trial.error or "", *wrong[:12]]))


def test_of(attack):
    return lambda self: self.run_attack(attack)


for one in REGISTRY:
    if one.ids[0][0] in "ABCDE":
        test = test_of(one)
        test.__doc__ = one.doc
        setattr(Attacks, f"test_{'_'.join(one.ids).lower()}_{one.function.__name__}", test)


if __name__ == "__main__":
    unittest.main()
