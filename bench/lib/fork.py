"""fork.eight, fork.memory: eight children of a running sandbox, beside eight bare loads side by side and bare clones."""
import threading, time

from bare import Namespace, Recipe, Vm, private_kib
from bare_save import SavingVm, clone
from create import timed
from report import Result
from server import Server, base_of

CHILDREN = 8


def measure(names, quick):
    count = 2 if quick else 9
    ours, peer, private, peer_private = [], [], [], []
    with Server() as server:
        api = server.api()
        for i in range(count + 1):
            parent = api.create()
            assert api.run(parent, ['true'])[1] == 0
            pid = server.vmm_pids()[0]
            recipe = Recipe(pid, base_of(pid))
            before = set(server.vmm_pids())
            ms, children = timed(lambda: _fork(server, api, parent))
            # Eight bare loads would otherwise compete with nine sandboxes that stand around.
            memory = [private_kib(pid) / 1024 for pid in set(server.vmm_pids()) - before]
            for sandbox in (*children, parent):
                api.delete(sandbox)
            for one in api.call('GET', '/v1/checkpoints')['checkpoints']:
                api.call('DELETE', f'/v1/checkpoints/{one["id"]}')
            bare_ms = _loads(recipe) if 'fork.eight' in names else 0
            bare_memory = _clones(recipe) if 'fork.memory' in names else []
            recipe.close()
            if i:
                ours.append(ms)
                peer.append(bare_ms)
                private += memory
                peer_private += bare_memory
    results = {'fork.eight': Result(ours, peer, 'its checkpoint included'), 'fork.memory': Result(private, peer_private)}
    return {name: result for name, result in results.items() if name in names}


def together(work, count):
    """Runs `work(i)` in threads, all at once; their results."""
    results, errors = [None] * count, []

    def run(i):
        try:
            results[i] = work(i)
        except Exception as error:  # noqa: BLE001: told below
            errors.append(error)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return results


def _fork(server, api, parent):
    children = api.change(parent, 'fork', {'count': CHILDREN})['children']

    def ask(i):
        own = server.api()
        assert own.run(children[i], ['true'])[1] == 0
        own.close()

    together(ask, CHILDREN)
    return children


def _loads(recipe):
    namespaces = [Namespace() for _ in range(CHILDREN)]
    vms = [None] * CHILDREN

    def load(i):
        vms[i] = Vm(recipe, namespaces[i])
        vms[i].load()
        vms[i].resume()
        agent = vms[i].ask()
        assert agent.run(['true'])[1] == 0
        agent.close()

    try:
        ms, _ = timed(lambda: together(load, CHILDREN))
        return ms
    finally:
        for vm in filter(None, vms):
            vm.destroy()
        for namespace in namespaces:
            namespace.close()


def _clones(recipe):
    """What clones of a bare VM hold that was saved after the same little work."""
    namespaces = [Namespace() for _ in range(3)]
    vms = []
    try:
        vms.append(SavingVm(recipe, namespaces[0]))
        vms[0].load()
        vms[0].resume()
        agent = vms[0].ask()
        assert agent.run(['true'])[1] == 0
        agent.close()
        _, saved = vms[0].save()
        private = []
        for namespace in namespaces[1:]:
            vms.append(clone(recipe, namespace, saved))
            vms[-1].resume()
            agent = vms[-1].ask()
            assert agent.run(['true'])[1] == 0
            agent.close()
            private.append(private_kib(vms[-1].process.pid) / 1024)
        return private
    finally:
        for vm in vms:
            vm.destroy()
        for namespace in namespaces:
            namespace.close()
