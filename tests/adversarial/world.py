"""The stage of the attacks: a server of our own with two tenants, a bystander's sandbox, an internet of its own, canaries, and a look at
whether all of it is as it was."""

import base64
import json
import os
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "system"))

import internet  # noqa: E402
import leaks  # noqa: E402
from api_client import Sandbox  # noqa: E402
from canaries import Datagrams, Listener, host_addresses, new_secret  # noqa: E402
from space_server import SpaceServer  # noqa: E402

ROLES = ("warden", "node", "api", "egress")


class World:
    """`broken_gateway`: one that lets everything through, to show that the experiment can be lost."""

    def __init__(self, long=False, options=None, broken_gateway=False):
        self.condition, self.long, self.broken_gateway = "blocked", long, broken_gateway
        self.options = {"tenants_on_tcg": True, "pool_ready": 1, **(options or {})}
        if broken_gateway:
            self.options["egress_allow_range"] = "0.0.0.0/0"
        self.boxes, self.expected, self.net, self.server, self.audit_read = {}, [], None, None, {}

    def __enter__(self):
        try:
            return self.set_up()
        except BaseException:
            self.__exit__()
            raise

    def set_up(self):
        self.net = internet.make()
        self.server = SpaceServer(egress_resolver=self.net.resolver, egress_ca=self.net.ca, **self.options).start()
        self.host = self.server.api
        self.version = self.host.ok("GET", "/v1/version")
        self.attacker, self.victim = self.tenant("attacker"), self.tenant("victim")
        addresses = [*host_addresses(), f"{self.net.block}.1"]
        self.listeners = [Listener("127.0.0.1")] + [Listener(address) for address in addresses]
        self.wide = Listener("0.0.0.0")
        self.listeners.append(self.wide)
        self.datagrams = [Datagrams("127.0.0.1")] + [Datagrams(address) for address in addresses]
        self.secrets = {"a file of the host": new_secret(), "the bystander's file": new_secret(), "the bystander's environment": new_secret(), "a credential": new_secret(),
                        "another credential": new_secret()}
        for name, which in (("api", "a credential"), ("other", "another credential")):
            self.attacker.ok("PUT", f"/v1/credentials/{name}", self.secrets[which].encode(), {"Content-Type": "application/octet-stream"})
        self.policy = internet.partial(self.wide.port)
        self.host_file = self.server.folder / "host-canary"
        self.host_file.write_text(self.secrets["a file of the host"])
        self.bystander = self.first(env={"SECRET": self.secrets["the bystander's environment"]})
        self.bystander.write("/root/canary", self.secrets["the bystander's file"].encode(), user="root")
        self.bystander.write("/tmp/listen.py", LISTENER.encode())
        self.bystander.run("setsid -f python3 /tmp/listen.py >/dev/null 2>&1 </dev/null", user="root")
        self.bystander_key = self.victim.key
        self.pids = self.role_pids()
        self.begin(self.condition)
        return self

    def __exit__(self, *exc):
        self.close()

    def close(self):
        """Puts everything away, once; says what is left by an AssertionError."""
        for one in [*getattr(self, "listeners", ()), *getattr(self, "datagrams", ())]:
            one.close()
        server, net, self.server, self.net = self.server, self.net, None, None
        try:
            for tenant in (getattr(self, "attacker", None), getattr(self, "victim", None)):
                for sandbox in tenant.sandboxes() if tenant and server else ():
                    tenant.delete(sandbox["id"])
            if server is not None:
                server.close()
        finally:
            if net is not None:
                net.close()

    def first(self, **options):
        """The bystander's sandbox, the first of this server: its base may have to be made before it."""
        answer = self.victim.ok("POST", "/v1/sandboxes", options)
        operation = self.victim.operation(answer["operation"]["id"], limit=600)
        if operation["state"] != "succeeded":
            raise AssertionError(f"the first create ended as {operation}")
        return Sandbox(self.victim, answer["sandbox"]["id"])

    def begin(self, condition):
        """A trial begins: what the attacker's sandboxes may reach, and from where on the internet's log is looked at."""
        self.condition, self.expected = condition, []
        self.mark = self.net.mark()
        now = time.time()
        self.begun = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now % 1 * 1000):03}Z"  # as the audit log writes it

    def settings(self, condition=None):
        """The network of a sandbox of the attacker under a condition, as a create takes it."""
        if self.broken_gateway:
            return {"policy": {"mode": "open"}, "credentials": internet.CREDENTIALS}
        return {"blocked": {"policy": {"mode": "none"}}, "partial": {"policy": self.policy, "credentials": internet.CREDENTIALS}, "open": {"policy": {"mode": "open"}}}[condition or self.condition]

    def expect(self, known):
        """Entries of the internet's log for which `known` is true are no trespass in this trial."""
        self.expected.append(known)

    def arrivals(self):
        """What the internet and the host's canaries got in this trial, each with its text."""
        found = [*self.net.since(self.mark), *({"at": "host", "said": said.decode("latin1")} for one in [*self.listeners, *self.datagrams] for _, said in one.hits)]
        return [(entry, str(entry)) for entry in found]

    def arrived(self, text):
        """Those that hold this text."""
        return [entry for entry, whole in self.arrivals() if text in whole]

    def refusal(self, box, wait=5):
        """The audit log's next refusal of this sandbox in this trial, None without one in `wait` seconds. A flood of equal refusals becomes one event with a count,
        a second later. What was read is not read again."""
        until = time.monotonic() + wait
        while True:
            after = self.audit_read.get(box.id)
            with box.api.events(f"{box.path}/egress/log" + (f"?after={after}" if after else "")) as stream:
                for event in stream:
                    self.audit_read[box.id], one = event.id, event.data
                    if one["sandbox"] == box.id and one["time"] >= self.begun and (one["verdict"] == "deny" or one["kind"] == "security"):
                        return one
            if time.monotonic() >= until:
                return None
            time.sleep(0.2)

    def facts(self):
        """What a report says about what was attacked."""
        return {"accelerator": self.version.get("accelerator") or "unknown", "vmm": f"{self.version.get('driver')} {self.version.get('vmm_version')}", "version": self.version["version"]}

    def tenant(self, name, scopes=("admin",), **more):
        made = self.host.ok("POST", "/v1/keys", {"name": "redteam", "tenant": name, "scopes": list(scopes), **more})
        return self.host.with_key(made["key"])

    # Sandboxes of the attacker.

    def sandbox(self, name="shared", condition=None):
        """One that attacks share, made anew when the last one broke it."""
        condition = condition or self.condition
        name = f"{name} {condition}"
        box = self.boxes.get(name)
        if box is not None:
            try:
                if box.run(["true"], timeout=15).code == 0:
                    return box
            except Exception:
                self.drop(box)
        self.boxes[name] = self.fresh(condition)
        return self.boxes[name]

    def fresh(self, condition=None, **options):
        """One for attacks that break it; `drop` it afterwards."""
        options.setdefault("egress", self.settings(condition))
        return self.attacker.create(**options)

    def settle(self, box, policy=None, **more):
        """Another policy for a sandbox; without one, that of the present condition."""
        return self.attacker.ok("PUT", f"{box.path}/egress", {"policy": policy, **more} if policy else self.settings())

    def drop(self, box):
        self.boxes = {name: one for name, one in self.boxes.items() if one is not box}
        self.attacker.delete(box.id)

    def vmm(self, box):
        return leaks.vmm_pid(self.server, box.id)

    # What the runner asks after every trial.

    def role_pids(self):
        return {role: self.server.role_pid(role) for role in ROLES if self.server.role_pid(role)}

    def secrets_in(self, content):
        """Names of the secrets that these bytes hold, as they are or as base64 at any alignment."""
        found = []
        for name, secret in self.secrets.items():
            forms = [secret.encode(), secret[7:].encode()] + [base64.b64encode(bytes(n) + secret.encode())[4 if n else 0:-4] for n in range(3)]
            if any(form in content for form in forms):
                found.append(name)
        return found

    def trespasses(self):
        """What arrived at the fake internet in this trial and must not have."""
        found = []
        for entry in self.net.since(self.mark):
            if any(known(entry) for known in self.expected):
                continue
            if self.condition == "blocked":
                found.append(f"something arrived although all is blocked: {str(entry)[:200]}")
            elif self.condition == "partial" and (entry["at"] == "evil" or entry["at"] == "proxy" and any(entry["lines"]) and not entry["path"].startswith("/")):
                found.append(f"{entry['at']} was reached: {str(entry)[:200]}")
            elif self.condition == "partial" and entry["at"] == "dns" and not internet.may_be_resolved(entry.get("name", "")):
                found.append(f"a name outside of the policy was looked up: {entry.get('name')}")
        return found

    def disturbed(self):
        """What is no longer as it was, and becomes the new state."""
        time.sleep(0.1)  # what is under way arrives
        found = self.trespasses()
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
    """Measures the bystander while something else goes on: the time of `true`, over and over (neighbour.py)."""

    def __init__(self, world, every=0.03):
        self.world, self.every, self.times, self.failed = world, every, [], 0

    def __enter__(self):
        program = Path(__file__).resolve().parent / "neighbour.py"
        self.process = subprocess.Popen([sys.executable, program, self.world.victim.url, self.world.bystander.id, str(self.every)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.process.stdin.write(self.world.victim.key + "\n")
        self.process.stdin.flush()
        self.process.stdout.readline()
        return self

    def __exit__(self, *exc):
        try:
            result = json.loads(self.process.communicate(timeout=60)[0])
            self.times, self.failed = result["times"], result["failed"]
        finally:
            self.process.kill()
            self.process.wait()

    def quantile(self, share):
        ordered = sorted(self.times)
        return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else float("inf")


class Meter:
    """The bystander's times before and during an attack, with the bars that hold for them. What the machine did besides is on both sides
    of the ratio: the times before the attack and, where they were worse, those after it."""

    MEDIAN, P99 = 1.5, 2.0

    def __init__(self, t, seconds=2.5):
        self.t, self.seconds = t, seconds

    def calm(self):
        with Neighbour(self.t.world) as one:
            time.sleep(self.seconds)
        return one

    def __enter__(self):
        self.before = self.calm()
        self.during = Neighbour(self.t.world).__enter__()
        return self

    def __exit__(self, kind, *rest):
        self.during.__exit__(None)
        if kind is not None:
            return
        t, during = self.t, self.during
        t.control("the bystander was timed before", len(self.before.times) >= 5, len(self.before.times))
        t.control("and during the attack", len(during.times) >= 5 or during.failed, len(during.times))
        t.attempt("the bystander was not answered", during.failed > 0 or not during.times, f"{during.failed} failed")
        after = None
        for name, share, bar in (("median", 0.5, self.MEDIAN), ("p99", 0.99, self.P99)):
            base, now = self.before.quantile(share), during.quantile(share)
            if now > base * bar and after is None:
                time.sleep(1)
                after = self.calm()
            if after is not None:
                base = max(base, after.quantile(share))
            t.figure(f"neighbour's {name}, ms before and during", f"{base * 1000:.0f}, {now * 1000:.0f} (x{now / base:.2f})")
            t.timing(f"the neighbour's {name} is more than {bar} times as long", now > base * bar, f"{base * 1000:.0f} to {now * 1000:.0f} ms, {len(during.times)} times")


LISTENER = """
import socket
s = socket.socket(); s.setsockopt(1, 2, 1); s.bind(("", 8080)); s.listen(50)
while True:
    c, _ = s.accept(); open("/tmp/reached", "a").write("x"); c.close()
"""
