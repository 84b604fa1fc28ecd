"""Taking all that a sandbox can take. Each attack runs while the bystander's answers are timed; the same is timed before it, and the bars of
world.Meter hold. What takes all of the platform: g17_storms.py."""

import time

from framework import attack
from world import Meter


def after(t, box, what="answers afterwards"):
    t.attempt(f"the sandbox no longer {what}", box.run(["true"], timeout=40).code != 0)


@attack("G01", seconds=60, alone=True)
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


@attack("G02", "G06", "G07", seconds=90, alone=True)
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


@attack("G03", seconds=60, alone=True)
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


@attack("G05", "G21", seconds=90, alone=True)
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


@attack("G09", "G10", "G11", seconds=90, alone=True)
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


FLOOD = r"""
import os, socket, struct, sys, time
count = COUNT
held, refused, slow = [], 0, []
for i in range(count):
    s = socket.socket(); s.setblocking(False)
    try: s.connect((TARGETS[i % 2], (80, 443)[i % 3 == 0]))
    except BlockingIOError: held.append(s)
    except OSError: refused += 1; s.close()
time.sleep(0.5)
for n in range(6):  # a byte of a head, of a hello, of a body, every half second
    for i, s in enumerate(held):
        try: s.send((b"G" if n == 0 else b"E") if i % 2 else b"\x16" if n == 0 else b"\3")
        except OSError: pass
    time.sleep(0.5)
done = 0
for s in held:
    try: s.send(b"x"); done += 1
    except OSError: pass
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); u.connect(("10.0.0.1", 53)); u.setblocking(False)
def ask(name):
    return os.urandom(2) + struct.pack(">5H", 256, 1, 0, 0, 0) + b"".join(bytes([len(l)]) + l for l in name) + b"\0" + struct.pack(">2H", 1, 1)
answered = 0
for i in range(count * 4):
    try:
        u.send(ask((os.urandom(4).hex().encode(), b"wild" if i % 2 else b"evil", b"test")))
        while True: u.recv(512); answered += 1
    except OSError: pass
print("sent", len(held), "still open", done, "answered", answered, flush=True)
"""


@attack("G13", "G14", "G15", conditions=("partial", "blocked"), seconds=120, alone=True)
def gateway(t):
    """Connections, half-open ones, slow ones and queries at the gateway"""
    world = t.world
    box, second = world.sandbox(), world.sandbox("second")
    t.guest(second, "curl -sS -m 15 http://allowed.test/", timeout=40)
    address = t.guest(box, "getent hosts allowed.test | cut -d' ' -f1").stdout.decode().strip() or "198.18.0.1"
    code = FLOOD.replace("COUNT", "100000" if world.long else "900").replace("TARGETS", repr((address, "198.18.200.200")))
    box.write("/tmp/flood.py", code.encode())
    before = world.counts()
    failed, took = [], []
    with Meter(t):
        flood = box.start("ulimit -n 200000; python3 /tmp/flood.py", user="root").in_background()
        until = time.monotonic() + 6
        while time.monotonic() < until and flood.result.exit is None:
            begun = time.monotonic()
            seen = t.guest(second, "curl -sS -o /dev/null -w '%{http_code}' -m 10 http://allowed.test/", timeout=40).stdout
            took.append(time.monotonic() - begun)
            failed += [seen] if world.condition == "partial" and seen != b"200" else []
        run = flood.wait(90)
    t.control("the flood was sent", b"sent" in run.stdout, run.stderr[-200:])
    t.note(f"the flood: {run.stdout.decode().strip()}; slowest request of another sandbox of the tenant {max(took, default=0):.1f} s")
    t.attempt("another sandbox of the same tenant is not served meanwhile", failed, failed)
    t.attempt("the gateway holds more connections than a sandbox may have", int(run.stdout.split(b"still open ")[1].split()[0]) > 256 + 8 if b"still open " in run.stdout else False, run.stdout)
    time.sleep(2)
    now = world.counts()
    t.attempt("the gateway's descriptors stay taken", now.get("egress descriptors", 0) > before.get("egress descriptors", 0) + 20, f"{before} to {now}")
    t.attempt("afterwards its own network is gone", world.condition == "partial" and t.guest(box, "curl -sS -o /dev/null -w '%{http_code}' -m 15 http://allowed.test/", timeout=40).stdout != b"200")
    after(t, box)
