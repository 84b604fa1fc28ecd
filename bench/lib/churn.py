"""churn.leaks: what is left after many creates and deletes, in a row and eight at a time."""
import glob, os, sqlite3, sys, threading, time

from report import Result
from server import Server

# The roles keep idle connections to each other for 30 s, and ask each other something every minute: how many there are at one moment
# says how many were wanted at once. What is left is there at every moment, so the least of many counts is what is compared.
REST_S = 45


def measure(names, quick):
    count = 16 if quick else 200
    with Server() as server:
        # A warm-up of the same kind, for what is made once (threads, connections that stay), and then rest.
        _side_by_side(server, 2)
        _cycle(server, 3)
        (before, links), memory = _at_rest(server), []
        for _ in range(4):
            _cycle(server, count // 8)
            memory.append(_memory(server))
        _side_by_side(server, count // 16)
        _cycle(server, count // 2 - count // 16 * 8 if not quick else 0)
        after, links_after = _at_rest(server)
        memory.append(_memory(server))
    grown = {k: after[k] - before[k] for k in after if after[k] > before[k]}
    slope = (memory[-1] - memory[0]) / 1024
    if grown.get('descriptors'):
        print('\n'.join(sorted(set(links_after) - set(links))), file=sys.stderr)
    note = f'{count} cycles; server memory {" → ".join(f"{m / 1024:.0f}" for m in memory)} MiB' + (f'; left: {grown}' if grown else '')
    if slope > 16:
        grown['memory'] = round(slope)
        note += f'; memory grew by {slope:.0f} MiB'
    return {'churn.leaks': Result([sum(grown.values())], note=note)}


def _cycle(server, count):
    api = server.api()
    for _ in range(count):
        sandbox = api.create()
        assert api.run(sandbox, ['true'])[1] == 0
        api.delete(sandbox)
    api.close()


def _side_by_side(server, count):
    threads = [threading.Thread(target=_cycle, args=(server, count)) for _ in range(8)]
    [t.start() for t in threads]
    [t.join() for t in threads]


def _memory(server):
    from files import resident_kib
    return resident_kib(server)


def _at_rest(server):
    """The least of each count while the server has nothing to do, and the descriptors when there were the fewest."""
    least, links, end = None, [], time.monotonic() + REST_S
    while time.monotonic() < end:
        now = _inventory(server)
        if least is None or now['descriptors'] < least['descriptors']:
            links = _links(server)
        least = now if least is None else {k: min(least[k], v) for k, v in now.items()}
        time.sleep(1)
    return least, links


def _links(server):
    """What each role's descriptors stand for, those of sockets with their number."""
    found = []
    for pid in server.role_pids():
        words = open(f'/proc/{pid}/cmdline').read().split('\0')
        for fd in os.listdir(f'/proc/{pid}/fd'):
            try:
                found.append(f'{pid} {" ".join(words[1:2])} {os.readlink(f"/proc/{pid}/fd/{fd}")}')
            except OSError:
                pass  # closed meanwhile
    return found


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
