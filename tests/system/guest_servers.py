"""What the servers have in common that tests start inside a guest: text that goes in front of a program."""

# A handler of HTTP/1.1 whose WebSockets echo (RFC 6455, section 4.2.2), and that is silent; `seen()` is what a request is answered with.
HANDLER = '''
import base64, hashlib, json, sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def websocket(self):
        key = self.headers["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        self.send_response(101)
        self.send_header("Upgrade", "websocket"); self.send_header("Connection", "Upgrade")
        self.send_header("Sec-WebSocket-Accept", base64.b64encode(hashlib.sha1(key.encode()).digest()).decode())
        self.end_headers(); self.close_connection = True
        while data := self.connection.recv(100): self.connection.sendall(b"<" + data + b">")
    def do_GET(self):
        if self.headers.get("Upgrade") == "websocket": return self.websocket()
        sent = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        body = json.dumps(self.seen(sent)).encode()
        self.send_response(200); self.send_header("Content-Type", "application/json"); self.send_header("Content-Length", str(len(body))); self.end_headers(); self.wfile.write(body)
    do_POST = do_GET
    def log_message(self, *a): pass
'''
