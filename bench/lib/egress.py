"""egress-tls.* and egress.tunnel: the gateway and nginx in the same place, in turns, one client for both (gateway.py)."""
import socket, ssl, time

from gateway import NAMES, NGINX_PORT, UPSTREAM, Sandbox, World, in_namespace
from report import Result

TLS, TUNNEL = NAMES
POLICY = {'mode': 'allowlist', 'rules': [{'name': TLS, 'protocol': 'https'}, {'name': TUNNEL, 'tunnel': True, 'ports': [443]}]}


def measure(names, quick):
    results = {}
    with World(64 if quick else 256) as world:
        ours = Sandbox(world, 0)
        world.attach(ours, POLICY)
        if 'egress-tls.throughput' in names or 'egress-tls.latency' in names:
            peer = Sandbox(world, 1)
            world.nginx(world.outside, 'proxy', proxy(world), listen(peer))
            sides = (Client(ours, TLS, world.trusted()), Client(peer, TLS, world.ca, '198.18.0.1'))
            if 'egress-tls.throughput' in names:
                results['egress-tls.throughput'] = throughput(world, sides, quick)
            if 'egress-tls.latency' in names:
                results['egress-tls.latency'] = latency(sides, quick)
        if 'egress.tunnel' in names:
            peer = Sandbox(world, 2)
            world.nginx(world.outside, 'stream', f'stream {{ server {{ listen 0.0.0.0:{NGINX_PORT}; proxy_pass {UPSTREAM}:443; }} }}\n', listen(peer))
            results['egress.tunnel'] = throughput(world, (Client(ours, TUNNEL, world.ca), Client(peer, TUNNEL, world.ca, '198.18.0.1')), quick)
    return results


def listen(sandbox):
    """Where the rules of the sandbox send everything: for nginx."""
    def make():
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(('0.0.0.0', NGINX_PORT))
        listener.listen(2048)
        return listener
    return in_namespace(sandbox.host, make)


def proxy(world):
    """TLS ended and begun again, the upstream verified, its connections kept: what the gateway does, as nginx is told to do it."""
    f = f'{world.folder}/proxy'
    return f'''http {{ access_log {f}/access.log; client_body_temp_path {f}/b; proxy_temp_path {f}/p; fastcgi_temp_path {f}/f; uwsgi_temp_path {f}/u; scgi_temp_path {f}/s;
        keepalive_timeout 600; keepalive_requests 100000000; tcp_nodelay on;
        upstream up {{ server {UPSTREAM}:443; keepalive 16; keepalive_requests 100000000; keepalive_timeout 600; }}
        server {{ listen 0.0.0.0:{NGINX_PORT} ssl; ssl_protocols TLSv1.3; ssl_certificate {world.folder}/cert.pem; ssl_certificate_key {world.folder}/key.pem;
          location / {{ proxy_pass https://up; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_set_header Host $host; proxy_max_temp_file_size 0;
            proxy_ssl_protocols TLSv1.3; proxy_ssl_server_name on; proxy_ssl_name {TLS}; proxy_ssl_verify on; proxy_ssl_trusted_certificate {world.ca}; }} }} }}\n'''


class Client:
    """A program of a guest that keeps one TLS connection."""

    def __init__(self, sandbox, name, authority, address=None):
        self.name = name
        context = ssl.create_default_context(cafile=authority)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        self.buffer, self.rest = bytearray(1 << 18), b''
        end = time.monotonic() + 10
        while True:
            try:
                self.socket = context.wrap_socket(sandbox.connect(address or sandbox.resolve(name)), server_hostname=name)
                return
            except OSError:
                if time.monotonic() > end:
                    raise
                time.sleep(.1)

    def get(self, path):
        """The length of the body."""
        self.socket.sendall(f'GET {path} HTTP/1.1\r\nHost: {self.name}\r\nUser-Agent: bench\r\nAccept: */*\r\n\r\n'.encode())
        seen = b''
        while b'\r\n\r\n' not in seen:
            piece = self.socket.recv(65536)
            if not piece:
                raise ConnectionError('it closed')
            seen += piece
        head, body = seen.split(b'\r\n\r\n', 1)
        if not head.startswith(b'HTTP/1.1 200'):
            raise RuntimeError(head)
        length = next(int(line.split(b':')[1]) for line in head.lower().split(b'\r\n') if line.startswith(b'content-length:'))
        left = length - len(body)
        while left:
            got = self.socket.recv_into(self.buffer, min(left, len(self.buffer)))
            if not got:
                raise ConnectionError('it closed')
            left -= got
        return length


def throughput(world, sides, quick):
    rates = ([], [])
    for i in range(4 if quick else 16):
        for client, list_ in zip(sides, rates):
            begun = time.monotonic()
            assert client.get('/large') == world.large_bytes
            if i > 0:
                list_.append(world.large_bytes / 1e6 / (time.monotonic() - begun))
    return Result(*rates)


def latency(sides, quick):
    times = ([], [])
    for i in range(400 if quick else 4000):
        for client, list_ in zip(sides, times):
            begun = time.perf_counter()
            client.get('/small')
            if i >= 100:
                list_.append((time.perf_counter() - begun) * 1e3)
    return Result(*times)
