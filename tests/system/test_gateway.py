"""The gateway beside a sandbox's life: addresses and certificates over checkpoints, forks and a gateway that was away; credentials sealed by
the client; IPv6 and gRPC; figures."""

import json
import os
import random
import signal
import subprocess
import threading
import time
import unittest
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import guest_files
import real_servers
from api_client import Sandbox
from egress_case import EgressTest
from space_server import BINARY

BUDGET_S = 240

GRPC_PORT = 50051
GRPC_CLIENT = r'''
import grpc
roots = open("/etc/ssl/certs/ca-certificates.crt", "rb").read()
channel = grpc.secure_channel("grpc.test:%d", grpc.ssl_channel_credentials(roots))
say, call = channel.unary_unary("/test.Echo/Say").with_call(b"hello", timeout=60, metadata=(("x-mine", "kept"),))
print(say.decode(), dict(call.trailing_metadata()))
print([n.decode() for n in channel.unary_stream("/test.Echo/Count")(b"3", timeout=60)])
print([n.decode() for n in channel.stream_stream("/test.Echo/Chat")(iter([b"one", b"two"]), timeout=60)])
for method in ("Fail", "Forbidden"):
    try: print(channel.unary_unary("/test.Echo/" + method)(b"", timeout=60))
    except grpc.RpcError as e: print(method, e.code(), e.details())
''' % GRPC_PORT


WEBSOCKET = r'''
import socket, ssl, sys
s = ssl.create_default_context().wrap_socket(socket.create_connection(("allowed.test", 443), 30), server_hostname="allowed.test")
s.sendall(f"GET {sys.argv[1]} HTTP/1.1\r\nHost: allowed.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n".encode())
head = b""
while b"\r\n\r\n" not in head: head += s.recv(1000)
print(head.decode(errors="replace"), flush=True)
if b" 101 " not in head: sys.exit()
frame = b"\x82\x84maskdata"
s.sendall(frame)
if s.recv(100) == frame: print("echoed", flush=True)
try: s.recv(100)
except OSError: pass
print("over", flush=True)
'''


class Gateway(EgressTest):
    @classmethod
    def zone(cls):
        cls.six = f"2a11:{random.randint(1, 65000):x}:{random.randint(1, 65000):x}::"
        cls.net.zone["six.test"] = cls.six + "3"
        cls.net.zone["grpc.test"] = cls.net.shared
        cls.net.zone["db.test"] = cls.net.zone["ssh.test"] = cls.net.own
        cls.policy = {"mode": "allowlist", "rules": [*EgressTest.policy["rules"], {"id": "database", "name": "db.test", "protocol": "tcp", "ports": [5432]},
                                                     {"id": "ssh", "name": "ssh.test", "protocol": "tcp", "ports": [22]}, {"id": "six", "name": "six.test"}, {"id": "six-range", "cidr": cls.six + "/64", "ports": [8080], "protocol": "http"},
                                                     {"id": "grpc", "name": "grpc.test", "protocol": "https", "ports": [GRPC_PORT], "paths": ["/test.Echo/Say", "/test.Echo/Count", "/test.Echo/Chat", "/test.Echo/Fail"]}]}

    @classmethod
    def settings(cls):
        return {"policy": cls.policy, "credentials": [{"credential": "api", "name": name, "port": port, "bearer": True} for name, port in (("api.secret.test", 443), ("grpc.test", GRPC_PORT))]}

    @classmethod
    def upstream(cls, *words):
        """A server in the namespace of the fake internet, until the class is done."""
        program = Path(__file__).with_name("upstreams.py")
        process = subprocess.Popen(["ip", "netns", "exec", cls.net.name, "/usr/bin/python3", program, cls.net.folder, *map(str, words)], stdout=subprocess.PIPE, text=True)
        cls.addClassCleanup(process.stdout.close)
        cls.addClassCleanup(process.wait)
        cls.addClassCleanup(process.kill)
        if process.stdout.readline().strip() != "ready":
            raise AssertionError(f"{words} did not start")

    def lineages(self):
        return {path.stem for path in (self.server.data_dir / "egress" / "vault" / "lineages").iterdir()}

    def reaches(self, sandbox, what):
        """Over TLS that the guest trusts; a guest on a busy machine may need more than one try for its handshake."""
        wanted = f"shared GET allowed.test /{what}\n".encode()
        self.server.wait_for(lambda: sandbox.run(f"curl -sS -m 30 https://allowed.test/{what}").stdout == wanted, 60, f"{what} to reach allowed.test")

    def address_of(self, sandbox, name):
        return sandbox.output(f"getent ahostsv4 {name} | head -n1 | cut -d' ' -f1").strip()

    def test_ipv6_from_the_guest_to_an_upstream_that_has_nothing_else(self):
        for words in (("addr", "add", self.six + "1/64", "dev", self.net.name, "nodad"), ("-n", self.net.name, "addr", "add", self.six + "3/64", "dev", self.net.name + "p", "nodad")):
            subprocess.run(["ip", *words], check=True)
        self.upstream("six", self.six + "3")
        for family in ("-6", "-4"):
            code, out, err = self.run_in(f"curl {family} -sS -m 30 https://six.test/x")
            self.assertEqual((code, out), (0, "six six.test /x\n"), err)
        code, out, err = self.run_in(f"curl -sS -m 30 'http://[{self.six}3]:8080/bare'")
        self.assertEqual((code, out), (0, f"six [{self.six}3]:8080 /bare\n"), err)
        begun = time.monotonic()
        for refused in (f"https://[{self.six}3]/", "https://[2a10::1]/", f"http://[{self.six[:-2]}:1::3]:8080/"):
            self.assertNotIn(self.run_in(f"curl -sS -f -m 30 '{refused}'")[0], (0, 28), refused)
        self.assertLess(time.monotonic() - begun, 20)

    def test_grpc_over_the_path_where_tls_ends(self):
        self.upstream("grpc", self.net.shared, GRPC_PORT)
        self.sandbox.write("/home/user/grpc.tgz", guest_files.grpc())
        self.sandbox.write("/home/user/call.py", GRPC_CLIENT.encode())
        code, out, err = self.run_in("mkdir -p g && tar xzf grpc.tgz -C g && PYTHONPATH=g LD_LIBRARY_PATH=g/lib python3 call.py", timeout=180)
        lines = out.splitlines()
        # The credential was put in outside: "Bearer " and the secret.
        self.assertEqual(lines[:3], [f"hello, authorised by {len('Bearer ' + self.secret)} bytes, kept {{'x-trailer': 'behind'}}", "['0', '1', '2']", "['you said one', 'you said two']"], err)
        self.assertEqual(lines[3], "Fail StatusCode.NOT_FOUND nothing here")
        self.assertTrue(lines[4].startswith("Forbidden StatusCode.PERMISSION_DENIED"), lines)
        entries = [e for e in self.log() if e.get("name") == "grpc.test" and e["kind"] == "request"]
        self.assertTrue(any(e["protocol"] == "h2" and e["path"] == "/test.Echo/Chat" and e["rule"] == "grpc" and e["credential"] == "api" for e in entries), entries)

    @unittest.skipUnless(real_servers.PSQL, "postgresql-15 is not installed")
    def test_postgresql_over_a_rule_for_its_port(self):
        server = real_servers.postgres(self.net, self.net.own)
        self.addCleanup(server.close)
        self.sandbox.write("/home/user/psql.tgz", guest_files.program(real_servers.PSQL))
        self.sandbox.write("/home/user/upstream.pem", self.net.ca.read_bytes())
        code, out, err = self.run_in("mkdir -p p && tar xzf psql.tgz -C p")
        self.assertEqual(code, 0, err)
        # Its TLS begins inside its own protocol: passed on unread, so that the client sees the server's own certificate.
        psql = "LD_LIBRARY_PATH=p/lib PGCONNECT_TIMEOUT=30 p/bin/psql -At -U postgres 'host=db.test port={} sslmode=verify-full sslrootcert=upstream.pem' -c \"{}\""
        code, out, err = self.run_in(psql.format(5432, "create table t as select generate_series(1, 1000) n; select sum(n), (select ssl from pg_stat_ssl where pid = pg_backend_pid()) from t"))
        self.assertEqual((code, out.split()[-1]), (0, "500500|t"), err)
        begun = time.monotonic()
        self.assertNotEqual(self.run_in(psql.format(5433, "select 1"))[0], 0)
        self.assertLess(time.monotonic() - begun, 15, "a refusal, not a time limit")
        self.assertTrue(any(e.get("rule") == "database" and e["verdict"] == "allow" and e.get("bytes_down", 0) > 500 for e in self.log()))

    @unittest.skipUnless(real_servers.SSHD.exists(), "openssh-server is not installed")
    def test_ssh_and_git_over_it(self):
        server, key = real_servers.sshd(self.net, self.net.own)
        self.addCleanup(server.close)
        self.sandbox.write("/home/user/key", key)
        ssh = "ssh -i ~/key -o BatchMode=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR -o ConnectTimeout=30"
        code, out, err = self.run_in(f"chmod 600 key; {ssh} root@ssh.test 'echo over there'")
        self.assertEqual((code, out), (0, "over there\n"), err)
        repository = self.net.folder / "www/pkg/tiny.git"
        code, out, err = self.run_in(f"export GIT_SSH_COMMAND='{ssh}'; git clone -q ssh://root@ssh.test{repository} over-ssh && cd over-ssh && cat README && echo more >more && git add more"
                                     " && git -c user.name=t -c user.email=t@example.org commit -q -m more && git push -q origin HEAD:pushed")
        self.assertEqual((code, out), (0, "tiny\n"), err)
        self.assertIn("pushed", subprocess.run(["git", "-C", repository, "branch"], capture_output=True, text=True, check=True).stdout)
        code, out, err = self.run_in(f"{ssh} -p 2222 root@ssh.test true; {ssh} root@allowed.test true")
        self.assertNotEqual(code, 0)

    def test_a_websocket_inside_ended_tls_until_its_rule_goes(self):
        with self.api.create(egress={"policy": {"mode": "allowlist", "rules": [{"name": "allowed.test", "methods": ["GET"], "paths": ["/ws"]}]}}) as other:
            other.write("/home/user/ws.py", WEBSOCKET.encode())
            held = other.start(["python3", "/home/user/ws.py", "/ws"]).in_background()
            held.until(lambda r: b"echoed" in r.stdout, timeout=60)
            self.assertIn(b"HTTP/1.1 101", held.result.stdout)
            self.api.ok("PUT", f"{other.path}/egress", {"policy": {"mode": "allowlist", "rules": [{"name": "allowed.test", "methods": ["GET"], "paths": ["/other"]}]}})
            held.until(lambda r: b"over" in r.stdout, timeout=15)
            self.assertIn(b"HTTP/1.1 403", other.run(["python3", "/home/user/ws.py", "/ws"]).stdout)

    def test_an_address_means_the_same_name_in_everything_that_comes_out_of_a_checkpoint(self):
        with self.api.create(egress={"policy": self.policy}) as parent:
            first, second = (self.address_of(parent, name) for name in ("allowed.test", "b.wild.test"))
            checkpoint = parent.change("checkpoint")["checkpoint"]
            later = self.address_of(parent, "a.wild.test")
            self.assertEqual(len({first, second, later}), 3)
            operation = parent.change("fork", {"checkpoint": checkpoint})
            child = Sandbox(self.api, operation["children"][0])
            # Dialled as a program would that remembers, before any name was asked for.
            by_heart = f"curl -sS -m 30 --resolve b.wild.test:80:{second} http://b.wild.test/; curl -sS -m 30 --resolve allowed.test:80:{second} http://allowed.test/"
            out = child.output(by_heart)
            self.assertIn("shared GET b.wild.test /", out)
            self.assertIn("host_mismatch", out)
            self.assertEqual([self.address_of(child, name) for name in ("b.wild.test", "allowed.test")], [second, first])
            self.assertNotIn(self.address_of(child, "cdn-ok.test"), (first, second))
            for verb, body in (("restore", {"checkpoint": checkpoint}), ("suspend", None), ("wake", None)):
                self.assertEqual(parent.change(verb, body)["state"], "succeeded", verb)
            self.assertIn("shared GET b.wild.test /", parent.output(by_heart))
            self.assertEqual([self.address_of(parent, name) for name in ("a.wild.test", "allowed.test")], [later, first], "not even after a restore is one given again")
            self.check_authorities(parent, child, checkpoint)

    def check_authorities(self, parent, child, checkpoint):
        """The authority of a lineage lives as long as anything of it: the child trusts it, and a checkpoint may be forked again."""
        self.assertIn(parent.id, self.lineages())
        self.assertNotIn(child.id, self.lineages(), "a fork keeps its root's")
        self.reaches(child, "child")
        self.api.delete(parent.id)
        time.sleep(5)
        self.assertIn(parent.id, self.lineages())
        self.reaches(child, "orphan")
        self.api.delete(child.id)
        time.sleep(5)
        self.assertIn(parent.id, self.lineages())
        self.assertEqual(self.api.call("DELETE", f"/v1/checkpoints/{checkpoint}").status, 200)
        self.server.wait_for(lambda: parent.id not in self.lineages(), 20, "the key of the dead lineage to go")
        self.assertIn(self.sandbox.id, self.lineages(), "the others stay")

    def test_a_certificate_that_came_late_comes(self):
        # The supervisor stands still, so that nobody starts the gateway again.
        supervisor, gateway = self.server.process.pid, self.server.role_pid("egress")
        os.kill(supervisor, signal.SIGSTOP)
        try:
            os.kill(gateway, signal.SIGKILL)
            begun = time.monotonic()
            other = self.api.create()
            self.assertLess(time.monotonic() - begun, 30)
            self.assertEqual(other.output("echo works").strip(), "works")
        finally:
            os.kill(supervisor, signal.SIGCONT)
        with other:
            self.server.wait_for(lambda: self.api.ok("GET", f"{other.path}/egress")["serving"], 30, "the hand-over")
            self.set_policy({"mode": "allowlist", "rules": [{"name": "allowed.test"}]}, other)
            self.reaches(other, "late")
            self.assertEqual(self.run_in("curl -sS -m 30 https://allowed.test/")[0], 0, "the others have theirs")

    def test_a_credential_is_sealed_to_the_gateway_by_the_client(self):
        secret = b"SEALED-" + os.urandom(12).hex().encode()
        answer = self.api.ok("GET", "/v1/credential-key")
        self.assertEqual(answer["key"] + "\n", (self.server.run_dir / "egress" / "credential.key").read_text())
        box = self.captured(answer, "api", secret)
        self.assertNotIn(secret, box)
        kind = {"Content-Type": "application/octet-stream"}
        for name, body in (("other", box), ("api", box[:-1] + bytes([box[-1] ^ 1])), ("api", b"x" * 200)):
            self.assertRefused(self.api.call("PUT", f"/v1/credentials/{name}?sealed=true", body, kind), 400, "bad_sealed_credential")
        self.assertEqual(self.api.call("PUT", "/v1/credentials/api?sealed=true", b"x" * 20000, kind).status, 413)
        self.assertEqual(self.api.ok("PUT", "/v1/credentials/api?sealed=true", box, kind)["name"], "api")
        mark = self.net.mark()
        self.run_in("curl -sS -m 30 https://api.secret.test/v1/sealed")
        self.assertEqual([e["headers"].get("Authorization") for e in self.net.since(mark, "shared")], [f"Bearer {secret.decode()}"])
        for options in ((), ("--plain",), ("--key", answer["key"])):
            self.assertEqual(self.cli("credential", "rotate", "api", *options, input=self.secret.encode()).returncode, 0, options)
        mark = self.net.mark()
        self.run_in("curl -sS -m 30 https://api.secret.test/v1/again")
        self.assertEqual([e["headers"].get("Authorization") for e in self.net.since(mark, "shared")], [f"Bearer {self.secret}"])
        self.assertNotEqual(self.cli("credential", "rotate", "api", "--key", "AAAA", input=b"12345678").returncode, 0)

    def captured(self, key, name, secret):
        """What the command sends: to a server that is none, and writes it down."""
        seen = {}

        class Api(BaseHTTPRequestHandler):
            def reply(self, body):
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def do_GET(self):
                self.reply(json.dumps(key).encode())

            def do_PUT(self):
                seen["body"] = self.rfile.read(int(self.headers["Content-Length"]))
                self.reply(json.dumps({"name": name, "version": 1, "updated_at": "2000-01-01T00:00:00Z"}).encode())

            def log_message(self, *args):
                pass

        with HTTPServer(("127.0.0.1", 0), Api) as server:
            thread = threading.Thread(target=server.serve_forever)
            thread.start()
            environment = {**self.server.environment(), "SPACE_URL": f"http://127.0.0.1:{server.server_port}"}
            ran = subprocess.run([BINARY, "credential", "set", name], env=environment, input=secret + b"\n", capture_output=True, timeout=60)
            server.shutdown()
            thread.join()
        self.assertEqual(ran.returncode, 0, ran.stderr)
        return seen["body"]

    def test_the_figures_count_what_passes(self):
        def figures():
            text = self.api.call("GET", "/metrics").body.decode()
            return {line.rsplit(" ", 1)[0]: int(line.rsplit(" ", 1)[1]) for line in text.splitlines() if not line.startswith("#")}

        before = figures()
        self.assertEqual(before["space_egress_reachable"], 1)
        self.assertGreaterEqual(before["space_egress_sandboxes_attached"], 1)
        self.run_in("curl -sS -m 30 http://allowed.test/big -o /dev/null; curl -sS -m 30 http://evil.test/; curl -sS -m 30 -o /dev/null http://allowed.test/two")
        # Workers report every two seconds.
        after = self.server.wait_for(lambda: (now := figures()) and now["space_egress_requests_total"] >= before["space_egress_requests_total"] + 2 and now, 10, "the figures")
        self.assertGreaterEqual(after['space_egress_bytes_total{direction="down"}'], before['space_egress_bytes_total{direction="down"}'] + 3_000_000)
        self.assertGreater(after["space_egress_connections_total"], before["space_egress_connections_total"])
        denied = 'space_egress_decisions_total{kind="dns",verdict="deny"}'
        self.assertGreater(after[denied], before.get(denied, 0))


if __name__ == "__main__":
    unittest.main()
