"""Clients that flood, stall, cut off or lie: a clear answer where one is possible, and nobody else notices."""

import http.client
import json
import socket
import time
import unittest

from space_server import SandboxTest

BUDGET_S = 120


class HostileClients(SandboxTest):
    def tearDown(self):
        self.assertEqual(self.sandbox.output("echo fine"), "fine", "somebody else noticed")

    def raw(self, timeout=60):
        connection = socket.create_connection((self.api.host, self.api.port), timeout=timeout)
        self.addCleanup(connection.close)
        return connection

    def logged(self, code):
        return self.server.log.read_text(errors="replace").count(code)

    def assertRefusedRaw(self, text, status, code):
        """Whatever is sent gets an answer, that one, and a line in the log. What comes after the answer is read away for 2 s, so that it arrives."""
        before, connection = self.logged(code), self.raw()
        try:
            connection.sendall(text)
        except ConnectionError:
            pass  # the answer may be there all the same
        self.assertAnswer(connection, status, code)
        self.server.wait_for(lambda: self.logged(code) > before, 5, f"a line with {code} in the log")

    def assertAnswer(self, connection, status, code):
        response = http.client.HTTPResponse(connection)
        response.begin()
        body = response.read()
        self.assertEqual((response.status, json.loads(body)["code"]), (status, code), body[:400])

    def head(self, *lines):
        return "\r\n".join(("POST /v1/sandboxes HTTP/1.1", "Host: x", f"Authorization: Bearer {self.api.key}", *lines, "", "")).encode()

    def test_a_flood_of_headers(self):
        self.assertRefusedRaw(self.head(*(f"X-{number}: y" for number in range(200))), 431, "headers_too_large")
        self.assertRefusedRaw(self.head(*(f"X-{number}: y" for number in range(5000))), 431, "headers_too_large")
        self.assertRefusedRaw(self.head("X-Long: " + "y" * 1_000_000), 431, "headers_too_large")

    def test_an_endless_request_line(self):
        self.assertRefusedRaw(b"GET /" + b"a" * 10_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", 414, "target_too_long")
        self.assertRefusedRaw(b"GET /" + b"a" * 1_000_000 + b" HTTP/1.1\r\n\r\n", 414, "target_too_long")

    def test_a_huge_body(self):
        self.assertRefusedRaw(self.head("Content-Type: application/json", "Content-Length: 99999999999"), 413, "body_too_large")
        answer = self.api.call("POST", "/v1/sandboxes", b'{"template":"' + b"a" * (8 << 20) + b'"}', {"Content-Type": "application/json"})
        self.assertRefused(answer, 413, "body_too_large")

    def test_lengths_that_contradict_each_other(self):
        for lines in (("Content-Length: 5", "Content-Length: 6"), ("Content-Length: -1",), ("Content-Length: 5x",), ("Content-Length: 5", "Transfer-Encoding: chunked"),
                      ("Transfer-Encoding: gzip",), ("Transfer-Encoding: chunked, chunked",)):
            with self.subTest(lines=lines):
                self.assertRefusedRaw(self.head(*lines) + b"{}", 400, "bad_message")

    def test_chunks_that_are_none(self):
        for body in (b"zz\r\n{}\r\n0\r\n\r\n", b"-1\r\n", b"ffffffffffffffffff\r\n", b"2;" + b"x" * 100_000 + b"\r\n{}\r\n0\r\n\r\n"):
            with self.subTest(body=body[:20]):
                self.assertRefusedRaw(self.head("Transfer-Encoding: chunked") + body, 400, "bad_message")

    def test_something_that_is_not_http(self):
        self.assertRefusedRaw(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200), 400, "bad_message")
        self.assertRefusedRaw(b"\x00" * 4096, 400, "bad_message")

    def test_a_second_request_hidden_in_the_first(self):
        hidden = b"GET /v1/keys HTTP/1.1\r\nHost: x\r\n\r\n"
        before, connection = self.logged("key_missing"), self.raw()
        connection.sendall(b"POST /v1/sandboxes HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(hidden) + hidden)
        connection.shutdown(socket.SHUT_WR)
        answers = b"".join(iter(lambda: connection.recv(65536), b""))
        self.assertTrue(answers.startswith(b"HTTP/1.1 401 "), answers)
        self.assertIn(b'"key_missing"', answers)
        self.assertEqual(answers.count(b"HTTP/1.1 "), 1, answers)
        self.server.wait_for(lambda: self.logged("key_missing") > before, 5, "a line with key_missing in the log")

    def test_slow_clients_hold_nobody_up(self):
        before, slow = self.logged("request_timeout"), [self.raw() for _ in range(200)]
        for connection in slow:
            connection.sendall(b"GET /v1/health HTTP/1.1\r\nX-Slow")
        begun = time.monotonic()
        self.assertEqual(self.api.call("GET", "/v1/health").status, 200)
        self.assertLess(time.monotonic() - begun, 1)
        for connection in slow:  # within the time for a head
            self.assertAnswer(connection, 408, "request_timeout")
        self.server.wait_for(lambda: self.logged("request_timeout") >= before + len(slow), 5, "a line in the log for each of them")

    def test_a_client_that_closes_its_side_still_gets_its_answer(self):
        self.assertEqual(self.half_closed("GET", "/v1/health")[0], 200)

    def half_closed(self, method, path, *lines, body=b""):
        """Status and body for a client that says all it has to say, then closes its side."""
        connection = self.raw()
        head = (f"{method} {path} HTTP/1.1", "Host: x", f"Authorization: Bearer {self.api.key}", f"Content-Length: {len(body)}", *lines)
        connection.sendall("\r\n".join((*head, "", "")).encode() + body)
        connection.shutdown(socket.SHUT_WR)
        response = http.client.HTTPResponse(connection, method=method)
        response.begin()
        return response.status, response.read()

    def test_a_half_closed_client_gets_what_node_and_the_guest_answer(self):
        status, body = self.half_closed("GET", self.sandbox.files("stat", "/etc/passwd"))
        self.assertEqual((status, json.loads(body)["type"]), (200, "file"), body)

    def test_a_half_closed_reader_sees_its_command_to_the_end(self):
        command = self.sandbox.start("sleep 2; exit 5")
        status, body = self.half_closed("GET", f"{command.path}/attach")
        self.assertEqual(status, 200, body)
        self.assertIn(b'"code":5', body)

    def test_a_half_closed_client_that_waits_is_told_what_came_of_it(self):
        status, body = self.half_closed("POST", "/v1/sandboxes", "Content-Type: application/json", "Prefer: wait=60", body=b"{}")
        answer = json.loads(body)
        self.assertEqual((status, answer["sandbox"]["state"]), (201, "running"), body)
        self.api.delete(answer["sandbox"]["id"])

    def test_a_reader_that_stops_reading_does_not_stop_the_command(self):
        command = self.sandbox.start("head -c 30000000 /dev/zero; echo done > /tmp/flooded")
        connection = self.raw()
        connection.sendall(f"GET {command.path}/attach HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {self.api.key}\r\n\r\n".encode())
        time.sleep(1)
        self.assertEqual(self.sandbox.output("echo other commands run"), "other commands run")
        connection.close()
        self.server.wait_for(lambda: command.get()["state"] == "exited", 60, "the command's end after its reader went")

    def test_a_hundred_connections_that_are_cut(self):
        for number in range(100):
            connection = self.raw()
            connection.sendall(self.head("Content-Length: 100") + b'{"templ'[: number % 8])
            connection.close()


if __name__ == "__main__":
    unittest.main()
