"""Results, their comparison with the bars, and the two ways to print them."""
import dataclasses, statistics, sys, traceback


@dataclasses.dataclass
class Result:
    """Samples of one side each, in the bar's unit; `peer` is None where the bar has none."""
    ours: list
    peer: list | None = None
    note: str = ''
    details: list = dataclasses.field(default_factory=list)  # what explains the figure: in the JSON object alone


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
    spread: dict  # p90, p99 and n of ours, peer_p90 and peer_p99
    note: str
    details: list

    def as_json(self):
        return {'name': self.bar.name, 'unit': self.bar.unit, 'ours': self.ours, 'peer': self.peer, 'ratio': self.ratio,
                'limit': self.bar.limit, 'direction': self.bar.direction, 'holds': self.holds, **self.spread, 'note': self.note,
                **({'details': self.details} if self.details else {})}


def row(bar, result):
    if result is None or not result.ours or (bar.peer and not result.peer):
        return Row(bar, None, None, None, False, {}, (result and result.note) or 'not measured', [])
    ours = statistics.median(result.ours)
    peer = statistics.median(result.peer) if bar.peer else None
    ratio = None if peer is None else (peer / ours if bar.inverse else ours / peer)
    figure = ours if ratio is None else ratio
    holds = figure <= bar.limit if bar.direction == 'max' else figure >= bar.limit
    spread = {'p90': tail(bar, result.ours, .9), 'p99': tail(bar, result.ours, .99), 'n': len(result.ours)}
    if bar.peer:
        spread |= {'peer_p90': tail(bar, result.peer, .9), 'peer_p99': tail(bar, result.peer, .99)}
    return Row(bar, ours, peer, ratio, holds, spread, result.note, result.details)


def tail(bar, samples, q):
    """The bad end of a bar's samples: the slow times, the low rates."""
    return quantile(samples, 1 - q if bar.unit in ('MB/s', '1/s') else q)


def figure(value):
    return '' if value is None else f'{value:.4g}'


def table(host, rows):
    print(', '.join(f'{k}: {v}' for k, v in host.items()))
    print(f'{"bar":22}{"unit":>8}{"ours":>10}{"p90":>10}{"p99":>10}{"n":>6}{"peer":>10}{"p90":>10}{"p99":>10}{"ratio":>8}{"limit":>12}')
    for r in rows:
        s = r.spread
        print(f'{r.bar.name:22}{r.bar.unit:>8}{figure(r.ours):>10}{figure(s.get("p90")):>10}{figure(s.get("p99")):>10}{s.get("n", 0):>6}{figure(r.peer):>10}'
              f'{figure(s.get("peer_p90")):>10}{figure(s.get("peer_p99")):>10}{figure(r.ratio):>8}{limit(r.bar):>12}  {"holds" if r.holds else "MISSED":7} {r.note}')


def markdown(host, rows):
    print(', '.join(f'{k}: {v}' for k, v in host.items()) + '\n')
    print('| bar | unit | ours | p90 | p99 | peer | p90 | p99 | ratio | limit | |\n|---|---|---|---|---|---|---|---|---|---|---|')
    for r in rows:
        s = r.spread
        cells = [r.bar.name, r.bar.unit, *map(figure, (r.ours, s.get('p90'), s.get('p99'), r.peer, s.get('peer_p90'), s.get('peer_p99'), r.ratio)), limit(r.bar),
                 ('holds' if r.holds else 'missed') + (f': {r.note}' if r.note else '')]
        print('| ' + ' | '.join(cells) + ' |')


def limit(bar):
    return f'{bar.direction} {bar.limit:g}'
