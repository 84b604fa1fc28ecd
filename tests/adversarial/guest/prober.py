"""prober.py STEPS: runs in the guest as root; carries out the steps of a JSON file, several at a time, and prints what each saw as JSON.
A step has an `id`, a `kind` and what that function takes. Texts are latin-1, so that every byte can be said."""

import json
import os
import re
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time

WAIT = 4


def b(text):
    return text.encode("latin1")


def read(s, wait, until_over=True, limit=20000):
    s.settimeout(wait)
    out = b""
    until = time.monotonic() + wait
    try:
        while len(out) < limit and time.monotonic() < until:
            piece = s.recv(65536)
            if not piece:
                break
            out += piece
            if until_over and whole(out):
                break
    except OSError as error:
        return out, type(error).__name__
    return out, ""


def whole(out):
    """An answer of HTTP/1.1 that is over, so that nobody waits for the connection's end."""
    head, found, body = out.partition(b"\r\n\r\n")
    if not found or head.startswith(b"HTTP/1.1 1"):
        return False
    length = re.search(rb"(?i)\r\ncontent-length: (\d+)", head)
    return len(body) >= int(length.group(1)) if length else body.endswith(b"0\r\n\r\n")


def trusting():
    """A context that believes any certificate. Not the default one: that reads a hundred authorities each time."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def tls(s, step):
    context = trusting()
    if step.get("old"):
        context.set_ciphers("ALL:@SECLEVEL=0")
        context.minimum_version, context.maximum_version = ssl.TLSVersion.TLSv1, getattr(ssl.TLSVersion, step["old"])
    if step.get("alpn"):
        context.set_alpn_protocols(step["alpn"])
    return context.wrap_socket(s, server_hostname=step["sni"] or None)


def raw(step):
    """host, port, send (a text, or a list of texts and pauses in seconds), sni (absent: in the clear), all (read on until the end)"""
    with socket.create_connection((step["host"], step["port"]), step.get("wait", WAIT)) as s:
        s = tls(s, step) if "sni" in step else s
        out = b""
        pieces = step["send"] if isinstance(step["send"], list) else [step["send"]]
        for piece in pieces:
            if isinstance(piece, (int, float)):
                time.sleep(piece)
            elif piece == "READ":
                got, _ = read(s, step.get("wait", WAIT))
                out += got
            else:
                s.sendall(b(piece))
        got, error = read(s, step.get("wait", WAIT), not step.get("all"))
        s.close()
        return {"out": (out + got).decode("latin1"), "error": error}


def hello_of(name, alpn=()):
    """The bytes of a plain ClientHello for this name."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = trusting()
    if alpn:
        context.set_alpn_protocols(list(alpn))
    connection = context.wrap_bio(incoming, outgoing, server_hostname=name or None)
    try:
        connection.do_handshake()
    except ssl.SSLWantReadError:
        pass
    return outgoing.read()


def with_extensions(hello, change):
    """`change` gets the list of (type, content) and gives another; lengths are made right again."""
    body = hello[9:]
    at = 2 + 32
    at += 1 + body[at]
    at += 2 + int.from_bytes(body[at:at + 2], "big")
    at += 1 + body[at]
    fixed, rest, found = body[:at], body[at + 2:], []
    while rest:
        kind, size = struct.unpack(">HH", rest[:4])
        found.append((kind, rest[4:4 + size]))
        rest = rest[4 + size:]
    packed = b"".join(struct.pack(">HH", kind, len(content)) + content for kind, content in change(found))
    body = fixed + struct.pack(">H", len(packed)) + packed
    return b"\x16\x03\x01" + struct.pack(">H", len(body) + 4) + b"\x01" + struct.pack(">I", len(body))[1:] + body


def server_names(*names):
    packed = b"".join(bytes((kind,)) + struct.pack(">H", len(name)) + name for kind, name in names)
    return 0, struct.pack(">H", len(packed)) + packed


ECH = (0xFE0D, b"\x00" + struct.pack(">HH", 1, 1) + b"\x07" + struct.pack(">H", 32) + os.urandom(32) + struct.pack(">H", 200) + os.urandom(200))
CHANGES = {
    "plain": lambda list: list,
    "ech": lambda list: [*list, ECH],
    "two names": lambda list: [server_names((0, b"allowed.test"), (0, b"evil.test")) if kind == 0 else (kind, content) for kind, content in list],
    "name type 1": lambda list: [server_names((1, b"allowed.test")) if kind == 0 else (kind, content) for kind, content in list],
    "empty name": lambda list: [server_names((0, b"")) if kind == 0 else (kind, content) for kind, content in list],
    "NUL": lambda list: [server_names((0, b"evil.test\0.allowed.test")) if kind == 0 else (kind, content) for kind, content in list],
    "not UTF-8": lambda list: [server_names((0, b"allowed.test\xff\xfe")) if kind == 0 else (kind, content) for kind, content in list],
    "upper and dot": lambda list: [server_names((0, b"EVIL.test.")) if kind == 0 else (kind, content) for kind, content in list],
    "long name": lambda list: [server_names((0, b"a" * 12000)) if kind == 0 else (kind, content) for kind, content in list],
    "doubled extension": lambda list: [*list, server_names((0, b"evil.test"))],
    "padding": lambda list: [(21, bytes(14000)), *[one for one in list if one[0] != 21]],
}


def hello(step):
    """host, port, name, change, cut (bytes a piece), records (split over TLS records of so many bytes), early (sent before it)"""
    content = with_extensions(hello_of(step["name"]), CHANGES[step.get("change", "plain")])
    if step.get("records"):
        body, size = content[5:], step["records"]
        content = b"".join(b"\x16\x03\x01" + struct.pack(">H", len(body[n:n + size])) + body[n:n + size] for n in range(0, len(body), size))
    with socket.create_connection((step["host"], step["port"]), WAIT) as s:
        if step.get("early"):
            s.sendall(b(step["early"]))
            time.sleep(0.3)
        size = step.get("cut") or len(content)
        for n in range(0, len(content), size):
            s.sendall(content[n:n + size])
            if size < len(content):
                time.sleep(0.01)
        s.settimeout(step.get("wait", WAIT))
        try:
            got = s.recv(4096)
        except OSError as error:
            return {"out": "", "error": type(error).__name__}
        kind = {22: "handshake", 21: "alert"}.get(got[0], "other") if got else "closed"
        return {"out": kind + " " + got[:200].decode("latin1"), "error": ""}


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes((kind, flags)) + struct.pack(">I", stream) + payload


def length_of(size):
    return bytes((size,)) if size < 127 else bytes((127,)) + varint(size - 127)


def varint(value):
    out = b""
    while value >= 128:
        out += bytes((value & 127 | 128,))
        value >>= 7
    return out + bytes((value,))


def h2(step):
    """host, sni, requests: each {"fields": [[name, value]], "body": text, "end": bool}; what came for each stream"""
    with socket.create_connection((step["host"], step.get("port", 443)), WAIT) as s:
        s = tls(s, {"sni": step["sni"], "alpn": ["h2", "http/1.1"]})
        if s.selected_alpn_protocol() != "h2":
            return {"out": "no h2", "error": ""}
        s.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0))
        for number, request in enumerate(step["requests"]):
            block = b"".join(b"\0" + length_of(len(b(name))) + b(name) + length_of(len(b(value))) + b(value) for name, value in request["fields"])
            body, stream = b(request.get("body", "")), 2 * number + 1
            s.sendall(frame(1, 4 | (0 if body or request.get("open") else 1), stream, block) + (frame(0, 1, stream, body) if body else b""))
        s.settimeout(step.get("wait", WAIT))
        seen, held, open_streams = [], b"", {2 * n + 1 for n in range(len(step["requests"]))}
        until = time.monotonic() + step.get("wait", WAIT)
        try:
            while open_streams and time.monotonic() < until:
                piece = s.recv(65536)
                if not piece:
                    seen.append("closed")
                    break
                held += piece
                while len(held) >= 9 and len(held) >= 9 + int.from_bytes(held[:3], "big"):
                    size, kind, flags, stream = int.from_bytes(held[:3], "big"), held[3], held[4], int.from_bytes(held[5:9], "big")
                    payload, held = held[9:9 + size], held[9 + size:]
                    if kind == 1:
                        seen.append(f"{stream} status {'200' if payload[:1] == bytes((0x88,)) else 'other'}")
                    elif kind == 0:
                        seen.append(f"{stream} data {payload[:100].decode('latin1')}")
                    elif kind == 3:
                        seen.append(f"{stream} reset")
                    elif kind == 5:
                        seen.append(f"{stream} PUSH_PROMISE")
                    elif kind == 7:
                        seen.append("goaway")
                        open_streams.clear()
                    if kind == 3 or kind in (0, 1) and flags & 1:
                        open_streams.discard(stream)
        except OSError as error:
            seen.append(type(error).__name__)
        return {"out": "\n".join(seen), "error": ""}


def dns(step):
    """server, labels (raw), type, tcp, more (bytes after the question, hex), additional (their count)"""
    name = b"".join(bytes((len(b(label)) & 255,)) + b(label) for label in step["labels"]) + b"\0"
    message = os.urandom(2) + struct.pack(">5H", 256, 1, 0, 0, step.get("additional", 0)) + name + struct.pack(">2H", step.get("type", 1), 1) + bytes.fromhex(step.get("more", ""))
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM if step.get("tcp") else socket.SOCK_DGRAM) as s:
        s.settimeout(step.get("wait", 2))
        s.connect((step.get("server", "10.0.0.1"), 53))
        s.sendall(struct.pack(">H", len(message)) + message if step.get("tcp") else message)
        answer = s.recv(65535)[2 if step.get("tcp") else 0:]
    count = struct.unpack(">H", answer[6:8])[0] if len(answer) >= 12 else 0
    return {"out": f"rcode {answer[3] & 15} answers {count} {answer.hex()}" if len(answer) >= 12 else "short", "error": ""}


def command(step):
    done = subprocess.run(step["command"], shell=True, capture_output=True, timeout=step.get("wait", 25), executable="/bin/bash", cwd="/tmp",
                          env={"HOME": "/root", "PATH": os.environ["PATH"], **{k: v for k, v in os.environ.items() if "SSL" in k or "CA" in k}})
    return {"out": (done.stdout + done.stderr)[-8000:].decode("latin1") + f"\ncode {done.returncode}", "error": ""}


KINDS = {"raw": raw, "hello": hello, "h2": h2, "dns": dns, "command": command}
results, lock, steps = {}, threading.Lock(), json.load(open(sys.argv[1]))


def work():
    while True:
        with lock:
            if not steps:
                return
            step = steps.pop(0)
        begun = time.monotonic()
        try:
            result = KINDS[step["kind"]](step)
        except Exception as error:
            result = {"out": "", "error": f"{type(error).__name__}: {error}"}
        result["seconds"] = round(time.monotonic() - begun, 2)
        with lock:
            results[step["id"]] = result


threads = [threading.Thread(target=work) for _ in range(int(sys.argv[2]) if len(sys.argv) > 2 else 6)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(json.dumps(results))
