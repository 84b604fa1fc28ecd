"""What the tests of the network share: a fake internet, a server whose gateway resolves there, one sandbox with a policy."""

import secrets

import package_indexes
from fake_internet import FakeInternet
from space_server import SpaceServer, ServerTest

HX = r'''
import sys, socket, ssl
s = socket.create_connection((sys.argv[1], int(sys.argv[2])), 8)
if len(sys.argv) > 3:
    c = ssl.create_default_context(); c.check_hostname = False; c.verify_mode = ssl.CERT_NONE
    s = c.wrap_socket(s, server_hostname=sys.argv[3] or None)
s.sendall(sys.stdin.buffer.read().decode("unicode_escape").encode("latin1")); s.settimeout(8)
try:
    while d := s.recv(65536): sys.stdout.buffer.write(d)
except Exception as e: print("\n--", e)
'''
DNSX = r'''
import sys, socket, struct, os
a = [x for x in sys.argv[1:] if x != "--tcp"]; tcp = "--tcp" in sys.argv
q = b"".join(bytes([len(l)]) + l for l in (x.encode("latin1").decode("unicode_escape").encode("latin1") for x in a[2:])) + b"\0"
m = os.urandom(2) + struct.pack(">5H", 256, 1, 0, 0, 0) + q + struct.pack(">2H", int(a[1]), 1)
s = socket.socket(socket.AF_INET, socket.SOCK_STREAM if tcp else socket.SOCK_DGRAM); s.settimeout(4); s.connect((a[0], 53))
s.send(struct.pack(">H", len(m)) + m if tcp else m); d = s.recv(65535)[2 if tcp else 0:]
print("rcode", d[3] & 15, "answers", struct.unpack(">H", d[6:8])[0])
'''

NAMES = ("allowed.test", "cdn-ok.test", "cdn-bad.test", "api.secret.test", "proxy.test", "a.wild.test", "b.wild.test", "a.b.wild.test", "wild.test", "pip.test", "npm.test",
         "git.test", "apt.test", "notallowed.test")
RULES = [
    {"id": "allowed", "name": "allowed.test"}, {"id": "wild", "name": "*.wild.test"}, {"id": "cdn", "name": "cdn-ok.test"},
    {"id": "secret", "name": "api.secret.test"}, {"id": "proxy", "name": "proxy.test"},
    {"id": "raw", "name": "allowed.test", "protocol": "tcp", "ports": [5432]},
]


class EgressTest(ServerTest):
    policy = {"mode": "allowlist", "rules": RULES}

    @classmethod
    def setUpClass(cls):
        cls.net = FakeInternet()
        cls.addClassCleanup(cls.net.close)
        for name in NAMES:
            cls.net.zone[name] = cls.net.shared
        for name in ("evil.test", "evil-allowed.test", "allowed.test.evil.test", "xwild.test"):
            cls.net.zone[name] = cls.net.evil
        cls.zone()
        package_indexes.make_all(cls.net.folder, "https://npm.test/pkg/npm")
        cls.net.start()
        cls.server = SpaceServer(egress_resolver=cls.net.resolver, egress_ca=cls.net.ca, **cls.options).start()
        cls.addClassCleanup(cls.server.close)
        cls.api = cls.server.api
        cls.secret = "CANARY-" + secrets.token_hex(12)
        cls.api.ok("PUT", "/v1/credentials/api", cls.secret.encode(), {"Content-Type": "application/octet-stream"})
        cls.sandbox = cls.api.create(egress=cls.settings())
        for name, text in (("hx.py", HX), ("dnsx.py", DNSX)):
            cls.sandbox.write(f"/home/user/{name}", text.encode())

    @classmethod
    def zone(cls):
        """For more names."""

    @classmethod
    def settings(cls):
        return {"policy": cls.policy, "credentials": [{"credential": "api", "name": "api.secret.test", "port": 443, "bearer": True}]}

    def run_in(self, command, timeout=120, **options):
        result = self.sandbox.run(command, timeout=timeout, **options)
        return result.code, result.stdout.decode(errors="replace"), result.stderr.decode(errors="replace")

    def set_policy(self, policy, sandbox=None, **more):
        return self.api.ok("PUT", f"{(sandbox or self.sandbox).path}/egress", {"policy": policy, **more})

    def log(self, sandbox=None, after=None):
        with self.api.events(f"{(sandbox or self.sandbox).path}/egress/log" + (f"?after={after}" if after else "")) as stream:
            return [event.data for event in stream]
