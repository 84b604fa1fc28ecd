"""connections.*: what one connection costs the worker of a tenant: private memory before and with 2,000 at once from 20 sandboxes."""
import resource, time

from bare import private_kib
from egress import POLICY, TLS, TUNNEL, Client
from gateway import Sandbox, World
from report import Result

SANDBOXES, EACH = 20, 100


def measure(names, quick):
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    results = {}
    for name, host in (('connections.tunnel', TUNNEL), ('connections.tls', TLS)):
        if name in names:
            results[name] = of(host)
    return results


def of(host):
    with World(1) as world:
        sandboxes = [Sandbox(world, index) for index in range(SANDBOXES)]
        for sandbox in sandboxes:
            world.attach(sandbox, POLICY)
        authority = world.trusted() if host == TLS else world.ca
        addresses = {sandbox.id: sandbox.resolve(host) for sandbox in sandboxes}
        held = [one(sandbox, host, authority, addresses) for sandbox in sandboxes]  # so that what is made once is there
        time.sleep(3)
        worker = world.worker()
        before = private_kib(worker)
        for _ in range(EACH):
            held += [one(sandbox, host, authority, addresses) for sandbox in sandboxes]
        time.sleep(3)
        after = private_kib(worker)
        for client in held:  # all of them are still there
            client.get('/small')
        assert world.worker() == worker
        count = SANDBOXES * EACH
        return Result([(after - before) * 1.024 / count], note=f'{count} connections, worker {before} → {after} KiB')


def one(sandbox, host, authority, addresses):
    client = Client(sandbox, host, authority, addresses[sandbox.id])
    client.get('/small')
    return client
