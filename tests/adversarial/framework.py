"""What an attack is written with. An attack is a function of one argument, the trial:

    @attack("F24", needs=("sandbox",))
    def planted_files(t):
        t.control("root can", can_write_as(0))        # the detector trips where it must
        t.attempt("nobody can", can_write_as(65534))  # True: the attack reached something

Controls and attempts use the same detector, so an attack that cannot fail is found out: without a control that tripped, the trial
counts as broken. After every trial the world is looked at: canaries, roles, the bystander, what arrived at the fake internet.

An attack runs in the condition that it names first, unless the run asks for another: what the attacker's sandbox may reach.
"""

import time
import traceback

REGISTRY = []
VERDICTS = ("blocked", "reached", "broken", "not applicable", "missing")


class Attack:
    def __init__(self, ids, function, conditions, seconds, evidence, quick=False, alone=False):
        self.ids, self.function, self.conditions, self.seconds, self.evidence, self.quick, self.alone = ids, function, conditions, seconds, evidence, quick, alone
        self.name = f"{function.__module__}.{function.__name__}"
        self.doc = (function.__doc__ or "").strip().splitlines()[0] if function.__doc__ else function.__name__


ANY = ("blocked", "partial", "open")


def attack(*ids, conditions=ANY, seconds=60, quick=False, alone=False):
    """Registers an attack for these entries of the catalogue. `seconds`: its longest time, at default counts. `quick`: it belongs to
    the three minutes of --quick. `alone`: it measures time, or takes all of the machine, so no other attack goes on beside it."""
    def register(function):
        REGISTRY.append(Attack(ids, function, conditions, seconds, False, quick, alone))
        return function
    return register


def not_applicable(*ids, seconds=30):
    """For entries that do not apply: the function looks the evidence up, every time, and returns it as text; it raises when the
    evidence is not there any more."""
    def register(function):
        REGISTRY.append(Attack(ids, function, ANY, seconds, True, True))
        return function
    return register


class OutOfTime(BaseException):
    """Not an Exception, so that no attack swallows it."""


class Trial:
    OUTCOME = ("condition", "controls", "attempts", "notes", "figures", "error", "seconds")

    def __init__(self, attack, world, condition=""):
        self.attack, self.world, self.condition = attack, world, condition
        self.controls, self.attempts, self.notes, self.figures = [], [], [], {}
        self.error, self.seconds, self.timings, self.looked_up = None, 0.0, set(), set()

    # What attacks call.

    def control(self, what, tripped, detail=""):
        self.controls.append((what, bool(tripped), str(detail)[:300]))

    def attempt(self, what, reached, detail=""):
        self.attempts.append((what, bool(reached), str(detail)[:300]))

    def timing(self, what, over, detail=""):
        """An attempt whose detector is a clock: besides the attack it sees whatever else the machine does."""
        self.timings.add(what)
        self.attempt(what, over, detail)

    def note(self, text):
        self.notes.append(str(text)[:600])

    def figure(self, name, value):
        self.figures[name] = value

    def guest(self, sandbox, command, **options):
        """Runs a command in a guest, as root unless told otherwise. What comes out is searched for canaries."""
        options = {"user": "root", "timeout": 40, **options}
        result = sandbox.run(command, **options)
        self.search(result.stdout + result.stderr)
        return result

    def audited(self, sandbox):
        """The gateway refused this sandbox something in this trial: its audit log must have a refusal of this sandbox. Looked up once for each."""
        if self.world.condition == "open" or sandbox.id in self.looked_up:
            return
        self.looked_up.add(sandbox.id)
        self.attempt("what was refused is not in the audit log", self.world.refusal(sandbox) is None, sandbox.id)
        self.control("the audit log has no refusal of the bystander, who tried nothing", self.world.refusal(self.world.bystander, wait=0) is None)

    def search(self, content):
        for name in self.world.secrets_in(content):
            self.attempt("no canary's secret is in what came back", True, name)

    # What the runner calls.

    def told(self):
        """As JSON can say it, for the process that makes the report."""
        return {"attack": self.attack.name, **{name: getattr(self, name) for name in self.OUTCOME}}

    @classmethod
    def of(cls, attack, told):
        trial = cls(attack, None)
        for name in cls.OUTCOME:
            setattr(trial, name, told[name])
        return trial

    def run(self):
        begun = time.monotonic()
        try:
            if self.condition:
                self.world.begin(self.condition)
            text = self.attack.function(self)
            if self.attack.evidence:
                self.note(text)
            else:
                for what in self.world.disturbed():
                    self.attempt("the world stays as it was", True, what)
        except OutOfTime:
            self.error = f"not over after {self.attack.seconds} s"
        except Exception as error:
            self.error = f"{type(error).__name__}: {error}"[:500]
            self.trace = traceback.format_exc()
        self.seconds = time.monotonic() - begun

    @property
    def only_took_long(self):
        """What was reached, it was by a clock alone."""
        reached = [what for what, hit, _ in self.attempts if hit]
        return bool(reached) and not self.error and self.timings.issuperset(reached)

    @property
    def covered(self):
        """Attempts whose detector was seen to trip in this very trial. In a report: controls. A trial with one dead control has none."""
        return len(self.attempts) if self.controls and all(tripped for _, tripped, _ in self.controls) else 0

    @property
    def verdict(self):
        if any(reached for _, reached, _ in self.attempts):
            return "reached"
        if self.error:
            return "broken"
        if self.attack.evidence:
            return "not applicable"
        if not self.controls or not self.attempts or not all(tripped for _, tripped, _ in self.controls):
            return "broken"
        return "blocked"

    @property
    def reason(self):
        for what, reached, detail in self.attempts:
            if reached:
                return f"{what}: {detail}" if detail else what
        if self.error:
            return self.error
        if self.attack.evidence:
            return self.notes[0] if self.notes else ""
        for what, tripped, detail in self.controls:
            if not tripped:
                return f"the control did not trip: {what} {detail}"
        return "" if self.controls else "no control"
