"""Names under an allowlist: every other way to write one. One canonical form decides; what has none is refused."""

from framework import attack
from b02_destinations import controls
from gate import Gate, dns, get, raw

ODD_HOSTS = {
    "B22": ("evil.test\0.allowed.test", "allowed.test\0", "allowed.test\x01", "allowed.test\x0b", "allowed.test\x7f"),
    "B23": ("evil%2etest", "allowed%2etest", "allowed.test%00.evil.test", "evil.test\\allowed.test", "allowed.test,evil.test", "allowed.test;evil.test", "allowed.test evil.test", "evil.test\tallowed.test"),
    "B24": ("allowed.test:x@evil.test", "x@allowed.test", "allowed.test@evil.test", "evil.test#@allowed.test", "allowed.test/", "allowed.test?x"),
    "B28": ("[allowed.test]", "[::1]allowed.test", "allowed.test:443:80", "allowed.test:", "allowed.test:0", "allowed.test:65536", "allowed.test:+80", "allowed.test:8e1", "allowed.test:080", "[::ffff:127.0.0.1]"),
    "B30": ("allowed.test:7777", "allowed.test:443", "allowed.test:22"),
}


@attack("B22", "B23", "B24", "B28", "B30", conditions=("partial",), seconds=150, quick=True)
def hosts(t):
    """NUL, control bytes, escapes, userinfo, brackets, ports: a Host that two readers understand differently"""
    gate = Gate(t, t.world.sandbox())
    controls(gate, "raw")
    gate.control("the Host with its port", get("allowed.test", named="allowed.test:80"))
    gate.control("the Host in capitals and with a dot", get("allowed.test", named="ALLOWED.test."))
    for id, hosts in ODD_HOSTS.items():
        for host in hosts:
            gate.attempt(f"{id}: Host {host!r}", get("allowed.test", named=host))
    for host in ("api.secret.test:8443", "allowed.test:80", "allowed.test@evil.test"):
        gate.attempt(f"B30: Host {host!r} in TLS", get("allowed.test", sni="allowed.test", named=host))
    gate.attempt("two Hosts", get("allowed.test", headers="Host: evil.test\r\n"))
    gate.attempt("two Hosts, folded", get("allowed.test", headers=" evil.test\r\n"))
    gate.attempt("no Host", raw("allowed.test", "GET /{m} HTTP/1.1\r\n\r\n"))
    gate.attempt("an empty Host", get("allowed.test", named=""))
    gate.attempt("space before the colon", raw("allowed.test", "GET /{m} HTTP/1.1\r\nHost : allowed.test\r\n\r\n"))
    for target in ("http://allowed.test@evil.test/{m}", "http://evil.test#@allowed.test/{m}", "http://evil.test\\@allowed.test/{m}", "http://allowed.test:80@evil.test/{m}", "http:evil.test/{m}", "//evil.test/{m}"):
        gate.attempt(f"B24: target {target}", raw("allowed.test", f"GET {target} HTTP/1.1\r\nHost: allowed.test\r\n\r\n"))
    gate.go()


@attack("B18", "B19", "B20", "B26", conditions=("partial",), seconds=150, quick=True)
def look_alikes(t):
    """Suffixes without a dot, prefixes, wildcards taken widely, labels of every length"""
    api, box = t.world.attacker, t.world.sandbox()
    gate = Gate(t, box)
    controls(gate, "raw", "dns")
    gate.control("a name below the wildcard is answered", dns("a", "wild", "test"), lambda seen: "answers 1 " in seen.out)
    gate.control("two labels below the wildcard, as documented", dns("a", "b", "wild", "test"), lambda seen: "answers 1 " in seen.out)
    gate.control("an underscore, as documented", dns("_x", "wild", "test"), lambda seen: "answers 1 " in seen.out)

    def answered(seen):
        return "rcode 0" in seen.out and "answers 0" not in seen.out
    for name in ("evil-allowed.test", "notallowed.test", "xwild.test", "wild.test", "allowed.test.evil.test", "test", "est", "allowed", "allowedXtest", "cdn-ok.test.", "cdn-bad.test", "xn--alowed-4wa.test"):
        labels = [label for label in name.split(".") if label] if name != "cdn-ok.test." else ["cdn-ok.test"]
        gate.attempt(f"the name {name} is answered", dns(*labels), answered)
    for what, labels in {"a dot inside a label": ["allowed.test"], "a dot inside a label of the wildcard": ["a.wild", "test"], "NUL": ["evil\0", "wild", "test"], "a line break": ["a\n", "wild", "test"], "a star": ["*", "wild", "test"],
                         "a leading hyphen": ["-a", "wild", "test"], "a trailing hyphen": ["a-", "wild", "test"], "a space": ["a b", "wild", "test"], "bytes beyond ASCII": ["\xe9", "wild", "test"],
                         "a percent escape": ["a%2e", "wild", "test"], "a label of 64": ["a" * 64, "wild", "test"], "a label of 200": ["a" * 200, "wild", "test"],
                         "254 bytes": [*["a" * 61] * 4, "wild", "test"], "128 labels": [*["a"] * 128, "wild", "test"], "ten kilobytes": [*["a" * 63] * 160, "wild", "test"], "slashes": ["a/b", "wild", "test"]}.items():
        gate.attempt(f"{what} in a question", dns(*labels, tcp=len(labels) > 8), answered)
    for host in ("evil-allowed.test", "notallowed.test", "xwild.test", "allowed.test.evil.test", "wild.test", "a.wild.test", "a" * 300 + ".test", "-allowed.test", ".allowed.test", "allowed..test", "*.wild.test"):
        gate.attempt(f"Host {host[:40]} on the allowed name's connection", get("allowed.test", named=host))
    gate.go()
    # Patterns: one form is taken, every other is refused when it is set, never widened or left out.
    before = api.ok("GET", f"{box.path}/egress")["generation"]
    t.control("the pattern *.wild.test is taken", api.call("PUT", f"{box.path}/egress", t.world.settings()).status == 200)
    for pattern in ("*", "*.test", "w*ld.test", "www*.com", "*.*.test", "**", "**.wild.test", ".wild.test", "*wild.test", "wild.*", "wild.test/", "wild.test:80", "http://wild.test", "*.wild.test@evil.test", "", "a b.test", "127.1", "0x7f.1", "1.2.3.4.", "wild..test"):
        status = api.call("PUT", f"{box.path}/egress", {"policy": {"mode": "allowlist", "rules": [{"name": pattern}]}}).status
        t.attempt(f"the pattern {pattern!r} is taken", status < 400, status)
        if status < 400:
            t.world.settle(box)
    t.note(f"generation {before} to {api.ok('GET', f'{box.path}/egress')['generation']}: a refused policy leaves the one before")


@attack("B27", "B31", "B32", conditions=("open",), seconds=150)
def literals(t):
    """Addresses in every spelling, the host under every alias, names that a machine completes by itself; the policy allows everything public"""
    from a01_all_blocked import canaries_work

    world, port = t.world, t.world.wide.port
    canaries_work(t)
    gate = Gate(t, world.sandbox())
    gate.control("a public name", get("allowed.test"))
    lan = world.listeners[1].address
    packed = int.from_bytes(bytes(map(int, lan.split("."))), "big")
    literals = ("2130706433", "0x7f000001", "0177.0.0.1", "127.1", "0", "0x7f.1", "::ffff:7f00:1", "::ffff:127.0.0.1", "0:0:0:0:0:ffff:a9fe:a9fe", "::1", lan, str(packed), hex(packed), f"::ffff:{lan}",
                "10.0.0.1", "172.17.0.1", "192.168.0.1", "169.254.169.254", f"{world.net.block}.1", "fe80::1%eth0", "64:ff9b::7f00:1")
    names = ("localhost.localdomain", "host.docker.internal", "host.internal", "gateway.test", "127.0.0.1.nip.test", "kubernetes.default.svc", "metadata.google.internal", "c2.wild.test", "r3.wild.test", "r15.wild.test")
    for host in (*literals, *names, "gateway", "intranet", "db", "ip6-loopback"):
        gate.attempt(f"{host}", raw(host, f"GET /{{m}} HTTP/1.1\r\nHost: {'[' + host + ']' if ':' in host else host}:{port}\r\n\r\n", port=port), lambda seen: seen.at("host"))
    for host in ("127.0.0.1", "localhost", lan, "2130706433", "[::ffff:127.0.0.1]", "host.docker.internal"):
        gate.attempt(f"Host {host} on a public name's connection", get("allowed.test", named=f"{host}:{port}"), lambda seen: seen.at("host"))
    gate.go()
    deny = {"mode": "open", "rules": [{"action": "deny", "name": "allowed.test"}]}
    box = world.sandbox("second")
    world.settle(box, deny)
    try:
        gate = Gate(t, box)
        gate.control("another public name", get("cdn-ok.test"))
        for spelling in ("allowed.test", "ALLOWED.TEST", "allowed.test.", "Allowed.Test."):
            gate.attempt(f"the denied name as {spelling}", get(spelling, named="allowed.test"))
            gate.attempt(f"the denied name as Host {spelling} on another's connection", get("cdn-ok.test", named=spelling))
            gate.attempt(f"the denied name as SNI {spelling} by address", get(world.net.shared, sni=spelling, named="allowed.test"))
        gate.go()
    finally:
        world.settle(box)
