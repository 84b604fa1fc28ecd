"""Does something at the N-th change of a file below some folders: how tests stop a server in the middle of what it does, without a hook
in it. inotify(7) tells of a change right after it; who is told here acts within a millisecond."""

import ctypes
import os
import select
import struct
import threading

MODIFY, ATTRIB, CLOSE_WRITE, MOVED_FROM, MOVED_TO, CREATE, DELETE, ISDIR = 0x2, 0x4, 0x8, 0x40, 0x80, 0x100, 0x200, 0x40000000
CHANGES = MODIFY | ATTRIB | CLOSE_WRITE | MOVED_FROM | MOVED_TO | CREATE | DELETE


def of_data(server):
    """The folders of what a server keeps: sandboxes and checkpoints, the database, policies and names of the network, credentials. Not the
    gateway's log of decisions, which is written beside whatever goes on."""
    gateway = server.data_dir / "egress"
    return [server.data_dir / "node", server.data_dir / "control", gateway / "sandboxes", gateway / "vault"]


class FileEvents:
    """Counts changes from its making on. `at`: {number: call}, each called once, in the watching thread."""

    def __init__(self, folders, at=None):
        self.at, self.count = dict(at or {}), 0
        self.libc = ctypes.CDLL(None, use_errno=True)
        self.fd = self.libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
        self.folders = {}
        for folder in folders:
            self._watch(str(folder))
        self.ended, self.end = os.pipe()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _watch(self, folder):
        number = self.libc.inotify_add_watch(self.fd, folder.encode(), CHANGES)
        if number < 0:
            return  # it has gone again
        self.folders[number] = folder
        try:
            for entry in os.scandir(folder):
                if entry.is_dir(follow_symlinks=False):
                    self._watch(entry.path)
        except OSError:
            pass

    def _run(self):
        ended = False
        while not ended:
            ready = select.select([self.fd, self.ended], [], [])[0]
            ended = self.ended in ready  # after what was told before it
            data = os.read(self.fd, 1 << 16) if self.fd in ready else b""
            at = 0
            while at < len(data):
                watch, mask, _, length = struct.unpack_from("iIII", data, at)
                name = data[at + 16:at + 16 + length].split(b"\0")[0].decode(errors="replace")
                at += 16 + length
                self.count += 1
                if call := self.at.pop(self.count, None):
                    call()
                if mask & ISDIR and mask & (CREATE | MOVED_TO) and watch in self.folders:
                    self._watch(f"{self.folders[watch]}/{name}")

    def close(self):
        """The number of changes that there were."""
        os.write(self.end, b"x")
        self.thread.join()
        for fd in (self.fd, self.ended, self.end):
            os.close(fd)
        return self.count

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
