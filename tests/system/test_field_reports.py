"""Faults that users of other platforms met and that no other file has: the numbers are those of the reports.
The rest of them stand where their subject is: test_command_ends (P04, P07, P13, P16), test_stdin and test_pty (T01, T04), test_sessions (S01),
test_files (F02, F05; D03's uploads and deletes), test_api and test_folders (M01), test_late_clients (P01)."""

import random
import threading
import unittest
from pathlib import Path
from tempfile import TemporaryDirectory

from api_client import Sandbox
from space_server import ServerTest

BUDGET_S = 220
# As root, who may take what is reserved too: until not one block of 4 KiB is left.
FILL = "n=0; for size in 1G 64M 4M 256K 4K; do while fallocate -l $size /fill.$n 2>/dev/null; do n=$((n+1)); done; rm -f /fill.$n; done; sync"


class FieldReports(ServerTest):
    def test_p10_what_a_shell_reads_at_its_start_holds_no_command_up(self):
        with self.api.create() as sandbox:
            greedy = "read x; sleep 30; echo from the profile"
            for name in (".bashrc", ".bash_profile", ".profile", ".zshenv"):
                sandbox.write(f"/home/user/{name}", greedy.encode() + b"\n")
            for verbs in (("pause", "resume"), ("suspend", "wake"), ("stop", "start")):
                for verb in verbs:
                    self.assertEqual(sandbox.change(verb)["state"], "succeeded", verb)
                with self.subTest(after=verbs):
                    result = sandbox.run("echo ran", time_limit_ms=20_000)
                    self.assertEqual((result.stdout, result.code, result.timed_out), (b"ran\n", 0, False))
                    command = sandbox.start("cat", stdin=True, time_limit_ms=20_000)
                    running = command.in_background()
                    running.until(lambda result: result.events)
                    command.stdin(b"not for the profile\n", close=True)
                    self.assertEqual(running.wait(30).stdout, b"not for the profile\n")

    def test_s04_no_call_hangs_however_many_clients_leave(self):
        random.seed(4)
        with self.api.create() as sandbox:
            wrong, done = [], []

            def calls():
                for number in range(25):
                    command = sandbox.start(["sh", "-c", f"echo {number}; exit {number % 7}"])
                    if random.random() < 0.3:  # a client that leaves at once
                        command.attach().close()
                        continue
                    result = command.finish(timeout=60)
                    done.append(result.seconds)
                    if (result.stdout, result.code) != (f"{number}\n".encode(), number % 7):
                        wrong.append((number, result.stdout, result.exit))

            threads = [threading.Thread(target=calls) for _ in range(20)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(150)
            self.assertEqual((wrong, [thread.is_alive() for thread in threads].count(True)), ([], 0))
            self.assertGreater(len(done), 250)
            left = [one for one in self.api.ok("GET", f"{sandbox.path}/commands")["commands"] if one["state"] == "running"]
            self.assertEqual(left, [])

    def test_f08_a_folder_of_many_files_arrives_and_what_cannot_is_named(self):
        with self.api.create() as sandbox, TemporaryDirectory() as here:
            tree = Path(here) / "tree"
            for number in range(600):
                file = tree / str(number % 7) / str(number % 3) / f"f{number}"
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(b"" if number == 0 else f"file {number}".encode())
            (tree / "large").write_bytes(bytes(40 << 20))
            done = self.cli("cp", str(tree), f"{sandbox.id}:")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(sandbox.output("cd tree && find . -type f | wc -l && stat -c %s large && cat 1/1/f274").split(), ["601", str(40 << 20), "file", "274"])
            sandbox.output("rm tree/2/2/f317 && mkdir -p tree/2/2/f317/in-the-way")
            done = self.cli("cp", f"{tree}/2", f"{sandbox.id}:tree/")
            self.assertNotEqual(done.returncode, 0)
            self.assertRegex(done.stderr.decode(), r"f317.*\(\w+\)", "it does not say which file, and why")

    def test_d03_with_a_full_disk_it_rests_is_kept_and_comes_back(self):
        look = "cat ~/kept; head -c 100000 /dev/zero > ~/more 2>/dev/null || echo full"
        with self.api.create() as sandbox:
            sandbox.output("echo kept > ~/kept; echo memory > /dev/shm/m")
            sandbox.output(FILL, user="root", timeout=120)
            self.assertEqual(sandbox.output(look).split(), ["kept", "full"])
            points = {}
            for verb in ("pause", "resume", "suspend", "wake", "checkpoint", "snapshot"):
                with self.subTest(verb=verb):
                    operation = sandbox.change(verb)
                    self.assertEqual(operation["state"], "succeeded", operation)
                    points[verb] = operation.get("checkpoint")
                    if verb not in ("pause", "suspend"):
                        self.assertEqual(sandbox.output(f"cat /dev/shm/m; {look}").split(), ["memory", "kept", "full"])
            with self.subTest(verb="fork"):  # whose names are written to the full disk
                child = Sandbox(self.api, sandbox.change("fork")["children"][0])
                self.assertEqual(child.output(look).split(), ["kept", "full"])
                self.assertIn(child.output("hostname"), child.output("cat /etc/hosts"))
                self.api.delete(child.id)
            for verb, expected in (("checkpoint", ["memory", "kept", "full"]), ("snapshot", ["kept", "full"])):  # the second one boots
                with self.subTest(restore=verb):
                    operation = sandbox.change("restore", {"checkpoint": points[verb]})
                    self.assertEqual(operation["state"], "succeeded", operation)
                    self.assertEqual(sandbox.output(f"cat /dev/shm/m 2>/dev/null; {look}").split(), expected)
            sandbox.output("rm -f /fill.* /home/user/more", user="root")
            sandbox.write("/home/user/fits", bytes(1 << 20))
            for verb in ("suspend", "wake"):
                self.assertEqual(sandbox.change(verb)["state"], "succeeded", verb)
            self.assertEqual(sandbox.output("cat ~/kept; stat -c %s ~/fits").split(), ["kept", str(1 << 20)])
            for verb in ("checkpoint", "snapshot"):
                self.api.ok("DELETE", f"/v1/checkpoints/{points[verb]}")


if __name__ == "__main__":
    unittest.main()
