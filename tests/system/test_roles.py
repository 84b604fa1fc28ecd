"""What each role of a running server may do, read from /proc; and that it still works with no more than that."""

import os
import unittest
from pathlib import Path

import leaks
from space_server import UID_BASE, ServerTest

BUDGET_S = 60
UNPRIVILEGED = {"api": 1, "node": 2, "egress": 3}


def status_of(pid):
    return dict(line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":\t" in line)


class Roles(ServerTest):
    options = {"pool_ready": 0}

    def pids(self, role):
        """The role's process and those that it started itself."""
        first = self.server.role_pid(role)
        return [first, *leaks.children(first)]

    def test_unprivileged_roles_are_nobody_and_stay_so(self):
        for role, offset in UNPRIVILEGED.items():
            for pid in self.pids(role):
                with self.subTest(role=role, pid=pid):
                    status = status_of(pid)
                    self.assertEqual(set(status["Uid"].split() + status["Gid"].split()), {str(int(UID_BASE) + offset)})
                    self.assertEqual(status["Groups"].split(), [])
                    for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
                        self.assertEqual(int(status[name], 16), 0, name)
                    self.assertEqual((status["NoNewPrivs"], status["Seccomp"]), ("1", "2"))

    def test_they_leave_no_core_dump_and_cannot_be_read(self):
        for role in (*UNPRIVILEGED, "warden"):
            pid = self.server.role_pid(role)
            limits = Path(f"/proc/{pid}/limits").read_text()
            core = next(line for line in limits.splitlines() if line.startswith("Max core file size")).split()
            self.assertEqual(core[4:6], ["0", "0"], role)
            if role in UNPRIVILEGED:  # undumpable: its files in /proc are root's
                self.assertEqual(os.stat(f"/proc/{pid}/mem").st_uid, 0, role)

    def test_the_warden_keeps_few_rights(self):
        status = status_of(self.server.role_pid("warden"))
        self.assertEqual(status["NoNewPrivs"], "1")
        self.assertLessEqual(int(status["CapEff"], 16).bit_count(), 12)
        self.assertEqual(status["CapBnd"], status["CapEff"])

    def test_all_of_it_still_works(self):
        with self.api.create() as sandbox:
            self.assertEqual(sandbox.output("echo confined"), "confined")
            sandbox.write("/tmp/x", b"y")
            self.assertEqual(sandbox.read("/tmp/x"), b"y")


if __name__ == "__main__":
    unittest.main()
