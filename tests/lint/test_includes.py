"""The folders of src/ stand on each other in one direction only (docs/architecture.md, "Code map")."""

import re
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# Folder → the folders whose headers it may include, beside its own.
MAY_INCLUDE = {
    "base": set(),
    "confine": {"base"},
    "http": {"base"},
    "wire": {"base", "http"},
    "agent": {"base", "http", "wire"},
    "net": {"base", "http", "wire"},
    "warden": {"base", "confine", "wire", "net"},
    "snapshot": {"base", "http", "wire"},
    "vmm": {"base", "http", "wire", "net"},
    "template": {"base", "http", "wire", "vmm", "net", "snapshot"},
    "node": {"base", "http", "wire", "vmm", "net", "snapshot", "template"},
    "control": {"base", "http", "wire"},
    "build": {"base", "http", "wire", "control"},
    "api": {"base", "http", "wire", "control", "build", "e2b"},
    "e2b": {"base", "http", "wire", "control", "build"},
    "egress": {"base", "confine", "http", "wire"},
    # The command starts the roles through their entry headers, builds templates and keeps the store in order; otherwise it is a client.
    "cli": {"base", "confine", "http", "template", "snapshot"},
}
ROLE_ENTRIES = {"api/api.h", "node/node.h", "warden/warden.h", "egress/egress.h"}
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)


def includes_of(source):
    return INCLUDE.findall(source.read_text(encoding="utf-8"))


class IncludeDirections(unittest.TestCase):
    def sources(self):
        for source in sorted((ROOT / "src").rglob("*")):
            if source.suffix in (".h", ".cc"):
                yield source

    def test_every_folder_is_known(self):
        folders = {entry.name for entry in (ROOT / "src").iterdir() if entry.is_dir()}
        self.assertLessEqual(folders, set(MAY_INCLUDE), "a new folder needs its place in MAY_INCLUDE and in the code map")

    def test_no_include_goes_against_the_direction(self):
        wrong = []
        for source in self.sources():
            folder = source.relative_to(ROOT / "src").parts[0]
            for header in includes_of(source):
                target = header.split("/")[0]
                if "/" not in header or target == folder or target in MAY_INCLUDE[folder]:
                    continue
                if folder == "cli" and header in ROLE_ENTRIES:
                    continue
                wrong.append(f"{source.relative_to(ROOT)} includes {header}")
        self.assertEqual(wrong, [])

    def test_quoted_includes_name_their_folder_and_exist(self):
        wrong = []
        for source in self.sources():
            for header in includes_of(source):
                if "/" not in header or not (ROOT / "src" / header).is_file():
                    wrong.append(f'{source.relative_to(ROOT)}: "{header}"')
        self.assertEqual(wrong, [])

    def test_every_folder_says_what_it_is(self):
        missing = [entry.name for entry in (ROOT / "src").iterdir() if entry.is_dir() and not (entry / "README.md").is_file() and any(entry.glob("*.cc"))]
        self.assertEqual(missing, [], "a folder has a README.md of three lines: what it owns, whom it may call")


if __name__ == "__main__":
    unittest.main()
