"""Terminals in the guest have a size, follow it, and behave like terminals."""

import unittest

from space_server import SandboxTest


class Pty(SandboxTest):
    def test_it_has_the_size_that_was_asked_for(self):
        result = self.sandbox.run("stty size; tty", pty={"rows": 30, "cols": 100}, stdin=True)
        self.assertTrue(result.pty.startswith(b"30 100\r\n/dev/pts/"), result.pty)
        self.assertEqual((result.stdout, result.stderr), (b"", b""))

    def test_it_follows_a_resize(self):
        command = self.sandbox.start("read line; stty size", pty={"rows": 30, "cols": 100}, stdin=True)
        running = command.in_background()
        running.until(lambda result: result.events)
        self.assertEqual(command.resize(20, 60).status // 100, 2)
        command.stdin(b"go\n")
        self.assertIn(b"20 60", running.wait().pty)

    def test_a_program_is_told_of_a_resize(self):
        # Short sleeps: Python runs a handler between them, and one long sleep that begins just after the signal would hold it back.
        program = ("import signal, time; signal.signal(28, lambda *a: print('W', flush=True)); print('ready', flush=True)\n"
                   "for _ in range(200): time.sleep(0.05)")
        command = self.sandbox.start(["python3", "-c", program], pty={"rows": 24, "cols": 80}, stdin=True)
        running = command.in_background()
        running.until(lambda result: b"ready" in result.pty)
        command.resize(50, 120)
        running.until(lambda result: b"W" in result.pty, 5)
        command.kill()
        running.wait()

    def test_sizes_that_are_none_are_refused(self):
        for rows, cols in ((0, 80), (24, 0), (-1, 80), (24, -5), (70000, 80)):
            answer = self.api.call("POST", f"{self.sandbox.path}/commands", {"command": "true", "pty": {"rows": rows, "cols": cols}})
            self.assertEqual(answer.status, 400, (rows, cols))
        command = self.sandbox.start("sleep 5", pty={"rows": 24, "cols": 80})
        running = command.in_background()
        running.until(lambda result: result.events)
        self.assertEqual(command.resize(0, 80).status, 400)
        self.assertEqual(command.resize(24, -1).status, 400)
        command.kill()
        running.wait()

    def test_a_command_without_a_terminal_cannot_be_resized(self):
        command = self.sandbox.start("sleep 5")
        running = command.in_background()
        running.until(lambda result: result.events)
        self.assertEqual(command.resize(24, 80).status, 409)
        command.kill()
        running.wait()

    def test_control_c_interrupts(self):
        command = self.sandbox.start("trap 'echo interrupted; exit 7' INT; echo ready; while :; do sleep 0.1; done", pty={"rows": 24, "cols": 80}, stdin=True)
        running = command.in_background()
        running.until(lambda result: b"ready" in result.pty)
        command.stdin(b"\x03")
        result = running.wait()
        self.assertEqual(result.code, 7)
        self.assertIn(b"interrupted", result.pty)

    def test_a_shell_works_line_by_line(self):
        command = self.sandbox.start(["bash", "-i"], pty={"rows": 24, "cols": 80}, stdin=True, env={"PS1": "$ "})
        running = command.in_background()
        running.until(lambda result: result.pty)
        command.stdin(b"echo $((40+2))\n")
        running.until(lambda result: b"42" in result.pty)
        command.stdin(b"exit 9\n")
        self.assertEqual(running.wait().code, 9)


if __name__ == "__main__":
    unittest.main()
