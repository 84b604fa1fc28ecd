"""Servers inside a sandbox, reached from outside: by path and by host name, HTTP and WebSocket, private and public."""

import http.client
import json
import socket
import unittest

from guest_servers import HANDLER
from space_server import SandboxTest

BUDGET_S = 150
DOMAIN = "box.example.org"

SERVER = HANDLER + '''
class H(Handler):
    def seen(self, sent): return {"method": self.command, "path": self.path, "headers": dict(self.headers), "body": sent.decode()}
ThreadingHTTPServer((sys.argv[1], int(sys.argv[2])), H).serve_forever()
'''


class Ports(SandboxTest):
    options = {"domain": DOMAIN}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.sandbox.write("/home/user/server.py", SERVER.encode())
        for address, port in (("0.0.0.0", 8080), ("127.0.0.1", 8081)):
            cls.sandbox.start(["python3", "/home/user/server.py", address, str(port)]).in_background()
        cls.sandbox.run("for i in $(seq 100); do curl -s -o /dev/null localhost:8080/ && curl -s -o /dev/null localhost:8081/ && exit 0; sleep 0.2; done; exit 1")
        cls.key = (cls.server.data_dir / "first.key").read_text().strip()

    def ask(self, path, host=None, key=True, method="GET", body=None, headers=()):
        address, port = self.server.url.split("//")[1].split(":")
        connection = http.client.HTTPConnection(address, int(port), timeout=60)
        connection.putrequest(method, path, skip_host=True)
        connection.putheader("Host", host or f"{address}:{port}")
        if key:
            connection.putheader("Authorization", f"Bearer {self.key}")
        for name, value in headers:
            connection.putheader(name, value)
        if body is not None:
            connection.putheader("Content-Length", str(len(body)))
        connection.endheaders()
        if body is not None:
            connection.send(body)
        answer = connection.getresponse()
        text = answer.read()
        connection.close()
        return answer.status, text

    def path(self, rest="/", port=8080):
        return f"/v1/sandboxes/{self.sandbox.id}/ports/{port}{rest}"

    def test_by_path_the_rest_of_the_target_reaches_the_server_as_it_was_sent(self):
        for rest in ("/", "", "/a//b/?x=%2F&y", "/../up"):
            status, text = self.ask(self.path(rest))
            self.assertEqual(status, 200, text)
            self.assertEqual(json.loads(text)["path"], rest or "/")

    def test_a_server_on_the_loopback_address_is_reached_too(self):
        status, text = self.ask(self.path("/here", 8081), method="POST", body=b"hello")
        self.assertEqual(status, 200, text)
        self.assertEqual((json.loads(text)["method"], json.loads(text)["body"]), ("POST", "hello"))

    def test_the_guest_sees_neither_the_key_nor_forged_forwarding(self):
        status, text = self.ask(self.path(), headers=[("X-Forwarded-For", "6.6.6.6"), ("Space-Tenant", "other"), ("X-Own", "kept")])
        self.assertEqual(status, 200, text)
        headers = {name.lower(): value for name, value in json.loads(text)["headers"].items()}
        self.assertNotIn("authorization", headers)
        self.assertNotIn("space-tenant", headers)
        self.assertEqual(headers["x-forwarded-for"], "127.0.0.1")
        self.assertEqual(headers["x-own"], "kept")
        self.assertNotIn(self.key, text.decode())

    def test_the_guest_sees_no_key_in_whatever_form(self):
        e2b = self.api.ok("POST", "/v1/keys", {"name": "e2b", "form": "e2b"})["key"]
        looks = self.api.ok("POST", "/v1/keys", {"name": "looks", "scopes": ["read"]})["key"]
        for public in (False, True):
            self.api.ok("PUT" if public else "DELETE", f"{self.sandbox.path}/public-ports/8080")
            for headers in ([("Authorization", f"Bearer {e2b}")], [("Authorization", f"bearer {self.key}")], [("Authorization", f"Bearer {self.key}"), ("X-API-KEY", e2b)]):
                status, text = self.ask(self.path(), key=False, headers=headers)
                self.assertEqual(status, 200, (public, text))
                self.assertNotIn(e2b, text.decode())
                self.assertNotIn(self.key, text.decode())
        self.assertNotIn(looks, self.ask(self.path(), key=False, headers=[("Authorization", f"Bearer {looks}")])[1].decode())
        self.api.ok("DELETE", f"{self.sandbox.path}/public-ports/8080")
        status, text = self.ask("/", key=False, headers=[("E2b-Sandbox-Id", self.sandbox.id), ("E2b-Sandbox-Port", "8080"), ("Authorization", f"Bearer {self.key}"),
                                                         ("E2b-Traffic-Access-Token", self.api.ok("POST", f"{self.sandbox.path}/traffic-token")["token"])])
        self.assertEqual(status, 200, text)
        self.assertNotIn(self.key, text.decode())

    def test_by_host_name(self):
        host = f"8080-{self.sandbox.id}.{DOMAIN}"
        status, text = self.ask("/v1/version?not=ours", host=host)
        self.assertEqual(status, 200, text)
        self.assertEqual(json.loads(text)["path"], "/v1/version?not=ours")
        self.assertEqual(json.loads(text)["headers"]["Host"], host)
        for wrong in (f"080-{self.sandbox.id}.{DOMAIN}", f"8080-{self.sandbox.id}.{DOMAIN}.evil.test", f"8080-{self.sandbox.id.upper()}.{DOMAIN}"):
            status, text = self.ask("/only-in-the-guest", host=wrong)
            self.assertIn(status, (400, 404), wrong)

    def test_private_until_it_is_made_public_and_then_again(self):
        self.assertEqual(self.ask(self.path(), key=False)[0], 401)
        self.assertEqual(self.ask(self.path(), key=False, headers=[("Space-Port-Access", "public")])[0], 401)
        self.assertEqual(self.ask(self.path(), key=False, headers=[("Space-Tenant", "default")])[0], 401)
        self.assertEqual(self.ask(self.path(), key=False, headers=[("Space-Traffic-Token", "guess")])[0], 401)
        opened = self.cli("port", "open", self.sandbox.id, "8080")
        self.assertEqual(opened.stdout.decode().split(), ["8080"], opened.stderr)
        self.assertEqual(self.ask(self.path(), key=False)[0], 200)
        self.assertEqual(self.ask(self.path("/", 8081), key=False)[0], 401)
        theirs = "Bearer sk_test_of_the_server_behind_it"  # begins like one of ours, and is not
        status, text = self.ask(self.path(), key=False, headers=[("Authorization", theirs)])
        self.assertEqual((status, json.loads(text)["headers"].get("Authorization")), (200, theirs))
        self.assertEqual(self.ask(self.path("/", 8081), key=False, headers=[("Authorization", theirs)])[0], 401)
        self.assertEqual(self.cli("port", "close", self.sandbox.id, "8080").returncode, 0)
        self.assertEqual(self.ask(self.path(), key=False)[0], 401)

    def test_a_traffic_token_opens_the_ports_of_its_sandbox_alone_and_wakes_it(self):
        token = self.cli("port", "token", self.sandbox.id).stdout.decode().strip()
        answer = self.api.ok("POST", f"{self.sandbox.path}/traffic-token")
        self.assertEqual(answer, {"token": token, "header": "Space-Traffic-Token"})
        status, text = self.ask(self.path(), key=False, headers=[(answer["header"], token)])
        self.assertEqual(status, 200, text)
        self.assertNotIn(token, text.decode(), "the guest does not see it")
        self.assertEqual(self.ask(self.path(), key=False, headers=[(answer["header"], token[:-1] + ("0" if token[-1] != "0" else "1"))])[0], 401)
        self.api.ok("POST", f"{self.sandbox.path}/pause", {}, {"Prefer": "wait=60"})
        self.assertEqual(self.ask(self.path(), key=False, headers=[(answer["header"], "x" * len(token))])[0], 401)
        self.assertEqual(self.sandbox.get()["state"], "paused", "a wrong token wakes nobody")
        self.assertEqual(self.ask(self.path("/awake"), key=False, headers=[(answer["header"], token)])[0], 200)
        with self.api.create() as other:
            self.assertNotEqual(self.api.ok("POST", f"{other.path}/traffic-token")["token"], token)
            self.assertEqual(self.ask(f"/v1/sandboxes/{other.id}/ports/8080/", key=False, headers=[(answer["header"], token)])[0], 401)
        self.assertRefused(self.api.call("POST", f"/v1/sandboxes/{'z' * 20}/traffic-token"), 404, "sandbox_not_found")

    def test_what_is_no_port(self):
        for port, status, code in ((9999, 503, "port_closed"), (49983, 404, "port_not_found"), (0, 404, "port_not_found"), ("080", 404, "port_not_found"), (65536, 404, "port_not_found")):
            found, text = self.ask(self.path("/", port))
            self.assertEqual((found, json.loads(text)["code"]), (status, code), text)
        found, text = self.ask(f"/v1/sandboxes/{'z' * 20}/ports/8080/")
        self.assertEqual(found, 404)

    def test_websocket(self):
        address, port = self.server.url.split("//")[1].split(":")
        for target, host in ((self.path("/ws"), "any"), ("/ws", f"8080-{self.sandbox.id}.{DOMAIN}")):
            with socket.create_connection((address, int(port)), 30) as s:
                s.sendall(f"GET {target} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {self.key}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
                          "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n".encode())
                head = b""
                while b"\r\n\r\n" not in head:
                    head += s.recv(1000)
                self.assertIn(b" 101 ", head)
                self.assertIn(b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo=", head)
                for word in (b"one", b"two"):
                    s.sendall(word)
                    self.assertEqual(s.recv(100), b"<" + word + b">")

    def test_a_paused_sandbox_is_woken(self):
        self.api.ok("POST", f"{self.sandbox.path}/pause", {}, {"Prefer": "wait=60"})
        status, text = self.ask(self.path("/awake"))
        self.assertEqual(status, 200, text)
        self.assertEqual(self.sandbox.get()["state"], "running")


if __name__ == "__main__":
    unittest.main()
