"""The bars: what is measured, against which peer, and the limit. The figures themselves come from the module named here."""
import dataclasses, importlib


@dataclasses.dataclass(frozen=True)
class Bar:
    name: str
    module: str      # file in bench/lib that measures it
    unit: str
    direction: str   # 'max' or 'min': the ratio (or, without a peer, the figure) must be at most or at least the limit
    limit: float
    what: str
    peer: bool = True
    inverse: bool = False  # the ratio is the peer over ours: how many times more the peer takes


_BARS = [
    Bar('create.start', 'create', 'ms', 'max', 1.5, 'create with pools off until a command answered; peer: bare QEMU load of the same base'),
    Bar('create.boot', 'create', 'ms', 'min', 8, 'cold boot of the same template (peer) over create', inverse=True),
    Bar('create.ready', 'create', 'ms', 'max', 2.5, 'create + echo + exit from the ready pool; peer: resume and echo in a bare ready VM'),
    Bar('create.accept', 'create', 'ms', 'max', 2, 'create accepted, durable; peer: one durable SQLite commit on the same disk'),
    Bar('create.tail', 'tail', 'x', 'max', 3, 'p99 over median, Poisson arrivals at 70 % of saturation, 2 minutes', peer=False),
    Bar('exec.true', 'commands', 'ms', 'max', 1.3, 'run `true` in a running sandbox; peer: a bare client in the namespace speaking to the agent'),
    Bar('files.up', 'files', 'MB/s', 'min', 0.8, '256 MB up; peer: the same bytes over a bare TCP stream into the same file, synced'),
    Bar('files.down', 'files', 'MB/s', 'min', 0.8, '256 MB down; peer: bare TCP stream out of the same file'),
    Bar('density.private', 'density', 'MB', 'max', 1.15, 'private memory a sandbox after one Python run, 50 alive; peer: bare clones'),
    Bar('density.idle', 'density', '% core', 'max', 1.2, 'CPU of 50 idle running sandboxes; peer: 50 bare clones'),
    Bar('density.paused', 'density', '% core', 'max', 1, 'CPU of 50 paused sandboxes', peer=False),
    Bar('egress-tls.throughput', 'egress', 'MB/s', 'min', .7, 'a large answer over TLS that ends at the gateway; peer: nginx proxying the same in the same place'),
    Bar('egress-tls.latency', 'egress', 'ms', 'max', 1.3, 'a small request on a warm TLS connection; peer: nginx'),
    Bar('egress.tunnel', 'egress', 'MB/s', 'min', .8, 'the same answer over TLS that is passed on; peer: nginx stream'),
    Bar('connections.tunnel', 'connections', 'kB', 'max', 64, "the worker's private memory a passed-on connection, 2,000 at once from 20 sandboxes", peer=False),
    Bar('connections.tls', 'connections', 'kB', 'max', 160, 'the same for TLS that ends at the gateway, after a request each', peer=False),
    Bar('policy.lookup', 'micro', 'µs', 'max', 1, 'one decision by a policy of 10,000 names', peer=False),
    Bar('netns.create', 'micro', 'ms', 'max', .6, "a sandbox's namespace without the pool; peer: the same by ip and nft commands"),
    Bar('churn.leaks', 'churn', 'things', 'max', 0, 'left over after 200 create+exec+delete, in a row and 8 at a time', peer=False),
    Bar('checkpoint.stop', 'checkpoint', 'ms', 'max', 1.5, 'how long the guest of an idle sandbox stands still for a checkpoint; peer: the bare recipe with write tracking'),
    Bar('checkpoint.dirty', 'checkpoint', 'ms', 'max', 1.5, 'the stop with 300 MB of private pages of which 1 MB changed (also after a wake: the worse counts); peer: the same change in a fresh sandbox'),
    Bar('checkpoint.memory', 'checkpoint', 'ms', 'max', 1.5, 'the stop of a guest of 4 GiB; peer: one of 256 MiB, same change'),
    Bar('checkpoint.bytes', 'stored', 'MB', 'max', 1.2, 'what a checkpoint adds to the store; peer: pages and disk blocks whose content changed, compared from outside'),
    Bar('checkpoint.savevm-bytes', 'stored', 'MB', 'min', 20, "QEMU's own savevm of the same VM (peer) over a checkpoint", inverse=True),
    Bar('checkpoint.savevm-time', 'stored', 'ms', 'min', 10, "QEMU's own savevm of the same VM (peer) over a checkpoint, request to durable", inverse=True),
    Bar('fork.eight', 'fork', 'ms', 'max', 1.3, 'fork of a running sandbox until the last of 8 children answered a command; peer: 8 bare loads side by side'),
    Bar('fork.memory', 'fork', 'MB', 'max', 1.15, 'private memory of a child that answered; peer: a bare clone from the same kind of save'),
    Bar('wake.suspend', 'wake', 'ms', 'max', 1.3, 'wake of a suspended sandbox until a command answered; peer: create with pools off'),
    Bar('wake.pause', 'wake', 'ms', 'max', 2, 'wake of a paused sandbox until a command answered; peer: resume and ask in a bare VM'),
    Bar('chain.take', 'chain', 'ms', 'max', 1.5, 'the 50th checkpoint of a sandbox, asked for until durable; peer: the 5th'),
    Bar('chain.wake', 'chain', 'ms', 'max', 1.5, 'wake after 50 checkpoints until a command answered; peer: after 5'),
    Bar('snapshots.overhead', 'snapshots', 'ms', 'max', 1.05, 'build-like work with automatic snapshots of the disk; peer: the same work without'),
    Bar('snapshots.iops', 'snapshots', '1/s', 'min', 0.9, 'random reads of 4 KiB after 1,000 snapshots; peer: a fresh disk'),
    Bar('e2b.methods', 'e2b_methods', 'share', 'min', 1.0, 'public methods of the JavaScript SDK that work, of those that a self-hosted server can serve', peer=False),
    Bar('e2b.methods-python', 'e2b_methods', 'share', 'min', 1.0, 'the same for Python', peer=False),
    Bar('e2b.roundtrip', 'e2b', 'ms', 'max', 1.4, 'create + echo hi + kill through the JavaScript SDK; peer: the same three steps natively from the same runtime'),
    Bar('e2b.parallel', 'e2b', 'outputs', 'max', 0, 'lost or mixed outputs of 100 concurrent commands on one sandbox and on 20 sandboxes', peer=False),
    Bar('hardening.create', 'hardening', 'ms', 'max', 1.05, 'create with pools off until a command answered; peer: the same build without our filters of system calls'),
    Bar('hardening.exec', 'hardening', 'ms', 'max', 1.05, 'run `true` in a running sandbox; peer: the same build without our filters of system calls'),
    Bar('e2b-files.memory', 'e2b_files', 'MiB', 'max', 1.1, 'memory of node, api and agent during 1 GB up and down; peer: before'),
]
ALL = {bar.name: bar for bar in _BARS}


def by_module(chosen):
    """Pairs of (module, its bars among the chosen), in the order of the table above."""
    groups = {}
    for bar in chosen:
        groups.setdefault(bar.module, []).append(bar)
    return [(importlib.import_module(name), wanted) for name, wanted in groups.items()]
