"""The network of a sandbox as its programs meet it: allowed names work with the tools people use, all others fail fast; policies change
at run time; credentials are added outside; the gateway's end is the network's end."""

import json
import subprocess
import threading
import time
import unittest
from http.server import BaseHTTPRequestHandler, HTTPServer

from egress_case import EgressTest, RULES
from space_server import BINARY

BUDGET_S = 240

TOOLS = RULES + [{"id": name, "name": f"{name}.test", "methods": ["GET", "HEAD"]} for name in ("pip", "npm", "git", "apt")]

FLOOD = r'''
import socket, struct, sys
server = next(l.split()[1] for l in open("/etc/resolv.conf") if l.startswith("nameserver"))
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(2); s.connect((server, 53)); answered = 0
for i in range(int(sys.argv[1])):
    name = b"".join(bytes([len(l)]) + l for l in (b"n%d" % i, b"flood", b"test")) + b"\0"
    s.send(struct.pack(">6H", i, 256, 1, 0, 0, 0) + name + struct.pack(">2H", 1, 1))
    try: answered += bool(s.recv(512))
    except TimeoutError: pass
print(answered, flush=True)
'''


class Egress(EgressTest):
    policy = {"mode": "allowlist", "rules": TOOLS}

    def test_curl_and_python_over_ended_tls_with_and_without_root(self):
        for command in ("curl -sS -m 30 https://allowed.test/x", "sudo curl -sS -m 30 https://allowed.test/x", "curl -sS -m 30 http://allowed.test/x",
                        "python3 -c \"import urllib.request as u; print(u.urlopen('https://allowed.test/x', timeout=30).read().decode(), end='')\"",
                        "python3 -c \"from pip._vendor import requests; print(requests.get('https://allowed.test/x', timeout=30).text, end='')\""):
            code, out, err = self.run_in(command)
            self.assertEqual((code, out), (0, "shared GET allowed.test /x\n"), err)

    def test_node(self):
        code, out, err = self.run_in("node -e \"fetch('https://allowed.test/n').then(r => r.text()).then(t => process.stdout.write(t))\"")
        self.assertEqual((code, out), (0, "shared GET allowed.test /n\n"), err)

    def test_pip(self):
        code, out, err = self.run_in("pip install -q --index-url https://pip.test/pkg/simple tinypip && python3 -c 'import tinypip; print(tinypip.answer)'")
        self.assertEqual((code, out), (0, "42\n"), err)
        code, out, err = self.run_in("pip install -q --retries 0 --timeout 5 --index-url https://other-index.test/simple tinypip2")
        self.assertNotEqual(code, 0)

    def test_npm(self):
        code, out, err = self.run_in("mkdir -p n && cd n && npm install --silent --no-audit --registry https://npm.test/pkg/npm tinynpm && node -e 'console.log(require(\"tinynpm\"))'")
        self.assertEqual((code, out.split()[-1:]), (0, ["42"]), err + out)
        code, out, err = self.run_in("npm i -g --silent --no-audit --registry https://npm.test/pkg/npm tinynpm && ls $(npm root -g)")
        self.assertEqual((code, out), (0, "tinynpm\n"), err)

    def test_git(self):
        code, out, err = self.run_in("git clone -q https://git.test/pkg/tiny.git && cat tiny/README")
        self.assertEqual((code, out), (0, "tiny\n"), err)
        code, out, err = self.run_in("git clone -q https://cdn-bad.test/pkg/tiny.git other")
        self.assertNotEqual(code, 0)
        self.assertIn("resolve", err)

    def test_apt(self):
        self.run_in("echo 'deb [trusted=yes] https://apt.test/pkg/apt ./' | sudo tee /etc/apt/sources.list.d/tiny.list >/dev/null; sudo mv /etc/apt/sources.list /tmp/")
        code, out, err = self.run_in("sudo apt-get -qq update && sudo apt-get -qq install -y tinyapt >/dev/null 2>&1; cat /usr/share/tinyapt/answer")
        self.assertEqual((code, out), (0, "42\n"), err)

    def test_other_names_fail_fast_and_clearly(self):
        begun = time.monotonic()
        code, out, err = self.run_in("curl -sS -m 30 https://evil.test/")
        self.assertEqual(code, 6, err)
        self.assertIn("Could not resolve host", err)
        self.assertLess(time.monotonic() - begun, 15)
        code, out, err = self.run_in(f"curl -sS -m 30 http://{self.net.evil}/")
        self.assertIn("egress_denied", out)
        code, out, err = self.run_in(f"curl -sS -m 30 https://{self.net.evil}/")
        self.assertNotEqual(code, 0)
        self.assertNotEqual(code, 28, "a refusal, not a time limit")

    def test_none_is_the_default(self):
        with self.api.create() as other:
            self.assertEqual(self.api.ok("GET", f"{other.path}/egress")["policy"], {"mode": "none"})
            result = other.run("curl -sS -m 20 http://allowed.test/; curl -sS -m 20 http://11.0.0.1/; echo done")
            self.assertTrue(result.stdout.endswith(b"done\n"), result.stdout)
            self.assertNotIn(b"shared", result.stdout)

    def test_a_change_is_in_force_at_once_and_cuts_what_it_forbids(self):
        with self.api.create(egress={"policy": {"mode": "allowlist", "rules": [{"name": "allowed.test", "protocol": "tcp", "ports": [5432]}]}}) as other:
            held = other.start("exec 3<>/dev/tcp/allowed.test/5432; echo hello >&3; head -n1 <&3; echo open; head -n1 <&3; echo closed").in_background()
            held.until(lambda r: b"open" in r.stdout, timeout=40)
            answer = self.set_policy({"mode": "none"}, other)
            self.assertTrue(answer["applied"])
            held.until(lambda r: b"closed" in r.stdout, timeout=10)
            self.assertNotIn(b"hello", other.run("exec 3<>/dev/tcp/allowed.test/5432 && echo hello >&3 && head -n1 <&3").stdout)
            self.set_policy({"mode": "allowlist", "rules": [{"name": "allowed.test"}]}, other)
            self.assertIn(b"shared", other.run("curl -sS -m 20 http://allowed.test/").stdout)

    def test_open_refuses_what_is_not_public(self):
        with self.api.create(egress="open") as other:
            self.assertIn(b"shared", other.run("curl -sS -m 20 http://allowed.test/").stdout, "the control: a public name")
            for address in ("127.0.0.1", "10.0.0.1", "169.254.169.254", "192.168.0.1", "172.17.0.1", f"{self.net.block}.1", "[::1]", "[fe80::1]"):
                result = other.run(f"curl -sS -m 10 http://{address}:7777/; echo code $?")
                self.assertNotIn(b"code 28", result.stdout, address)
                self.assertNotIn(b"code 0\n", result.stdout, address)

    def test_explain_says_what_the_gateway_then_does(self):
        for method, url, status in (("GET", "https://allowed.test/x", 0), ("GET", "https://evil.test/", 1), ("POST", "https://pip.test/x", 1), ("GET", "https://pip.test/x", 0)):
            ran = self.cli("egress", "explain", self.sandbox.id, method, url)
            self.assertEqual(ran.returncode, status, ran.stdout + ran.stderr)
        answer = self.api.ok("POST", f"{self.sandbox.path}/egress/explain", {"method": "GET", "url": "https://api.secret.test/v1"})
        self.assertEqual((answer["allowed"], answer["rule"], answer["credential"]), (True, "secret", "api"))
        self.assertRefused(self.api.call("POST", f"{self.sandbox.path}/egress/explain", {"url": "nonsense"}), 400, "bad_url")

    def test_a_credential_is_added_outside_and_never_seen_inside(self):
        mark = self.net.mark()
        code, out, err = self.run_in("curl -sS -m 30 -D - https://api.secret.test/reflect; env; sudo grep -rl CANARY- /etc /home /run /tmp 2>/dev/null")
        arrived = [e for e in self.net.since(mark, "shared") if e.get("path") == "/reflect"]
        self.assertEqual([e["headers"].get("Authorization") for e in arrived], [f"Bearer {self.secret}"])
        self.assertNotIn(self.secret, out + err)
        code, out, err = self.run_in("curl -sS -m 30 http://api.secret.test/reflect")
        self.assertNotIn(self.secret, json.dumps([e for e in self.net.since(mark, "shared") if not e.get("tls")]), "never in the clear")
        self.assertNotIn(self.secret, self.server.log.read_text(errors="replace"))
        self.assertNotIn(self.secret, json.dumps(self.log()))
        self.assertNotIn(self.secret, json.dumps(self.api.ok("GET", "/v1/credentials")))

    def test_rotation_needs_no_change_in_the_sandbox(self):
        fresh = "ROTATED-" + "x" * 20
        ran = self.cli("credential", "rotate", "api", input=fresh.encode() + b"\n")
        self.assertEqual(ran.returncode, 0, ran.stderr)
        mark = self.net.mark()
        self.run_in("curl -sS -m 30 https://api.secret.test/v1/ok")
        self.assertEqual([e["headers"].get("Authorization") for e in self.net.since(mark, "shared")], [f"Bearer {fresh}"])
        self.assertEqual(self.cli("credential", "rotate", "api", input=self.secret.encode()).returncode, 0)
        self.assertNotEqual(self.cli("credential", "rotate", "unknown", input=b"12345678").returncode, 0)

    def test_the_gateways_end_is_the_networks_end_until_it_returns(self):
        self.assertEqual(self.run_in("curl -sS -m 30 http://allowed.test/")[0], 0)
        self.server.kill_role("egress")
        self.server.wait_for(lambda: self.api.ok("GET", f"{self.sandbox.path}/egress")["serving"], 30, "the hand-over to the new gateway")
        code, out, err = self.run_in("curl -sS -m 30 https://allowed.test/again")
        self.assertEqual((code, out), (0, "shared GET allowed.test /again\n"), err)
        self.assertEqual(self.api.ok("GET", f"{self.sandbox.path}/egress")["policy"], self.policy)

    def test_a_gateway_that_dies_within_a_change_serves_nothing_until_it_is_told(self):
        def gateway(method, target):
            socket = self.server.run_dir / "egress" / "egress.sock"
            ran = subprocess.run(["curl", "-sS", "--fail", "-m", "10", "--unix-socket", socket, "-X", method, f"http://gateway{target}"], capture_output=True)
            return json.loads(ran.stdout or "{}") if ran.returncode == 0 else {}

        with self.api.create(egress={"policy": self.policy}) as other:
            self.assertIn(b"shared", other.run("curl -sS -m 30 http://allowed.test/").stdout)
            gateway("PUT", f"/sandboxes/{other.id}/changes/{'c' * 24}")  # of an API that died before it said what came of it
            self.assertEqual((gateway("GET", f"/sandboxes/{other.id}")["changes"], gateway("GET", f"/sandboxes/{other.id}")["held"]), (["c" * 24], False))
            self.server.kill_role("egress")
            found = self.server.wait_for(lambda: gateway("GET", f"/sandboxes/{other.id}"), 30, "the new gateway")
            self.assertEqual((found["held"], found["changes"]), (True, ["c" * 24]))
            self.set_policy({"mode": "allowlist", "rules": [{"name": "allowed.test"}]}, other)
            self.server.wait_for(lambda: self.api.ok("GET", f"{other.path}/egress")["applied"], 20, "the change to be settled")
            self.server.wait_for(lambda: self.api.ok("GET", f"{other.path}/egress")["serving"], 30, "the hand-over")
            self.assertFalse(gateway("GET", f"/sandboxes/{other.id}")["held"])
            self.assertIn(b"shared", other.run("curl -sS -m 30 http://allowed.test/").stdout)

    def test_the_command_says_that_a_policy_is_kept_and_not_in_force(self):
        told = {"applied": False}

        class Api(BaseHTTPRequestHandler):  # a gateway that is away in the right millisecond cannot be had; its API's answers can
            def answer(self):
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                body = {"sandbox": "a" * 24, "generation": 2, "policy": {"mode": "none"}, **told}
                if self.command == "PATCH":
                    body = {"operation": {"id": "b" * 24, "state": "succeeded"}, "sandbox": {"id": "a" * 24}}
                text = json.dumps(body).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            do_GET = do_PUT = do_PATCH = answer

            def log_message(self, *args):
                pass

        with HTTPServer(("127.0.0.1", 0), Api) as server:
            thread = threading.Thread(target=server.serve_forever, daemon=True)
            thread.start()
            environment = {**self.server.environment(), "SPACE_URL": f"http://127.0.0.1:{server.server_port}"}
            for applied, status in ((False, 75), (True, 0)):
                told["applied"] = applied
                for words in (("egress", "set", "a" * 24, "none"), ("update", "a" * 24, "--egress", "none")):
                    ran = subprocess.run([BINARY, *words], env=environment, capture_output=True, timeout=60)
                    self.assertEqual((ran.returncode, b"not in force yet" in ran.stderr), (status, not applied), ran.stdout + ran.stderr)
            server.shutdown()
            thread.join()

    def test_a_new_node_hands_over_again_what_the_gateway_has_not(self):
        self.server.kill_role("node")
        self.server.wait_for(lambda: self.api.ok("GET", f"{self.sandbox.path}/egress")["serving"], 30, "the gateway to serve")
        self.assertEqual(self.run_in("curl -sS -m 30 https://allowed.test/")[0], 0)

    def test_the_log_names_every_decision(self):
        self.run_in("curl -s -m 20 https://allowed.test/logged; curl -s -m 20 http://evil.test/")
        entries = self.log()
        self.assertTrue(any(e["kind"] == "request" and e["verdict"] == "allow" and e.get("path") == "/logged" and e.get("rule") == "allowed" for e in entries), entries[-5:])
        self.assertTrue(any(e["verdict"] == "deny" and e.get("name") == "evil.test" for e in entries), entries[-5:])
        ran = self.cli("egress", "log", self.sandbox.id)
        self.assertIn(b"evil.test", ran.stdout)
        ran = self.cli("--json", "egress", "log", self.sandbox.id)
        self.assertTrue(all(json.loads(line)["sandbox"] == self.sandbox.id for line in ran.stdout.splitlines()))

    def test_a_flood_of_refused_names_hides_no_allowed_request(self):
        with self.api.create(egress={"policy": self.policy}) as other:
            other.write("/home/user/flood.py", FLOOD.encode())
            flood = other.start("python3 flood.py 2000 && curl -sS -m 30 http://allowed.test/in-the-flood").in_background()
            self.assertIn(b"shared", other.run("sleep 0.3; curl -sS -m 30 http://allowed.test/beside-the-flood").stdout)
            ran = flood.wait(120)
            self.assertIn(b"shared", ran.stdout, ran.stderr)
            answered = int(ran.stdout.split()[0])
            self.assertGreater(answered, 1000, "the control: it was a flood")

            def refused():
                return sum(e.get("count", 1) for e in self.log(other) if (e["kind"], e["verdict"]) == ("dns", "deny"))

            self.server.wait_for(lambda: refused() >= answered, 10, "every refusal to be counted")
            shown = self.cli("egress", "log", other.id).stdout
            self.assertIn(b"GET allowed.test:80/in-the-flood", shown)
            self.assertIn(b"GET allowed.test:80/beside-the-flood", shown)

    def test_what_is_no_policy_is_refused_whole(self):
        before = self.api.ok("GET", f"{self.sandbox.path}/egress")
        for policy in ({"mode": "everything"}, {"mode": "allowlist", "rules": [{"name": "w*ld.test"}]}, {"mode": "allowlist", "rules": [{"name": "*"}]},
                       {"mode": "allowlist", "rules": [{"name": "a.test", "tunnel": True, "paths": ["/x"]}]}, {"mode": "allowlist", "rules": [{"name": "a.test", "unknown": 1}]}):
            answer = self.api.call("PUT", f"{self.sandbox.path}/egress", {"policy": policy})
            self.assertEqual(answer.status, 400, policy)
        self.assertRefused(self.api.call("PUT", f"{self.sandbox.path}/egress", {"policy": {"mode": "none"}, "generation": 999}), 409, "generation_conflict")
        self.assertEqual(self.api.ok("GET", f"{self.sandbox.path}/egress")["generation"], before["generation"])
        self.assertRefused(self.api.call("PUT", f"/v1/sandboxes/{'z' * 20}/egress", {"policy": {"mode": "none"}}), 404, "sandbox_not_found")


if __name__ == "__main__":
    unittest.main()
