"""A bare client of the guest's agent: one socket, hand-written HTTP, frames. The peer of everything that goes through SPACE."""
import base64, json, os, socket, struct, time

from connection import Connection

ADDRESS = ('10.0.0.2', 49983)
EXIT = 5


class Agent(Connection):
    def __init__(self, netns, deadline=10.0):
        """`netns`: a path such as /proc/PID/ns/net; the socket is made inside it and used from here."""
        end = time.monotonic() + deadline
        while True:
            guest = socket_inside(netns)
            guest.settimeout(1.0)
            try:
                guest.connect(ADDRESS)
                break
            except OSError:
                guest.close()
                if time.monotonic() > end:
                    raise
                time.sleep(.002)
        guest.settimeout(120)
        super().__init__(guest)

    def call(self, method, target, body=None):
        status, content = self.exchange(method, target, body)
        if status >= 300:
            raise RuntimeError(f'{method} {target}: {status} {content!r}')
        return content

    def init(self):
        self.call('POST', '/v1/init', {'nonce': os.urandom(16).hex(), 'sandbox_id': 'b' * 24, 'hostname': 'bench', 'machine_id': os.urandom(16).hex(),
                                       'wall_ns': time.time_ns(), 'entropy': base64.b64encode(os.urandom(64)).decode(), 'env': {}, 'epoch': 1})

    def run(self, argv):
        """Creates and attaches, as a command session does; returns (stdout, exit code)."""
        process = json.loads(self.call('POST', '/v1/processes', {'session': '', 'argv': argv}))['process']
        frames, out, code = self.call('POST', f'/v1/processes/{process}/attach?after=0'), b'', None
        while frames:
            length, kind = struct.unpack_from('<IB', frames)
            payload = frames[13:4 + length]
            if kind == 2:
                out += payload
            elif kind == EXIT:
                code = struct.unpack_from('<i', payload)[0]
            frames = frames[4 + length:]
        return out, code


def socket_inside(netns):
    """A TCP socket of another network namespace: made by a thread-less child step (setns there and back)."""
    import ctypes
    libc = ctypes.CDLL(None, use_errno=True)
    ours, theirs = os.open('/proc/thread-self/ns/net', os.O_RDONLY), os.open(netns, os.O_RDONLY)
    try:
        if libc.setns(theirs, 0x40000000):
            raise OSError(ctypes.get_errno(), 'setns')
        try:
            return socket.socket()
        finally:
            libc.setns(ours, 0x40000000)
    finally:
        os.close(ours)
        os.close(theirs)
