"""What E2B's API does that its SDKs' own suites (tests/e2b) do not reach: snapshots of files alone, servers in a sandbox that speak TLS, and whether figures
are true."""

import socket
import time
import unittest
import urllib.parse
from concurrent.futures import ThreadPoolExecutor

from api_client import Sandbox
from guest_servers import HANDLER
from space_server import ServerTest

BUDGET_S = 320

# What a guest's server sees of a request, WebSockets by echo, an answer without a length; by TLS with a certificate of its own.
TLS_SERVER = HANDLER + """
import ssl
class H(Handler):
    def do_GET(self):
        if self.path != "/unsized": return super().do_GET()
        self.send_response(200); self.send_header("Connection", "close"); self.end_headers(); self.wfile.write(b"x" * 300_000)
    do_POST = do_GET
    def seen(self, sent):
        return {"method": self.command, "path": self.path, "host": self.headers["Host"], "name": getattr(self.connection, "said", None), "tls": self.connection.version(),
                "body": len(sent)}
def note(connection, name, context): connection.said = name
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain("/tmp/own.pem")
context.sni_callback = note
server = ThreadingHTTPServer((sys.argv[1], int(sys.argv[2])), H)
server.socket = context.wrap_socket(server.socket, server_side=True)
server.serve_forever()
"""

# Servers that begin no TLS, each in its own way, and one that does and never ends its head.
HOSTILE_SERVERS = """
import socket, ssl, threading, time
def listen(port, serve):
    listener = socket.create_server(("0.0.0.0", port), backlog=50)
    def loop():
        while True:
            threading.Thread(target=quietly, args=(serve, listener.accept()[0]), daemon=True).start()
    threading.Thread(target=loop).start()
def quietly(serve, connection):
    try: serve(connection)
    except OSError: pass
def silent(connection): time.sleep(600)
def plain(connection): connection.recv(1000); connection.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\nhi")
def flood(connection):
    while True: connection.sendall(b"\\x16\\x03\\x03\\x3f\\xff\\x0b\\xff\\xff\\xff" + bytes(16379))
def trickle(connection):
    for byte in b"\\x16\\x03\\x03\\x3f\\xff\\x02" + bytes(600): connection.sendall(bytes([byte])); time.sleep(0.2)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain("/tmp/own.pem")
def endless(connection):
    connection = context.wrap_socket(connection, server_side=True)
    connection.sendall(b"HTTP/1.1 200 OK\\r\\n")
    while True: connection.sendall(b"X-More: " + b"m" * 8000 + b"\\r\\n")
for number, serve in enumerate((silent, plain, flood, trickle, endless)): listen(9000 + number, serve)
"""


class E2bTest(ServerTest):
    def setUp(self):
        with self.api.create():  # by E2B's API nobody waits as long as a base may take
            pass

    def sandbox(self, **body):
        answer = self.api.call("POST", "/v2/sandboxes", {"templateID": "base", "timeout": 600, **body})
        self.assertEqual(answer.status, 201, answer.body)
        sandbox = Sandbox(self.api, answer.json["sandboxID"])
        sandbox.token = answer.json["envdAccessToken"]
        self.addCleanup(lambda: self.api.delete(sandbox.id))
        return sandbox

    def through(self, sandbox, port, path="/", method="GET", body=None, **headers):
        """A request as an SDK sends it to a sandbox's port."""
        headers = {"E2b-Sandbox-Id": sandbox.id, "E2b-Sandbox-Port": str(port), **headers}
        return self.api.with_key(None).call(method, path, body, headers)


class HttpsPorts(E2bTest):
    def serving(self):
        """A sandbox with a TLS server on 8443, on 8445 for the loopback address alone, and on 8444, which is not said to be one."""
        sandbox = self.sandbox(network={"httpsPorts": [8443, 8445, *range(9000, 9005)], "maskRequestHost": "guest.example:${PORT}"})
        sandbox.output("openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=nobody -keyout /tmp/own.key -out /tmp/own.crt 2>&1")
        sandbox.output("cat /tmp/own.key /tmp/own.crt >/tmp/own.pem")
        sandbox.write("/home/user/server.py", TLS_SERVER.encode())
        sandbox.write("/home/user/hostile.py", HOSTILE_SERVERS.encode())
        for words in (["server.py", "0.0.0.0", "8443"], ["server.py", "0.0.0.0", "8444"], ["server.py", "127.0.0.1", "8445"], ["hostile.py"]):
            sandbox.start(["python3", f"/home/user/{words[0]}", *words[1:]]).in_background()
        sandbox.output(["bash", "-c", "for port in 8443 8444 8445 9004; do for i in $(seq 100); do (: </dev/tcp/127.0.0.1/$port) 2>/dev/null && break; sleep 0.2; done; done"])
        return sandbox

    def refused(self, sandbox, port):
        begun = time.monotonic()
        answer = self.through(sandbox, port)
        self.assertEqual(answer.status, 502, (port, answer.body))
        self.assertEqual((answer.json["sandboxId"], answer.json["port"], answer.json["code"]), (sandbox.id, port, 502))
        return answer.json["message"], time.monotonic() - begun

    def test_servers_that_speak_tls_themselves(self):
        sandbox = self.serving()
        self.assertEqual(self.api.ok("GET", f"/sandboxes/{sandbox.id}")["network"]["httpsPorts"][0], 8443)
        seen = self.through(sandbox, 8443, "/a?b=c", "POST", b"x" * 500_000).json
        self.assertIn(seen.pop("tls"), ("TLSv1.2", "TLSv1.3"))
        self.assertEqual(seen, {"method": "POST", "path": "/a?b=c", "host": "guest.example:8443", "name": "guest.example", "body": 500_000})
        self.assertEqual(self.through(sandbox, 8443, "/unsized").body, b"x" * 300_000)
        self.assertEqual(self.through(sandbox, 8445).json["name"], "guest.example")
        address, port = self.server.url.split("//")[1].split(":")
        with socket.create_connection((address, int(port)), 30) as s:
            s.sendall(f"GET /ws HTTP/1.1\r\nHost: {address}\r\nE2b-Sandbox-Id: {sandbox.id}\r\nE2b-Sandbox-Port: 8443\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
                      "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n".encode())
            head = b""
            while b"\r\n\r\n" not in head:
                head += s.recv(1000)
            self.assertIn(b" 101 ", head)
            for word in (b"one", b"two"):
                s.sendall(word)
                self.assertEqual(s.recv(100), b"<" + word + b">")
        # A port that nobody said it of is spoken with in plain words, and one where nobody is says so.
        self.assertNotEqual(self.through(sandbox, 8444).status, 200)
        sandbox.output("pkill -f '[s]erver.py 0.0.0.0 8443'")
        self.server.wait_for(lambda: b"port is not open" in self.through(sandbox, 8443).body, 20, "the port to be closed")

        # Whoever begins no TLS is not waited for, and costs others nothing.
        with ThreadPoolExecutor(5) as pool:
            told = list(pool.map(lambda port: self.refused(sandbox, port), (9000, 9001, 9002, 9003)))
            for number, (message, seconds) in enumerate(told):
                self.assertIn("TLS", message, number)
                self.assertLess(seconds, 30, number)
            many = list(pool.map(lambda _: self.through(sandbox, 9004).status, range(20)))
            self.assertEqual([status for status in many if status < 500], [])
        self.assertEqual(sandbox.output("echo on"), "on")
        for ports in ([0], [65536], [49983], ["8443"], 8443):
            answer = self.api.call("POST", "/v2/sandboxes", {"templateID": "base", "network": {"httpsPorts": ports}})
            self.assertEqual(answer.status, 400, (ports, answer.body))


class FilesAlone(E2bTest):
    BOOT = "cat /proc/sys/kernel/random/boot_id"

    def snapshot(self, sandbox, **body):
        answer = self.api.call("POST", f"/sandboxes/{sandbox.id}/snapshots", body)
        self.assertEqual(answer.status, 201, answer.body)
        return answer.json["snapshotID"]

    def test_what_is_made_of_one_boots_with_its_files(self):
        one = self.sandbox(envVars={"GIVEN": "parent"})
        boot = one.output(self.BOOT)
        one.output("echo kept >~/f; mkdir ~/d; echo memory >/dev/shm/m")  # nobody syncs
        full = self.snapshot(one)
        named = self.snapshot(one, name="files", memory=False)
        self.assertEqual(named, "files:default")
        unnamed = self.snapshot(one, memory=False)
        # The one that it was taken of goes on.
        self.assertEqual(one.output(f"{self.BOOT}; cat /dev/shm/m").split(), [boot, "memory"])
        listed = [one["snapshotID"] for one in self.api.ok("GET", f"/snapshots?sandboxID={one.id}")]
        self.assertEqual(listed, [unnamed, named, full])
        self.assertEqual(self.api.ok("GET", "/snapshots?name=files"), [{"snapshotID": named, "names": ["files"]}])
        kinds = {c["kind"]: c["name"] for c in self.api.ok("GET", f"/v1/checkpoints?sandbox={one.id}")["checkpoints"] if c["name"]}
        self.assertEqual(kinds, {"file_snapshot": "files"})
        one.output("echo later >~/f")
        self.assertEqual(self.api.call("DELETE", f"/sandboxes/{one.id}").status, 204)

        child = self.sandbox(templateID=named, metadata={"made": "here"}, envVars={"OWN": "child"})
        # It is ready when the create has answered: the first request to it is an SDK's.
        self.assertEqual(self.through(child, 49983, "/files?path=f", **{"X-Access-Token": child.token}).body, b"kept\n")
        self.assertNotEqual(child.output(self.BOOT), boot)
        self.assertEqual(child.output("ls /dev/shm; ls -d ~/d; echo $GIVEN $OWN $E2B_SANDBOX_ID").split(), ["/home/user/d", "parent", "child", child.id])
        self.assertEqual(self.api.ok("GET", f"/sandboxes/{child.id}")["metadata"], {"made": "here"})
        # One that booted so is put away and copied like any other.
        child.output("echo again >/dev/shm/m")
        self.assertEqual(self.api.call("POST", f"/sandboxes/{child.id}/pause", {}).status, 204)
        self.assertEqual(self.api.call("POST", f"/sandboxes/{child.id}/snapshots", {"memory": False}).status, 409)
        self.assertEqual(self.api.call("POST", f"/v2/sandboxes/{child.id}/connect", {}).status, 201)
        self.assertEqual(child.output("cat /dev/shm/m"), "again")
        # Deleted, it lives on in what was made of it.
        for snapshot in (named, unnamed, full):
            self.assertEqual([self.api.call("DELETE", f"/templates/{urllib.parse.quote(snapshot)}").status for _ in range(2)], [204, 404])
        self.assertEqual(child.output("cat ~/f"), "kept")
        self.assertEqual(self.api.call("POST", "/v2/sandboxes", {"templateID": named}).status, 404)
        self.assertEqual(self.api.call("POST", f"/sandboxes/{child.id}/snapshots", {"memory": "no"}).status, 400)


class Figures(E2bTest):
    """M04 of the field reports: what a sandbox is said to use is what it uses, and what cannot be told is not told as 0."""

    SIZE = 200 << 20

    def latest(self, sandbox):
        """A sample of now: one that was taken less than 4 s ago would be given again."""
        time.sleep(4.5)
        return self.api.ok("GET", f"/sandboxes/{sandbox.id}/metrics")[-1]

    def assertNear(self, value, expected, what):
        self.assertLess(abs(value - expected), 0.15 * expected, (what, value, expected))

    def test_m04_figures_are_those_of_what_runs(self):
        sandbox = self.sandbox()
        target = f"/sandboxes/{sandbox.id}/metrics"
        (first,) = self.api.ok("GET", target)  # a second after its beginning
        for name in ("cpuCount", "memUsed", "memTotal", "diskUsed", "diskTotal"):
            self.assertGreater(first[name] or 0, 0, first)
        self.assertIsInstance(first["cpuUsedPct"], float)
        self.assertEqual(first["cpuCount"], int(sandbox.output("nproc")))
        self.assertNear(first["memTotal"], int(sandbox.output("awk '/MemTotal/ {print $2}' /proc/meminfo")) << 10, "memTotal")

        sandbox.output(f"head -c {self.SIZE} /dev/urandom >~/written && sync")
        written = self.latest(sandbox)
        self.assertNear(written["diskUsed"] - first["diskUsed"], self.SIZE, "diskUsed")
        self.assertNear(written["diskTotal"], int(sandbox.output("df -B1 --output=size / | tail -1")), "diskTotal")

        holding = sandbox.start(["python3", "-c", f"x = b'x' * {self.SIZE}; print('held', flush=True); input()"], stdin=True)
        running = holding.in_background()
        running.until(lambda result: b"held" in result.stdout)
        held = self.latest(sandbox)
        self.assertNear(held["memUsed"] - written["memUsed"], self.SIZE, "memUsed")
        holding.stdin(b"\n", close=True)
        running.wait(30)

        idle = self.latest(sandbox)["cpuUsedPct"]
        spinning = sandbox.start("for i in $(seq $(nproc)); do timeout 60 sh -c 'while :; do :; done' & done; wait").in_background()
        self.latest(sandbox)  # the share of the next one is that of the time since this one
        busy = self.latest(sandbox)["cpuUsedPct"]
        self.assertNear(busy, 100, "cpuUsedPct")
        self.assertLess(idle, busy / 2)
        self.assertLessEqual(busy, 100)
        sandbox.output("pkill timeout")
        spinning.wait(30)

        # Figures are those of running sandboxes, of the time that was asked for.
        self.assertEqual(self.api.ok("GET", f"{target}?start=0&end=1"), [])
        self.assertEqual(self.api.call("POST", f"/sandboxes/{sandbox.id}/pause", {}).status, 204)
        self.assertEqual(self.api.ok("GET", target), [])
        self.assertEqual(self.api.ok("GET", f"/sandboxes/metrics?sandbox_ids={sandbox.id}")["sandboxes"], {})
        self.assertEqual(self.api.call("POST", f"/v2/sandboxes/{sandbox.id}/connect", {}).status, 201)
        self.assertGreater(self.latest(sandbox)["diskTotal"], 0)
        self.assertEqual(self.api.call("DELETE", f"/sandboxes/{sandbox.id}").status, 204)
        self.assertEqual(self.api.call("GET", target).status, 404)


if __name__ == "__main__":
    unittest.main()
