"""Upstreams that a test adds to the fake internet, in its namespace: an HTTP and HTTPS server on IPv6, a gRPC server.

    upstreams.py FOLDER six ADDRESS            HTTPS on 443, HTTP on 8080
    upstreams.py FOLDER grpc ADDRESS PORT      unary, server-streaming and bidirectional calls, and one that fails

FOLDER holds cert.pem and key.pem. Prints "ready".
"""

import socket
import ssl
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Six(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        body = f"six {self.headers['Host']} {self.path}\n".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


class SixServer(ThreadingHTTPServer):
    address_family = socket.AF_INET6
    daemon_threads = True


def six(folder, address):
    for port in (443, 8080):
        server = SixServer((address, port), Six)
        if port == 443:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(f"{folder}/cert.pem", f"{folder}/key.pem")
            server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        threading.Thread(target=server.serve_forever, daemon=True).start()


def grpc_server(folder, address, port):
    from concurrent import futures

    import grpc

    def say(request, context):
        told = dict(context.invocation_metadata())
        context.set_trailing_metadata((("x-trailer", "behind"),))
        return b"%s, authorised by %d bytes, %s" % (request, len(told.get("authorization", "")), told.get("x-mine", "").encode())

    def count(request, context):
        for n in range(int(request)):
            yield str(n).encode()

    def chat(requests, context):
        for request in requests:
            yield b"you said " + request

    def refuse(request, context):
        context.abort(grpc.StatusCode.NOT_FOUND, "nothing here")

    handlers = {"Say": grpc.unary_unary_rpc_method_handler(say), "Count": grpc.unary_stream_rpc_method_handler(count), "Chat": grpc.stream_stream_rpc_method_handler(chat),
                "Fail": grpc.unary_unary_rpc_method_handler(refuse), "Secret": grpc.unary_unary_rpc_method_handler(say)}
    server = grpc.server(futures.ThreadPoolExecutor(8))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test.Echo", handlers),))
    with open(f"{folder}/key.pem", "rb") as key, open(f"{folder}/cert.pem", "rb") as cert:
        credentials = grpc.ssl_server_credentials([(key.read(), cert.read())])
    if server.add_secure_port(f"{address}:{port}", credentials) == 0:
        raise OSError("the port is taken")
    server.start()
    return server


def main():
    folder, what, address = sys.argv[1:4]
    kept = six(folder, address) if what == "six" else grpc_server(folder, address, int(sys.argv[4]))  # a gRPC server ends with its object
    print("ready", flush=True)
    threading.Event().wait()
    del kept


if __name__ == "__main__":
    main()
