"""create.tail: how much worse the slowest creates are than the middle one under random load below saturation."""
import random, threading, time

from report import Result, quantile
from server import Server


def measure(names, quick):
    with Server(options=[]) as server:  # the pools as they come
        capacity = _saturation(server, 8 if quick else 30)
        time.sleep(10)  # and full again
        times = _poisson(server, capacity * .7, 15 if quick else 120)
    ratio = quantile(times, .99) / quantile(times, .5)
    note = f'saturation {capacity:.2f}/s, n={len(times)}, median {quantile(times, .5):.0f} ms, p90 {quantile(times, .9):.0f} ms, p99 {quantile(times, .99):.0f} ms'
    return {'create.tail': Result([ratio], note=note)}


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
    return sum(counted) / seconds


def _poisson(server, rate, seconds):
    times, lock, threads, rng = [], threading.Lock(), [], random.Random(7)

    def one(at):
        api = server.api()
        sandbox = api.create()
        api.run(sandbox, ['true'])
        with lock:
            times.append((time.monotonic() - at) * 1e3)
        api.delete(sandbox)
        api.close()

    end, at = time.monotonic() + seconds, time.monotonic()
    while at < end:
        time.sleep(max(0, at - time.monotonic()))
        threads.append(threading.Thread(target=one, args=(at,)))  # the clock starts at the arrival, not when a thread got round to it
        threads[-1].start()
        at += rng.expovariate(rate)
    [t.join() for t in threads]
    return times
