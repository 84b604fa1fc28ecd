"""policy.lookup and netns.create: parts that are measured without a server, by the program space-bench beside the server's."""
import os, subprocess, tempfile, time

from report import Result
from server import ROOT

PROGRAM = os.path.join(os.path.dirname(os.environ.get('SPACE_BINARY', f'{ROOT}/build/release/space')), 'space-bench')
# What a sandbox's namespace holds beside its rules (src/net/sandbox_net.cc), for `ip -batch`.
LINKS = '''link set dev tap0 address 02:5a:ce:00:00:01
address add 10.0.0.1/30 dev tap0
link set dev tap0 addrgenmode none
address add fd00:5ace::1/64 dev tap0 nodad
link set dev lo up
link set dev tap0 up
neigh replace 10.0.0.2 lladdr 02:5a:ce:00:00:02 dev tap0 nud permanent
neigh replace fd00:5ace::2 lladdr 02:5a:ce:00:00:02 dev tap0 nud permanent
'''


def figures(*words):
    ran = subprocess.run([PROGRAM, *words], capture_output=True, text=True, check=True)
    return [float(line) for line in ran.stdout.split()]


def measure(names, quick):
    results = {}
    if 'policy.lookup' in names:
        results['policy.lookup'] = Result([ns / 1e3 for ns in figures('policy', '200' if quick else '2000')])
    if 'netns.create' in names:
        results['netns.create'] = netns(5 if quick else 30)
    return results


def netns(count):
    """Ours and the commands in turns, so that a busy moment meets both."""
    rules = subprocess.run([PROGRAM, 'rules'], capture_output=True, text=True, check=True).stdout
    ours, peer = [], []
    with tempfile.TemporaryDirectory(prefix='space-bench-') as folder:
        files = {'rules': rules, 'links': LINKS}
        for name, text in files.items():
            with open(f'{folder}/{name}', 'w') as file:
                file.write(text)
        for i in range(count + 1):
            mine = figures('netns', '1')
            other = by_commands(f'spb{os.getpid()}-{i}', folder)
            if i > 0:
                ours += [us / 1e3 for us in mine]
                peer.append(other)
    return Result(ours, peer)


def by_commands(name, folder):
    def run(*words):
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL)

    begun = time.monotonic()
    try:
        run('ip', 'netns', 'add', name)
        run('ip', '-n', name, 'tuntap', 'add', 'dev', 'tap0', 'mode', 'tap', 'vnet_hdr')
        run('ip', 'netns', 'exec', name, 'nft', '-f', f'{folder}/rules')
        run('ip', '-n', name, '-batch', f'{folder}/links')
        run('ip', 'netns', 'exec', name, 'sysctl', '-q', 'net.ipv4.icmp_ratemask=0', 'net.ipv6.icmp.ratemask=0', 'net.ipv4.tcp_abort_on_overflow=1')
        return (time.monotonic() - begun) * 1e3
    finally:
        subprocess.run(['ip', 'netns', 'del', name], check=False)
