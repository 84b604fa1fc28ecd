"""Leaving a sandbox whose network is blocked (guest/network.py). The judges are the canaries on every address of the host and in the
bystander, the internet's log, and the gateway's audit log. The controls: a connection of the host's to each canary, which it must have noted, and the
same program in a sandbox that may reach some names (the policy of `partial`), where its tools must reach them."""

import json
import secrets
import socket
import time
from pathlib import Path

from framework import attack

GUEST = Path(__file__).resolve().parents[1] / "guest" / "network.py"
# The tools of guest/network.py that a family tries to leave with. What may never be reached by one, another host by ICMP for instance, has the
# gateway's own address for a control: its side of the wire answers that much.
QUERIES = ("query", "query over TCP", "query elsewhere", "query elsewhere over TCP")
TOOLS = {"a01": ("tcp",), "a02": ("tcp",), "a03": ("query",), "a05": QUERIES, "a06": ("query",), "a07": ("tcp", "tls", "doh", "udp"), "a09": ("echo",), "a10": ("echo",), "a11": ("tcp6",),
         "a13": ("syn", "udp"), "a14": ("arp", "tcp"), "a15": ("udp", "arp"), "a17": ("tcp",), "a18": ("tcp",), "a19": ("tcp", "udp"), "a21": ("syn", "options", "fragments"), "a22": ("arp",), "a27": ("query",)}
BY_THE_GATEWAY = {"a01", "a02", "a03", "a05", "a06", "a07", "a14", "a17", "a18", "a19", "a27"}  # by name or TCP: it decides, and writes that down


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


def run_network(t, box, places, families, limit):
    """What each family saw, and the program's errors."""
    box.write("/tmp/network.py", GUEST.read_bytes(), user="root")
    run = t.guest(box, ["python3", "/tmp/network.py", json.dumps(places), ",".join(families), "2" if t.world.long else "1"], timeout=limit)
    return json.loads(run.stdout.decode().splitlines()[-1]) if run.stdout else {}, run.stderr[-300:]


def tools_work(t, families):
    """The families' tools reach what they may, in a sandbox for that: a name that nobody else knows, and the gateway's own side."""
    world, marker = t.world, "control" + secrets.token_hex(6)
    name = marker + ".wild.test"
    world.expect(lambda entry: marker in str(entry))
    box = world.sandbox(condition="partial")
    tools = {tool for family in families for tool in TOOLS[family]}
    if not Path("/proc/sys/net/ipv6").exists() and "tcp6" in tools:  # nor is there any for a guest to leave by
        tools = tools - {"tcp6"} | {"tcp"}
    saw = {}

    def reached(tool):
        if tool in ("tcp", "tcp6", "tls", "doh"):
            return [entry for entry in world.net.since(world.mark, "shared") if entry.get("host") == name and entry.get("path") == "/" + tool and entry["tls"] == (tool in ("tls", "doh"))]
        if tool in (*QUERIES, "udp", "fragments"):
            return saw.get(tool) == "rcode 0 answers 1"
        return str(saw.get(tool)).startswith("answer b") if tool == "echo" else saw.get(tool) is True
    for _ in range(2):  # once more what did not: on a busy machine a handshake may have taken too long
        missing = sorted(tool for tool in tools if not reached(tool))
        if missing:
            seen, errors = run_network(t, box, {"name": name, "tools": missing}, ("reach",), 60)
            saw.update(seen.get("reach", {"error": f"{errors} {seen}"}))
    for tool in sorted(tools):
        t.control(f"the same tool reaches what it may from another sandbox: {tool}", reached(tool), saw.get(tool, saw.get("error")))


def said(outcome):
    """All words of what a family saw: one that counts has them as keys."""
    return [*map(str, outcome), *map(str, outcome.values())]


def leave(t, *families, limit=120):
    canaries_work(t)
    tools_work(t, families)
    box = t.world.sandbox()
    reachable = [*t.world.listeners[:-1], *t.world.datagrams]
    places = {"tcp": [[one.address, one.port] for one in reachable], "host": t.world.listeners[1].address, "evil": t.world.net.evil, "closed": t.world.condition != "open"}
    seen, errors = run_network(t, box, places, families, limit)
    t.control("the guest's own attempts work where they may", seen.get("control", "").startswith("connected"), errors)
    by_hand = seen.get("answered by hand")
    by_hand = by_hand if isinstance(by_hand, dict) else {"error": by_hand}
    t.control("a frame of the same tool, made by hand, is answered by the gateway's side", by_hand.get("syn") is True, by_hand)
    t.control("an echo request, made by hand, as well", str(by_hand.get("echo")).startswith("answer b"), by_hand)
    for family in families:
        outcome = seen.get(family, {"error": "no word"})
        t.control(f"{family} was tried", "error" not in outcome, outcome)
        t.attempt(f"{family}: an answer came from outside", any("answer b" in text and "egress_denied" not in text for text in said(outcome)), outcome)
        t.note(f"{family}: {json.dumps(outcome)[:400]}")
    if BY_THE_GATEWAY.intersection(families):
        t.audited(box)
    return seen


def refused(t, outcome, what):
    t.attempt(what, any("answers" in text and "answers 0" not in text for text in said(outcome)), outcome)


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


@attack("A13", "A14", "A15", seconds=90, quick=True)
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


@attack("A21", "A22", seconds=90)
def odd_frames(t):
    """Fragments, odd TCP flags, frames that are not IP"""
    leave(t, "a21", "a22")


@attack("A27", seconds=90, alone=True)
def timing(t):
    """Whether the time of a refusal tells what exists"""
    seen = leave(t, "a27")
    times = [value for value in seen.get("a27", {}).values() if isinstance(value, (int, float))]
    t.control("times were taken", len(times) == 4)
    t.attempt("one name takes ten times as long as another", times and max(times) > 10 * max(min(times), 1) and max(times) > 100, times)
