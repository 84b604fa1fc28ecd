"""The agents of examples/, with a scripted model in place of a real one. Started by `tests/e2b/run`, which sets E2B_*."""
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from checks import check, same

HERE = Path(__file__).resolve().parent
EXAMPLES = HERE.parents[1] / "examples"
TEST = "import unittest\nfrom mean import mean\n\nclass Mean(unittest.TestCase):\n    def test_some(self): self.assertEqual(mean([1, 3]), 2)\n    def test_none(self): self.assertEqual(mean([]), 0)\n"


def example(name, *words):
    done = subprocess.run([sys.executable, EXAMPLES / name, *map(str, words)], capture_output=True, text=True, timeout=280, env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"})
    assert done.returncode == 0, f"{name}: {done.returncode} {done.stdout[-500:]} {done.stderr[-1500:]}"
    return done


@check("examples/coding_agent.py")
def _():
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "mean.py").write_text("def mean(values):\n    return sum(values) / len(values)\n")
        Path(folder, "test_mean.py").write_text(TEST)
        git = ["git", "-C", folder, "-c", "user.name=A", "-c", "user.email=a@example.org"]
        for words in (["init", "-q", "-b", "main"], ["add", "-A"], ["commit", "-q", "-m", "first"]):
            subprocess.run([*git, *words], check=True)
        done = example("coding_agent.py", folder, "an empty list must have the mean 0", "--script", HERE / "scripts" / "coding.json")
        assert "FAILED" in done.stderr and "\nOK" in done.stderr, done.stderr
        # The patch applies to the repository that was given, and mends it there.
        subprocess.run([*git, "apply", "-"], input=done.stdout, text=True, check=True)
        same(subprocess.run([sys.executable, "-m", "unittest", "-q"], cwd=folder, capture_output=True).returncode, 0)


if "--analyst" in sys.argv:
    @check("examples/data_analyst.py")
    def _():
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "sales.csv").write_text("month,amount\nJanuary,3\nMarch,7\nJanuary,2\nMarch,1\n")
            done = example("data_analyst.py", f"{folder}/sales.csv", "which month was the best?", "--charts", f"{folder}/charts", "--script", HERE / "scripts" / "analyst.json")
            same(done.stdout, "The best month was March.\n")
            assert "KeyError" in done.stderr and "best: March" in done.stderr and "a bar chart 'Sales' was shown" in done.stderr, done.stderr
            assert Path(folder, "charts", "chart-1.png").read_bytes().startswith(b"\x89PNG")
