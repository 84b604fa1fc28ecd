#!/usr/bin/env python3
"""Attacks a SPACE server of its own and says what got through. Started as `space redteam`; needs root.

Ends with 0 when nothing was reached, every control tripped and nothing is missing, 1 otherwise, 2 when it could not run. `redteam.py agent` lets an agent attack.
"""

import argparse
import importlib
import json
import os
import platform
import signal
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "system")]

import lanes  # noqa: E402
import report  # noqa: E402
from framework import REGISTRY, OutOfTime, Trial  # noqa: E402

BUDGET_S = 12 * 60
QUICK_BUDGET_S = 3 * 60
PATIENCE = float(os.environ.get("SPACE_REDTEAM_PATIENCE", 1))  # every time limit is so many times as long, on a busy machine
MEASURED_AGAIN = 2  # times, when nothing but a clock says that something was reached
TIDYING_S = 20  # what an attack that was broken off may take to put things away, before that is broken off as well


def read_catalogue():
    entries = {}
    for line in (HERE / "catalogue.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            id, priority, name = line.split(" ", 2)
            entries[id] = (priority, name)
    return entries


def load_attacks(folders=()):
    for folder in [HERE / "attacks", *map(Path, folders)]:
        sys.path.insert(0, str(folder))
        for path in sorted(folder.glob("*.py")):
            importlib.import_module(path.stem)


def limited(seconds, work):
    """Runs `work`; what takes longer is broken off. Whether it came to its end."""
    def late(*_):
        raise OutOfTime()
    signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds, TIDYING_S)
    try:
        work()
        return True
    except OutOfTime:
        return False
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def parse():
    parser = argparse.ArgumentParser(prog="space redteam", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--group", action="append", default=[], metavar="G", help="only this group (A to I, V), repeatable; also ids: F24")
    parser.add_argument("--condition", choices=("blocked", "partial", "open"), help="what the attacker's sandbox may reach; otherwise each attack's own")
    parser.add_argument("--long", action="store_true", help="the catalogue's own counts, without a time budget")
    parser.add_argument("--quick", action="store_true", help="the attacks that fit into three minutes")
    parser.add_argument("--attacks", action="append", default=[], metavar="FOLDER", help="more attacks, from *.py of this folder; their entries need not be in the catalogue")
    parser.add_argument("--report", metavar="FILE", help="write FILE.md, FILE.json and FILE.xml (JUnit)")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.add_argument("--merge", nargs="+", metavar="FILE.json", help="attack nothing: one report of several runs' results; of an entry the last counts")
    parser.add_argument("--list", action="store_true", help="what there is; runs nothing")
    parser.add_argument("--budget", type=int, metavar="S", help="seconds for everything, at default counts (720; 180 with --quick)")
    options = parser.parse_args()
    options.budget = options.budget or (QUICK_BUDGET_S if options.quick else BUDGET_S) * PATIENCE
    return options


def wanted(options):
    words = [word.upper() for word in options.group]
    return lambda id: not words or any(id.startswith(word) for word in words)


def chosen(attacks, options):
    takes = wanted(options)
    return [one for one in attacks if (not options.condition or options.condition in one.conditions) and any(map(takes, one.ids)) and (one.quick or not options.quick)]


def show(trial, left):
    print(f"{left:4.0f} s left  {'+'.join(trial.attack.ids)[:32]:32} {trial.verdict:15} {trial.seconds:6.1f} s  {trial.attack.doc[:70]}"
          + (f"\n{'':13} {trial.reason[:600]}" if trial.verdict in ("reached", "broken") else ""), file=sys.stderr, flush=True)
    if trial.verdict == "broken" and os.environ.get("SPACE_REDTEAM_TRACE"):
        print(getattr(trial, "trace", ""), file=sys.stderr)


def run(attacks, options):
    from world import World

    begun = time.monotonic()
    clock = lanes.Clock(float("inf") if options.long else options.budget)

    def try_one(attack, world):
        trial, before = try_once(attack, world), []
        # The machine may have done something else for a moment. What the attack brings about comes again, and again.
        while trial.only_took_long and len(before) < MEASURED_AGAIN and clock.left() >= attack.seconds:
            before.append(trial.reason)
            trial = try_once(attack, world)
        for reason in before:
            trial.note(f"measured again, for before {reason}")
        return trial

    def try_once(attack, world):
        trial = Trial(attack, world, options.condition or attack.conditions[0])
        if not limited(attack.seconds * 20 if options.long else min(attack.seconds * PATIENCE, clock.left()), trial.run):
            trial.error = trial.error or "broken off while it put things away"
        show(trial, clock.left())
        return trial
    trials, facts, left_behind = lanes.run(attacks, clock, lambda: World(long=options.long), try_one)
    return trials, {**facts, "left_behind": left_behind, "kernel": platform.release(), "condition": options.condition or "each attack's own", "counts": "literal" if options.long else "scaled"}, time.monotonic() - begun


def merged(files, catalogue):
    """Rows and summary of several runs; an entry that one of them left out is as another found it."""
    rows, summaries = {}, []
    for file in files:
        result = json.loads(Path(file).read_text())
        summaries.append(result["summary"])
        for row in result["entries"]:
            if row["verdict"] != "missing" or row["id"] not in rows:
                rows[row["id"]] = row
    for row in report.rows_of([], catalogue, lambda id: id not in rows):
        rows[row["id"]] = row
    if len({summary["accelerator"] for summary in summaries}) != 1:
        sys.exit("these runs had different accelerators: they do not belong into one report")
    ordered = [rows[id] for id in catalogue]
    return ordered, report.summary_of(ordered, sum(summary["seconds"] for summary in summaries), summaries[-1])


def finish(options, rows, summary):
    if options.report:
        for ending, text in ((".md", report.as_markdown(rows, summary)), (".json", report.as_json(rows, summary)), (".xml", report.as_junit(rows, summary))):
            Path(options.report + ending).write_text(text)
    failed = {verdict: [row["id"] for row in rows if row["verdict"] == verdict] for verdict in ("reached", "broken", "missing")}
    count = sum(map(len, failed.values()))
    bad = count or len(summary.get("left_behind", ()))
    if options.json:
        print(report.as_json(rows, summary))
    else:
        for verdict, ids in failed.items():
            if ids:
                print(f"{verdict}: {' '.join(ids)}")
        for what in summary.get("left_behind", ()):
            print(f"left behind: {what}")
        print(", ".join(f"{value} {name.replace('_', ' ')}" for name, value in summary.items() if name in ("blocked", "reached", "broken", "not_applicable", "missing"))
              + f"; {summary['attempts']} attempts, {summary['controls']} controls; accelerator {summary['accelerator']}; {summary['seconds']} s")
        print(f"{len(rows) - count} passed, {bad} failed")
    return 1 if bad else 0


def needs_root():
    if os.geteuid() != 0:
        print("space redteam: it starts a server of its own and looks into processes: run it as root (sudo space redteam)", file=sys.stderr)
    return os.geteuid() != 0


def main():
    if sys.argv[1:2] == ["agent"]:
        import agent
        return 2 if needs_root() else agent.main(sys.argv[2:])
    options = parse()
    load_attacks(options.attacks)
    catalogue = read_catalogue()
    if options.merge:
        return finish(options, *merged(options.merge, catalogue))
    for one in REGISTRY:
        for id in one.ids:
            if id not in catalogue and options.attacks:
                catalogue[id] = ("own", one.doc)
    unknown = {id for one in REGISTRY for id in one.ids} - set(catalogue)
    if unknown:
        sys.exit(f"attacks for entries that the catalogue does not have: {unknown}")
    attacks = chosen(REGISTRY, options)
    if options.list:
        written = {id for one in REGISTRY for id in one.ids}
        quick = {id for one in REGISTRY if one.quick for id in one.ids}
        for id, (priority, name) in catalogue.items():
            print(f"{id} {priority} {'quick   ' if id in quick else '        ' if id in written else 'missing '} {name}")
        return 0
    if needs_root():
        return 2
    if options.quick or options.condition:
        takes = {id for one in attacks for id in one.ids}.__contains__  # what the run leaves out on purpose is not missing
    else:
        takes = wanted(options)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: the worlds are closed, in the lanes too
    trials, facts, seconds = run(attacks, options)
    rows = report.rows_of(trials, catalogue, lambda id: takes(id) and wanted(options)(id))
    return finish(options, rows, report.summary_of(rows, seconds, facts))


if __name__ == "__main__":
    sys.exit(main())
