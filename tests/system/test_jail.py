"""The jail around a running VMM, read from /proc, and the limits on it: facts, not configuration."""

import os
import subprocess
import sys
import time
import unittest
from pathlib import Path

import leaks
from space_server import UID_BASE, ServerTest

BUDGET_S = 120


def status_of(pid):
    return dict(line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":\t" in line)


class Jail(ServerTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.sandbox, cls.other = cls.api.create(), cls.api.create()
        cls.pid, cls.other_pid = (leaks.vmm_pid(cls.server, one.id) for one in (cls.sandbox, cls.other))

    def test_a_user_of_its_own_without_rights(self):
        status = status_of(self.pid)
        uid, gid = status["Uid"].split(), status["Gid"].split()
        self.assertEqual(len(set(uid + gid)), 1)
        self.assertGreaterEqual(int(uid[0]), int(UID_BASE) + 1000)
        self.assertNotEqual(uid, status_of(self.other_pid)["Uid"].split())
        self.assertEqual(status["Groups"].split(), [])
        for capabilities in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
            self.assertEqual(int(status[capabilities], 16), 0, capabilities)

    def test_no_new_rights_and_a_filter_on_system_calls(self):
        status = status_of(self.pid)
        self.assertEqual((status["NoNewPrivs"], status["Seccomp"]), ("1", "2"))

    def test_namespaces_of_its_own(self):
        for kind in ("pid", "net", "mnt", "ipc", "uts"):
            mine, others, host = (os.readlink(f"/proc/{pid}/ns/{kind}") for pid in (self.pid, self.other_pid, "self"))
            self.assertNotEqual(mine, host, kind)
            self.assertNotEqual(mine, others, kind)

    def test_its_network_is_empty(self):
        interfaces = [line.split(":")[0].strip() for line in Path(f"/proc/{self.pid}/net/dev").read_text().splitlines()[2:]]
        self.assertLessEqual(set(interfaces), {"lo"})
        self.assertEqual(Path(f"/proc/{self.pid}/net/route").read_text().splitlines()[1:], [])

    def test_its_root_holds_no_path_of_the_host(self):
        root = Path(f"/proc/{self.pid}/root")
        for path in ("etc/passwd", "home", "root", "var/lib", "bin/sh", "usr/bin/env", "sys/kernel"):
            self.assertFalse((root / path).exists(), path)
        writable = [line.split()[4] for line in Path(f"/proc/{self.pid}/mountinfo").read_text().splitlines()
                    if "rw" in line.split()[5].split(",") and line.split(" - ")[1].split()[0] not in ("proc",)]
        self.assertEqual(writable, [], "mounts that it could write to")

    def test_it_cannot_be_read_by_its_own_user(self):
        # An undumpable process: its /proc files belong to root.
        self.assertEqual(Path(f"/proc/{self.pid}/mem").stat().st_uid, 0)

    def test_it_holds_no_descriptor_of_another_sandbox(self):
        def disks(pid):
            return {os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")}

        own, others = disks(self.pid), disks(self.other_pid)
        self.assertEqual({path for path in own if self.other.id in path}, set())
        self.assertEqual({path for path in others if self.sandbox.id in path}, set())

    def test_it_knows_nothing_of_the_hosts_environment(self):
        self.assertEqual(Path(f"/proc/{self.pid}/environ").read_bytes(), b"")

    def test_memory_processes_and_cpu_are_limited(self):
        groups = leaks.vm_groups(leaks.vm_of(self.server, self.sandbox.id))
        if "" in groups:
            group = groups[""]
            self.assertNotEqual((group / "memory.max").read_text().strip(), "max")
            self.assertNotEqual((group / "pids.max").read_text().strip(), "max")
            self.assertNotEqual((group / "cpu.max").read_text().split()[0], "max")
        else:
            self.assertLess(int((groups["memory"] / "memory.limit_in_bytes").read_text()), 4 << 30)
            self.assertNotEqual((groups["pids"] / "pids.max").read_text().strip(), "max")
            self.assertGreater(int((groups["cpu"] / "cpu.cfs_quota_us").read_text()), 0)

    def test_the_roles_are_who_they_should_be(self):
        for role, uid in (("api", int(UID_BASE) + 1), ("node", int(UID_BASE) + 2)):
            status = status_of(self.server.role_pid(role))
            self.assertEqual(set(status["Uid"].split() + status["Gid"].split()), {str(uid)}, role)
            self.assertEqual(int(status["CapEff"], 16), 0, role)
            self.assertEqual(status["Groups"].split(), [], role)
        warden = status_of(self.server.role_pid("warden"))
        self.assertNotEqual(int(warden["CapEff"], 16), int(status_of(self.server.process.pid)["CapEff"], 16), "the warden keeps a few capabilities only")

    def test_the_roles_listen_to_each_other_only(self):
        # As a user that is nobody here: the warden's socket cannot be opened, node's hangs up or refuses.
        program = ("import os, socket, sys; os.setgroups([]); os.setresgid(65534, 65534, 65534); os.setresuid(65534, 65534, 65534)\n"
                   "s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM if 'node' in sys.argv[1] else socket.SOCK_SEQPACKET); s.settimeout(5)\n"
                   "s.connect(sys.argv[1]); s.send(b'GET /v1/info HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n'); print(s.recv(4096))")
        for name in ("warden.sock", "node.sock"):
            done = subprocess.run([sys.executable, "-c", program, self.server.run_dir / name], capture_output=True, text=True, timeout=20)
            self.assertNotIn("200 OK", done.stdout, name)
            self.assertNotIn("vmm_version", done.stdout, name)


class LimitsBite(ServerTest):
    def test_a_guest_that_spins_gets_its_share_of_cpu_and_no_more(self):
        with self.api.create(cpus=1) as sandbox:
            pid = leaks.vmm_pid(self.server, sandbox.id)
            spinning = [sandbox.start("while :; do :; done").in_background() for _ in range(4)]
            time.sleep(1)
            used = self.cpu_seconds(pid)
            time.sleep(4)
            share = (self.cpu_seconds(pid) - used) / 4
            self.assertLess(share, 1.4)
            self.assertGreater(share, 0.2)
            for command in spinning:
                command.command.kill()

    def cpu_seconds(self, pid):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def test_a_guest_that_takes_all_its_memory_kills_its_own_processes_only(self):
        with self.api.create(memory_mib=256) as sandbox, self.api.create() as other:
            result = sandbox.run(["python3", "-c", "x = []\nwhile True: x.append(bytes(1 << 20))"], timeout=60)
            self.assertNotEqual(result.code, 0)
            self.assertEqual(sandbox.output("echo alive"), "alive")
            self.assertEqual(other.output("echo fine"), "fine")
            group = leaks.vm_groups(leaks.vm_of(self.server, sandbox.id))
            peak = group["memory"] / "memory.max_usage_in_bytes" if "memory" in group else group[""] / "memory.current"
            self.assertLess(int(peak.read_text()), 1 << 30)

    def test_a_guest_that_forks_without_end_hurts_itself_only(self):
        with self.api.create() as sandbox, self.api.create() as other:
            sandbox.start("f() { f | f & }; f; sleep 5", time_limit_ms=4000).in_background()
            time.sleep(2)
            self.assertEqual(other.output("echo fine", timeout=20), "fine")
            tasks = len(os.listdir(f"/proc/{leaks.vmm_pid(self.server, sandbox.id)}/task"))
            self.assertLess(tasks, 64)


if __name__ == "__main__":
    unittest.main()
