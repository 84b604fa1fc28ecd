"""Runs in the guest as root. Stops the agent, takes its listening sockets, and answers in its place: how, the request's path says (mode-NAME)."""

import ctypes
import os
import re
import socket
import threading
import time

libc = ctypes.CDLL(None, use_errno=True)
pidfd = os.pidfd_open(1)
listeners, connected = [], []
for name in os.listdir("/proc/1/fd"):
    fd = libc.syscall(438, pidfd, int(name), 0)  # pidfd_getfd
    if fd < 0:
        continue
    try:
        one = socket.socket(fileno=fd)
        if one.family in (socket.AF_INET, socket.AF_INET6) and one.type == socket.SOCK_STREAM:
            if one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                listeners.append(one)
            else:
                connected.append(one)
            continue
        one.detach()
    except OSError:
        pass
    os.close(fd)
for task in os.listdir("/proc/1/task"):
    libc.ptrace(0x4206, int(task), None, None)
    libc.ptrace(0x4207, int(task), None, None)
for one in connected:
    try:
        one.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass


def reply(body, head=b"", status=b"200 OK", kind=b"application/json"):
    return b"HTTP/1.1 " + status + b"\r\nContent-Type: " + kind + b"\r\n" + head + b"Content-Length: " + str(len(body)).encode() + b"\r\n\r\n" + body


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
ENTRY = b'{"name":"%s","type":"file","size":1,"mode":"0644","uid":0,"gid":0,"user":"root","group":"root","mtime_ms":1,"path":"%s"}'
ANSWERS = {
    "polite": reply(b'{"entries":[' + ENTRY % (b"HOSTILE", b"/HOSTILE") + b"]}"),
    "huge": HEAD + b"Content-Length: 4294967295\r\n\r\n",
    "huger": HEAD + b"Content-Length: 99999999999999999999999\r\n\r\n{}",
    "negative": HEAD + b"Content-Length: -1\r\n\r\n{}",
    "twice": HEAD + b"Content-Length: 2\r\nContent-Length: 4000\r\n\r\n{}",
    "both": HEAD + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    "chunk": HEAD + b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n{}",
    "deep": reply(b"[" * 200000),
    "keys": reply(b"{" + b",".join(b'"k%d":1' % i for i in range(200000)) + b"}"),
    "numbers": reply(b'{"entries":1e999,"size":-1,"x":18446744073709551616}'),
    "types": reply(b'{"entries":"none","session":5,"process":{},"token":[]}'),
    "utf8": reply(b'{"entries":[{"name":"\xff\xfe"}]}'),
    "names": reply(b'{"entries":[' + b",".join(ENTRY % (name, name) for name in (b"../../etc/passwd", b"/etc/passwd", b"a\\u0000b", b"a\\nb", b"x" * 5000)) + b"]}"),
    "headers": HEAD + b"".join(b"X-%d: y\r\n" % i for i in range(50000)) + b"\r\n",
    "line": b"HTTP/1.1 200 " + b"A" * 3000000 + b"\r\n\r\n",
    "split": HEAD + b"X: a\r\nSet-Cookie: evil=1\r\nContent-Disposition: attachment; filename=../../x\r\nSpace-Tenant: victim\r\nContent-Length: 2\r\n\r\n{}",
    "switch": b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
    "continue": b"HTTP/1.1 100 Continue\r\n\r\n" * 20000,
    "status": b"HTTP/1.1 999 No\r\nContent-Length: 0\r\n\r\n",
    "nothing": b"",
    "events": b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n" + b"id: 99999999999999999999\nevent: exit\ndata: {\"code\":\"x\"}\n\nevent: started\ndata: {\n\n" + b"data: " + b"A" * 2000000,
}
ANSWERS["endless"] = ANSWERS["huge"]


def serve(connection):
    connection.settimeout(10)
    try:
        head = b""
        while b"\r\n\r\n" not in head and len(head) < 65536:
            piece = connection.recv(4096)
            if not piece:
                return
            head += piece
        mode = re.search(rb"mode-(\w+)", head)
        name = mode.group(1).decode() if mode else "polite"
        connection.sendall(ANSWERS.get(name, ANSWERS["types"]))
        if name == "endless":
            for _ in range(20000):
                connection.sendall(b"A" * 65536)
        if name in ("huge", "nothing", "switch"):
            for _ in range(40):
                connection.sendall(b"x")
                time.sleep(0.5)
    except OSError:
        pass
    finally:
        connection.close()


def accept(listener):
    listener.settimeout(None)
    while True:
        accepted, _ = listener.accept()
        threading.Thread(target=serve, args=(accepted,), daemon=True).start()


for one in listeners[1:]:
    threading.Thread(target=accept, args=(one,), daemon=True).start()
accept(listeners[0])
