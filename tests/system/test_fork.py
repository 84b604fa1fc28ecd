"""Checkpoints and forks: ways that part, ways back, and nothing shared that must not be."""

import json
import unittest

from api_client import Sandbox
from space_server import SandboxTest, ServerTest

BUDGET_S = 240


class Forks(ServerTest):
    options = {"pool_ready": 0, "pool_spawned": 0}

    def children(self, sandbox, **body):
        operation = sandbox.change("fork", body)
        self.assertEqual(operation["state"], "succeeded", operation)
        return [Sandbox(self.api, id) for id in operation["children"]]

    def test_two_go_different_ways_and_a_third_starts_from_the_checkpoint_afterwards(self):
        with self.api.create() as parent:
            parent.run("echo 1 > ~/step; echo memory > /dev/shm/m")
            checkpoint = parent.change("checkpoint", {"name": "fork here"})["checkpoint"]
            left, right = self.children(parent, count=2)
            left.run("echo left > ~/way; echo 2 > ~/step")
            right.run("echo right > ~/way; rm ~/step")
            parent.run("echo parent > ~/way")
            self.assertEqual(left.output("cat ~/way ~/step /dev/shm/m").split(), ["left", "2", "memory"])
            self.assertEqual(right.output("cat ~/way /dev/shm/m; ls ~/step 2>&1 | wc -l").split(), ["right", "memory", "1"])
            self.assertEqual(parent.output("cat ~/way ~/step").split(), ["parent", "1"])
            (third,) = self.children(parent, checkpoint=checkpoint)
            self.assertEqual(third.output("cat ~/step /dev/shm/m; ls ~/way 2>/dev/null | wc -l").split(), ["1", "memory", "0"])
            listed = {one["id"]: one for one in self.api.ok("GET", f"/v1/checkpoints?sandbox={parent.id}")["checkpoints"]}
            self.assertEqual(listed[checkpoint]["name"], "fork here")
            tree = {node["id"]: node for node in self.api.ok("GET", "/v1/tree")["nodes"]}
            self.assertEqual(tree[third.id]["parent"], checkpoint)
            self.assertEqual(tree[left.id]["parent"], tree[right.id]["parent"])
            self.assertEqual(tree[checkpoint]["parent"], parent.id)
            self.assertGreater(tree[left.id]["disk_shared_bytes"], 0)
            for child in (left, right, third):
                self.api.delete(child.id)

    def test_a_fork_is_somebody_else(self):
        with self.api.create(env={"A": "1", "B": "1"}, metadata={"m": "1"}) as parent:
            session = parent.start("while true; do sleep 1; done")
            reader = session.in_background()
            reader.until(lambda r: r.events)
            (child,) = self.children(parent, env={"B": "2"})
            mine, other = (one.output("hostname; cat /etc/machine-id; echo $SPACE_SANDBOX_ID; echo $A $B").split("\n") for one in (parent, child))
            for what in range(3):
                self.assertNotEqual(mine[what], other[what])
            self.assertEqual((mine[2], other[2]), (parent.id, child.id))
            self.assertEqual((mine[3], other[3]), ("1 1", "1 2"))
            self.assertEqual(child.get()["metadata"], {"m": "1"})
            # Its parent's processes, under sessions of its own; the parent's tokens and sessions open nothing here.
            commands = self.api.ok("GET", f"{child.path}/commands")["commands"]
            inherited = [one for one in commands if one["state"] == "running"]
            self.assertEqual(len(inherited), 1)
            self.assertNotEqual(inherited[0]["session"], session.session)
            self.assertEqual(self.api.call("GET", f"{child.path}/commands/{session.session}").status, 404)
            self.assertEqual(self.api.with_key(session.token).call("GET", f"{child.path}/commands/{session.session}/attach").status, 401)
            self.assertEqual(self.api.call("DELETE", f"{child.path}/commands/{inherited[0]['session']}").status, 200)
            self.assertEqual(session.get()["state"], "running")
            self.api.delete(child.id)

    def test_forks_never_draw_the_same_random_bytes(self):
        with self.api.create() as parent:
            # Draws every few milliseconds into a file: what the children's programs draw first after their load is in it.
            parent.write("/home/user/draw.py", (
                "import os, secrets, time\n"
                "out = open('/dev/shm/drawn', 'a', buffering=1)\n"
                "urandom = open('/dev/urandom', 'rb', buffering=0)\n"
                "while True:\n"
                "    out.write('%s %s %s\\n' % (os.getrandom(12).hex(), urandom.read(12).hex(), secrets.token_hex(12)))\n"
                "    time.sleep(0.004)\n").encode())
            drawing = parent.start(["python3", "/home/user/draw.py"]).in_background()
            parent.output("while ! [ -s /dev/shm/drawn ]; do sleep 0.1; done")
            children = self.children(parent, count=3)
            drawn = [one.output("sleep 0.5; cat /dev/shm/drawn").split("\n") for one in children]
            common = 0
            while all(common < len(lines) for lines in drawn) and len({lines[common] for lines in drawn}) == 1:
                common += 1
            self.assertGreater(common, 0, "they have the past in common")
            later = [{word for line in lines[common:] for word in line.split()} for lines in drawn]
            for one in range(3):
                self.assertGreater(len(later[one]), 30)
                for other in range(one):
                    self.assertEqual(later[one] & later[other], set())
            del drawing
            for child in children:
                self.api.delete(child.id)

    def test_a_restore_goes_back_and_raises_the_epoch(self):
        with self.api.create() as sandbox:
            sandbox.run("echo then > ~/a; echo then > /dev/shm/b")
            session = sandbox.start("while true; do echo x; sleep 0.2; done")
            reader = session.in_background()
            reader.until(lambda r: r.stdout)
            checkpoint = sandbox.change("checkpoint")["checkpoint"]
            sandbox.run("echo now > ~/a; echo now > /dev/shm/b; echo new > ~/c")
            operation = sandbox.change("restore", {"checkpoint": checkpoint})
            self.assertEqual(operation["state"], "succeeded", operation)
            self.assertEqual(sandbox.output("cat ~/a /dev/shm/b; ls ~/c 2>/dev/null | wc -l").split(), ["then", "then", "0"])
            running = [one for one in self.api.ok("GET", f"{sandbox.path}/commands")["commands"] if one["session"] == session.session]
            self.assertEqual(len(running), 1)
            self.assertTrue(running[0]["window"]["last"].startswith("2."))
            # Back once more, and from there on.
            sandbox.change("restore", {"checkpoint": checkpoint})
            sandbox.change("suspend")
            sandbox.change("wake")
            self.assertEqual(sandbox.output("cat ~/a /dev/shm/b").split(), ["then", "then"])

    def test_a_chain_of_checkpoints_loses_nothing(self):
        with self.api.create() as sandbox:
            for step in range(9):
                sandbox.run(f"echo {step} > ~/step{step}; sync")
                operation = sandbox.change("checkpoint")
                self.assertEqual(operation["state"], "succeeded", operation)
            self.assertEqual(sandbox.change("suspend")["state"], "succeeded")
            self.assertEqual(sandbox.change("wake")["state"], "succeeded")
            self.assertEqual(sandbox.output("cat ~/step*").split(), [str(step) for step in range(9)])
            (child,) = self.children(sandbox, count=1)
            self.assertEqual(child.output("cat ~/step*").split(), [str(step) for step in range(9)])
            self.assertEqual(sandbox.change("stop")["state"], "succeeded")
            self.assertEqual(sandbox.change("start")["state"], "succeeded")
            self.assertEqual(sandbox.output("cat ~/step*").split(), [str(step) for step in range(9)])
            self.api.delete(child.id)

    def test_a_checkpoint_outlives_its_sandbox_and_another_tenants_is_not_there(self):
        parent = self.api.create(env={"A": "parents", "B": "parents"})
        parent.run("echo kept > ~/a; echo memory > /dev/shm/m")
        checkpoint = parent.change("checkpoint")["checkpoint"]
        (child,) = self.children(parent, checkpoint=checkpoint)
        self.api.delete(parent.id)
        self.assertEqual(self.api.ok("GET", f"/v1/checkpoints/{checkpoint}")["sandbox"], parent.id)
        # Nobody of that name is there to be forked: a create goes on from the checkpoint.
        self.assertRefused(self.api.call("POST", f"{parent.path}/fork", {"checkpoint": checkpoint}), 404, "sandbox_not_found")
        with self.api.create(checkpoint=checkpoint, env={"B": "own"}, metadata={"m": "1"}) as late:
            self.assertEqual(late.output("cat ~/a /dev/shm/m; echo $A $B").split(), ["kept", "memory", "parents", "own"])
            self.assertEqual((late.get()["metadata"], late.get()["memory_mib"]), ({"m": "1"}, 512))
            self.assertEqual(self.api.ok("GET", f"{late.path}/egress")["policy"]["mode"], "none")
            late.change("suspend")
            late.change("wake")
            self.assertEqual(late.output("cat /dev/shm/m"), "memory")
        for wrong in ({"template": "base"}, {"memory_mib": 512}, {"cpus": 1}):
            self.assertRefused(self.api.call("POST", "/v1/sandboxes", {"checkpoint": checkpoint, **wrong}), 400, "invalid_field")
        self.assertRefused(self.api.call("POST", "/v1/sandboxes", {"checkpoint": "a" * 24}), 404, "checkpoint_not_found")
        late = self.cli("create", "--from", checkpoint)
        self.assertEqual(late.returncode, 0, late.stderr)
        self.assertEqual(Sandbox(self.api, late.stdout.decode().strip()).output("cat ~/a"), "kept")
        self.api.delete(late.stdout.decode().strip())
        self.assertEqual(self.api.call("DELETE", f"/v1/checkpoints/{checkpoint}").status, 200)
        self.assertRefused(self.api.call("GET", f"/v1/checkpoints/{checkpoint}"), 404, "checkpoint_not_found")
        # The child stands on what the checkpoint was made of; that stays as long as it lives.
        self.assertEqual(child.output("cat ~/a"), "kept")
        child.change("suspend")
        child.change("wake")
        self.assertEqual(child.output("cat ~/a"), "kept")
        self.api.delete(child.id)


    def test_another_ones_checkpoint_is_not_forked_but_a_create_goes_on_from_it(self):
        """The guest in it trusts another authority than the children of this one are served by."""
        with self.api.create() as one, self.api.create() as other:
            checkpoint = one.change("checkpoint")["checkpoint"]
            answer = self.api.call("POST", f"{other.path}/fork", {"checkpoint": checkpoint}, {"Prefer": "wait=60"})
            self.assertRefused(answer, 409, "checkpoint_of_another")
            self.assertIn("create", answer.json["next"])
            refused = self.cli("fork", other.id, "--from", checkpoint)
            self.assertNotEqual(refused.returncode, 0)
            self.assertIn(b"checkpoint_of_another", refused.stderr)
            self.assertRefused(self.api.call("POST", f"{one.path}/fork", {"checkpoint": "a" * 24}), 404, "checkpoint_not_found")
            with self.api.create(checkpoint=checkpoint) as late, self.children(one, checkpoint=checkpoint)[0] as child:
                self.assertEqual((late.get()["state"], child.get()["state"]), ("running", "running"))


class CommandLine(SandboxTest):
    options = {"pool_ready": 0, "pool_spawned": 0}

    def words(self, *words):
        done = self.cli(*words)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.decode().split()

    def test_the_commands_of_the_docs(self):
        id = self.sandbox.id
        self.assertEqual(self.words("suspend", id), [id])
        self.assertEqual(self.words("wake", id), [id])
        (checkpoint,) = self.words("checkpoint", id, "--name", "one")
        self.assertIn(checkpoint, self.words("checkpoints", "ls", id))
        children = self.words("fork", id, "--count", "2")
        self.assertEqual(len(children), 2)
        (third,) = self.words("fork", id, "--from", checkpoint, "--egress", "open", "--ttl", "900", "--idle-pause", "300", "--idle-suspend", "600", "--idle-cpu", "20")
        shown = Sandbox(self.api, third).get()
        self.assertEqual([shown[name] for name in ("time_limit_s", "idle_pause_s", "idle_suspend_s", "idle_cpu_percent")], [900, 300, 600, 20])
        self.assertEqual([self.api.ok("GET", f"/v1/sandboxes/{one}/egress")["policy"]["mode"] for one in (third, children[0], id)], ["open", "none", "none"])
        self.assertIn(third, self.words("tree"))
        self.assertEqual(self.words("restore", id, checkpoint), [id])
        self.words("rm", *children, third)
        self.words("checkpoints", "rm", checkpoint)
        nodes = json.loads(self.cli("--json", "tree").stdout)
        self.assertNotIn(checkpoint, [node["id"] for node in nodes])


if __name__ == "__main__":
    unittest.main()
