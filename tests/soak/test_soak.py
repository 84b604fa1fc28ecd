"""A few clients use sandboxes in random ways for some minutes, while roles are killed now and then; nothing may be lost or left.

    tests/run soak                       two minutes
    SPACE_SOAK_S=3600 tests/run soak --patience 12      an hour
    SPACE_SOAK_SEED=7                    the same choices again (the order of what runs side by side stays the machine's)

Each client knows what its sandbox must hold: a file and a process that keeps a number in memory. After every operation both are asked for.
Roles die between operations only; test_recovery kills them within.
"""

import os
import random
import subprocess
import threading
import time
import traceback
import unittest

from api_client import Sandbox
from space_server import BINARY, ServerTest

SECONDS = int(os.environ.get("SPACE_SOAK_S", "120"))
SEED = int(os.environ.get("SPACE_SOAK_SEED", "1"))
BUDGET_S = 360  # with an hour: --patience 12
CLIENTS = 3
GROWTH_MIB = 48  # of all roles together: caches and arenas, not leaks

KEEPER = (
    "import http.server, sys\n"
    "value = '0'\n"
    "class Keep(http.server.BaseHTTPRequestHandler):\n"
    "    def do_GET(self):\n"
    "        global value\n"
    "        if self.path != '/': value = self.path[1:]\n"
    "        self.send_response(200); self.end_headers(); self.wfile.write(value.encode())\n"
    "    def log_message(self, *words): pass\n"
    "http.server.ThreadingHTTPServer(('127.0.0.1', 8900), Keep).serve_forever()\n")
ASK = "import sys, urllib.request; print(urllib.request.urlopen('http://127.0.0.1:8900/' + sys.argv[1], timeout=20).read().decode(), end='')"


class Client:
    def __init__(self, api, number, gate):
        self.api, self.random, self.gate = api, random.Random(SEED * 1000 + number), gate
        self.counts, self.sandbox, self.step, self.checkpoint = {}, None, 0, None

    def create(self):
        self.sandbox, self.step, self.checkpoint = self.api.create(), 0, None
        self.sandbox.write("/home/user/keeper.py", KEEPER.encode())
        self.sandbox.write("/home/user/ask.py", ASK.encode())
        self.sandbox.run("nohup python3 /home/user/keeper.py >/dev/null 2>&1 & until python3 /home/user/ask.py '' >/dev/null 2>&1; do sleep 0.2; done", timeout=120)
        self.note()

    def note(self):
        self.step += 1
        self.sandbox.write("/home/user/step", str(self.step).encode())
        heard = self.sandbox.output(["python3", "/home/user/ask.py", str(self.step)])
        assert heard == str(self.step), f"{self.sandbox.id} was told {self.step} and answered {heard!r}"

    def check(self):
        kept = (self.sandbox.read("/home/user/step").decode(), self.sandbox.output(["python3", "/home/user/ask.py", ""]))
        assert kept == (str(self.step), str(self.step)), f"{self.sandbox.id} holds {kept}, and not {self.step}"

    def change(self, verb, **body):
        operation = self.sandbox.change(verb, body or None)
        assert operation["state"] == "succeeded", operation
        return operation

    def pause(self):
        self.change("pause")
        self.change("resume")

    def suspend(self):
        self.change("suspend")
        self.change("wake")

    def take(self):
        taken = self.change("checkpoint")["checkpoint"]
        self.forget()
        self.checkpoint = (taken, self.step)

    def back(self):
        if self.checkpoint:
            self.change("restore", checkpoint=self.checkpoint[0])
            self.step = self.checkpoint[1]

    def fork(self):
        (child,) = self.change("fork", count=1)["children"]
        parent, self.sandbox = self.sandbox, Sandbox(self.api, child)
        self.api.delete(parent.id)
        self.forget()  # it was the parent's

    def output(self):
        text = self.sandbox.output("for i in $(seq 1 2000); do echo line $i; done")
        assert text.split("\n") == [f"line {i}" for i in range(1, 2001)], f"{self.sandbox.id} printed {len(text)} bytes, ending in {text[-80:]!r}"

    def again(self):
        self.delete()
        self.create()

    def forget(self):
        if self.checkpoint:
            self.api.ok("DELETE", f"/v1/checkpoints/{self.checkpoint[0]}")
        self.checkpoint = None

    def delete(self):
        self.forget()
        self.api.delete(self.sandbox.id)

    def live(self, until):
        with self.gate:
            self.create()
        while time.monotonic() < until:
            with self.gate:
                what = self.random.choice([self.pause, self.suspend, self.suspend, self.take, self.take, self.back, self.fork, self.output, self.note, self.note, self.again])
                what()
                self.check()
            self.counts[what.__name__] = self.counts.get(what.__name__, 0) + 1
        self.delete()


class Gate:
    """Clients pass it together; who closes it waits until none is inside."""

    def __init__(self):
        self.lock, self.inside, self.closed = threading.Condition(), 0, False

    def __enter__(self):
        with self.lock:
            self.lock.wait_for(lambda: not self.closed)
            self.inside += 1

    def __exit__(self, *error):
        with self.lock:
            self.inside -= 1
            self.lock.notify_all()

    def alone(self, call):
        with self.lock:
            self.closed = True
            self.lock.wait_for(lambda: self.inside == 0)
        try:
            return call()
        finally:
            with self.lock:
                self.closed = False
                self.lock.notify_all()


class Soak(ServerTest):
    options = {"pool_ready": 1}

    def memory_mib(self):
        total = 0
        for role in ("api", "node", "warden", "egress"):
            with open(f"/proc/{self.server.role_pid(role)}/status", encoding="utf-8") as status:
                total += next(int(line.split()[1]) for line in status if line.startswith("VmRSS")) // 1024
        return total

    def test_nothing_is_lost_and_nothing_is_left(self):
        gate, errors, before = Gate(), [], self.memory_mib()
        until = time.monotonic() + SECONDS
        clients = [Client(self.api, number, gate) for number in range(CLIENTS)]

        def live(client):
            try:
                client.live(until)
            except BaseException as error:  # an assertion too has to reach the main thread
                errors.append("".join(traceback.format_exception(error)))

        threads = [threading.Thread(target=live, args=(client,)) for client in clients]
        for thread in threads:
            thread.start()
        choice, killed = random.Random(SEED), []
        while time.monotonic() < until - 10 and not errors:
            time.sleep(min(20, SECONDS / 5))
            role = choice.choice(["api", "node", "warden", "egress"])
            gate.alone(lambda role=role: self.server.kill_role(role))
            killed.append(role)
        for thread in threads:
            thread.join(180)
        self.assertEqual(len(errors), 0, "\n".join([f"killed {killed}", *errors]))
        counts = {}
        for client in clients:
            for name, count in client.counts.items():
                counts[name] = counts.get(name, 0) + count
        print(f"    {sum(counts.values())} operations {counts}; killed {killed}; memory {before} → {self.memory_mib()} MiB")
        self.assertGreater(sum(counts.values()), SECONDS / 10)
        self.assertEqual(self.api.sandboxes("&state=running"), [])
        self.assertLess(self.memory_mib() - before, GROWTH_MIB)
        verified = subprocess.run([BINARY, "--json", "store", "verify", "--data-dir", self.server.data_dir], capture_output=True, timeout=120, text=True)
        self.assertEqual(verified.returncode, 0, verified.stdout + verified.stderr)


if __name__ == "__main__":
    unittest.main()
