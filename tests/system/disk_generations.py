"""Frozen generations of a sandbox's disk: how many there are, and a disk of which the next snapshot begins a merge."""

import json

FULL = 5  # with so many a merge begins (src/snapshot/generations.h, above a base of two files)


def count(server, sandbox):
    record = server.data_dir / "node" / "sandboxes" / sandbox.id / "record.json"
    return len(json.loads(record.read_text())["layers"])


def merged(server, sandbox):
    """Waits until no merge is due."""
    server.wait_for(lambda: count(server, sandbox) < FULL, 30, "the merge of generations")


def fill(server, sandbox):
    """Takes snapshots until the next one is one too many; their ids."""
    taken = []
    while count(server, sandbox) != FULL - 1:
        sandbox.output("head -c 300000 /dev/urandom > ~/more; sync")
        operation = sandbox.change("snapshot")
        if operation["state"] != "succeeded":
            raise AssertionError(f"a snapshot ended as {operation}")
        taken.append(operation["checkpoint"])
        merged(server, sandbox)
    return taken
