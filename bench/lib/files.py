"""files.up, files.down: 256 MB through the API, and the same bytes over a bare TCP stream into and out of the same file."""
import os, socket, threading, time

from agent import socket_inside
from commands import namespace_of
from report import Result
from server import Server

SIZE = 256 << 20
FLAT_MIB = 32  # what the roles may grow by while 256 MB go through; buffers of a transfer are a few MB
PORT = 7777
# Both directions of the peer, in the guest: receive into a file and sync, or send a file; one connection each.
PEER = '''
import os, socket, sys
s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); s.bind(("0.0.0.0", int(sys.argv[2]))); s.listen(1)
print("listening", flush=True)
c, _ = s.accept()
if sys.argv[1] == "up":
    f = os.open("/home/user/bytes", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644); b = bytearray(262144)
    while n := c.recv_into(b): os.write(f, memoryview(b)[:n])
    os.fsync(f); c.sendall(b"k")
else:
    f = open("/home/user/bytes", "rb"); c.sendfile(f)
c.close()
'''


def measure(names, quick):
    up, up_peer, down, down_peer, size = [], [], [], [], SIZE // (8 if quick else 1)
    data = os.urandom(1 << 20)
    with Server() as server:
        api = server.api()
        sandbox = api.create()
        namespace = namespace_of(server)
        before = resident_kib(server)
        peak = [before]
        for i in range(2 if quick else 8):
            with Watch(server, peak):
                up.append(rate(size, lambda: _up(api, sandbox, data, size)))
                down.append(rate(size, lambda: _down(api, sandbox, size)))
            up_peer.append(rate(size, lambda: _peer(server, sandbox, namespace, 'up', PORT + 2 * i, data, size)))
            down_peer.append(rate(size, lambda: _peer(server, sandbox, namespace, 'down', PORT + 2 * i + 1, data, size)))
        api.delete(sandbox)
    note = f'server memory {before / 1024:.0f} → at most {max(peak) / 1024:.0f} MiB'
    if max(peak) - before > FLAT_MIB << 10:
        up, down, note = [], [], note + ': not flat'
    return {'files.up': Result(up[1:], up_peer[1:], note), 'files.down': Result(down[1:], down_peer[1:], note)}


def rate(size, work):
    """MB/s; the work returns the seconds it took, without its own preparation."""
    return size / 1e6 / work()


def _up(api, sandbox, data, size):
    start = time.perf_counter()
    api.socket.sendall(f'PUT /v1/sandboxes/{sandbox}/files/content?path=/home/user/bytes HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {api.key}\r\n'
                       f'Content-Type: application/octet-stream\r\nContent-Length: {size}\r\n\r\n'.encode())
    for _ in range(size >> 20):
        api.socket.sendall(data)
    status, fields = api.head()
    body = b''.join(api.pieces(fields))
    assert status in (200, 201, 204), (status, body)
    return time.perf_counter() - start


def _down(api, sandbox, size):
    start = time.perf_counter()
    api.send('GET', f'/v1/sandboxes/{sandbox}/files/content?path=/home/user/bytes')
    status, fields = api.head()
    assert status == 200, status
    assert sum(len(p) for p in api.pieces(fields)) == size
    return time.perf_counter() - start


def _peer(server, sandbox, namespace, direction, port, data, size):
    api = server.api()
    thread = threading.Thread(target=lambda: api.run(sandbox, ['python3', '-c', PEER, direction, str(port)]))
    thread.start()
    end = time.monotonic() + 30
    while True:
        s = socket_inside(namespace)
        s.settimeout(60)
        try:
            s.connect(('10.0.0.2', port))
            break
        except OSError:
            s.close()
            if time.monotonic() > end:
                raise
            time.sleep(.2)
    start = time.perf_counter()
    if direction == 'up':
        for _ in range(size >> 20):
            s.sendall(data)
        s.shutdown(socket.SHUT_WR)
        assert s.recv(1) == b'k'
    else:
        left, buffer = size, bytearray(1 << 18)
        while left:
            n = s.recv_into(buffer)
            assert n, 'the peer stream ended early'
            left -= n
    took = time.perf_counter() - start
    s.close()
    thread.join()
    api.close()
    return took


def resident_kib(server):
    total = 0
    for pid in server.role_pids():
        try:
            total += sum(int(line.split()[1]) for line in open(f'/proc/{pid}/status') if line.startswith('VmRSS:'))
        except OSError:
            pass
    return total


class Watch:
    """Samples the server's memory while a transfer runs."""

    def __init__(self, server, samples):
        self.server, self.samples, self.over = server, samples, threading.Event()

    def __enter__(self):
        def loop():
            while not self.over.wait(.1):
                self.samples.append(resident_kib(self.server))
        self.thread = threading.Thread(target=loop)
        self.thread.start()

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()
