"""checkpoint.bytes, checkpoint.savevm-bytes, checkpoint.savevm-time: what a checkpoint writes, and what QEMU's own snapshot would."""
import json, os, subprocess, time

from bare import Namespace, Recipe, Vm
from bare_save import PAGE, memory_range
from create import timed
from report import Result
from server import Server, base_of

# Bytes that do not compress, half of them in memory and half on the disk.
WORK = 'head -c 8388608 /dev/urandom > /dev/shm/changed && head -c 8388608 /dev/urandom > /home/user/changed && sync'
MIB = 1 << 20


def measure(names, quick):
    results, count = {}, 3 if quick else 9
    with Server() as server:
        api = server.api()
        if 'checkpoint.bytes' in names:
            results['checkpoint.bytes'] = _bytes(server, api, count)
        if 'checkpoint.savevm-bytes' in names or 'checkpoint.savevm-time' in names:
            results.update(_savevm(server, api, count))
    return {name: result for name, result in results.items() if name in names}


def stored_bytes(server):
    """Everything below the store, as the file system counts it."""
    return sum(os.lstat(os.path.join(folder, name)).st_blocks * 512 for folder, _, files in os.walk(f'{server.data}/node/store') for name in files)


def _pages(pid):
    """The guest's memory as it stands; the VM is paused."""
    start, end = memory_range(pid)
    with open(f'/proc/{pid}/mem', 'rb', buffering=0) as memory:
        content = bytearray()
        while len(content) < end - start:
            memory.seek(start + len(content))
            content += memory.read(min(64 * MIB, end - start - len(content)))
    return content


def _differing(before, after):
    return sum(before[at:at + PAGE] != after[at:at + PAGE] for at in range(0, len(before), PAGE)) * PAGE


def _disk_bytes(server, sandbox):
    """What the guest's own writes occupy in the top generation of its disk: data alone, no tables."""
    record = json.load(open(f'{server.data}/node/sandboxes/{sandbox}/record.json'))
    image = {'driver': 'qcow2', 'backing': None, 'file': {'driver': 'file', 'filename': f'{server.data}/node/sandboxes/{sandbox}/{record["disks"][-1]}', 'locking': 'off'}}
    found = subprocess.run(['qemu-img', 'map', '-U', '--output=json', 'json:' + json.dumps(image)], check=True, capture_output=True, text=True).stdout
    return sum(part['length'] for part in json.loads(found) if part['data'] and part['depth'] == 0 and part.get('present', True))


def _bytes(server, api, count):
    ours, peer = [], []
    for _ in range(count):
        sandbox = api.create()
        assert api.run(sandbox, ['sh', '-c', WORK])[1] == 0
        pid = server.vmm_pids()[0]
        api.change(sandbox, 'pause')
        api.change(sandbox, 'checkpoint')
        before, had = _pages(pid), stored_bytes(server)
        api.change(sandbox, 'wake')
        assert api.run(sandbox, ['sh', '-c', WORK])[1] == 0
        api.change(sandbox, 'pause')
        changed = _differing(before, _pages(pid)) + _disk_bytes(server, sandbox)
        api.change(sandbox, 'checkpoint')
        ours.append((stored_bytes(server) - had) / MIB)
        peer.append(changed / MIB)
        api.delete(sandbox)
    return Result(ours, peer)


def _savevm(server, api, count):
    """The same small work in a sandbox and in a bare VM of the same base, then a checkpoint here and savevm there."""
    size, ms, peer_size, peer_ms = [], [], [], []
    work = ['sh', '-c', 'echo changed > /dev/shm/changed; echo changed > /home/user/changed; sync']
    for _ in range(count):
        sandbox = api.create()
        pid = server.vmm_pids()[0]
        recipe, namespace = Recipe(pid, base_of(pid)), Namespace()
        assert api.run(sandbox, work)[1] == 0
        had = stored_bytes(server)
        took, _ = timed(lambda: api.change(sandbox, 'checkpoint'))
        ms.append(took)
        size.append((stored_bytes(server) - had) / MIB)
        vm = Vm(recipe, namespace)
        vm.load()
        vm.resume()
        agent = vm.ask()
        assert agent.run(work)[1] == 0
        agent.close()
        disk = vm.name + '.qcow2'
        had = os.stat(disk).st_blocks * 512
        took, _ = timed(lambda: _snapshot(vm))
        peer_ms.append(took)
        peer_size.append((os.stat(disk).st_blocks * 512 - had) / MIB)
        vm.destroy()
        namespace.close()
        recipe.close()
        api.delete(sandbox)
    return {'checkpoint.savevm-bytes': Result(size, peer_size), 'checkpoint.savevm-time': Result(ms, peer_ms)}


def _snapshot(vm):
    nodes = [block['inserted']['node-name'] for block in vm.qmp('query-block') if block.get('inserted')]
    vm.qmp('snapshot-save', **{'job-id': 'save', 'tag': 'one', 'vmstate': nodes[0], 'devices': nodes})
    while True:
        job = vm.qmp('query-jobs')[0]
        if job['status'] == 'concluded':
            break
        time.sleep(.001)
    if job.get('error'):
        raise RuntimeError(job['error'])
