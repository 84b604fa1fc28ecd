"""When a command is over: the faults that other platforms had with background children, zombies, limits and lost clients."""

import time
import unittest

from space_server import SandboxTest

BUDGET_S = 150


class CommandEnds(SandboxTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.sandbox.run("true")

    def test_a_background_child_that_holds_the_pipe_does_not_hold_the_command(self):
        result = self.sandbox.run("sleep 30 & echo started", time_limit_ms=20000)
        self.assertEqual((result.code, result.stdout, result.timed_out), (0, b"started\n", False))
        self.assertLess(result.seconds, 5)

    def test_a_daemon_that_let_go_of_the_pipe_does_not_either(self):
        result = self.sandbox.run("nohup sh -c 'sleep 600' >/dev/null 2>&1 & echo ok")
        self.assertEqual(result.stdout, b"ok\n")
        self.assertLess(result.seconds, 5)

    def test_what_a_child_writes_right_after_the_end_is_still_taken(self):
        program = '$| = 1; if (!fork) { select(undef, undef, undef, 0.05); print "late\n"; exit } print "early\n"'
        result = self.sandbox.run(["perl", "-e", program])
        self.assertEqual(sorted(result.stdout.split()), [b"early", b"late"])

    def test_the_end_is_told_when_it_happens(self):
        times = sorted(self.sandbox.run("true").seconds for _ in range(9))
        self.assertLess(times[4], 0.5, times)

    def test_five_hundred_orphans_leave_no_zombie(self):
        # Forks alone, since starting 1,000 programs takes its time without hardware virtualisation.
        program = "for (1 .. 500) { if (!fork) { if (!fork) { select(undef, undef, undef, 0.1); exit } exit } wait }"
        self.assertEqual(self.sandbox.run(["perl", "-e", program], timeout=120).code, 0)
        self.assertEqual(self.sandbox.run("for i in $(seq 20); do sh -c 'sleep 0.1 &'; done", timeout=120).code, 0)
        time.sleep(1)
        self.assertEqual(self.sandbox.output("ps -eo stat= | grep -c ^Z; true"), "0")

    def test_reaping_orphans_steals_no_exit_status(self):
        codes = {}
        running = {code: self.sandbox.start(f"sh -c 'sleep 0.05 &'; sleep 0.2; exit {code}").in_background() for code in range(1, 11)}
        for code, command in running.items():
            codes[code] = command.wait(30).code
        self.assertEqual(codes, {code: code for code in range(1, 11)})

    def test_the_time_limit_ends_it_and_says_so(self):
        result = self.sandbox.run("sleep 3600", time_limit_ms=1000)
        self.assertTrue(result.timed_out)
        self.assertLess(result.seconds, 6)

    def test_a_command_that_ignores_term_is_killed_after_the_grace(self):
        result = self.sandbox.run("trap '' TERM; echo ready; while :; do sleep 1; done", time_limit_ms=1000)
        self.assertTrue(result.timed_out)
        self.assertEqual(result.signal, 9)
        self.assertLess(result.seconds, 10)

    def test_the_time_limit_holds_when_the_client_has_vanished(self):
        command = self.sandbox.start("sleep 3600 & sleep 3600", time_limit_ms=2000)
        with command.attach() as stream:
            next(iter(stream))
        time.sleep(6)
        shown = command.get()
        self.assertEqual(shown["state"], "exited")
        self.assertTrue(shown["exit"]["timed_out"])
        self.assertEqual(self.sandbox.output("pgrep -cf '^sleep 3600'; true"), "0")

    def test_the_output_of_a_flood_is_complete_for_a_reader(self):
        size = 200_000_000
        command = self.sandbox.start(f"head -c {size} /dev/zero | tr '\\0' A; echo END >&2; exit 3")
        count, tail, exit = 0, b"", None
        with command.attach(timeout=120) as stream:
            for event in stream:
                if event.kind == "stdout":
                    count += len(event.bytes)
                elif event.kind == "stderr":
                    tail += event.bytes
                elif event.kind == "exit":
                    exit = event.data["code"]
                self.assertNotEqual(event.kind, "dropped")
        self.assertEqual((count, tail, exit), (size, b"END\n", 3))

    def test_without_a_reader_head_and_tail_are_kept_and_the_gap_is_counted(self):
        size = 20_000_000
        command = self.sandbox.start(f"echo START; head -c {size} /dev/zero | tr '\\0' A; echo END; exit 3")
        with command.attach() as stream:
            next(iter(stream))
        self.server.wait_for(lambda: command.get()["state"] == "exited", 60, "the end of a command that nobody reads")
        result = command.finish()
        self.assertEqual(result.code, 3)
        self.assertTrue(result.stdout.startswith(b"START\n"))
        self.assertTrue(result.stdout.endswith(b"END\n"))
        self.assertEqual(len(result.stdout) + result.dropped, size + len("START\nEND\n"))
        self.assertGreater(result.dropped, 0)

    def test_many_short_commands_in_a_row_all_end(self):
        for number in range(60):
            self.assertEqual(self.sandbox.run(["sh", "-c", f"exit {number % 3}"], timeout=20).code, number % 3)


if __name__ == "__main__":
    unittest.main()
