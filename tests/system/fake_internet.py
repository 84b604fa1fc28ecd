"""An internet of one namespace: an authoritative DNS server, HTTP and HTTPS servers that share an address, servers that reflect, attack
and listen, and small package indexes. Only the gateway reaches it: a veth pair and a route to a block of public addresses that no
guest knows. Everything that arrives is written down, so that a test can say what did not.

    net = FakeInternet()          # needs root
    net.zone["allowed.test"] = net.shared
    net.resolver                  # "11.x.y.2:53", for --egress-resolver
    net.ca                        # file with the authority of its HTTPS servers, for --egress-ca
    net.seen("evil")              # what the server of that name got
    net.close()

This file is also the program that runs inside the namespace.
"""

import ctypes
import json
import os
import random
import shutil
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

CLONE_NEWNET = 0x40000000


def run(*words):
    subprocess.run(words, check=True, capture_output=True)


class FakeInternet:
    """Addresses are base+n: 2 DNS, 3 shared by many names, 4 the attacker's; with `hostile`, of hostile_servers.py: 5 a server that
    answers whatever the request says, 6 HTTP/2, 7 an open proxy, 8 old TLS. 9 is free for a test's own servers."""

    hostile = False

    def __init__(self):
        self.folder = Path(tempfile.mkdtemp(prefix="space-internet-", dir=os.environ.get("SPACE_TEST_DIR")))
        self.folder.chmod(0o755)
        self.block = f"11.{random.randint(1, 250)}.{random.randint(0, 250)}"
        self.name = f"spi{random.randint(0, 10**6)}"
        self.dns, self.shared, self.evil = f"{self.block}.2", f"{self.block}.3", f"{self.block}.4"
        self.odd, self.h2, self.proxy, self.old = (f"{self.block}.{n}" for n in (5, 6, 7, 8))
        self.own = f"{self.block}.9"
        self.resolver = f"{self.dns}:53"
        self.zone = {}
        self.ca = self.folder / "ca.pem"
        self.process = None
        self.entries, self.read_to, self.reading = [], 0, threading.Lock()
        self._wire()

    def _wire(self):
        peer = self.name + "p"
        run("ip", "netns", "add", self.name)
        run("ip", "link", "add", self.name, "type", "veth", "peer", "name", peer, "netns", self.name)
        run("ip", "link", "set", self.name, "up")
        run("ip", "addr", "add", f"{self.block}.1/24", "dev", self.name)
        inside = ("ip", "-n", self.name)
        run(*inside, "link", "set", "lo", "up")
        for n in range(2, 10):
            run(*inside, "addr", "add", f"{self.block}.{n}/24", "dev", peer)
        run(*inside, "link", "set", peer, "up")

    def authority(self, names):
        """A certificate authority of its own and one certificate for all names; `bad` ones are made by the tests that need them."""
        key, csr, ext = self.folder / "key.pem", self.folder / "csr.pem", self.folder / "ext"
        run("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", "/CN=fake internet",
            "-keyout", str(self.folder / "ca.key"), "-out", str(self.ca), "-addext", "basicConstraints=critical,CA:TRUE", "-addext", "keyUsage=critical,keyCertSign")
        ext.write_text("subjectAltName=" + ",".join("DNS:" + name for name in names) + "\nbasicConstraints=CA:FALSE\nextendedKeyUsage=serverAuth\n")
        run("openssl", "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=server", "-keyout", str(key), "-out", str(csr))
        run("openssl", "x509", "-req", "-in", str(csr), "-CA", str(self.ca), "-CAkey", str(self.folder / "ca.key"), "-CAcreateserial", "-days", "2",
            "-extfile", str(ext), "-out", str(self.folder / "cert.pem"))

    def start(self):
        certified = [name for name in self.zone if not name.startswith("*")] + [name for name in self.zone if name.startswith("*")]
        self.authority(sorted(set(certified) | {"self.test"}))
        settings = {"zone": self.zone, "dns": self.dns, "shared": self.shared, "evil": self.evil, "folder": str(self.folder), "namespace": self.name}
        if self.hostile:
            import hostile_servers
            hostile_servers.make_certificates(self.folder)
            settings.update(odd=self.odd, h2=self.h2, proxy=self.proxy, old=self.old)
        self.process = subprocess.Popen([sys.executable, __file__, json.dumps(settings)], stdout=subprocess.PIPE, text=True)
        if self.process.stdout.readline().strip() != "ready":
            raise AssertionError("the fake internet did not start")
        return self

    def seen(self, who=None):
        """Everything that arrived, or what arrived at one of: dns, shared, evil."""
        log = self.folder / "seen"
        with self.reading:  # what is new since the last time: attacks ask often, and the log grows long
            if log.exists():
                with open(log, "rb") as file:
                    file.seek(self.read_to)
                    piece = file.read()
                lines = piece[:piece.rfind(b"\n") + 1]
                self.read_to += len(lines)
                self.entries += map(json.loads, lines.splitlines())
            return [entry for entry in self.entries if who is None or entry["at"] == who]

    def mark(self):
        return len(self.seen())

    def since(self, mark, who=None):
        return [entry for entry in self.seen()[mark:] if who is None or entry["at"] == who]

    def close(self):
        if self.process:
            self.process.kill()
            self.process.wait()
            self.process.stdout.close()
        subprocess.run(["ip", "link", "del", self.name], capture_output=True)
        subprocess.run(["ip", "netns", "del", self.name], capture_output=True)
        shutil.rmtree(self.folder, ignore_errors=True)


# ---- inside the namespace ----

class Log:
    def __init__(self, folder):
        self.file = open(Path(folder) / "seen", "a", buffering=1)
        self.lock = threading.Lock()

    def write(self, at, **what):
        with self.lock:
            self.file.write(json.dumps({"at": at, "time": time.time(), **what}) + "\n")


PLAIN_EDNS = "00002904d0000000000000"  # an OPT record with nothing in it, as resolvers send it
TURNS = {}


def answer_dns(query, zone, log):
    ident, flags, questions = struct.unpack(">3H", query[:6])
    labels, at = [], 12
    while query[at]:
        labels.append(query[at + 1:at + 1 + query[at]].decode("latin1"))
        at += query[at] + 1
    kind, = struct.unpack(">H", query[at + 1:at + 3])
    question = query[12:at + 5]
    name = ".".join(labels).lower()
    # What a resolver adds or spells in its own way, it could have from the guest.
    plain = query[at + 5:].hex() in ("", PLAIN_EDNS) and ".".join(labels) == name
    log.write("dns", name=name, kind=kind, **({} if plain else {"raw": query.decode("latin1")}))
    value = zone.get(name) or zone.get("*." + ".".join(labels[1:]).lower())
    if isinstance(value, str) and value.startswith("turns:"):  # another answer each time that the same is asked
        turns = value[6:].split(",")
        TURNS[name, kind] = TURNS.get((name, kind), -1) + 1
        value = turns[min(TURNS[name, kind], len(turns) - 1)]
    answers = b""
    count = 0
    for one in value if isinstance(value, list) else [value] if value else []:
        if one.startswith("cname:"):
            target = b"".join(bytes([len(label)]) + label.encode() for label in one[6:].split(".")) + b"\0"
            answers += b"\xc0\x0c" + struct.pack(">2HIH", 5, 1, 1, len(target)) + target
            count += 1
        elif ":" in one and kind == 28:
            answers += b"\xc0\x0c" + struct.pack(">2HIH", 28, 1, 1, 16) + socket.inet_pton(socket.AF_INET6, one)
            count += 1
        elif ":" not in one and kind == 1:
            answers += b"\xc0\x0c" + struct.pack(">2HIH", 1, 1, 1, 4) + socket.inet_aton(one)
            count += 1
    code = 0 if value else 3
    return struct.pack(">6H", ident, 0x8400 | code, 1, count, 0, 0) + question + answers


def serve_dns(settings, log):
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    udp.bind((settings["dns"], 53))
    while True:
        query, peer = udp.recvfrom(4096)
        try:
            udp.sendto(answer_dns(query, settings["zone"], log), peer)
        except Exception as error:  # a broken query is written down, not answered
            log.write("dns", error=repr(error))


def handler(at, log):
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def reply(self, body, status=200, **headers):
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name.replace("_", "-"), value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def everything(self):
            length = int(self.headers.get("Content-Length") or 0)
            body = self.rfile.read(length) if length else b""
            if self.headers.get("Transfer-Encoding") == "chunked":
                while size := int(self.rfile.readline().split(b";")[0], 16):
                    body += self.rfile.read(size)
                    self.rfile.readline()
                self.rfile.readline()
            tls = isinstance(self.connection, ssl.SSLSocket)
            log.write(at, method=self.command, path=self.path, host=self.headers.get("Host"), tls=tls, headers=dict(self.headers), size=len(body),
                      body=body[:200].decode("latin1"))
            path = self.path.split("?")[0]
            if path == "/reflect":
                return self.reply(json.dumps({"headers": dict(self.headers), "body": body.decode("latin1")}).encode(), X_Reflect=self.headers.get("Authorization", "none"))
            if path == "/redir":
                return self.reply(b"", 302, Location=self.path.split("to=", 1)[1])
            if path == "/big":
                return self.reply(b"x" * 3_000_000)
            if path == "/slow":  # ?s=30: so many seconds
                time.sleep(float(self.path.partition("?s=")[2] or 2))
            if self.headers.get("Upgrade", "").lower() == "websocket":
                return self.websocket()
            files = Path(self.server.folder) / "www"
            wanted = (files / path.lstrip("/")).resolve()
            if path.endswith("/"):
                wanted = wanted / "index.html"
            if path != "/" and files.resolve() in wanted.parents and wanted.is_file():
                return self.reply(wanted.read_bytes(), Content_Type="text/html" if wanted.suffix == ".html" else "application/octet-stream")
            if path.startswith("/pkg/"):
                return self.reply(b"not there\n", 404)
            self.reply(f"{at} {self.command} {self.headers.get('Host')} {self.path}\n".encode())

        def handle(self):
            try:
                super().handle()
            except OSError:  # the other side broke off
                pass

        def websocket(self):
            import base64
            import hashlib
            accept = base64.b64encode(hashlib.sha1((self.headers["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode()).digest()).decode()
            self.send_response(101)
            for name, value in (("Upgrade", "websocket"), ("Connection", "Upgrade"), ("Sec-WebSocket-Accept", accept)):
                self.send_header(name, value)
            self.end_headers()
            self.close_connection = True
            while data := self.connection.recv(4096):
                self.connection.sendall(data)

        do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = do_OPTIONS = do_TRACE = everything

        def log_message(self, *args):
            pass

    return Handler


def serve_http(settings, log, at, address, port, certificate=None):
    server = ThreadingHTTPServer((address, port), handler(at, log))
    server.folder = settings["folder"]
    server.daemon_threads = True
    if certificate:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(Path(settings["folder"]) / "cert.pem", Path(settings["folder"]) / "key.pem")
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    threading.Thread(target=server.serve_forever, daemon=True).start()


def serve_raw(log, at, address, port):
    """Any TCP: what is sent is written down and comes back."""
    listener = socket.create_server((address, port))

    def one(connection):
        log.write(at, raw=True, port=port)
        with connection:
            try:
                while data := connection.recv(4096):
                    log.write(at, raw=True, port=port, body=data[:200].decode("latin1"))
                    connection.sendall(data)
            except OSError:  # the other side broke off
                pass

    def accept():
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=one, args=(connection,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()


def main():
    settings = json.loads(sys.argv[1])
    with open(f"/run/netns/{settings['namespace']}") as namespace:
        if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), "setns")
    log = Log(settings["folder"])
    threading.Thread(target=serve_dns, args=(settings, log), daemon=True).start()
    for at in ("shared", "evil"):
        serve_http(settings, log, at, settings[at], 80)
        serve_http(settings, log, at, settings[at], 443, certificate=True)
        for port in (22, 5432, 8443):
            serve_raw(log, at, settings[at], port)
    if "odd" in settings:
        import hostile_servers
        hostile_servers.serve(settings, log)
    print("ready", flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main()
