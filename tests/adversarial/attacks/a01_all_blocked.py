"""Leaving a sandbox whose network is blocked (guest/network.py). The judges are the canaries on every address of the host and in the
bystander, and the internet's log; the control is a connection of the host's to each of them, which they must have noted."""

import json
import socket
import time
from pathlib import Path

from framework import attack

GUEST = Path(__file__).resolve().parents[1] / "guest" / "network.py"


def canaries_work(t):
    """Every canary notes a connection of the host's; afterwards they are clean again."""
    for one in t.world.listeners:
        with socket.create_connection((one.address, one.port), 5) as s:
            s.sendall(b"control")
    for one in t.world.datagrams:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
            s.sendto(b"control", (one.address, one.port))
    time.sleep(0.4)
    for one in [*t.world.listeners, *t.world.datagrams]:
        t.control(f"the canary on {one.address} notes a visitor", one.hits)
        one.hits.clear()
    with socket.create_connection((t.world.net.evil, 80), 5) as s:
        s.sendall(b"GET /from-the-host HTTP/1.1\r\nHost: evil.test\r\nConnection: close\r\n\r\n")
        s.recv(100)
    t.world.expect(lambda entry: entry.get("path") == "/from-the-host")
    t.control("the attacker's server notes a visitor", t.world.arrived("from-the-host"))


def leave(t, *families, limit=120):
    canaries_work(t)
    box = t.world.sandbox()
    reachable = [*t.world.listeners[:-1], *t.world.datagrams]
    places = {"tcp": [[one.address, one.port] for one in reachable], "host": t.world.listeners[1].address, "evil": t.world.net.evil}
    box.write("/tmp/network.py", GUEST.read_bytes(), user="root")
    run = t.guest(box, ["python3", "/tmp/network.py", json.dumps(places), ",".join(families), "2" if t.world.long else "1"], timeout=limit)
    seen = json.loads(run.stdout.decode().splitlines()[-1]) if run.stdout else {}
    t.control("the guest's own attempts work where they may", seen.get("control", "").startswith("connected"), run.stderr[-300:])
    t.control("a frame of the same tool, made by hand, is answered by the gateway's side", seen.get("answered by hand") is True, seen.get("answered by hand"))
    for family in families:
        outcome = seen.get(family, {"error": "no word"})
        t.control(f"{family} was tried", "error" not in outcome, outcome)
        t.attempt(f"{family}: an answer came from outside", any("answer b" in str(value) and "egress_denied" not in str(value) for value in outcome.values()), outcome)
        t.note(f"{family}: {json.dumps(outcome)[:400]}")
    return seen


def refused(t, outcome, what):
    t.attempt(what, any("answers 0" not in str(value) and "answers" in str(value) for value in outcome.values()), outcome)


@attack("A01", "A02", seconds=90, quick=True)
def plain(t):
    """TCP to public addresses and to every port"""
    leave(t, "a01", "a02")


@attack("A03", "A05", "A06", seconds=120)
def names(t):
    """Names as a tunnel, other resolvers, odd types of records"""
    seen = leave(t, "a03", "a05", "a06")
    for family in ("a03", "a05", "a06") if t.world.condition == "blocked" else ():
        refused(t, seen.get(family, {}), f"{family}: a name was answered although everything is blocked")


@attack("A07", "A09", "A10", "A11", seconds=90)
def other_protocols(t):
    """DNS over other transports, ICMP, other IP protocols, IPv6"""
    leave(t, "a07", "a09", "a10", "a11")


@attack("A13", "A14", "A15", seconds=60, quick=True)
def borrowed(t):
    """Other source addresses and MACs, ARP games, router adverts and DHCP offers of the guest's own"""
    leave(t, "a13", "a14", "a15")


@attack("A17", "A18", "A19", seconds=120)
def inside(t):
    """The gateway's own ports, the host's services, other sandboxes"""
    t.world.bystander.run(["python3", "-c", "import socket; socket.create_connection(('127.0.0.1', 8080), 5)"], timeout=40)
    t.control("the bystander's listener notes a visitor", b"reached" in t.world.bystander.run("sleep 0.3; ls /tmp/reached").stdout)
    t.world.bystander.run("rm -f /tmp/reached", user="root")
    seen = leave(t, "a17", "a18", "a19")
    talk = seen.get("a17", {}).get("talk", {})
    t.attempt("a service answers on the gateway's address", any("answer" in value for value in talk.values()), talk)


@attack("A21", "A22", seconds=60)
def odd_frames(t):
    """Fragments, odd TCP flags, frames that are not IP"""
    leave(t, "a21", "a22")


@attack("A27", seconds=60, alone=True)
def timing(t):
    """Whether the time of a refusal tells what exists"""
    seen = leave(t, "a27")
    times = [value for value in seen.get("a27", {}).values() if isinstance(value, (int, float))]
    t.control("times were taken", len(times) == 4)
    t.attempt("one name takes ten times as long as another", times and max(times) > 10 * max(min(times), 1) and max(times) > 100, times)
