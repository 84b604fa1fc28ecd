"""Sandboxes come, pause, go on, end and go, in any order that a client can think of."""

import threading
import time
import unittest
import uuid

from running_programs import clock_off_by
from space_server import ServerTest

BUDGET_S = 120


class Lifecycle(ServerTest):
    def test_a_create_is_accepted_at_once_and_finishes_by_itself(self):
        answer = self.api.call("POST", "/v1/sandboxes", {})
        self.assertEqual(answer.status, 202)
        self.assertEqual((answer.json["sandbox"]["state"], answer.json["operation"]["kind"]), ("creating", "create"))
        operation = self.api.operation(answer.json["operation"]["id"])
        self.assertEqual(operation["state"], "succeeded")
        self.assertTrue(operation["spans"])
        for span in operation["spans"]:
            self.assertGreaterEqual(span["duration_us"], 0)
        self.api.delete(answer.json["sandbox"]["id"])

    def test_an_operation_can_be_followed(self):
        answer = self.api.call("POST", "/v1/sandboxes", {})
        with self.api.events(f"/v1/operations/{answer.json['operation']['id']}/events") as stream:
            states = [event.data.get("state") for event in stream]
        self.assertEqual(states[-1], "succeeded")
        self.api.delete(answer.json["sandbox"]["id"])

    def test_deleting_twice(self):
        sandbox = self.api.create()
        first = self.api.call("DELETE", sandbox.path, headers={"Prefer": "wait=60"})
        self.assertEqual(first.status, 200)
        self.assertRefused(self.api.call("DELETE", sandbox.path), 404, "sandbox_not_found")
        self.assertRefused(self.api.call("GET", sandbox.path), 404, "sandbox_not_found")

    def test_two_deletes_at_once_share_the_work(self):
        sandbox = self.api.create()
        answers = []
        threads = [threading.Thread(target=lambda: answers.append(self.api.call("DELETE", sandbox.path, headers={"Prefer": "wait=60"}))) for _ in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertTrue({answer.status for answer in answers} <= {200, 202, 404}, [answer.status for answer in answers])
        self.assertIn(200, {answer.status for answer in answers})

    def test_deleting_while_creating(self):
        for pause in (0, 0.01, 0.05, 0.2):
            answer = self.api.call("POST", "/v1/sandboxes", {})
            time.sleep(pause)
            self.api.delete(answer.json["sandbox"]["id"])
            self.assertIn(self.api.operation(answer.json["operation"]["id"])["state"], ("cancelled", "failed", "succeeded"))
            self.assertEqual(self.api.call("GET", f"/v1/sandboxes/{answer.json['sandbox']['id']}").status, 404)

    def test_a_create_can_be_cancelled(self):
        answer = self.api.call("POST", "/v1/sandboxes", {})
        self.api.call("POST", f"/v1/operations/{answer.json['operation']['id']}/cancel")
        operation = self.api.operation(answer.json["operation"]["id"])
        self.assertIn(operation["state"], ("cancelled", "succeeded"))
        if operation["state"] == "succeeded":
            self.api.delete(answer.json["sandbox"]["id"])

    def test_a_paused_sandbox_stands_still_and_goes_on(self):
        with self.api.create() as sandbox:
            command = sandbox.start("i=0; while :; do i=$((i+1)); echo $i; sleep 0.1; done")
            running = command.in_background()
            running.until(lambda result: b"3\n" in result.stdout)
            self.pause(sandbox)
            self.assertEqual(sandbox.get()["state"], "paused")
            self.assertEqual(self.api.call("POST", f"{sandbox.path}/commands", {"command": "true"}).status, 409)
            time.sleep(1)
            self.resume(sandbox)
            self.assertLess(clock_off_by(sandbox), 0.2, "the wall clock, as the first command finds it")
            self.assertEqual(command.get()["state"], "running")
            command.kill()

    def test_the_clock_is_right_after_everything_that_stops_the_guest(self):
        # A checkpoint's stop is too short for a clock that nobody set to show, so it is wrong before.
        with self.api.create() as sandbox:
            for verbs in (("checkpoint",), ("pause", "resume"), ("pause", "checkpoint", "wake")):
                with self.subTest(verbs=verbs):
                    sandbox.output("date -s @1000000000", user="root")
                    self.assertGreater(clock_off_by(sandbox), 3600, "the control")
                    for verb in verbs:
                        self.assertEqual(sandbox.change(verb)["state"], "succeeded", verb)
                    self.assertLess(clock_off_by(sandbox), 0.2)

    def pause(self, sandbox):
        answer = self.api.ok("POST", f"{sandbox.path}/pause", {}, {"Prefer": "wait=30"})
        self.assertEqual(self.api.operation(answer["operation"]["id"])["state"], "succeeded")

    def resume(self, sandbox):
        answer = self.api.ok("POST", f"{sandbox.path}/resume", {}, {"Prefer": "wait=30"})
        self.assertEqual(self.api.operation(answer["operation"]["id"])["state"], "succeeded")

    def test_ten_pauses_keep_everything(self):
        with self.api.create() as sandbox:
            for cycle in range(10):
                sandbox.output(f"echo {cycle} >> ~/log")
                self.pause(sandbox)
                self.resume(sandbox)
            self.assertEqual(sandbox.output("cat ~/log").split(), [str(cycle) for cycle in range(10)])

    def test_pausing_twice_and_resuming_what_runs(self):
        with self.api.create() as sandbox:
            self.assertIn(self.api.call("POST", f"{sandbox.path}/resume", {}, {"Prefer": "wait=30"}).status, (200, 202, 409))
            self.pause(sandbox)
            self.assertIn(self.api.call("POST", f"{sandbox.path}/pause", {}, {"Prefer": "wait=30"}).status, (200, 202, 409))
            self.assertEqual(sandbox.get()["state"], "paused")

    def test_pause_and_resume_in_any_order_never_show_it_as_gone(self):
        with self.api.create() as sandbox:
            until, wrong = time.monotonic() + 8, []

            def hammer(verb):
                while time.monotonic() < until:
                    status = self.api.call("POST", f"{sandbox.path}/{verb}", {}, {"Prefer": "wait=10"}).status
                    if status not in (200, 202, 409):
                        wrong.append((verb, status))

            def look():
                while time.monotonic() < until:
                    status = self.api.call("GET", sandbox.path).status
                    if status != 200:
                        wrong.append(("get", status))

            threads = [threading.Thread(target=hammer, args=(verb,)) for verb in ("pause", "resume") * 3] + [threading.Thread(target=look)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.assertEqual(wrong, [])
            self.server.wait_for(lambda: sandbox.get()["state"] in ("running", "paused"), 20, "a state that stays")
            if sandbox.get()["state"] == "paused":
                self.resume(sandbox)
            self.assertEqual(sandbox.output("echo alive"), "alive")

    def test_the_time_limit_deletes_it_and_a_pause_does_not_use_it_up(self):
        sandbox = self.api.create(time_limit_s=3)
        self.assertIn("ends_at", sandbox.get())
        self.pause(sandbox)
        time.sleep(4)
        self.resume(sandbox)
        self.assertEqual(sandbox.output("echo still there"), "still there")
        self.server.wait_for(lambda: self.api.call("GET", sandbox.path).status == 404, 20, "its end")

    def test_a_guest_that_powers_off_ends_its_sandbox_and_says_why(self):
        with self.api.create() as sandbox:
            sandbox.start("sleep 0.2; echo o > /proc/sysrq-trigger", user="root").in_background()
            self.server.wait_for(lambda: sandbox.get()["state"] == "ended", 30, "the end")
            self.assertTrue(sandbox.get()["end_reason"])
            self.assertEqual(self.api.call("POST", f"{sandbox.path}/commands", {"command": "true"}).status, 409)

    def test_events_tell_the_story_of_a_sandbox(self):
        mark = uuid.uuid4().hex
        with self.api.events("/v1/events") as stream:
            with self.api.create(metadata={"mark": mark}) as sandbox:
                pass
            seen = []
            for event in stream:
                if event.data.get("sandbox") == sandbox.id:
                    seen.append(event)
                if seen and event.kind == "sandbox.deleted" and event.data.get("sandbox") == sandbox.id:
                    break
        kinds = [event.kind for event in seen]
        self.assertIn("sandbox.running", kinds)
        ids = [int(event.id) for event in seen]
        self.assertEqual(ids, sorted(set(ids)))
        with self.api.events("/v1/events", last_id=seen[0].id) as stream:
            again = next(event for event in stream if event.data.get("sandbox") == sandbox.id)
        self.assertEqual(again.id, seen[1].id)


if __name__ == "__main__":
    unittest.main()
