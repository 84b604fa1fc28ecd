"""Servers of Debian's own packages in the namespace of the fake internet: PostgreSQL (postgresql-15) and OpenSSH (openssh-server). Tests
that need one are skipped where it is not installed."""

import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

POSTGRES = next(iter(sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), reverse=True)), None)
PSQL = POSTGRES.with_name("psql") if POSTGRES and POSTGRES.with_name("psql").exists() else None
SSHD = Path("/usr/sbin/sshd")


class Server:
    """A process in the namespace that accepts connections at `address` and `port`."""

    def __init__(self, net, address, port, words):
        self.log = net.folder / f"{Path(words[0]).name}-{port}.log"
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(["ip", "netns", "exec", net.name, *map(str, words)], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        until = time.monotonic() + 30
        while True:
            try:
                socket.create_connection((address, port), 1).close()
                return
            except OSError:
                if self.process.poll() is not None or time.monotonic() > until:
                    self.close()
                    raise AssertionError(f"{words[0]} does not serve:\n{self.log.read_text(errors='replace')[-2000:]}") from None
                time.sleep(0.1)

    def close(self):
        self.process.send_signal(signal.SIGINT)  # to PostgreSQL: at once, and in order
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def postgres(net, address):
    """PostgreSQL on 5432 with the fake internet's certificate; whoever comes is let in."""
    folder = net.folder / "postgres"
    folder.mkdir(mode=0o700)
    for name in ("cert.pem", "key.pem"):
        shutil.copy(net.folder / name, folder / name)
        (folder / name).chmod(0o600)
    for path in (folder, *folder.iterdir()):
        shutil.chown(path, "postgres", "postgres")
    as_postgres = ("setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", "--")
    data = folder / "data"
    subprocess.run([*as_postgres, POSTGRES.with_name("initdb"), "-D", data, "-A", "trust", "-U", "postgres", "-E", "UTF8", "--locale=C", "--no-sync"], check=True, capture_output=True, cwd="/")
    with open(data / "pg_hba.conf", "a", encoding="utf-8") as rules:
        rules.write("host all all all trust\n")
    options = {"listen_addresses": address, "unix_socket_directories": folder, "ssl": "on", "ssl_cert_file": folder / "cert.pem", "ssl_key_file": folder / "key.pem", "fsync": "off"}
    return Server(net, address, 5432, [*as_postgres, POSTGRES, "-D", data, *(word for name, value in options.items() for word in ("-c", f"{name}={value}"))])


def sshd(net, address):
    """OpenSSH on 22, for root of this machine with a key that is made here. Returns the server and the private key's text."""
    folder = net.folder / "ssh"
    folder.mkdir(mode=0o700)
    for name in ("host", "client"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", folder / name], check=True)
    Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # it insists on this folder
    options = {"ListenAddress": f"{address}:22", "AuthorizedKeysFile": folder / "client.pub", "StrictModes": "no", "UsePAM": "no", "PasswordAuthentication": "no", "PidFile": "none"}
    server = Server(net, address, 22, [SSHD, "-D", "-e", "-f", "/dev/null", "-h", folder / "host", *(word for name, value in options.items() for word in ("-o", f"{name}={value}"))])
    return server, (folder / "client").read_bytes()
