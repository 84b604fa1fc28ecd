"""Root in a guest drives the devices' registers and queues itself, wrongly (guest/virtio_driver.py)."""

import time
from pathlib import Path

from framework import attack

DRIVER = Path(__file__).resolve().parents[1] / "guest" / "virtio_driver.py"


def drive(t, stage, seconds=25):
    """Runs a stage in a sandbox of its own. The VM may go on or end; nothing else may."""
    box = t.world.fresh()
    try:
        box.write("/tmp/driver.py", DRIVER.read_bytes(), user="root")
        log_before = len(t.world.log_text())
        command = box.start(["python3", "/tmp/driver.py", stage, *(["long"] if t.world.long else [])], user="root")
        background = command.in_background()
        until, lines = time.monotonic() + seconds, ""
        while time.monotonic() < until and "stage end" not in lines:
            time.sleep(1)
            lines = background.result.stdout.decode(errors="replace")
            if background.error or not background.is_alive():  # the network was away: again from the beginning
                if box.get()["state"] != "running":
                    break
                lines = read_all(command) or lines
        state = box.get()
        complaints = [line for line in t.world.log_text()[log_before:].splitlines() if '"vmm.stderr"' in line]
        works = "stage control works" in lines
        t.control("the driver reaches the devices", works or complaints, lines[-200:])
        t.attempt(f"{stage}: the sandbox is neither running nor ended", state["state"] not in ("running", "ended"), state)
        return box, state, lines, len(complaints)
    finally:
        t.world.drop(box)


def read_all(command):
    text = b""
    try:
        with command.attach(timeout=4) as stream:
            for event in stream:
                if event.kind in ("stdout", "stderr"):
                    text += event.bytes
                if event.kind == "exit":
                    break
    except Exception:  # not back yet
        pass
    return text.decode(errors="replace")


def run(t, stage):
    before = t.world.memory_mib("node")
    _, state, lines, complaints = drive(t, stage)
    t.attempt("node's memory grew without measure", t.world.memory_mib("node") - before > 64)
    done = next((line for line in lines.splitlines() if line.startswith(f"stage {stage} ")), "")
    t.note(f"{stage}: {done or 'no word from the guest'}; the VM then {'runs' if state['state'] == 'running' else 'is ended'}; {complaints} complaints of the VMM")


@attack("F01", seconds=60)
def sweep(t):
    """Random values in every register of every device, at every width"""
    run(t, "sweep")


@attack("F03", seconds=60)
def activation(t):
    """Queue registers changed after activation, sizes that are none"""
    run(t, "activation")


@attack("F04", seconds=60)
def chains(t):
    """Descriptor chains with loops, wild addresses and lengths, tables inside tables"""
    run(t, "chains")


@attack("F05", seconds=60)
def races(t):
    """Descriptors that change while the device reads them"""
    run(t, "races")


@attack("F07", seconds=60)
def frames(t):
    """Frames of every length under headers that lie"""
    run(t, "frames")
