"""create.start, create.boot, create.ready, create.accept."""
import os, sqlite3, statistics, tempfile, time

from bare import Namespace, Recipe, Vm
from report import Result
from server import Server, base_of


def timed(work):
    start = time.perf_counter()
    value = work()
    return (time.perf_counter() - start) * 1e3, value


def _recipe(server, api):
    """A sandbox stays alive only while its VMM's arguments are read."""
    sandbox = api.create()
    pid = server.vmm_pids()[0]
    recipe = Recipe(pid, base_of(pid))
    api.delete(sandbox)
    return recipe


def measure(names, quick):
    results = {}
    with Server() as server:
        api = server.api()
        recipe = _recipe(server, api)
        if 'create.start' in names:
            results['create.start'] = _start(api, recipe, 5 if quick else 21)
    if 'create.ready' in names or 'create.boot' in names:
        with Server(pool_ready=4) as server:
            if 'create.ready' in names:
                results['create.ready'] = _ready(server, recipe, 5 if quick else 31)
            if 'create.boot' in names:
                results['create.boot'] = _boot(server, recipe, 3 if quick else 11)
    if 'create.accept' in names:
        with Server() as server:
            results['create.accept'] = _accept(server, 10 if quick else 60)
    recipe.close()
    return results


def _create(api, argv):
    sandbox = api.create()
    assert api.run(sandbox, argv)[1] == 0
    return sandbox


def _bare(recipe, namespace, boot, argv):
    """A VM of the peer, from nothing to the end of its first command."""
    vm = Vm(recipe, namespace, boot)
    if not boot:
        vm.load()
    vm.resume()
    agent = vm.ask()
    assert agent.run(argv)[1] == 0
    agent.close()
    return vm


def _beside_bare(api, recipe, count, warm_ups, boot, before=lambda: None):
    """A create with its first command, and the peer's VM from nothing to the same, in turns: both sides' milliseconds."""
    ours, peer = [], []
    for i in range(count + warm_ups):
        before()
        ms, sandbox = timed(lambda: _create(api, ['true']))
        api.delete(sandbox)
        namespace = Namespace()
        bare_ms, vm = timed(lambda: _bare(recipe, namespace, boot, ['true']))
        vm.destroy()
        namespace.close()
        if i >= warm_ups:
            ours.append(ms)
            peer.append(bare_ms)
    return ours, peer


def _start(api, recipe, count):
    return Result(*_beside_bare(api, recipe, count, 2, False))


def _boot(server, recipe, count):
    """A create as users get it, with the pools on, beside a boot of the same kernel, initramfs and disk."""
    api = server.api()
    ours, peer = _beside_bare(api, recipe, count, 1, True, lambda: _wait_ready(api))
    with Server() as without:
        cold = statistics.median(timed(lambda: _create(without.api(), ['true']))[0] for _ in range(max(3, count // 2)))
    return Result(ours, peer, f'create with the pools on; with them off {cold:.0f} ms, {statistics.median(peer) / cold:.1f}')


def _ready(server, recipe, count):
    ours, peer = [], []
    api = server.api()

    def create():
        sandbox = api.create()
        out, code = api.run(sandbox, ['echo', 'hi'])
        assert (out, code) == (b'hi\n', 0)
        return sandbox

    def resume(vm, agent):
        vm.resume()
        assert agent.run(['echo', 'hi']) == (b'hi\n', 0)

    for i in range(count + 2):
        _wait_ready(api)
        ms, sandbox = timed(create)
        api.delete(sandbox)
        namespace = Namespace()
        vm = Vm(recipe, namespace)
        vm.load()
        vm.resume()
        agent = vm.ask()
        agent.run(['echo', 'hi'])  # ready: answered once, then paused
        vm.pause()
        bare_ms, _ = timed(lambda: resume(vm, agent))
        agent.close()
        vm.destroy()
        namespace.close()
        if i >= 2:
            ours.append(ms)
            peer.append(bare_ms)
    return Result(ours, peer)


def _wait_ready(api):
    end = time.monotonic() + 30
    while time.monotonic() < end:
        pools = api.call('GET', '/v1/version').get('pools', [])
        if any(pool.get('ready', 0) > 0 for pool in pools):
            return
        time.sleep(.1)
    raise TimeoutError('the ready pool stays empty')


def _accept(server, count):
    api = server.api()
    ours, peer = [], []
    folder = tempfile.mkdtemp(prefix='space-bench-', dir='/var/tmp')
    database = sqlite3.connect(f'{folder}/peer.db', isolation_level=None)
    database.execute('PRAGMA journal_mode=WAL')
    database.execute('PRAGMA synchronous=FULL')
    database.execute('CREATE TABLE t (id INTEGER PRIMARY KEY, body TEXT)')

    def commit():
        database.execute('INSERT INTO t (body) VALUES (?)', ('x' * 500,))

    def accept():
        ms, sandbox = timed(lambda: api.create(wait=0))
        api.delete(sandbox)  # waits until all of it is over, so that the other side has the machine for itself
        return ms

    for i in range(count + 2):
        for side in ('ours', 'peer') if i % 2 else ('peer', 'ours'):
            ms = accept() if side == 'ours' else timed(commit)[0]
            if i >= 2:
                (ours if side == 'ours' else peer).append(ms)
    database.close()
    for name in os.listdir(folder):
        os.unlink(f'{folder}/{name}')
    os.rmdir(folder)
    return Result(ours, peer)
