"""What a suite tells: one JSON line a method, read by `tests/e2b/run`."""

import json
import re
import time

named = set()


def tell(method, verdict, note="", failure="", seconds=0.0):
    print(json.dumps({"method": method, "verdict": verdict, "note": note, "failure": failure, "seconds": seconds}), flush=True)


def check(*methods, verdict="works", note=""):
    """Runs the function below it at once and tells for each of the methods how it went."""
    def run(function):
        begun, failure = time.monotonic(), ""
        try:
            function()
        except Exception as error:  # noqa: BLE001: whatever it is, it is told
            failure = f"{type(error).__name__}: {error} (line {error.__traceback__.tb_next.tb_lineno if error.__traceback__.tb_next else 0})"
        for method in methods:
            named.add(method.split(" ")[0])
            tell(method, verdict, note, failure, time.monotonic() - begun)
    return run


def refused(method, text, call):
    """Must fail with an error of the SDK's own whose text matches."""
    begun, note, failure = time.monotonic(), "", ""
    named.add(method.split(" ")[0])
    try:
        call()
        failure = "was expected to be refused"
    except Exception as error:  # noqa: BLE001: whatever it is, it is told
        note = str(error)
        if not type(error).__module__.startswith("e2b") or not re.search(text, note):
            failure = f"{type(error).__name__}: {error}"
    tell(method, "not there", note, failure, time.monotonic() - begun)


def same(got, wanted):
    assert got == wanted, f"got {got!r}, not {wanted!r}"


def raises(kind, call, text=""):
    try:
        call()
    except kind as error:
        assert re.search(text, str(error)), str(error)
        return error
    raise AssertionError(f"no {kind.__name__} came")


def until(look, seconds=20):
    end = time.monotonic() + seconds
    while True:
        found = look()
        if found:
            return found
        assert time.monotonic() < end, f"did not happen within {seconds} s"
        time.sleep(0.2)
