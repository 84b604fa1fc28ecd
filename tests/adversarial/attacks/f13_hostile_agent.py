"""The agent in the guest is replaced by a program that lies in every answer (guest/hostile_agent.py)."""

import re
import threading
import time
from pathlib import Path

from framework import attack

GUEST = Path(__file__).resolve().parents[1] / "guest" / "hostile_agent.py"
MODES = re.findall(r'^    "(\w+)":', GUEST.read_text(), re.MULTILINE) + ["endless"]


def ask(box, mode, answers, limit=45):
    begun = time.monotonic()
    try:
        answer = box.api.call("GET", box.files("list", f"/mode-{mode}"), timeout=limit)
        answers[mode] = (answer.status, answer.body[:4096], dict(answer.headers), len(answer.body), time.monotonic() - begun)
    except Exception as error:
        answers[mode] = (0, repr(error).encode(), {}, 0, time.monotonic() - begun)


@attack("F13", "F15", "F16", "F20", seconds=100)
def liar(t):
    """Lengths, types, ids, names, headers and framing that lie, from the agent's own port"""
    box = t.world.fresh()
    try:
        t.control("the true agent answers", box.api.call("GET", box.files("list", "/etc")).status == 200)
        box.write("/tmp/hostile.py", GUEST.read_bytes(), user="root")
        box.start(["sh", "-c", "exec setsid python3 /tmp/hostile.py >/dev/null 2>&1"], user="root").in_background()
        answers = {}
        for _ in range(15):
            time.sleep(1)
            ask(box, "polite", answers, 10)
            if b"HOSTILE" in answers["polite"][1]:
                break
        t.control("the false agent answers in its place", b"HOSTILE" in answers["polite"][1], answers["polite"][:2])
        before = t.world.memory_mib("node")
        threads = [threading.Thread(target=ask, args=(box, mode, answers)) for mode in MODES]
        for thread in threads:
            thread.start()
        peak = before
        while any(thread.is_alive() for thread in threads):
            peak = max(peak, t.world.memory_mib("node"), t.world.memory_mib("api"))
            time.sleep(0.5)
        t.figure("node MiB before, most", f"{before}, {peak}")
        t.attempt("node or api take memory by the guest's word", peak - before > 100, f"{before} to {peak} MiB")
        for mode in MODES:
            status, body, headers, length, seconds = answers[mode]
            t.attempt(f"{mode}: no answer in time", status == 0 or seconds > 40, f"{status} {body[:80]} after {seconds:.0f} s")
            t.attempt(f"{mode}: the guest's headers reach the client", "Set-Cookie" in headers or "../" in headers.get("Content-Disposition", ""), headers)
            t.attempt(f"{mode}: more than a list may have", length > 64 << 20, length)
            t.search(body)
        t.note("answers: " + ", ".join(f"{mode} {answers[mode][0]}" for mode in MODES))
        t.attempt("the sandbox cannot be deleted", box.api.call("DELETE", box.path, headers={"Prefer": "wait=60"}).status != 200)
    finally:
        t.world.drop(box)
