"""Hand-written HTTP/1.1 over one kept socket, for both sides of a comparison: so that the clients cost the same."""
import json, socket


class Connection:
    def __init__(self, connected):
        self.socket, self.buffer = connected, b''
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def close(self):
        self.socket.close()

    def send(self, method, target, body=None, headers=()):
        data = b'' if body is None else json.dumps(body).encode()
        lines = [f'{method} {target} HTTP/1.1', 'Host: localhost', f'Content-Length: {len(data)}', *headers]
        if data:
            lines.append('Content-Type: application/json')
        self.socket.sendall('\r\n'.join(lines).encode() + b'\r\n\r\n' + data)

    def head(self):
        """Status and header fields, their names in lower case."""
        lines = self._until(b'\r\n\r\n').decode().split('\r\n')
        return int(lines[0].split()[1]), {k.lower(): v.strip() for k, v in (line.split(':', 1) for line in lines[1:])}

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
            size = int(self._until(b'\r\n').split(b';')[0], 16)
            piece = self._take(size + 2)[:-2]
            if not size:
                return
            yield piece

    def exchange(self, method, target, body=None, headers=()):
        """Status and whole body; a body of 204 is not waited for."""
        self.send(method, target, body, headers)
        status, fields = self.head()
        return status, b''.join(self.pieces(fields)) if status != 204 else b''

    def _more(self):
        data = self.socket.recv(1 << 18)
        if not data:
            raise ConnectionError('the server closed the connection')
        self.buffer += data

    def _until(self, mark):
        while mark not in self.buffer:
            self._more()
        line, self.buffer = self.buffer.split(mark, 1)
        return line

    def _take(self, count):
        while len(self.buffer) < count:
            self._more()
        taken, self.buffer = self.buffer[:count], self.buffer[count:]
        return taken
