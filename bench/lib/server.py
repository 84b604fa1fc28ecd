"""A private server for benchmarks: own data and run folders, a free port, the machine's built templates and bases."""
import os, shutil, signal, socket, subprocess, sys, tempfile, time

from api import Api

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
DATA = os.environ.get('SPACE_DATA', '/var/lib/space')


class Server:
    def __init__(self, pool_ready=0, pool_spawned=0, options=None):
        """`options`: of `space serve`, instead of the pools'; [] is the product as it comes."""
        self.binary = os.environ.get('SPACE_BINARY', f'{ROOT}/build/release/space')
        # On the data folder's disk, so that what is measured is what an installation has.
        self.folder = tempfile.mkdtemp(prefix='space-bench-', dir='/var/tmp')
        os.chmod(self.folder, 0o711)
        self.data, self.run = f'{self.folder}/data', f'{self.folder}/run'
        self.bases = os.environ.get('SPACE_BASES', f'{DATA}/bases')
        with socket.socket() as probe:
            probe.bind(('127.0.0.1', 0))
            self.port = probe.getsockname()[1]
        self.log = open(f'{self.folder}/log', 'w')
        self.process = subprocess.Popen(
            [self.binary, 'serve', '--data-dir', self.data, '--run-dir', self.run, '--templates-dir', f'{DATA}/templates', '--bases-dir', self.bases,
             '--listen', f'127.0.0.1:{self.port}',
             *(['--pool-ready', str(pool_ready), '--pool-ready-most', '0', '--pool-spawned', str(pool_spawned)] if options is None else options)],
            stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log, start_new_session=True)
        try:
            self._wait()
        except BaseException:
            self.stop()
            raise

    def _wait(self):
        end = time.monotonic() + 60
        while True:
            if self.process.poll() is not None:
                raise RuntimeError(f'the server ended with {self.process.returncode}: {open(self.log.name).read()[-2000:]}')
            try:
                self.key = open(f'{self.data}/first.key').read().strip()
                api = self.api()
                api.call('GET', '/v1/health')
                api.close()
                return
            except (OSError, RuntimeError, ConnectionError):
                if time.monotonic() > end:
                    raise
                time.sleep(.05)

    def api(self):
        return Api(('127.0.0.1', self.port), self.key)

    def role_pids(self):
        """Processes of this server, by the run folder in their arguments; VMMs are not among them."""
        found = []
        for name in os.listdir('/proc'):
            if name.isdigit():
                try:
                    arguments = open(f'/proc/{name}/cmdline', 'rb').read().decode(errors='replace')
                except OSError:
                    continue
                if self.run in arguments and 'space' in arguments.split('\0')[0]:
                    found.append(int(name))
        return found

    def vmm_pids(self):
        """VMMs of this server: the records that the warden keeps say which processes are its own."""
        found = []
        for name in os.listdir('/proc'):
            if name.isdigit():
                try:
                    arguments = open(f'/proc/{name}/cmdline', 'rb').read().decode(errors='replace').split('\0')
                except OSError:
                    continue
                if 'qemu-system' in arguments[0] or any(a == '-M' for a in arguments):
                    vm = arguments[arguments.index('-name') + 1].split(',')[0] if '-name' in arguments else ''
                    if vm and os.path.exists(f'{self.run}/node/{vm}.qmp'):
                        found.append(int(name))
        return found

    def stop(self):
        if self.process.poll() is None:
            self._empty()
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.log.close()
        if os.environ.get('SPACE_BENCH_KEEP') is None:
            # Disks that a checkpoint needs are immutable.
            subprocess.run(['chattr', '-R', '-f', '-i', self.folder], check=False, stderr=subprocess.DEVNULL)
            try:
                shutil.rmtree(self.folder)
            except OSError as error:
                print(f'{self.folder} is left: {error}', file=sys.stderr)

    def _empty(self):
        """Deletes what a benchmark left: by design sandboxes outlive their server."""
        try:
            api = self.api()
            for sandbox in api.call('GET', '/v1/sandboxes?limit=100')['sandboxes']:
                api.delete(sandbox['id'])
            api.close()
        except (OSError, RuntimeError, AttributeError) as error:
            print(f'sandboxes may be left: {error}', file=sys.stderr)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()


def base_of(pid):
    """The folder of the base whose files a VMM holds open."""
    for name in os.listdir(f'/proc/{pid}/fd'):
        link = os.readlink(f'/proc/{pid}/fd/{name}')
        folder = os.path.dirname(link)
        if os.path.exists(f'{folder}/manifest.json') and os.path.exists(f'{folder}/empty.qcow2'):
            return folder
    raise RuntimeError('the VMM holds no file of a base')
