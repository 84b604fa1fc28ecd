"""Readers of a command's output that stop reading: the command, its end and its other readers go on, and nobody takes a part for the whole."""

import contextlib
import re
import socket
import time
import unittest
from concurrent.futures import ThreadPoolExecutor

from space_server import SandboxTest

BUDGET_S = 180
SLOW = True
BESIDE = True
PATIENCE_S = 30  # after which a reader that alone holds a command up loses its hold; 10 s while another waits


class StalledReaders(SandboxTest):
    def stalled(self, command):
        """A reader that has the head of its answer, and takes no more."""
        connection = socket.socket()
        self.addCleanup(connection.close)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.settimeout(60)
        connection.connect((self.api.host, self.api.port))
        connection.sendall(f"GET {command.path}/attach HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer {self.api.key}\r\n\r\n".encode())
        self.assertEqual(connection.recv(12, socket.MSG_WAITALL), b"HTTP/1.1 200")
        return connection

    def read_all(self, command):
        """Bytes of output, kinds of events."""
        count, kinds = 0, set()
        with command.attach(timeout=60) as stream:
            for event in stream:
                kinds.add(event.kind)
                if event.kind == "stdout":
                    count += len(event.bytes)
        return count, kinds

    def rest(self, connection):
        seen = b""
        try:
            while piece := connection.recv(1 << 20):
                seen += piece
        except ConnectionError:
            pass
        return seen

    def test_another_reader_gets_everything_and_the_stalled_one_is_cut(self):
        size = 40_000_000
        command = self.sandbox.start(f"read go; head -c {size} /dev/zero", stdin=True)
        stalled = self.stalled(command)
        with ThreadPoolExecutor(1) as pool:
            reading = pool.submit(self.read_all, command)
            time.sleep(1)  # it is attached
            begun = time.monotonic()
            command.stdin(b"go\n", close=True)
            count, kinds = reading.result(60)
        self.assertEqual(count, size)
        self.assertIn("exit", kinds)
        self.assertNotIn("dropped", kinds)
        self.assertLess(time.monotonic() - begun, 28, "the stalled reader was waited for")
        self.assertEqual(command.get()["exit"]["code"], 0)
        # What it has not got is gone: it is not told an end, and learns why when it comes back.
        seen = self.rest(stalled)
        self.assertNotIn(b"event: exit", seen)
        last = re.findall(rb"^id: (\S+)$", seen.replace(b"\r", b""), re.MULTILINE)[-2].decode()
        self.assertEqual(self.refused(lambda: command.finish(last_id=last)), (409, "outside_window"))

    def test_one_that_trickles_does_not_hold_a_command_up_for_ever(self):
        command = self.sandbox.start("head -c 40000000 /dev/zero; echo done")
        stalled = self.stalled(command)

        def ended():
            with contextlib.suppress(ConnectionError):  # the server gives a connection as long
                stalled.recv(1)
            return command.get()["state"] == "exited"

        begun = time.monotonic()
        self.server.wait_for(ended, PATIENCE_S + 20, "the end of a command whose reader takes a byte now and then")
        self.assertGreater(time.monotonic() - begun, PATIENCE_S / 2, "the reader was not waited for at all")

    def test_a_time_limit_ends_a_command_that_nobody_reads(self):
        command = self.sandbox.start("head -c 60000000 /dev/zero", time_limit_ms=2000, grace_ms=500)
        stalled = self.stalled(command)
        self.server.wait_for(lambda: command.get()["state"] == "exited", 8, "the end of a command past its time limit")
        self.assertTrue(command.get()["exit"]["timed_out"])
        # What it wrote until then waits for its reader, and so does its end.
        self.assertIn(b"event: exit", self.rest(stalled))


if __name__ == "__main__":
    unittest.main()
