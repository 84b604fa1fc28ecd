"""Runs one test file and prints one JSON line with what happened. Started by tests/run, in a process of its own."""

import importlib
import json
import signal
import sys
import time
import unittest
from pathlib import Path


class Recorder(unittest.TextTestResult):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.passed, self.times, self.begun = 0, [], 0

    def startTest(self, test):
        super().startTest(test)
        self.begun = time.monotonic()

    def stopTest(self, test):
        super().stopTest(test)
        self.times.append([round(time.monotonic() - self.begun, 2), test.id().split(".", 1)[-1]])

    def addSuccess(self, test):
        super().addSuccess(test)
        self.passed += 1


def main():
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell that put us into the background ignores it, and programs would inherit that
    path = Path(sys.argv[1])
    sys.path.insert(0, str(path.parent))
    suite = unittest.defaultTestLoader.loadTestsFromModule(importlib.import_module(path.stem))
    if len(sys.argv) > 2:
        suite = unittest.TestSuite(test for test in flatten(suite) if any(word in test.id() for word in sys.argv[2:]))
    result = unittest.TextTestRunner(stream=sys.stderr, verbosity=2, resultclass=Recorder).run(suite)
    report = {"passed": result.passed, "failed": len(result.failures) + len(result.errors) + len(result.unexpectedSuccesses), "skipped": len(result.skipped),
              "skip_reasons": sorted({reason for _, reason in result.skipped}), "times": sorted(result.times, reverse=True)}
    print(json.dumps(report))


def flatten(suite):
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from flatten(test)
        else:
            yield test


if __name__ == "__main__":
    main()
