"""What of keys and certificates is inside a sandbox, in its parent, in the server's files and logs."""

import os
import re
import signal
import subprocess
import time
from pathlib import Path

import leaks
from framework import attack
from gate import Gate, command, get
from i01_copies import clock_off

CHAIN = "echo | timeout 15 openssl s_client -showcerts -connect {0}:443 -servername {0} 2>/dev/null | sed -n '/BEGIN CERT/,/END CERT/p'"
CA = "/usr/local/share/ca-certificates/space-egress.crt"


@attack("E15", "E23", "E27", conditions=("partial",), seconds=150)
def searched(t):
    """Everything in a guest that could hold a key: files, memory, sockets, environments, helpers of clouds and of git"""
    world, box = t.world, t.world.sandbox()
    t.guest(box, "curl -sS -m 15 https://api.secret.test/v1/warm", timeout=40)
    t.control("the certificate of the CA is there", t.guest(box, f"grep -c BEGIN {CA}").stdout.strip() == b"1")
    # Files and memory: the same search finds a key, and a secret, that we put there.
    box.write("/root/own.key", b"-----BEGIN PRIVATE KEY-----\nMIGHAgEAMBMG\n-----END PRIVATE KEY-----\n", user="root")
    box.write("/root/own-secret", b"PLANTED-" + b"7" * 20, user="root")
    search = "grep -rlsE 'BEGIN (EC |RSA |ENCRYPTED )?PRIVATE KEY' --exclude-dir=proc --exclude-dir=sys --exclude-dir=site-packages --exclude-dir=dist-packages /etc /root /home /run /tmp /var/lib /var/tmp /opt /usr/local /srv /init 2>/dev/null"
    found = t.guest(box, search, timeout=60).stdout.decode().split()
    t.control("a key that we put there is found", "/root/own.key" in found, found)
    known = [one for one in found if one not in ("/root/own.key",) and not one.startswith("/etc/ssh/")]
    t.attempt("a private key is in the guest", known, known)
    memory = t.guest(box, ["python3", "-c", SEARCH_MEMORY], timeout=90).stdout.decode()
    t.control("what a program of ours holds in memory is found", "PLANTED" in memory, memory[:200])
    t.attempt("a credential is in the memory of a process", "CANARY" in memory, memory[:300])
    t.attempt("a key is in the memory of the agent", "1 PRIVATE" in memory, memory[:300])
    raw = t.guest(box, ["python3", "-c", "import os\nfor p in ('/dev/mem', '/proc/kcore', '/dev/kmem', '/dev/port'):\n  try:\n    f = os.open(p, os.O_RDONLY); d = os.pread(f, 1 << 20, 0); print(p, len(d), b'CANARY-' in d)\n  except OSError as e: print(p, e.errno)"], timeout=40).stdout.decode()
    t.attempt("a credential is in what the kernel shows of memory", "True" in raw, raw)
    # Sockets: one of ours hands a secret out and is found out.
    box.write("/tmp/sockets.py", SOCKETS.encode())
    said = t.guest(box, ["python3", "/tmp/sockets.py"], timeout=60).stdout.decode()
    t.control("a socket that hands something out is found", "PLANTED" in said, said[-300:])
    t.attempt("another socket hands a secret out", "CANARY" in said or "PRIVATE" in said, said[-300:])
    t.note("sockets in the guest: " + said.replace("\n", "; ")[:300])
    # Helpers.
    for what, test in {"an SSH agent": "test -n \"$SSH_AUTH_SOCK\"", "git's credentials": "ls ~/.git-credentials /root/.git-credentials ~/.netrc /root/.netrc 2>/dev/null | grep .", "git's helper": "git config --get-regexp 'credential.*' | grep .",
                       "a cloud's variables": "env | grep -E 'AWS_|AZURE_|GOOGLE_|GCP_|IDENTITY_|MSI_|KUBERNETES_'", "a cluster's token": "ls /var/run/secrets 2>/dev/null | grep .",
                       "docker's settings": "ls ~/.docker/config.json /root/.docker/config.json /var/run/docker.sock 2>/dev/null | grep .", "npm's token": "grep -s _authToken ~/.npmrc /root/.npmrc /etc/npmrc", "pip's": "grep -s '@' ~/.pip/pip.conf /etc/pip.conf",
                       "keys on the kernel's command line": "grep -E 'key|token|secret|CANARY' /proc/cmdline"}.items():
        for user in ("user", "root"):
            t.attempt(f"{what}, as {user}", t.guest(box, ["bash", "-lc", test], user=user).code == 0)
    t.control("the same test finds what is there", t.guest(box, ["bash", "-lc", "env | grep -E 'PATH='"]).code == 0)
    gate = Gate(t, box)
    gate.control("an allowed host is asked", get("allowed.test"))
    for path in ("/latest/meta-data/iam/security-credentials/", "/latest/api/token", "/metadata/identity/oauth2/token", "/computeMetadata/v1/instance/service-accounts/default/token"):
        for address in ("169.254.169.254", "169.254.170.2", "100.100.100.200", "192.0.0.192"):
            gate.attempt(f"{address}{path}", get(address, path), lambda seen: seen.arrived or seen.status == "200")
    gate.go()


SEARCH_MEMORY = r"""
import os, re
mine = open("/root/own-secret").read()
found = {}
for pid in filter(str.isdigit, os.listdir("/proc")):
    try:
        maps, memory = open(f"/proc/{pid}/maps"), open(f"/proc/{pid}/mem", "rb", 0)
        for line in maps:
            span, rights = line.split()[:2]
            if "r" not in rights or "[v" in line:
                continue
            start, end = (int(x, 16) for x in span.split("-"))
            if end - start > 1 << 27:
                continue
            memory.seek(start)
            content = memory.read(end - start)
            for word in (b"PLANTED-" + b"7" * 20, b"CANARY-" + b"[0-9a-f]" * 24, b"BEGIN [A-Z ]*PRIVATE KEY-----\n[A-Za-z0-9]"):
                if int(pid) != os.getpid() or word.startswith(b"PLANTED"):
                    for _ in re.findall(word, content):
                        found.setdefault((pid, word[:7] if not word.startswith(b"BEGIN") else b"PRIVATE"), 0)
                        found[(pid, word[:7] if not word.startswith(b"BEGIN") else b"PRIVATE")] += 1
    except OSError:
        pass
for (pid, word), count in found.items():
    print(pid, word.decode(), count)
"""
SOCKETS = r"""
import os, socket, threading
own = socket.socket(socket.AF_UNIX); own.bind("\0planted"); own.listen(1)
def give():
    while True:
        c, _ = own.accept(); c.recv(10); c.sendall(b"PLANTED"); c.close()
threading.Thread(target=give, daemon=True).start()
names = {line.split()[7] for line in open("/proc/net/unix").read().splitlines()[1:] if len(line.split()) > 7}
for name in sorted(names):
    for say in (b'{"method":"get"}\n', b"\0\0\0\x05hello", b"GET / HTTP/1.0\r\n\r\n", b"\0\0\0\x01\x0b"):
        for kind in (1, 5):
            try:
                s = socket.socket(socket.AF_UNIX, kind); s.settimeout(0.5); s.connect("\0" + name[1:] if name[0] == "@" else name); s.send(say); print(name, s.recv(300)); break
            except OSError as error:
                print(name, error.errno)
for cid in (0, 1, 2, 3):
    for port in (1024, 49983, 22):
        try:
            s = socket.socket(socket.AF_VSOCK); s.settimeout(0.3); s.connect((cid, port)); s.send(b"x\n"); print("vsock", cid, port, s.recv(100))
        except OSError:
            pass
ports = {int(line.split()[1].split(":")[1], 16) for name in ("/proc/net/tcp", "/proc/net/tcp6") for line in open(name).read().splitlines()[1:] if line.split()[3] == "0A"}
for port in sorted(ports):
    for say in (b"GET /credentials HTTP/1.1\r\nHost: x\r\n\r\n", b'{"get":"credential"}\n'):
        s = socket.socket(); s.settimeout(1)
        try: s.connect(("127.0.0.1", port)); s.send(say); print("tcp", port, s.recv(200))
        except OSError as error: print("tcp", port, error.errno)
        s.close()
"""


@attack("E16", conditions=("partial",), seconds=90)
def authorities(t):
    """A certificate that was made for one sandbox, shown to another; a fork and its root"""
    world, one, two = t.world, t.world.sandbox(), t.world.fresh()
    children = []
    try:
        chain = t.guest(one, CHAIN.format("allowed.test"), timeout=40).stdout
        t.control("the gateway's certificate for it is there", b"BEGIN CERT" in chain)
        operation = one.change("fork", {})
        children = operation.get("children", [])
        from api_client import Sandbox
        child = Sandbox(one.api, children[0])

        def verifies(box):
            box.write("/tmp/other-chain.pem", chain, user="root")
            return b"OK" in t.guest(box, f"csplit -s -z -f /tmp/part- /tmp/other-chain.pem '/BEGIN CERT/' '{{*}}'; openssl verify -CAfile {CA} -untrusted /tmp/other-chain.pem /tmp/part-00").stdout
        t.control("the sandbox that it was made for trusts it", verifies(one))
        t.control("its fork trusts it, as documented: a lineage has one CA", verifies(child))
        t.attempt("another sandbox of the same tenant trusts it", verifies(two))
        prints = {box.id: t.guest(box, f"openssl x509 -in {CA} -noout -fingerprint -serial").stdout for box in (one, two, child)}
        t.attempt("two sandboxes have one CA", prints[one.id] == prints[two.id], prints[one.id])
        t.attempt("the CA of the bystander, another tenant's, is the same", prints[one.id] == world.bystander.run(f"openssl x509 -in {CA} -noout -fingerprint -serial", user="root").stdout)
        leaf = t.guest(one, "openssl x509 -in /tmp/part-00 -noout -text").stdout.decode()
        t.attempt("the certificate may sign others", "CA:TRUE" in leaf)
        t.attempt("it holds more than one name", len(re.findall("DNS:", leaf)) != 1, re.findall("DNS:[^,\n]*", leaf))
    finally:
        world.drop(two)
        for id in children:
            one.api.delete(id)


@attack("E18", conditions=("partial",), seconds=90)
def clocks(t):
    """The guest's clock a day behind and ahead, a suspension: HTTPS goes on, or fails clearly"""
    box = t.world.fresh()
    try:
        tools = {"curl": "curl -sS -m 20 https://allowed.test/{m}", "python": "python3 -c \"import urllib.request as u; print(u.urlopen('https://allowed.test/{m}', timeout=20).status)\"",
                 "node": "node -e \"fetch('https://allowed.test/{m}').then(r => console.log(r.status))\""}
        gate = Gate(t, box, threads=3)
        for name, line in tools.items():
            gate.control(f"{name} with the right clock", command(line, 40))
        gate.go()
        for days in (-1, 1):
            t.guest(box, f"date -s '{days} day'")
            gate = Gate(t, box, threads=3)
            for name, line in tools.items():
                gate.attempt(f"{name} fails with the clock {days} day off", command(line, 40), lambda seen: not seen.arrived)
            gate.go()
        t.guest(box, "date -s '-3 year'")
        gate = Gate(t, box, threads=3)
        gate.attempt("years behind: no clear word", command(tools["curl"], 40), lambda seen: "certificate" not in seen.out and not seen.arrived)
        gate.go()
        box.change("suspend")
        box.change("wake")
        off = clock_off(box)
        t.attempt("the clock is wrong after a suspension", off > 2, off)
        gate = Gate(t, box, threads=3)
        for name, line in tools.items():
            gate.attempt(f"{name} fails after a suspension", command(line, 40), lambda seen: not seen.arrived)
        gate.go()
    finally:
        t.world.drop(box)


@attack("E19", "E20", conditions=("partial",), seconds=90)
def kept_secrets(t):
    """A credential in answers of the API, in logs, in the server's files, in what a gateway that crashes leaves"""
    world, box, api = t.world, t.world.sandbox(), t.world.attacker
    secret = world.secrets["a credential"]
    for line in ("curl -sS -m 10 https://api.secret.test/v1/ok", "curl -sS -m 10 https://api.secret.test/outside", "curl -sS -m 10 -X TRACE https://odd.secret.test/", "curl -sS -m 10 -H 'Host: x' https://odd.secret.test/",
                 "curl -sS -m 5 https://old.bad.test/", "printf 'GET / HTTP/1.1\\r\\nHost: odd.secret.test\\r\\nX: a\\0b\\r\\n\\r\\n' | timeout 4 openssl s_client -quiet -connect odd.secret.test:443"):
        t.guest(box, line, timeout=40)
    t.control("the internet's log holds it: it was sent", any(secret in str(entry) for entry in world.net.since(world.mark)))
    paths = [box.path, "/v1/sandboxes", "/v1/operations", "/v1/credentials", f"{box.path}/egress", f"{box.path}/commands", "/v1/tree", "/v1/checkpoints", "/v1/keys", "/v1/templates"]
    for path in paths:
        t.attempt(f"GET {path} shows it", secret in api.call("GET", path).body.decode(errors="replace"))
    t.control("GET /v1/credentials names it", b'"api"' in api.call("GET", "/v1/credentials").body)
    for path in ("/v1/credentials/api", "/v1/credentials/none", "/v1/credentials/api/value"):
        t.attempt(f"GET {path} gives it", secret in api.call("GET", path).body.decode(errors="replace"))
    for who in (api, world.host):
        with who.events(f"{box.path}/egress/log" if who is api else "/v1/egress/log") as stream:
            t.attempt("the audit log shows it", any(secret in str(event.data) for event in stream))
    t.attempt("/metrics shows it", secret in world.host.call("GET", "/metrics").body.decode())
    t.attempt("the guest's environment holds it", secret.encode() in t.guest(box, "cat /proc/*/environ /proc/cmdline /etc/environment 2>/dev/null").stdout)
    checkpoint = box.change("checkpoint").get("checkpoint")
    # The gateway dies as hard as a fault would let it. Nothing of it may be on disk.
    egress = world.server.role_pid("egress")
    workers = leaks.children(egress)
    t.control("the gateway has workers", workers)
    for pid in (egress, *workers):
        limits = Path(f"/proc/{pid}/limits").read_text()
        t.attempt(f"process {pid} of the gateway may leave a core file", not re.search(r"Max core file size\s+0\s+0", limits))
        t.attempt(f"process {pid} of the gateway can be traced by its own user", os.stat(f"/proc/{pid}/mem").st_uid != 0)
    planted = world.server.run_dir / "planted"
    planted.write_text("PLANTED-" + "9" * 20)
    os.kill(workers[0], signal.SIGSEGV)
    os.kill(egress, signal.SIGSEGV)
    world.server.wait_for(lambda: world.server.role_pid("egress") not in (None, egress) and world.attacker.ok("GET", f"{box.path}/egress")["serving"], 60, "a new gateway")
    world.pids = world.role_pids()

    def on_disk(text):
        return subprocess.run(["grep", "-rlF", "-D", "skip", text, str(world.server.folder)], capture_output=True, timeout=60).stdout.decode().split()
    t.control("a text in the server's folders is found", str(planted) in on_disk("PLANTED-" + "9" * 20))
    planted.unlink()
    for name in ("a credential", "another credential"):
        files = on_disk(world.secrets[name])
        t.attempt(f"{name} is in a file of the server", files, files)
    cores = [path for folder in (world.server.folder, Path("/"), Path.cwd(), Path("/tmp")) for path in folder.glob("core*") if path.is_file() and time.time() - path.stat().st_mtime < 120]
    t.attempt("a core file was left", cores, cores)
    t.attempt("the log holds it", secret in world.log_text())
    if checkpoint:
        api.call("DELETE", f"/v1/checkpoints/{checkpoint}")


@attack("E22", conditions=("partial",), seconds=150)
def environments(t):
    """Variables of a sandbox that programs of the host, or the gateway, would take for their own"""
    world = t.world
    trap = f"http://127.0.0.1:{world.listeners[0].port}"
    env = {name: trap for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy")}
    env |= {"NO_PROXY": "", "SSL_CERT_FILE": "/dev/null", "SSL_CERT_DIR": "/dev/null", "LD_PRELOAD": "/tmp/x.so", "SPACE_URL": trap, "SPACE_API_KEY": "x", "SPACE_SANDBOX_ID": world.bystander.id, "SPACE_EGRESS_KEY": "env:X", "RES_OPTIONS": "x",
            "LOCALDOMAIN": "evil.test", "OPENSSL_CONF": "/tmp/x", "SSLKEYLOGFILE": "/tmp/keys", "GIT_SSL_NO_VERIFY": "1", "NODE_TLS_REJECT_UNAUTHORIZED": "0", "PATH": "/nowhere"}
    made = world.attacker.call("POST", "/v1/sandboxes", {"env": env, "egress": world.settings()}, {"Prefer": "wait=60"})
    t.control("a sandbox with such variables is made, or refused with a reason", made.status in (200, 201, 400), made.status)
    if made.status >= 400:
        t.attempt("it was made all the same", False)
        return
    from api_client import Sandbox
    box = Sandbox(world.attacker, made.json["sandbox"]["id"])
    try:
        before = world.secrets["a credential"]
        fresh = box.run(["/bin/sh", "-c", "unset HTTP_PROXY HTTPS_PROXY ALL_PROXY http_proxy https_proxy all_proxy LD_PRELOAD; SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt /usr/bin/curl --noproxy '*' -sS -m 15 https://api.secret.test/v1/env-test"], timeout=40)
        t.control("the gateway still puts the credential in", any(entry.get("path") == "/v1/env-test" and before in str(entry) for entry in world.net.since(world.mark)), fresh.stderr[-200:])
        for role, pid in world.role_pids().items():
            environ = Path(f"/proc/{pid}/environ").read_bytes()
            t.attempt(f"a variable of the sandbox is in {role}", trap.encode() in environ or b"LOCALDOMAIN" in environ)
        t.attempt("the VMM has a variable of the sandbox", trap.encode() in Path(f"/proc/{leaks.vmm_pid(world.server, box.id)}/environ").read_bytes())
        t.attempt("the host's canary was asked by a program of the host", world.listeners[0].hits, world.listeners[0].hits[:2])
        t.attempt("the API shows the sandbox as the bystander", world.attacker.call("GET", world.bystander.path).status != 404)
    finally:
        world.drop(box)
