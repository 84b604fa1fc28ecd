"""What a role, a worker of the gateway and a VMM cannot do when somebody has taken them over: calls made inside the running processes, with the
descriptors, filters and Landlock that they have. An ordinary process of root makes the same calls: there they work, which is the control."""

import contextlib
import os
import socket
import stat
import subprocess
import sys
import unittest
from pathlib import Path

import leaks
from space_server import BINARY, TEMPLATES, ServerTest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "adversarial"))
from puppet import Puppet, descriptors, name_of  # noqa: E402

BUDGET_S = 100
AT_FDCWD = -100
NEW_MOUNTS, NO_DUMPS = 0x20000, 4
LOOPBACK = b"\x02\x00\x00\x00\x7f\x00\x00\x01" + bytes(8)  # a sockaddr_in, port 0


def landlock():
    """The kernel's version of Landlock, 0 without."""
    import ctypes

    return max(ctypes.CDLL(None).syscall(444, 0, 0, 1), 0)


def state_of(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return None


def images_to_write(pid):
    """Descriptor → (inode, bytes) of each qcow2 image that the process has open for writing."""
    found = {}
    for fd, (what, flags) in descriptors(pid).items():
        if flags & os.O_ACCMODE != os.O_RDWR or not what.startswith("/"):
            continue
        info = os.stat(f"/proc/{pid}/fd/{fd}")
        if stat.S_ISREG(info.st_mode):
            with open(f"/proc/{pid}/fd/{fd}", "rb") as file:
                if file.read(4) == b"QFI\xfb":
                    found[fd] = ((info.st_dev, info.st_ino), info.st_size)
    return found


class Confinement(ServerTest):
    options = {"pool_ready": 0}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.sandbox = cls.api.create()
        cls.server.wait_for(lambda: leaks.children(cls.server.role_pid("egress")), 20, "a worker of the gateway")

    @contextlib.contextmanager
    def ordinary(self):
        free = subprocess.Popen(["sleep", "600"])
        try:
            with Puppet(free.pid) as puppet:
                yield puppet
        finally:
            free.kill()
            free.wait()

    def assert_refused(self, puppet, ordinary, call, allowed_errors):
        """Fails in the one with one of these errors, and works in the other."""
        with self.subTest(call=call[0], arguments=call[1:]):
            result = puppet.call(*call)
            self.assertIn(name_of(result), allowed_errors)
            self.assertGreaterEqual(ordinary.call(*call), 0, "the control")

    def refused_everywhere(self, puppet, ordinary):
        refused = ("EPERM", "ENOSYS")
        for call in (("unshare", NEW_MOUNTS), ("chroot", b"/proc"), ("prctl", NO_DUMPS, 1), ("bpf", 5, bytes(128), 128), ("perf_event_open", bytes(120), 0, -1, -1, 0),
                     ("clone", 0x10000011, 0, 0, 0, 0)):
            with self.subTest(call=call):
                self.assertIn(name_of(puppet.call(*call)), refused)
        for call in (("socket", socket.AF_PACKET, socket.SOCK_RAW, 0), ("setpriority", 0, 0, 5), ("sched_setscheduler", 0, 3, bytes(4))):
            self.assert_refused(puppet, ordinary, call, refused)

    def test_a_role_reaches_its_own_files_alone(self):
        if landlock() == 0:
            self.skipTest("this kernel has no Landlock")
        data = self.server.data_dir
        own = {"api": data / "control", "node": data / "node", "egress": data / "egress"}
        with self.ordinary() as ordinary:
            for role, folder in own.items():
                with Puppet(self.server.role_pid(role)) as puppet:
                    self.assertTrue(puppet.opens(folder, os.O_DIRECTORY), f"{role}: the control, its own folder opens")
                    self.assertTrue(puppet.opens("/dev/null", os.O_RDWR), f"{role}: the control")
                    for path, flags in (("/etc/passwd", 0), ("/tmp", os.O_DIRECTORY), (data, os.O_DIRECTORY), ("/home", os.O_DIRECTORY), ("/tmp/made-by-a-role", os.O_CREAT | os.O_WRONLY)):
                        with self.subTest(role=role, path=path):
                            call = ("open", str(path).encode(), flags, 0o600)
                            self.assertEqual(name_of(puppet.call(*call)), "EACCES")
                            self.assertGreaterEqual(ordinary.call(*call), 0, "the control")
                    if role != "node":
                        self.assertFalse(puppet.opens("/proc/1/cmdline"), f"{role}: another process")
        os.unlink("/tmp/made-by-a-role")

    def test_a_role_makes_only_the_calls_of_its_work(self):
        with self.ordinary() as ordinary:
            for role in ("api", "node", "egress"):
                with self.subTest(role=role), Puppet(self.server.role_pid(role)) as puppet:
                    self.refused_everywhere(puppet, ordinary)
                    if role == "api":
                        self.assertEqual(name_of(puppet.call("execve", b"/bin/true", 0, 0)), "EPERM")
                        self.assertIn(name_of(puppet.call("clone", 17, 0, 0, 0, 0)), ("EPERM", "ENOSYS"))
                    if role != "egress":
                        self.assert_refused(puppet, ordinary, ("socket", socket.AF_NETLINK, socket.SOCK_RAW, 0), ("EPERM", "ENOSYS"))

    def test_no_role_takes_a_port(self):
        if landlock() < 4:
            self.skipTest("Linux 6.7 and later")
        with self.ordinary() as ordinary:
            for role in ("api", "egress"):
                with Puppet(self.server.role_pid(role)) as puppet:
                    results = []
                    for one in (puppet, ordinary):
                        made = one.call("socket", socket.AF_INET, socket.SOCK_STREAM, 0)
                        self.assertGreaterEqual(made, 0)
                        results.append(name_of(one.call("bind", made, LOOPBACK, 16)))
                        one.call("close", made)
                    self.assertEqual(results, ["EACCES", "0"], role)

    def test_a_worker_of_the_gateway_has_sockets_and_nothing_else(self):
        def worker():
            return next(iter(leaks.children(self.server.role_pid("egress"))), None)

        first = worker()
        with self.ordinary() as ordinary:
            with Puppet(first) as puppet:
                self.assertGreaterEqual(puppet.call("socket", socket.AF_INET, socket.SOCK_STREAM, 0), 0, "the control")
                for call in (("open", b"/dev/null", 0, 0), ("openat", AT_FDCWD, b"/etc/passwd", 0, 0), ("chmod", b"/tmp", 0o1777), ("kill", os.getpid(), 0),
                             ("socket", socket.AF_UNIX, socket.SOCK_STREAM, 0), ("socket", socket.AF_NETLINK, socket.SOCK_RAW, 0), ("memfd_create", b"x", 0)):
                    self.assert_refused(puppet, ordinary, call, ("EPERM", "ENOSYS"))
                with self.assertRaises(ChildProcessError, msg="what only an attacker calls is its end"):
                    puppet.call("unshare", NEW_MOUNTS)
        self.server.wait_for(lambda: worker() not in (None, first), 20, "another worker")

    def test_a_vmm_opens_nothing_anew_for_writing_and_ends_where_only_an_attacker_goes(self):
        with self.api.create() as sandbox, self.ordinary() as ordinary:
            pid = leaks.vmm_pid(self.server, sandbox.id)
            with Puppet(pid) as puppet:
                held = descriptors(pid)
                readers = [fd for fd, (what, flags) in held.items() if what.startswith(str(TEMPLATES)) and flags & 3 == os.O_RDONLY]
                self.assertTrue(readers, held)
                taps = [fd for fd, (what, _) in held.items() if "tun" in what]
                for fd in readers:
                    self.assertTrue(puppet.opens(f"/proc/self/fd/{fd}"), "the control: as it is open it can be opened again")
                    self.assertFalse(puppet.opens(f"/proc/self/fd/{fd}", os.O_RDWR))
                if landlock():
                    self.assertEqual(name_of(puppet.call("open", f"/proc/self/fd/{taps[0]}".encode(), os.O_RDWR, 0)), "EACCES")
                for call in (("memfd_create", b"x", 0), ("socket", socket.AF_UNIX, socket.SOCK_STREAM, 0), ("mkdir", b"/tmp/made-by-a-vmm", 0o700), ("chmod", b"/tmp", 0o1777)):
                    with self.subTest(call=call):
                        self.assertEqual(name_of(puppet.call(*call)), "ENOSYS")
                        self.assertGreaterEqual(ordinary.call(*call), 0, "the control")
                os.rmdir("/tmp/made-by-a-vmm")
                with self.assertRaises(ChildProcessError):
                    puppet.call("unshare", NEW_MOUNTS)
            # Whoever traced it hides its end from the warden for a moment, which then leaves a zombie; nobody traces VMMs but tests.
            self.assertIn(state_of(pid), ("Z", None))
        self.assertEqual(self.sandbox.output("echo others live"), "others live")

    def test_a_vmm_writes_to_its_disk_and_no_more_to_one_that_was_kept(self):
        probe = self.server.folder / "probe"
        probe.touch()
        if subprocess.run(["chattr", "+i", probe], stderr=subprocess.DEVNULL).returncode != 0:
            self.skipTest("this file system has no immutable files: what is kept is a copy")
        subprocess.run(["chattr", "-i", probe], check=True)
        with self.api.create() as sandbox:
            pid = leaks.vmm_pid(self.server, sandbox.id)
            images = {inode for inode, _ in images_to_write(pid).values()}
            self.assertEqual(len(images), 1, "its own generation")
            checkpoint = sandbox.change("checkpoint")["checkpoint"]
            self.assertEqual(sandbox.change("pause")["state"], "succeeded")  # so that sizes stay
            held = images_to_write(pid)
            kept = {fd: size for fd, (inode, size) in held.items() if inode in images}
            new = {fd: size for fd, (inode, size) in held.items() if inode not in images}
            self.assertTrue(kept and new, held)
            with Puppet(pid) as puppet:
                for fds, written, cut in ((new, "4", "0"), (kept, "EPERM", "EPERM")):
                    for fd, size in fds.items():  # what stands there and the size that it has: a call that works does no harm
                        with self.subTest(fd=fd, new=fds is new):
                            self.assertEqual(name_of(puppet.call("pwrite64", fd, b"QFI\xfb", 4, 0)), written)
                            self.assertEqual(name_of(puppet.call("ftruncate", fd, size)), cut)
            self.assertEqual(sandbox.change("resume")["state"], "succeeded")
            self.assertEqual(sandbox.output("echo on > ~/on; sync; cat ~/on"), "on")
            done = self.cli("store", "verify", "--data-dir", str(self.server.data_dir))
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.api.ok("DELETE", f"/v1/checkpoints/{checkpoint}")

    def test_a_worker_of_the_gateway_gets_a_quarter_of_the_memory(self):
        if b"__asan_init" in Path(BINARY).read_bytes():
            self.skipTest("a sanitizer needs more")
        worker = next(iter(leaks.children(self.server.role_pid("egress"))))
        limits = {line[:26].strip(): line[26:].split()[1] for line in Path(f"/proc/{worker}/limits").read_text().splitlines()[1:]}
        machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGESIZE")
        self.assertEqual(limits["Max data size"], str(max(machine // 4, 1 << 30)))

    def test_a_vmm_is_held_by_limits(self):
        limits = {line[:26].strip(): line[26:].split()[1] for line in Path(f"/proc/{leaks.vmm_pid(self.server, self.sandbox.id)}/limits").read_text().splitlines()[1:]}
        for name, most in {"Max core file size": "0", "Max open files": "1024", "Max locked memory": "0", "Max pending signals": "256", "Max msgqueue size": "0", "Max nice priority": "0",
                           "Max realtime priority": "0"}.items():
            self.assertEqual(limits[name], most, name)

    def test_a_vmms_branches_are_its_own_where_a_process_may_say_so(self):
        def branches(pid):
            return next(line.split(":")[1].strip() for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("SpeculationIndirectBranch"))

        if branches("self") != "conditional enabled":
            self.skipTest(f"this kernel decides for all processes: {branches('self')}")
        self.assertEqual(branches(leaks.vmm_pid(self.server, self.sandbox.id)), "conditional force disabled")

    def test_all_of_it_still_works(self):
        self.assertEqual(self.sandbox.output("echo confined"), "confined")


if __name__ == "__main__":
    unittest.main()
