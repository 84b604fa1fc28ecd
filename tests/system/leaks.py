"""What a server left behind on this machine: processes, control groups, namespaces, mounts, files and rows."""

import json
import os
import signal
import sqlite3
import subprocess
import time
from pathlib import Path


def command_line(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
    except OSError:
        return []


def processes():
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def parent(pid):
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, IndexError):
        return None


def children(pid):
    return [child for child in processes() if parent(child) == pid]


def of_server(server):
    """Everything that still bears the mark of this server after it stopped with no sandbox: its folders' names, or its VMs' ids."""
    found = []
    mark = str(server.folder)
    for pid in processes():
        if pid != os.getpid() and parent(pid) is not None and any(mark in word for word in command_line(pid)[1:]):
            found.append(f"process {pid}: {' '.join(command_line(pid))[:200]}")
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        if mark in line and line.split()[4] not in server.mounts:
            found.append(f"mount: {line}")
    vms = ids_in_log(server)
    for folder, folders, _ in os.walk("/sys/fs/cgroup"):
        found += [f"control group: {folder}/{name}" for name in folders if name in vms]
    found += [f"file: {path}" for path in left_files(server)]
    found += rows(server)
    return found


def ids_in_log(server):
    """The ids of all VMs that this server ever started, as its log names them."""
    ids = set()
    text = server.log.read_text(errors="replace") if server.log.exists() else ""
    for line in text.splitlines():
        for field in ('"vm":"', '"vm_id":"'):
            if field in line:
                ids.add(line.split(field)[1].split('"')[0])
    return ids


def left_files(server):
    """Disks, records, sockets of VMs and half-written files."""
    for place in (server.data_dir / "node", server.run_dir / "node", server.run_dir / "warden"):
        for folder, folders, files in os.walk(place):
            if Path(folder).is_relative_to(server.data_dir / "node" / "store"):
                continue  # checkpoints outlive their sandboxes until somebody deletes them
            for name in files:
                if not (name.startswith("lock") or name.endswith(".key") or name.endswith(".json") and folder == str(place)):
                    yield Path(folder) / name


def rows(server):
    """Sandboxes that are neither over nor owned, operations that nobody will finish."""
    with sqlite3.connect(f"file:{server.data_dir}/control/space.db?mode=ro", uri=True) as db:
        found = [f"sandbox {id} is {state}" for id, state in db.execute("SELECT id, state FROM sandboxes WHERE state NOT IN ('deleted', 'failed')")]
        found += [f"operation {id} is {state}" for id, state in db.execute("SELECT id, state FROM operations WHERE state IN ('pending', 'running')")]
    return found


def vm_of(server, sandbox):
    """The id of the VM that is this sandbox, from node's record."""
    return json.loads((server.data_dir / "node" / "sandboxes" / sandbox / "record.json").read_text())["vm"]


def vm_groups(vm):
    """The control groups of a VM, by controller ("" of version 2)."""
    found = {}
    for folder, folders, _ in os.walk("/sys/fs/cgroup"):
        if vm in folders:
            hierarchy = Path(folder).relative_to("/sys/fs/cgroup").parts[0]
            found["" if hierarchy == "space" else hierarchy] = Path(folder) / vm
    return found


def vmm_pid(server, sandbox):
    for group in vm_groups(vm_of(server, sandbox)).values():
        pids = (group / "cgroup.procs").read_text().split()
        if pids:
            return int(pids[0])
    raise AssertionError(f"no VMM of sandbox {sandbox}")


def vmms(server):
    """All VMM processes of this server: those in control groups of VMs that its log names."""
    found = []
    for vm in sorted(ids_in_log(server)):
        for group in vm_groups(vm).values():
            found += [int(pid) for pid in (group / "cgroup.procs").read_text().split()]
            break
    return sorted(set(found))


def remove_all(server):
    """Ends by hand what a server left, so that one failure does not become many: its VMs, their namespaces' pins and groups."""
    mark = str(server.folder)
    pins = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines() if mark in line and line.split()[4] not in server.mounts]
    vms = ids_in_log(server) | {Path(pin).parent.name for pin in pins}
    groups = [group for vm in vms for group in vm_groups(vm).values()]
    for group in groups:
        for pid in (group / "cgroup.procs").read_text().split():
            os.kill(int(pid), signal.SIGKILL)
    for pin in pins:
        subprocess.run(["umount", pin], stderr=subprocess.DEVNULL)
    time.sleep(0.5)
    for group in groups:
        try:
            group.rmdir()
        except OSError:
            pass
