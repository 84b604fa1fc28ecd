"""The result of a run as Markdown, JSON and JUnit."""

import json
from xml.etree import ElementTree

ORDER = ("reached", "broken", "blocked", "not applicable", "missing")


def rows_of(trials, catalogue, chosen):
    """One row for each entry of the catalogue that `chosen` takes. `controls` counts the attempts whose detector was seen to trip, `parts` the
    same for each attack, because one attack may stand for several entries."""
    by_id = {}
    for trial in trials:
        for id in trial.attack.ids:
            by_id.setdefault(id, []).append(trial)
    rows = []
    for id, (priority, name) in catalogue.items():
        if not chosen(id):
            continue
        mine = by_id.get(id, [])
        parts = {trial.attack.name: [len(trial.attempts), trial.covered, len(trial.controls)] for trial in mine}
        rows.append({"id": id, "priority": priority, "name": name, "verdict": min((trial.verdict for trial in mine), key=ORDER.index, default="missing"),
                     **dict(zip(("attempts", "controls", "checks"), map(sum, zip(*parts.values())) if parts else (0, 0, 0))), "parts": parts,
                     "reached": [f"{what}: {detail}" if detail else what for trial in mine for what, reached, detail in trial.attempts if reached][:20],
                     "conditions": sorted({trial.condition for trial in mine}), "seconds": round(sum(trial.seconds for trial in mine), 1),
                     "reason": "; ".join(trial.reason for trial in mine if trial.reason),
                     "notes": [note for trial in mine for note in trial.notes],
                     "figures": {name: value for trial in mine for name, value in trial.figures.items()}})
    return rows


def summary_of(rows, seconds, facts):
    count = {verdict: sum(row["verdict"] == verdict for row in rows) for verdict in ORDER}
    parts = {name: numbers for row in rows for name, numbers in row["parts"].items()}
    attempts, controls, checks = map(sum, zip(*parts.values())) if parts else (0, 0, 0)
    return {**facts, "seconds": round(seconds, 1), "entries": len(rows), **{key.replace(" ", "_"): value for key, value in count.items()},
            "attempts": attempts, "controls": controls, "checks": checks, "groups": groups_of(rows)}


def groups_of(rows):
    found = {}
    for row in rows:
        group = found.setdefault(row["id"][0], dict.fromkeys(ORDER, 0))
        group[row["verdict"]] += 1
    return found


def as_json(rows, summary):
    return json.dumps({"summary": summary, "entries": rows}, indent=1)


def cell(text):
    return str(text).replace("|", "\\|").replace("\n", " ")


def as_markdown(rows, summary):
    lines = ["# Security report", "", "Made by `space redteam`; what it defends is in [security.md](security.md).", "",
             f"- Accelerator: **{summary['accelerator']}**" + (" (no hardware virtualisation: the jail alone is the boundary)" if summary["accelerator"] != "kvm" else ""),
             f"- VMM: {summary['vmm']}; SPACE {summary['version']}; kernel of the host {summary['kernel']}; network condition: {summary['condition']}; counts: {summary['counts']}",
             f"- {summary['entries']} entries in {summary['seconds']} s: {summary['blocked']} blocked, **{summary['reached']} reached**, {summary['broken']} broken, "
             f"{summary['not_applicable']} not applicable (evidence below), {summary['missing']} missing (not written yet)",
             f"- {summary['attempts']} attempts, {summary['controls']} of them with a control that tripped ({summary['checks']} checks); an attack that stands for several entries is counted once",
             *(f"- **left behind on the host**: {what}" for what in summary.get("left_behind", ())),
             "", "| group | " + " | ".join(ORDER) + " |", "|---|" + "---|" * len(ORDER)]
    lines += [f"| {group} | " + " | ".join(str(counts[verdict]) for verdict in ORDER) + " |" for group, counts in summary["groups"].items()]
    lines += ["", "| id | priority | attack | verdict | attempts | controls | |", "|---|---|---|---|---|---|---|"]
    for row in rows:
        figures = ", ".join(f"{name} {value}" for name, value in row["figures"].items())
        lines.append(f"| {row['id']} | {row['priority']} | {cell(row['name'])} | {row['verdict']} | {row['attempts']} | {row['controls']} | {cell(row['reason'] or figures)} |")
    notes = {}
    for row in rows:
        for note in row["notes"] if row["verdict"] != "not applicable" else []:
            notes.setdefault(note, []).append(row["id"])
    if notes:
        lines += ["", "## Notes", ""] + [f"- {', '.join(ids)}: {cell(note)}" for note, ids in notes.items()]
    return "\n".join(lines) + "\n"


def as_junit(rows, summary):
    suite = ElementTree.Element("testsuite", name="redteam", tests=str(len(rows)), failures=str(summary["reached"]), errors=str(summary["broken"]),
                                skipped=str(summary["not_applicable"] + summary["missing"]), time=str(summary["seconds"]))
    for row in rows:
        case = ElementTree.SubElement(suite, "testcase", classname=f"redteam.{row['id'][0]}", name=printable(f"{row['id']} {row['name']}"), time=str(row["seconds"]))
        kind = {"reached": "failure", "broken": "error", "not applicable": "skipped", "missing": "skipped"}.get(row["verdict"])
        if kind:
            ElementTree.SubElement(case, kind, message=printable(row["reason"] or row["verdict"]))
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def printable(text):
    return "".join(c if c >= " " or c == "\n" else "?" for c in text)  # XML has no other control characters
