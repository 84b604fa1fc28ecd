"""e2b.methods, e2b.methods-python: the suites of tests/e2b call every public method of the pinned SDKs against real VMs. Counted are
the methods that a self-hosted server can serve; those that it cannot are refused, and the table of docs/e2b.md has their errors."""
from e2b_sdk import tests
from report import Result

TABLES = {'e2b.methods': ('js', 'js-interpreter'), 'e2b.methods-python': ('python', 'python-interpreter')}


def measure(names, quick):
    run = tests()
    suites = {name: suite for name, suite in run.SUITES.items() if any(suite.table in TABLES[bar] for bar in names)}
    told = run.results_of({name: suite.prepared() for name, suite in suites.items()})
    results = {}
    for bar in names:
        rows = {}
        for table in TABLES[bar]:
            of_table = run.rows([result for name in suites if suites[name].table == table for result in told[name]])
            rows.update({f'{table}: {method}': row for method, row in of_table.items()})
        served = {method: row for method, row in rows.items() if row['verdict'] != 'not there'}
        bad = sorted(method for method, row in served.items() if row['verdict'] not in ('works', 'differs'))
        results[bar] = Result([1 - len(bad) / len(served)], note=f'{len(served)} methods, {len(rows) - len(served)} not served' + (f'; not working: {", ".join(bad)}' if bad else ''))
    return results
