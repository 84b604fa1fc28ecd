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

    def status_of(self, connection):
        try:
            line = connection.makefile("rb").readline()
        except (ConnectionError, socket.timeout):
            return None
        return int(line.split()[1]) if line.startswith(b"HTTP/1.1 ") else None

    def request(self, text):
        connection = self.raw()
        try:
            connection.sendall(text)
        except ConnectionError:
            pass
        return self.status_of(connection)

    def head(self, *lines):
        return "\r\n".join(("POST /v1/sandboxes HTTP/1.1", "Host: x", f"Authorization: Bearer {self.api.key}", *lines, "", "")).encode()

    def test_a_flood_of_headers(self):
        self.assertIn(self.request(self.head(*(f"X-{number}: y" for number in range(5000)))), (431, 400))
        self.assertIn(self.request(self.head("X-Long: " + "y" * 1_000_000)), (431, 400, None))

    def test_an_endless_request_line(self):
        self.assertIn(self.request(b"GET /" + b"a" * 1_000_000 + b" HTTP/1.1\r\n\r\n"), (414, 431, 400, None))

    def test_a_huge_body(self):
        self.assertEqual(self.request(self.head("Content-Type: application/json", "Content-Length: 99999999999")), 413)
        answer = self.api.call("POST", "/v1/sandboxes", b'{"template":"' + b"a" * (8 << 20) + b'"}', {"Content-Type": "application/json"})
        self.assertEqual(answer.status, 413)

    def test_lengths_that_contradict_each_other(self):
        for lines in (("Content-Length: 5", "Content-Length: 6"), ("Content-Length: -1",), ("Content-Length: 5x",), ("Content-Length: 5", "Transfer-Encoding: chunked"),
                      ("Transfer-Encoding: gzip",), ("Transfer-Encoding: chunked, chunked",)):
            self.assertIn(self.request(self.head(*lines) + b"{}"), (400, 501, None), lines)

    def test_chunks_that_are_none(self):
        for body in (b"zz\r\n{}\r\n0\r\n\r\n", b"-1\r\n", b"ffffffffffffffffff\r\n", b"2;" + b"x" * 100_000 + b"\r\n{}\r\n0\r\n\r\n"):
            self.assertIn(self.request(self.head("Transfer-Encoding: chunked") + body), (400, 413, 431, None), body[:20])

    def test_something_that_is_not_http(self):
        self.assertIn(self.request(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200)), (400, None))
        self.assertIn(self.request(b"\x00" * 4096), (400, None))

    def test_a_second_request_hidden_in_the_first(self):
        connection = self.raw()
        connection.sendall(b"POST /v1/sandboxes HTTP/1.1\r\nHost: x\r\nContent-Length: 60\r\n\r\nGET /v1/keys HTTP/1.1\r\nHost: x\r\nX: ")
        self.assertEqual(self.status_of(connection), 401)

    def test_slow_clients_hold_nobody_up(self):
        slow = [self.raw() for _ in range(200)]
        for connection in slow:
            connection.sendall(b"GET /v1/health HTTP/1.1\r\nX-Slow")
        begun = time.monotonic()
        self.assertEqual(self.api.call("GET", "/v1/health").status, 200)
        self.assertLess(time.monotonic() - begun, 1)
        ended = self.status_of(slow[0])  # within the time for a head
        self.assertIn(ended, (408, None))

    def test_a_client_that_closes_its_side_still_gets_its_answer(self):
        connection = self.raw()
        connection.sendall(f"GET /v1/health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        connection.shutdown(socket.SHUT_WR)
        self.assertEqual(self.status_of(connection), 200)

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

    def test_the_log_has_a_line_for_what_was_refused(self):
        self.request(self.head("Content-Length: 99999999999"))
        self.server.wait_for(lambda: "too_large" in self.server.log_tail(400), 5, "a line in the log")


if __name__ == "__main__":
    unittest.main()
