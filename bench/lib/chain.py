"""chain.take, chain.wake: what a long chain of checkpoints costs. In each chain the same small change goes before every checkpoint."""
import time

from create import timed
from report import Result
from server import Server

EARLY, LATE = 5, 50
AROUND = 1  # neighbours that count as well: the 4th to the 6th, the 49th to the 51st


def measure(names, quick):
    take, wake = ([], []), ([], [])
    with Server() as server:
        api = server.api()
        for _ in range(1 if quick else 3):
            _chain(api, take, wake, 'chain.wake' in names, quick)
    results = {}
    if 'chain.take' in names:
        results['chain.take'] = Result(*take, 'the 49th to 51st; peer: the 4th to 6th of the same chains')
    if 'chain.wake' in names:
        results['chain.wake'] = Result(*wake, 'until a command answered; peer: after the 5th')
    return results


def _chain(api, take, wake, wakes, quick):
    sandbox = api.create()
    for number in range(1, LATE + AROUND + 1):
        _work(api, sandbox, number)
        ms, _ = timed(lambda: api.change(sandbox, 'checkpoint'))
        for samples, center in ((take[1], EARLY), (take[0], LATE)):
            if abs(number - center) <= AROUND:
                samples.append(ms)
        if wakes and number in (EARLY, LATE):
            samples = wake[0] if number == LATE else wake[1]
            samples.extend(_wake(api, sandbox) for _ in range(2 if quick else 7))
    checkpoints = api.call('GET', f'/v1/checkpoints?sandbox={sandbox}')['checkpoints']
    api.delete(sandbox)
    for one in checkpoints:
        api.call('DELETE', f'/v1/checkpoints/{one["id"]}')


def _work(api, sandbox, number):
    """1 MB of a file anew, on the disk, and a moment in which nothing is asked."""
    assert api.run(sandbox, ['sh', '-c', f'dd if=/dev/urandom of=$HOME/part{number % 8} bs=64k count=16 2>/dev/null && sync'])[1] == 0
    time.sleep(.5)


def _wake(api, sandbox):
    api.change(sandbox, 'suspend')

    def back():
        api.change(sandbox, 'wake')
        assert api.run(sandbox, ['true'])[1] == 0

    ms, _ = timed(back)
    return ms
