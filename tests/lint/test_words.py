"""What must not stand in the repository: promises for later, paths of one machine, names of package servers."""

import re
import subprocess
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BINARY = {".png", ".jpg", ".gif", ".ico", ".bin", ".gz", ".zst", ".qcow2"}

# Split so that this file does not hold them.
LATER = ["TO" + "DO", "FIX" + "ME", "XX" + "X:", "HA" + "CK:"]
SERVERS = ["deb.debian" + ".org", "security.debian" + ".org", "snapshot.debian" + ".org", "files.pythonhosted" + ".org", "registry.npmjs" + ".org"]


def tracked_files():
    listing = subprocess.run(["git", "-C", ROOT, "ls-files", "-z"], capture_output=True, check=True).stdout
    for name in listing.decode().split("\0"):
        path = ROOT / name
        if name and path.is_file() and not path.is_symlink() and path.suffix not in BINARY:
            yield name, path.read_text(encoding="utf-8", errors="replace")


def lines_with(pattern):
    for name, text in tracked_files():
        for number, line in enumerate(text.splitlines(), 1):
            if re.search(pattern, line):
                yield f"{name}:{number}: {line.strip()[:120]}"


class ForbiddenWords(unittest.TestCase):
    def test_nothing_is_promised_for_later(self):
        self.assertEqual(list(lines_with(r"\b(" + "|".join(LATER) + r")")), [])

    def test_no_path_of_this_machine(self):
        here = {str(ROOT), str(Path.home() / "src")}
        parent = str(ROOT.parent)
        if parent.count("/") > 1:  # not "/", "/tmp", "/srv": those stand in documents for good reasons
            here.add(parent)
        self.assertEqual(list(lines_with("|".join(re.escape(path) + r"(/|\b)" for path in sorted(here)))), [])

    def test_no_package_server_is_named(self):
        self.assertEqual(list(lines_with("|".join(re.escape(name) for name in SERVERS))), [])


if __name__ == "__main__":
    unittest.main()
