"""Attacks side by side: most of their time is spent waiting for what does not come. A lane is a process with a world of its own, a server, tenants,
an internet, canaries, so that what one lane finds was done by its own attack. Attacks that measure time, or take all of the machine, come
after the others, in the one lane that is left."""

import contextlib
import json
import multiprocessing
import sys
import tempfile
import time
from pathlib import Path

from framework import Trial
from space_server import end_with_parent

LANES = 2
ENOUGH = 4  # attacks for which a further world is worth its start
LONG_S = 10**6  # --long has no limit, a wait must have one
CLOSING_S = 90  # within which a lane that is over has put its world away


class Clock:
    """The seconds that are left for everything; the same in every lane."""

    def __init__(self, budget):
        self.until = time.monotonic() + budget

    def left(self):
        return self.until - time.monotonic()


def run(attacks, clock, make_world, try_one):
    """Trials of all attacks that the time was enough for, what the report says of the world, and what worlds left behind on this machine.
    `try_one(attack, world)` carries an attack out."""
    beside, alone = [one for one in attacks if not one.alone], [one for one in attacks if one.alone]
    context = multiprocessing.get_context("fork")
    taken, others, left_behind = context.Value("i", 0), [], []
    with tempfile.TemporaryDirectory(prefix="space-redteam-") as folder:
        for number in range(1, min(LANES, max(1, len(beside) // ENOUGH))):
            path = Path(folder, str(number))
            others.append((context.Process(target=lane, args=(beside, taken, clock, make_world, try_one, path)), path))
        try:
            for process, _ in others:
                process.start()
            with kept(make_world(), left_behind) as world:
                trials = list(go(beside, taken, clock, world, try_one))
                for process, path in others:
                    process.join(min(max(0, clock.left()), LONG_S) + CLOSING_S)
                    more, behind = read(path, beside)
                    trials += more
                    left_behind += behind
                trials += go(alone, context.Value("i", 0), clock, world, try_one)
                facts = world.facts()
            return trials, facts, left_behind
        finally:
            for process, _ in others:
                if process.is_alive():
                    process.terminate()


@contextlib.contextmanager
def kept(world, left_behind):
    """The world, put away afterwards; what is left of it is noted and ends nothing."""
    with world:
        yield world
        try:
            world.close()
        except AssertionError as error:
            left_behind.append(str(error))


def go(attacks, taken, clock, world, try_one):
    """Trials of attacks that no other lane has taken yet."""
    while True:
        with taken:
            number, taken.value = taken.value, taken.value + 1
        if number >= len(attacks):
            return
        if clock.left() < 5:
            print("the time is over; what is left counts as missing", file=sys.stderr)
            return
        yield try_one(attacks[number], world)


def lane(attacks, taken, clock, make_world, try_one, path):
    end_with_parent()
    left_behind = []
    with open(path, "w", buffering=1) as file:
        with kept(make_world(), left_behind) as world:
            for trial in go(attacks, taken, clock, world, try_one):
                file.write(json.dumps({"trial": trial.told()}) + "\n")
        file.write(json.dumps({"left behind": left_behind}) + "\n")


def read(path, attacks):
    """What another lane wrote, up to where it came: its trials, what it left behind."""
    by_name = {one.name: one for one in attacks}
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    trials = [Trial.of(by_name[line["trial"]["attack"]], line["trial"]) for line in lines if "trial" in line]
    ends = [line["left behind"] for line in lines if "left behind" in line]
    return trials, ends[0] if ends else ["a lane did not come to its end"]
