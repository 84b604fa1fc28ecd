"""Commands: what goes in, what comes out, how they end."""

import signal
import unittest

from space_server import ServerTest

BUDGET_S = 90


class Commands(ServerTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.sandbox = cls.api.create(env={"FROM": "create", "ONLY": "create"})

    def test_stdout_and_stderr_stay_apart(self):
        result = self.sandbox.run("echo out; echo err >&2; echo out2")
        self.assertEqual((result.stdout, result.stderr), (b"out\nout2\n", b"err\n"))

    def test_the_exit_status_is_the_commands_own(self):
        for code in (0, 1, 3, 77, 127, 255):
            result = self.sandbox.run(f"exit {code}")
            self.assertEqual((result.code, result.signal, result.timed_out), (code, 0, False))

    def test_a_signal_that_ended_it_is_told(self):
        result = self.sandbox.run("kill -SEGV $$")
        self.assertEqual(result.signal, signal.SIGSEGV)

    def test_argv_reaches_the_program_as_it_is(self):
        words = ["a b", "", "*", "$HOME", "'\"", "ü\n"]
        result = self.sandbox.run(["python3", "-c", "import sys; print(ascii(sys.argv[1:]))", *words])
        self.assertEqual(result.stdout.decode().strip(), ascii(words))

    def refusal(self, **body):
        """The problem of a command that cannot start: when it is created, or when somebody attaches."""
        answer = self.api.call("POST", f"{self.sandbox.path}/commands", body)
        if answer.status == 201:
            answer = self.api.call("GET", f"{self.sandbox.path}/commands/{answer.json['session']}/attach")
        self.assertIn(answer.status, (400, 403, 404), answer.body)
        return answer.json

    def test_a_program_that_is_not_there_is_an_error_that_names_it(self):
        problem = self.refusal(argv=["/no/such/program"])
        self.assertEqual(problem["code"], "command_not_found")
        self.assertIn("/no/such/program", problem["detail"])

    def test_a_file_that_is_no_program_is_an_error_too(self):
        self.assertIn("/etc/passwd", self.refusal(argv=["/etc/passwd"])["detail"])

    def test_it_runs_as_user_in_its_home(self):
        self.assertEqual(self.sandbox.output("id -un; pwd; echo $HOME").split(), ["user", "/home/user", "/home/user"])

    def test_another_user_and_folder(self):
        self.assertEqual(self.sandbox.output("id -u; pwd", user="root", cwd="/etc").split(), ["0", "/etc"])
        self.assertEqual(self.sandbox.output("sudo id -u"), "0")

    def test_an_unknown_user_or_folder_is_refused_by_name(self):
        for wrong in ({"user": "nobody-here"}, {"cwd": "/no/such/folder"}):
            self.assertIn(next(iter(wrong.values())), self.refusal(command="true", **wrong)["detail"])

    def test_environment_of_the_command_goes_before_that_of_the_sandbox(self):
        self.assertEqual(self.sandbox.output("echo $FROM $ONLY", env={"FROM": "command"}), "command create")

    def test_output_is_bytes(self):
        every = bytes(range(256))
        result = self.sandbox.run(["python3", "-c", "import sys; sys.stdout.buffer.write(bytes(range(256)) * 3)"])
        self.assertEqual(result.stdout, every * 3)

    def test_nothing_on_stdin_is_the_end_of_it(self):
        self.assertEqual(self.sandbox.run("cat; echo done").stdout, b"done\n")

    def test_signals_reach_the_whole_group(self):
        command = self.sandbox.start("trap 'wait; exit 5' USR1; sh -c 'trap \"echo child; exit 0\" USR1; echo ready; while :; do sleep 0.05; done' & wait; exit 6")
        running = command.in_background()
        running.until(lambda result: b"ready" in result.stdout)
        self.assertEqual(command.signal("USR1").status // 100, 2)
        self.assertIn(b"child", running.wait(20).stdout)

    def test_an_unknown_signal_is_refused(self):
        command = self.sandbox.start("sleep 30")
        running = command.in_background()
        running.until(lambda result: result.events)
        self.assertEqual(command.signal("NOSUCH").status, 400)
        command.kill()
        self.assertEqual(running.wait(20).signal, signal.SIGKILL)

    def test_kill_ends_a_command_that_ignores_everything(self):
        command = self.sandbox.start("trap '' TERM INT HUP; echo ready; while :; do sleep 1; done")
        running = command.in_background()
        running.until(lambda result: b"ready" in result.stdout)
        self.assertEqual(command.kill().status // 100, 2)
        self.assertEqual(running.wait(20).signal, signal.SIGKILL)

    def test_the_list_shows_what_runs_and_how_it_ended(self):
        over = self.sandbox.start("exit 4")
        over.finish()
        command = self.sandbox.start(["sleep", "30"])
        running = command.in_background()
        running.until(lambda result: result.events)
        listed = {one["session"]: one for one in self.api.ok("GET", f"{self.sandbox.path}/commands")["commands"]}
        self.assertEqual(listed[over.session]["state"], "exited")
        self.assertEqual(listed[over.session]["exit"]["code"], 4)
        self.assertEqual(listed[command.session]["state"], "running")
        command.kill()
        running.wait(20)

    def test_creating_a_session_starts_nothing(self):
        command = self.sandbox.start("touch /tmp/started-too-early")
        self.assertEqual(self.sandbox.run("sleep 0.3; test -e /tmp/started-too-early").code, 1)
        self.assertEqual(command.finish().code, 0)
        self.assertEqual(self.sandbox.run("test -e /tmp/started-too-early").code, 0)

    def test_a_session_needs_exactly_one_kind_of_command(self):
        for body in ({}, {"argv": []}, {"argv": ["true"], "command": "true"}, {"argv": "true"}, {"command": "true", "colour": 1}):
            self.assertEqual(self.api.call("POST", f"{self.sandbox.path}/commands", body).status, 400, body)


if __name__ == "__main__":
    unittest.main()
