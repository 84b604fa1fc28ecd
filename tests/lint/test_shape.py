"""How long files are. Headers of about 100 lines and sources of about 300 are the aim; 600 means that two ideas live together."""

import re
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LONGEST = {".h": 300, ".cc": 600, ".py": 600}
AIM = {".h": 100, ".cc": 300, ".py": 300}


def lengths():
    for folder in ("src", "tests", "examples", "bench"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in LONGEST:
                yield path.relative_to(ROOT), path.suffix, len(path.read_text(encoding="utf-8").splitlines())


class FileLengths(unittest.TestCase):
    def test_no_file_holds_two_ideas(self):
        self.assertEqual([f"{path}: {lines} lines" for path, suffix, lines in lengths() if lines > LONGEST[suffix]], [])


class Traps(unittest.TestCase):
    def test_no_await_in_a_conditional_expression(self):
        # GCC 12 destroys the result twice.
        trap = re.compile(r"[?:]\s+co_await\b")
        wrong = []
        for path in sorted((ROOT / "src").rglob("*.cc")) + sorted((ROOT / "src").rglob("*.h")):
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
                if trap.search(line.split("//")[0]) and "case " not in line and "for (" not in line:
                    wrong.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()}")
        self.assertEqual(wrong, [])

    def test_no_closure_with_captures_made_inside_an_await(self):
        # GCC 12 destroys what such a closure captured twice. Capture by reference or name the closure first; `this` is harmless.
        trap = re.compile(r"co_await\b.*[(,]\s*\[(?!\]|&|this\])")
        wrong = []
        for path in sorted((ROOT / "src").rglob("*.cc")) + sorted((ROOT / "src").rglob("*.h")):
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
                if trap.search(line.split("//")[0]):
                    wrong.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()}")
        self.assertEqual(wrong, [])


def report():
    """The files over the aim, longest first."""
    long = sorted(((lines, path) for path, suffix, lines in lengths() if lines > AIM[suffix]), reverse=True)
    for lines, path in long:
        print(f"{lines:6} {path}")
    print(f"{len(long)} files are longer than the aim")


if __name__ == "__main__":
    report()
