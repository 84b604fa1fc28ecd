"""The first thing that anybody does: a program runs in a machine of its own, and nothing is left."""

import os
import subprocess
import sys
import unittest

from space_server import ROOT, ServerTest

BUDGET_S = 150  # the base is made here


class FirstSandbox(ServerTest):
    def test_a_python_program_runs_under_another_kernel(self):
        with self.api.create() as sandbox:
            result = sandbox.run(["python3", "-c", "import platform; print(6 * 7); print('guest kernel:', platform.release())"])
            self.assertEqual((result.code, result.stderr), (0, b""))
            self.assertTrue(result.stdout.startswith(b"42\n"))
            self.assertNotIn(os.uname().release.encode(), result.stdout)

    def test_a_sandbox_says_what_it_is(self):
        with self.api.create(metadata={"project": "first"}) as sandbox:
            shown = sandbox.get()
            self.assertEqual((shown["state"], shown["template"], shown["metadata"]), ("running", "base", {"project": "first"}))
            self.assertRegex(shown["template_digest"], r"^sha256:[0-9a-f]{64}$")
            self.assertRegex(shown["id"], r"^[a-z0-9]{20,}$")

    def test_it_has_the_size_that_was_asked_for(self):
        with self.api.create(cpus=2, memory_mib=768) as sandbox:
            self.assertEqual(sandbox.output("nproc"), "2")
            kib = int(sandbox.output("awk '/MemTotal/{print $2}' /proc/meminfo"))
            self.assertTrue(640 << 10 < kib < 768 << 10, kib)

    def test_two_sandboxes_do_not_see_each_other(self):
        with self.api.create() as one, self.api.create() as other:
            one.write("/home/user/mine", b"secret")
            self.assertEqual(other.run(["test", "-e", "/home/user/mine"]).code, 1)
            self.assertNotEqual(one.output("cat /etc/machine-id"), other.output("cat /etc/machine-id"))
            self.assertNotEqual(one.output("head -c 16 /dev/urandom | xxd -p || od -An -tx1 -N16 /dev/urandom"),
                                other.output("head -c 16 /dev/urandom | xxd -p || od -An -tx1 -N16 /dev/urandom"))

    def test_its_clock_is_right(self):
        import time

        with self.api.create() as sandbox:
            seen = float(sandbox.output("date +%s.%N"))
            self.assertLess(abs(seen - time.time()), 5)

    def test_the_example_runs(self):
        done = subprocess.run([sys.executable, ROOT / "examples" / "first_sandbox.py"], env=self.server.environment(), capture_output=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(b"guest kernel:", done.stdout)


if __name__ == "__main__":
    unittest.main()
