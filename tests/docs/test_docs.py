"""The commands in the documents run as they are printed.

A fenced block of `sh` right below the line `<!-- test -->` is run by bash, all blocks of one page in one shell and in their order,
against a server of its own, and nothing that is not on the page: what a reader needs stands there. `space` is the program just built;
the blocks find the server by SPACE_URL and SPACE_KEY_FILE, its process by SPACE_RUN_DIR; when they kill it, it is started again. A block that
no test runs says why: `<!-- not run: REASON -->`."""

import os
import re
import subprocess
import tempfile
import time
import unittest

from space_server import BINARY, ROOT, ServerTest

BUDGET_S = 180
BLOCK = re.compile(r"^<!-- test -->\n+```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)
UNMARKED = re.compile(r"(?<! -->\n)^```sh\n(.*?)$", re.MULTILINE)
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"^    (?:sudo )?((?:space |\./|bench/|scripts/|tests/).*)$", re.MULTILINE)
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")


def pages():
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


class Documents(ServerTest):
    def finish(self, shell, limit=120):
        """The shell's exit status. Here and in no thread: a server ends with the thread that started it."""
        until = time.monotonic() + limit
        while shell.poll() is None:
            if time.monotonic() > until:
                shell.kill()
                shell.wait()
                return f"over {limit} s"
            if self.server.process.poll() is not None:
                self.server.start_again()
            time.sleep(0.05)
        return shell.returncode

    def test_every_marked_block_runs(self):
        tried = 0
        for page in pages():
            blocks = BLOCK.findall(page.read_text(encoding="utf-8"))
            if not blocks:
                continue
            tried += len(blocks)
            with self.subTest(page=page.name), tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile() as output:
                environment = {**self.server.environment(), "PATH": f"{BINARY.parent}:{os.environ['PATH']}", "REPOSITORY": str(ROOT), "SPACE_RUN_DIR": str(self.server.run_dir)}
                shell = subprocess.Popen(["bash", "-euo", "pipefail", "-c", "\n".join(blocks)], cwd=folder, env=environment, stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
                status = self.finish(shell)
                output.seek(0)
                self.assertEqual(status, 0, output.read().decode(errors="replace"))
        self.assertGreater(tried, 0)


class Pages(unittest.TestCase):
    def test_every_block_of_commands_is_run_or_says_why_not(self):
        self.assertEqual([f"{page.name}: {line}" for page in pages() for line in UNMARKED.findall(page.read_text(encoding="utf-8"))], [])

    def test_no_command_hides_in_an_indented_block(self):
        self.assertEqual([f"{page.name}: {line}" for page in pages() for line in INDENTED.findall(FENCED.sub("", page.read_text(encoding="utf-8")))], [])

    def test_links_between_files_lead_somewhere(self):
        broken = []
        for page in [*pages(), *(ROOT / name for name in ("CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"))]:
            if page.is_file():
                broken += [f"{page.name}: {target}" for target in LINK.findall(page.read_text(encoding="utf-8")) if not (page.parent / target).exists()]
        self.assertEqual(broken, [])


if __name__ == "__main__":
    unittest.main()
