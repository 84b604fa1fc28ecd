"""Instructions and settings of the processor."""

from pathlib import Path

from framework import attack

USER_CODE = r"""
import ctypes, mmap, os, signal, struct, sys
def run(code):
    pid = os.fork()
    if pid == 0:
        page = mmap.mmap(-1, 4096, prot=7); page.write(code + b"\xc3")
        ctypes.CFUNCTYPE(None)(ctypes.addressof(ctypes.c_char.from_buffer(page)))(); os._exit(0)
    return os.waitpid(pid, 0)[1]
print("ret", run(b""))
for name, code in {"vmcall": "0f01c1", "vmmcall": "0f01d9", "vmrun": "0f01d8", "vmlaunch": "0f01c2", "rdmsr": "0f32", "wrmsr": "0f30", "hlt": "f4", "invd": "0f08", "int1": "f1", "int3": "cc",
                   "out": "e680", "in": "e480", "lgdt": "0f0115", "clgi": "0f01dd", "skinit": "0f01de", "ud2": "0f0b", "rsm": "0faa", "swapgs": "0f01f8"}.items():
    print(name, run(bytes.fromhex(code)))
leaves = 0
page = mmap.mmap(-1, 4096, prot=7); page.write(bytes.fromhex("5389f889f10fa25bc3"))
cpuid = ctypes.CFUNCTYPE(ctypes.c_uint, ctypes.c_uint, ctypes.c_uint)(ctypes.addressof(ctypes.c_char.from_buffer(page)))
for base in (0, 0x40000000, 0x80000000, 0xc0000000, 0xfffffff0):
    for leaf in range(COUNT):
        cpuid((base + leaf) & 0xffffffff, leaf % 7); leaves += 1
print("cpuid", leaves)
"""


@attack("F11", quick=True)
def instructions(t):
    """Privileged instructions, hypercalls and odd CPUID leaves from a program; nested virtualisation"""
    box = t.world.sandbox()
    box.write("/tmp/cpu.py", USER_CODE.replace("COUNT", "20000" if t.world.long else "500").encode(), user="root")
    lines = dict(line.split(" ", 1) for line in t.guest(box, "python3 /tmp/cpu.py").stdout.decode().splitlines())
    t.control("code of ours runs", lines.get("ret") == "0", lines)
    for name, status in lines.items():
        if name not in ("ret", "cpuid"):
            t.attempt(f"{name} is not a fault", int(status) & 0x7F == 0, status)
    flags = t.guest(box, "grep -m1 ^flags /proc/cpuinfo").stdout.decode().split()
    t.control("the processor's flags can be read", "fpu" in flags)
    t.attempt("nested virtualisation is offered", "vmx" in flags or "svm" in flags, [flag for flag in flags if flag in ("vmx", "svm")])
    t.attempt("the sandbox does not go on", box.run(["true"]).code != 0)


@attack("F12", quick=True)
def shared_pages(t):
    """Pages shared between tenants, as a clock for what others have"""
    box = t.world.sandbox()
    status = Path(f"/proc/{t.world.vmm(box)}/ksm_stat")
    run = Path("/sys/kernel/mm/ksm/run")
    t.control("the kernel tells about page merging", status.exists() or run.exists(), status)
    text = status.read_text() if status.exists() else ""
    t.attempt("pages of the VMM are merged", "ksm_rmap_items" in text and int(text.split("ksm_rmap_items")[1].split()[0]) > 0, text)
    t.attempt("the VMM allows merging", "ksm_mergeable: yes" in text or "ksm_merge_any: yes" in text, text)
    t.note("vulnerabilities as the guest sees them: " + t.guest(box, "cd /sys/devices/system/cpu/vulnerabilities; for f in *; do echo $f: $(cat $f); done | tr '\\n' ';'").stdout.decode()[:500])
