"""TLS towards the gateway: hellos without a clear name, encrypted, torn, old; and upstreams whose certificates are wrong."""

import re

import hostile_servers
from b02_destinations import controls
from framework import attack
from gate import Gate, command, get, hello, raw


def answered(seen):
    return seen.out.startswith("handshake")


@attack("C01", "C03", "C04", "C05", conditions=("partial",), seconds=150)
def hellos(t):
    """No name, two names, an encrypted hello, one in pieces, one that is huge"""
    world = t.world
    gate = Gate(t, world.sandbox())
    gate.control("a plain hello is answered", hello("allowed.test", "allowed.test"), answered)
    gate.control("one in pieces of 40 bytes is the same hello", hello("allowed.test", "allowed.test", cut=40, wait=10), answered)
    gate.control("one over several records as well", hello("allowed.test", "allowed.test", records=100), answered)
    gate.control("one with much padding", hello("allowed.test", "allowed.test", "padding"), answered)
    gate.control("an encrypted part that nobody here can read harms no honest client", hello("allowed.test", "allowed.test", "ech"), answered)
    gate.control("a request in TLS arrives", get("allowed.test", sni="allowed.test"))
    for what, name in (("no name", ""), ("another name", "evil.test"), ("the name of another rule", "cdn-ok.test"), ("a name on the same address", "cdn-bad.test")):
        gate.attempt(f"a hello with {what}", hello("allowed.test", name), answered)
        gate.attempt(f"a hello with {what}, in pieces", hello("allowed.test", name, cut=60, wait=6), answered)
        gate.attempt(f"a hello with {what}, over records", hello("allowed.test", name, records=50), answered)
        gate.attempt(f"an encrypted hello with {what} outside", hello("allowed.test", name, "ech"), answered)
    for change in ("two names", "name type 1", "empty name", "NUL", "not UTF-8", "upper and dot", "long name", "doubled extension"):
        gate.attempt(f"a hello with {change}", hello("allowed.test", "allowed.test", change), answered)
    for sni in ("", "evil.test", world.net.evil, world.net.shared):
        gate.attempt(f"a request in TLS for {sni or 'no name'}", get("allowed.test", sni=sni))
    for what, content in {"SSLv2": "\x80\x2e\x01\x03\x01\x00\x15\x00\x00\x00\x10" + "\x01\x00\x80" * 7 + "A" * 16, "a record of 65535": "\x16\x03\x01\xff\xff\x01", "a handshake of 16 MB": "\x16\x03\x01\x00\x05\x01\xff\xff\xff\x03",
                          "records without end": "\x16\x03\x01\x00\x01\x01" * 3000, "empty records": "\x16\x03\x01\x00\x00" * 3000, "half a hello": "\x16\x03\x01\x02\x00\x01\x00"}.items():
        gate.attempt(what, raw("allowed.test", content, port=443, wait=3), lambda seen: seen.out.startswith("\x16"))
    gate.go()
    # Passed through, so that the upstream alone ends TLS: what cannot be read is not let by.
    box = world.sandbox("second")
    world.settle(box, {"mode": "allowlist", "rules": [{"name": "allowed.test", "tunnel": True}]})
    try:
        gate = Gate(t, box)
        gate.control("through a tunnel a plain hello is answered", hello("allowed.test", "allowed.test"), answered)
        for what, name, change in (("an encrypted hello", "allowed.test", "ech"), ("a hello for another", "cdn-ok.test", "plain"), ("a hello for nobody", "", "plain"), ("two names", "allowed.test", "two names"), ("NUL", "allowed.test", "NUL")):
            gate.attempt(f"through a tunnel: {what}", hello("allowed.test", name, change), answered)
            gate.attempt(f"through a tunnel, in pieces: {what}", hello("allowed.test", name, change, cut=60, wait=6), answered)
        gate.go()
    finally:
        world.settle(box)


RESUME = r"""
import socket, ssl
def context():
    c = ssl.create_default_context(); c.check_hostname = False; c.verify_mode = ssl.CERT_NONE; c.maximum_version = ssl.TLSVersion.TLSv1_2
    return c
c = context()
def go(name, session=None):
    s = c.wrap_socket(socket.create_connection((name, 443), 8), server_hostname=name, session=session)
    s.sendall(b"GET /r HTTP/1.1\r\nHost: " + name.encode() + b"\r\nConnection: close\r\n\r\n"); s.recv(100)
    return s.session, s.session_reused
first, _ = go("allowed.test")
print("again", go("allowed.test", first)[1])
try: print("other", go("cdn-ok.test", first)[1])
except Exception as e: print("other", type(e).__name__)
"""


@attack("C07", "C08", conditions=("partial",), seconds=150)
def layers(t):
    """TLS where HTTP belongs, TLS inside TLS, old versions, resumption across names, early data"""
    box = t.world.sandbox()
    gate = Gate(t, box)
    controls(gate, "raw")
    gate.control("TLS where it belongs", hello("allowed.test", "allowed.test"), answered)
    gate.attempt("TLS on the port of HTTP", hello("allowed.test", "allowed.test", port=80), answered)
    gate.attempt("TLS on a port of HTTP, after a request", hello("allowed.test", "allowed.test", port=80, early="GET / HTTP/1.1\r\nHost: allowed.test\r\n\r\n"), lambda seen: answered(seen) or "\x16\x03" in seen.out)
    gate.attempt("a handshake inside TLS", raw("allowed.test", ["GET / HTTP/1.1\r\nHost: allowed.test\r\n\r\n", "READ", "\x16\x03\x01\x00\x2f\x01{m}" + "A" * 40], sni="allowed.test", all=True, wait=3),
                 lambda seen: "\x16\x03" in seen.out or seen.arrived)
    for version in ("TLSv1", "TLSv1_1"):
        gate.attempt(f"{version} towards the gateway", get("allowed.test", sni="allowed.test", old=version), refused=False)  # TLS fails, no rule refuses
    gate.control("the same client with TLS 1.2", get("allowed.test", sni="allowed.test", old="TLSv1_2"))
    gate.attempt("renegotiation", command("(printf 'GET /r HTTP/1.1\\r\\nHost: allowed.test\\r\\n'; sleep 1; printf 'R\\n'; sleep 2; printf 'X: y\\r\\n\\r\\n'; sleep 2) | timeout 12 openssl s_client -tls1_2 -connect allowed.test:443 "
                                          "-servername allowed.test 2>&1 | tail -n 30"), lambda seen: "RENEGOTIATING" in seen.out and "verify return" in seen.out.split("RENEGOTIATING")[1])
    gate.attempt("early data", command("cd /tmp; (sleep 1; printf 'GET / HTTP/1.1\\r\\nHost: allowed.test\\r\\n\\r\\n'; sleep 1) | timeout 8 openssl s_client -tls1_3 -connect allowed.test:443 -servername allowed.test -sess_out /tmp/sess >/dev/null 2>&1; "
                                       "printf 'GET /{m} HTTP/1.1\\r\\nHost: allowed.test\\r\\n\\r\\n' > /tmp/early; timeout 8 openssl s_client -tls1_3 -connect allowed.test:443 -servername allowed.test -sess_in /tmp/sess "
                                       "-early_data /tmp/early </dev/null 2>&1 | grep -i early"), lambda seen: "was accepted" in seen.out or seen.arrived)
    gate.go()
    box.write("/tmp/resume.py", RESUME.encode())
    said = t.guest(box, "python3 /tmp/resume.py", timeout=40).stdout.decode()
    t.control("both connections were made", "again" in said and "other" in said, said)
    t.attempt("a session of one name is taken up for another", "other True" in said, said)


# openssl's words on the handshake: how many bytes went each way, and the cipher, (NONE) without one.
CIPHER = "timeout 12 openssl s_client -tls1_2 -cipher '{}:@SECLEVEL=0' -connect allowed.test:443 -servername allowed.test </dev/null 2>&1 | grep -E 'Cipher is|handshake has read|alert'"


def agreed(seen):
    return re.search(r"Cipher is [^(\s]", seen.out)


@attack("C09", "E14", conditions=("partial",), seconds=150, quick=True)
def upstreams(t):
    """Upstreams with expired, foreign, weak or misused certificates, with TLS 1.0, and credentials in the clear"""
    world = t.world
    gate = Gate(t, world.sandbox())
    gate.control("the same server with a good certificate", get("good.bad.test", sni="good.bad.test"))
    gate.control("openssl agrees on a cipher with the gateway", command(CIPHER.format("HIGH")), agreed)
    gate.attempt("openssl agrees on one that encrypts nothing", command(CIPHER.format("NULL")), agreed)
    gate.control("a credential goes to its host in TLS", get("odd.secret.test", sni="odd.secret.test"), lambda seen: world.secrets["a credential"] in str(seen.arrived))
    for kind in hostile_servers.BAD:
        gate.attempt(f"a certificate that is {kind}", get(f"{kind}.bad.test", sni=f"{kind}.bad.test", wait=8), lambda seen: seen.arrived or seen.status == "200")
    gate.attempt("an upstream of TLS 1.0 that has a credential", get("old.bad.test", sni="old.bad.test", wait=8), lambda seen: seen.arrived or seen.status == "200")
    for host in ("api.secret.test", "odd.secret.test"):
        gate.attempt(f"{host} in the clear", get(host, "/v1/{m}"), lambda seen: world.secrets["a credential"] in str(seen.arrived))
    gate.attempt("a redirect from TLS into the clear", command("curl -sS -L -m 12 'https://odd.secret.test" + hostile_servers.do("HTTP/1.1 302 Found\r\nLocation: http://odd.secret.test/{m}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").replace("{m}", "x") + "'"),
                 lambda seen: any(not entry.get("tls") and world.secrets["a credential"] in str(entry) for entry in seen.arrived))
    without = gate.go()["openssl agrees on one that encrypts nothing"]
    t.control("its hello, which offers no other, was sent", re.search(r"handshake has read \d+ bytes and written [1-9]", without.out), without)
    for entry in world.net.since(world.mark, "odd"):
        if not entry.get("tls") and entry["at"] == "odd":
            t.attempt("a credential in the clear", world.secrets["a credential"] in str(entry), entry)
    with world.attacker.events(f"{world.sandbox().path}/egress/log") as stream:
        reasons = [event.data.get("reason", "") for event in stream if str(event.data.get("name", "")).endswith(".bad.test")]
    t.control("the log says what is wrong with the certificates", any("certificate" in reason for reason in reasons), reasons[-8:])
    t.note("the gateway's words: " + "; ".join(sorted({reason[:100] for reason in reasons if reason})))
