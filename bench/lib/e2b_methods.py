"""e2b.methods, e2b.methods-python: the suites of tests/e2b call every public method of the pinned SDKs against real VMs. Counted are
the methods that a self-hosted server can serve; those that it cannot are refused, and the table of docs/e2b.md has their errors."""
from e2b_sdk import tests
from report import Result

SUITES = {'e2b.methods': ('js', 'js-names', 'js-interpreter'), 'e2b.methods-python': ('python', 'python-interpreter')}


def measure(names, quick):
    run = tests()
    results = {}
    server = run.SpaceServer(domain=run.DOMAIN, domain_listen='127.0.0.1:0').start()
    try:
        for name in names:
            told = []
            for suite in SUITES[name]:
                command, missing = run.SUITES[suite][1]()
                if missing:
                    raise RuntimeError(missing)
                told += run.run_suite(command, server, suite == 'js-names')
            rows = run.rows(told)
            served = {method: row for method, row in rows.items() if row['verdict'] != 'not there'}
            bad = sorted(method for method, row in served.items() if row['verdict'] not in ('works', 'differs'))
            results[name] = Result([1 - len(bad) / len(served)], note=f'{len(served)} methods, {len(rows) - len(served)} not served' + (f'; not working: {", ".join(bad)}' if bad else ''))
    finally:
        server.close()
    return results
