"""The `space` command as people and scripts use it."""

import hashlib
import json
import os
import random
import signal
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

from space_server import BINARY, ServerTest, SpaceServer

BUDGET_S = 240


class CommandLine(ServerTest):
    def assertDone(self, done, status=0):
        self.assertEqual(done.returncode, status, done.stderr.decode(errors="replace"))
        return done.stdout.decode()

    def start(self, *words, **options):
        return subprocess.Popen([BINARY, *words], env=self.server.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)

    def nothing_left(self):
        self.server.wait_for(lambda: not [one for one in self.api.sandboxes() if one["state"] != "deleted"], 20, "no sandbox")

    def test_run_shows_output_live_ends_with_the_status_and_leaves_nothing(self):
        process = self.start("run", "base", "--", "sh", "-c", "echo one; sleep 2; echo two >&2; exit 7", stdin=subprocess.DEVNULL)
        self.assertEqual(process.stdout.readline(), b"one\n")
        first = time.monotonic()
        out, errors = process.communicate(timeout=30)
        self.assertGreater(time.monotonic() - first, 1, "the first line came before the end")
        self.assertEqual((process.returncode, out, errors), (7, b"", b"two\n"))
        self.nothing_left()

    def test_run_takes_piped_input(self):
        self.assertEqual(self.assertDone(self.cli("run", "wc", "-c", input=b"x" * 200_000)).strip(), "200000")
        content = random.Random(1).randbytes(5_000_000)
        self.assertEqual(self.assertDone(self.cli("run", "sha256sum", input=content)).split()[0], hashlib.sha256(content).hexdigest())

    def test_run_hands_on_signals_limits_and_its_own_errors(self):
        self.assertDone(self.cli("run", "--shell", "kill -TERM $$"), 128 + 15)
        self.assertDone(self.cli("run", "--time-limit", "1", "sleep", "60"), 124)
        self.assertDone(self.cli("run", "-t", "no-such-template", "true"), 125)
        self.assertDone(self.cli("run", "no-such-program"), 127)
        self.assertDone(self.cli("run", "/etc/passwd"), 126)
        self.assertDone(self.cli("run"), 64)
        self.assertDone(self.cli("nonsense"), 64)

    def test_control_c_ends_run_and_deletes_its_sandbox(self):
        process = self.start("run", "--shell", "echo started; sleep 600", stdin=subprocess.DEVNULL)
        self.assertEqual(process.stdout.readline(), b"started\n")
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=20)
        self.assertEqual(process.returncode, 130)
        self.nothing_left()

    def test_output_that_nobody_wants_ends_run(self):
        done = subprocess.run(f"'{BINARY}' run yes | head -n 3", shell=True, env=self.server.environment(), capture_output=True, timeout=60, stdin=subprocess.DEVNULL)
        self.assertEqual(done.stdout, b"y\ny\ny\n")
        self.nothing_left()

    def test_the_life_of_a_sandbox_by_hand(self):
        id = self.assertDone(self.cli("create", "-m", "made-by=test", "-e", "COLOUR=red")).strip()
        self.assertIn(id, self.assertDone(self.cli("ls")))
        self.assertEqual(self.assertDone(self.cli("ls", "-q", "-m", "made-by=test")).split(), [id])
        self.assertEqual(json.loads(self.assertDone(self.cli("get", id, "--json")))["id"], id)
        self.assertEqual(self.assertDone(self.cli("exec", id, "sh", "-c", "echo $COLOUR; exit 3"), 3), "red\n")
        self.assertDone(self.cli("pause", id))
        self.assertIn("paused", self.assertDone(self.cli("get", id)))
        self.assertDone(self.cli("resume", id))
        self.assertDone(self.cli("rm", id))
        self.assertDone(self.cli("get", id), 66)

    def test_ps_kill_logs(self):
        with self.api.create() as sandbox:
            command = sandbox.start("echo kept; echo also >&2; sleep 600")
            command.in_background().until(lambda result: b"kept" in result.stdout and b"also" in result.stderr)
            self.assertIn(command.session, self.assertDone(self.cli("ps", sandbox.id)))
            done = self.cli("logs", sandbox.id, command.session)
            self.assertEqual((done.returncode, done.stdout, done.stderr), (0, b"kept\n", b"also\n"))
            self.assertDone(self.cli("kill", sandbox.id, command.session, "-s", "TERM"))
            self.server.wait_for(lambda: command.get()["state"] == "exited", 10, "its end")
            self.assertIn("signal 15", self.assertDone(self.cli("ps", sandbox.id)))

    def test_cp_moves_files_and_folders_both_ways(self):
        with self.api.create() as sandbox, tempfile.TemporaryDirectory() as here:
            tree = Path(here) / "tree"
            (tree / "inner" / "ümlaut dir").mkdir(parents=True)
            (tree / "run.sh").write_text("#!/bin/sh\necho hi\n")
            (tree / "run.sh").chmod(0o755)
            (tree / "inner" / "empty").touch()
            (tree / "inner" / "ümlaut dir" / "data").write_bytes(bytes(range(256)) * 5000)
            (tree / "link").symlink_to("inner/empty")
            self.assertDone(self.cli("cp", str(tree), f"{sandbox.id}:/home/user/"))
            self.assertEqual(sandbox.output("~/tree/run.sh; readlink ~/tree/link; stat -c %U ~/tree/inner").split(), ["hi", "inner/empty", "user"])
            self.assertDone(self.cli("cp", f"{sandbox.id}:/home/user/tree", f"{here}/back"))
            difference = subprocess.run(["diff", "-r", "--no-dereference", tree, f"{here}/back"], capture_output=True)
            self.assertEqual(difference.returncode, 0, difference.stdout)
            self.assertEqual((Path(here) / "back" / "run.sh").stat().st_mode & 0o777, 0o755)
            self.assertDone(self.cli("cp", f"{here}/tree/run.sh", f"{sandbox.id}:renamed"))
            self.assertEqual(sandbox.output("cat ~/renamed"), "#!/bin/sh\necho hi")
            self.assertDone(self.cli("cp", f"{sandbox.id}:/no/such", here), 66)
            self.assertDone(self.cli("cp", here, here), 65)

    def test_cp_keeps_names_and_links_of_any_bytes(self):
        with self.api.create() as sandbox, tempfile.TemporaryDirectory() as here:
            sandbox.output("mkdir -p ~/raw && cd ~/raw && echo x > $'caf\\xe9' && ln -s $'caf\\xe9' link && ln -s plain $'l\\xef'")
            self.assertDone(self.cli("cp", f"{sandbox.id}:/home/user/raw", f"{here}/raw"))
            raw = os.fsencode(f"{here}/raw")
            self.assertEqual(sorted(os.listdir(raw)), [b"caf\xe9", b"link", b"l\xef"])
            self.assertEqual((os.readlink(raw + b"/link"), os.readlink(raw + b"/l\xef")), (b"caf\xe9", b"plain"))
            self.assertEqual((Path(here) / "raw" / "link").read_text(), "x\n")
            # JSON has no place for such bytes in a command, so these links are named and everything else goes on.
            (Path(here) / "raw" / "good").symlink_to("plain")
            done = self.cli("cp", f"{here}/raw", f"{sandbox.id}:/home/user/again")
            self.assertDone(done, 1)
            self.assertEqual(sandbox.output("cd ~/again && ls -A | wc -l && readlink good && cat caf*").split(), ["2", "plain", "x"])
            for name in (rb"raw/link: ", rb"raw/l\xef: "):
                self.assertIn(name, done.stderr)

    def test_cp_into_a_sandbox_goes_on_after_what_fails(self):
        with self.api.create() as sandbox, tempfile.TemporaryDirectory() as here:
            tree = Path(here) / "tree"
            (tree / "inner").mkdir(parents=True)
            for name in ("a", "inner/b", "taken", "z"):
                (tree / name).write_text(name)
            os.symlink(b"caf\xe9", tree / "link")
            deep = tree / Path(*["d" * 200] * 18)  # a path that is short enough here and too long there
            deep.mkdir(parents=True)
            (deep / "file").write_text("never there")
            into = "/home/user/" + "/".join(["p" * 200] * 3)
            sandbox.output(f"mkdir -p {into}/tree/taken/folder")
            done = self.cli("cp", str(tree), f"{sandbox.id}:{into}/")
            self.assertDone(done, 1)
            told = done.stderr.decode()
            self.assertRegex(told, r"(?m)^space: \S*/tree/taken: .+ \(is_a_directory\)$")
            self.assertRegex(told, r"(?m)^space: \S*/tree/link: .+ \(link_not_utf8\)$")
            self.assertRegex(told, r"(?m)^space: \S*/tree/d[d/]+: .+ \(invalid_field\)$")
            self.assertRegex(told, r"(?m)^space: 3 could not be copied; copied: 3 files, ")
            self.assertEqual(sandbox.output(f"cd {into}/tree && cat a inner/b z && ls -d taken/folder"), "ainner/bz" + "taken/folder")
            done = self.cli("--json", "cp", str(tree), f"{sandbox.id}:{into}/")
            self.assertEqual((done.returncode, done.stderr), (1, b""))
            result = json.loads(done.stdout)
            self.assertEqual((result["files"], result["failed"]), (3, 3))
            failures = {failure["code"]: failure for failure in result["failures"]}
            self.assertEqual(set(failures), {"is_a_directory", "link_not_utf8", "invalid_field"})
            self.assertEqual(failures["is_a_directory"]["path"], str(tree / "taken"))
            for failure in result["failures"]:
                self.assertTrue(failure["message"] and failure["next"], failure)

    def test_cp_out_of_a_sandbox_goes_on_after_what_fails(self):
        with tempfile.TemporaryDirectory() as here, self.api.create() as sandbox:
            sandbox.output("mkdir -p ~/out/closed ~/out/open && cd ~/out && echo a > a && echo b > b && echo c > closed/c && echo d > open/d && ln -s a link")
            sandbox.output("cd /home/user/out && chown root b closed && chmod go= b closed", user="root")
            done = self.cli("--json", "cp", f"{sandbox.id}:/home/user/out", here)
            self.assertEqual((done.returncode, done.stderr), (1, b""))
            result = json.loads(done.stdout)
            self.assertEqual((result["files"], result["failed"]), (3, 2))
            self.assertEqual(sorted((failure["path"], failure["code"]) for failure in result["failures"]),
                             [("/home/user/out/b", "access_denied"), ("/home/user/out/closed", "access_denied")])
            out = Path(here) / "out"
            self.assertEqual(((out / "a").read_text(), (out / "open" / "d").read_text(), os.readlink(out / "link")), ("a\n", "d\n", "a"))
            self.assertFalse((out / "b").exists())
            told = self.cli("cp", f"{sandbox.id}:/home/user/out", f"{here}/again")
            self.assertDone(told, 1)
            self.assertRegex(told.stderr.decode(), r"(?m)^space: /home/user/out/b: .+ \(access_denied\)$")
            # One file alone has the status of its own error.
            self.assertDone(self.cli("cp", f"{sandbox.id}:/home/user/out/b", here), 77)

    def test_cp_ends_with_its_sandbox(self):
        with tempfile.TemporaryDirectory() as here, self.api.create() as sandbox:
            sandbox.output("mkdir ~/many && cd ~/many && seq -f 'f%05g' 1 20000 | xargs touch")
            process = self.start("cp", f"{sandbox.id}:/home/user/many", here)
            self.server.wait_for(lambda: os.path.isdir(f"{here}/many") and os.listdir(f"{here}/many"), 60, "the first file")
            self.api.delete(sandbox.id)
            _, errors = process.communicate(timeout=60)
            self.assertGreater(process.returncode, 1, errors)
            self.assertLess(len(errors.splitlines()), 20, errors)

    def test_a_hostile_guest_cannot_write_outside_the_folder_that_cp_fills(self):
        with self.api.create() as sandbox, tempfile.TemporaryDirectory() as here:
            sandbox.output("mkdir -p ~/trap/d && ln -s ../../escaped ~/trap/a-link && echo x > ~/trap/d/file && ln -s / ~/trap/root")
            (Path(here) / "into").mkdir()
            self.assertDone(self.cli("cp", f"{sandbox.id}:/home/user/trap", f"{here}/into/"))
            self.assertEqual(sorted(os.listdir(here)), ["into"])
            self.assertTrue((Path(here) / "into" / "trap" / "a-link").is_symlink())

    def test_shell_is_a_terminal_that_comes_back_as_it_was(self):
        import pty
        import termios

        with self.api.create() as sandbox:
            keeper, terminal = pty.openpty()
            termios.tcsetwinsize(terminal, (33, 111))
            before = termios.tcgetattr(terminal)
            process = subprocess.Popen([BINARY, "shell", sandbox.id], env={**self.server.environment(), "TERM": "xterm"}, stdin=terminal, stdout=terminal, stderr=terminal)
            seen = b""

            def until(mark, limit=20):
                nonlocal seen
                stop = time.monotonic() + limit
                os.set_blocking(keeper, False)
                while mark not in seen:
                    self.assertLess(time.monotonic(), stop, seen)
                    try:
                        seen += os.read(keeper, 65536)
                    except BlockingIOError:
                        time.sleep(0.02)

            until(b"$ ")
            os.write(keeper, b"stty size\n")
            until(b"33 111")
            termios.tcsetwinsize(terminal, (20, 60))
            process.send_signal(signal.SIGWINCH)
            time.sleep(0.5)
            os.write(keeper, b"stty size\n")
            until(b"20 60")
            os.write(keeper, b"exit 6\n")
            process.wait(20)
            self.assertEqual(process.returncode, 6)
            self.assertEqual(termios.tcgetattr(terminal), before)
            os.close(keeper)
            os.close(terminal)

    def test_operations_templates_keys_version(self):
        self.assertIn("base:", self.assertDone(self.cli("template", "ls")))
        with self.api.create() as sandbox:
            operations = json.loads(self.assertDone(self.cli("ops", "ls", "--sandbox", sandbox.id, "--json")))
            self.assertEqual([operation["kind"] for operation in operations], ["create"])
            self.assertIn("STEP", self.assertDone(self.cli("ops", "get", operations[0]["id"])))
            self.assertDone(self.cli("ops", "wait", operations[0]["id"]))
        key = self.assertDone(self.cli("key", "create", "--name", "cli")).strip()
        self.assertTrue(key.startswith("sk_"))
        listed = json.loads(self.assertDone(self.cli("key", "list", "--json")))
        self.assertDone(self.cli("key", "revoke", next(one["id"] for one in listed if one["name"] == "cli")))
        version = json.loads(self.assertDone(self.cli("version", "--json")))
        self.assertEqual(version["client"], version["server"]["version"])

    def test_errors_name_the_code_and_the_next_step(self):
        done = self.cli("get", "a" * 24)
        self.assertEqual(done.returncode, 66)
        self.assertRegex(done.stderr.decode(), r"^space: .+ \(sandbox_not_found\)\n")
        away = subprocess.run([BINARY, "--url", "http://127.0.0.1:1", "ls"], capture_output=True, timeout=30)
        self.assertEqual(away.returncode, 69)
        self.assertIn(b"http://127.0.0.1:1", away.stderr)
        self.assertIn(b"space serve", away.stderr)
        wrong = subprocess.run([BINARY, "--url", self.server.url, "ls"], capture_output=True, timeout=30, env={**os.environ, "SPACE_API_KEY": "sk_wrong"})
        self.assertEqual(wrong.returncode, 77)

    def test_completion_scripts_are_valid(self):
        for shell in ("bash", "zsh", "fish"):
            self.assertIn("space", self.assertDone(self.cli("completion", shell)))
        script = self.assertDone(self.cli("completion", "bash"))
        self.assertEqual(subprocess.run(["bash", "-n"], input=script.encode()).returncode, 0)
        asked = subprocess.run(["bash", "-c", script + '\nCOMP_WORDS=(space temp); COMP_CWORD=1; _space; echo "${COMPREPLY[@]}"; '
                                'COMP_WORDS=(space template ""); COMP_CWORD=2; _space; echo "${COMPREPLY[@]}"'], capture_output=True, text=True)
        self.assertEqual(asked.stdout.splitlines()[0], "template", asked.stderr)
        self.assertIn("build", asked.stdout.splitlines()[1])

    def test_events_are_followed(self):
        process = self.start("events", "--json", stdin=subprocess.DEVNULL)
        time.sleep(0.5)
        with self.api.create() as sandbox:
            pass
        kinds = []
        while "sandbox.deleted" not in kinds:
            event = json.loads(process.stdout.readline())
            if event["data"].get("sandbox") == sandbox.id:
                kinds.append(event["event"])
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=10)
        self.assertIn("sandbox.running", kinds)


class WhileTheSandboxIsMade(unittest.TestCase):
    """On a server without bases, where the first create has to wait for one."""

    def test_control_c_leaves_no_sandbox(self):
        with tempfile.TemporaryDirectory() as bases:
            os.chmod(bases, 0o755)
            server = SpaceServer(pool_ready=0, pool_spawned=0, bases_dir=bases).start()
            try:
                for stop, memory in ((signal.SIGINT, "300"), (signal.SIGTERM, "320")):
                    with self.subTest(stop.name):
                        process = subprocess.Popen([BINARY, "run", "--memory", memory, "--shell", "echo started"], env=server.environment(),
                                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
                        alive = lambda: [one for one in server.api.sandboxes() if one["state"] != "deleted"]
                        (sandbox,) = server.wait_for(alive, 20, "its sandbox")
                        self.assertEqual(sandbox["state"], "creating")
                        process.send_signal(stop)
                        out, errors = process.communicate(timeout=20)
                        self.assertEqual((process.returncode, out), (130, b""), errors)
                        self.assertIn(sandbox["id"].encode(), errors)
                        server.wait_for(lambda: not alive(), 60, "no sandbox")
            finally:
                server.close()


if __name__ == "__main__":
    unittest.main()
