"""Servers of the fake internet that do what an attacker who owns an allowed host would do. Part of fake_internet.py (`hostile`), run inside
its namespace; everything that arrives is in its log.

| at | what |
|---|---|
| odd | HTTP/1 that answers what the request's path says: `/do/BASE64URL(JSON)`, a list of steps (below). TLS by the certificate that the name stands for |
| h2 | HTTP/2: `/push` pushes, `/interim/N` sends N answers of status 103 first, everything else gets a line |
| odd, at the address `old` | the same in TLS 1.0 and 1.1 alone |
| proxy | an open proxy: CONNECT and absolute URLs, to any name of the zone |

Steps: "text" is sent as it is, with {auth} replaced by the request's Authorization, {auth64}, {authpct}, {authjson} by forms of it, {auth64:N} by base64 of N bytes and the secret alone, {gzip:text} by its
compressed form; a number waits so many seconds; ["zeros", MB] sends that much compressed nothing as a body; "KEEP" goes on with the next request.
With "EARLY" first the answer does not wait for the request's body.
"""

import base64
import ctypes
import gzip
import json
import re
import socket
import ssl
import struct
import subprocess
import threading
import urllib.parse
import zlib
from pathlib import Path

BAD = ("expired", "wrong", "selfsigned", "unknown", "sha1", "short", "client", "constrained")


def do(*steps):
    """The path that makes the odd server carry out these steps."""
    return "/do/" + base64.urlsafe_b64encode(json.dumps(list(steps)).encode()).decode()


# ---- certificates ----

def make_certificates(folder):
    """bad-KIND.pem: key and chain for KIND.bad.test, each wrong in the way that its name says."""
    def openssl(*words):
        subprocess.run(("openssl", *words), check=True, capture_output=True, cwd=folder)

    def request(kind, *key):
        openssl("req", "-new", "-newkey", *key, "-nodes", "-subj", f"/CN={kind}", "-keyout", f"{kind}.key", "-out", f"{kind}.csr")

    def sign(kind, extensions, *more, ca="ca.pem", ca_key="ca.key"):
        Path(folder, f"{kind}.ext").write_text(extensions)
        openssl("x509", "-req", "-in", f"{kind}.csr", "-CA", ca, "-CAkey", ca_key, "-CAcreateserial", "-extfile", f"{kind}.ext", "-out", f"{kind}.crt", *(more or ("-days", "2")))

    curve = ("ec", "-pkeyopt", "ec_paramgen_curve:P-256")
    names = {kind: f"subjectAltName=DNS:{kind}.bad.test\nbasicConstraints=CA:FALSE\nextendedKeyUsage=serverAuth\n" for kind in BAD}
    for kind in BAD:
        request(kind, *(("rsa:1024",) if kind == "short" else curve))
    sign("expired", names["expired"], "-days", "-1")
    sign("wrong", "subjectAltName=DNS:right.bad.test,DNS:*.other.test\n")
    sign("sha1", names["sha1"], "-sha1", "-days", "2")
    sign("short", names["short"])
    sign("client", "subjectAltName=DNS:client.bad.test\nextendedKeyUsage=clientAuth\n")
    for ca, more in (("unknownca", "basicConstraints=critical,CA:TRUE\n"), ("narrowca", "basicConstraints=critical,CA:TRUE\nnameConstraints=critical,permitted;DNS:other.test\n")):
        request(ca, *curve)
        if ca == "narrowca":
            sign(ca, more)
        else:
            Path(folder, "self.ext").write_text(more)
            openssl("x509", "-req", "-in", f"{ca}.csr", "-key", f"{ca}.key", "-days", "2", "-extfile", "self.ext", "-out", f"{ca}.crt")
    sign("unknown", names["unknown"], ca="unknownca.crt", ca_key="unknownca.key")
    sign("constrained", names["constrained"], ca="narrowca.crt", ca_key="narrowca.key")
    Path(folder, "self.ext").write_text(names["selfsigned"])
    openssl("x509", "-req", "-in", "selfsigned.csr", "-key", "selfsigned.key", "-days", "2", "-extfile", "self.ext", "-out", "selfsigned.crt")
    for kind in BAD:
        chain = [f"{kind}.key", f"{kind}.crt"] + (["narrowca.crt"] if kind == "constrained" else [])
        Path(folder, f"bad-{kind}.pem").write_text("".join(Path(folder, name).read_text() for name in chain))


def contexts(folder, protocols=(), old=False):
    """The server's TLS, which takes the certificate by the name that the client asks for; `old`: one that speaks TLS 1.0 and 1.1 alone."""
    def context(chain, key=None, old=False):
        made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        made.set_ciphers("ALL:@SECLEVEL=0")
        if old:
            made.minimum_version, made.maximum_version = ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1
        made.load_cert_chain(chain, key)
        if protocols:
            made.set_alpn_protocols(list(protocols))
        return made
    if old:
        return context(folder / "cert.pem", folder / "key.pem", old=True)
    good = context(folder / "cert.pem", folder / "key.pem")
    by_name = {f"{kind}.bad.test": context(folder / f"bad-{kind}.pem") for kind in BAD}

    def choose(connection, name, _):
        if name in by_name:
            connection.context = by_name[name]
    good.sni_callback = choose
    return good


def listen(address, port, serve):
    listener = socket.create_server((address, port), backlog=64)

    def guarded(connection):
        try:
            serve(connection)
        except (OSError, ValueError, IndexError, KeyError, struct.error):
            pass
        finally:
            connection.close()

    def accept():
        while True:
            threading.Thread(target=guarded, args=(listener.accept()[0],), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()


# ---- HTTP/1 that answers as it is told ----

class Odd:
    def __init__(self, log, tls):
        self.log, self.tls, self.number = log, tls, 0

    def __call__(self, connection):
        connection.settimeout(20)
        if self.tls:
            connection = self.tls.wrap_socket(connection, server_side=True)
        self.number += 1
        me, held = self.number, b""

        def until(end):
            nonlocal held
            while end not in held if isinstance(end, bytes) else len(held) < end:
                piece = connection.recv(65536)
                if not piece:
                    raise ValueError("closed")
                held += piece
            size = held.index(end) + len(end) if isinstance(end, bytes) else end
            out, held = held[:size], held[size:]
            return out

        def body(headers):
            if headers.get("Transfer-Encoding") == "chunked":
                while size := int(until(b"\r\n").split(b";")[0], 16):
                    until(size + 2)
                while until(b"\r\n") != b"\r\n":
                    pass
            else:
                until(int(headers.get("Content-Length", 0)))
        while True:
            head = until(b"\r\n\r\n")[:-4]
            lines = head.decode("latin1").split("\r\n")
            method, path = (lines[0].split(" ") + ["", ""])[:2]
            fields = [line.split(": ", 1) for line in lines[1:] if ": " in line]
            headers = dict(fields)
            self.log.write("odd", method=method, path=path, host=headers.get("Host"), tls=self.tls is not None, headers=headers, connection=me, lines=lines, rest=held[:200].decode("latin1"))
            found = re.search(r"/do/([\w=-]+)", path)
            steps = json.loads(base64.urlsafe_b64decode(found.group(1))) if found else ["HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nodd\n", "KEEP"]
            early = steps[0] == "EARLY"
            if not early:
                body(headers)
            if not self.answer(connection, steps[early:], headers):
                return
            if early:
                body(headers)

    def answer(self, connection, steps, headers):
        auth = headers.get("Authorization", "none")
        for step in steps:
            if step == "KEEP":
                return True
            if isinstance(step, (int, float)):
                threading.Event().wait(step)
            elif isinstance(step, list):
                self.zeros(connection, step[1])
            else:
                connection.sendall(self.filled(step, auth))
        return False

    @staticmethod
    def filled(text, auth):
        forms = {"{auth64}": base64.b64encode(auth.encode()).decode(), "{authpct}": urllib.parse.quote(auth), "{authjson}": json.dumps(auth), "{auth}": auth}
        for name, value in forms.items():
            text = text.replace(name, value)
        text = re.sub(r"\{auth64:(\d)\}", lambda found: base64.b64encode(b"~" * int(found.group(1)) + auth.split(" ")[-1].encode() + b"!").decode(), text)
        content = text.encode("latin1")
        packed = re.search(rb"\{gzip:(.*?)\}", content, re.DOTALL)
        if packed:
            small = gzip.compress(packed.group(1))
            content = content.replace(packed.group(0), b"%x\r\n" % len(small) + small + b"\r\n0\r\n\r\n")  # as one chunk
        return content

    @staticmethod
    def zeros(connection, megabytes):
        packer, piece = zlib.compressobj(9, zlib.DEFLATED, 31), bytes(1 << 20)
        for i in range(megabytes):
            part = packer.compress(piece) + (packer.flush() if i == megabytes - 1 else b"")
            if part:
                connection.sendall(b"%x\r\n" % len(part) + part + b"\r\n")
        connection.sendall(b"0\r\n\r\n")


# ---- HTTP/2 ----

class Nv(ctypes.Structure):
    _fields_ = [("name", ctypes.c_void_p), ("value", ctypes.c_void_p), ("namelen", ctypes.c_size_t), ("valuelen", ctypes.c_size_t), ("flags", ctypes.c_uint8)]


class Inflater:
    """HPACK by the library that the gateway is built on (RFC 7541)."""

    def __init__(self):
        self.library = ctypes.CDLL("libnghttp2.so.14")
        self.library.nghttp2_hd_inflate_hd2.restype = ctypes.c_ssize_t
        self.state = ctypes.c_void_p()
        self.library.nghttp2_hd_inflate_new(ctypes.byref(self.state))

    def fields(self, block):
        found, kept = [], ctypes.create_string_buffer(block, len(block))
        at, left = ctypes.addressof(kept), len(block)
        while True:
            nv, flags = Nv(), ctypes.c_int(0)
            used = self.library.nghttp2_hd_inflate_hd2(self.state, ctypes.byref(nv), ctypes.byref(flags), ctypes.c_void_p(at), ctypes.c_size_t(left), ctypes.c_int(1))
            if used < 0:
                raise ValueError("broken header block")
            at, left = at + used, left - used
            if flags.value & 2:  # a field was emitted
                found.append([ctypes.string_at(nv.name, nv.namelen).decode("latin1"), ctypes.string_at(nv.value, nv.valuelen).decode("latin1")])
            if flags.value & 1:  # the end
                self.library.nghttp2_hd_inflate_end_headers(self.state)
                return found
            if left == 0 and not flags.value:
                raise ValueError("half a header block")


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes((kind, flags)) + struct.pack(">I", stream) + payload


def literal(name, value):
    name, value = name.encode(), value.encode()
    return bytes((0, len(name))) + name + bytes((len(value),)) + value


class Http2:
    def __init__(self, log, tls):
        self.log, self.tls = log, tls

    def __call__(self, connection):
        connection.settimeout(20)
        connection = self.tls.wrap_socket(connection, server_side=True)
        if connection.selected_alpn_protocol() != "h2":
            self.log.write("h2", path="not h2")
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: close\r\n\r\nh1\n")
            return
        held, inflater = b"", Inflater()

        def take(size):
            nonlocal held
            while len(held) < size:
                piece = connection.recv(65536)
                if not piece:
                    raise ValueError("closed")
                held += piece
            out, held = held[:size], held[size:]
            return out
        take(24)
        connection.sendall(frame(4, 0, 0))
        while True:
            head = take(9)
            payload = take(int.from_bytes(head[:3], "big"))
            kind, flags, stream = head[3], head[4], int.from_bytes(head[5:], "big")
            if kind == 4 and not flags & 1:
                connection.sendall(frame(4, 1, 0))
            elif kind == 6 and not flags & 1:
                connection.sendall(frame(6, 1, 0, payload))
            elif kind == 0:
                self.log.write("h2", stream=stream, body=payload[:200].decode("latin1"), path="data")
                if payload:
                    connection.sendall(frame(8, 0, 0, struct.pack(">I", len(payload))))
            elif kind == 1:
                block = payload[1:len(payload) - payload[0]] if flags & 8 else payload
                block = block[5:] if flags & 0x20 else block
                while not flags & 4:  # CONTINUATION
                    head = take(9)
                    block, flags = block + take(int.from_bytes(head[:3], "big")), flags | head[4] & 4
                fields = inflater.fields(block)
                named = dict(fields)
                self.log.write("h2", stream=stream, fields=fields, path=named.get(":path"), host=named.get(":authority"), method=named.get(":method"))
                self.answer(connection, stream, named.get(":path", ""))

    @staticmethod
    def answer(connection, stream, path):
        out = b""
        if path.startswith("/push"):
            promised = b"\x82\x87\x84" + literal(":authority", "evil.test")
            out += frame(5, 4, stream, struct.pack(">I", 2) + promised) + frame(1, 4, 2, b"\x88") + frame(0, 1, 2, b"PUSHED")
        count = re.match(r"/interim/(\d+)", path)
        for _ in range(int(count.group(1)) if count else 0):
            out += frame(1, 4, stream, b"\x08\x03103" + literal("link", "<https://evil.test/>; rel=preload"))
        body = f"h2 {path}\n".encode()
        connection.sendall(out + frame(1, 4, stream, b"\x88") + frame(0, 1, stream, body[:16000]))


# ---- an open proxy ----

class Proxy:
    def __init__(self, log, zone, tls):
        self.log, self.zone, self.tls = log, zone, tls

    def __call__(self, connection):
        connection.settimeout(20)
        if self.tls:
            connection = self.tls.wrap_socket(connection, server_side=True)
        head = b""
        while b"\r\n\r\n" not in head and (piece := connection.recv(65536)):
            head += piece
        lines = head.decode("latin1").split("\r\n")
        method, target = (lines[0].split(" ") + ["", ""])[:2]
        self.log.write("proxy", method=method, path=target, lines=lines)
        place = target if method == "CONNECT" else urllib.parse.urlsplit(target).netloc
        if not place:
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\nConnection: close\r\n\r\nproxy\n")
            return
        name, _, port = place.partition(":")
        with socket.create_connection((self.zone.get(name, name), int(port or 80)), 10) as far:
            if method == "CONNECT":
                connection.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            else:
                parts = urllib.parse.urlsplit(target)
                far.sendall(f"{method} {parts.path or '/'} HTTP/1.1\r\nHost: {parts.netloc}\r\nConnection: close\r\n\r\n".encode("latin1"))
            pump = threading.Thread(target=relay, args=(far, connection), daemon=True)
            pump.start()
            relay(connection, far)
            pump.join(20)


def relay(source, target):
    try:
        while piece := source.recv(65536):
            target.sendall(piece)
    except OSError:
        pass
    try:
        target.shutdown(socket.SHUT_WR)
    except OSError:
        pass


def serve(settings, log):
    folder = Path(settings["folder"])
    listen(settings["odd"], 80, Odd(log, None))
    listen(settings["odd"], 443, Odd(log, contexts(folder)))
    listen(settings["h2"], 443, Http2(log, contexts(folder, ("h2", "http/1.1"))))
    listen(settings["proxy"], 80, Proxy(log, settings["zone"], None))
    listen(settings["old"], 443, Odd(log, contexts(folder, old=True)))
    listen(settings["proxy"], 443, Proxy(log, settings["zone"], contexts(folder)))
