// Every public method of the unmodified JavaScript SDK against a running server. Started by `tests/e2b/run`, which sets E2B_*.
import { Sandbox, Secret, Template, AuthenticationError, CommandExitError, FileNotFoundError, Git, InvalidArgumentError, NotFoundError, SandboxError,
  SandboxNotFoundError, TimeoutError } from 'e2b'
import { differs, holds, methodsOf, raises, refused, same, tellUnchecked, until, works } from './report.mjs'

const bytes = (text) => new TextEncoder().encode(text)
const text = (data) => new TextDecoder().decode(data)
const sleep = (ms) => new Promise((r) => setTimeout(r, ms))

let s
await works('Sandbox.create', async () => {
  s = await Sandbox.create({ timeoutMs: 900_000, metadata: { suite: 'js', 'k ey': 'v&l' }, envs: { GLOBAL: 'g' } })
  holds(/^[a-z0-9]+$/.test(s.sandboxId), s.sandboxId)
})
if (!s) process.exit(1)

await works('commands.run', async () => {
  const r = await s.commands.run('echo hi; echo no >&2; pwd; id -un; echo $GLOBAL$E2B_SANDBOX')
  same([r.exitCode, r.stdout, r.stderr], [0, 'hi\n/home/user\nuser\ngtrue\n', 'no\n'])
})
await works('commands.run with errors', async () => {
  same((await raises(CommandExitError, () => s.commands.run('exit 3'))).exitCode, 3)
  same((await s.commands.run('id -un; echo $A', { user: 'root', envs: { A: 'b' }, cwd: '/' })).stdout, 'root\nb\n')
  await raises(InvalidArgumentError, () => s.commands.run('true', { cwd: '/not/there' }))
  await raises(AuthenticationError, () => s.commands.run('true', { user: 'nobodyhere' }))
  await raises(TimeoutError, () => s.commands.run('sleep 30', { timeoutMs: 1000 }))
  await until(async () => !(await s.commands.list()).some((p) => p.args.includes('sleep 30')))
})
await works('commands.run streams', async () => {
  const seen = []
  await s.commands.run('for i in 1 2 3; do echo $i; sleep 0.3; done', { onStdout: (d) => seen.push(d) })
  same(seen.join(''), '1\n2\n3\n')
  holds(seen.length > 1, 'all output came at once')
})
await works('commands.run much output', async () => {
  const r = await s.commands.run('head -c 3000000 /dev/zero | tr "\\0" x')
  same(r.stdout.length, 3_000_000)
})
await works('commands.run in parallel', async () => {
  const numbers = [...Array(10).keys()].map(String)
  const all = await Promise.all(numbers.map((i) => s.commands.run(`sleep 0.2; echo ${i}`, { timeoutMs: 0 })))
  same(all.map((r) => r.stdout.trim()), numbers)
})
await works('commands.list', async () => {
  const h = await s.commands.run('sleep 60', { background: true })
  const found = (await s.commands.list()).find((p) => p.pid === h.pid)
  same([found.cmd, found.args.at(-1)], ['/bin/bash', 'sleep 60'])
  await h.kill()
})
await works('commands.kill', async () => {
  const h = await s.commands.run('sleep 60', { background: true })
  same(await s.commands.kill(h.pid), true)
  const error = await raises(CommandExitError, () => h.wait())
  same([error.exitCode, error.message], [-1, 'signal: killed'])
  same(await s.commands.kill(999999), false)
})
await works('commands.connect', async () => {
  const h = await s.commands.run('for i in 1 2 3 4; do echo $i; sleep 0.5; done', { background: true })
  await sleep(700)
  const again = await s.commands.connect(h.pid)
  holds((await again.wait()).stdout.endsWith('3\n4\n'), 'output after the connect is missing')
  await raises(NotFoundError, () => s.commands.connect(999999))
})
await works('commands.sendStdin', async () => {
  const h = await s.commands.run('read a; echo "<$a>"', { background: true, stdin: true })
  await s.commands.sendStdin(h.pid, 'hello\n')
  same((await h.wait()).stdout, '<hello>\n')
})
await works('commands.closeStdin', async () => {
  const h = await s.commands.run('cat', { background: true, stdin: true })
  await s.commands.sendStdin(h.pid, bytes('abc'))
  await s.commands.closeStdin(h.pid)
  same((await h.wait()).stdout, 'abc')
})

await works('pty.create', async () => {
  let out = ''
  const h = await s.pty.create({ cols: 90, rows: 30, onData: (d) => (out += text(d)), timeoutMs: 0 })
  await s.pty.sendInput(h.pid, bytes('stty size; exit\n'))
  same((await h.wait()).exitCode, 0)
  holds(out.includes('30 90'), out)
})
await works('pty.sendInput', async () => {
  let out = ''
  const h = await s.pty.create({ cols: 80, rows: 24, onData: (d) => (out += text(d)) })
  await s.pty.sendInput(h.pid, bytes('echo $((20+22)); exit\n'))
  await h.wait()
  holds(out.includes('42'), out)
})
await works('pty.resize', async () => {
  let out = ''
  const h = await s.pty.create({ cols: 80, rows: 24, onData: (d) => (out += text(d)) })
  await s.pty.resize(h.pid, { cols: 101, rows: 33 })
  await s.pty.sendInput(h.pid, bytes('stty size; exit\n'))
  await h.wait()
  holds(out.includes('33 101'), out)
})
await works('pty.connect', async () => {
  const first = await s.pty.create({ cols: 80, rows: 24, onData: () => {}, timeoutMs: 0 })
  await first.disconnect()
  let out = ''
  const again = await s.pty.connect(first.pid, { onData: (d) => (out += text(d)) })
  await s.pty.sendInput(first.pid, bytes('echo o""k; exit\n'))
  same((await again.wait()).exitCode, 0)
  holds(out.includes('ok'), out)
})
await works('pty.kill', async () => {
  const h = await s.pty.create({ cols: 80, rows: 24, onData: () => {} })
  same([await s.pty.kill(h.pid), await s.pty.kill(999999)], [true, false])
})

await works('files.write', async () => {
  same(await s.files.write('a/b.txt', 'hello wörld'), { path: '/home/user/a/b.txt', name: 'b.txt', type: 'file' })
  const two = await s.files.write([{ path: 'm1', data: '1' }, { path: '/tmp/m2', data: new Blob(['22']) }])
  same(two.map((f) => f.path), ['/home/user/m1', '/tmp/m2'])
  await s.files.write('packed', 'x'.repeat(500_000), { gzip: true })
  await s.files.write('/0/deep/root.txt', 'r')
  same((await s.files.write('meta', 'm', { metadata: { Key: 'v' } })).metadata, { key: 'v' })
  same((await s.commands.run('wc -c < packed; stat -c %U:%a a a/b.txt')).stdout, '500000\nuser:755\nuser:644\n')
})
await works('files.writeFiles', async () => same((await s.files.writeFiles([{ path: 'w1', data: 'a' }])).length, 1))
await works('files.read', async () => {
  same(await s.files.read('a/b.txt'), 'hello wörld')
  same((await s.files.read('a/b.txt', { format: 'bytes' })).length, 12)
  same(await (await s.files.read('a/b.txt', { format: 'blob' })).text(), 'hello wörld')
  let size = 0
  for await (const piece of await s.files.read('packed', { format: 'stream' })) size += piece.length
  same(size, 500_000)
  await s.files.write('empty', '')
  same(await s.files.read('empty'), '')
  await raises(FileNotFoundError, () => s.files.read('not there'))
  await raises(InvalidArgumentError, () => s.files.read('/tmp'))
})
await works('files.write and read 20 MB', async () => {
  const block = new Uint8Array(20_000_000).map((_, i) => i * 7)
  await s.files.write('large', new Blob([block]).stream())
  const back = await s.files.read('large', { format: 'bytes' })
  holds(Buffer.compare(Buffer.from(back), Buffer.from(block)) === 0, 'the bytes differ')
})
await works('files.list', async () => {
  await s.commands.run('mkdir -p l/two/three && touch l/one l/two/x && ln -s one l/link')
  same((await s.files.list('l', { depth: 2 })).map((e) => [e.name, e.type]), [['link', 'file'], ['one', 'file'], ['two', 'dir'], ['three', 'dir'], ['x', 'file']])
  await raises(FileNotFoundError, () => s.files.list('nowhere'))
})
await works('files.makeDir', async () => same([await s.files.makeDir('d/e'), await s.files.makeDir('d/e')], [true, false]))
await works('files.exists', async () => same([await s.files.exists('d/e'), await s.files.exists('d/f')], [true, false]))
await works('files.getInfo', async () => {
  const info = await s.files.getInfo('a/b.txt')
  same([info.name, info.type, info.size, info.permissions, info.owner, info.group], ['b.txt', 'file', 12, '-rw-r--r--', 'user', 'user'])
  same((await s.files.getInfo('l/link')).symlinkTarget, '/home/user/l/one')
  same((await s.files.getInfo('meta')).metadata, { key: 'v' })
})
await works('files.rename', async () => {
  same((await s.files.rename('m1', 'q/m3')).path, '/home/user/q/m3')
  await raises(FileNotFoundError, () => s.files.rename('m1', 'm4'))
})
await works('files.remove', async () => {
  await s.files.remove('q')
  await s.files.remove('q')
  same(await s.files.exists('q'), false)
})
await works('files.watchDir', async () => {
  const seen = []
  await s.files.makeDir('w')
  const h = await s.files.watchDir('w', (e) => seen.push(`${e.type}:${e.name}`), { recursive: true })
  await s.files.write('w/f', '1')
  await s.files.makeDir('w/sub')
  await s.files.write('w/sub/g', '2')
  await s.files.rename('w/f', 'w/h')
  await s.files.remove('w/h')
  await until(() => ['create:f', 'write:f', 'create:sub', 'create:sub/g', 'rename:f', 'create:h', 'remove:h'].every((e) => seen.includes(e)))
  await h.stop()
  await raises(FileNotFoundError, () => s.files.watchDir('nowhere', () => {}))
  await raises(SandboxError, () => s.files.watchDir('a/b.txt', () => {}))
})

const plainGit = async (path) => {
  await s.git.init(path)
  await s.git.configureUser('A', 'a@example.org')
}
const hasGit = (await s.commands.run('command -v git || true')).stdout !== ''
if (hasGit) {
  await works('git.init', () => plainGit('repo'))
  await works('git.add', async () => {
    await s.files.write('repo/f', '1')
    await s.git.add('repo')
  })
  await works('git.commit', () => s.git.commit('repo', 'first'))
  await works('git.status', async () => same((await s.git.status('repo')).isClean, true))
  await works('git.createBranch', () => s.git.createBranch('repo', 'side'))
  await works('git.branches', async () => holds((await s.git.branches('repo')).branches.includes('side'), 'no branch side'))
  await works('git.checkoutBranch', async () => {
    await s.git.createBranch('repo', 'third')
    await s.git.checkoutBranch('repo', 'side')
  })
  await works('git.deleteBranch', () => s.git.deleteBranch('repo', 'third'))
  await works('git.clone', () => s.git.clone('/home/user/repo', { path: 'copy' }))
  await works('git.remoteAdd', () => s.git.remoteAdd('copy', 'other', '/home/user/repo'))
  await works('git.remoteGet', async () => same(await s.git.remoteGet('copy', 'other'), '/home/user/repo'))
  await works('git.setConfig', () => s.git.setConfig('space.test', 'yes', { scope: 'global' }))
  await works('git.getConfig', async () => same(await s.git.getConfig('space.test', { scope: 'global' }), 'yes'))
  await works('git.configureUser', () => s.git.configureUser('B', 'b@example.org'))
  await works('git.restore', async () => {
    await s.files.write('copy/f', 'changed')
    await s.git.restore('copy', { paths: ['f'] })
    same(await s.files.read('copy/f'), '1')
  })
  await works('git.push', async () => {
    await s.commands.run('git init -q --bare served.git')
    await s.git.remoteAdd('repo', 'served', '/home/user/served.git')
    const { currentBranch } = await s.git.status('repo')
    await s.git.push('repo', { remote: 'served', branch: currentBranch, setUpstream: true })
    same((await s.commands.run(`git -C served.git log --format=%s ${currentBranch}`)).stdout, 'first\n')
  })
  await works('git.pull', async () => {
    const { currentBranch } = await s.git.status('repo')
    await s.git.clone('/home/user/served.git', { path: 'second', branch: currentBranch })
    await s.git.configureUser('C', 'c@example.org')
    await s.files.write('second/g', '2')
    await s.git.add('second')
    await s.git.commit('second', 'second')
    await s.git.push('second')
    await s.git.pull('repo', { remote: 'served', branch: currentBranch })
    same(await s.files.read('repo/g'), '2')
  })
  await works('git.dangerouslyAuthenticate', async () => {
    await s.git.dangerouslyAuthenticate({ username: 'someone', password: 'a-token', host: 'git.example.org' })
    holds(/a-token/.test((await s.commands.run('cat ~/.git-credentials')).stdout), 'no credential')
  })
  await works('git.reset', () => s.git.reset('copy', { mode: 'hard' }))
}

await works('Sandbox.isRunning', async () => same(await s.isRunning(), true))
await works('Sandbox.getInfo', async () => {
  const info = await s.getInfo()
  same([info.sandboxId, info.templateId, info.state, info.metadata], [s.sandboxId, 'base', 'running', { 'k ey': 'v&l', suite: 'js' }])
  same((await Sandbox.getInfo(s.sandboxId)).sandboxId, s.sandboxId)
  await raises(SandboxNotFoundError, () => Sandbox.getInfo('i00000000000000000000'))
})
await works('Sandbox.getFullInfo', async () => same((await Sandbox.getFullInfo(s.sandboxId)).sandboxId, s.sandboxId))
await works('Sandbox.list', async () => {
  const ids = async (options) => (await Sandbox.list(options).nextItems()).map((i) => i.sandboxId)
  same(await ids({ query: { metadata: { suite: 'js', 'k ey': 'v&l' } } }), [s.sandboxId])
  same(await ids({ query: { metadata: { suite: 'other' } } }), [])
  same(await ids({ query: { state: ['paused'] } }), [])
  const pages = Sandbox.list({ limit: 1, query: { state: ['running'] } })
  same((await pages.nextItems()).length, 1)
})
await works('Sandbox.setTimeout', async () => {
  await s.setTimeout(600_000)
  const left = (await s.getInfo()).endAt.getTime() - Date.now()
  holds(left > 590_000 && left < 601_000, `${left} ms are left`)
  await raises(SandboxNotFoundError, () => Sandbox.setTimeout('i00000000000000000000', 1000))
})
await works('Sandbox.connect', async () => {
  const before = (await s.getInfo()).endAt.getTime()
  const other = await Sandbox.connect(s.sandboxId, { timeoutMs: 1000 })
  same((await other.commands.run('echo there')).stdout, 'there\n')
  same((await s.getInfo()).endAt.getTime(), before)
  await raises(SandboxNotFoundError, () => Sandbox.connect('i00000000000000000000'))
})
await differs('Sandbox.getMetrics', 'figures are taken when they are asked for, not every 5 s', async () => {
  const [first] = await s.getMetrics()
  holds(first.cpuCount >= 1 && first.memTotal > 0 && first.diskTotal > 0, JSON.stringify(first))
})
await works('Sandbox.getHost', async () => holds(s.getHost(8080).startsWith(`8080-${s.sandboxId}.`), s.getHost(8080)))
for (const kind of ['download', 'upload'])
  await works(`Sandbox.${kind}Url`, async () => {
    const signed = new URL(await s[`${kind}Url`]('signed', { user: 'user', useSignatureExpiration: 60_000 }))
    const send = (url) => fetch(url, { method: kind === 'upload' ? 'POST' : 'GET', headers: { 'E2b-Sandbox-Id': s.sandboxId, 'E2b-Sandbox-Port': '49983', ...(kind === 'upload' ? { 'content-type': 'application/octet-stream' } : {}) }, ...(kind === 'upload' ? { body: 'up' } : {}) })
    if (kind === 'download') await s.files.write('signed', 'down')
    same((await send(signed)).status, 200)
    signed.searchParams.set('path', 'other')
    same((await send(signed)).status, 401)
  })

await works('Sandbox.pause', async () => {
  await s.commands.run('echo kept > kept; (sleep 600 &) ; nohup sh -c "while :; do sleep 1; done" >/dev/null 2>&1 & echo')
  const h = await s.commands.run('read a; echo "got $a"', { background: true, stdin: true, timeoutMs: 0 })
  same(await s.pause(), true)
  same(await s.pause(), false)
  same([(await s.getInfo()).state, await s.isRunning()], ['paused', false])
  holds((await Sandbox.list({ query: { state: ['paused'] } }).nextItems()).some((i) => i.sandboxId === s.sandboxId), 'not listed as paused')
  await s.connect({ timeoutMs: 900_000 })
  same([await s.isRunning(), await s.files.read('kept')], [true, 'kept\n'])
  holds((await s.commands.list()).some((p) => p.pid === h.pid), 'the process is gone')
  const again = await s.commands.connect(h.pid)
  await s.commands.sendStdin(h.pid, 'it\n')
  same((await again.wait()).stdout, 'got it\n')
})
await works('Sandbox.betaPause', async () => {
  same(await s.betaPause(), true)
  await Sandbox.connect(s.sandboxId, { timeoutMs: 900_000 })
})
await works('Sandbox.fork', async () => {
  await s.files.write('forked', 'yes')
  await s.commands.run('echo common > /dev/shm/in-memory')
  const [one, two] = await s.fork({ count: 2, timeoutMs: 120_000 })
  holds(new Set([s.sandboxId, one.sandboxId, two.sandboxId]).size === 3, 'an id twice')
  same([await one.files.read('forked'), await two.files.read('/dev/shm/in-memory'), await s.isRunning()], ['yes', 'common\n', true])
  same((await two.commands.run('echo $E2B_SANDBOX_ID')).stdout.trim(), two.sandboxId)
  await one.files.write('forked', 'child')
  same([await s.files.read('forked'), await two.files.read('forked')], ['yes', 'yes'])
  await Promise.all([one.kill(), two.kill()])
  same(await Sandbox.listSnapshots({ sandboxId: s.sandboxId }).nextItems(), [])
})
let snapshot
await works('Sandbox.createSnapshot', async () => {
  const parent = await Sandbox.create({ timeoutMs: 300_000 })
  await parent.files.write('snapped', '1')
  snapshot = await parent.createSnapshot({ name: 'kept' })
  same([snapshot.snapshotId, snapshot.names], ['kept:default', ['kept']])
  await parent.files.write('snapped', '2')
  same(await parent.files.read('snapped'), '2')
  await parent.kill()
  const from = await Sandbox.create(snapshot.snapshotId, { timeoutMs: 120_000, envs: { OWN: 'mine' }, metadata: { made: 'here' } })
  same([await from.files.read('snapped'), (await from.commands.run('echo $OWN')).stdout.trim(), (await from.getInfo()).metadata], ['1', 'mine', { made: 'here' }])
  await from.kill()
})
await works('Sandbox.listSnapshots', async () => {
  same((await Sandbox.listSnapshots({ name: 'kept' }).nextItems()).map((i) => i.snapshotId), [snapshot.snapshotId])
  same(await Sandbox.listSnapshots({ name: 'not-kept' }).nextItems(), [])
})
await works('Sandbox.deleteSnapshot', async () => {
  same([await Sandbox.deleteSnapshot(snapshot.snapshotId), await Sandbox.deleteSnapshot(snapshot.snapshotId)], [true, false])
  await raises(SandboxError, () => Sandbox.create(snapshot.snapshotId))
})
await differs('Sandbox.updateNetwork', 'header rules go into HTTPS alone, have values of 8 bytes or more, and are shown as ***; an egress proxy is refused', async () => {
  await s.updateNetwork({ denyOut: ['0.0.0.0/0'], allowOut: ['1.1.1.1', 'example.org'] })
  same((await s.getInfo()).network?.allowOut, ['1.1.1.1', 'example.org'])
  await s.updateNetwork({})
  await raises(SandboxError, () => s.updateNetwork({ denyOut: ['not an address'] }))
})
await works('Sandbox.create with HTTPS ports', async () => {
  const own = await Sandbox.create({ timeoutMs: 120_000, network: { httpsPorts: [3000] } })
  same((await own.getInfo()).network.httpsPorts, [3000])
  await own.kill()
  await raises(SandboxError, () => Sandbox.create({ network: { httpsPorts: [49983] } }))
})
await refused('Sandbox.create with an egress proxy', /proxy/, () => Sandbox.create({ network: { egressProxy: { address: 'proxy.example.org:1080' } } }))

await works('Sandbox.updateNetwork with header rules', async () => {
  await s.updateNetwork({ allowOut: ['api.example.org'], denyOut: ['0.0.0.0/0'], rules: { 'api.example.org': [{ transform: { headers: { 'X-Key': 'a-secret-value', Authorization: 'Bearer ${e2b.secrets.suite-js}' } } }] } })
  const shown = JSON.stringify((await s.getInfo()).network.rules)
  holds(shown.includes('***') && shown.includes('${e2b.secrets.suite-js}') && !shown.includes('a-secret-value'), shown)
  for (const [value, why] of [['short', /8 bytes/], ['${e2b.identity.tokens.x}', /secrets.NAME/], ['${e2b.secrets.a} and more', /secrets.NAME/]])
    holds(why.test((await raises(SandboxError, () => s.updateNetwork({ rules: { 'api.example.org': [{ transform: { headers: { A: value } } }] } }))).message), value)
  await s.updateNetwork({})
})
let secret
await works('Secret.create', async () => {
  secret = await Secret.create('suite-js', 'a-value-of-mine', { metadata: { of: 'the suite' } })
  same([secret.name, secret.currentVersion ?? secret.version, secret.metadata], ['suite-js', 1, { of: 'the suite' }])
  await raises(Error, () => Secret.create('suite-js', 'another-value'))
})
await works('Secret.list', async () => holds((await Secret.list().nextItems()).some((one) => one.name === 'suite-js'), 'not listed'))
await works('Secret.getInfo', async () => same((await Secret.getInfo('suite-js')).secretId, secret.secretId))
await works('Secret.exists', async () => same([await Secret.exists('suite-js'), await Secret.exists('suite-other')], [true, false]))
await works('Secret.update', async () => {
  const now = await Secret.update('suite-js', 'a-newer-value')
  same([now.currentVersion ?? now.version, (await Secret.getInfo('suite-js')).metadata], [2, { of: 'the suite' }])
})
await works('Secret.destroy', async () => same([await Secret.destroy('suite-js'), await Secret.destroy('suite-js')], [true, false]))
await refused('Secret.iamToken', /identit/, () => Sandbox.create({ iam: { tokens: { t: Secret.iamToken({ audience: 'a', tokenType: 'JWT-SVID' }) } } }))
await works('Sandbox.getMcpUrl', async () => holds(s.getMcpUrl().includes(`50005-${s.sandboxId}.`), s.getMcpUrl()))
await works('Sandbox.getMcpToken', async () => {
  await s.commands.run('mkdir -p /etc/mcp-gateway && printf token-of-a-gateway >/etc/mcp-gateway/.token', { user: 'root' })
  same(await s.getMcpToken(), 'token-of-a-gateway')
})
await refused('Sandbox.create with mcp', /MCP/, () => Sandbox.create({ mcp: { exa: { apiKey: 'x' } } }))
await works('Secret.fill', async () => same(Secret.fill('suite-js'), '${e2b.secrets.suite-js}'))
await works('Template.exists', async () => same([await Template.exists('base'), await Template.exists('nothing-there')], [true, false]))
await raises(NotFoundError, () => Sandbox.create('nothing-there')).catch(() => {})
await works('Sandbox.create with a wrong template', async () => holds(/not found/.test((await raises(SandboxError, () => Sandbox.create('nothing-there'))).message), 'another message'))
await works('Sandbox.create with a wrong key', () => raises(AuthenticationError, () => Sandbox.create({ apiKey: 'e2b_' + '0'.repeat(40) })))

await works('Sandbox.kill', async () => {
  const running = (await s.commands.run('sleep 300', { timeoutMs: 0, background: true })).wait()
  running.catch(() => {})
  same(await s.kill(), true)
  await raises(TimeoutError, () => running)
  same(await Sandbox.kill(s.sandboxId), false)
  same(await s.isRunning(), false)
  holds(!(await Sandbox.list().nextItems()).some((i) => i.sandboxId === s.sandboxId), 'still listed')
})
await works('Sandbox.create with a timeout', async () => {
  const short = await Sandbox.create({ timeoutMs: 3000 })
  await until(async () => !(await short.isRunning()), 30)
  await raises(SandboxNotFoundError, () => short.getInfo())
})

await works('Sandbox.create with a pause at its end', async () => {
  const short = await Sandbox.create({ timeoutMs: 4000, lifecycle: { onTimeout: 'pause', autoResume: true } })
  await until(async () => (await short.getInfo()).state === 'paused', 60)
  same((await short.commands.run('echo awake')).stdout, 'awake\n')
  await short.kill()
})

const internal = ['resolveApiOpts', 'fileUrl', 'createSandbox', 'forkSandbox', 'connectSandbox', 'resolveOpts', 'boundOpts']
tellUnchecked([...methodsOf('Sandbox', Sandbox, internal), ...methodsOf('Secret', Secret, internal),
  ...methodsOf('git', Git, ['runGit', 'runShell', 'getRemoteUrl', 'resolveRemoteName', 'withRemoteCredentials', 'hasUpstream'])])
process.exit(0)
