"""create.tail: how much worse the slowest creates are than the middle one under random load below saturation."""
import json, random, sys, threading, time

from report import Result, quantile
from server import Server

SHOWN = 10  # of the slowest, with what explains them


def measure(names, quick):
    with Server(options=[]) as server:  # the pools as they come
        capacity = _saturation(server, 8 if quick else 30)
        time.sleep(10)  # and full again
        creates = _poisson(server, capacity * .7, 15 if quick else 120)
    slow = sorted(creates, key=lambda c: c['ms'], reverse=True)
    for create in slow[:SHOWN]:
        print(json.dumps(create), file=sys.stderr)
    times = [c['ms'] for c in creates]
    ratio = quantile(times, .99) / quantile(times, .5)
    note = (f'saturation {capacity:.2f}/s, n={len(times)}, median {quantile(times, .5):.0f} ms, p90 {quantile(times, .9):.0f} ms, p99 {quantile(times, .99):.0f} ms, '
            f'misses of the pool {sum(not c["hit"] for c in creates)}')
    return {'create.tail': Result([ratio], note=note, details=slow[:SHOWN])}


def _one(api):
    sandbox = api.create()
    api.run(sandbox, ['true'])
    api.delete(sandbox)


def _saturation(server, seconds):
    """Completed create+true+delete a second with three clients that never wait, once the pools that were full at first are used up."""
    counted = [0, 0, 0]
    begin = time.monotonic() + seconds / 2
    end = begin + seconds

    def loop(client):
        api = server.api()
        while time.monotonic() < end:
            _one(api)
            counted[client] += begin <= time.monotonic() < end
        api.close()
    threads = [threading.Thread(target=loop, args=(client,)) for client in range(3)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    if not any(counted):
        raise RuntimeError('not one create came to its end: the machine is too busy for this')
    return sum(counted) / seconds


def _poisson(server, rate, seconds):
    """Every create: how long until its first command had ended, of that the steps, and what else was under way when it came."""
    creates, lock, threads, rng = [], threading.Lock(), [], random.Random(7)
    under_way = {'creates': 0, 'deletes': 0}

    def count(what, by):
        with lock:
            under_way[what] += by

    def one(at, begin):
        with lock:
            create = {'at_s': round(at - begin, 2), 'beside': dict(under_way)}
        count('creates', 1)
        api = server.api()
        called = time.monotonic()
        answer = api.call('POST', '/v1/sandboxes', {'template': 'base'}, ['Prefer: wait=60'])
        made = time.monotonic()
        sandbox = answer['sandbox']['id']
        api.run(sandbox, ['true'])
        over = time.monotonic()
        count('creates', -1)
        spans = {s['name']: round(s['duration_us'] / 1e3, 1) for s in answer['operation']['spans']}
        ms = lambda span: round(span * 1e3, 1)  # noqa: E731
        create |= {'ms': ms(over - at), 'before': ms(called - at), 'create': ms(made - called), 'command': ms(over - made), 'hit': 'load' not in spans, 'spans': spans}
        with lock:
            creates.append(create)
        count('deletes', 1)
        api.delete(sandbox)
        count('deletes', -1)
        api.close()

    begin = at = time.monotonic()
    while at < begin + seconds:
        time.sleep(max(0, at - time.monotonic()))
        threads.append(threading.Thread(target=one, args=(at, begin)))  # the clock starts at the arrival, not when a thread got round to it
        threads[-1].start()
        at += rng.expovariate(rate)
    [t.join() for t in threads]
    return creates
