"""HTTP/2: streams that contradict themselves, that would be other requests in HTTP/1, and an upstream that pushes."""

from framework import attack
from gate import Gate, command, get, h2


def fields(path="/{m}", method="GET", scheme="https", authority="h2.test", *more, drop=()):
    made = [[":method", method], [":scheme", scheme], [":authority", authority], [":path", path], *map(list, more)]
    return [one for one in made if one[0] not in drop]


@attack("B10", "C31", conditions=("partial",), seconds=150, quick=True)
def streams(t):
    """:authority against Host, forbidden fields, line breaks, lengths that do not fit, methods that are requests"""
    gate = Gate(t, t.world.sandbox())
    gate.control("a plain stream", h2([fields()]))
    gate.control("three streams of one connection", h2([fields("/1"), fields("/2"), fields()]))
    gate.control("Host beside the same authority", h2([fields("/{m}", "GET", "https", "h2.test", ("host", "h2.test"))]))
    gate.control("a body", h2([{"fields": fields(method="POST"), "body": "hello"}]))
    gate.control("curl speaks HTTP/2 through the gateway", command("curl -sS -m 15 --http2 https://h2.test/{m}"))
    wrong = {
        "B10: Host is another": fields("/{m}", "GET", "https", "h2.test", ("host", "h2-bad.test")),
        "B10: the authority is another": fields("/{m}", "GET", "https", "h2-bad.test", ("host", "h2.test")),
        "B10: both are another": fields("/{m}", "GET", "https", "h2-bad.test", ("host", "h2-bad.test")),
        "B10: only Host, and another": fields("/{m}", "GET", "https", "x", ("host", "h2-bad.test"), drop=(":authority",)),
        "B10: neither": fields(drop=(":authority",)),
        "B10: two Hosts": fields("/{m}", "GET", "https", "h2.test", ("host", "h2.test"), ("host", "h2-bad.test")),
        "B10: two authorities": [*fields()[:3], [":authority", "h2-bad.test"], [":path", "/{m}"]],
        "B10: an empty authority": fields(authority=""),
        "B10: another port": fields(authority="h2.test:8443"),
        "B10: userinfo": fields(authority="h2.test@evil.test"),
        "B10: the scheme is http": fields(scheme="http"),
        "B10: the name of another rule": fields(authority="allowed.test"),
        "C31: a line break in a value": fields("/{m}", "GET", "https", "h2.test", ("x", "a\r\nHost: evil.test")),
        "C31: a line feed in a value": fields("/{m}", "GET", "https", "h2.test", ("x", "a\nX-Evil: 1")),
        "C31: NUL in a value": fields("/{m}", "GET", "https", "h2.test", ("x", "a\0b")),
        "C31: a name with a colon": fields("/{m}", "GET", "https", "h2.test", ("x:y", "1")),
        "C31: a name in capitals": fields("/{m}", "GET", "https", "h2.test", ("X-Upper", "1")),
        "C31: a name with a line break": fields("/{m}", "GET", "https", "h2.test", ("x\r\ny", "1")),
        "C31: an empty name": fields("/{m}", "GET", "https", "h2.test", ("", "1")),
        "C31: transfer-encoding": fields("/{m}", "GET", "https", "h2.test", ("transfer-encoding", "chunked")),
        "C31: connection": fields("/{m}", "GET", "https", "h2.test", ("connection", "keep-alive")),
        "C31: upgrade": fields("/{m}", "GET", "https", "h2.test", ("upgrade", "h2c")),
        "C31: te: gzip": fields("/{m}", "GET", "https", "h2.test", ("te", "gzip")),
        "C31: a path with a space": fields("/{m} HTTP/1.1"),
        "C31: a path with a line break": fields("/{m}\r\nHost: evil.test"),
        "C31: a path without a slash": fields("{m}"),
        "C31: an empty path": [*fields()[:3], [":path", ""], ["x", "{m}"]],
        "C31: two paths": [*fields(), [":path", "/admin"]],
        "C31: an absolute URL as the path": fields("https://evil.test/{m}"),
        "C31: a path of two slashes": fields("//evil.test/{m}"),
        "C31: a fragment": fields("/{m}#x"),
        "C31: a method that is a request": fields(method="GET / HTTP/1.1\r\nHost: evil.test\r\n\r\nGET"),
        "C31: an empty method": fields(method=""),
        "C31: CONNECT": fields(method="CONNECT"),
        "C31: CONNECT in the short form": [[":method", "CONNECT"], [":authority", "evil.test:443"], ["x", "{m}"]],
        "C31: CONNECT for a protocol": [*fields(method="CONNECT"), [":protocol", "websocket"]],
        "C31: TRACE": fields(method="TRACE"),
        "C31: an unknown pseudo-field": [*fields(), [":x", "1"]],
        "C31: a pseudo-field at the end": [*fields()[:3], ["x", "1"], [":path", "/{m}"]],
        "C31: content-length twice": fields("/{m}", "POST", "https", "h2.test", ("content-length", "1"), ("content-length", "2")),
        "C31: a content-length that is none": fields("/{m}", "POST", "https", "h2.test", ("content-length", "-1")),
    }
    for what, one in wrong.items():
        gate.attempt(what, h2([one]), lambda seen: [entry for entry in seen.arrived if "fields" in entry])
    gate.attempt("C31: a body longer than its content-length", h2([{"fields": fields("/{m}", "POST", "https", "h2.test", ("content-length", "1")), "body": "longer-{m}"}]), lambda seen: [entry for entry in seen.arrived if "longer" in entry.get("body", "")])
    gate.attempt("B10: the second stream is for another", h2([fields("/first"), fields(authority="h2-bad.test")]))
    gate.attempt("B10: another SNI than the name", h2([fields()], sni="h2-bad.test"))
    gate.attempt("B10: a name without a rule", h2([fields(authority="h2-bad.test")], host="h2-bad.test", sni="h2-bad.test"))
    gate.go()


@attack("C35", conditions=("partial",), seconds=150)
def pushes(t):
    """An upstream that pushes, and that hints without end"""
    gate = Gate(t, t.world.sandbox())
    gate.control("a plain stream", h2([fields()]), lambda seen: "1 status 200" in seen.out)
    gate.control("a few interim answers", h2([fields("/interim/3?{m}")]), lambda seen: "1 status 200" in seen.out)
    gate.attempt("a push for another host reaches the guest", h2([fields("/push?{m}")]), lambda seen: "PUSH" in seen.out)
    gate.attempt("interim answers without end", h2([fields("/interim/3000?{m}")]), lambda seen: "1 status 200" in seen.out)
    gate.attempt("hints reach the guest", h2([fields("/interim/1?x{m}")]), lambda seen: "1 status other" in seen.out)
    gate.control("afterwards a stream is answered as before", h2([fields()]), lambda seen: "1 status 200" in seen.out)
    gate.control("and a request of HTTP/1.1", get("allowed.test", sni="allowed.test"))
    gate.go()
