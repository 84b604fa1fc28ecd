"""Command sessions: losing a connection loses nothing, and a token opens its own session only."""

import base64
import hmac
import json
import time
import unittest

from api_client import Result
from space_server import SandboxTest

BUDGET_S = 90


def numbers(result):
    return [int(line) for line in result.stdout.split()]


class Sessions(SandboxTest):
    def test_event_ids_are_epoch_and_sequence_without_gaps(self):
        result = self.sandbox.run("for i in 1 2 3; do echo $i; sleep 0.05; done")
        epochs, sequences = zip(*(map(int, event.id.split(".")) for event in result.events))
        self.assertEqual(len(set(epochs)), 1)
        self.assertEqual(list(sequences), list(range(1, len(sequences) + 1)))

    def test_reattaching_goes_on_without_loss_or_repetition(self):
        command = self.sandbox.start("for i in $(seq 1 2000); do echo $i; done; sleep 0.5; for i in $(seq 2001 3000); do echo $i; done")
        result, last, connections = Result(), None, 0
        while result.exit is None:
            connections += 1
            with command.attach(last_id=last) as stream:
                for count, event in enumerate(stream):
                    result.add(event)
                    last = event.id
                    if count >= 3 and connections < 6:
                        break
        self.assertGreater(connections, 2)
        self.assertEqual(numbers(result), list(range(1, 3001)))

    def test_the_position_may_stand_in_the_query_too(self):
        command = self.sandbox.start("echo one; sleep 0.2; echo two")
        first = command.finish()
        with self.api.events(f"{command.path}/attach?after={first.events[1].id}") as stream:
            rest = list(stream)
        self.assertEqual([event.id for event in rest], [event.id for event in first.events[2:]])

    def test_attaching_after_the_end_gives_it_all_again(self):
        command = self.sandbox.start("echo kept; exit 8")
        first, again = command.finish(), command.finish()
        self.assertEqual((again.stdout, again.code), (b"kept\n", 8))
        self.assertEqual([event.id for event in again.events], [event.id for event in first.events])

    def test_two_readers_each_get_everything(self):
        command = self.sandbox.start("for i in $(seq 1 500); do echo $i; done; sleep 0.5; echo 501")
        readers = [command.in_background(), command.in_background()]
        for reader in readers:
            self.assertEqual(numbers(reader.wait()), list(range(1, 502)))

    def test_a_position_outside_the_window_is_answered_with_the_window(self):
        command = self.sandbox.start("echo x")
        last = command.finish().events[-1].id
        epoch, sequence = last.split(".")
        answer = self.api.call("GET", f"{command.path}/attach", headers={"Last-Event-ID": f"{epoch}.{int(sequence) + 1000}"})
        self.assertRefused(answer, 409, "outside_window")
        self.assertEqual((answer.json["first"], answer.json["last"]), (f"{epoch}.1", last))

    def test_a_position_that_is_none_is_refused(self):
        command = self.sandbox.start("echo x")
        command.finish()
        for wrong in ("x", "1.", ".1", "1.2.3", "-1.2", "1.99999999999999999999999"):
            answer = self.api.call("GET", f"{command.path}/attach", headers={"Last-Event-ID": wrong})
            self.assertIn(answer.status, (400, 409), (wrong, answer.body))

    def test_the_attach_token_opens_its_session_and_nothing_else(self):
        command = self.sandbox.start("echo mine")
        other = self.sandbox.start("echo other")
        bearer = self.api.with_key(command.token)
        self.assertIn(bearer.call("GET", self.sandbox.path).status, (401, 403))
        self.assertIn(bearer.call("GET", f"{other.path}/attach").status, (401, 403, 404))
        result = Result()
        with command.attach(key=command.token) as stream:
            for event in stream:
                result.add(event)
        self.assertEqual(result.stdout, b"mine\n")
        other.finish()

    def test_a_token_can_be_renewed_and_says_when_it_ends(self):
        command = self.sandbox.start("echo x")
        fresh = self.api.ok("POST", f"{command.path}/token", {})
        self.assertNotEqual(fresh["token"], command.token)
        self.assertGreater(fresh["token_expires_at"], time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime()))
        with command.attach(key=fresh["token"]) as stream:
            self.assertEqual(list(stream)[-1].kind, "exit")

    def test_a_token_that_is_over_is_refused_by_name_and_another_one_opens(self):
        # As node would have made it six minutes ago, with its own key (src/node/tokens.h).
        command = self.sandbox.start("echo late")
        key = bytes.fromhex((self.server.data_dir / "node" / "token.key").read_text().strip())
        record = json.loads((self.server.data_dir / "node" / "sandboxes" / self.sandbox.id / "record.json").read_text())
        session = command.path.split("/")[-1].encode()

        def token(ends_s):
            body = bytes(16) + int((time.time() + ends_s) * 1000).to_bytes(8, "little")
            parts = (b"attach", record["tenant"].encode(), self.sandbox.id.encode(), str(record["epoch"]).encode(), session, body)
            signature = hmac.new(key, b"".join(str(len(part)).encode() + b":" + part for part in parts), "sha256").digest()
            return "at_" + base64.urlsafe_b64encode(body + signature).decode().rstrip("=")

        self.assertEqual(self.refused(lambda: command.attach(key=token(-60))), (410, "token_expired"))
        fresh = self.api.ok("POST", f"{command.path}/token", {})["token"]
        for good in (token(60), fresh):  # the first shows that it is the time alone that was wrong
            with command.attach(key=good) as stream:
                self.assertEqual(list(stream)[-1].kind, "exit")

    def test_a_wrong_token_is_refused(self):
        command = self.sandbox.start("echo x")
        self.assertEqual(self.refused(lambda: command.attach(key="at_" + "A" * 43))[0], 401)
        command.finish()

    def test_the_stream_ends_right_after_the_exit(self):
        # Read as raw bytes: the last chunk must be there at once, and the connection usable for the next request.
        command = self.sandbox.start("echo hi")
        connection = self.api.connection()
        connection.request("GET", f"{command.path}/attach", headers=self.api.headers())
        response = connection.getresponse()
        begun, body = None, b""
        while True:
            piece = response.read1(65536)
            if b"event: exit" in piece or b"event:exit" in piece:
                begun = time.monotonic()
            if not piece:
                break
            body += piece
        self.assertIsNotNone(begun, body)
        self.assertLess(time.monotonic() - begun, 0.05)
        connection.request("GET", "/v1/health", headers=self.api.headers())
        self.assertEqual(connection.getresponse().status, 200)
        connection.close()

    def test_an_unknown_session_is_not_found(self):
        self.assertRefused(self.api.call("GET", f"{self.sandbox.path}/commands/{'a' * 24}/attach"), 404, "session_not_found")

    def test_a_job_is_found_again_by_its_session_long_after_its_client_went(self):
        command = self.sandbox.start("for i in $(seq 1 100); do echo $i; sleep 0.1; done; exit 6")
        with command.attach() as stream:
            next(iter(stream))
        time.sleep(3)
        self.assertEqual(command.get()["state"], "running")
        result = command.finish()
        self.assertEqual((numbers(result), result.code), (list(range(1, 101)), 6))


if __name__ == "__main__":
    unittest.main()
