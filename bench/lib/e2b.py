"""e2b.roundtrip: a sandbox's whole life through E2B's SDK and natively, in turns, from one Node.js process.
e2b.parallel: outputs of many commands at once, each compared with what it must be."""
from e2b_sdk import Server, node
from report import Result


def measure(names, quick):
    results = {}
    if 'e2b.roundtrip' in names:
        with Server() as server:
            told = node(server, 'e2b_roundtrip.mjs', 5 if quick else 40)
        results['e2b.roundtrip'] = Result(told['ours'], told['peer'])
    if 'e2b.parallel' in names:
        with Server() as server:
            told = node(server, 'e2b_parallel.mjs', 100, 4 if quick else 20)
        results['e2b.parallel'] = Result([told['wrong']], note=f'{told["commands"]} commands; {told["examples"]}' if told['wrong'] else f'{told["commands"]} commands')
    return results
