"""Template builds and publishing: archives that climb out, builds without end, what belongs to another tenant. The keeper of the host builds;
what he builds is a stranger's."""

import hashlib
import io
import json
import secrets
import tarfile
import time
from pathlib import Path

from framework import attack


def archive(entries):
    """A tar of (name, content or what else an entry says)."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, content, more in entries:
            entry = tarfile.TarInfo(name)
            entry.mode, entry.size = more.pop("mode", 0o644), len(content)
            for key, value in more.items():
                setattr(entry, key, value)
            tar.addfile(entry, io.BytesIO(content))
    return packed.getvalue()


def build(t, steps, limit=90, cancel_after=None, **more):
    """(the build as it ended, its log's text)"""
    api = t.world.host
    made = api.call("POST", "/v1/builds", {"name": f"redteam-{secrets.token_hex(4)}:1", "steps": steps, **more})
    if made.status >= 400:
        return {"state": "refused", "error": made.json}, made.body.decode(errors="replace")
    id, until = made.json["id"], time.monotonic() + limit
    cancelled = False
    while True:
        state = api.ok("GET", f"/v1/builds/{id}")
        if state["state"] not in ("waiting", "building"):
            break
        if cancel_after is not None and not cancelled and state["state"] == "building" and time.monotonic() > until - limit + cancel_after:
            api.call("DELETE", f"/v1/builds/{id}")
            cancelled = True
        if time.monotonic() > until:
            api.call("DELETE", f"/v1/builds/{id}")
            raise AssertionError(f"the build is still {state['state']} after {limit} s")
        time.sleep(0.5)
    text = ""
    with api.events(f"/v1/builds/{id}/logs", timeout=20) as stream:
        for event in stream:
            text += json.dumps(event.data) + "\n"
    return state, text


def upload(t, content):
    digest = hashlib.sha256(content).hexdigest()
    answer = t.world.host.call("PUT", f"/v1/uploads/{digest}", content, {"Content-Type": "application/octet-stream"})
    return digest, answer.status


@attack("F21", seconds=200)
def archives(t):
    """Archives with climbing names, links, devices, bombs, as the files of a build"""
    world = t.world
    outside = Path(f"/tmp/space-escape-{secrets.token_hex(6)}")
    inside = world.server.folder / "escaped"
    show = [{"type": "RUN", "args": ["ls -la /dest; cat /dest/good; false"], "force": True}]
    digest, status = upload(t, archive([("good", b"GOOD-" + b"3" * 12, {})]))
    state, text = build(t, [{"type": "COPY", "args": ["good", "/dest/good"], "filesHash": digest}, *show])
    t.control("the file of a plain archive arrives", "GOOD-" + "3" * 12 in text, f"{status} {state} {text[-300:]}")
    hostile = {
        "climbing names": [("good", b"x", {}), ("../" * 12 + str(outside).lstrip("/"), b"out", {}), ("a/../../../../../../../../.." + str(inside), b"out", {})],
        "absolute names": [("good", b"x", {}), (str(outside), b"out", {}), (str(inside), b"out", {})],
        "a link, then a file through it": [("good", b"x", {}), ("d", b"", {"type": tarfile.SYMTYPE, "linkname": "/tmp"}), (f"d/{outside.name}", b"out", {})],
        "a hard link to outside": [("good", b"", {"type": tarfile.LNKTYPE, "linkname": "/etc/shadow"}), ("h", b"", {"type": tarfile.LNKTYPE, "linkname": str(world.host_file)})],
        "a link to a file of the host": [("good", b"", {"type": tarfile.SYMTYPE, "linkname": str(world.host_file)})],
        "devices and setuid": [("good", b"x", {}), ("dev", b"", {"type": tarfile.BLKTYPE, "devmajor": 8, "devminor": 0}), ("su", b"#!/bin/sh\n", {"mode": 0o6755})],
        "names twice, and odd ones": [("good", b"1", {}), ("good", b"2", {}), ("\n\x1b[2J", b"x", {}), ("x" * 200, b"x", {})],
    }
    for what, entries in hostile.items():
        digest, status = upload(t, archive(entries))
        state, text = build(t, [{"type": "COPY", "args": [".", "/dest/"], "filesHash": digest}, *show])
        t.search(text.encode())
        t.attempt(f"{what}: a file outside of the build's sandbox was made", outside.exists() or inside.exists(), state)
        t.attempt(f"{what}: it was published", state["state"] == "ready", state)
    for what, content in {"no archive": b"x" * 1000, "half an archive": archive([("good", b"y" * 9000, {})])[:3000], "a size beyond all": bytes(124) + b"77777777777\x00" + bytes(376)}.items():
        digest, status = upload(t, content)
        state, text = build(t, [{"type": "COPY", "args": [".", "/dest/"], "filesHash": digest}, *show]) if status < 300 else ({"state": "refused"}, "")
        t.attempt(f"{what}: the build ends well", state["state"] == "ready", state)
    wrong = hashlib.sha256(b"other").hexdigest()
    t.attempt("bytes under another digest are kept", world.host.call("PUT", f"/v1/uploads/{wrong}", b"these", {"Content-Type": "application/octet-stream"}).status < 300)
    for path in ("..%2f..%2fetc%2fpasswd", "A" * 64, "a" * 63, "../" + "a" * 64):
        t.attempt(f"the digest {path[:20]}", world.host.call("PUT", f"/v1/uploads/{path}", b"x", {"Content-Type": "application/octet-stream"}).status < 300)
    t.attempt("a sandbox of a build is left", [one for one in world.host.sandboxes() if one["state"] not in ("deleted", "deleting")])


@attack("G19", seconds=150)
def endless(t):
    """Builds without end, with too many steps, of any size, many at once"""
    world = t.world
    state, text = build(t, [{"type": "RUN", "args": ["echo begun-here; sleep 100000"], "force": True}], cancel_after=4)
    t.control("a build without end ran until it was ended", state["state"] == "cancelled" and "begun-here" in text, f"{state} {text[-300:]}")
    before = time.monotonic()
    state, text = build(t, [{"type": "RUN", "args": ["dd if=/dev/zero of=/fill bs=1M; ls -la /fill; exit 3"], "force": True}], limit=80)
    t.figure("a disk filled by a step, s", round(time.monotonic() - before, 1))
    t.attempt("a step that fills its disk ends well", state["state"] == "ready", state)
    for what, body in {"257 steps": {"steps": [{"type": "RUN", "args": ["true"]}] * 257}, "a size beyond all": {"steps": [], "memory_mib": 1 << 40}, "processors beyond all": {"steps": [], "cpus": 1000}, "an unknown step": {"steps": [{"type": "EVAL", "args": ["x"]}]},
                       "a name that is a path": {"name": "../../x:1", "steps": []}, "a parent that is a path": {"parent": "../../etc/passwd", "steps": []}, "an image that is a path": {"image": "../../x", "steps": []}}.items():
        answer = world.host.call("POST", "/v1/builds", {"name": f"redteam-{secrets.token_hex(4)}:1", **body})
        if answer.status < 300:
            world.host.call("DELETE", f"/v1/builds/{answer.json['id']}")
        t.attempt(f"{what} is taken", answer.status < 300, f"{answer.status} {answer.body[:100]}")
    for what in ("attacker", "victim"):
        key = getattr(world, what)
        for method, path in (("POST", "/v1/builds"), ("POST", "/v1/templates"), ("GET", "/v1/uploads/" + "a" * 64)):
            answer = key.call(method, path, {"name": "theirs:1", "steps": []} if method == "POST" else None)
            t.attempt(f"{what}: {method} {path[:20]} changes what all tenants start from", answer.status < 300, answer.status)
    until = time.monotonic() + 20
    while [one for one in world.host.sandboxes() if one["state"] != "deleted"] and time.monotonic() < until:
        time.sleep(0.5)
    t.attempt("a sandbox of a build is left", [one["state"] for one in world.host.sandboxes() if one["state"] != "deleted"])


@attack("H02", seconds=90)
def one_layer(t):
    """Checkpoints and templates of another tenant, by every verb that takes one"""
    world = t.world
    operation = world.bystander.change("checkpoint", {"name": "private"})
    checkpoint = operation.get("checkpoint")
    box, api = t.world.sandbox(), t.world.attacker
    forked = []
    try:
        t.control("its owner forks it", (done := world.bystander.change("fork", {"checkpoint": checkpoint}))["state"] == "succeeded", done)
        forked = done.get("children", [])
        own = box.change("checkpoint").get("checkpoint")
        t.control("one's own is found", api.call("GET", f"/v1/checkpoints/{own}").status == 200)
        for what, call in {"look": ("GET", f"/v1/checkpoints/{checkpoint}", None), "delete": ("DELETE", f"/v1/checkpoints/{checkpoint}", None), "fork": ("POST", f"{box.path}/fork", {"checkpoint": checkpoint}),
                           "restore": ("POST", f"{box.path}/restore", {"checkpoint": checkpoint}), "create": ("POST", "/v1/sandboxes", {"checkpoint": checkpoint}), "publish": ("POST", "/v1/templates", {"name": "theirs:1", "checkpoint": checkpoint}),
                           "publish the sandbox": ("POST", "/v1/templates", {"name": "theirs:1", "sandbox": world.bystander.id}), "build on it": ("POST", "/v1/builds", {"name": "theirs:1", "parent": checkpoint, "steps": []})}.items():
            answer = api.call(call[0], call[1], call[2], {"Prefer": "wait=20"}, timeout=60)
            done = answer.status < 300
            if answer.status == 202 and "operation" in (answer.json or {}):
                done = api.operation(answer.json["operation"]["id"])["state"] == "succeeded"
            if what == "delete":  # what is not there is deleted already: whether it is gone is what counts
                done = world.victim.call("GET", f"/v1/checkpoints/{checkpoint}").status != 200
            t.attempt(f"{what}", done, f"{answer.status} {answer.body[:120]}")
        for path in ("/v1/checkpoints", "/v1/tree"):
            t.attempt(f"{path} shows it", checkpoint in api.call("GET", path).body.decode())
        answer = world.host.call("POST", "/v1/templates", {"name": "theirs:1", "checkpoint": checkpoint})
        t.attempt("the keeper's key publishes a tenant's checkpoint by its id", answer.status < 300, answer.status)
        t.control("it is still its owner's", world.victim.call("GET", f"/v1/checkpoints/{checkpoint}").status == 200)
        api.call("DELETE", f"/v1/checkpoints/{own}")
    finally:
        for id in forked:
            world.victim.delete(id)
        world.victim.call("DELETE", f"/v1/checkpoints/{checkpoint}")
