"""The recipe of a checkpoint on bare QEMU: stop, devices, the pages that were written, the disk's next generation, go on. And a clone
of what was saved. With write tracking, where the kernel has it, so that the peer is the best that is known to work."""
import array, ctypes, fcntl, os, re, shutil, socket, struct, time

from bare import Vm

PAGE = 4096
SOCKET, DEVICE = 1022, 1023  # src/warden/userfault.h
UFFDIO_API, UFFDIO_REGISTER, UFFDIO_WRITEPROTECT = 0xc018aa3f, 0xc020aa00, 0xc018aa06
WP_ASYNC, WP_UNPOPULATED = 1 << 15, 1 << 13
PAGEMAP_SCAN, SCAN_PROTECT, SCAN_CHECK, WRITTEN = 0xc0606610, 1, 2, 1 << 1


def memory_range(pid):
    """Where the guest's memory is mapped in a VMM, as one piece."""
    parts = [tuple(int(x, 16) for x in line.split()[0].split('-')) for line in open(f'/proc/{pid}/maps') if '/memfd:guest' in line]
    return min(start for start, _ in parts), max(end for _, end in parts)


class SavingVm(Vm):
    """A bare VM that can be saved while it runs."""

    def __init__(self, recipe, namespace, disk=None, devices_only=False):
        self.tracked = recipe.preload is not None and os.path.exists('/dev/userfaultfd')
        if self.tracked:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            device = os.open('/dev/userfaultfd', os.O_RDWR)
            super().__init__(recipe, namespace, disk=disk, devices_only=devices_only, descriptors={SOCKET: theirs.fileno(), DEVICE: device},
                             environment={'LD_PRELOAD': recipe.preload})
            os.close(device)
            theirs.close()
            word, fds, _, _ = socket.recv_fds(ours, 1, 1)
            ours.close()
            if word != b'u' or not fds:
                raise RuntimeError('the bare VMM gave no userfaultfd')
            self.userfault = fds[0]
        else:
            super().__init__(recipe, namespace, disk=disk, devices_only=devices_only)
        self.start, self.end = memory_range(self.process.pid)
        self.memory = os.open(f'/proc/{self.process.pid}/mem', os.O_RDWR)
        self.pagemap = os.open(f'/proc/{self.process.pid}/pagemap', os.O_RDONLY)
        self.top = sorted(re.findall(r'"node-name": ?"(disk\d+)"', ' '.join(recipe.argv)))[-1]
        self.saves = 0
        if self.tracked:
            length = self.end - self.start
            fcntl.ioctl(self.userfault, UFFDIO_API, bytearray(struct.pack('<3Q', 0xaa, WP_ASYNC | WP_UNPOPULATED, 0)))
            fcntl.ioctl(self.userfault, UFFDIO_REGISTER, bytearray(struct.pack('<4Q', self.start, length, 2, 0)))
            fcntl.ioctl(self.userfault, UFFDIO_WRITEPROTECT, bytearray(struct.pack('<3Q', self.start, length, 1)))

    def written(self):
        """Addresses of what was written since the last time (without tracking: since the load)."""
        if not self.tracked:
            return self._scan()
        found, at = [], self.start
        vector = (ctypes.c_uint64 * (3 * 4096))()
        while at < self.end:
            request = bytearray(struct.pack('<12Q', 96, SCAN_PROTECT | SCAN_CHECK, at, self.end, 0, ctypes.addressof(vector), 4096, 0, 0, WRITTEN, 0, WRITTEN))
            count = fcntl.ioctl(self.pagemap, PAGEMAP_SCAN, request)
            found += [(vector[3 * i], vector[3 * i + 1]) for i in range(count)]
            walked = struct.unpack_from('<Q', request, 32)[0]
            if walked <= at:
                break
            at = walked
        return found

    def _scan(self):
        entries = array.array('Q', os.pread(self.pagemap, (self.end - self.start) // PAGE * 8, self.start // PAGE * 8))
        pages = [i for i, entry in enumerate(entries) if entry >> 62 and not entry >> 61 & 1]
        return [(self.start + i * PAGE, self.start + (i + 1) * PAGE) for i in pages]

    def save(self):
        """A checkpoint: (milliseconds that the guest stood still, what was saved)."""
        self.saves += 1
        state, overlay = f'{self.name}.state{self.saves}', f'{self.name}.disk{self.saves}'
        shutil.copyfile(f'{self.recipe.base_dir}/empty.qcow2', overlay)
        node = f'n{self.saves}'
        self._pass(overlay, os.O_RDWR, 100 + 2 * self.saves)
        self.qmp('blockdev-add', **{'driver': 'file', 'filename': f'/dev/fdset/{100 + 2 * self.saves}', 'node-name': 'f' + node, 'locking': 'off'})
        self.qmp('blockdev-add', **{'driver': 'qcow2', 'node-name': node, 'file': 'f' + node, 'backing': None})
        open(state, 'w').close()
        self._pass(state, os.O_WRONLY, 101 + 2 * self.saves)
        begin = time.perf_counter()
        self.qmp('stop')
        self.qmp('xen-save-devices-state', filename=f'/dev/fdset/{101 + 2 * self.saves}', live=False)
        pages = [(a - self.start, os.pread(self.memory, b - a, a)) for a, b in self.written()]
        self.qmp('blockdev-snapshot', node=self.top, overlay=node)
        self.qmp('cont')
        stopped = (time.perf_counter() - begin) * 1e3
        frozen = self.name + '.qcow2' if self.saves == 1 else f'{self.name}.disk{self.saves - 1}'
        self.top = node
        return stopped, (state, pages, frozen)

    def _pass(self, path, flags, number):
        fd = os.open(path, flags)
        self.qmp('add-fd', fd=fd, **{'fdset-id': number})
        os.close(fd)

    def destroy(self):
        super().destroy()
        for fd in (self.memory, self.pagemap, *([self.userfault] if self.tracked else [])):
            os.close(fd)


def clone(recipe, namespace, saved):
    """A new VM out of the first save() of another: paused. Its disk begins as a copy of the frozen one."""
    state, pages, frozen = saved
    vm = SavingVm(recipe, namespace, disk=frozen, devices_only=True)
    for offset, content in pages:
        os.pwrite(vm.memory, content, vm.start + offset)
    vm.load(state)
    return vm
