// Other clients of E2B, unmodified: its own command (@e2b/cli), and a public integration that drives E2B for others (@computesdk/e2b).
import { spawn } from 'node:child_process'
import { mkdtempSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { e2b as computesdk } from '@computesdk/e2b'
import { Sandbox, Template } from 'e2b'
import { differs, holds, refused, same, until, works } from './report.mjs'

const cli = fileURLToPath(new URL('node_modules/@e2b/cli/dist/index.js', import.meta.url))

// Runs a program to its end: {code, out, err}.
function run(program, words, input = '') {
  return new Promise((resolve) => {
    const child = spawn(program, words, { env: { ...process.env, CI: '1', NO_COLOR: '1', E2B_DISABLE_UPDATE_NOTIFIER: '1' } })
    let [out, err] = ['', '']
    child.stdout.on('data', (piece) => (out += piece))
    child.stderr.on('data', (piece) => (err += piece))
    child.on('close', (code) => resolve({ code, out, err }))
    if (typeof input === 'function') input(child)
    else child.stdin.end(input)
  })
}
async function e2b(...words) {
  const done = await run(process.execPath, [cli, ...words])
  if (done.code !== 0) throw new Error(`e2b ${words.join(' ')}: ${done.code} ${done.out} ${done.err}`)
  return done.out
}

let s
await works('e2b sandbox list', async () => {
  s = await Sandbox.create({ timeoutMs: 900_000, metadata: { suite: 'clients' } })
  const all = JSON.parse(await e2b('sandbox', 'list', '--format', 'json'))
  holds(all.some((one) => one.sandboxId === s.sandboxId || one.sandboxID === s.sandboxId), JSON.stringify(all))
})
await works('e2b sandbox info', async () => holds((await e2b('sandbox', 'info', s.sandboxId, '--format', 'json')).includes(s.sandboxId), 'another sandbox'))
await works('e2b sandbox exec', async () => {
  holds((await e2b('sandbox', 'exec', s.sandboxId, 'echo', 'from-inside')).includes('from-inside'), 'no output')
  const failed = await run(process.execPath, [cli, 'sandbox', 'exec', s.sandboxId, 'exit', '3'])
  same(failed.code, 3)
})
await works('e2b sandbox connect', async () => {
  // A terminal: script(1) gives it one.
  const done = await run('script', ['-qefc', `${process.execPath} ${cli} sandbox connect ${s.sandboxId}`, '/dev/null'], (child) => {
    let sent = 0
    child.stdout.on('data', () => {
      if (sent++ === 0) setTimeout(() => child.stdin.write('echo $((20 + 22))-there; exit\n'), 4000)
    })
    setTimeout(() => child.kill(), 60_000).unref()
  })
  holds(done.out.includes('42-there'), done.out)
})
await works('e2b sandbox logs', async () => {
  const out = await e2b('sandbox', 'logs', s.sandboxId, '--format', 'json')
  holds(/create succeeded/.test(out) && /from-inside/.test(out), out)
})
await works('e2b sandbox metrics', async () => {
  await s.getMetrics()
  holds(/cpu/i.test(await e2b('sandbox', 'metrics', s.sandboxId, '--format', 'json')), 'no figures')
})
await works('e2b sandbox pause', async () => {
  await e2b('sandbox', 'pause', s.sandboxId)
  same((await s.getInfo()).state, 'paused')
})
await works('e2b sandbox resume', async () => {
  await e2b('sandbox', 'resume', s.sandboxId)
  same((await s.getInfo()).state, 'running')
})
await works('e2b sandbox snapshot', async () => {
  await e2b('sandbox', 'snapshot', 'create', s.sandboxId, '--name', 'by-the-cli').catch(() => e2b('sandbox', 'snapshot', 'create', s.sandboxId))
  const [snapshot] = await Sandbox.listSnapshots({ sandboxId: s.sandboxId }).nextItems()
  holds((await e2b('sandbox', 'snapshot', 'list', '--format', 'json')).includes(snapshot.snapshotId), 'not listed')
  await Sandbox.deleteSnapshot(snapshot.snapshotId)
})
await works('e2b sandbox kill', async () => {
  await e2b('sandbox', 'kill', s.sandboxId)
  same(await s.isRunning(), false)
  const all = await e2b('sandbox', 'list', '--format', 'json')
  holds(!all.includes(s.sandboxId), all)
})

const folder = mkdtempSync(join(tmpdir(), 'space-e2b-'))
const template = `tt-cli-${process.pid}`
await works('e2b template create', async () => {
  writeFileSync(join(folder, 'e2b.Dockerfile'), 'FROM base\nCOPY given /given\nRUN echo made >> /given\n')
  writeFileSync(join(folder, 'given'), 'sent\n')
  await e2b('template', 'create', template, '-p', folder, '--cpu-count', '1', '--memory-mb', '512')
  const made = await Sandbox.create(template)
  same((await made.commands.run('cat /given')).stdout, 'sent\nmade\n')
  await made.kill()
})
await works('e2b template list', async () => {
  const all = JSON.parse(await e2b('template', 'list', '--format', 'json')).flatMap((one) => one.names ?? one.aliases)
  holds(all.includes('base') && all.includes(template), all.join(' '))
})
await differs('e2b template publish', 'changes nothing: every key may use every template', () => e2b('template', 'publish', template, '-y'))
await refused('e2b template unpublish', /every key/, () => e2b('template', 'unpublish', template, '-y'))
await works('e2b template delete', async () => {
  await e2b('template', 'delete', template, '-y')
  same(await Template.exists(template), false)
})
await works('e2b template migrate', () => e2b('template', 'migrate', '-p', folder, '-n', template, '-l', 'typescript'))
await works('e2b template init', () => e2b('template', 'init', '-p', folder, '-n', template, '-l', 'python-sync'))

const provider = computesdk({})
let other
await works('computesdk sandbox.create', async () => {
  other = await provider.sandbox.create({ timeout: 600_000, envs: { GIVEN: 'g' } })
  holds(other.sandboxId, 'no id')
})
await works('computesdk sandbox.runCommand', async () => {
  const done = await other.runCommand('echo "$GIVEN$OWN"; pwd; exit 3', { env: { OWN: 'o' }, cwd: '/tmp' })
  same([done.stdout, done.exitCode], ['g\n/tmp\n', 3])
})
await works('computesdk filesystem', async () => {
  await other.filesystem.mkdir('made')
  await other.filesystem.writeFile('made/f', 'by an integration')
  same([await other.filesystem.readFile('made/f'), await other.filesystem.exists('made/g')], ['by an integration', false])
  same((await other.filesystem.readdir('made')).map((one) => one.name), ['f'])
  await other.filesystem.remove('made/f')
  same(await other.filesystem.exists('made/f'), false)
})
await works('computesdk sandbox.getUrl', async () => holds((await other.getUrl({ port: 8000 })).startsWith(`https://8000-${other.sandboxId}.`), 'another URL'))
await works('computesdk sandbox.getById', async () => {
  const again = await provider.sandbox.getById(other.sandboxId)
  same((await again.runCommand('echo again')).stdout, 'again\n')
})
await works('computesdk sandbox.list', async () => holds((await provider.sandbox.list()).some((one) => one.sandboxId === other.sandboxId), 'not listed'))
await works('computesdk sandbox.destroy', async () => {
  await provider.sandbox.destroy(other.sandboxId)
  await until(async () => !(await Sandbox.list().nextItems()).some((one) => one.sandboxId === other.sandboxId))
})
process.exit(0)
