"""Makes system calls inside another process: what an attacker could do who took over a VMM, with the descriptors, limits and filters that
this very process has. x86-64, by ptrace(2) as root."""

import ctypes
import errno
import os
import signal
import struct
import time

libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
libc.ptrace.restype = ctypes.c_long
SEIZE, INTERRUPT, GETREGS, SETREGS, SINGLESTEP, DETACH = 0x4206, 0x4207, 12, 13, 9, 17
NAMES = ("r15 r14 r13 r12 rbp rbx r11 r10 r9 r8 rax rcx rdx rsi rdi orig_rax rip cs eflags rsp ss fs_base gs_base ds es fs gs").split()
ARGUMENTS = ("rdi", "rsi", "rdx", "r10", "r8", "r9")
WALL = 0x40000000

CALLS = {name: number for name, number in (
    ("read", 0), ("write", 1), ("open", 2), ("close", 3), ("mmap", 9), ("mprotect", 10), ("ioctl", 16), ("pread64", 17), ("pwrite64", 18), ("madvise", 28), ("getpid", 39),
    ("socket", 41), ("connect", 42), ("bind", 49), ("clone", 56), ("execve", 59), ("kill", 62), ("fcntl", 72), ("ftruncate", 77), ("mkdir", 83), ("fchmod", 91), ("chmod", 90), ("fchown", 93),
    ("getuid", 102), ("setuid", 105), ("setgroups", 116), ("setresuid", 117), ("mknod", 133), ("personality", 135), ("setpriority", 141), ("sched_setscheduler", 144),
    ("mlock", 149), ("modify_ldt", 154), ("pivot_root", 155), ("prctl", 157), ("setrlimit", 160), ("chroot", 161), ("mount", 165), ("umount2", 166), ("sethostname", 170),
    ("init_module", 175), ("clock_settime", 227), ("add_key", 248), ("keyctl", 250), ("openat", 257), ("unshare", 272), ("fallocate", 285), ("perf_event_open", 298),
    ("open_by_handle_at", 304), ("setns", 308), ("process_vm_readv", 310), ("memfd_create", 319), ("bpf", 321), ("userfaultfd", 323), ("io_uring_setup", 425),
    ("open_tree", 428), ("pidfd_open", 434), ("clone3", 435), ("pidfd_getfd", 438), ("ptrace", 101))}


class Registers(ctypes.Structure):
    _fields_ = [(name, ctypes.c_ulonglong) for name in NAMES]


class Puppet:
    """with Puppet(pid) as p: p.call("open", b"/etc/passwd", 0) gives the number, or minus errno. The process goes on afterwards."""

    def __init__(self, pid):
        self.pid, self.ended = pid, False

    def __enter__(self):
        self.trace(SEIZE, 0, 0)
        self.trace(INTERRUPT, 0, 0)
        self.wait()
        self.memory = os.open(f"/proc/{self.pid}/mem", os.O_RDWR)
        self.saved = Registers()
        self.trace(GETREGS, 0, ctypes.addressof(self.saved))
        self.room = (self.saved.rsp - 16384) & ~15
        self.kept = os.pread(self.memory, 8192, self.room)
        self.gate = self.find_gate()
        return self

    def __exit__(self, *exc):
        try:
            if not self.ended:
                os.pwrite(self.memory, self.kept, self.room)
                self.trace(SETREGS, 0, ctypes.addressof(self.saved))
                self.trace(DETACH, 0, 0)
        finally:
            os.close(self.memory)

    def trace(self, request, address, data):
        ctypes.set_errno(0)
        if libc.ptrace(request, self.pid, address, data) == -1 and ctypes.get_errno():
            if ctypes.get_errno() == errno.ESRCH:
                self.ended = True
                raise ChildProcessError(f"process {self.pid} is gone")
            raise OSError(ctypes.get_errno(), f"ptrace {request:#x} of {self.pid}")

    def wait(self):
        zombie = 0
        for _ in range(2000):
            pid, status = os.waitpid(self.pid, WALL | os.WNOHANG)
            if pid:
                break
            zombie += self.is_zombie()
            if zombie > 1000:  # a filter that ended the thread alone: the others go on without it. The whole process would be ours to reap by now
                self.ended = True
                raise ChildProcessError(f"process {self.pid} lost its thread")
            time.sleep(0.002)
        else:
            raise TimeoutError(f"process {self.pid} does not come back from its system call")
        if not os.WIFSTOPPED(status):
            self.ended = True
            raise ChildProcessError(f"process {self.pid} ended: {status:#x}")
        return os.WSTOPSIG(status)

    def is_zombie(self):
        with open(f"/proc/{self.pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] in "ZX"

    def find_gate(self):
        """An address with a `syscall` instruction: the one it waits in, else one of its libraries."""
        if os.pread(self.memory, 2, self.saved.rip - 2) == b"\x0f\x05":
            return self.saved.rip - 2
        with open(f"/proc/{self.pid}/maps") as maps:
            for line in maps:
                span, rights = line.split()[:2]
                if "x" in rights and "vsyscall" not in line:
                    start, end = (int(part, 16) for part in span.split("-"))
                    at = os.pread(self.memory, min(end - start, 4 << 20), start).find(b"\x0f\x05")
                    if at >= 0:
                        return start + at
        raise LookupError("no syscall instruction found")

    def call(self, name, *arguments):
        """Texts and bytes are put into its memory and passed by address."""
        registers = Registers.from_buffer_copy(self.saved)
        at = self.room
        for register, value in zip(ARGUMENTS, [*arguments, 0, 0, 0, 0, 0, 0]):
            if isinstance(value, (bytes, bytearray)):
                os.pwrite(self.memory, bytes(value) + b"\0", at)
                setattr(registers, register, at)
                at += (len(value) + 16) & ~15
            else:
                setattr(registers, register, value & (1 << 64) - 1)
        registers.rax, registers.orig_rax, registers.rip = CALLS[name], (1 << 64) - 1, self.gate
        self.trace(SETREGS, 0, ctypes.addressof(registers))
        self.trace(SINGLESTEP, 0, 0)
        while True:
            stopped = self.wait()
            if stopped == signal.SIGTRAP:
                break
            if stopped == signal.SIGSYS:  # the filter's answer to a call that it forbids
                return -errno.EPERM
            self.trace(SINGLESTEP, 0, 0)
        self.trace(GETREGS, 0, ctypes.addressof(registers))
        return ctypes.c_long(registers.rax).value

    def opens(self, path, flags=0):
        """True when the path could be opened; it is closed again."""
        fd = self.call("open", path if isinstance(path, bytes) else str(path).encode(), flags, 0o600)
        if fd >= 0:
            self.call("close", fd)
        return fd >= 0


def name_of(result):
    return str(result) if result >= 0 else errno.errorcode.get(-result, str(result))


def descriptors(pid):
    """number → (what it is, its open flags)."""
    found = {}
    for number in os.listdir(f"/proc/{pid}/fd"):
        try:
            with open(f"/proc/{pid}/fdinfo/{number}") as info:
                flags = int(next(line for line in info if line.startswith("flags:")).split()[1], 8)
            found[int(number)] = (os.readlink(f"/proc/{pid}/fd/{number}"), flags)
        except OSError:
            pass
    return found


def pack_limit(value):
    return struct.pack("QQ", value, value)
