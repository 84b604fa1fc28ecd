"""A private SPACE server for one test file: own folders, own port, nothing left behind.

    class Something(ServerTest):
        def test_it(self):
            with self.api.create() as sandbox: ...

Templates and bases are shared by all servers of a machine, since making them takes long: SPACE_TEST_TEMPLATES and
SPACE_TEST_BASES name their folders. SPACE_TEST_BINARY names the program.
"""

import ctypes
import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import unittest
from pathlib import Path

import leaks
from api_client import Api, ApiError
from contract import Contract

ROOT = Path(__file__).resolve().parents[2]
BINARY = Path(os.environ.get("SPACE_TEST_BINARY", ROOT / "build" / "release" / "space"))
TEMPLATES = os.environ.get("SPACE_TEST_TEMPLATES", "/var/lib/space/templates")
BASES = os.environ.get("SPACE_TEST_BASES", "/var/lib/space/bases-test")
UID_BASE = os.environ.get("SPACE_TEST_UID_BASE", "7340032")
SANITIZER = re.compile(r"^.*(?:ERROR: AddressSanitizer|: runtime error: |WARNING: ThreadSanitizer).*$", re.MULTILINE)  # a role starts again after one
PR_SET_PDEATHSIG = 1


def end_with_parent():
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


class SpaceServer:
    """Options are those of `space serve`, with underscores: SpaceServer(pool_ready=4)."""

    def __init__(self, folder=None, **options):
        self.folder = Path(folder or tempfile.mkdtemp(prefix="space-test-", dir=os.environ.get("SPACE_TEST_DIR")))
        self.folder.chmod(0o755)  # the roles pass through it on their way to their own folders
        self.data_dir, self.run_dir, self.log = self.folder / "data", self.folder / "run", self.folder / "log"
        self.options = {"pool_ready": 1, "pool_ready_most": 0, "pool_spawned": 0, **options}
        self.process = self.api = self.url = self.contract = None
        self.command = [BINARY]  # what is started: the program, or another that starts it
        self.mounts = set()  # below its folder, that the test itself made and takes away

    def arguments(self):
        fixed = {"data-dir": self.data_dir, "run-dir": self.run_dir, "templates-dir": TEMPLATES, "bases-dir": BASES, "uid-base": UID_BASE, "listen": self.listen()}
        for name, value in {**fixed, **{name.replace("_", "-"): value for name, value in self.options.items()}}.items():
            if value is True:
                yield f"--{name}"
            elif value is not False:
                yield from (f"--{name}", str(value))

    def listen(self):
        # The port of the first start is kept over restarts, so that clients find the server again.
        return "127.0.0.1:0" if self.url is None else self.url.split("//")[1]

    def start(self, limit=180):
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen([*self.command, "serve", *self.arguments()], stdout=subprocess.PIPE, stderr=log, preexec_fn=end_with_parent)
        timer = threading.Timer(limit, self.process.kill)
        timer.start()
        line = self.process.stdout.readline().decode()
        timer.cancel()
        ready = re.search(r"ready on (\S+)", line)
        if not ready:
            self.process.kill()
            self.process.wait()
            raise AssertionError(f"the server did not start: {line}\n{self.log_tail()}")
        self.url = ready.group(1)
        self.api = Api(self.url, (self.data_dir / "first.key").read_text().strip(), self.contract)
        return self

    def judge(self):
        """From now on every answer to `api` is held against the contract."""
        self.contract = self.api.contract = Contract(self.api.ok("GET", "/openapi.json"))

    def stop(self, limit=60):
        """An orderly stop: SIGTERM. Sandboxes go on running."""
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(limit)
            except subprocess.TimeoutExpired:
                self.process.kill()
                raise AssertionError(f"the server did not stop within {limit} s\n{self.log_tail()}")
        self.process.stdout.close()
        status, self.process = self.process.returncode, None
        return status

    def start_again(self, limit=60):
        """After somebody killed it: waits for its end first."""
        self.process.wait()
        self.process.stdout.close()
        self.process = None
        return self.start(limit)

    def delete_all(self):
        for sandbox in self.api.sandboxes() + self.api.sandboxes("&metadata.space.kind=volume"):
            if sandbox["state"] != "deleted":
                self.api.delete(sandbox["id"])

    def delete_published(self):
        """What was published stays with a server: before it ends all of it goes, and what stands on it."""
        self.delete_all()
        for one in self.api.ok("GET", "/v1/checkpoints")["checkpoints"]:
            self.api.call("DELETE", f"/v1/checkpoints/{one['id']}")
        for one in self.api.ok("GET", "/v1/templates")["templates"]:
            if one["published"]:
                self.api.ok("DELETE", f"/v1/templates/{one['name']}:{one['tag']}")

    def close(self):
        """Deletes every sandbox, stops, asserts that nothing is left, and removes the folders."""
        found = []
        try:
            if self.process is None:
                self.start()
            self.delete_all()
            status = self.stop()
            found = leaks.of_server(self)
            if status != 0:
                found.append(f"the server ended with status {status}")
        except Exception as error:
            found.append(f"it could not be emptied and stopped: {error!r}")
        if self.process:
            self.process.kill()
            self.process.wait()
        log = self.log_tail()
        reports = SANITIZER.findall(self.log.read_text(errors="replace")) if self.log.exists() else []
        if found:
            leaks.remove_all(self)
        found += reports
        if not os.environ.get("SPACE_TEST_KEEP"):
            subprocess.run(["chattr", "-R", "-f", "-i", self.folder], check=False)  # frozen generations of disks
            shutil.rmtree(self.folder, ignore_errors=True)
        if found:
            raise AssertionError("left behind:\n  " + "\n  ".join(found) + f"\n{log}")

    def role_pid(self, role):
        """The process of a role: a child of ours whose second word is its name."""
        for child in leaks.children(self.process.pid):
            words = leaks.command_line(child)
            if len(words) > 1 and words[1] == role:
                return child
        return None

    def kill_role(self, role, limit=30):
        """kill -9, then waits until the supervisor has another one that answers."""
        old = self.role_pid(role)
        os.kill(old, signal.SIGKILL)
        self.wait_for(lambda: self.role_pid(role) not in (None, old), limit, f"a new {role}")
        self.wait_for(self.answers, limit, "an answer after the restart")

    def answers(self):
        try:
            return self.api.call("GET", "/v1/health", timeout=5).status == 200
        except OSError:
            return False

    @staticmethod
    def wait_for(condition, limit, what):
        until = time.monotonic() + limit
        while True:
            found = condition()
            if found:
                return found
            if time.monotonic() > until:
                raise AssertionError(f"waited {limit} s for {what}")
            time.sleep(0.05)

    def log_tail(self, lines=40):
        try:
            return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])
        except OSError:
            return "(no log)"

    def environment(self):
        """For programs that find the server by it: the CLI, the example."""
        return {**os.environ, "SPACE_URL": self.url, "SPACE_KEY_FILE": str(self.data_dir / "first.key")}


class ServerTest(unittest.TestCase):
    """One server for all tests of a class. Whatever it answers has to keep to the contract."""

    options = {}

    @classmethod
    def setUpClass(cls):
        cls.server = SpaceServer(**cls.options).start()
        cls.addClassCleanup(cls.server.close)
        cls.server.judge()
        cls.addClassCleanup(cls.assertContractKept)
        cls.api = cls.server.api

    @classmethod
    def assertContractKept(cls):
        broken = cls.server.contract.broken
        assert not broken, "answers that api/openapi.yaml does not know:\n  " + "\n  ".join(broken[:40])

    def assertRefused(self, answer, status, code):
        self.assertEqual((answer.status, (answer.json or {}).get("code")), (status, code), answer.body[:400])

    def cli(self, *words, **options):
        """Runs the `space` command against the server."""
        options = {"capture_output": True, "timeout": 120, "stdin": subprocess.DEVNULL, **options}
        if "input" in options:
            del options["stdin"]
        return subprocess.run([BINARY, *words], env=self.server.environment(), **options)

    def refused(self, call):
        """Status and code of the refusal that `call` must meet."""
        with self.assertRaises(ApiError) as caught:
            call()
        return caught.exception.status, caught.exception.code


class SandboxTest(ServerTest):
    """One server and one sandbox for all tests of a class."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.sandbox = cls.api.create()
