"""density.private, density.idle, density.paused: what 50 sandboxes cost, beside 50 bare clones."""
import time

from bare import Namespace, Recipe, Vm, cpu_seconds, private_kib
from report import Result
from server import Server, base_of

PYTHON = ['python3', '-c', 'print(sum(range(1000)))']


def measure(names, quick):
    count, seconds = (6, 5) if quick else (50, 30)
    results = {}
    with Server() as server:
        api = server.api()
        sandboxes = [api.create() for _ in range(count)]
        pids = server.vmm_pids()
        recipe = Recipe(pids[0], base_of(pids[0]))
        for sandbox in sandboxes:
            assert api.run(sandbox, PYTHON)[1] == 0
        time.sleep(3)
        private = [private_kib(pid) / 1024 for pid in pids]
        idle = _idle(pids + server.role_pids(), seconds)
        for sandbox in sandboxes:
            api.call('POST', f'/v1/sandboxes/{sandbox}/pause', {}, ['Prefer: wait=30'])
        time.sleep(1)
        paused = _idle(pids + server.role_pids(), seconds)
        for sandbox in sandboxes:
            api.delete(sandbox)
    results['density.paused'] = Result([paused])
    if 'density.private' in names or 'density.idle' in names:
        peer_private, peer_idle = _bare(recipe, count, seconds)
        results['density.private'] = Result(private, peer_private)
        results['density.idle'] = Result([idle] if paused < 1 else [], [peer_idle], f'{count} alive, whole server included; paused {paused:.2f} %')
    recipe.close()
    return results


def _idle(pids, seconds):
    """Percent of one core over a quiet time."""
    def total():
        value = 0.0
        for pid in pids:
            try:
                value += cpu_seconds(pid)
            except OSError:
                pass
        return value
    start, at = total(), time.monotonic()
    time.sleep(seconds)
    return (total() - start) / (time.monotonic() - at) * 100


def _bare(recipe, count, seconds):
    vms, namespaces = [], []
    try:
        for _ in range(count):
            namespaces.append(Namespace())
            vms.append(Vm(recipe, namespaces[-1]))
            vms[-1].load()
            vms[-1].resume()
            agent = vms[-1].ask()
            assert agent.run(PYTHON)[1] == 0
            agent.close()
        time.sleep(3)
        pids = [vm.process.pid for vm in vms]
        return [private_kib(pid) / 1024 for pid in pids], _idle(pids, seconds)
    finally:
        for vm in vms:
            vm.destroy()
        for namespace in namespaces:
            namespace.close()
