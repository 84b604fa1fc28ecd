"""Another user of the host, and what a guest can do to its own VM's life."""

import os
import socket
import subprocess
import sys
import time

import leaks
from framework import attack

AS_USER = """
import os, socket, sys
uid = int(sys.argv[1]); os.setgroups([]); os.setresgid(uid, uid, uid); os.setresuid(uid, uid, uid)
what, path = sys.argv[2:4]
try:
    if what == "plant": os.symlink("/etc/passwd", path + "/planted"); os.unlink(path + "/planted")
    if what == "read": os.listdir(path)
    if what == "open": open(path, "rb").read(1)
    if what == "connect":
        for kind in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET):
            try:
                s = socket.socket(socket.AF_UNIX, kind); s.settimeout(3); s.connect(path)
                s.send(b"GET /v1/info HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n"); answer = s.recv(4096)
                if answer and b" 40" not in answer[:16]: sys.exit(0)
            except OSError as error: pass
        sys.exit(1)
except OSError as error:
    print(error); sys.exit(1)
"""


def as_user(uid, what, path):
    return subprocess.run([sys.executable, "-c", AS_USER, str(uid), what, str(path)], capture_output=True, timeout=20).returncode == 0


@attack("F24", quick=True)
def planted(t):
    """An unprivileged user plants links in the server's folders and reads them"""
    server, box = t.world.server, t.world.sandbox()
    vm = leaks.vm_of(server, box.id)
    folders = [server.run_dir, server.run_dir / "warden", server.run_dir / "node", server.run_dir / "api", server.run_dir / "warden" / vm, server.data_dir, server.data_dir / "node",
               server.data_dir / "node" / "sandboxes" / box.id, server.data_dir / "control", server.data_dir / "vmm"]
    for folder in [one for one in folders if one.exists()]:
        t.control(f"root plants in {folder.name}", as_user(0, "plant", folder))
        t.attempt(f"nobody plants in {folder.name}", as_user(65534, "plant", folder))
        t.attempt(f"the VMM's user plants in {folder.name}", as_user(os.stat(f"/proc/{t.world.vmm(box)}").st_uid or 7341032, "plant", folder))
    for path in (server.data_dir / "first.key", server.data_dir / "control" / "space.db", server.data_dir / "node" / "sandboxes" / box.id / "record.json",
                 server.data_dir / "node" / "sandboxes" / box.id / "disk.qcow2"):
        if path.exists():
            t.control(f"root opens {path.name}", as_user(0, "open", path))
            t.attempt(f"nobody opens {path.name}", as_user(65534, "open", path))


@attack("F25", quick=True)
def control_socket(t):
    """The VMM's control socket and the roles' sockets, from the guest and from other users of the host"""
    server, box = t.world.server, t.world.sandbox()
    other = leaks.vm_of(server, t.world.bystander.id)
    sockets = [server.run_dir / "node" / f"{other}.qmp", server.run_dir / "warden.sock", server.run_dir / "node.sock", server.run_dir / "egress" / "egress.sock"]
    t.control("root is answered by node's socket", as_user(0, "connect", server.run_dir / "node.sock"))
    with open(f"/proc/{t.world.vmm(box)}/status") as status:
        vmm_uid = int(next(line for line in status if line.startswith("Uid:")).split()[1])
    for path in [one for one in sockets if one.exists()]:
        for uid in (65534, vmm_uid):
            t.attempt(f"user {uid} is answered by {path.name}", as_user(uid, "connect", path))
    out = t.guest(box, ["python3", "-c", "import socket\nfor f, a in ((40, (2, 1024)), (40, (1, 1024))):\n  try:\n    s = socket.socket(f, 1); s.settimeout(2); s.connect(a); print('reached', a)\n  except OSError as e: print('no', e)"])
    t.attempt("the guest reaches a socket of the VMM by vsock", b"reached" in out.stdout, out.stdout)


@attack("F27", seconds=90)
def agent_killed(t):
    """The agent is killed, stopped, traced, overwritten"""
    box = t.world.fresh()
    try:
        result = t.guest(box, "kill -9 1; kill -STOP 1; echo x > /init; echo x > /proc/1/exe; ls /proc/1/exe; sleep 0.3; echo alive", timeout=15)
        t.control("the agent outlives what a process may do to the first one", b"alive" in result.stdout)
        # Traced to a stop: from now on nothing answers.
        box.start(["python3", "-c", "import ctypes, os, time\nl = ctypes.CDLL(None)\nfor k in os.listdir('/proc/1/task'):\n l.ptrace(0x4206, int(k), None, None); l.ptrace(0x4207, int(k), None, None)\ntime.sleep(600)"],
                  user="root").in_background()
        for _ in range(20):
            begun = time.monotonic()
            answer = box.api.call("POST", box.path + "/commands", {"argv": ["true"]}, timeout=60)
            if answer.status >= 500:
                break
            time.sleep(1)
        t.control("the agent really stands still", answer.status >= 500, answer.status)
        t.attempt("a call to it hangs", time.monotonic() - begun > 40)
        begun = time.monotonic()
        t.attempt("its sandbox cannot be deleted", box.api.call("DELETE", box.path, headers={"Prefer": "wait=60"}).status != 200)
        t.figure("delete of a dead one, s", round(time.monotonic() - begun, 2))
    finally:
        t.world.drop(box)


@attack("F28", seconds=120)
def panics(t):
    """Panic and power-off, over and over; nothing stays behind"""
    before = t.world.counts()
    rounds = 100 if t.world.long else 6
    for i in range(rounds):
        box = t.world.fresh()
        way = ("echo c > /proc/sysrq-trigger", "echo o > /proc/sysrq-trigger", "echo b > /proc/sysrq-trigger")[i % 3]
        box.start(["sh", "-c", way], user="root").in_background()
        until = time.monotonic() + 30
        while box.get()["state"] == "running" and time.monotonic() < until:
            time.sleep(0.3)
        t.control(f"'{way}' ends the VM", (state := box.get()["state"]) != "running", state)
        t.attempt("its sandbox cannot be deleted", box.api.call("DELETE", box.path, headers={"Prefer": "wait=60"}).status != 200)
    # A VM that waits in the pool, or is being made, holds descriptors too.
    room = {name: 30 if "descriptors" in name or "threads" in name else 2 for name in before}
    for _ in range(20):
        after = t.world.counts()
        if all(after.get(name, 0) <= before[name] for name in before):
            break
        time.sleep(0.5)
    for name in before:
        t.attempt(f"{name} grow", after.get(name, 0) > before[name] + room[name], f"{before[name]} to {after.get(name)}")
