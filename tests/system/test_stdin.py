"""Standard input: closed unless asked for, streamed when it is."""

import hashlib
import random
import time
import unittest

from space_server import SandboxTest


class Stdin(SandboxTest):
    def test_a_program_that_waits_for_input_gets_it(self):
        command = self.sandbox.start(["python3", "-c", "print(input())"], stdin=True)
        running = command.in_background()
        running.until(lambda result: result.events)
        self.assertEqual(command.stdin(b"x\n").status // 100, 2)
        result = running.wait()
        self.assertEqual((result.code, result.stdout), (0, b"x\n"))

    def test_without_stdin_it_ends_at_once_with_an_error_of_its_own(self):
        result = self.sandbox.run(["python3", "-c", "print(input())"])
        self.assertEqual(result.code, 1)
        self.assertIn(b"EOFError", result.stderr)

    def test_input_for_a_command_without_stdin_is_refused(self):
        command = self.sandbox.start("sleep 5")
        running = command.in_background()
        running.until(lambda result: result.events)
        self.assertEqual(command.stdin(b"x").status, 409)
        command.kill()
        running.wait()

    def test_every_byte_arrives_once_and_in_order(self):
        content = random.Random(1).randbytes(3_000_000)
        command = self.sandbox.start("sha256sum", stdin=True)
        running = command.in_background()
        running.until(lambda result: result.events)
        for start in range(0, len(content), 700_000):
            self.assertEqual(command.stdin(content[start:start + 700_000]).status // 100, 2)
        command.stdin(close=True)
        self.assertEqual(running.wait().stdout.split()[0].decode(), hashlib.sha256(content).hexdigest())

    def test_a_program_that_reads_slowly_slows_the_sender_and_loses_nothing(self):
        content = b"0123456789abcdef" * 40_000  # ten times what a pipe holds
        command = self.sandbox.start("sleep 2; wc -c", stdin=True)
        running = command.in_background()
        running.until(lambda result: result.events)
        begun = time.monotonic()
        self.assertEqual(command.stdin(content).status // 100, 2)
        self.assertGreater(time.monotonic() - begun, 1)
        command.stdin(close=True)
        self.assertEqual(int(running.wait().stdout), len(content))

    def test_input_after_the_end_has_a_clear_answer(self):
        command = self.sandbox.start("true", stdin=True)
        command.finish()
        answer = command.stdin(b"too late")
        self.assertIn(answer.status, (409, 410), answer.body)

    def test_a_program_that_closed_its_input_does_not_hold_the_sender(self):
        command = self.sandbox.start("exec 0<&-; sleep 3", stdin=True)
        running = command.in_background()
        running.until(lambda result: result.events)
        time.sleep(0.5)
        begun = time.monotonic()
        command.stdin(b"x" * 300_000)
        self.assertLess(time.monotonic() - begun, 10)
        self.assertEqual(running.wait().code, 0)

    def test_closing_it_ends_cat(self):
        command = self.sandbox.start("cat", stdin=True)
        running = command.in_background()
        running.until(lambda result: result.events)
        command.stdin(b"last words", close=True)
        self.assertEqual(running.wait().stdout, b"last words")


if __name__ == "__main__":
    unittest.main()
