"""A gateway to measure: the egress role by itself, sandboxes that are namespaces with the product's own rules, and an upstream.

    guest namespace -veth- sandbox namespace (rules, redirect, listening sockets) | gateway namespace -veth- upstream namespace

No VM takes part: under emulation the guest's own TLS would be all that is measured. The peer, nginx, stands in the same places: it
accepts on a socket of a sandbox's namespace, behind the same rules, and connects out of the gateway's namespace.
"""
import ctypes, http.client, json, os, shutil, signal, socket, struct, subprocess, tempfile, threading, time

from server import ROOT

BLOCK = '11.77.0'  # public addresses, of nobody here
GATEWAY, UPSTREAM, NGINX_PORT = f'{BLOCK}.1', f'{BLOCK}.2', 15001
NAMES = ('tls.bench.test', 'tunnel.bench.test')
UID_BASE = 7340032 + (1 << 16)
BINARY = os.environ.get('SPACE_BINARY', f'{ROOT}/build/release/space')


def run(*words, **options):
    return subprocess.run(words, check=True, capture_output=True, text=True, **options)


def in_namespace(name, work):
    """The result of `work`, done by a thread in a namespace; sockets made there stay there."""
    box = {}

    def inside():
        try:
            with open(f'/run/netns/{name}') as file:
                if ctypes.CDLL(None, use_errno=True).setns(file.fileno(), 0x40000000) != 0:
                    raise OSError(ctypes.get_errno(), 'setns')
            box['value'] = work()
        except Exception as error:  # noqa: BLE001: it is raised again by the caller
            box['error'] = error

    thread = threading.Thread(target=inside)
    thread.start()
    thread.join()
    if 'error' in box:
        raise box['error']
    return box['value']


class Sandbox:
    """Two namespaces: the guest's, and the one that the warden would have made for it."""

    def __init__(self, world, index):
        self.id = f'sandbox{index:013d}'
        self.guest, self.host = f'{world.prefix}g{index}', f'{world.prefix}s{index}'
        world.namespaces += [self.guest, self.host]
        for name in (self.guest, self.host):
            run('ip', 'netns', 'add', name)
        run('ip', '-n', self.host, 'link', 'add', 'tap0', 'address', '02:5a:ce:00:00:01', 'type', 'veth', 'peer', 'name', 'eth0', 'netns', self.guest)
        run('ip', 'netns', 'exec', self.host, 'nft', '-f', '-', input=world.rules)
        run('ip', '-n', self.host, '-batch', '-', input='address add 10.0.0.1/30 dev tap0\nlink set lo up\nlink set tap0 up\n')
        run('ip', '-n', self.guest, '-batch', '-', input='link set eth0 address 02:5a:ce:00:00:02\naddress add 10.0.0.2/30 dev eth0\nlink set lo up\nlink set eth0 up\n'
            'route add default via 10.0.0.1\n')

    def listeners(self):
        """What the warden hands over: TCP, and UDP and TCP for DNS; bound, not listening."""
        def make():
            out = []
            for kind, port in ((socket.SOCK_STREAM, 15001), (socket.SOCK_DGRAM, 15053), (socket.SOCK_STREAM, 15053)):
                one = socket.socket(socket.AF_INET6, kind | socket.SOCK_NONBLOCK)
                one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
                if kind == socket.SOCK_STREAM:
                    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                one.bind(('::', port))
                out.append(one)
            return out
        return in_namespace(self.host, make)

    def resolve(self, name):
        def ask():
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
                udp.settimeout(5)
                labels = b''.join(bytes([len(label)]) + label.encode() for label in name.split('.'))
                udp.sendto(struct.pack('>6H', 7, 256, 1, 0, 0, 0) + labels + b'\0' + struct.pack('>2H', 1, 1), ('10.0.0.1', 53))
                return socket.inet_ntoa(udp.recv(512)[-4:])  # one address, and nothing behind it
        return in_namespace(self.guest, ask)

    def connect(self, address, port=443):
        def dial():
            connected = socket.create_connection((address, port), 10)
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return connected
        return in_namespace(self.guest, dial)


class World:
    def __init__(self, large_mb):
        self.folder = tempfile.mkdtemp(prefix='space-bench-', dir='/var/tmp')
        os.chmod(self.folder, 0o755)
        self.prefix = f'spb{os.getpid()}'
        self.namespaces, self.processes, self.attached = [], [], None
        self.rules = run(os.path.join(os.path.dirname(BINARY), 'space-bench'), 'rules').stdout
        try:
            self._wire()
            self._certificates()
            self._start_upstream(large_mb)
            self._start_gateway()
        except BaseException:
            self.close()
            raise

    def _wire(self):
        self.outside, self.upstream = f'{self.prefix}o', f'{self.prefix}u'
        self.namespaces += [self.outside, self.upstream]
        for name in (self.outside, self.upstream):
            run('ip', 'netns', 'add', name)
            run('ip', '-n', name, 'link', 'set', 'lo', 'up')
        run('ip', '-n', self.outside, 'link', 'add', 'up0', 'type', 'veth', 'peer', 'name', 'up0', 'netns', self.upstream)
        for name, address in ((self.outside, GATEWAY), (self.upstream, UPSTREAM)):
            run('ip', '-n', name, 'addr', 'add', f'{address}/24', 'dev', 'up0')
            run('ip', '-n', name, 'link', 'set', 'up0', 'up')

    def _certificates(self):
        f = self.folder
        ec = ('-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes')
        run('openssl', 'req', '-x509', *ec, '-days', '2', '-subj', '/CN=bench', '-keyout', f'{f}/ca.key', '-out', f'{f}/ca.pem',
            '-addext', 'basicConstraints=critical,CA:TRUE', '-addext', 'keyUsage=critical,keyCertSign')
        with open(f'{f}/ext', 'w') as file:
            file.write('subjectAltName=' + ','.join(f'DNS:{n}' for n in NAMES) + '\nbasicConstraints=CA:FALSE\nextendedKeyUsage=serverAuth\n')
        run('openssl', 'req', *ec, '-subj', '/CN=server', '-keyout', f'{f}/key.pem', '-out', f'{f}/csr.pem')
        run('openssl', 'x509', '-req', '-in', f'{f}/csr.pem', '-CA', f'{f}/ca.pem', '-CAkey', f'{f}/ca.key', '-CAcreateserial', '-days', '2', '-extfile', f'{f}/ext', '-out', f'{f}/cert.pem')
        self.ca = f'{f}/ca.pem'

    def _spawn(self, namespace, words, log, env=None, pass_fds=()):
        libc = ctypes.CDLL(None, use_errno=True)
        file = open(f'/run/netns/{namespace}')

        def enter():
            if libc.setns(file.fileno(), 0x40000000) != 0:
                raise OSError(ctypes.get_errno(), 'setns')

        with open(f'{self.folder}/{log}.log', 'w') as out:
            process = subprocess.Popen(words, preexec_fn=enter, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=env, pass_fds=pass_fds)
        file.close()
        self.processes.append(process)
        return process

    def nginx(self, namespace, name, body, listener=None):
        """One worker, as the gateway has one for a tenant. A listening socket of another namespace comes as nginx takes one over at its upgrade."""
        if shutil.which('nginx') is None:
            raise RuntimeError('nginx is not installed (scripts/packages.txt)')
        folder = f'{self.folder}/{name}'
        os.makedirs(folder)
        modules = ''.join(f'load_module {path};\n' for path in ('/usr/lib/nginx/modules/ngx_stream_module.so',) if 'stream {' in body and os.path.exists(path))
        with open(f'{folder}/conf', 'w') as file:
            file.write(f'{modules}daemon off;\nuser root;\nworker_processes 1;\npid {folder}/pid;\nerror_log {folder}/error.log;\nworker_rlimit_nofile 65536;\n'
                       f'events {{ worker_connections 16384; }}\n{body}')
        env = dict(os.environ)
        fds = ()
        if listener is not None:
            env['NGINX'] = f'{listener.fileno()};'
            fds = (listener.fileno(),)
        return self._spawn(namespace, ['nginx', '-p', folder, '-c', f'{folder}/conf', '-e', f'{folder}/error.log'], name, env, fds)

    def _start_upstream(self, large_mb):
        www = f'{self.folder}/www'
        os.makedirs(www)
        with open(f'{www}/large', 'wb') as file:
            for _ in range(large_mb):
                file.write(os.urandom(1 << 20))
        with open(f'{www}/small', 'w') as file:
            file.write('x' * 200)
        self.large_bytes = large_mb << 20
        self.nginx(self.upstream, 'upstream', f'''http {{ access_log off; client_body_temp_path {self.folder}/upstream/b; proxy_temp_path {self.folder}/upstream/p;
            fastcgi_temp_path {self.folder}/upstream/f; uwsgi_temp_path {self.folder}/upstream/u; scgi_temp_path {self.folder}/upstream/s;
            keepalive_timeout 600; keepalive_requests 100000000; open_file_cache max=10; tcp_nodelay on;
            server {{ listen {UPSTREAM}:443 ssl; ssl_protocols TLSv1.3; ssl_certificate {self.folder}/cert.pem; ssl_certificate_key {self.folder}/key.pem; root {www}; }} }}\n''')
        in_namespace(self.upstream, lambda: threading.Thread(target=self._serve_dns, args=(self._dns_socket(),), daemon=True).start())
        self._wait(lambda: in_namespace(self.outside, lambda: socket.create_connection((UPSTREAM, 443), 1).close() or True))

    def _dns_socket(self):
        self.dns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.dns.bind((UPSTREAM, 53))
        return self.dns

    @staticmethod
    def _serve_dns(udp):
        while True:
            try:
                query, peer = udp.recvfrom(512)
            except OSError:
                return
            end = query.index(b'\0', 12) + 5
            a = query[end - 4:end - 2] == b'\0\x01'
            answer = b'\xc0\x0c' + struct.pack('>2HIH', 1, 1, 300, 4) + socket.inet_aton(UPSTREAM) if a else b''
            udp.sendto(query[:2] + struct.pack('>5H', 0x8400, 1, 1 if a else 0, 0, 0) + query[12:end] + answer, peer)

    def _start_gateway(self):
        for folder in ('data', 'run', 'run/egress'):  # as the supervisor prepares them for the role's user
            os.makedirs(f'{self.folder}/{folder}')
            os.chown(f'{self.folder}/{folder}', UID_BASE + 3, UID_BASE + 3)
        self.gateway = self._spawn(self.outside, [BINARY, 'egress', '--data-dir', f'{self.folder}/data', '--run-dir', f'{self.folder}/run', '--egress-resolver', f'{UPSTREAM}:53',
                                                  '--egress-ca', self.ca, '--uid-base', str(UID_BASE)], 'gateway')
        self._wait(lambda: self.call('GET', '/info'))

    @staticmethod
    def _wait(ready):
        end = time.monotonic() + 20
        while True:
            try:
                return ready()
            except (OSError, http.client.HTTPException):
                if time.monotonic() > end:
                    raise
                time.sleep(.05)

    def call(self, method, target, body=None):
        connection = http.client.HTTPConnection('gateway')
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.connect(f'{self.folder}/run/egress/egress.sock')
        connection.request(method, target, None if body is None else json.dumps(body), {'Content-Type': 'application/json'})
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        if answer.status >= 400:
            raise RuntimeError((target, text))
        return text

    def attach(self, sandbox, policy):
        """Its policy, then its sockets, as node hands them over (src/wire/egress_handover.h)."""
        self.call('PUT', f'/sandboxes/{sandbox.id}', {'tenant': 'bench', 'lineage': 'lineagelineagelineage1', 'generation': 1, 'policy': policy, 'limits': {'connections': 0}})
        if self.attached is None:
            self.attached = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            self.attached.connect(f'{self.folder}/run/egress/fds.sock')
        sockets = sandbox.listeners()
        packet = struct.pack('<II40s64s40s', 1, 1, sandbox.id.encode(), b'bench', b'loadloadloadloadload1')
        socket.send_fds(self.attached, [packet], [one.fileno() for one in sockets])
        answer = self.attached.recv(4096)
        for one in sockets:
            one.close()
        if struct.unpack('<II', answer[:8])[1] != 0:
            raise RuntimeError(answer)

    def trusted(self):
        """A file with the authority that guests of the gateway trust."""
        path = f'{self.folder}/guest.pem'
        with open(path, 'w') as file:
            file.write(self.call('GET', '/ca/lineagelineagelineage1?tenant=bench'))
        return path

    def worker(self):
        return json.loads(self.call('GET', '/info'))['workers'][0]['pid']

    def close(self):
        for process in reversed(self.processes):
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                try:
                    process.wait(10)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
        if hasattr(self, 'dns'):
            self.dns.close()
        for name in self.namespaces:
            subprocess.run(['ip', 'netns', 'del', name], capture_output=True)
        if os.environ.get('SPACE_BENCH_KEEP') is None:
            shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
