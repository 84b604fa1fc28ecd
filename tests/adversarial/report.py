"""The result of a run as Markdown, JSON and JUnit."""

import json
from xml.etree import ElementTree

ORDER = ("reached", "broken", "blocked", "not applicable", "missing")


def rows_of(trials, catalogue, groups, long):
    """One row for each entry of the catalogue in these groups."""
    by_id = {}
    for trial in trials:
        for id in trial.attack.ids:
            by_id.setdefault(id, []).append(trial)
    rows = []
    for id, (priority, name) in catalogue.items():
        if groups and id[0] not in groups:
            continue
        mine = by_id.get(id, [])
        verdict = min((trial.verdict for trial in mine), key=ORDER.index, default="missing")
        rows.append({"id": id, "priority": priority, "name": name, "verdict": verdict,
                     "attempts": sum(len(trial.attempts) for trial in mine), "controls": sum(len(trial.controls) for trial in mine),
                     "seconds": round(sum(trial.seconds for trial in mine), 1),
                     "reason": "; ".join(trial.reason for trial in mine if trial.reason),
                     "notes": [note for trial in mine for note in trial.notes],
                     "figures": {name: value for trial in mine for name, value in trial.figures.items()}})
    return rows


def summary_of(rows, seconds, facts):
    count = {verdict: sum(row["verdict"] == verdict for row in rows) for verdict in ORDER}
    return {**facts, "seconds": round(seconds, 1), "entries": len(rows), **{key.replace(" ", "_"): value for key, value in count.items()},
            "attempts": sum(row["attempts"] for row in rows), "controls": sum(row["controls"] for row in rows)}


def as_json(rows, summary):
    return json.dumps({"summary": summary, "entries": rows}, indent=1)


def as_markdown(rows, summary):
    lines = ["# Security report", "", "Made by `space redteam`; what it defends is in [security.md](security.md).", "",
             f"- Accelerator: **{summary['accelerator']}**" + (" (no hardware virtualisation: the jail alone is the boundary)" if summary["accelerator"] != "kvm" else ""),
             f"- VMM: {summary['vmm']}; SPACE {summary['version']}; kernel of the host {summary['kernel']}; network condition: {summary['condition']}; counts: {summary['counts']}",
             f"- {summary['entries']} entries in {summary['seconds']} s: {summary['blocked']} blocked, **{summary['reached']} reached**, {summary['broken']} broken, "
             f"{summary['not_applicable']} not applicable (evidence below), {summary['missing']} missing (not written yet)",
             f"- {summary['attempts']} attempts, {summary['controls']} controls", "",
             "| id | priority | attack | verdict | attempts | controls | |", "|---|---|---|---|---|---|---|"]
    for row in rows:
        text = row["reason"].replace("|", "\\|").replace("\n", " ")
        figures = ", ".join(f"{name} {value}" for name, value in row["figures"].items())
        lines.append(f"| {row['id']} | {row['priority']} | {row['name'].replace('|', chr(92) + '|')} | {row['verdict']} | {row['attempts']} | {row['controls']} | {text or figures} |")
    notes = {}
    for row in rows:
        for note in row["notes"] if row["verdict"] != "not applicable" else []:
            notes.setdefault(note, []).append(row["id"])
    if notes:
        lines += ["", "## Notes", ""] + [f"- {', '.join(ids)}: {note}" for note, ids in notes.items()]
    return "\n".join(lines) + "\n"


def as_junit(rows, summary):
    suite = ElementTree.Element("testsuite", name="redteam", tests=str(len(rows)), failures=str(summary["reached"]), errors=str(summary["broken"]),
                                skipped=str(summary["not_applicable"] + summary["missing"]), time=str(summary["seconds"]))
    for row in rows:
        case = ElementTree.SubElement(suite, "testcase", classname=f"redteam.{row['id'][0]}", name=f"{row['id']} {row['name']}", time=str(row["seconds"]))
        kind = {"reached": "failure", "broken": "error", "not applicable": "skipped", "missing": "skipped"}.get(row["verdict"])
        if kind:
            ElementTree.SubElement(case, kind, message=row["reason"] or row["verdict"])
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"
