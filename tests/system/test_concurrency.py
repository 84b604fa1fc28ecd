"""Twenty sandboxes at once: nobody's output, files or fate is mixed up with another's."""

import threading
import time
import unittest

from space_server import ServerTest

BUDGET_S = 180
COUNT = 20


def together(call, items):
    """Runs `call(item)` for all at once and gives the results in their order; the first error is raised."""
    results, errors = [None] * len(items), []

    def run(index, item):
        try:
            results[index] = call(item)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=pair) for pair in enumerate(items)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return results


class Concurrency(ServerTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.sandboxes = together(lambda number: cls.api.create(env={"WHO": f"number-{number}"}), list(range(COUNT)))

    def test_outputs_are_never_swapped(self):
        def work(pair):
            number, sandbox = pair
            result = sandbox.run("for i in $(seq 1 300); do echo $WHO $i; echo $WHO! $i >&2; done", timeout=150)
            self.assertEqual(result.stdout.decode().split("\n")[:-1], [f"number-{number} {i}" for i in range(1, 301)])
            self.assertEqual(result.stderr.decode().split("\n")[:-1], [f"number-{number}! {i}" for i in range(1, 301)])

        together(work, list(enumerate(self.sandboxes)))

    def test_files_are_never_swapped(self):
        def work(pair):
            number, sandbox = pair
            content = bytes([number]) * 500_000
            sandbox.write("/home/user/same-name", content)
            self.assertEqual(sandbox.read("/home/user/same-name"), content)

        together(work, list(enumerate(self.sandboxes)))

    def test_many_commands_in_one_sandbox(self):
        sandbox = self.sandboxes[0]
        results = together(lambda number: sandbox.run(f"sleep 0.{number % 5}; echo {number}; exit {number}", timeout=120), list(range(30)))
        self.assertEqual([(result.stdout, result.code) for result in results], [(f"{number}\n".encode(), number) for number in range(30)])

    def test_clients_that_go_away_lose_nothing_for_others(self):
        sandbox = self.sandboxes[1]

        def leave(number):
            with sandbox.start("echo here; sleep 0.2; echo there").attach() as stream:
                next(iter(stream))

        def stay(number):
            return sandbox.run(["sh", "-c", f"echo {number}"], timeout=60).stdout

        results = together(lambda number: leave(number) if number % 2 else stay(number), list(range(20)))
        self.assertEqual(results[::2], [f"{number}\n".encode() for number in range(0, 20, 2)])

    def test_churn_beside_running_ones(self):
        stop, wrong = time.monotonic() + 10, []

        def churn(_):
            while time.monotonic() < stop:
                with self.api.create(metadata={"kind": "churn"}) as sandbox:
                    if sandbox.output("echo up") != "up":
                        wrong.append(sandbox.id)

        def keep(sandbox):
            while time.monotonic() < stop:
                expected = sandbox.output("cat /proc/sys/kernel/random/boot_id; cat /etc/machine-id")
                if sandbox.output("cat /proc/sys/kernel/random/boot_id; cat /etc/machine-id") != expected:
                    wrong.append(sandbox.id)

        together(lambda work: work[0](work[1]), [(churn, None)] * 3 + [(keep, sandbox) for sandbox in self.sandboxes[2:4]])
        self.assertEqual(wrong, [])


if __name__ == "__main__":
    unittest.main()
