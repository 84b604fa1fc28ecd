"""What runs in a guest goes on where it stood: over a suspend and a wake, and in a fork, which then goes its own way."""

import time
import unittest

from api_client import Result, Sandbox
from running_programs import Programs, check_chain, clock_off_by, count_of_server, records
from space_server import ServerTest

BUDGET_S = 150


class RunningState(ServerTest):
    options = {"pool_ready": 0, "pool_spawned": 0}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.sandbox = cls.api.create()
        cls.programs = Programs(cls.sandbox)
        cls.readers = {name: command.in_background() for name, command in cls.programs.all.items()}
        cls.readers["chain"].until(lambda r: r.stdout.count(b"\n") > 20, 60)
        cls.readers["timers"].until(lambda r: r.stdout.count(b"\n") > 3, 60)
        cls.readers["editor"].until(lambda r: r.pty, 60)
        cls.programs.repl.stdin(b"kept = [1, 2, 39]\n")
        cls.programs.editor.stdin(b"first lime\x7f\x7fne\rsec")
        cls.readers["editor"].until(lambda r: b"sec" in r.pty)
        cls.sandbox.output("for i in $(seq 100); do curl -s -o /dev/null localhost:8000/ && exit 0; sleep 0.1; done; exit 1")

    def attached(self, command, last_id, until, limit=60):
        """What comes on a new connection after the event `last_id`, until that holds."""
        result, end = Result(), time.monotonic() + limit
        with command.attach(last_id) as stream:
            for event in stream:
                result.events.append(event)
                result.add(event)
                if until(result):
                    return result
                self.assertLess(time.monotonic(), end, result.__dict__)
        raise AssertionError(f"the stream ended: {result.__dict__}")

    def assertGoesOn(self, sandbox, commands, before, chain, last_id):
        """`before`: (records, requests) that were seen before; `chain`: its output up to the event `last_id`."""
        self.assertLess(clock_off_by(sandbox), 0.1, "the wall clock, as the first command finds it")
        # Counting in memory, nothing lost, nothing twice, by an attach from the last event that was seen.
        more = self.attached(commands["chain"], last_id, lambda r: r.stdout.count(b"\n") > 30)
        self.assertGreater(check_chain(chain + more.stdout), 30 + chain.count(b"\n"))
        # A file that stayed open.
        self.assertGreater(records(sandbox), before[0])
        # A server whose count is in its memory.
        self.assertEqual(count_of_server(sandbox), before[1] + 1)
        # An interpreter with variables.
        commands["repl"].stdin(b"print('sum', sum(kept))\n")
        self.attached(commands["repl"], None, lambda r: b"sum 42" in r.stdout)
        # An editor with an unsaved buffer, on a terminal in raw mode.
        commands["editor"].stdin(b"ond\x13")
        self.attached(commands["editor"], None, lambda r: b"<saved>" in r.pty)
        # A fork's terminal still shows that its parent had saved before: what counts is the file.
        self.server.wait_for(lambda: sandbox.output("cat ~/edited") == "first line\nsecond", 20, "the file that the editor saves")
        commands["editor"].stdin(b"\x7f\x7f\x7f")  # as it was

    def assertTimersGoOn(self, output):
        """A tick every 100 ms of the guest's own time, and the sleep as long as it was to be; none of both counts the time away."""
        lines = [line.split() for line in output.decode().split("\n")[:-1]]
        for number, (word, *values) in enumerate(lines):
            if word == "slept":
                self.assertTrue(5.9 < float(values[0]) < 9, values)
            elif number % 10 == 0:
                self.assertAlmostEqual(int(values[0]) / 10, float(values[1]), delta=1.5)
        self.assertIn("slept", [line[0] for line in lines])

    def state(self):
        return records(self.sandbox), count_of_server(self.sandbox)

    def test_1_over_a_suspend_and_a_wake(self):
        before = self.state()
        away = time.monotonic()
        self.assertEqual(self.sandbox.change("suspend")["state"], "succeeded")
        reader = self.readers["chain"]
        time.sleep(max(0, 3 - (time.monotonic() - away)))
        with reader.change:
            chain, last_id = reader.result.stdout, reader.result.events[-1].id
        self.assertEqual(self.sandbox.change("wake")["state"], "succeeded")
        self.assertGoesOn(self.sandbox, self.programs.all, before, chain, last_id)
        # The connection that was attached all the time has the same: it was interrupted and told, or goes on.
        reader.until(lambda r: r.stdout.count(b"\n") > chain.count(b"\n") + 30)
        with reader.change:
            check_chain(reader.result.stdout)
        self.readers["timers"].until(lambda r: b"slept" in r.stdout, 30)
        with self.readers["timers"].change:
            self.assertTimersGoOn(self.readers["timers"].result.stdout)
        self.assertEqual([line.split()[1:] for line in self.sandbox.output("cat /run/hook").split("\n")], [["1", self.sandbox.id]])

    def test_2_in_a_fork_which_goes_its_own_way(self):
        before = self.state()
        operation = self.sandbox.change("fork", {})
        self.assertEqual(operation["state"], "succeeded", operation)
        child = Sandbox(self.api, operation["children"][0])
        commands = self.programs.of(child)
        self.assertGoesOn(child, commands, before, b"", None)
        timers = self.attached(commands["timers"], None, lambda r: r.stdout.count(b"ticks") > 100)
        self.assertTimersGoOn(timers.stdout)
        self.assertEqual(child.output("cat /run/hook").split("\n")[-1].split()[1:], ["1", child.id])
        # Its parent goes on as well, and neither sees what the other does.
        child.output("echo child > ~/way")
        commands["repl"].stdin(b"kept.append(58)\n")
        self.assertEqual(self.sandbox.output("ls ~/way 2>/dev/null | wc -l"), "0")
        self.programs.repl.stdin(b"print('mine', sum(kept))\n")
        self.readers["repl"].until(lambda r: b"mine 42" in r.stdout)
        commands["repl"].stdin(b"print('mine', sum(kept))\n")
        self.attached(commands["repl"], None, lambda r: b"mine 100" in r.stdout)
        self.assertEqual(count_of_server(self.sandbox), before[1] + 1)
        self.assertEqual(count_of_server(self.sandbox), before[1] + 2)
        reader = self.readers["chain"]
        length = len(reader.result.stdout)
        reader.until(lambda r: len(r.stdout) > length + 2000)
        with reader.change:
            check_chain(reader.result.stdout)
        self.api.delete(child.id)


if __name__ == "__main__":
    unittest.main()
