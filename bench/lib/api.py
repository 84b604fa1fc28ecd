"""A lean client of SPACE's public API over one kept connection, so that the client adds as little as the bare one does."""
import base64, json, socket, time


class Api:
    def __init__(self, address, key):
        self.address, self.key, self.buffer = address, key, b''
        self.socket = socket.create_connection(address, timeout=180)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def close(self):
        self.socket.close()

    def send(self, method, target, body=None, headers=()):
        data = b'' if body is None else json.dumps(body).encode()
        lines = [f'{method} {target} HTTP/1.1', 'Host: localhost', f'Authorization: Bearer {self.key}', f'Content-Length: {len(data)}', *headers]
        if data:
            lines.append('Content-Type: application/json')
        self.socket.sendall('\r\n'.join(lines).encode() + b'\r\n\r\n' + data)

    def head(self):
        while b'\r\n\r\n' not in self.buffer:
            self._more()
        head, self.buffer = self.buffer.split(b'\r\n\r\n', 1)
        lines = head.decode().split('\r\n')
        return int(lines[0].split()[1]), {k.lower(): v.strip() for k, v in (line.split(':', 1) for line in lines[1:])}

    def _more(self):
        data = self.socket.recv(1 << 18)
        if not data:
            raise ConnectionError('the server closed the connection')
        self.buffer += data

    def take(self, count):
        while len(self.buffer) < count:
            self._more()
        taken, self.buffer = self.buffer[:count], self.buffer[count:]
        return taken

    def pieces(self, headers):
        """The body in pieces, whatever its framing."""
        if 'content-length' in headers:
            left = int(headers['content-length'])
            while left:
                if not self.buffer:
                    self._more()
                piece, self.buffer = self.buffer[:left], self.buffer[left:]
                left -= len(piece)
                yield piece
            return
        while True:
            while b'\r\n' not in self.buffer:
                self._more()
            line, self.buffer = self.buffer.split(b'\r\n', 1)
            size = int(line.split(b';')[0], 16)
            piece = self.take(size + 2)[:-2]
            if not size:
                return
            yield piece

    def call(self, method, target, body=None, headers=(), ok=(200, 201, 202, 204)):
        self.send(method, target, body, headers)
        status, fields = self.head()
        content = b''.join(self.pieces(fields)) if status != 204 else b''
        if status not in ok:
            raise RuntimeError(f'{method} {target}: {status} {content[:500]!r}')
        return json.loads(content) if content else None

    def create(self, wait=60, **fields):
        answer = self.call('POST', '/v1/sandboxes', {'template': 'base', **fields}, [f'Prefer: wait={wait}'] if wait else [])
        return answer.get('sandbox', answer)['id']

    def delete(self, sandbox, wait=60):
        self.call('DELETE', f'/v1/sandboxes/{sandbox}', None, [f'Prefer: wait={wait}'] if wait else [])

    def run(self, sandbox, argv):
        """One command session: create, attach, read to its end. Returns (stdout, exit code)."""
        session = self.call('POST', f'/v1/sandboxes/{sandbox}/commands', {'argv': argv})
        self.send('GET', f'/v1/sandboxes/{sandbox}/commands/{session["session"]}/attach')
        status, fields = self.head()
        text = b''.join(self.pieces(fields)).decode()
        if status != 200:
            raise RuntimeError(f'attach: {status} {text[:500]}')
        out, code = b'', None
        for event in text.split('\n\n'):
            lines = dict(line.split(': ', 1) for line in event.split('\n') if ': ' in line and not line.startswith(':'))
            if lines.get('event') == 'stdout':
                out += base64.b64decode(json.loads(lines['data'])['data'])
            elif lines.get('event') == 'exit':
                code = json.loads(lines['data'])['code']
        return out, code


def wait_for(condition, seconds, what):
    end = time.monotonic() + seconds
    while not (value := condition()):
        if time.monotonic() > end:
            raise TimeoutError(what)
        time.sleep(.05)
    return value
