"""churn.leaks: what is left after many creates and deletes, in a row and eight at a time."""
import glob, os, sqlite3, statistics, sys, threading, time

from report import Result
from server import Server

# The roles keep idle connections to each other for 30 s, and ask each other something every minute: how many there are at one moment
# says how many were wanted at once. What is left is there at every moment, so the least of many counts is what is compared.
REST_S = 45


# What grows with the number of sandboxes that there were, by what the settings of retention say, and is no leak.
HISTORY = {'sandboxes', 'operations', 'events', 'answers', 'sqlite_sequence'}
NOISE_MIB = 4  # by which the line through the memory of 200 cycles may rise


def measure(names, quick):
    count = 16 if quick else 200
    with Server() as server:
        # A warm-up of the same kind, for what is made once (threads, connections that stay), and then rest.
        _side_by_side(server, 2)
        _cycle(server, 3)
        (before, links), memory = _at_rest(server), []
        for _ in range(8):
            _cycle(server, count // 8)
            memory.append(_memory(server) / 1024)
        _side_by_side(server, count // 8)
        after, links_after = _at_rest(server)
    grown = {k: after[k] - before.get(k, 0) for k in after if after[k] > before.get(k, 0)}
    if grown.get('descriptors'):
        print('\n'.join(sorted(set(links_after) - set(links))), file=sys.stderr)
    rise = statistics.linear_regression(range(8), memory).slope * 8
    note = f'{count} cycles in a row, {count // 8 * 8} by eight at a time; server memory {memory[0]:.0f} to {memory[-1]:.0f} MiB, its line {rise:+.1f} MiB'
    if rise > NOISE_MIB:
        grown['memory'] = round(rise)
    return {'churn.leaks': Result([sum(grown.values())], note=note + (f'; left: {grown}' if grown else ''))}


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
    rows = {'live rows': database.execute("SELECT count(*) FROM sandboxes WHERE state NOT IN ('deleted')").fetchone()[0]}
    for (table,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
        if table not in HISTORY:
            rows[f'rows of {table}'] = database.execute(f'SELECT count(*) FROM "{table}"').fetchone()[0]
    database.close()
    return {'vmm processes': len(server.vmm_pids()), 'role processes': len(roles),
            'descriptors': sum(len(os.listdir(f'/proc/{pid}/fd')) for pid in roles), 'mounts and pins': mounts, 'cgroup files': groups,
            'network namespaces': len(_namespaces()), 'files and folders of data': sum(len(d) + len(f) for _, d, f in os.walk(server.data)),
            'files in the run folder': sum(len(f) for _, _, f in os.walk(server.run)), **rows}


def _namespaces():
    found = set()
    for link in glob.glob('/proc/[0-9]*/ns/net'):
        try:
            found.add(os.readlink(link))
        except OSError:
            pass  # it ended meanwhile
    return found
