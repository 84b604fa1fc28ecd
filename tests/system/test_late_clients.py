"""P01 of the field reports: a command whose client comes back after minutes. Elsewhere its process was said not to exist any more."""

import time
import unittest

from space_server import ServerTest

BUDGET_S = 220
SLOW = True
BESIDE = True


class LateClients(ServerTest):
    def test_a_job_is_found_again_minutes_after_its_client_went(self):
        with self.api.create() as sandbox:
            command = sandbox.start("for i in $(seq 1 140); do echo $i; sleep 1; done; exit 9")
            with command.attach() as stream:
                last = next(event for event in stream if event.kind == "stdout").id
            time.sleep(125)
            self.assertEqual(command.get()["state"], "running")
            result = command.finish(last_id=last, timeout=60)  # the rest, without loss or repetition
            self.assertEqual(([int(line) for line in result.stdout.split()], result.code), (list(range(2, 141)), 9))
            again = command.get()
            self.assertEqual((again["state"], again["exit"]["code"]), ("exited", 9))


if __name__ == "__main__":
    unittest.main()
