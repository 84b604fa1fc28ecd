"""Copies of a machine: forks, restores, suspensions. What two of them must not share, what must not come from two moments, and what a
compromised one hands down."""

import base64
import hashlib
import threading
import time
import urllib.parse
from pathlib import Path

from api_client import Sandbox
from framework import attack
from h17_life import until_gone

DRAW = r"""
import os, random, secrets, time, uuid
out = open("/dev/shm/drawn", "a", buffering=1)
device = open("/dev/urandom", "rb", buffering=0)
while True:
    out.write("%s %s %s %s %s\n" % (os.getrandom(12).hex(), device.read(12).hex(), secrets.token_hex(12), uuid.uuid4().hex, open("/proc/sys/kernel/random/uuid").read().strip()))
    time.sleep(0.004)
"""


def forks(box, count, **more):
    operation = box.change("fork", {"count": count, **more})
    if operation["state"] != "succeeded":
        raise AssertionError(f"the fork ended as {operation}")
    return [Sandbox(box.api, id) for id in operation["children"]]


def ways_in(box, traffic, envd):
    """Requests of somebody without a key: to the server in this sandbox on port 8000, and to E2B's protocol in it."""
    to_envd = {"E2b-Sandbox-Id": box.id, "E2b-Sandbox-Port": "49983"}
    signature = "v1_" + base64.b64encode(hashlib.sha256(f"/etc/hostname:read:user:{envd}".encode()).digest()).decode().rstrip("=")
    signed = urllib.parse.urlencode({"path": "/etc/hostname", "username": "user", "signature": signature})
    return {"traffic token": ("GET", f"{box.path}/ports/8000/", None, {"Space-Traffic-Token": traffic}),
            "traffic token, by E2B's fields": ("GET", "/", None, {"E2b-Sandbox-Id": box.id, "E2b-Sandbox-Port": "8000", "E2b-Traffic-Access-Token": traffic}),
            "envd token, for a file": ("GET", "/files?path=/etc/hostname", None, {**to_envd, "X-Access-Token": envd}),
            "envd token, for the processes": ("POST", "/process.Process/List", {}, {**to_envd, "X-Access-Token": envd}),
            "signed URL of a file": ("GET", "/files?" + signed, None, to_envd)}


def tokens_of_ports(t, parent, children):
    """The parent's tokens for ports and for E2B's protocol open the parent, and no child, which has its own."""
    api, stranger = parent.api, parent.api.with_key(None)

    def tokens(box):
        return api.ok("POST", f"{box.path}/traffic-token")["token"], api.ok("GET", f"/sandboxes/{box.id}")["envdAccessToken"]

    def opens(way):
        return stranger.call(*way, timeout=30).status
    of_parent = tokens(parent)
    for what, way in ways_in(parent, *of_parent).items():
        status = opens(way)
        t.control(f"the parent's {what} opens the parent", status == 200, status)
    for child in children:
        own = tokens(child)
        t.attempt("a child has a token of its parent", set(own) & set(of_parent))
        for what, way in ways_in(child, *own).items():
            status = opens(way)
            t.control(f"a child's own {what} opens it", status == 200, status)
        for what, way in ways_in(child, *of_parent).items():
            status = opens(way)
            t.attempt(f"the parent's {what} opens a child", status < 400, status)


@attack("I01", "I02", "I03", seconds=120)
def twins(t):
    """Random numbers, names and tokens of forks"""
    world, box, children = t.world, t.world.fresh(), []
    try:
        box.write("/tmp/draw.py", DRAW.encode())
        box.start(["python3", "/tmp/draw.py"]).in_background()
        session = box.start("while :; do sleep 0.2; done")
        reader = session.in_background()
        box.start("cd /tmp && exec python3 -m http.server 8000").in_background()
        world.server.wait_for(lambda: box.api.call("GET", f"{box.path}/ports/8000/").status == 200, 30, "a server in the parent")
        box.output("while ! [ -s /dev/shm/drawn ]; do sleep 0.1; done")
        reader.until(lambda result: result.events, 20)
        children = forks(box, 16 if world.long else 3)
        drawn = [one.output("sleep 0.4; cat /dev/shm/drawn; pkill -f '[d]raw.py'").split("\n") for one in (*children, box)]
        common = 0
        while all(common < len(lines) for lines in drawn) and len({lines[common] for lines in drawn}) == 1:
            common += 1
        t.control("they have a past in common", common > 0, common)
        t.control("each drew on", all(len(lines) > common + 3 for lines in drawn), [len(lines) - common for lines in drawn])
        later = [{word for line in lines[common:] for word in line.split()} for lines in drawn]
        for one in range(len(later)):
            for other in range(one):
                t.attempt(f"copies {one} and {other} drew the same", later[one] & later[other], sorted(later[one] & later[other])[:2])
        # The first words of a program that was waiting: here the first line after the load is written within milliseconds of it.
        facts = {"machine id": "cat /etc/machine-id", "boot id": "cat /proc/sys/kernel/random/boot_id", "host name": "hostname", "its own id": "echo $SPACE_SANDBOX_ID", "TLS's random": "openssl rand -hex 16",
                 "a key of SSH": "ssh-keygen -q -t ed25519 -N '' -f /tmp/k-$RANDOM$RANDOM <<<y >/dev/null; cat /tmp/k-*.pub | cut -c1-80", "python's hash": "python3 -c 'print(hash(str()) + hash(\"x\"))'"}
        asked = "; ".join(f"({command}) | tr '\\n' ' '; echo" for command in facts.values())  # a line each
        told = [one.run(["bash", "-c", asked], timeout=60).stdout.split(b"\n") for one in (*children, box)]
        for number, what in enumerate(facts):
            seen = [lines[number].strip() for lines in told]
            t.control(f"each says its {what}", all(seen), seen[:2])
            if what == "boot id":
                t.note(f"{what}: {'one for all copies' if len(set(seen)) == 1 else 'different'}")
                continue
            t.attempt(f"{what} is the same in two copies", len(set(seen)) != len(seen), seen[:2])
        t.control("what is no identity is the same", len({one.run(["uname", "-r"]).stdout for one in children}) == 1)
        for child in children:
            for what, path, token in (("the parent's session", f"{child.path}/commands/{session.session}/attach", session.token), ("the parent's session with the key", f"{child.path}/commands/{session.session}/attach", box.api.key)):
                answer = box.api.with_key(token).call("GET", path, timeout=10)
                t.attempt(f"{what} opens in a child", answer.status == 200, answer.status)
            inherited = [one for one in box.api.ok("GET", f"{child.path}/commands")["commands"] if one["session"] == session.session]
            t.attempt("a session of the parent is one of the child", inherited)
        t.control("it opens at the parent's", box.api.call("GET", session.path).status == 200)
        tokens_of_ports(t, box, children[:3])
    finally:
        for one in [*children, box]:
            world.drop(one)


HOLD = r"""
import socket, ssl, time, sys
c = ssl.create_default_context(); c.check_hostname = False; c.verify_mode = ssl.CERT_NONE
s = c.wrap_socket(socket.create_connection(("odd.secret.test", 443), 8), server_hostname="odd.secret.test"); s.settimeout(6)
def ask(n):
    s.sendall(b"GET /%s-%d HTTP/1.1\r\nHost: odd.secret.test\r\n\r\n" % (open("/dev/shm/who").read().strip().encode(), n)); return s.recv(4096)
ask(0); print("open", flush=True)
while not open("/dev/shm/go").read().strip(): time.sleep(0.1)
for n in range(1, 6):
    try: print("answer", len(ask(n)), flush=True)
    except OSError as e: print("error", type(e).__name__, flush=True); break
    time.sleep(0.1)
print("end", flush=True)
"""


@attack("I06", conditions=("partial",), seconds=90)
def cloned_connections(t):
    """A connection that is open in the parent, written to by the child as well"""
    world, box, children = t.world, t.world.fresh(), []
    try:
        box.run("echo parent > /dev/shm/who; : > /dev/shm/go")
        box.write("/tmp/hold.py", HOLD.encode())
        holder = box.start(["python3", "/tmp/hold.py"]).in_background()
        holder.until(lambda result: b"open" in result.stdout or result.exit, 30)
        children = forks(box, 1)
        children[0].run("echo child > /dev/shm/who; echo x > /dev/shm/go", timeout=40)
        box.run("echo x > /dev/shm/go", timeout=40)
        holder.until(lambda result: b"end" in result.stdout or result.exit, 30)
        time.sleep(1)
        arrived = [entry for entry in world.net.since(world.mark, "odd") if str(entry.get("path", "")).startswith(("/parent", "/child"))]
        parents = {entry["connection"] for entry in arrived if entry["path"].startswith("/parent")}
        children_of = {entry["connection"] for entry in arrived if entry["path"].startswith("/child")}
        t.control("the parent's connection was open", parents, arrived[:2])
        t.attempt("both write on one connection of the upstream", parents & children_of, arrived[-3:])
        t.attempt("the child goes on with its parent's session of TLS", children_of, arrived[-3:])
        t.note(f"the parent after the fork: {holder.result.stdout.decode().split()[1:5]}; a stop may end its connections, never share them")
        again = children[0].run("curl -sS -m 15 https://odd.secret.test/again", timeout=40)
        t.control("a new connection of the child works", again.code == 0, again.stderr[-200:])
    finally:
        for one in [*children, box]:
            world.drop(one)


COUNT = r"""
import os, mmap, time
memory = open("/dev/shm/count", "w+b"); memory.write(b"0" * 16); memory.flush()
m = mmap.mmap(memory.fileno(), 16)
disk = os.open("/root/count", os.O_RDWR | os.O_CREAT, 0o600)
n = 0
while True:
    n += 1
    m[0:16] = b"%016d" % n; os.pwrite(disk, b"%016d" % n, 0)
    if n % 50 == 0: os.fsync(disk)
"""


@attack("I07", "I11", seconds=150)
def one_moment(t):
    """Memory and disk of a copy are of one moment; the control channel lives through every copy, under traffic both ways"""
    world, box, children = t.world, t.world.fresh(), []
    try:
        box.write("/tmp/count.py", COUNT.encode(), user="root")
        counter = box.start(["python3", "/tmp/count.py"], user="root").in_background()
        noise = box.start("while :; do head -c 100000 /dev/zero | tr '\\0' y; sleep 0.1; done").in_background()
        echo = box.start(["cat"], stdin=True)
        back = echo.in_background()
        stop = threading.Event()
        sent = []

        def talk():
            while not stop.is_set():
                try:
                    if echo.stdin(b"%06d\n" % len(sent)).status < 300:
                        sent.append(len(sent))
                except Exception:  # while it is away
                    pass
                time.sleep(0.05)
        talker = threading.Thread(target=talk, daemon=True)
        talker.start()
        gap = "python3 -c \"a, b = int(open('/dev/shm/count').read()), int(open('/root/count').read()); print(a, b)\""
        t.control("the counter runs", int(t.guest(box, "while ! [ -s /root/count ]; do sleep 0.1; done; sleep 0.5; cat /root/count").stdout) > 10)
        for number in range(20 if world.long else 3):
            child = forks(box, 1)[0]
            children.append(child)
            # The copy goes on by itself; stopped (and not the shell that asks for it), its two numbers must be neighbours.
            values = t.guest(child, f"pkill -STOP -f '[c]ount.py'; {gap}").stdout.split()
            t.attempt(f"copy {number}: memory and disk are of two moments", len(values) != 2 or abs(int(values[0]) - int(values[1])) > 1, values)
            t.attempt(f"copy {number}: its control channel hangs", child.run(["echo", "there"], timeout=30).stdout != b"there\n")
            if number == 0:
                child.run("sync", user="root")
                fsck = t.guest(child, "dmesg | grep -iE 'ext4.*(error|corrupt)'; mount | grep ' / '").stdout.decode()
                t.attempt("the copy's file system is broken", "error" in fsck.lower() or "corrupt" in fsck.lower(), fsck)
            world.drop(children.pop())
        for number in range(100 if world.long else 2):
            states = [box.change(verb)["state"] for verb in ("suspend", "wake")]
            t.attempt(f"suspension {number} fails", states != ["succeeded"] * 2, states)
            t.attempt(f"after suspension {number} its control channel hangs", box.run(["echo", "there"], timeout=30).stdout != b"there\n")
        stop.set()
        talker.join(10)
        length = len(sent)
        back.until(lambda result: len(result.stdout) >= 7 * length, 20)
        got = [int(line) for line in back.result.stdout.decode().split()]
        t.control("the session went on all the while", length > 20, length)
        t.attempt("what was written came back twice, in another order or not at all", got[:length] != list(range(length)), f"{length} sent, {len(got)} back")
        counter.command.kill(), noise.command.kill(), echo.kill()
    finally:
        for one in [*children, box]:
            world.drop(one)


def clock_off(box):
    """Seconds by which a guest's clock is surely wrong, however long the question took."""
    before = time.time()
    says = float(box.output("date +%s.%N"))
    return max(before - says, says - time.time(), 0.0)


@attack("I10", seconds=90)
def time_travel(t):
    """A sleep of the machine: tokens, limits and clocks go by the host's time"""
    world = t.world
    box = world.fresh()
    short = world.fresh(time_limit_s=10)
    try:
        short.api.ok("POST", short.path + "/pause", {}, {"Prefer": "wait=30"})
        t.control("the one with a time limit is paused", short.get()["state"] == "paused")
        box.write("/tmp/clock.py", b"import time\nwhile True:\n  print(time.time(), time.monotonic(), flush=True); time.sleep(0.2)\n")
        clock = box.start(["python3", "/tmp/clock.py"])
        reader = clock.in_background()
        reader.until(lambda result: result.stdout.count(b"\n") > 3, 20)
        expiring = world.tenant("attacker-short", expires_in_s=4)
        t.control("a key that will expire opens", expiring.call("GET", "/v1/sandboxes").status == 200)
        box.change("suspend")
        slept = 3600 if world.long else 6
        time.sleep(slept)
        box.change("wake")
        t.attempt("an expired key opens after the sleep", expiring.call("GET", "/v1/sandboxes").status == 200)
        # The limit counts the time that a sandbox runs, so the rest of it begins now.
        short.api.call("POST", short.path + "/resume", {}, {"Prefer": "wait=30"})
        resumed = time.monotonic()
        off = clock_off(box)
        t.figure("clock after the sleep, s off", round(off, 2))
        t.attempt("the clock is more than a second off", off > 1, off)
        length = len(reader.result.stdout)
        reader.until(lambda result: len(result.stdout) > length + 100, 30)
        lines = [tuple(map(float, line.split())) for line in reader.result.stdout.decode().splitlines()[:-1]]
        t.attempt("the monotonic clock went back", any(b[1] < a[1] for a, b in zip(lines, lines[1:])))
        left = max(0.0, 10 + 5 - (time.monotonic() - resumed))
        t.attempt("a pause stretches the time limit", not until_gone(short.api, short, left))
        # A guest's own clock means nothing to the host.
        for date in ("2001-01-01", "2037-01-01"):
            t.guest(box, f"date -s {date}")
            session = box.start(["true"])
            t.attempt(f"with the guest's clock at {date} a token is refused", box.api.call("GET", session.path).status != 200)
            t.attempt(f"with the guest's clock at {date} the time limit is another", box.get()["state"] != "running")
            session.kill()
        clock.kill()
    finally:
        world.drop(box)
        world.drop(short)


def digest(path):
    done = hashlib.sha256()
    with open(path, "rb") as file:
        while piece := file.read(1 << 20):
            done.update(piece)
    return done.hexdigest()


@attack("I13", "I14", seconds=150)
def what_stays_shared(t):
    """Writes everywhere in a sandbox, a changed agent, a checkpoint of it: the base and other sandboxes stay as they were"""
    world, box, children = t.world, t.world.fresh(), []
    fresh = []
    try:
        shared = {}  # what the VMM may only read, by descriptor: so that a file of another name is found as well
        for fd in Path(f"/proc/{world.vmm(box)}/fd").iterdir():
            try:
                info = Path(str(fd).replace("/fd/", "/fdinfo/")).read_text()
                target = fd.readlink()
                if int(info.split("flags:")[1].split()[0], 8) & 3 == 0 and str(target).startswith("/") and not str(target).startswith(("/dev", "/proc", "/memfd", "/sys")):
                    shared[str(fd)] = (str(target), digest(fd))
            except OSError:
                pass
        t.control("it stands on files that others share", len(shared) >= 1, [name for name, _ in shared.values()])
        marker = "TAINT-" + "5" * 16
        new = " ".join(f"{folder}/tainted" for folder in ("", "/tmp", "/var/tmp", "/usr/bin", "/etc", "/home/user", "/root", "/opt", "/lib"))
        old = "/bin/ls /bin/true /usr/bin/python3 /etc/passwd /init"
        written = f"{new} {old} /root/fill"
        t.guest(box, f"for f in {new} {old}; do echo {marker} >> $f 2>/dev/null; done; "
                     f"dd if=/dev/urandom of=/dev/vda bs=512 count=1 seek=$(($(blockdev --getsz /dev/vda) - 1)) conv=notrunc 2>/dev/null; yes {marker} | head -c 60000000 > /root/fill; sync; echo 3 > /proc/sys/vm/drop_caches", timeout=90)
        t.control("what it wrote is there", len(t.guest(box, f"grep -ls {marker} {written}").stdout.split()) >= 12)
        for fd, (name, before) in shared.items():
            t.attempt(f"{Path(name).name}, which others share, changed", digest(fd) != before)
        fresh.append(world.fresh())
        for what, other in (("a new sandbox", fresh[0]), ("the bystander", world.bystander)):
            seen = other.run(f"grep -ls {marker} {written}", user="root", timeout=60).stdout
            t.attempt(f"{what} sees what was written", seen, seen)
        taken = box.change("checkpoint")
        t.control("a checkpoint of it is made", taken["state"] == "succeeded", taken.get("error"))
        if taken["state"] == "succeeded":
            children = forks(box, 1, checkpoint=taken["checkpoint"])
            t.control("its child has what was written", t.guest(children[0], f"grep -c {marker} /etc/tainted").stdout.strip() == b"1")
        # An agent that lies in the parent lies in the child: it is believed as little, and nobody else's answers are its.
        from f13_hostile_agent import GUEST, ask
        children[0].write("/tmp/hostile.py", GUEST.read_bytes(), user="root")
        children[0].start(["sh", "-c", "exec setsid python3 /tmp/hostile.py >/dev/null 2>&1"], user="root").in_background()
        answers = {}
        for _ in range(15):
            time.sleep(1)
            ask(children[0], "polite", answers, 10)
            if b"HOSTILE" in answers["polite"][1]:
                break
        t.control("the false agent answers in the child's place", b"HOSTILE" in answers["polite"][1], answers["polite"][:2])
        for path in (world.bystander.path, "/v1/keys/none"):
            t.attempt("it opens what is another's", children[0].api.call("GET", path).status == 200)
        grand = children[0].change("checkpoint")
        t.note(f"a checkpoint of one whose agent lies: {grand['state']}")
        if grand["state"] == "succeeded":
            operation = children[0].change("fork", {"checkpoint": grand["checkpoint"]})
            for id in operation.get("children", []):
                children.append(Sandbox(box.api, id))
        listed = fresh[0].api.call("GET", fresh[0].files("list", "/etc"))
        t.attempt("another sandbox of the tenant is answered by it", b"HOSTILE" in listed.body or listed.status != 200, listed.status)
        bystander = world.bystander.api.call("GET", world.bystander.files("list", "/etc"))
        t.attempt("the bystander is answered by it", b"HOSTILE" in bystander.body or bystander.status != 200, bystander.status)
        for one in children:
            t.attempt("it cannot be deleted", one.api.call("DELETE", one.path, headers={"Prefer": "wait=60"}).status not in (200, 404))
    finally:
        for one in [*children, *fresh, box]:
            world.drop(one)
        for checkpoint in world.attacker.ok("GET", f"/v1/checkpoints?sandbox={box.id}")["checkpoints"]:
            world.attacker.call("DELETE", f"/v1/checkpoints/{checkpoint['id']}")
