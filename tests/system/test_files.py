"""Files: bytes go in and come out as they are, and replacing one keeps what it was."""

import hashlib
import io
import random
import unittest

from space_server import SandboxTest

BUDGET_S = 120


class Files(SandboxTest):
    def test_every_byte_value_survives(self):
        content = bytes(range(256)) * 17
        self.sandbox.write("/home/user/bytes", content)
        self.assertEqual(self.sandbox.read("/home/user/bytes"), content)
        self.assertEqual(self.sandbox.output("sha256sum < ~/bytes").split()[0], hashlib.sha256(content).hexdigest())

    def test_an_empty_file_is_a_file(self):
        self.sandbox.write("/home/user/empty", b"")
        self.assertEqual(self.sandbox.read("/home/user/empty"), b"")
        self.assertEqual(self.sandbox.stat("/home/user/empty")["size"], 0)

    def test_a_range_is_that_part(self):
        content = bytes(random.Random(2).randbytes(100_000))
        self.sandbox.write("/home/user/range", content)
        target = self.sandbox.files("content", "/home/user/range")
        for header, part in (("bytes=0-9", content[:10]), ("bytes=99990-", content[99990:]), ("bytes=-5", content[-5:]), ("bytes=50000-200000", content[50000:])):
            answer = self.api.call("GET", target, headers={"Range": header})
            self.assertEqual((answer.status, answer.body), (206, part), header)
        self.assertEqual(self.api.call("GET", target, headers={"Range": "bytes=100000-"}).status, 416)

    def test_head_tells_the_size_and_sends_nothing(self):
        self.sandbox.write("/home/user/head", b"12345")
        answer = self.api.call("HEAD", self.sandbox.files("content", "/home/user/head"))
        self.assertEqual((answer.status, answer.headers["Content-Length"], answer.body), (200, "5", b""))

    def test_a_file_of_sys_is_as_long_as_its_content(self):
        self.assertEqual(self.sandbox.read("/sys/class/net/lo/address"), b"00:00:00:00:00:00\n")

    def test_a_quarter_of_a_gigabyte_goes_both_ways(self):
        block = random.Random(3).randbytes(1 << 20)
        digest = hashlib.sha256()
        for _ in range(256):
            digest.update(block)

        class Blocks(io.RawIOBase):
            left = 256

            def read(self, size=-1):
                if self.left == 0:
                    return b""
                self.left -= 1
                return block

        target = self.sandbox.files("content", "/home/user/large")
        headers = {"Content-Type": "application/octet-stream", "Content-Length": str(256 << 20)}
        self.assertLess(self.api.call("PUT", target, body=Blocks(), headers=headers).status, 300)
        self.assertEqual(self.sandbox.output("sha256sum < ~/large").split()[0], digest.hexdigest())
        connection = self.api.connection()
        connection.request("GET", target, headers=self.api.headers())
        response, back, count = connection.getresponse(), hashlib.sha256(), 0
        while piece := response.read(1 << 20):
            back.update(piece)
            count += len(piece)
        connection.close()
        self.assertEqual((count, back.hexdigest()), (256 << 20, digest.hexdigest()))
        self.sandbox.run("rm ~/large")

    def test_a_new_file_belongs_to_the_user_and_has_the_mode_asked_for(self):
        self.sandbox.write("/home/user/script", b"#!/bin/sh\necho ran\n", mode="0750")
        self.assertEqual(self.sandbox.output("stat -c '%U %a' ~/script; ~/script").split(), ["user", "750", "ran"])

    def test_missing_folders_are_made_when_asked(self):
        self.sandbox.write("/home/user/a/b/c", b"x", parents=1)
        self.assertEqual(self.sandbox.output("stat -c %U ~/a/b"), "user")
        self.assertEqual(self.refused(lambda: self.sandbox.write("/home/user/no/such/c", b"x", parents=0))[0], 404)

    def test_replacing_keeps_mode_owner_and_follows_a_link(self):
        self.sandbox.output("cd ~ && echo old > f && chmod 0640 f && ln -s f by-link && ln f by-hard-link", user="user")
        self.sandbox.write("/home/user/by-link", b"new")
        facts = self.sandbox.output("cd ~ && cat f; echo; stat -c '%a %U' f; test -L by-link && echo link").split()
        self.assertEqual(facts, ["new", "640", "user", "link"])
        self.sandbox.write("/home/user/by-hard-link", b"newer")
        self.assertEqual(self.sandbox.output("cd ~ && cat f; echo; stat -c '%h %a' f").split(), ["newer", "2", "640"])

    def test_a_failed_upload_leaves_the_old_file_and_no_other(self):
        self.sandbox.output("mkdir -p ~/half && echo old > ~/half/f")
        connection = self.api.connection()
        connection.putrequest("PUT", self.sandbox.files("content", "/home/user/half/f"))
        for name, value in {**self.api.headers(), "Content-Length": "1000000"}.items():
            connection.putheader(name, value)
        connection.endheaders()
        connection.send(b"x" * 300_000)
        connection.close()
        self.server.wait_for(lambda: self.sandbox.output("ls -A ~/half") == "f", 20, "the half-written file to go")
        self.assertEqual(self.sandbox.read("/home/user/half/f"), b"old\n")

    def test_the_permissions_of_the_user_hold(self):
        self.assertEqual(self.refused(lambda: self.sandbox.read("/etc/shadow"))[0], 403)
        self.assertEqual(self.refused(lambda: self.sandbox.write("/etc/not-mine", b"x"))[0], 403)
        self.assertIn(b"root:", self.sandbox.read("/etc/shadow", user="root"))

    def test_what_is_not_a_file_is_refused(self):
        self.assertEqual(self.refused(lambda: self.sandbox.read("/home/user"))[0], 400)
        self.assertEqual(self.refused(lambda: self.sandbox.read("/no/such/file"))[0], 404)
        self.sandbox.output("mkfifo ~/pipe 2>/dev/null; true")
        self.assertIn(self.refused(lambda: self.sandbox.read("/home/user/pipe"))[0], (400, 409))

    def test_a_full_disk_is_an_error_that_says_so_and_commands_go_on(self):
        with self.api.create() as sandbox:
            sandbox.run("fallocate -l $(df --output=avail -B1 / | tail -1) /fill; dd if=/dev/zero of=/fill2 bs=1M; true", user="root", timeout=120)
            status, code = self.refused(lambda: sandbox.write("/home/user/more", b"x" * (64 << 20)))
            self.assertEqual((status, code), (507, "no_space"))
            self.assertEqual(sandbox.output("ls -A ~ | grep -c more; true"), "0")
            self.api.ok("DELETE", f"{sandbox.path}/files?path=/fill&user=root")
            sandbox.write("/home/user/more", b"now it fits")
            self.assertEqual(sandbox.output("cat ~/more"), "now it fits")


if __name__ == "__main__":
    unittest.main()
