"""Things that must not be reached: listeners that note every byte, files with a secret."""

import secrets
import socket
import threading


class Listener:
    """A TCP listener on one address of the host that notes who connected and what was said."""

    def __init__(self, address, port=0, family=socket.AF_INET):
        self.socket = socket.socket(family, socket.SOCK_STREAM)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind((address, port))
        self.socket.listen(16)
        self.address, self.port = self.socket.getsockname()[:2]
        self.hits = []
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                connection, peer = self.socket.accept()
            except OSError:
                return
            connection.settimeout(1)
            try:
                said = connection.recv(256)
            except OSError:
                said = b""
            self.hits.append((peer, said))
            connection.close()

    def close(self):
        self.socket.close()


class Datagrams:
    """The same for UDP."""

    def __init__(self, address):
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind((address, 0))
        self.address, self.port = self.socket.getsockname()
        self.hits = []
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                said, peer = self.socket.recvfrom(2048)
            except OSError:
                return
            self.hits.append((peer, said[:256]))

    def close(self):
        self.socket.close()


def new_secret():
    return "CANARY-" + secrets.token_hex(12)


def host_addresses():
    """Addresses of this machine other than loopback, as a packet to the outside would bear them; nothing is sent."""
    found = []
    for target in ("192.0.2.1", "10.255.255.1"):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            try:
                probe.connect((target, 9))
                found.append(probe.getsockname()[0])
            except OSError:
                pass
    return sorted(set(found))
