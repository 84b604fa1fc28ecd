"""Programs that run in a guest while it is saved and loaded, and what shows that they went on where they stood."""

import hashlib
import time

from api_client import Command

# Counts in memory; each line is the hash of the line before it and the number, so that a lost, repeated or altered byte shows.
CHAIN = '''
import hashlib, time
link, i = "", 0
while True:
    i += 1
    link = hashlib.sha256(f"{link} {i}".encode()).hexdigest()
    print(i, link, flush=True)
    time.sleep(0.02)
'''
# Appends records to one file that stays open.
WRITER = '''
import time
out = open("/home/user/records", "a", buffering=1)
for i in range(1, 1 << 40):
    out.write(f"{i:015d}\\n")
    time.sleep(0.01)
'''
# Its count is nowhere but in its memory.
SERVER = '''
import http.server
class Counter(http.server.BaseHTTPRequestHandler):
    count = 0
    def do_GET(self):
        Counter.count += 1
        body = str(Counter.count).encode()
        self.send_response(200); self.send_header("Content-Length", str(len(body))); self.end_headers(); self.wfile.write(body)
    def log_message(self, *a): pass
http.server.ThreadingHTTPServer(("0.0.0.0", 8000), Counter).serve_forever()
'''
# An editor of one buffer on a raw terminal: shows what was typed, erases with DEL, writes the file at Ctrl-S, redraws at Ctrl-L.
EDITOR = '''
import os, sys, tty
tty.setraw(0)
buffer = ""
def show(): os.write(1, ("\\x1b[2J\\x1b[H" + buffer.replace("\\n", "\\r\\n")).encode())
show()
while True:
    for key in os.read(0, 100).decode():
        if key == "\\x13":
            open("/home/user/edited", "w").write(buffer); os.write(1, b"<saved>")
        elif key == "\\x0c": show()
        elif key == "\\x7f": buffer = buffer[:-1]; show()
        else: buffer += "\\n" if key == "\\r" else key; show()
'''
# Two kinds of timers, each against the clock that it goes by: timerfd(2) every 100 ms, and one sleep that is longer than the test's first half.
TIMERS = '''
import ctypes, os, struct, threading, time
libc = ctypes.CDLL(None, use_errno=True)
timer = libc.timerfd_create(1, 0)
libc.timerfd_settime(timer, 0, struct.pack("4q", 0, 100_000_000, 0, 100_000_000), None)
begun = time.monotonic()
def sleep():
    time.sleep(SLEEP)
    print("slept", time.monotonic() - begun, flush=True)
threading.Thread(target=sleep, daemon=True).start()
ticks = 0
while True:
    ticks += struct.unpack("q", os.read(timer, 8))[0]
    print("ticks", ticks, time.monotonic() - begun, flush=True)
'''
HOOK = '#!/bin/sh\necho "$SPACE_LOADS $SPACE_EPOCH $SPACE_SANDBOX_ID" >> /run/hook\n'


class Programs:
    """All of them, started in one sandbox."""

    def __init__(self, sandbox, sleep=6):
        self.sandbox = sandbox
        for name, text in (("chain", CHAIN), ("writer", WRITER), ("server", SERVER), ("editor", EDITOR), ("timers", TIMERS.replace("SLEEP", str(sleep)))):
            sandbox.write(f"/home/user/{name}.py", text.encode())
        sandbox.write("/home/user/hook", HOOK.encode())
        sandbox.output("sudo install -D -o root -m 755 ~/hook /etc/space/load.d/10-note")
        start = lambda name, **options: sandbox.start(["python3", f"/home/user/{name}.py"], **options)  # noqa: E731
        self.chain, self.writer, self.server, self.timers = start("chain"), start("writer"), start("server"), start("timers")
        self.editor = start("editor", pty={"rows": 24, "cols": 80}, stdin=True)
        self.repl = sandbox.start(["python3", "-i", "-q", "-u"], stdin=True)
        self.all = {name: getattr(self, name) for name in ("chain", "writer", "server", "timers", "editor", "repl")}

    def of(self, child):
        """The same programs in a fork, by the sessions that it lists them under."""
        listed = [one for one in child.api.ok("GET", f"{child.path}/commands")["commands"] if one["state"] == "running"]
        found = {}
        for name, command in self.all.items():
            (one,) = [one for one in listed if one["process"] == command.process]
            token = child.api.ok("POST", f"{child.path}/commands/{one['session']}/token", {})["token"]
            found[name] = Command(child, {"session": one["session"], "process": one["process"], "token": token})
        return found


def check_chain(output):
    """The number of whole lines of CHAIN's output, which must follow each other from the first on."""
    link, lines = "", output.decode().split("\n")[:-1]
    for i, line in enumerate(lines, 1):
        link = hashlib.sha256(f"{link} {i}".encode()).hexdigest()
        if line != f"{i} {link}":
            raise AssertionError(f"line {i} is {line[:100]!r}")
    return len(lines)


def records(sandbox):
    """How many records WRITER's file has; they must follow each other."""
    lines = sandbox.read("/home/user/records").decode().split("\n")
    if lines[-1] == "":
        lines.pop()
    elif len(lines[-1]) < 15:
        lines.pop()  # being written just now
    if [int(line) for line in lines] != list(range(1, len(lines) + 1)):
        raise AssertionError(f"the records do not follow each other: {lines[:3]} … {lines[-3:]}")
    return len(lines)


def count_of_server(sandbox):
    return int(sandbox.api.call("GET", f"{sandbox.path}/ports/8000/").body)


def clock_off_by(sandbox):
    """Seconds by which the guest's clock is certainly wrong: outside the time that the question took."""
    before = time.time()
    guest = float(sandbox.output("date +%s.%N"))
    after = time.time()
    return max(before - guest, guest - after, 0)
