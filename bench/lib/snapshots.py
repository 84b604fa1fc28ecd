"""snapshots.overhead, snapshots.iops: what automatic snapshots of the disk cost those who work, and what many of them cost readers."""
import json

from create import timed
from report import Result
from server import Server

# Like a build: sources are written, compiled, and what comes of it is written, read again and replaced.
BUILD = '''
import hashlib, marshal, os, shutil, sys
rounds = int(sys.argv[1])
for n in range(rounds):
    folder = os.path.expanduser('~/build/%d' % (n % 3))
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    names = []
    for unit in range(12):
        text = ''.join('def f%d(a, b):\\n    return [a * %d + b for _ in range(b)]\\n' % (i, n + i) for i in range(40))
        path = '%s/unit%d.py' % (folder, unit)
        with open(path, 'w') as out:
            out.write(text)
        with open(path + 'c', 'wb') as out:
            out.write(marshal.dumps(compile(text, path, 'exec')))
        names.append(path + 'c')
    with open(folder + '/linked', 'wb') as out:
        for name in names:
            out.write(open(name, 'rb').read())
    hashlib.sha256(open(folder + '/linked', 'rb').read()).hexdigest()
'''

# Reads of 4 KiB at random places of a file, past the guest's page cache; prints how many a second.
READS = '''
import json, mmap, os, random, sys, time
size, reads, seed = (int(x) for x in sys.argv[1:4])
fd = os.open(os.path.expanduser('~/data'), os.O_RDONLY | os.O_DIRECT)
page = mmap.mmap(-1, 4096)
places = random.Random(seed)
begin = time.monotonic()
for _ in range(reads):
    assert os.preadv(fd, [page], places.randrange(size // 4096) * 4096) == 4096
print(json.dumps(reads / (time.monotonic() - begin)))
'''

FILL = 'head -c %d /dev/urandom > ~/data && sync'
TOUCH = 'dd if=/dev/urandom of=$HOME/data bs=4k count=4 seek=%d conv=notrunc 2>/dev/null'


def measure(names, quick):
    results = {}
    with Server() as server:
        api = server.api()
        if 'snapshots.overhead' in names:
            results['snapshots.overhead'] = _overhead(api, quick)
        if 'snapshots.iops' in names:
            results['snapshots.iops'] = _iops(api, quick)
    return results


def _shell(api, sandbox, line):
    out, code = api.run(sandbox, ['sh', '-c', line])
    assert code == 0, out
    return out


def _put(api, sandbox, name, text):
    _shell(api, sandbox, f"cat > ~/{name} <<'END'\n{text}\nEND")


def _overhead(api, quick):
    ours, peer = [], []
    sandbox = api.create()
    _put(api, sandbox, 'build.py', BUILD)
    every = 2 if quick else 5

    def build(rounds):
        ms, _ = timed(lambda: _shell(api, sandbox, f'python3 ~/build.py {rounds}'))
        return ms

    build(2)
    rounds = max(2, int((6_000 if quick else 30_000) / (build(4) / 4)))  # so many as take 6 or 30 s
    for i in range(2 if quick else 7):
        for samples, seconds in ((peer, 0), (ours, every)):
            api.call('PUT', f'/v1/sandboxes/{sandbox}/snapshots', {'every_s': seconds, 'keep': 20})
            ms = build(rounds)
            if quick or i > 0:
                samples.append(ms)
    taken = len(api.call('GET', f'/v1/checkpoints?sandbox={sandbox}')['checkpoints'])
    assert taken > 0, 'no snapshot was taken by itself'
    api.delete(sandbox)
    return Result(ours, peer, f'one every {every} s while the disk is written to')


def _iops(api, quick):
    size, count = (64 << 20, 60) if quick else (256 << 20, 1000)
    fresh, old = api.create(), api.create()
    for sandbox in (fresh, old):
        _shell(api, sandbox, FILL % size)
        _put(api, sandbox, 'reads.py', READS)
    for number in range(count):
        _shell(api, old, TOUCH % (number * 7919 % (size // 4096 - 4)))
        api.change(old, 'snapshot')
    ours, peer = [], []
    for i in range(4 if quick else 22):
        for samples, sandbox in ((ours, old), (peer, fresh)):
            out = _shell(api, sandbox, f'python3 ~/reads.py {size} {500 if quick else 3000} {i}')
            if i > 1:
                samples.append(json.loads(out))
    checkpoints = api.call('GET', f'/v1/checkpoints?sandbox={old}')['checkpoints']
    assert len(checkpoints) == count
    for sandbox in (fresh, old):
        api.delete(sandbox)
    return Result(ours, peer, f'after {count} snapshots; peer: a fresh disk with a file of the same size')
