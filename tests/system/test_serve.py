"""Ways to serve: with TLS on an address for others, without TLS nowhere but on loopback, once per run folder, and without machines for load tests."""

import os
import shutil
import socket
import ssl
import subprocess
import tempfile
import threading
import unittest
from pathlib import Path

from api_client import Api
from space_server import BINARY, ROOT, ServerTest, SpaceServer

BUDGET_S = 120


class Refusals(ServerTest):
    options = {"pool_ready": 0}

    def serve(self, *options):
        with tempfile.TemporaryDirectory() as folder:
            return subprocess.run([BINARY, "serve", "--data-dir", f"{folder}/data", "--run-dir", f"{folder}/run", *options], capture_output=True, text=True, timeout=60)

    def test_an_address_for_others_needs_tls(self):
        for address in ("0.0.0.0:0", "[::]:0"):
            done = self.serve("--listen", address)
            self.assertNotEqual(done.returncode, 0, address)
            self.assertIn("tls_required", done.stderr)

    def test_a_second_server_is_told_about_the_first(self):
        done = subprocess.run([BINARY, "serve", *map(str, self.server.arguments())], capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 78)
        self.assertRegex(done.stderr, "run")


class Tls(unittest.TestCase):
    def test_https_for_others_with_the_command_and_without(self):
        with tempfile.TemporaryDirectory() as folder:
            names = {"certificate": f"{folder}/cert.pem", "key": f"{folder}/key.pem"}
            subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", "/CN=space.test",
                            "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", names["key"], "-out", names["certificate"]], check=True, capture_output=True)
            Path(folder).chmod(0o755)
            Path(names["key"]).chmod(0o644)  # the api role reads it under its own user
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                port = free.getsockname()[1]
            server = SpaceServer(pool_ready=0, tls_cert=names["certificate"], tls_key=names["key"], listen=f"0.0.0.0:{port}")
            try:
                server.start()
                server.api = Api(f"https://127.0.0.1:{port}", server.api.key, tls=ssl.create_default_context(cafile=names["certificate"]))
                with server.api.create() as sandbox:
                    self.assertEqual(sandbox.output("echo over tls"), "over tls")
                environment = {**server.environment(), "SPACE_URL": server.api.url}
                run = lambda **more: subprocess.run([BINARY, "ls"], env={**environment, **more}, capture_output=True, text=True, timeout=60)
                self.assertEqual(run(SPACE_CA_FILE=names["certificate"]).returncode, 0)
                stranger = run()  # whose certificate it is, nobody vouches for
                self.assertEqual(stranger.returncode, 69)
                self.assertIn("certificate", stranger.stderr)
            finally:
                server.close()


class WithoutCgroups(unittest.TestCase):
    """A host without control groups: in a mount namespace of its own, where none are mounted."""

    def test_it_is_refused_unless_that_was_asked_for(self):
        server = SpaceServer(pool_ready=0)
        server.command = ["unshare", "--mount", "sh", "-c", 'umount --recursive --lazy /sys/fs/cgroup && exec "$@"', "sh", BINARY]
        with self.assertRaises(AssertionError) as refused:
            server.start()
        self.assertIn("no_limits", str(refused.exception))
        self.assertIn("--no-limits", str(refused.exception), "the next step")
        server.options["no_limits"] = True
        try:
            server.start()
            self.assertEqual(server.api.ok("GET", "/v1/version")["limits"], "none")
            with server.api.create() as sandbox:
                self.assertEqual(sandbox.output("echo unlimited"), "unlimited")
        finally:
            server.close()


class EarlierBuild(unittest.TestCase):
    """What ./run does with a server whose program was built anew meanwhile (scripts/lib.sh)."""

    def stop_earlier_build(self, server, program):
        script = 'source "$1/scripts/lib.sh"; program=$2; stop_earlier_build'
        done = subprocess.run(["bash", "-euc", script, "bash", str(ROOT), str(program)], env={**os.environ, "SPACE_RUN_DIR": str(server.run_dir)}, capture_output=True,
                              text=True, timeout=90)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_it_is_stopped_and_its_sandboxes_go_on(self):
        server = SpaceServer(pool_ready=0)
        program = server.folder / "space"
        shutil.copy(BINARY, program)
        server.command = [program]
        try:
            server.start()
            sandbox = server.api.create()
            sandbox.run("echo kept > /dev/shm/k")
            self.assertEqual(self.stop_earlier_build(server, program), "", "it runs what was built last")
            self.assertEqual(self.stop_earlier_build(server, BINARY), "", "somebody else's is left alone")
            self.assertIsNone(server.process.poll())
            program.unlink()  # as the linker does it
            shutil.copy(BINARY, program)
            ended = threading.Thread(target=server.process.wait)  # a child that nobody waits for does not go
            ended.start()
            self.assertIn(str(server.process.pid), self.stop_earlier_build(server, program))
            ended.join()
            self.assertEqual(server.process.returncode, 0)
            server.start_again()
            self.assertEqual(sandbox.output("cat /dev/shm/k"), "kept")
            self.assertEqual(self.stop_earlier_build(server, program), "")
        finally:
            server.close()


class Sim(ServerTest):
    options = {"driver": "sim"}

    def test_it_says_what_it_is_and_runs_commands(self):
        version = self.api.ok("GET", "/v1/version")
        self.assertEqual(version["driver"], "sim")
        self.assertNotIn(version["accelerator"], ("kvm", "tcg"))
        with self.api.create() as sandbox:
            self.assertEqual(sandbox.output("echo no machine"), "no machine")
        self.assertIn('"sim"', self.server.log_tail(400))


if __name__ == "__main__":
    unittest.main()
