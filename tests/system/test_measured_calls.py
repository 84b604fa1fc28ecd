"""The list of system calls of a VMM (src/warden/jail_filter.cc) against what VMMs call over their whole life, seen by strace(1): nothing that they need
is missing. Prints, with -v, what they called; docs/warden.md has it."""

import collections
import re
import shutil
import subprocess
import time
import unittest
from pathlib import Path

from space_server import ServerTest

SLOW = True
BUDGET_S = 600
# Asked for by libraries and by QEMU, which go another way then: clone3 (clone), io_uring_setup (epoll), memory policies of NUMA (none), memfds (the
# memory comes as a file), a listener of filters (asked for only to know).
MISSED_BY_NOBODY = {"clone3", "io_uring_setup", "get_mempolicy", "mbind", "memfd_create", "seccomp"}
WARDEN = ("space", "exe")  # as which it runs, and a VMM too before its program does
LINE = re.compile(r"^\d+<(?P<who>[^>]*)> +(?P<call>[a-z_0-9]+)\((?P<rest>.*)$")


@unittest.skipUnless(shutil.which("strace"), "strace is not installed")
class MeasuredCalls(ServerTest):
    options = {"pool_ready": 0, "pool_spawned": 0}

    def succeed(self, sandbox, verb, body=None):
        operation = sandbox.change(verb, body)
        self.assertEqual(operation["state"], "succeeded", operation)
        return operation

    def live(self):
        """Everything that a VMM is made to do: load, run, save, freeze, fork, go back, merge, be told to end, be killed."""
        with self.api.create() as sandbox:
            self.assertEqual(sandbox.output("echo traced"), "traced")
            sandbox.write("/home/user/file", bytes(range(256)) * 4096)
            sandbox.output("dd if=/dev/zero of=/home/user/zeroes bs=1M count=16 conv=fsync && rm /home/user/zeroes && (fstrim / || true) && head -c 64 /dev/hwrng >/dev/null || true", user="root")
            for number in range(12):
                sandbox.output(f"head -c 200000 /dev/urandom >~/step{number}; sync")
                self.succeed(sandbox, "checkpoint" if number % 3 == 0 else "snapshot")
            self.server.wait_for(lambda: "sandbox.disk_merged" in self.server.log.read_text(), 60, "a merge of generations")
            self.succeed(sandbox, "suspend")
            self.succeed(sandbox, "wake")
            checkpoint = self.succeed(sandbox, "checkpoint")["checkpoint"]
            self.succeed(sandbox, "restore", {"checkpoint": checkpoint})
            self.succeed(sandbox, "fork", {"count": 1})
            self.succeed(sandbox, "stop")
            self.succeed(sandbox, "start")  # boots
            self.assertEqual(len(sandbox.read("/home/user/file")), 256 * 4096)
            for one in self.api.sandboxes():
                if one["id"] != sandbox.id:
                    self.api.delete(one["id"])

    def test_nothing_that_a_vmm_needs_is_missing(self):
        trace = Path(self.server.folder) / "calls"
        tracer = subprocess.Popen(["strace", "-f", "-Y", "-qq", "-s", "64", "-e", "signal=none", "-o", trace, "-p", str(self.server.role_pid("warden"))], stderr=subprocess.PIPE)
        try:
            time.sleep(1)
            self.live()
        finally:
            tracer.terminate()
            tracer.wait(30)
        made, missing = collections.Counter(), collections.defaultdict(set)
        with open(trace, errors="replace") as lines:
            for line in lines:
                found = LINE.match(line)
                if not found or found["who"] in WARDEN:
                    continue
                made[found["call"]] += 1
                if "ENOSYS" in found["rest"]:
                    missing[found["call"]].add(found["rest"])
                self.assertNotIn("killed by SIGSYS", line)
        print("called:", ", ".join(f"{call} {count}" for call, count in sorted(made.items())))
        print("answered ENOSYS:", {call: sorted(rests)[:5] for call, rests in missing.items()})
        self.assertGreater(made["ppoll"], 100, "the trace is of VMMs")
        self.assertGreater(made["pwrite64"] + made["pwritev"], 10)
        self.assertLessEqual(set(missing), MISSED_BY_NOBODY, dict(missing))


if __name__ == "__main__":
    unittest.main()
