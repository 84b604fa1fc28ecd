"""Results, their comparison with the bars, and the two ways to print them."""
import dataclasses, statistics, sys, traceback


@dataclasses.dataclass
class Result:
    """Samples of one side each, in the bar's unit; `peer` is None where the bar has none."""
    ours: list
    peer: list | None = None
    note: str = ''


def quantile(samples, q):
    ordered = sorted(samples)
    return ordered[min(len(ordered) - 1, int(q * len(ordered)))]


def guarded(module, wanted, quick):
    """What the module measured; a failure of one module is reported and leaves its bars unmeasured, which is a miss."""
    try:
        return module.measure([bar.name for bar in wanted], quick)
    except Exception:  # noqa: BLE001: whatever went wrong, the other groups still run
        traceback.print_exc(file=sys.stderr)
        return {}


@dataclasses.dataclass
class Row:
    bar: object
    ours: float | None
    peer: float | None
    ratio: float | None
    holds: bool
    spread: str
    note: str

    def as_json(self):
        return {'name': self.bar.name, 'unit': self.bar.unit, 'ours': self.ours, 'peer': self.peer, 'ratio': self.ratio,
                'limit': self.bar.limit, 'direction': self.bar.direction, 'holds': self.holds, 'note': self.note}


def row(bar, result):
    if result is None or not result.ours or (bar.peer and not result.peer):
        return Row(bar, None, None, None, False, '', 'not measured')
    ours = statistics.median(result.ours)
    peer = statistics.median(result.peer) if bar.peer else None
    ratio = None if peer is None else (peer / ours if bar.inverse else ours / peer)
    figure = ours if ratio is None else ratio
    holds = figure <= bar.limit if bar.direction == 'max' else figure >= bar.limit
    spread = f'p90 {quantile(result.ours, .9):.4g} p99 {quantile(result.ours, .99):.4g} n={len(result.ours)}'
    return Row(bar, ours, peer, ratio, holds, spread, result.note)


def table(host, rows):
    print(', '.join(f'{k}: {v}' for k, v in host.items()))
    print(f'{"bar":22}{"unit":>8}{"ours":>10}{"peer":>10}{"ratio":>8}{"limit":>12}  {"":7} ours in detail')
    for r in rows:
        text = lambda v: '–' if v is None else f'{v:.4g}'  # noqa: E731
        print(f'{r.bar.name:22}{r.bar.unit:>8}{text(r.ours):>10}{text(r.peer):>10}{text(r.ratio):>8}{r.bar.direction + " " + format(r.bar.limit, "g"):>12}'
              f'  {"holds" if r.holds else "MISSED":7} {r.spread} {r.note}')
