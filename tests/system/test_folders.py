"""Folders: names of any kind, lists in pages, moves, removes, and changes as they happen."""

import base64
import threading
import time
import unittest
import urllib.parse

from api_client import ApiError
from space_server import SandboxTest

ODD_NAMES = ["with space", "ümlaut", "日本", "-dash", "new\nline", "quote'\"", "back\\slash", "%41", "a&b=c?d#e", ".hidden", "x" * 255]


class Folders(SandboxTest):
    def test_names_of_any_kind(self):
        for number, name in enumerate(ODD_NAMES):
            content = f"file {number}".encode()
            self.sandbox.write(f"/home/user/odd/{name}", content, parents=1)
            self.assertEqual(self.sandbox.read(f"/home/user/odd/{name}"), content, name)
        self.assertEqual(sorted(entry["name"] for entry in self.sandbox.list("/home/user/odd")), sorted(ODD_NAMES))

    def test_a_name_that_is_not_utf8_comes_in_base64_beside_a_readable_one(self):
        self.sandbox.output("mkdir -p ~/raw && cd ~/raw && touch $'caf\\xe9'")
        (entry,) = self.sandbox.list("/home/user/raw")
        raw = base64.b64decode(entry["name_base64"])
        self.assertEqual(raw, b"caf\xe9")
        target = f"{self.sandbox.path}/files/content?path=" + urllib.parse.quote(b"/home/user/raw/" + raw)
        self.assertEqual(self.api.call("GET", target).status, 200)

    def test_an_entry_says_what_it_is(self):
        self.sandbox.output("mkdir -p ~/kinds/d && cd ~/kinds && echo 12345 > f && chmod 0604 f && ln -s f l && mkfifo p")
        entries = {entry["name"]: entry for entry in self.sandbox.list("/home/user/kinds")}
        self.assertEqual({name: entry["type"] for name, entry in entries.items()}, {"d": "dir", "f": "file", "l": "symlink", "p": "other"})
        self.assertEqual((entries["f"]["size"], entries["f"]["mode"], entries["f"]["user"], entries["f"]["uid"]), (6, "0604", "user", 1000))
        self.assertEqual(entries["l"]["target"], "f")
        self.assertLess(abs(entries["f"]["mtime_ms"] / 1000 - time.time()), 60)

    def test_a_long_list_comes_in_pages_each_name_once(self):
        self.sandbox.output("mkdir -p ~/many && cd ~/many && seq -f 'f%04g' 1 250 | xargs touch")
        names, after, pages = [], "", 0
        while True:
            query = {"limit": 100, **({"after": after} if after else {})}
            page = self.api.ok("GET", self.sandbox.files("list", "/home/user/many", **query))
            names += [entry["name"] for entry in page["entries"]]
            pages += 1
            after = page.get("next")
            if not after:
                break
        self.assertEqual((pages, names), (3, [f"f{number:04}" for number in range(1, 251)]))

    def test_depth_shows_what_is_below(self):
        self.sandbox.output("mkdir -p ~/deep/a/b && touch ~/deep/1 ~/deep/a/2 ~/deep/a/b/3")
        paths = lambda depth: {entry["path"].removeprefix("/home/user/deep/") for entry in self.sandbox.list("/home/user/deep", depth=depth)}
        self.assertEqual(paths(1), {"1", "a"})
        self.assertEqual(paths(2), {"1", "a", "a/2", "a/b"})

    def test_make_move_remove(self):
        files = f"{self.sandbox.path}/files"
        self.api.ok("POST", f"{files}/mkdir", {"path": "/home/user/new/inner", "parents": True, "mode": "0750"})
        self.assertEqual(self.sandbox.stat("/home/user/new/inner")["type"], "dir")
        self.sandbox.write("/home/user/new/f", b"x")
        self.api.ok("POST", f"{files}/move", {"from": "/home/user/new/f", "to": "/home/user/new/inner/g"})
        self.assertEqual(self.sandbox.read("/home/user/new/inner/g"), b"x")
        self.assertRefused(self.api.call("DELETE", f"{files}?path=/home/user/new"), 409, "not_empty")
        self.api.ok("DELETE", f"{files}?path=/home/user/new&recursive=1")
        self.assertEqual(self.api.call("GET", self.sandbox.files("stat", "/home/user/new")).status, 404)
        self.assertEqual(self.api.call("DELETE", f"{files}?path=/home/user/new").status, 404)

    def test_removing_a_tree_does_not_follow_links_out_of_it(self):
        self.sandbox.output("mkdir -p ~/outside ~/tree && touch ~/outside/f && ln -s ../outside ~/tree/link")
        self.api.ok("DELETE", f"{self.sandbox.path}/files?path=/home/user/tree&recursive=1")
        self.assertEqual(self.sandbox.output("ls ~/outside"), "f")

    def test_changes_are_told_as_they_happen(self):
        self.sandbox.output("mkdir -p ~/watched")
        stream = self.api.events(self.sandbox.files("watch", "/home/user/watched"))
        seen, ready = [], threading.Event()

        def read():
            try:
                for event in stream:
                    seen.append((event.kind, event.data.get("path", "").rsplit("/", 1)[-1]))
                    if event.kind == "removed":
                        ready.set()
                        return
            except OSError:
                pass

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        time.sleep(0.3)
        self.sandbox.output("cd ~/watched && echo 1 > a && mv a b && rm b")
        self.assertTrue(ready.wait(10), seen)
        stream.close()
        self.assertIn(("created", "a"), seen)
        self.assertTrue({kind for kind, _ in seen} & {"moved"}, seen)
        self.assertIn(("removed", "b"), seen)

    def test_paths_that_are_none_are_refused(self):
        for path in ("", "a\0b"):
            with self.assertRaises(ApiError) as caught:
                self.sandbox.stat(path)
            self.assertEqual(caught.exception.status, 400)

    def test_many_small_files_at_once(self):
        threads = [threading.Thread(target=self.sandbox.write, args=(f"/home/user/batch/{number // 10}/{number}", str(number).encode()), kwargs={"parents": 1})
                   for number in range(60)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(self.sandbox.output("cat $(find ~/batch -type f) | wc -c"), str(sum(len(str(number)) for number in range(60))))


if __name__ == "__main__":
    unittest.main()
