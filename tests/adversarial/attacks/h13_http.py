"""Requests that are slow, nested, out of range, from a browser, or fishing for errors."""

import json
import re
import socket
import time

from framework import attack
from h01_other_tenants import raw


@attack("H13", seconds=60)
def slow(t):
    """Heads and bodies a byte at a time, readers that never read, on many connections"""
    api = t.world.attacker
    count = 2000 if t.world.long else 150
    held = []
    for i in range(count):
        one = socket.create_connection((api.host, api.port), 5)
        one.sendall([b"POST /v1/sandboxes HTTP/1.1\r\nHost: x\r\nAuth", f"POST /v1/sandboxes HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {api.key}\r\nContent-Length: 1000\r\n\r\n{{".encode(),
                     f"GET /v1/events?after=0 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {api.key}\r\n\r\n".encode()][i % 3])
        held.append(one)
    t.control("the connections stand", len(held) == count)
    worst = 0
    for _ in range(5):
        begun = time.monotonic()
        status = api.with_key(None).call("GET", "/v1/health", timeout=20).status
        worst = max(worst, time.monotonic() - begun)
        for one in held[:50]:
            try:
                one.send(b"a")
            except OSError:
                pass
        time.sleep(0.2)
    t.figure("slowest /health, s", round(worst, 3))
    t.attempt("health is not answered meanwhile", status != 200 or worst > 5, worst)
    for one in held:
        one.close()
    time.sleep(1)


@attack("H14", "H15", quick=True)
def values(t):
    """JSON that nests, doubles, overflows; numbers at every edge of every field"""
    api, box = t.world.attacker, t.world.sandbox()
    t.control("a good body is taken", api.call("POST", box.path + "/commands", b'{"argv":["true"]}', {"Content-Type": "application/json"}).status == 201)
    for what, body in {"nested": b"[" * 100000, "nested objects": b'{"a":' * 5000, "doubled": b'{"argv":["true"],"argv":["false"]}', "infinite": b'{"time_limit_s":1e400}', "NaN": b'{"cpus":NaN}', "half": b'{"cpus":1.0000000001}',
                       "too exact": b'{"time_limit_s":9007199254740993}', "BOM": b'\xef\xbb\xbf{}', "surrogate": b'{"template":"\\ud800"}', "comment": b'{/*x*/}', "comma": b'{"cpus":1,}', "not UTF-8": b'{"template":"\xff"}',
                       "prototype": b'{"__proto__":{"admin":true}}', "unknown": b'{"privileged":true}', "array": b"[]", "text": b'"x"', "two": b"{}{}", "NUL": b'{"env":{"A":"\\u0000"}}', "long key": b'{"' + b"k" * 70000 + b'":1}'}.items():
        answer = api.call("POST", "/v1/sandboxes", body, {"Content-Type": "application/json"})
        t.attempt(f"{what} is taken", answer.status < 400 or answer.status >= 500, f"{answer.status} {answer.body[:80]}")
    for field in ("cpus", "memory_mib", "disk_mib", "time_limit_s"):
        for value in (-1, 0, 2**31, 2**32, 2**63, 2**64, 10**18, "10", 10.5, True, [], {}, -2**63):
            answer = api.call("POST", "/v1/sandboxes", {field: value})
            if answer.status < 400:
                api.delete(answer.json["sandbox"]["id"])
            t.attempt(f"{field} = {value!r}", answer.status < 400 or answer.status >= 500, f"{answer.status} {answer.body[:80]}")
    command = box.start(["sleep", "20"])
    for body in ({"signal": "KILL", "pid": 1}, {"signal": 0}, {"signal": -9}, {"signal": "SIGNOPE"}, {"signal": 65}):
        t.attempt(f"signal {body}", command.api.call("POST", command.path + "/signal", body).status < 400)
    for rows, cols in ((-1, 80), (0, 0), (2**31, 1), ("24", "80"), (65536, 80)):
        t.attempt(f"resize {rows} {cols}", command.resize(rows, cols).status < 400)
    command.kill()


@attack("H30", "H31", quick=True)
def browser(t):
    """What a page in a browser could do to a server on this machine: text/plain JSON, another Host, CORS"""
    api = t.world.attacker
    bearer = f"Authorization: Bearer {api.key}"
    body = b'{"name":"x"}'
    post = ["POST /v1/keys HTTP/1.1", "Connection: close", bearer, f"Content-Length: {len(body)}"]
    t.control("JSON said to be JSON is taken", raw(t, [*post, "Host: x", "Content-Type: application/json"], body)[0] == 201)
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "text/plain; application/json"):
        t.attempt(f"a body said to be {kind}", raw(t, [*post, "Host: x", f"Content-Type: {kind}"], body)[0] < 400)
    for method in ("GET", "OPTIONS"):
        answer = api.call(method, "/v1/sandboxes", headers={"Origin": "http://evil.test", "Access-Control-Request-Method": "POST"})
        t.attempt(f"{method} allows another origin", any(name.lower().startswith("access-control-allow") for name in answer.headers.keys()), dict(answer.headers))
    t.attempt("a cookie is a key", raw(t, ["GET /v1/sandboxes HTTP/1.1", "Host: x", "Connection: close", f"Cookie: Authorization=Bearer {api.key}; key={api.key}"])[0] == 200)
    answer = api.call("GET", t.world.sandbox().files("content", "/etc/hostname"))
    t.attempt("a guest's file is shown as a page", "text/html" in answer.headers.get("Content-Type", "") or "Set-Cookie" in answer.headers, dict(answer.headers))


@attack("H37", quick=True)
def errors(t):
    """Errors that tell about the inside: paths, addresses, SQL, traces"""
    api, box = t.world.attacker, t.world.sandbox()
    bodies = [api.call(method, path, body).body.decode(errors="replace") for method, path, body in (
        ("GET", "/v1/nothing", None), ("POST", "/v1/sandboxes", b"{"), ("GET", "/v1/sandboxes?after='", None), ("GET", "/v1/operations?sandbox=' OR 1=1 --".replace(" ", "%20"), None),
        ("POST", box.path + "/commands", {"argv": ["/nonexistent"]}), ("GET", box.files("content", "/nonexistent"), None), ("DELETE", "/v1/sandboxes", None), ("PUT", box.files("content", "/proc/1/mem"), b"x"),
        ("GET", "/v1/templates/nothing", None), ("POST", "/v1/sandboxes", {"template": "nothing"}))]
    t.control("errors say what is wrong", sum('"code"' in body for body in bodies) >= 8, [body[:60] for body in bodies])
    for body in bodies:
        t.attempt("an error tells about the inside", bool(re.search(r"SELECT|sqlite|\.cc:|/src/|std::|terminate|0x[0-9a-f]{8,}|" + re.escape(str(t.world.server.folder)), body)), body[:200])
    t.attempt("the head names a version", re.search(r"\d+\.\d+", api.call("GET", "/v1/health").headers.get("Server", "")) is not None)
    json.loads(bodies[1])
