"""E2B's SDKs as tests/e2b/run installs them, and a server that they speak to."""
import functools, importlib.machinery, importlib.util, json, os, shutil, subprocess
from pathlib import Path

from server import ROOT, Server


@functools.cache
def tests():
    """tests/e2b/run as a module."""
    loader = importlib.machinery.SourceFileLoader('e2b_run', f'{ROOT}/tests/e2b/run')
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader('e2b_run', loader))
    loader.exec_module(module)
    return module


def environment(server):
    """What `space e2b env` prints, and the native API's address and key beside it."""
    native = {'SPACE_URL': f'http://127.0.0.1:{server.port}', 'SPACE_KEY_FILE': f'{server.data}/first.key'}
    printed = subprocess.run([server.binary, 'e2b', 'env', '--json', '--run-dir', '/nonexistent'], env={**os.environ, **native}, capture_output=True, text=True, check=True).stdout
    return {**{k: v for k, v in os.environ.items() if not k.startswith('E2B_')}, **json.loads(printed), 'SPACE_URL': native['SPACE_URL'], 'SPACE_KEY': server.key}


def node(server, script, *arguments, timeout=1200):
    """Runs one of this folder's .mjs files beside the installed SDK; gives the JSON of its last line."""
    place = tests().node() / script
    shutil.copy(Path(__file__).parent / script, place)
    done = subprocess.run(['node', str(place), *map(str, arguments)], env=environment(server), capture_output=True, text=True, timeout=timeout)
    if done.returncode != 0:
        raise RuntimeError(f'{script}: {done.stdout[-1000:]} {done.stderr[-3000:]}')
    return json.loads(done.stdout.strip().splitlines()[-1])


__all__ = ['Server', 'environment', 'node', 'tests']
