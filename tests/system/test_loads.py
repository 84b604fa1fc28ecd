"""What a guest goes through when it is loaded: its programs are told, and connections of its old life end."""

import json
import threading
import time
import unittest

from api_client import Sandbox
from fake_internet import FakeInternet
from space_server import ServerTest, SpaceServer

BUDGET_S = 150

HOOK = """#!/bin/sh
echo "$SPACE_LOADS $SPACE_EPOCH $SPACE_SANDBOX_ID" >> /var/tmp/loads
"""

# A server that says when and how the connection to it ended, and one that two programs of the guest keep between them.
SERVER = """
import socket, sys, threading
def serve(address, port, name):
    s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); s.bind((address, port)); s.listen()
    while True:
        c, _ = s.accept()
        threading.Thread(target=read, args=(c, name), daemon=True).start()
def read(c, name):
    got = False
    try:
        while d := c.recv(100):
            got = True
            open("/dev/shm/" + name + ".got", "ab").write(d)
        if got:  # else somebody only looked whether we listen
            open("/dev/shm/" + name, "w").write("closed")
    except OSError as e:
        open("/dev/shm/" + name, "w").write(type(e).__name__)
threading.Thread(target=serve, args=("0.0.0.0", 8000, "inbound"), daemon=True).start()
threading.Thread(target=serve, args=("127.0.0.1", 8001, "within"), daemon=True).start()
serve("10.0.0.2", 8002, "own")
"""
CLIENT = """
import socket, sys
s = socket.create_connection((sys.argv[1], int(sys.argv[2])))
open("/dev/shm/" + sys.argv[3] + ".open", "w")
try:
    while s.recv(100):
        pass
    open("/dev/shm/" + sys.argv[3], "w").write("closed")
except OSError as e:
    open("/dev/shm/" + sys.argv[3], "w").write(type(e).__name__)
"""
# Keeps a connection within the guest and sends a byte a second on it.
TALKER = """
import socket, sys, time
s = socket.create_connection((sys.argv[1], int(sys.argv[2])))
while True:
    s.sendall(b"."); time.sleep(0.2)
"""


class Loads(ServerTest):
    @classmethod
    def setUpClass(cls):
        cls.net = FakeInternet()
        cls.addClassCleanup(cls.net.close)
        cls.net.zone["allowed.test"] = cls.net.shared
        cls.net.start()
        cls.server = SpaceServer(egress_resolver=cls.net.resolver, egress_ca=cls.net.ca, pool_ready=0, pool_spawned=0).start()
        cls.addClassCleanup(cls.server.close)
        cls.api = cls.server.api

    def await_file(self, sandbox, name, limit=20):
        return self.server.wait_for(lambda: sandbox.run(f"cat /dev/shm/{name}").stdout.decode(), limit, f"{name} in the guest")

    def test_connections_of_the_old_life_end_at_once_and_those_within_the_guest_go_on(self):
        policy = {"policy": {"mode": "allowlist", "rules": [{"name": "allowed.test", "protocol": "tcp", "ports": [5432]}]}}
        with self.api.create(egress=policy) as sandbox:
            for name, text in (("server", SERVER), ("client", CLIENT), ("talker", TALKER)):
                sandbox.write(f"/home/user/{name}.py", text.encode())
            sandbox.start("exec python3 ~/server.py").in_background()
            sandbox.run("for i in $(seq 100); do (exec 3<>/dev/tcp/10.0.0.2/8002) && (exec 3<>/dev/tcp/127.0.0.1/8001) && exit 0; sleep 0.2; done 2>/dev/null; rm -f /dev/shm/*")
            sandbox.start("exec python3 ~/client.py allowed.test 5432 outbound").in_background()
            for address, port in (("127.0.0.1", 8001), ("10.0.0.2", 8002)):
                sandbox.start(f"exec python3 ~/talker.py {address} {port}").in_background()

            def ask():  # a request whose answer never comes
                try:
                    self.api.call("GET", f"{sandbox.path}/ports/8000/", timeout=60)
                except OSError:
                    pass

            threading.Thread(target=ask, daemon=True).start()
            for name in ("inbound.got", "within.got", "own.got"):
                self.await_file(sandbox, name)
            sandbox.run("for i in $(seq 100); do [ -e /dev/shm/outbound.open ] && exit 0; sleep 0.1; done; exit 1")
            self.assertEqual(sandbox.run("ls /dev/shm/inbound /dev/shm/outbound 2>/dev/null").stdout, b"")
            before = len(self.await_file(sandbox, "within.got"))
            sandbox.change("suspend")
            sandbox.change("wake")
            begun = time.monotonic()
            self.assertIn(self.await_file(sandbox, "outbound"), ("ConnectionResetError", "closed"))
            self.assertIn(self.await_file(sandbox, "inbound"), ("ConnectionResetError", "closed"))
            self.assertLess(time.monotonic() - begun, 10)
            self.server.wait_for(lambda: len(self.await_file(sandbox, "within.got")) > before + 5, 20, "bytes within the guest")
            self.assertEqual(sandbox.run("cat /dev/shm/within /dev/shm/own 2>/dev/null").stdout, b"", "these go on")
            # A fork comes with the outbound connection that its parent has open, and loses it; its parent keeps it.
            sandbox.run("rm -f /dev/shm/outbound*")
            sandbox.start("exec python3 ~/client.py allowed.test 5432 outbound").in_background()
            sandbox.run("for i in $(seq 100); do [ -e /dev/shm/outbound.open ] && exit 0; sleep 0.1; done; exit 1")
            child = Sandbox(self.api, sandbox.change("fork")["children"][0])
            self.assertEqual(self.await_file(child, "outbound"), "ConnectionResetError")
            self.assertEqual(sandbox.run("cat /dev/shm/outbound 2>/dev/null").stdout, b"")
            self.api.delete(child.id)

    def told(self, sandbox, wanted):
        """The first line of the hook that fits: how many loads, the epoch, whose it is."""
        def look():
            lines = [line.split() for line in sandbox.run("cat /var/tmp/loads").stdout.decode().splitlines()]
            return next((line for line in lines if wanted(line)), None)

        return self.server.wait_for(look, 20, "the hook")

    def test_hooks_and_the_event_file_tell_of_every_load(self):
        with self.api.create() as sandbox:
            sandbox.write("/etc/space/load.d/10-note", HOOK.encode(), user="root", mode="0755", parents="1")
            sandbox.write("/etc/space/load.d/20-not-trusted", b"#!/bin/sh\ntouch /var/tmp/never\n", user="root", mode="0777")
            sandbox.change("suspend")
            sandbox.change("wake")
            loads, epoch, name = self.told(sandbox, lambda line: True)
            self.assertEqual((epoch, name), ("1", sandbox.id))
            self.assertEqual(sandbox.run("ls /var/tmp/never").code, 2)
            event = json.loads(sandbox.output("cat /run/space/load"))
            self.assertEqual((str(event["loads"]), event["epoch"], event["sandbox_id"]), (loads, 1, sandbox.id))

            operation = sandbox.change("fork")
            child = Sandbox(self.api, operation["children"][0])
            self.assertEqual(self.told(child, lambda line: line[2] == child.id)[1], "1")
            self.assertEqual(json.loads(child.output("cat /run/space/load"))["sandbox_id"], child.id)
            self.api.delete(child.id)

            # Back to the fork's checkpoint: the epoch goes up, and the guest hears of it.
            self.assertEqual(sandbox.change("restore", {"checkpoint": operation["checkpoint"]})["state"], "succeeded")
            self.told(sandbox, lambda line: line[1:] == ["2", sandbox.id])
            self.assertEqual(json.loads(sandbox.output("cat /run/space/load"))["epoch"], 2)


if __name__ == "__main__":
    unittest.main()
