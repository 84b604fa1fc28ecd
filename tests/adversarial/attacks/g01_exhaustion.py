"""Taking all there is. Each attack runs while the bystander's answers are timed; the same is timed before it."""

import threading
import time

from framework import attack
from world import Neighbour


class Meter:
    """The bystander's times before and during an attack, as figures. The host's load is on both sides of the ratio."""

    def __init__(self, t):
        self.t = t

    def __enter__(self):
        with Neighbour(self.t.world) as before:
            time.sleep(2)
        self.before = before
        self.during = Neighbour(self.t.world).__enter__()
        return self

    def __exit__(self, kind, *rest):
        self.during.__exit__(None)
        if kind is None:
            ratio = self.during.quantile(0.5) / max(self.before.quantile(0.5), 0.001)
            self.t.figure("neighbour's median, before and during, ms", f"{self.before.quantile(0.5) * 1000:.0f}, {self.during.quantile(0.5) * 1000:.0f} (x{ratio:.1f})")
            self.t.control("the bystander was timed before", len(self.before.times) >= 2)
            self.t.attempt("the bystander was not answered", self.during.failed > 0 or not self.during.times, f"{self.during.failed} failed")


def after(t, box, what="answers afterwards"):
    t.attempt(f"the sandbox no longer {what}", box.run(["true"], timeout=40).code != 0)


@attack("G01", seconds=60)
def fork_bomb(t):
    """A fork bomb"""
    box = t.world.fresh()
    try:
        with Meter(t):
            box.start("f() { f | f & }; f", time_limit_ms=5000).in_background()
            time.sleep(5)
        t.attempt("it cannot be deleted in its deadline", box.api.call("DELETE", box.path, headers={"Prefer": "wait=30"}).status != 200)
    finally:
        t.world.drop(box)


@attack("G02", "G06", "G07", seconds=90)
def memory(t):
    """All memory, every page dirty, taken and given back"""
    box = t.world.fresh(memory_mib=256)
    try:
        with Meter(t):
            hog = box.run(["python3", "-c", "a = [bytearray(b'x' * (1 << 20)) for _ in iter(int, 1)]"], timeout=60)
            box.run(["python3", "-c", "import mmap\nfor _ in range(20):\n  m = mmap.mmap(-1, 64 << 20)\n  for i in range(0, 64 << 20, 4096): m[i] = 1\n  m.close()"], timeout=60, time_limit_ms=8000)
        t.control("the hog was ended", hog.code != 0 or hog.signal, hog.exit)
        after(t, box)
    finally:
        t.world.drop(box)


@attack("G03", seconds=60)
def spin(t):
    """Every vCPU at real-time priority"""
    box = t.world.fresh()
    try:
        with Meter(t):
            box.start("for i in $(seq 8); do chrt -f 99 sh -c 'while :; do :; done' & done; wait", user="root", time_limit_ms=5000).in_background()
            time.sleep(5)
        begun = time.monotonic()
        answer = box.api.call("POST", box.path + "/commands", {"argv": ["true"]}, timeout=60)
        t.attempt("a command neither starts nor fails in time", time.monotonic() - begun > 30, answer.status)
    finally:
        t.world.drop(box)


@attack("G05", "G21", seconds=90)
def files(t):
    """Inodes, many small files, uploads that stop in the middle, a disk that is full"""
    box = t.world.fresh()
    try:
        with Meter(t):
            box.run(["python3", "-c", f"import os\nos.makedirs('/tmp/i')\nfor i in range({10**6 if t.world.long else 5000}): open('/tmp/i/%d' % i, 'w').close()"], timeout=60, time_limit_ms=30000)
            box.run("for size in 2000M 1000M 500M 200M 100M 50M 20M 10M 5M 2M 1M 512K 128K 32K 4K; do while fallocate -l $size /root/full-$size-$((n++)) 2>/dev/null; do :; done; done", user="root", timeout=60, time_limit_ms=30000)
        answer = box.api.call("PUT", box.files("content", "/root/more", user="root"), b"x" * (8 << 20), {"Content-Type": "application/octet-stream"}, timeout=60)
        t.control("the full disk is said to be full", answer.status in (507, 409, 413, 500), answer.status)
        t.attempt("the server says it was its own fault", answer.status == 500, answer.body[:200])
        for _ in range(50 if not t.world.long else 1000):
            connection = box.api.connection(5)
            connection.putrequest("PUT", box.files("content", "/tmp/half"))
            for name, value in {**box.api.headers(), "Content-Length": "1000000"}.items():
                connection.putheader(name, value)
            connection.endheaders(b"x" * 1000)
            connection.close()
        t.guest(box, "rm -f /root/full-*")
        after(t, box)
        left = t.guest(box, "ls -a /tmp | grep -c half").stdout.decode().strip()
        t.attempt("uploads that broke off leave files", int(left or 0) > 2, left)
    finally:
        t.world.drop(box)


@attack("G09", "G10", "G11", seconds=90)
def output(t):
    """Output without end: a reader that never reads, a client that comes back, the kernel's log and the console"""
    box = t.world.fresh()
    try:
        before = t.world.memory_mib("node")
        with Meter(t):
            command = box.start("yes CANARY-FLOOD", time_limit_ms=8000)
            connection = box.api.connection(20)
            connection.request("GET", command.path + "/attach", headers=box.api.headers({"Accept": "text/event-stream"}))
            connection.getresponse()  # and nothing is read
            box.start("while :; do echo x; done >/dev/ttyS0", user="root", time_limit_ms=5000).in_background()
            box.start("while :; do echo x; done >/dev/kmsg", user="root", time_limit_ms=5000).in_background()
            time.sleep(4)
            other = box.run(["echo", "through"], timeout=30)
            t.control("another command of the same sandbox answers meanwhile", other.stdout == b"through\n", other.exit)
        grown = max(t.world.memory_mib("node"), t.world.memory_mib("api")) - before
        t.attempt("node or api hold the flood", grown > 100, f"{grown} MiB")
        connection.close()
        begun = time.monotonic()
        result = command.finish(timeout=40)
        t.figure("attach again, s", round(time.monotonic() - begun, 2))
        t.attempt("all of it is kept", len(result.stdout) > 64 << 20, len(result.stdout))
        after(t, box)
    finally:
        t.world.drop(box)


@attack("G13", "G14", "G15", seconds=90)
def gateway(t):
    """Connections, half-open ones, slow ones and queries at the gateway"""
    box = t.world.sandbox()
    code = """
import socket, time, os, struct
held = []; refused = 0
for i in range(COUNT):
    s = socket.socket(); s.setblocking(False)
    try: s.connect(('198.18.0.1', 443))
    except OSError as e:
        if e.errno != 115: refused += 1; s.close(); continue
    held.append(s)
time.sleep(0.5); done = 0
for s in held:
    try: s.send(b'G'); done += 1
    except OSError: pass
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); u.connect(('10.0.0.1', 53)); u.setblocking(False)
for i in range(COUNT * 4):
    try: u.send(os.urandom(2) + struct.pack('>5H', 256, 1, 0, 0, 0) + b'\\x08' + os.urandom(4).hex().encode() + b'\\x04evil\\x04test\\0' + struct.pack('>2H', 1, 1))
    except OSError: pass
print('sent', len(held), done, flush=True)
"""
    box.write("/tmp/flood.py", code.replace("COUNT", "100000" if t.world.long else "900").encode())
    with Meter(t):
        run = t.guest(box, "ulimit -n 200000; python3 /tmp/flood.py", timeout=60)
    t.control("the flood was sent", b"sent" in run.stdout, run.stderr[-200:])
    after(t, box)


@attack("G17", seconds=60)
def pause_storm(t):
    """Fifty pauses and resumes at once on one sandbox"""
    box = t.world.fresh()
    try:
        statuses = []
        def one(i):
            try:
                statuses.append(box.api.call("POST", f"{box.path}/{'pause' if i % 2 else 'resume'}", {}, {"Prefer": "wait=20"}, timeout=60).status)
            except OSError:
                statuses.append(0)
        with Meter(t):
            threads = [threading.Thread(target=one, args=(i,)) for i in range(50)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        t.control("some were carried out", any(status == 200 for status in statuses), sorted(statuses))
        t.attempt("the server broke", any(status in (0, 500) for status in statuses), sorted(set(statuses)))
        box.api.call("POST", box.path + "/resume", {}, {"Prefer": "wait=20"})
        after(t, box)
    finally:
        t.world.drop(box)


@attack("G18", seconds=90)
def create_storm(t):
    """One tenant asks for sandboxes without end, and for ones of any size"""
    api = t.world.attacker
    made, statuses = [], []
    count = 200 if t.world.long else 12
    def one():
        try:
            answer = api.call("POST", "/v1/sandboxes", {"memory_mib": 256}, timeout=60)
            statuses.append(answer.status)
            if answer.status < 300:
                made.append(answer.json["sandbox"]["id"])
        except OSError:
            statuses.append(0)
    try:
        with Meter(t):
            threads = [threading.Thread(target=one) for _ in range(count)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            time.sleep(4)
        t.control("creates were taken or refused", statuses and all(status in (201, 202, 429, 503) for status in statuses), sorted(set(statuses)))
        t.attempt("health is not answered", api.call("GET", "/v1/health", timeout=20).status != 200)
        for size in ({"memory_mib": 1 << 20}, {"cpus": 64}, {"disk_mib": 1 << 24}):
            answer = api.call("POST", "/v1/sandboxes", size, {"Prefer": "wait=20"}, timeout=60)
            state = answer.json.get("sandbox", {}).get("state") if answer.json else None
            t.attempt(f"{size} is given", state == "running" and "disk_mib" not in size, f"{answer.status} {answer.body[:100]}")
            if answer.json and "sandbox" in answer.json:
                made.append(answer.json["sandbox"]["id"])
    finally:
        for id in made:
            api.delete(id)


@attack("G22", "G23", seconds=90)
def watchers(t):
    """Watches without end, and streams that are cut at any moment"""
    box = t.world.sandbox()
    before = t.world.counts()
    refused = 0
    for i in range(2000 if t.world.long else 60):
        connection = box.api.connection(5)
        try:
            target = [box.files("watch", "/", recursive="true"), "/v1/events?after=0", box.files("content", "/etc/hostname"), box.path + "/commands"][i % 4]
            connection.request("GET", target, headers=box.api.headers({"Accept": "text/event-stream"} if i % 4 < 2 else {}))
            if i % 3:
                response = connection.getresponse()
                refused += response.status == 429
        except OSError:
            pass
        connection.close()
    until = time.monotonic() + 15
    while time.monotonic() < until:
        now = t.world.counts()
        if all(now.get(name, 0) <= value + 12 for name, value in before.items() if name != "VMMs"):
            break
        time.sleep(1)
    t.control("counts can be taken", len(before) > 4, before)
    for name, value in before.items():
        if name != "VMMs":
            t.attempt(f"{name} stay taken", now.get(name, 0) > value + 12, f"{value} to {now.get(name)}")
    after(t, box)
