"""A lean client of SPACE's public API over one kept connection, so that the client adds as little as the bare one does."""
import base64, json, socket

from connection import Connection


class Api(Connection):
    def __init__(self, address, key):
        super().__init__(socket.create_connection(address, timeout=180))
        self.key = key

    def send(self, method, target, body=None, headers=()):
        super().send(method, target, body, [f'Authorization: Bearer {self.key}', *headers])

    def call(self, method, target, body=None, headers=(), ok=(200, 201, 202, 204)):
        status, content = self.exchange(method, target, body, headers)
        if status not in ok:
            raise RuntimeError(f'{method} {target}: {status} {content[:500]!r}')
        return json.loads(content) if content else None

    def create(self, wait=60, **fields):
        answer = self.call('POST', '/v1/sandboxes', {'template': 'base', **fields}, [f'Prefer: wait={wait}'] if wait else [])
        return answer.get('sandbox', answer)['id']

    def delete(self, sandbox, wait=60):
        self.call('DELETE', f'/v1/sandboxes/{sandbox}', None, [f'Prefer: wait={wait}'] if wait else [])

    def change(self, sandbox, verb, body=None):
        """Asks for a change and waits for its end: the operation, which must have succeeded."""
        operation = self.call('POST', f'/v1/sandboxes/{sandbox}/{verb}', body or {}, ['Prefer: wait=120'])['operation']
        while operation['state'] in ('pending', 'running'):
            operation = self.call('GET', f'/v1/operations/{operation["id"]}?wait=30')
        if operation['state'] != 'succeeded':
            raise RuntimeError(f'{verb}: {operation.get("error")}')
        return operation

    def run(self, sandbox, argv):
        """One command session: create, attach, read to its end. Returns (stdout, exit code)."""
        session = self.call('POST', f'/v1/sandboxes/{sandbox}/commands', {'argv': argv})
        status, content = self.exchange('GET', f'/v1/sandboxes/{sandbox}/commands/{session["session"]}/attach')
        text = content.decode()
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

