"""hardening.create, hardening.exec: what our own filters of system calls and Landlock cost, on the VMM and on the roles. Two servers of one build side by side, the
peer's started with --bench-without-filters; the VMM's own filter stays on both sides."""
from create import timed
from report import Result
from server import Server

PLAIN = ['--pool-ready', '0', '--pool-ready-most', '0', '--pool-spawned', '0']


def measure(names, quick):
    results = {}
    with Server(options=PLAIN) as hardened, Server(options=[*PLAIN, '--bench-without-filters']) as plain:
        for server in (hardened, plain):  # a first create may have to make the base: longer than a connection may be silent
            api = server.api()
            api.delete(api.create(wait=170))
            api.close()
        sides = {'ours': hardened.api(), 'peer': plain.api()}
        if 'hardening.exec' in names:
            results['hardening.exec'] = _exec(sides, 30 if quick else 200, _difference(hardened, plain, sides))
        if 'hardening.create' in names:
            results['hardening.create'] = _create(sides, 5 if quick else 25)
    return results


def _in_turns(count, warm_ups, work):
    """Milliseconds of `work(side)`, which gives a function that clears up, or None; each side is first every other time."""
    samples = {'ours': [], 'peer': []}
    for i in range(count + warm_ups):
        for side in ('ours', 'peer') if i % 2 else ('peer', 'ours'):
            ms, clear = timed(lambda: work(side))
            if clear:
                clear()
            if i >= warm_ups:
                samples[side].append(ms)
    return samples['ours'], samples['peer']


def _run(api, box):
    assert api.run(box, ['true'])[1] == 0


def _exec(sides, count, note):
    boxes = {side: api.create() for side, api in sides.items()}
    result = Result(*_in_turns(count, 10, lambda side: _run(sides[side], boxes[side])), note)
    for side, box in boxes.items():
        sides[side].delete(box)
    return result


def _create(sides, count):
    def create(side):
        api = sides[side]
        box = api.create()
        _run(api, box)
        return lambda: api.delete(box)
    return Result(*_in_turns(count, 2, create))


def _filters(pid):
    for line in open(f'/proc/{pid}/status'):
        if line.startswith('Seccomp_filters:'):
            return int(line.split()[1])
    raise RuntimeError('this kernel does not count filters')


def _difference(hardened, plain, sides):
    """How many filters a VMM and the roles have on each side: proof that the two differ as said."""
    boxes = {side: api.create() for side, api in sides.items()}
    vmm = [_filters(server.vmm_pids()[0]) for server in (hardened, plain)]
    roles = [sum(map(_filters, server.role_pids())) for server in (hardened, plain)]
    for side, box in boxes.items():
        sides[side].delete(box)
    if vmm[0] <= vmm[1] or roles[0] <= roles[1]:
        raise RuntimeError(f'the servers do not differ: filters of a VMM {vmm}, of the roles {roles}')
    return f'filters of a VMM {vmm[0]} and {vmm[1]}, of the roles together {roles[0]} and {roles[1]}'
