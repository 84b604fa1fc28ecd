"""churn.leaks: what is left after many creates and deletes, in a row and eight at a time."""
import glob, os, sqlite3, threading, time

from report import Result
from server import Server


def measure(names, quick):
    count = 16 if quick else 200
    with Server() as server:
        api = server.api()
        # Warm-up with the same eight at a time: what the roles keep open between each other (connections, threads) stands before the count.
        _side_by_side(server, 2)
        _cycle(api, 3)
        time.sleep(2)
        before, memory = _inventory(server), []
        for _ in range(4):
            _cycle(api, count // 8)
            memory.append(_memory(server))
        _side_by_side(server, count // 16)
        _cycle(api, count // 2 - count // 16 * 8 if not quick else 0)
        time.sleep(2)
        after = _inventory(server)
        memory.append(_memory(server))
    grown = {k: after[k] - before[k] for k in after if after[k] > before[k]}
    slope = (memory[-1] - memory[0]) / 1024
    note = f'{count} cycles; server memory {" → ".join(f"{m / 1024:.0f}" for m in memory)} MiB' + (f'; left: {grown}' if grown else '')
    if slope > 16:
        grown['memory'] = round(slope)
        note += f'; memory grew by {slope:.0f} MiB'
    return {'churn.leaks': Result([sum(grown.values())], note=note)}


def _cycle(api, count):
    for _ in range(count):
        sandbox = api.create()
        assert api.run(sandbox, ['true'])[1] == 0
        api.delete(sandbox)


def _side_by_side(server, count):
    def loop():
        api = server.api()
        _cycle(api, count)
        api.close()
    threads = [threading.Thread(target=loop) for _ in range(8)]
    [t.start() for t in threads]
    [t.join() for t in threads]


def _memory(server):
    from files import resident_kib
    return resident_kib(server)


def _inventory(server):
    roles = server.role_pids()
    mounts = sum(1 for line in open('/proc/self/mountinfo') if server.folder in line)
    groups = sum(len(glob.glob(f'/sys/fs/cgroup/{c}/**/*', recursive=True)) for c in ('memory', 'pids', 'cpu')) if os.path.isdir('/sys/fs/cgroup/memory') \
        else len(glob.glob('/sys/fs/cgroup/**/*', recursive=True))
    database = sqlite3.connect(f'file:{server.data}/control/space.db?mode=ro', uri=True)
    rows = database.execute("SELECT count(*) FROM sandboxes WHERE state NOT IN ('deleted')").fetchone()[0]
    database.close()
    return {'vmm processes': len(server.vmm_pids()), 'role processes': len(roles),
            'descriptors': sum(len(os.listdir(f'/proc/{pid}/fd')) for pid in roles), 'mounts and pins': mounts, 'cgroup files': groups,
            'files of sandboxes': sum(len(f) for _, _, f in os.walk(f'{server.data}/node/sandboxes')), 'files in the run folder': sum(len(f) for _, _, f in os.walk(server.run)),
            'live rows': rows}
