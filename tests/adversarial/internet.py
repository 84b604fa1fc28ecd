"""What stands in the attacks' internet (tests/system/fake_internet.py, hostile_servers.py), and what the attacker's sandbox may reach there."""

import package_indexes
from fake_internet import FakeInternet

SPECIAL = ("0.0.0.0", "10.0.0.1", "100.64.0.1", "127.0.0.1", "169.254.169.254", "172.16.0.1", "192.0.0.1", "192.168.0.1", "198.18.0.5", "224.0.0.1", "240.0.0.1", "255.255.255.255",
           "::", "::1", "::ffff:127.0.0.1", "::127.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::", "fe80::1", "fc00::1", "fec0::1", "2001:db8::1")
SHARED = ("allowed.test", "cdn-ok.test", "cdn-bad.test", "api.secret.test", "*.wild.test", "wild.test", "git.test", "pip.test", "npm.test", "read.test", "path.test",
          "mine.s3.test", "theirs.s3.test", "notallowed.test")
ODD = ("odd.test", "odd.secret.test", "other.secret.test", "good.bad.test", "expired.bad.test", "wrong.bad.test", "selfsigned.bad.test", "unknown.bad.test",
       "sha1.bad.test", "short.bad.test", "client.bad.test", "constrained.bad.test")
EVIL = ("evil.test", "evil-allowed.test", "allowed.test.evil.test", "xwild.test", "stale.wild.test")


def make():
    net = FakeInternet()
    net.hostile = True
    zone = net.zone
    for names, address in ((SHARED, net.shared), (ODD, net.odd), (EVIL, net.evil), (("h2.test", "h2-bad.test"), net.h2), (("proxy.test",), net.proxy), (("old.bad.test",), net.old)):
        zone.update(dict.fromkeys(names, address))
    for number, address in enumerate(SPECIAL):
        zone[f"r{number}.wild.test"] = address
    zone.update({"c1.wild.test": ["cname:evil.test"], "c2.wild.test": ["cname:localhost"], "c3.wild.test": ["cname:c4.wild.test"], "c4.wild.test": ["cname:c3.wild.test"],
                 "c5.wild.test": ["cname:host.internal"], "flip.wild.test": f"turns:{net.shared},127.0.0.1,127.0.0.1", **{f"d{n}.wild.test": [f"cname:d{n + 1}.wild.test"] for n in range(60)}})
    package_indexes.make_all(net.folder, "https://npm.test/pkg/npm")
    return net.start()


def partial(canary_port):
    """The policy of the condition `partial`. The wildcard's extra port lets a name that leads to the host be tried where a canary listens."""
    rules = [{"id": "allowed", "name": "allowed.test"}, {"id": "wild", "name": "*.wild.test"}, {"id": "wild-port", "name": "*.wild.test", "protocol": "http", "ports": [canary_port]},
             {"id": "cdn", "name": "cdn-ok.test"}, {"id": "proxy", "name": "proxy.test"}, {"id": "odd", "name": "odd.test"}, {"id": "h2", "name": "h2.test"},
             {"id": "raw", "name": "allowed.test", "protocol": "tcp", "ports": [5432]}, {"id": "secret", "name": "*.secret.test"}, {"id": "bad", "name": "*.bad.test"},
             {"id": "read", "name": "read.test", "methods": ["GET", "HEAD"]}, {"id": "path", "name": "path.test", "methods": ["GET"], "paths": ["/public"]},
             {"id": "pip", "name": "pip.test", "methods": ["GET", "HEAD"]}, {"id": "npm", "name": "npm.test", "methods": ["GET", "HEAD"]},
             {"id": "git", "name": "git.test", "paths": ["/pkg/tiny.git"]}, {"id": "bucket", "name": "mine.s3.test"}]
    return {"mode": "allowlist", "rules": rules}


CREDENTIALS = [
    {"credential": "api", "name": "api.secret.test", "port": 443, "methods": ["GET", "POST"], "paths": ["/v1"], "bearer": True},
    {"credential": "api", "name": "odd.secret.test", "port": 443, "bearer": True},
    {"credential": "other", "name": "other.secret.test", "port": 443, "header": "X-Api-Key", "placeholder": "PLACEHOLDER-OTHER"},
    {"credential": "other", "name": "other.secret.test", "port": 443, "query": "key", "placeholder": "PLACEHOLDER-QUERY"},
    {"credential": "api", "name": "old.bad.test", "port": 443, "bearer": True},
]
# Names that the gateway may look up for the attacker's sandbox: the others are refused before anybody is asked.
ALLOWED = {"allowed.test", "cdn-ok.test", "proxy.test", "odd.test", "h2.test", "read.test", "path.test", "pip.test", "npm.test", "git.test", "mine.s3.test"}
BELOW = (".wild.test", ".secret.test", ".bad.test")


def may_be_resolved(name):
    return name in ALLOWED or name.endswith(BELOW)
