"""Bare QEMU beside SPACE: the same arguments, the same base, no jail, no server. The peer of create, density and commands.

The arguments are read from a VMM that SPACE started, so that both sides run the same machine; descriptors are opened anew.
"""
import fcntl, json, os, re, shutil, socket, struct, subprocess, tempfile, threading, time

from agent import Agent
from groups import Groups

TUNSETIFF, IFF_TAP, IFF_NO_PI, IFF_VNET_HDR = 0x400454ca, 0x2, 0x1000, 0x4000


class Namespace:
    """A network namespace with the host's end of the guest's link, made ahead, as SPACE keeps them ready."""

    def __init__(self):
        import ctypes
        libc, box = ctypes.CDLL(None, use_errno=True), {}

        def inside():
            if libc.unshare(0x40000000):
                box['error'] = OSError(ctypes.get_errno(), 'unshare')
                return
            box['ns'] = os.open('/proc/thread-self/ns/net', os.O_RDONLY)
            tap = os.open('/dev/net/tun', os.O_RDWR)
            fcntl.ioctl(tap, TUNSETIFF, struct.pack('16sH22x', b'tap0', IFF_TAP | IFF_NO_PI | IFF_VNET_HDR))
            box['tap'] = tap

        thread = threading.Thread(target=inside)
        thread.start()
        thread.join()
        if 'error' in box:
            raise box['error']
        self.fd, self.tap = box['ns'], box['tap']
        self.path = f'/proc/{os.getpid()}/fd/{self.fd}'
        for command in ('link set lo up', 'link set tap0 address 02:5a:ce:00:00:01', 'addr add 10.0.0.1/30 dev tap0', 'link set tap0 up',
                        'neigh replace 10.0.0.2 lladdr 02:5a:ce:00:00:02 dev tap0 nud permanent'):
            subprocess.run(['nsenter', f'--net={self.path}', 'ip', *command.split()], check=True)

    def close(self):
        os.close(self.tap)
        os.close(self.fd)


class Recipe:
    """How SPACE starts its VMM, and the base that it loads."""

    def __init__(self, pid, base_dir):
        self.argv = open(f'/proc/{pid}/cmdline', 'rb').read().decode().split('\0')[1:-1]
        self.base_dir = base_dir
        self.groups = Groups(pid)
        self.folder = tempfile.TemporaryDirectory(prefix='space-bench-')
        self.kept = {}
        # What makes the userfaultfd inside a VMM, for peers that track writes (bare_save.py).
        self.preload = f'{self.folder.name}/userfault.so'
        try:
            shutil.copyfile(f'/proc/{pid}/root/usr/lib/space-userfault.so', self.preload)
        except OSError:
            self.preload = None
        numbers = {int(n) for n in re.findall(r'(?:\bfd=|/proc/self/fd/)(\d+)', ' '.join(self.argv))}
        sets = dict(reversed(v.split(',set=')) for v in (self.argv[i + 1][3:] for i, a in enumerate(self.argv) if a == '-add-fd'))
        # QEMU moves the descriptors of sets elsewhere and closes their numbers: those come from the files of the base itself.
        files = self._disk_files(pid)
        for index, number in sets.items():
            self.kept[int(number)] = 'disk' if int(index) == len(sets) else os.open(files[int(index) - 1], os.O_RDONLY)
        for number in numbers - self.kept.keys():
            link = os.readlink(f'/proc/{pid}/fd/{number}')
            if link.startswith('socket:'):
                self.kept[number] = 'qmp'
            elif '/net/tun' in link:
                self.kept[number] = 'tap'
            else:
                self.kept[number] = os.open(f'/proc/{pid}/fd/{number}', os.O_RDWR if 'memfd' in link else os.O_RDONLY)

    def _disk_files(self, pid):
        """The template's image and the base's overlay, bottom to top, as the VMM holds them open."""
        links = [os.readlink(f'/proc/{pid}/fd/{n}') for n in os.listdir(f'/proc/{pid}/fd')]
        overlay = f'{self.base_dir}/overlay.qcow2'
        image = next(l for l in links if l.endswith(('.ext4', '.img', '/rootfs', '/image')))
        return [image, overlay]

    def close(self):
        for value in self.kept.values():
            if isinstance(value, int):
                os.close(value)
        self.folder.cleanup()
        self.groups.close()


class Vm:
    counter, lock = 0, threading.Lock()

    def __init__(self, recipe, namespace, boot=False, disk=None, devices_only=False, descriptors=None, environment=None):
        """Starts the VMM; `boot` runs the kernel from the start instead of loading the base. `disk`: what its own disk begins as, instead
        of empty; `devices_only`: it waits for what a running VM's devices were saved as; `descriptors`: further ones, by number."""
        with Vm.lock:
            Vm.counter += 1
            self.name = f'{recipe.folder.name}/{Vm.counter}'
        self.recipe, self.namespace = recipe, namespace
        shutil.copyfile(disk or f'{recipe.base_dir}/empty.qcow2', self.name + '.qcow2')
        disk = self.name + '.qcow2'
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(self.name + '.qmp')
        listener.listen(1)
        disk_fd = os.open(disk, os.O_RDWR)
        sources = {n: {'qmp': listener.fileno(), 'tap': namespace.tap, 'disk': disk_fd}.get(v, v) if isinstance(v, str) else v for n, v in recipe.kept.items()}
        argv = list(recipe.argv)
        if boot:
            del argv[argv.index('-incoming'):argv.index('-incoming') + 2]
        if devices_only:
            argv += ['-global', 'migration.send-configuration=off']
        sources.update(descriptors or {})
        # Descriptors move to their numbers in two steps, so that none is overwritten before it was moved.
        high = {n: fcntl.fcntl(fd, fcntl.F_DUPFD, 200) for n, fd in sources.items()}

        self.group = f'{os.getpid()}-{os.path.basename(recipe.folder.name)}-{os.path.basename(self.name)}'
        groups = recipe.groups.make(self.group)

        def place():
            for file in groups:
                file.write_text('0')
            for n, fd in high.items():
                os.dup2(fd, n, inheritable=True)

        self.process = subprocess.Popen(['qemu-system-x86_64', *argv], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                        preexec_fn=place, close_fds=False, env={**os.environ, **(environment or {})})
        for fd in high.values():
            os.close(fd)
        os.close(disk_fd)
        listener.close()
        self.qmp_socket = socket.socket(socket.AF_UNIX)
        self.qmp_socket.connect(self.name + '.qmp')
        self.qmp_file = self.qmp_socket.makefile('rb')
        self.qmp_file.readline()
        self.qmp('qmp_capabilities')

    def qmp(self, command, fd=None, **arguments):
        message = {'execute': command}
        if arguments:
            message['arguments'] = arguments
        line = json.dumps(message).encode() + b'\n'
        if fd is None:
            self.qmp_socket.sendall(line)
        else:
            socket.send_fds(self.qmp_socket, [line], [fd])
        while True:
            answer = json.loads(self.qmp_file.readline())
            if 'return' in answer:
                return answer['return']
            if 'error' in answer:
                raise RuntimeError((command, answer['error']))

    def load(self, state=None):
        """The base, or the devices in the file `state`, whose pages are in the memory already."""
        if state is None:
            self.qmp('migrate-set-capabilities', capabilities=[{'capability': 'x-ignore-shared', 'state': True}])
        state = os.open(state or f'{self.recipe.base_dir}/state', os.O_RDONLY)
        self.qmp('getfd', fd=state, fdname='state')
        os.close(state)
        self.qmp('migrate-incoming', uri='fd:state')
        while (status := self.qmp('query-migrate').get('status')) != 'completed':
            if status == 'failed':
                raise RuntimeError('the bare load failed')
            time.sleep(.001)

    def resume(self):
        self.qmp('cont')

    def pause(self):
        self.qmp('stop')

    def ask(self):
        """A client of the agent, identified as SPACE does it."""
        agent = Agent(self.namespace.path)
        agent.init()
        return agent

    def destroy(self):
        self.process.kill()
        self.process.wait()
        self.recipe.groups.remove(self.group)
        self.qmp_file.close()
        self.qmp_socket.close()
        for end in ('.qmp', '.qcow2'):
            try:
                os.unlink(self.name + end)
            except FileNotFoundError:
                pass


def private_kib(pid):
    """Private memory of a process, as the kernel counts it."""
    total = 0
    for line in open(f'/proc/{pid}/smaps_rollup'):
        if line.startswith(('Private_Clean:', 'Private_Dirty:')):
            total += int(line.split()[1])
    return total


def cpu_seconds(pid):
    fields = open(f'/proc/{pid}/stat').read().rsplit(')', 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf('SC_CLK_TCK')
