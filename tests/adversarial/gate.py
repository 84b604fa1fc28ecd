"""Attempts on the gateway from inside one sandbox: queued, carried out in one go by guest/prober.py, judged by what arrived where.

    gate = Gate(t, t.world.sandbox())
    gate.control("a plain request", raw("allowed.test", "GET /{m} HTTP/1.1\\r\\nHost: allowed.test\\r\\n\\r\\n"))
    gate.attempt("another host", raw("allowed.test", "GET /{m} HTTP/1.1\\r\\nHost: evil.test\\r\\n\\r\\n"))
    gate.go()

`{m}` is a marker of that step. A control must arrive, an attempt must not, unless a judge of its own says what counts: it gets a Seen. Of what must
not arrive the gateway's audit log must have a refusal.
"""

import json
import secrets
import time
from pathlib import Path

PROBER = Path(__file__).resolve().parent / "guest" / "prober.py"


OUR_MISTAKES = ("not run", "TypeError", "KeyError", "ValueError", "AttributeError", "NameError", "IndexError", "UnicodeEncodeError", "error:")


class Seen:
    """What a step saw, and what of it arrived."""

    def __init__(self, step, result, arrived):
        self.marker, self.out, self.error, self.seconds = step["id"], result.get("out", ""), result.get("error", ""), result.get("seconds", 0)
        self.arrived = arrived
        first = self.out.split("\r\n", 1)[0].split(" ")
        self.status = first[1] if first[0].startswith("HTTP/1.") and len(first) > 1 else "none"

    def at(self, *places):
        return [entry for entry in self.arrived if entry["at"] in places]

    def __str__(self):
        return f"status {self.status}, {self.error or 'no error'}, arrived {[(e['at'], e.get('path') or e.get('name') or e.get('body')) for e in self.arrived]!s:.150}, {self.out[:100]!r}"


def raw(host, send, port=None, sni=None, **more):
    """Bytes for a connection, inside TLS with `sni`."""
    step = {"kind": "raw", "host": host, "port": port or (80 if sni is None else 443), "send": send, **more}
    return step if sni is None else {**step, "sni": sni}


def get(host, path="/{m}", sni=None, headers="", method="GET", named=None, **more):
    """A plain request; `named` is the Host when it is another one than the host that is dialled. The marker is in the query unless it is elsewhere."""
    if "{m}" not in path + headers + (named or ""):
        path += ("&" if "?" in path else "?") + "{m}"
    return raw(host, f"{method} {path} HTTP/1.1\r\nHost: {named if named is not None else host}\r\n{headers}\r\n", sni=sni, **more)


def h2(requests, host="h2.test", sni="h2.test"):
    """Streams of one HTTP/2 connection; each a list of fields, or a dictionary with more."""
    return {"kind": "h2", "host": host, "sni": sni, "requests": [one if isinstance(one, dict) else {"fields": one} for one in requests]}


def dns(*labels, **more):
    return {"kind": "dns", "labels": list(labels), **more}


def command(text, wait=25):
    return {"kind": "command", "command": text, "wait": wait}


def hello(host, name, change="plain", port=443, **more):
    return {"kind": "hello", "host": host, "name": name, "change": change, "port": port, **more}


def filled(value, marker):
    if isinstance(value, str):
        return value.replace("{m}", marker)
    if isinstance(value, list):
        return [filled(one, marker) for one in value]
    if isinstance(value, dict):
        return {key: filled(one, marker) for key, one in value.items()}
    return value


class Gate:
    def __init__(self, t, box, threads=8):
        self.t, self.box, self.threads, self.queued, self.seen, self.refuses = t, box, threads, [], {}, False

    def control(self, what, step, trips=None):
        """Must arrive (or satisfy `trips`)."""
        return self.add(True, what, step, trips or (lambda seen: seen.arrived))

    def attempt(self, what, step, reached=None, refused=None):
        """Must not arrive (or not satisfy `reached`). `refused`: by the policy, so that the audit log tells of a refusal; without a word what must not arrive is."""
        self.refuses |= reached is None if refused is None else refused
        return self.add(False, what, step, reached or (lambda seen: seen.arrived))

    def add(self, is_control, what, step, judge):
        marker = "m" + secrets.token_hex(6)
        self.queued.append((is_control, what, {**filled(step, marker), "id": marker}, judge))
        return marker

    def go(self, limit=300, threads=None):
        """Carries out what is queued: the controls, the attempts, and once more the controls that did not trip, one by one: on a busy machine a
        handshake may have taken too long."""
        begun = time.monotonic()
        queued, self.queued = self.queued, []
        self.box.write("/tmp/prober.py", PROBER.read_bytes(), user="root")
        controls, attempts = [one for one in queued if one[0]], [one for one in queued if not one[0]]
        seen = {**self.carry_out(controls, limit, min(threads or self.threads, 3)), **self.carry_out(attempts, limit, threads or self.threads)}
        again = [one for one in controls if not one[3](seen[one[2]["id"]])]
        seen.update(self.carry_out(again, limit, 1))
        self.t.figure("prober, s", round(time.monotonic() - begun, 1))
        for is_control, what, step, judge in queued:
            one = self.seen[what] = seen[step["id"]]
            if is_control:
                self.t.control(what, judge(one), one)
            else:
                self.t.attempt(what, judge(one), one)
                if one.error.startswith(OUR_MISTAKES):
                    self.t.control(f"{what}: was tried", False, one)
        if self.refuses:
            self.t.audited(self.box)
        return self.seen

    def carry_out(self, queued, limit, threads):
        if not queued:
            return {}
        place = f"/tmp/steps-{secrets.token_hex(4)}"
        self.box.write(place, json.dumps([step for _, _, step, _ in queued]).encode(), user="root")
        run = self.t.guest(self.box, ["python3", "/tmp/prober.py", place, str(threads)], timeout=limit)
        try:
            results = json.loads(run.stdout)
        except ValueError:
            raise AssertionError(f"the prober did not end well: {run.exit} {run.stderr[-300:]}") from None
        time.sleep(0.2)
        arrivals = self.t.world.arrivals()
        return {step["id"]: Seen(step, results.get(step["id"], {"error": "not run"}), [entry for entry, text in arrivals if step["id"] in text]) for _, _, step, _ in queued}
