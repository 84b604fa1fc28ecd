"""Ways to serve: with TLS on an address for others, without TLS nowhere but on loopback, once per run folder, and without machines for load tests."""

import socket
import ssl
import subprocess
import tempfile
import unittest
from pathlib import Path

from api_client import Api
from space_server import BINARY, ServerTest, SpaceServer


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
