"""A VMM that was taken over: system calls made inside the very process that runs a sandbox, with what it holds. The control makes the same
calls in an ordinary process of root, where each of them works."""

import contextlib
import errno
import os
import socket
import subprocess

from framework import attack
from puppet import Puppet, descriptors, name_of, pack_limit

AT_FDCWD = -100
O_RDWR = os.O_RDWR


class Vmm:
    """The VMM of a sandbox of the attacker. A call that its filter answers with the end of the process counts as refused, and the next one is
    made in the VMM of another sandbox."""

    def __init__(self, t):
        self.t, self.puppet, self.ends = t, None, []
        self.open()

    def open(self):
        self.box = self.t.world.sandbox("vmm")
        self.puppet = Puppet(self.t.world.vmm(self.box)).__enter__()
        self.pid = self.puppet.pid

    def call(self, name, *arguments):
        try:
            return self.puppet.call(name, *arguments)
        except ChildProcessError:
            self.ends.append(name)
            self.close()
            self.t.world.drop(self.box)
            self.open()
            return -errno.EPERM

    opens = Puppet.opens

    def close(self):
        self.puppet.__exit__(None, None, None)


@contextlib.contextmanager
def two(t):
    """(the VMM of the attacker's sandbox, an ordinary process)"""
    free = subprocess.Popen(["sleep", "600"])
    try:
        vmm = Vmm(t)
        try:
            with Puppet(free.pid) as ordinary:
                yield vmm, ordinary
        finally:
            vmm.close()
    finally:
        free.kill()
        free.wait()
    t.control("the sandbox goes on after its VMM was played with", vmm.box.run(["true"], timeout=30).code == 0)
    if vmm.ends:
        t.note(f"the VMM's filter answers these with the end of the process: {', '.join(vmm.ends)}")


def compare(t, vmm, ordinary, what, *call):
    """The call must fail in the VMM; that it works elsewhere shows that the call is right."""
    t.control(f"{what}: works in an ordinary process", (result := ordinary.call(*call)) >= 0, name_of(result))
    t.attempt(what, (result := vmm.call(*call)) >= 0, name_of(result))


@attack("V01", quick=True)
def paths(t):
    """Paths of the host, by name, by /proc, by a descriptor it holds"""
    with two(t) as (vmm, ordinary):
        for path in (str(t.world.host_file), "/etc/passwd", "/../../../../etc/passwd", "/proc/self/root/etc/passwd", "/sys/kernel/mm", "/dev/mem", "/dev/net/tun",
                     str(t.world.server.run_dir / "warden.sock").rsplit("/", 1)[0]):
            t.control(f"{path} opens elsewhere", ordinary.opens(path) or path == "/dev/mem")
            t.attempt(f"open {path}", vmm.opens(path))
        for fd in descriptors(vmm.pid):
            for name in (b"../../../../../etc/passwd", b"../etc/passwd"):
                t.attempt(f"openat({fd}, {name.decode()})", vmm.call("openat", fd, name, 0) >= 0)
        for path in ("/x", "/dev/x", "/dev/shm/x", "/tmp/x", "/usr/bin/vmm"):
            t.attempt(f"write {path}", vmm.opens(path, os.O_CREAT | os.O_WRONLY))
        compare(t, vmm, ordinary, "chmod of a folder", "chmod", b"/tmp", 0o1777)
        t.attempt("open_by_handle_at", vmm.call("open_by_handle_at", AT_FDCWD, bytes(16), 0) != -1, "must be EPERM")


@attack("V02", quick=True)
def networks(t):
    """Sockets of every family, and the TAP"""
    with two(t) as (vmm, ordinary):
        for family, kind in (("AF_INET", 1), ("AF_INET", 2), ("AF_INET6", 1), ("AF_NETLINK", 3), ("AF_PACKET", 3)):
            compare(t, vmm, ordinary, f"socket {family} {kind}", "socket", getattr(socket, family), kind, 0)
        for family in (40, 38, 31, 16):  # vsock, alg, bluetooth, netlink by number
            t.attempt(f"socket of family {family}", (result := vmm.call("socket", family, 3, 0)) >= 0, name_of(result))
        compare(t, vmm, ordinary, "a Unix socket", "socket", socket.AF_UNIX, 1, 0)
        sockets = [number for number, (what, _) in descriptors(vmm.pid).items() if what.startswith("socket:")]
        t.control("it holds sockets", bool(sockets), sockets)
        for name in ("node.sock", "warden.sock", "egress/egress.sock"):
            path = str(t.world.server.run_dir / name).encode()
            for fd in sockets:
                t.attempt(f"connect to {name} with {fd}", vmm.call("connect", fd, b"\x01\x00" + path, len(path) + 3) >= 0)
        taps = [number for number, (what, _) in descriptors(vmm.pid).items() if "tun" in what]
        t.control("it holds one TAP", len(taps) == 1, taps)
        for number, what in ((0x54E3, "the TAP's namespace"), (0x400454CC, "the TAP's owner"), (0x400454CA, "another interface"), (1 << 32 | 0x400454CC, "the TAP's owner, by an int's upper half")):
            t.attempt(f"ioctl for {what}", (result := vmm.call("ioctl", taps[0], number, bytes(64))) >= 0, name_of(result))


@attack("V03")
def processes(t):
    """Other processes: signals, memory, descriptors, tracing"""
    with two(t) as (vmm, ordinary):
        other = t.world.vmm(t.world.bystander)
        own = own_numbers(vmm.pid)
        targets = [pid for pid in (other, t.world.server.role_pid("node"), os.getpid(), *range(2, 40)) if pid not in own]
        t.control("a signal reaches elsewhere", ordinary.call("kill", os.getpid(), 0) == 0)
        for pid in targets:
            t.attempt(f"signal {pid}", (result := vmm.call("kill", pid, 0)) >= 0, name_of(result))
        t.attempt("signal everybody", vmm.call("kill", -1, 0) >= 0)
        vector = bytes(16)
        compare(t, vmm, ordinary, "process_vm_readv", "process_vm_readv", ordinary.pid, vector, 0, vector, 0, 0)
        t.attempt("pidfd_open of itself, to steal descriptors", (result := vmm.call("pidfd_open", 1, 0)) >= 0, name_of(result))
        t.attempt("ptrace", (result := vmm.call("ptrace", 16, 1, 0, 0)) >= 0, name_of(result))
        t.attempt("its own memory from outside by its own user", read_as_user(vmm.pid), "")


def own_numbers(pid):
    """What its own threads are called inside its PID namespace."""
    found = set()
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/status") as status:
            found.add(int(next(line for line in status if line.startswith("NSpid:")).split()[-1]))
    return found


def read_as_user(pid):
    """Whether a process with the VMM's uid, outside the jail, can open its memory."""
    uid = os.stat(f"/proc/{pid}").st_uid
    with open(f"/proc/{pid}/status") as status:
        uid = int(next(line for line in status if line.startswith("Uid:")).split()[1]) or uid
    program = f"import os; os.setgroups([]); os.setresgid({uid},{uid},{uid}); os.setresuid({uid},{uid},{uid}); open('/proc/{pid}/mem','rb')"
    return subprocess.run(["python3", "-c", program], capture_output=True).returncode == 0


@attack("V04", quick=True)
def shared_things(t):
    """The sealed base and the disks that sandboxes share"""
    with two(t) as (vmm, ordinary):
        held = descriptors(vmm.pid)
        bases = [fd for fd, (what, _) in held.items() if what.startswith("/memfd:")]
        t.control("it holds the base's memory", bool(bases), {what for what, _ in held.values() if "memfd" in what})
        own = ordinary.call("memfd_create", b"own", 2)
        ordinary.call("ftruncate", own, 8192)
        t.control("an unsealed memfd can be mapped and written", ordinary.call("mmap", 0, 4096, 3, 1, own, 0) > 0 and ordinary.call("pwrite64", own, b"x", 1, 0) == 1)
        for fd in bases:
            t.attempt("map the base shared and writable", vmm.call("mmap", 0, 4096, 3, 1, fd, 0) > 0)
            readable = vmm.call("mmap", 0, 4096, 1, 1, fd, 0)
            if readable > 0:
                t.attempt("make a shared map of the base writable", vmm.call("mprotect", readable, 4096, 3) == 0)
            t.attempt("write to the base", (result := vmm.call("pwrite64", fd, b"x", 1, 0)) >= 0, name_of(result))
            t.attempt("cut the base", vmm.call("ftruncate", fd, 4096) >= 0)
            t.attempt("punch a hole into the base", vmm.call("fallocate", fd, 3, 0, 4096) >= 0)
        files = {fd: one for fd, one in held.items() if one[0].startswith("/") and not one[0].startswith(("/memfd", "/dev", "/proc"))}
        readers = [fd for fd, (_, flags) in files.items() if flags & 3 == os.O_RDONLY]
        writers = [fd for fd, (_, flags) in files.items() if flags & 3 == os.O_RDWR]
        t.control("it holds read-only and own files", len(readers) >= 2 and len(writers) >= 1, files)
        overlay = writers[-1]
        t.control("its own overlay can be opened again and written", vmm.call("pwrite64", overlay, b"QFI\xfb", 4, 0) == 4)
        for fd in readers:
            what = os.path.basename(files[fd][0])
            t.attempt(f"write to {what}", vmm.call("pwrite64", fd, b"x", 1, 0) >= 0)
            t.attempt(f"open {what} again for writing", vmm.opens(f"/proc/self/fd/{fd}", O_RDWR))
            t.attempt(f"change the mode of {what}", vmm.call("fchmod", fd, 0o666) >= 0)
        for fd in writers:
            t.attempt("give its own disk away", vmm.call("fchown", fd, 0, 0) >= 0)
        t.note(f"files it holds: {len(readers)} read-only, {len(writers)} writable: {sorted({os.path.basename(what) for what, _ in files.values()})}")


@attack("V05", quick=True)
def rights(t):
    """More rights, and rarely used parts of the kernel"""
    with two(t) as (vmm, ordinary):
        compare(t, vmm, ordinary, "a mount namespace", "unshare", 0x20000)
        compare(t, vmm, ordinary, "become root", "setresuid", 0, 0, 0)
        compare(t, vmm, ordinary, "groups", "setgroups", 0, 0)
        compare(t, vmm, ordinary, "chroot", "chroot", b"/proc")
        for what, call in {
            "a user namespace": ("unshare", 0x10000000), "a network namespace": ("unshare", 0x40000000), "mount": ("mount", b"x", b"/proc", b"tmpfs", 0, 0),
            "umount": ("umount2", b"/proc", 2), "open_tree": ("open_tree", AT_FDCWD, b"/", 1), "setns": ("setns", 0, 0), "bpf": ("bpf", 5, bytes(128), 128),
            "io_uring": ("io_uring_setup", 8, bytes(120)), "userfaultfd": ("userfaultfd", 1), "perf": ("perf_event_open", bytes(120), 0, -1, -1, 0),
            "a key": ("add_key", b"user", b"x", b"x", 1, -3), "keyctl": ("keyctl", 0, -3, 1), "personality": ("personality", 0x0040000),
            "a module": ("init_module", b"x", 1, b""), "the clock": ("clock_settime", 0, bytes(16)), "a device": ("mknod", b"/dev/sda", 0o60666, 0x800),
            "another's descriptors": ("pidfd_getfd", 0, 0, 0), "dumpable": ("prctl", 4, 1, 0, 0, 0), "page merging": ("prctl", 67, 1, 0, 0, 0),
            "dumpable, by an int's upper half": ("prctl", 1 << 32 | 4, 1, 0, 0, 0), "page merging, by an int's upper half": ("prctl", 1 << 32 | 67, 1, 0, 0, 0), "clone3": ("clone3", bytes(88), 88),
        }.items():
            t.attempt(what, (result := vmm.call(*call)) >= 0, name_of(result))


@attack("V06", quick=True)
def limits(t):
    """More than its limits"""
    with two(t) as (vmm, ordinary):
        compare(t, vmm, ordinary, "more descriptors", "setrlimit", 7, pack_limit(4096))
        compare(t, vmm, ordinary, "a higher priority", "setpriority", 0, 0, -5)
        compare(t, vmm, ordinary, "real-time scheduling", "sched_setscheduler", 0, 1, b"\x01\0\0\0")
        room = ordinary.call("mmap", 0, 1 << 20, 3, 0x22, -1, 0)
        t.control("locking memory: works in an ordinary process", ordinary.call("mlock", room, 1 << 20) == 0)
        room = vmm.call("mmap", 0, 1 << 20, 3, 0x22, -1, 0)
        t.attempt("lock memory", vmm.call("mlock", room, 1 << 20) == 0)
        writers = [fd for fd, (what, flags) in descriptors(vmm.pid).items() if what.startswith("/") and flags & 3 == O_RDWR and "overlay" in what or "disk" in what]
        for fd in writers:
            t.attempt("a disk without end", vmm.call("ftruncate", fd, 1 << 50) >= 0)
        t.attempt("less dear to the host when memory ends", lower_oom(vmm))


def lower_oom(vmm):
    fd = vmm.call("open", b"/proc/self/oom_score_adj", os.O_WRONLY, 0)
    return fd >= 0 and vmm.call("write", fd, b"-1000", 5) > 0
