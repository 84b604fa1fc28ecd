"""wake.suspend, wake.pause: until a woken sandbox has answered a command."""
from bare import Namespace, Recipe, Vm
from create import timed
from report import Result
from server import Server, base_of


def measure(names, quick):
    results, count = {}, 5 if quick else 21
    with Server() as server:
        api = server.api()
        if 'wake.suspend' in names:
            results['wake.suspend'] = _suspended(api, count)
        if 'wake.pause' in names:
            results['wake.pause'] = _paused(server, api, count)
    return results


def _answers(api, sandbox):
    assert api.run(sandbox, ['echo', 'hi']) == (b'hi\n', 0)


def _suspended(api, count):
    ours, peer = [], []

    def create():
        sandbox = api.create()
        _answers(api, sandbox)
        return sandbox

    def wake(sandbox):
        api.change(sandbox, 'wake')
        _answers(api, sandbox)

    for i in range(count + 2):
        create_ms, sandbox = timed(create)
        api.change(sandbox, 'suspend')
        wake_ms, _ = timed(lambda: wake(sandbox))
        api.delete(sandbox)
        if i >= 2:
            ours.append(wake_ms)
            peer.append(create_ms)
    return Result(ours, peer)


def _paused(server, api, count):
    ours, peer = [], []
    sandbox = api.create()
    _answers(api, sandbox)
    pid = server.vmm_pids()[0]
    recipe, namespace = Recipe(pid, base_of(pid)), Namespace()
    vm = Vm(recipe, namespace)
    vm.load()
    vm.resume()
    agent = vm.ask()
    assert agent.run(['echo', 'hi']) == (b'hi\n', 0)

    def wake():
        api.change(sandbox, 'wake')
        _answers(api, sandbox)

    def resume():
        vm.resume()
        assert agent.run(['echo', 'hi']) == (b'hi\n', 0)

    for i in range(count + 2):
        api.change(sandbox, 'pause')
        vm.pause()
        ms, _ = timed(wake)
        bare_ms, _ = timed(resume)
        if i >= 2:
            ours.append(ms)
            peer.append(bare_ms)
    agent.close()
    vm.destroy()
    namespace.close()
    recipe.close()
    api.delete(sandbox)
    return Result(ours, peer)
