"""Names and links in the guest's filesystem, against the file API."""

import threading
import time

from framework import attack


@attack("F17")
def links(t):
    """A folder that becomes a link to /etc and back while a client writes as a user"""
    box = t.world.sandbox()
    t.guest(box, "rm -rf /tmp/race; mkdir -p /tmp/race/x; chown -R user /tmp/race; rm -f /etc/f")
    loop = box.start("cd /tmp/race; while :; do ln -sfn /etc d; ln -sfn /tmp/race/x d; done", time_limit_ms=15000).in_background()
    t.guest(box, "while ! [ -e /tmp/race/d/. ]; do sleep 0.01; done")
    statuses, until = [], time.monotonic() + 10
    while len(statuses) < (200 if t.world.long else 30) or not any(status < 300 for status in statuses) and time.monotonic() < until:
        statuses.append(box.api.call("PUT", box.files("content", "/tmp/race/d/f", user="user"), b"mine", {"Content-Type": "application/octet-stream"}).status)
    loop.command.kill()
    t.control("some writes arrive", any(status < 300 for status in statuses), statuses[:5])
    t.attempt("a file of root's folder was made by a user", t.guest(box, "test -e /etc/f").code == 0)
    box.write("/etc/f", b"root may", user="root")
    t.control("root's write is seen", t.guest(box, "test -e /etc/f").code == 0)
    t.guest(box, "rm -f /etc/f; ln -s /etc/shadow /tmp/race/s; chmod 600 /etc/shadow")
    t.attempt("a user reads root's file through a link", box.api.call("GET", box.files("content", "/tmp/race/s", user="user")).status == 200)
    t.control("root reads it through the link", box.api.call("GET", box.files("content", "/tmp/race/s", user="root")).status == 200)
    t.attempt("the host's file is found by its path", box.api.call("GET", box.files("content", str(t.world.host_file), user="root")).status == 200)


@attack("F19")
def names(t):
    """Names that are no text, and escapes in output and host names"""
    box = t.world.sandbox()
    t.guest(box, ["python3", "-c", "import os; os.makedirs(b'/tmp/odd', exist_ok=True); [open(b'/tmp/odd/' + n, 'w') for n in (b'\\xff\\xfe', b'a\\nb', b'\\x1b[2J', b'x' * 255)]; os.sethostname('a\\x1b[31m')"])
    answer = box.api.call("GET", box.files("list", "/tmp/odd"))
    t.control("all of them are listed", answer.status == 200 and len(answer.json["entries"]) == 4, answer.body[:200])
    t.attempt("bytes that are no UTF-8 are in the answer", not is_utf8(answer.body))
    t.attempt("a raw escape is in the answer", b"\x1b" in answer.body)
    names = [entry.get("name_base64") or entry["name"] for entry in answer.json["entries"]]
    t.attempt("a name was lost or doubled", len(set(names)) != 4, names)
    t.guest(box, ["printf", "\\033]0;title\\007\\033[2J"])
    time.sleep(0.2)
    t.attempt("an escape is in the server's log", "\x1b" in t.world.log_text())
    t.guest(box, "hostname sandbox 2>/dev/null; rm -rf /tmp/odd")


def is_utf8(content):
    try:
        content.decode()
        return True
    except UnicodeDecodeError:
        return False


@attack("F29", quick=True)
def log_lines(t):
    """Lines of the guest that imitate the host's log, format strings, a line without end"""
    box = t.world.sandbox()
    false = '{"time":"2026-01-01T00:00:00.000Z","level":"info","role":"api","event":"forged.by_the_guest"}'
    box.write("/tmp/false", (false + "\n%n%s%n%s\n").encode(), user="root")
    t.guest(box, "cat /tmp/false; cat /tmp/false >/dev/ttyS0; cat /tmp/false >/dev/kmsg; head -c 1000000 /dev/zero | tr '\\0' A >/dev/ttyS0; echo \"$(cat /tmp/false)\" >&2", timeout=60)
    reader = threading.Event()
    reader.wait(0.5)
    log = t.world.log_text()
    t.control("the log is written", '"event":"request"' in log)
    t.attempt("a line of the guest's is a line of the log", any(line.startswith(false) for line in log.splitlines()))
    t.attempt("a line of the log is very long", max(map(len, log.splitlines())) > 64 << 10, max(map(len, log.splitlines())))
