"""Eight forks of one running sandbox share their past and nothing else: not one random byte, not one token, from the first instant on."""

import struct
import unittest

from api_client import Sandbox
from space_server import ServerTest

BUDGET_S = 120
CHILDREN = 8
# Draws without a pause, across the save and the load. A load shows in a file; 200 draws later it ends, so that the children do not hold
# each other up.
DRAW = '''
import os, secrets, struct, time, uuid
out = open("/dev/shm/drawn", "ab", buffering=0)
urandom = open("/dev/urandom", "rb", buffering=0)
load = lambda: open("/run/space/load").read()
drawn = lambda draw: struct.pack("d", time.monotonic()) + draw(16)
before, left = load(), 200
while left:
    out.write(drawn(os.getrandom) + drawn(urandom.read) + drawn(secrets.token_bytes) + drawn(lambda _: uuid.uuid4().bytes))
    if load() != before:
        left -= 1
open("/dev/shm/done", "w").close()
'''
RECORD = 8 + 16  # one draw: when it began, and what it got


class Apart(ServerTest):
    options = {"pool_ready": 0, "pool_spawned": 0}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.parent = cls.api.create(env={"A": "1"})
        cls.parent.write("/home/user/draw.py", DRAW.encode())
        cls.mine = cls.parent.start("sleep 1000", stdin=True)
        cls.mine.in_background()
        cls.drawing = cls.parent.start(["python3", "/home/user/draw.py"])
        cls.drawing.in_background()
        cls.parent.output("while ! [ -s /dev/shm/drawn ]; do sleep 0.1; done")
        operation = cls.parent.change("fork", {"count": CHILDREN})
        assert operation["state"] == "succeeded", operation
        cls.children = [Sandbox(cls.api, id) for id in operation["children"]]
        cls.all = [cls.parent, *cls.children]

    def drawn(self, sandbox):
        sandbox.output("for i in $(seq 300); do [ -e /dev/shm/done ] && exit 0; sleep 0.1; done; exit 1")
        content = sandbox.read("/dev/shm/drawn")
        return [content[at:at + RECORD] for at in range(0, len(content) - RECORD + 1, RECORD)]

    def test_no_two_draw_the_same_bytes_not_even_in_the_first_50_ms(self):
        drawn = [self.drawn(one) for one in self.all]
        # What began at the same nanosecond in all of them began before the save, and its word may be in all of them: the freeze
        # can fall between a draw and its being written down.
        common = 0
        while all(common < len(records) for records in drawn) and len({records[common][:8] for records in drawn}) == 1:
            common += 1
        self.assertGreater(common, 80, "they have the past in common")
        seen = {}
        for number, records in enumerate(drawn):
            # What is drawn next is the first thing that the program does after its thaw: the first 50 ms are among it.
            self.assertGreater(len(records), common + 600)
            for at, record in enumerate(records[common:]):
                word = record[8:]
                self.assertNotIn(word, seen, (number, at, seen.get(word)))
                seen[word] = (number, at)

    def test_programs_started_afterwards_draw_apart_too(self):
        program = "import os, secrets, random, uuid; print(os.urandom(16).hex(), secrets.token_hex(16), random.SystemRandom().random(), random.random(), uuid.uuid4())"
        words = [one.output(f"python3 -c '{program}'; cat /proc/sys/kernel/random/uuid").split() for one in self.all]
        self.assertEqual(len({word for found in words for word in found}), 6 * len(self.all))

    def test_names_and_ids_are_each_ones_own(self):
        found = [tuple(one.output("hostname; cat /etc/machine-id; echo $SPACE_SANDBOX_ID").split()) for one in self.all]
        for what in range(3):
            self.assertEqual(len({one[what] for one in found}), len(self.all), found)

    def test_tokens_differ_and_open_nothing_elsewhere(self):
        tokens, sessions = [self.api.ok("POST", f"{self.mine.path}/token", {})["token"]], [self.mine.session]
        for child in self.children:
            (one,) = [one for one in self.api.ok("GET", f"{child.path}/commands")["commands"] if one["process"] == self.mine.process]
            sessions.append(one["session"])
            tokens.append(self.api.ok("POST", f"{child.path}/commands/{one['session']}/token", {})["token"])
        self.assertEqual((len(set(tokens)), len(set(sessions))), (len(self.all), len(self.all)))
        for holder, token in enumerate(tokens[:3]):
            bearer = self.api.with_key(token)
            for number, (sandbox, session) in enumerate(zip(self.all, sessions)):
                status = bearer.call("POST", f"{sandbox.path}/commands/{session}/stdin", b"x", {"Content-Type": "application/octet-stream"}).status
                self.assertEqual(status < 300, number == holder, (holder, number, status))
                self.assertIn(status, (200, 204, 401), (holder, number))
            # A session's number in a sandbox that does not have it is unknown even to who holds the token.
            self.assertIn(bearer.call("GET", f"{self.all[holder - 1].path}/commands/{sessions[holder]}/attach").status, (401, 404))


if __name__ == "__main__":
    unittest.main()
