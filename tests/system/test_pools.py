"""Pools: what was made ahead is handed out once, replaced, and never seen by two sandboxes."""

import os
import tempfile
import threading
import time
import unittest

import leaks
from space_server import ServerTest, SpaceServer

BUDGET_S = 120


def pool_of(api):
    pools = api.ok("GET", "/v1/version").get("pools") or []
    return pools[0] if pools else {"ready": 0, "spawned": 0, "hits": 0, "misses": 0}


class Pools(ServerTest):
    options = {"pool_ready": 3, "pool_spawned": 1}

    def full(self):
        self.server.wait_for(lambda: pool_of(self.api)["ready"] >= 3, 90, "a full pool")

    def test_a_create_from_the_pool_is_a_hit_and_is_replaced(self):
        self.full()
        hits = pool_of(self.api)["hits"]
        begun = time.monotonic()
        with self.api.create() as sandbox:
            self.assertEqual(sandbox.output("echo quick"), "quick")
            self.assertLess(time.monotonic() - begun, 2)
            self.assertEqual(pool_of(self.api)["hits"], hits + 1)
            self.full()

    def test_more_creates_than_the_pool_holds(self):
        self.full()
        made = []

        def create():
            made.append(self.api.create())

        threads = [threading.Thread(target=create) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(len({sandbox.id for sandbox in made}), 8)
        ids = [sandbox.output("cat /etc/machine-id; hostname") for sandbox in made]
        self.assertEqual(len(set(ids)), 8, "no two are the same machine")
        for sandbox in made:
            self.api.delete(sandbox.id)

    def test_pooled_machines_share_no_randomness(self):
        self.full()
        made = [self.api.create() for _ in range(3)]
        program = "import os, uuid, random, secrets; print(os.urandom(8).hex(), uuid.uuid4(), random.random(), secrets.token_hex(8))"
        seen = [word for sandbox in made for word in sandbox.output(["python3", "-c", program]).split()]
        self.assertEqual(len(seen), len(set(seen)))
        for sandbox in made:
            self.api.delete(sandbox.id)

    def test_another_size_does_not_come_out_of_this_pool(self):
        with self.api.create(memory_mib=256) as sandbox:
            self.assertLess(int(sandbox.output("awk '/MemTotal/{print $2}' /proc/meminfo")), 256 << 10)

    def test_a_pool_that_loses_a_machine_makes_another(self):
        import signal

        self.full()
        for pid in leaks.vmms(self.server)[:1]:
            os.kill(pid, signal.SIGKILL)
        time.sleep(0.5)
        self.full()
        with self.api.create() as sandbox:
            self.assertEqual(sandbox.output("echo fine"), "fine")


class NoPools(unittest.TestCase):
    def test_without_pools_everything_works_and_nothing_waits(self):
        server = SpaceServer(pool_ready=0, pool_spawned=0).start()
        try:
            self.assertEqual(leaks.vmms(server), [])
            with server.api.create() as sandbox:
                self.assertEqual(sandbox.output("echo alone"), "alone")
                self.assertEqual(len(leaks.vmms(server)), 1)
        finally:
            server.close()


class StoppedEarly(unittest.TestCase):
    """A server that is stopped while its first machines are made takes them away again."""

    def test_nothing_is_left_of_what_was_being_made(self):
        for pause in (0.0, 0.4, 1.0, 2.0):
            with self.subTest(pause=pause):
                server = SpaceServer(pool_ready=2, pool_spawned=1).start()
                time.sleep(pause)
                server.close()  # asserts that nothing is left

    def test_a_base_for_a_size_of_its_own_is_given_up(self):
        with tempfile.TemporaryDirectory() as bases:
            os.chmod(bases, 0o755)
            server = SpaceServer(pool_ready=0, pool_spawned=0, bases_dir=bases).start()
            answer = server.api.call("POST", "/v1/sandboxes", {"memory_mib": 300})
            self.assertEqual(answer.status, 202)
            time.sleep(2)
            # Meanwhile the template says what is going on.
            states = {base["memory_mib"]: base for base in server.api.ok("GET", "/v1/templates/base:latest")["bases"]}
            self.assertEqual(states[300]["state"], "making")
            self.assertLess(states[300]["progress"]["done"], states[300]["progress"]["of"])
            begun = time.monotonic()
            server.stop()
            self.assertLess(time.monotonic() - begun, 14)
            self.assertEqual([one for one in leaks.of_server(server) if not one.startswith(("sandbox ", "operation "))], [])
            server.start()  # its create is taken up again; a delete ends it
            server.close()


if __name__ == "__main__":
    unittest.main()
