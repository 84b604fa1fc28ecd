"""The stage of the attacks: a server of our own with two tenants, a bystander's sandbox, canaries, and a look at whether all of it is
as it was."""

import json
import os
import shutil
import subprocess
import sys
import threading
import time
import uuid
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "system"))

import leaks  # noqa: E402
from canaries import Datagrams, Listener, host_addresses, new_secret  # noqa: E402
from space_server import SpaceServer  # noqa: E402

ROLES = ("warden", "node", "api", "egress")


class World:
    def __init__(self, condition="blocked", long=False, options=None):
        self.condition, self.long = condition, long
        self.server = SpaceServer(tenants_on_tcg=True, pool_ready=1, **(options or {}))
        self.boxes = {}

    def __enter__(self):
        self.server.start()
        self.host = self.server.api
        self.version = self.host.ok("GET", "/v1/version")
        self.attacker, self.victim = self.tenant("attacker"), self.tenant("victim")
        self.listeners = [Listener("127.0.0.1")] + [Listener(address) for address in host_addresses()]
        self.datagrams = [Datagrams("127.0.0.1")] + [Datagrams(address) for address in host_addresses()]
        self.secrets = {"a file of the host": new_secret(), "the bystander's file": new_secret(), "the bystander's environment": new_secret()}
        self.host_file = self.server.folder / "host-canary"
        self.host_file.write_text(self.secrets["a file of the host"])
        self.bystander = self.victim.create(env={"SECRET": self.secrets["the bystander's environment"]})
        self.bystander.write("/root/canary", self.secrets["the bystander's file"].encode(), user="root")
        self.bystander.write("/tmp/listen.py", LISTENER.encode())
        self.bystander.run("setsid -f python3 /tmp/listen.py >/dev/null 2>&1 </dev/null", user="root")
        self.bystander_key = self.victim.key
        self.pids = self.role_pids()
        self.expected_hits = {}
        return self

    def __exit__(self, *exc):
        for one in [*self.listeners, *self.datagrams]:
            one.close()
        for tenant in (self.attacker, self.victim):
            for sandbox in tenant.sandboxes():
                tenant.delete(sandbox["id"])
        self.server.close()

    def tenant(self, name, scopes=("admin",), **more):
        made = self.host.ok("POST", "/v1/keys", {"name": "redteam", "tenant": name, "scopes": list(scopes), **more})
        return self.host.with_key(made["key"])

    # Sandboxes of the attacker.

    def sandbox(self, name="shared"):
        """One that attacks share, made anew when the last one broke it."""
        box = self.boxes.get(name)
        if box is not None:
            try:
                if box.run(["true"], timeout=15).code == 0:
                    return box
            except Exception:
                self.drop(box)
        self.boxes[name] = self.attacker.create()
        return self.boxes[name]

    def fresh(self, **options):
        """One for attacks that break it; `drop` it afterwards."""
        return self.attacker.create(**options)

    def drop(self, box):
        self.boxes = {name: one for name, one in self.boxes.items() if one is not box}
        self.attacker.delete(box.id)

    def vmm(self, box):
        return leaks.vmm_pid(self.server, box.id)

    # What the runner asks after every trial.

    def role_pids(self):
        return {role: self.server.role_pid(role) for role in ROLES if self.server.role_pid(role)}

    def secrets_in(self, content):
        return [name for name, secret in self.secrets.items() if secret.encode() in content]

    def disturbed(self):
        """What is no longer as it was, and becomes the new state."""
        found = []
        for listener in [*self.listeners, *self.datagrams]:
            if listener.hits:
                found.append(f"{type(listener).__name__.lower()} on {listener.address} was reached: {listener.hits[:2]}")
                listener.hits.clear()
        pids = self.role_pids()
        if pids != self.pids:
            found.append(f"roles ended: {self.pids} are now {pids}")
            self.pids = pids
        state = self.victim.call("GET", self.bystander.path)
        if state.status != 200 or state.json["state"] != "running":
            found.append(f"the bystander is {state.body[:200]}")
            return found
        seen = self.bystander.run("cat /root/canary; ls /tmp/reached 2>/dev/null", user="root", timeout=60).stdout.decode()
        if self.secrets["the bystander's file"] not in seen:
            found.append("the bystander's file changed")
        if "reached" in seen:
            found.append("the bystander's port was reached")
            self.bystander.run("rm -f /tmp/reached", user="root")
        return found

    def counts(self):
        """What the server's processes and this host hold for it, for attacks that look for leaks."""
        found = {}
        for role, pid in self.role_pids().items():
            try:
                found[f"{role} descriptors"] = len(os.listdir(f"/proc/{pid}/fd"))
                found[f"{role} threads"] = len(os.listdir(f"/proc/{pid}/task"))
            except OSError:
                pass
        found["VMMs"] = len(leaks.vmms(self.server))
        return found

    def memory_mib(self, role):
        status = Path(f"/proc/{self.server.role_pid(role)}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) // 1024

    def log_text(self):
        return self.server.log.read_text(errors="replace")


class Neighbour:
    """Measures the bystander while something else goes on: the time of `true`, over and over."""

    def __init__(self, world, every=0.2):
        self.world, self.every, self.times, self.failed = world, every, [], 0
        self.stop = threading.Event()

    def __enter__(self):
        self.thread = threading.Thread(target=self.loop, daemon=True)
        self.thread.start()
        return self

    def loop(self):
        while not self.stop.is_set():
            begun = time.monotonic()
            try:
                self.world.bystander.run(["true"], timeout=30)
                self.times.append(time.monotonic() - begun)
            except Exception:
                self.failed += 1
            self.stop.wait(self.every)

    def __exit__(self, *exc):
        self.stop.set()
        self.thread.join(40)

    def quantile(self, share):
        ordered = sorted(self.times)
        return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else float("inf")


LISTENER = """
import socket
s = socket.socket(); s.setsockopt(1, 2, 1); s.bind(("", 8080)); s.listen(50)
while True:
    c, _ = s.accept(); open("/tmp/reached", "a").write("x"); c.close()
"""
