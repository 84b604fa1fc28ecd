"""Kinds of policies and limits as a sandbox feels them: what monitor mode prints suffices, a tunnel is passed on unread and not a moment longer
than its rule, limits hold, and with the gateway away there is no network."""

import json
import os
import signal
import subprocess
import time
import unittest

from egress_case import EgressTest
from space_server import BINARY

BUDGET_S = 150

# Holds one connection over TLS to the upstream's own certificate, and says when it is over.
HELD = r'''
import socket, ssl, sys
name, asked = sys.argv[1:3]
s = ssl.create_default_context(cafile="upstream.pem").wrap_socket(socket.create_connection((name, 443), 30), server_hostname=asked)
s.sendall(f"GET /held HTTP/1.1\r\nHost: {asked}\r\n\r\n".encode())
answer = b""
while not answer.endswith(b"/held\n"): answer += s.recv(1000)
print(answer.split(b"\r\n")[0].decode(), flush=True)
try: s.recv(1000)
except OSError: pass
print("over", flush=True)
'''

SOCKETS = r'''
import socket
open_ones = []
for _ in range(5):
    try:
        s = socket.create_connection(("allowed.test", 5432), 20)
        open_ones.append(s)
        s.sendall(b"x"); s.settimeout(20)
        print("served" if s.recv(1) == b"x" else "ended")
    except ConnectionError: print("reset")
'''

# What the rules of the namespace refuse before the gateway sees anything: QUIC, and frames of another sender.
REFUSED = r'''
import socket
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
udp.settimeout(2)
for _ in range(3):
    try:
        udp.connect(("198.18.0.1", 443)); udp.send(b"quic"); udp.recv(10)
    except OSError: pass
raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
raw.bind(("eth0", 0))
mine, gateway = raw.getsockname()[4], bytes.fromhex("025ace000001")
for _ in range(5):
    raw.send(gateway + b"\x02\x5a\xce\x00\x00\x07" + b"\x08\x00" + b"E" * 40)
'''


class Modes(EgressTest):
    def test_what_the_rules_refuse_is_in_the_log(self):
        with self.api.create(egress={"policy": {"mode": "none"}}) as quiet, self.api.create(egress={"policy": {"mode": "none"}}) as other:
            other.write("/home/user/refused.py", REFUSED.encode())
            self.assertNotEqual(quiet.run("curl -sS -m 5 http://allowed.test/").code, 0)
            result = other.run("sudo python3 refused.py")
            self.assertEqual(result.code, 0, result.stderr)

            def told():
                return {e["kind"]: e for e in self.log(other) if e["verdict"] == "deny" and e["kind"] in ("connection", "security") and "address" not in e}

            self.server.wait_for(lambda: {"connection", "security"} <= told().keys(), 30, "what was refused in the log")
            time.sleep(6)  # another look, which finds nothing new
            self.assertEqual({kind: e.get("count", 1) for kind, e in told().items()}, {"connection": 3, "security": 5})
            self.assertEqual([e for e in self.log(quiet) if e["kind"] != "dns"], [], "what a sandbox is refused is told of nobody else")
            figures = self.api.call("GET", "/metrics").body.decode()
            self.assertRegex(figures, r'space_egress_packets_refused_total\{reason="frames"\} [5-9]')

    def test_what_monitor_mode_prints_suffices(self):
        use = (f"curl -sS -k -m 30 https://allowed.test/m; curl -sS -m 30 http://b.wild.test/m; curl -sS -m 30 -X PUT -d x http://{self.net.shared}/m; "
               "exec 3<>/dev/tcp/allowed.test/5432; echo raw >&3; head -n1 <&3")
        with self.api.create(egress={"policy": {"mode": "allowlist", "monitor": True, "rules": []}}) as other:
            wanted = f"shared GET allowed.test /m\nshared GET b.wild.test /m\nshared PUT {self.net.shared} /m\nraw"
            self.assertEqual(other.output(use), wanted)
            self.assertTrue(any(e["verdict"] == "monitor" and e.get("name") == "b.wild.test" for e in self.log(other)))
            printed = self.cli("egress", "observed", other.id)
            self.assertEqual(printed.returncode, 0, printed.stderr)
            self.assertEqual(printed.stderr, b"")
            policy = json.loads(printed.stdout)
            file = self.server.folder / "observed.json"
            file.write_bytes(printed.stdout)
            changed = self.cli("egress", "set", other.id, str(file))
            self.assertEqual(changed.returncode, 0, changed.stderr + printed.stdout)
            self.assertEqual(other.output(use), wanted, policy)
            self.assertEqual([e for e in self.log(other) if e["verdict"] == "deny"], [], policy)
            result = other.run("curl -sS -m 30 http://a.wild.test/; curl -sS -m 30 http://allowed.test:5433/; curl -sS -m 30 -X DELETE http://b.wild.test/")
            self.assertNotIn(b"shared", result.stdout)
            self.set_policy({"mode": "allowlist", "monitor": True, "rules": []}, other)
            other.run("curl -sS -m 30 -X odd_word http://b.wild.test/")
            self.assertIn(b"not all", self.cli("egress", "observed", other.id).stderr)

    def test_a_tunnel_is_passed_on_unread_while_its_rule_says_so(self):
        tunnel = {"mode": "allowlist", "rules": [{"id": "unread", "name": "cdn-ok.test", "tunnel": True}]}
        with self.api.create(egress={"policy": tunnel}) as other:
            other.write("/home/user/upstream.pem", self.net.ca.read_bytes())
            other.write("/home/user/held.py", HELD.encode())
            self.assertNotEqual(other.run("python3 held.py cdn-ok.test cdn-bad.test").code, 0, "its ClientHello names another host")
            held = other.start(["python3", "held.py", "cdn-ok.test", "cdn-ok.test"], cwd="/home/user").in_background()
            held.until(lambda r: b"200" in r.stdout, timeout=60)
            answer = self.api.ok("POST", f"{other.path}/egress/explain", {"method": "GET", "url": "https://cdn-ok.test/"})
            self.assertEqual((answer["rule"], answer["handling"]), ("unread", "tunnel"))
            # From now on requests to that host are read. What is inside the open connection cannot be.
            self.set_policy({"mode": "allowlist", "rules": [{"name": "cdn-ok.test", "paths": ["/v1"]}]}, other)
            held.until(lambda r: b"over" in r.stdout, timeout=15)
            self.assertTrue(any(e["verdict"] == "deny" and "policy changed" in e.get("reason", "") for e in self.log(other)))
            self.assertIn(b"egress_denied", other.run("curl -sS -m 30 https://cdn-ok.test/held").stdout)
            self.assertIn(b"shared GET cdn-ok.test /v1", other.run("curl -sS -m 30 https://cdn-ok.test/v1").stdout)

    def test_limits(self):
        policy = {"mode": "allowlist", "rules": [{"name": "allowed.test"}, {"name": "allowed.test", "protocol": "tcp", "ports": [5432]}]}
        with self.api.create(egress={"policy": policy, "limits": {"requests_per_second": 2}}) as other:
            codes = other.output("curl -s -m 30 -o /dev/null -w '%{http_code} ' 'http://allowed.test/[1-8]'").split()
            self.assertEqual((codes[:2], "429" in codes), (["200", "200"], True), codes)

            self.set_policy(policy, other, limits={"bytes_per_second": 1_000_000})
            size, seconds = other.output("curl -s -m 60 -o /dev/null -w '%{size_download} %{time_total}' http://allowed.test/big").split()
            self.assertEqual(size, "3000000")
            self.assertGreater(float(seconds), 1.5, "the first second's bytes go at once, the others at their rate")

            self.set_policy(policy, other, limits={"connections": 2})
            other.write("/home/user/sockets.py", SOCKETS.encode())
            self.assertEqual(other.output("python3 sockets.py").split(), ["served"] * 2 + ["reset"] * 3)
            self.assertEqual(other.output("curl -s -m 30 http://allowed.test/free"), "shared GET allowed.test /free", "places are free again")

            used = self.api.ok("GET", f"{other.path}/egress")
            self.assertEqual(used["limits"]["connections"], 2)
            self.set_policy(policy, other, limits={"total_bytes": 5_000_000})
            self.assertNotEqual(other.run("curl -s -m 30 -o /dev/null http://allowed.test/big").code, 0)
            begun = time.monotonic()
            self.assertNotEqual(other.run("curl -s -m 30 http://allowed.test/").code, 0, "used up")
            self.assertLess(time.monotonic() - begun, 15)
            reasons = {(e["kind"], e["verdict"]): e.get("reason", "") for e in self.log(other) if e["verdict"] == "deny"}
            self.assertIn(("limit", "deny"), reasons)
            self.assertIn("used up its bytes", reasons[("connection", "deny")] + reasons.get(("request", "deny"), ""))
            self.set_policy(policy, other)
            self.assertEqual(other.output("curl -s -m 30 http://allowed.test/raised"), "shared GET allowed.test /raised")

    def test_while_the_gateway_is_away_there_is_no_network_and_no_waiting(self):
        address = self.sandbox.output("getent ahostsv4 allowed.test | head -n1 | cut -d' ' -f1")
        # The supervisor stands still, so that nobody starts the gateway again.
        supervisor, gateway = self.server.process.pid, self.server.role_pid("egress")
        mark = self.net.mark()
        os.kill(supervisor, signal.SIGSTOP)
        try:
            os.kill(gateway, signal.SIGKILL)
            begun = time.monotonic()
            result = self.sandbox.run(f"curl -s -m 30 --resolve allowed.test:80:{address} http://allowed.test/away; echo $?; curl -s -m 30 http://{self.net.shared}/away; echo $?; curl -s -m 30 http://allowed.test/away; echo $?")
            self.assertLess(time.monotonic() - begun, 20)
            self.assertEqual(result.stdout.split()[:2], [b"7", b"7"], "refused at once, by a reset")
            self.assertEqual(result.stdout.split()[2:], [b"6"], "no name is known")
            self.assertEqual(self.net.since(mark), [])
        finally:
            os.kill(supervisor, signal.SIGCONT)
        self.server.wait_for(lambda: self.api.ok("GET", f"{self.sandbox.path}/egress")["serving"], 30, "the hand-over to the new gateway")
        self.assertEqual(self.sandbox.output(f"curl -sS -m 30 --resolve allowed.test:80:{address} http://allowed.test/back"), "shared GET allowed.test /back")

    def test_the_log_is_followed(self):
        with subprocess.Popen([BINARY, "--json", "egress", "log", "--follow", self.sandbox.id], env=self.server.environment(), stdout=subprocess.PIPE) as follower:
            try:
                self.run_in("curl -s -m 20 http://allowed.test/followed-one")
                self.run_in("curl -s -m 20 http://allowed.test/followed-two")
                seen = []
                for line in follower.stdout:
                    seen.append(json.loads(line))
                    if seen[-1].get("path") == "/followed-two":
                        break
                paths = [e.get("path") for e in seen if e["kind"] == "request"]
                self.assertLess(paths.index("/followed-one"), paths.index("/followed-two"))
                entry = seen[-1]
                self.assertEqual({key: entry.get(key) for key in ("sandbox", "name", "port", "verdict", "rule", "status")},
                                 {"sandbox": self.sandbox.id, "name": "allowed.test", "port": 80, "verdict": "allow", "rule": "allowed", "status": 200})
                self.assertEqual(entry["address"], self.net.shared)
                self.assertGreater(entry["bytes_down"], 0)
            finally:
                follower.kill()


if __name__ == "__main__":
    unittest.main()
