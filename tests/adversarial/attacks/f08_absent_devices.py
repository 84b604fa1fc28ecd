"""Devices and services that a sandbox does not have: the evidence is looked up in the VMM's arguments, the guest and the API."""

from framework import not_applicable
import leaks

NAMES = {"net": "0x0001", "blk": "0x0002", "rng": "0x0004"}


def devices(t):
    box = t.world.sandbox()
    words = " ".join(leaks.command_line(t.world.vmm(box)))
    seen = t.guest(box, "cat /sys/bus/virtio/devices/*/device").stdout.decode().split()
    if sorted(seen) != sorted(NAMES.values()):
        raise AssertionError(f"other devices than thought: {seen}")
    return words, seen


@not_applicable("F08")
def vsock(t):
    """virtio-vsock"""
    words, seen = devices(t)
    if "vsock" in words or "0x0013" in seen:
        raise AssertionError("there is a vsock device")
    failed = t.guest(t.world.sandbox(), ["python3", "-c", "import socket; socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM).connect((2, 1))"]).code
    if failed == 0:
        raise AssertionError("a vsock connection was made")
    return f"there is no vsock: the guest's devices are {', '.join(seen)} (net, disk, entropy), the VMM's arguments name none, a connection to CID 2 fails"


@not_applicable("F09")
def balloon(t):
    """Balloon and memory hotplug"""
    words, seen = devices(t)
    if "balloon" in words or "virtio-mem" in words or "0x0005" in seen or "maxmem" in words:
        raise AssertionError("there is a balloon or hotplug")
    return f"no balloon, no hotplug: the guest's devices are {', '.join(seen)}, the VMM's arguments name neither"


@not_applicable("F23")
def shared_folder(t):
    """A shared filesystem's daemon"""
    words, seen = devices(t)
    if any(word in words for word in ("virtiofs", "9p", "vhost-user", "fsdev")) or "0x001a" in seen or "0x0009" in seen:
        raise AssertionError("there is a shared folder")
    return "no folder of the host is shared: no virtio-fs, no 9p, no vhost-user in the VMM's arguments, none among the guest's devices; files go through the agent"


def paths_without(t, *words):
    """The number of the API's paths, none of which holds one of these words; nor does a field of its schemas speak of a webhook or a callback."""
    document = t.world.host.with_key(None).ok("GET", "/openapi.json")
    found = [path for path in document["paths"] if any(word in path for word in words)]
    found += [name for schema in document["components"]["schemas"].values() for name in (schema.get("properties") or {}) if "webhook" in name.lower() or "callback" in name.lower()]
    if found:
        raise AssertionError(f"the API has {found}")
    return len(document["paths"])


@not_applicable("H25")
def webhooks(t):
    """Webhooks"""
    return f"none of the API's {paths_without(t, 'webhook', 'callback', 'hook', 'notify')} paths makes the server call an address of a client's choice, and no field of its schemas names one to be called"


@not_applicable("D02")
def package_proxy(t):
    """A package proxy"""
    return f"SPACE has no package proxy: none of the API's {paths_without(t, 'proxy', 'registry', 'mirror', 'index', 'cache')} paths is one, and package indexes are reached through rules of the policy like any other host (D01)"


@not_applicable("I09")
def saved_states(t):
    """Saved states that somebody else wrote"""
    paths = t.world.host.with_key(None).ok("GET", "/openapi.json")["paths"]
    if any(word in path for path in paths for word in ("checkpoints/import", "states", "import")):
        raise AssertionError("states can be brought in")
    box = t.world.sandbox()
    opened = t.world.server.data_dir / "node"
    if opened.stat().st_mode & 0o077:
        raise AssertionError(f"{opened} is open to others")
    return f"no endpoint takes a saved state, and the store ({oct(opened.stat().st_mode & 0o777)}, node's alone) is read by nobody else; sandbox {box.id[:6]}… has none"
