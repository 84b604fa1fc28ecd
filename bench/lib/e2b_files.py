"""e2b-files.memory: resident memory of api, node and agent together while a file of 1 GB goes up and down through E2B's SDK, as a
share of what they had before (after a small file in both directions). The bytes are compared by their hash."""
import os, threading

from e2b_sdk import Server, node
from report import Result

SIZE = 1_000_000_000


def measure(names, quick):
    size = SIZE // (10 if quick else 1)
    with Server() as server:
        before, during, over, marker = [], [], threading.Event(), f'{server.folder}/warm'

        def watch():
            while not over.wait(.1):
                (during if os.path.exists(marker) else before).append(roles_kib(server))

        thread = threading.Thread(target=watch)
        thread.start()
        try:
            told = node(server, 'e2b_files.mjs', size, marker, timeout=1800)
        finally:
            over.set()
            thread.join()
    if not told['same']:
        raise RuntimeError('the file that came back is not the one that was sent')
    peak = max(during) + told['agent_peak_kib']
    return {'e2b-files.memory': Result([peak / 1024], [(before[-1] + told['agent_before_kib']) / 1024], f'{size / 1e6:.0f} MB each way, hash equal')}


def roles_kib(server):
    total = 0
    for pid in server.role_pids():
        try:
            words = open(f'/proc/{pid}/cmdline', 'rb').read().split(b'\0')
            if any(w in (b'api', b'node') for w in words[1:3]):
                total += sum(int(line.split()[1]) for line in open(f'/proc/{pid}/status') if line.startswith('VmRSS:'))
        except OSError:
            pass
    return total
