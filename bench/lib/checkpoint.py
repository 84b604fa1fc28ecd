"""checkpoint.stop, checkpoint.dirty, checkpoint.memory: how long the guest stands still while a checkpoint is taken.

Ours comes from the operation's own record of its steps: from the order to stop the processors to the answer to the order to go on. The
users' processes stand still somewhat longer (from `freeze` to the end of `init`); that is in the note."""
import statistics, time

from bare import Namespace, Recipe
from bare_save import SavingVm
from report import Result
from server import Server, base_of

CHANGE = 'head -c 1048576 /dev/urandom > /dev/shm/changed'
# 300 MB of private memory: each page is another one.
BIG = '''import time
b = bytearray(300 << 20)
for i in range(0, len(b), 4096): b[i:i + 8] = (i + 1).to_bytes(8, "little")
open("/dev/shm/ready", "w").close()
time.sleep(1e6)'''


def measure(names, quick):
    results, count = {}, 5 if quick else 15
    with Server() as server:
        api = server.api()
        if 'checkpoint.stop' in names:
            results['checkpoint.stop'] = _stop(server, api, count)
        if 'checkpoint.dirty' in names:
            results['checkpoint.dirty'] = _dirty(api, count)
        if 'checkpoint.memory' in names:
            results['checkpoint.memory'] = _memory(api, count)
    return results


def stopped(operation):
    """(milliseconds that the processors stood still, that the users' processes did)"""
    spans = {span['name']: span for span in operation['spans']}
    end = lambda name: spans[name]['start_us'] + spans[name]['duration_us']  # noqa: E731
    return (end('resume') - spans['pause']['start_us']) / 1e3, (end('init') - spans['freeze']['start_us']) / 1e3


def _note(frozen):
    return f"the users' processes stood still for {statistics.median(frozen):.3g} ms"


def _stop(server, api, count):
    ours, frozen, peer = [], [], []
    while len(ours) < count:
        sandbox = api.create()
        assert api.run(sandbox, ['true'])[1] == 0
        pid = server.vmm_pids()[0]
        recipe, namespace = Recipe(pid, base_of(pid)), Namespace()
        vm = SavingVm(recipe, namespace)
        vm.load()
        vm.resume()
        agent = vm.ask()
        assert agent.run(['true'])[1] == 0
        agent.close()
        time.sleep(2)  # idle: what the commands began is over
        for i in range(min(count - len(ours), 8) + 1):
            time.sleep(.3)
            ms, processes = stopped(api.change(sandbox, 'checkpoint'))
            time.sleep(.3)
            bare_ms, _ = vm.save()
            if i:
                ours.append(ms)
                frozen.append(processes)
                peer.append(bare_ms)
        vm.destroy()
        namespace.close()
        recipe.close()
        _away(api, sandbox)
    return Result(ours, peer, _note(frozen))


def _away(api, sandbox):
    checkpoints = api.call('GET', f'/v1/checkpoints?sandbox={sandbox}')['checkpoints']
    api.delete(sandbox)
    for one in checkpoints:
        api.call('DELETE', f'/v1/checkpoints/{one["id"]}')


def _big(api, **size):
    sandbox = api.create(**size)
    shell = f"setsid nohup python3 -c '{BIG}' >/dev/null 2>&1 & for i in $(seq 600); do [ -e /dev/shm/ready ] && exit 0; sleep .1; done; exit 1"
    assert api.run(sandbox, ['sh', '-c', shell])[1] == 0
    return sandbox


def _changed(api, sandbox):
    """One checkpoint after a change of 1 MB."""
    assert api.run(sandbox, ['sh', '-c', CHANGE])[1] == 0
    return stopped(api.change(sandbox, 'checkpoint'))


def _dirty(api, count):
    big, woken, fresh, frozen = [], [], [], []
    while len(big) < count:
        full, empty = _big(api), api.create()
        for sandbox in (full, empty):
            _changed(api, sandbox)
        for _ in range(min(count - len(big), 5)):
            ms, processes = _changed(api, full)
            big.append(ms)
            frozen.append(processes)
            fresh.append(_changed(api, empty)[0])
            api.change(full, 'suspend')
            api.change(full, 'wake')
            woken.append(_changed(api, full)[0])
        _away(api, full)
        _away(api, empty)
    worse = max(big, woken, key=statistics.median)
    return Result(worse, fresh, f'without a wake {statistics.median(big):.3g}, after one {statistics.median(woken):.3g}; {_note(frozen)}')


def _memory(api, count):
    large, small = [], []
    while len(large) < count:
        pair = api.create(memory_mib=4096), api.create(memory_mib=256)
        for sandbox in pair:
            _changed(api, sandbox)
        for _ in range(min(count - len(large), 8)):
            large.append(_changed(api, pair[0])[0])
            small.append(_changed(api, pair[1])[0])
        for sandbox in pair:
            _away(api, sandbox)
    return Result(large, small)
