"""What the `space` command shows: JSON for programs from every command, signs of life on a terminal, completion of every word."""

import json
import os
import pty
import re
import subprocess
import tempfile
import unittest
from pathlib import Path

from space_server import BINARY, ROOT, ServerTest

BUDGET_S = 120


def paths_of_the_program():
    """Every command, "ls" or "template ls", as the completion script knows them."""
    script = subprocess.run([BINARY, "completion", "bash"], capture_output=True, text=True, check=True).stdout
    return [path for path in re.search(r'paths="([^"]*)"', script).group(1).split("|") if path], script


class Words(unittest.TestCase):
    def complete(self, script, line):
        words = line.split(" ")
        quoted = " ".join(f"'{word}'" for word in words)
        asked = subprocess.run(["bash", "-c", f'{script}\nCOMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; _space; echo "${{COMPREPLY[@]}}"'],
                               capture_output=True, text=True, env={**os.environ, "PATH": f"{BINARY.parent}:/usr/bin:/bin", "SPACE_URL": "http://127.0.0.1:1"})
        return asked.stdout.split()

    def test_every_group_of_commands_is_completed_at_every_depth(self):
        paths, script = paths_of_the_program()
        groups = {path.rsplit(" ", 1)[0] for path in paths if " " in path}
        self.assertGreaterEqual(groups, {"template", "ops", "key", "egress", "egress preset", "credential", "port", "checkpoints", "store", "e2b", "volume"})
        for group in groups:
            below = {path.rsplit(" ", 1)[1] for path in paths if path.rsplit(" ", 1)[0] == group and " " in path}
            self.assertLessEqual(below, set(self.complete(script, f"space {group} ")), group)
        self.assertIn("template", self.complete(script, "space --json temp"))
        self.assertEqual(self.complete(script, "space serve --pool-ready-"), ["--pool-ready-most"])

    def test_roles_and_their_options_are_no_words_for_people(self):
        _, script = paths_of_the_program()
        self.assertFalse({"node", "warden", "api"} & set(self.complete(script, "space ")))
        self.assertNotIn("--run-dir", self.complete(script, "space egress "))

    def test_every_command_explains_itself_and_stands_in_the_document(self):
        document = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
        paths, _ = paths_of_the_program()
        for path in paths:
            with self.subTest(path):
                shown = subprocess.run([BINARY, *path.split(), "--help"], capture_output=True, text=True)
                self.assertEqual(shown.returncode, 0)
                self.assertIn("--help", shown.stdout)
                self.assertRegex(document, rf"`[^`\n]*\b{re.escape(path.split()[0])}\b", "docs/cli.md does not have it")
                if " " in path:
                    self.assertRegex(document, rf"\b{re.escape(path.split()[-1])}\b", "docs/cli.md does not have it")


class Output(ServerTest):
    options = {"pool_ready": 0}

    def json_of(self, *words, status=0):
        """What the command prints with --json: every line of it a value."""
        done = self.cli("--json", *words)
        self.assertEqual(done.returncode, status, done.stderr)
        return [json.loads(line) for line in done.stdout.decode().splitlines()]

    def test_every_command_prints_json(self):
        (sandbox,) = self.json_of("create")
        id = sandbox["id"]
        with tempfile.TemporaryDirectory() as here:
            Path(here, "f").write_text("x")
            self.assertEqual(self.json_of("cp", f"{here}/f", f"{id}:f")[0]["files"], 1)
            self.assertEqual(self.json_of("cp", f"{id}:f", f"{here}/g")[0]["files"], 1)
        command = self.api.ok("POST", f"/v1/sandboxes/{id}/commands", {"command": "sleep 600"})["session"]
        (checkpoint,) = (answer["operation"]["checkpoint"] for answer in self.json_of("checkpoint", id))
        (key,) = self.json_of("key", "create", "--name", "of-json")
        (operation, *_) = self.json_of("ops", "ls")[0]
        for words in (("ls",), ("get", id), ("ps", id), ("kill", id, command), ("pause", id), ("resume", id), ("update", id, "-m", "a=b"), ("checkpoints", "ls"),
                      ("tree",), ("snapshot", id), ("egress", "get", id), ("credential", "ls"),
                      ("port", "open", id, "8080"), ("port", "ls", id), ("port", "close", id, "8080"), ("template", "ls"), ("template", "builds"),
                      ("ops", "get", operation["id"]), ("ops", "wait", operation["id"]), ("key", "list"), ("key", "revoke", key["id"]), ("version",),
                      ("egress", "preset", "ls"), ("checkpoints", "rm", checkpoint), ("rm", id)):
            with self.subTest(words):
                self.assertTrue(self.json_of(*words), "it printed nothing")
        (refused,) = self.json_of("egress", "explain", self.api.create().id, "GET", "https://one.test/", status=1)
        self.assertFalse(refused["allowed"])

    def test_a_command_in_a_sandbox_is_told_as_its_events(self):
        events = self.json_of("run", "--shell", "echo out; echo err >&2; exit 3", status=3)
        self.assertEqual([event["event"] for event in events][0], "start")
        self.assertEqual({event["event"]: event["data"].get("data") for event in events[1:-1]}, {"stdout": "b3V0Cg==", "stderr": "ZXJyCg=="})
        self.assertEqual((events[-1]["event"], events[-1]["data"]["code"]), ("exit", 3))

    def test_an_error_is_json_too_and_nothing_else(self):
        done = self.cli("--json", "get", "a" * 24)
        self.assertEqual((done.returncode, done.stdout), (66, b""))
        error = json.loads(done.stderr)["error"]
        self.assertEqual(error["code"], "sandbox_not_found")
        self.assertTrue(error["next"])

    def on_a_terminal(self, *words):
        """What a person sees on a terminal as standard error, and the exit status."""
        keeper, terminal = pty.openpty()
        process = subprocess.Popen([BINARY, *words], env={**self.server.environment(), "TERM": "xterm"}, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=terminal)
        os.close(terminal)
        seen = b""
        try:
            while piece := os.read(keeper, 65536):
                seen += piece
        except OSError:
            pass  # EIO: the other end is closed
        os.close(keeper)
        return seen.decode(), process.wait(60)

    def test_a_terminal_shows_a_spinner_and_a_pipe_does_not(self):
        seen, status = self.on_a_terminal("create")
        self.assertEqual(status, 0)
        self.assertRegex(seen, "[⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏] creating a sandbox")
        self.assertTrue(seen.endswith("\r\x1b[K"), "the spinner is still there")
        self.assertEqual(self.cli("create").stderr, b"")

    def test_a_copy_shows_a_bar_on_a_terminal_alone(self):
        with self.api.create() as sandbox, tempfile.TemporaryDirectory() as here:
            large = Path(here) / "large"
            large.write_bytes(b"x" * (24 << 20))
            seen, status = self.on_a_terminal("cp", str(large), f"{sandbox.id}:large")
            self.assertEqual(status, 0, seen)
            self.assertRegex(seen, r"large \[#{30}\] 100 %  24\.0 MiB")
            self.assertIn("1 file, 24.0 MiB", seen)
            self.assertEqual(self.cli("cp", f"{sandbox.id}:large", f"{here}/back").stderr, b"")

    def test_tables_have_heads_and_columns(self):
        with self.api.create(metadata={"of": "a table"}) as sandbox:
            head, *rows = self.cli("ls").stdout.decode().splitlines()
            self.assertEqual(head.split(), ["ID", "STATE", "TEMPLATE", "CPUS", "MEMORY", "DISK", "AGE", "METADATA"])
            (row,) = [row for row in rows if sandbox.id in row]
            self.assertEqual(row[head.index("STATE"):].split()[0], "running")


if __name__ == "__main__":
    unittest.main()
