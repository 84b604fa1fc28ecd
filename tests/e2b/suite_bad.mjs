// What is wrong, and the class and the words that the SDK raises for it: sandboxes that are gone or paused, malformed messages, wrong
// content types, oversized frames, wrong signatures, tricks in paths, unknown users.
import { AuthenticationError, FileNotFoundError, InvalidArgumentError, NotFoundError, Sandbox, SandboxError, SandboxNotFoundError, TimeoutError } from 'e2b'
import { holds, raises, same, works } from './report.mjs'

const s = await Sandbox.create({ timeoutMs: 900_000 })
const token = s.envdAccessToken ?? s['envdAccessToken']
const base = process.env.E2B_SANDBOX_URL
const to = (id, more = {}) => ({ 'E2b-Sandbox-Id': id, 'E2b-Sandbox-Port': '49983', ...(token ? { 'X-Access-Token': token } : {}), ...more })
const rpc = (method, type, body, more = {}) => fetch(`${base}/${method}`, { method: 'POST', headers: to(s.sandboxId, { 'content-type': type, 'connect-protocol-version': '1', ...more }), body })
const frame = (text, flags = 0, size = Buffer.byteLength(text)) => Buffer.concat([Buffer.from([flags, size >> 24, (size >> 16) & 255, (size >> 8) & 255, size & 255]), Buffer.from(text)])
// The error in the last frame of a stream.
async function streamError(answer) {
  same(answer.status, 200)
  const bytes = Buffer.from(await answer.arrayBuffer())
  for (let at = 0; at < bytes.length; ) {
    const [flags, size] = [bytes[at], bytes.readUInt32BE(at + 1)]
    if (flags & 2) return JSON.parse(bytes.subarray(at + 5, at + 5 + size)).error?.code
    at += 5 + size
  }
  return 'no end frame'
}

// Every call on a sandbox, with the class that it raises when the sandbox is gone, and when it is paused. `undefined`: no error.
const calls = {
  'commands.run': [(x) => x.commands.run('true'), [SandboxNotFoundError, TimeoutError, SandboxError], [SandboxNotFoundError, TimeoutError, SandboxError]],
  'commands.list': [(x) => x.commands.list(), [TimeoutError, SandboxNotFoundError], [TimeoutError, SandboxNotFoundError]],
  'commands.connect': [(x) => x.commands.connect(1), [SandboxNotFoundError, TimeoutError], [SandboxNotFoundError, TimeoutError]],
  'commands.kill': [(x) => x.commands.kill(1), [TimeoutError, SandboxNotFoundError], [TimeoutError, SandboxNotFoundError]],
  'commands.sendStdin': [(x) => x.commands.sendStdin(1, 'x'), [TimeoutError, SandboxNotFoundError], [TimeoutError, SandboxNotFoundError]],
  'pty.create': [(x) => x.pty.create({ cols: 80, rows: 24, onData() {} }), [SandboxNotFoundError, TimeoutError], [SandboxNotFoundError, TimeoutError]],
  'files.read': [(x) => x.files.read('f'), [TimeoutError, SandboxNotFoundError], [TimeoutError, SandboxNotFoundError]],
  'files.write': [(x) => x.files.write('f', 'x'), [TimeoutError, SandboxNotFoundError], [TimeoutError, SandboxNotFoundError]],
  'files.list': [(x) => x.files.list('.'), [TimeoutError, SandboxNotFoundError], [TimeoutError, SandboxNotFoundError]],
  'files.exists': [(x) => x.files.exists('f'), [TimeoutError, SandboxNotFoundError], [TimeoutError, SandboxNotFoundError]],
  'files.remove': [(x) => x.files.remove('f'), [TimeoutError, SandboxNotFoundError], [TimeoutError, SandboxNotFoundError]],
  'files.rename': [(x) => x.files.rename('f', 'g'), [TimeoutError, SandboxNotFoundError], [TimeoutError, SandboxNotFoundError]],
  'files.makeDir': [(x) => x.files.makeDir('d'), [TimeoutError, SandboxNotFoundError], [TimeoutError, SandboxNotFoundError]],
  'files.watchDir': [(x) => x.files.watchDir('.', () => {}), [SandboxNotFoundError, TimeoutError], [SandboxNotFoundError, TimeoutError]],
  getInfo: [(x) => x.getInfo(), [SandboxNotFoundError], undefined],
  setTimeout: [(x) => x.setTimeout(60_000), [SandboxNotFoundError], [SandboxNotFoundError]],
  getMetrics: [(x) => x.getMetrics(), [SandboxNotFoundError], undefined],
  createSnapshot: [(x) => x.createSnapshot(), [SandboxNotFoundError], [SandboxError]],
  fork: [(x) => x.fork(), [SandboxNotFoundError], [SandboxError]],
  updateNetwork: [(x) => x.updateNetwork({}), [SandboxNotFoundError, SandboxError], [SandboxError]],
  pause: [(x) => x.pause(), [SandboxNotFoundError], undefined],
  isRunning: [(x) => x.isRunning(), undefined, undefined],
}
async function outcomes(sandbox, column) {
  for (const [name, [call, ...wanted]] of Object.entries(calls)) {
    const kinds = wanted[column]
    let raised
    try {
      await call(sandbox)
    } catch (error) {
      raised = error
    }
    if (!kinds) {
      if (raised) throw new Error(`${name} raised ${raised.constructor.name}: ${raised.message}`)
      continue
    }
    holds(raised && kinds.some((kind) => raised instanceof kind), `${name} gave ${raised?.constructor.name}: ${raised?.message}`)
    holds(raised.message.length > 20, `${name} says only '${raised.message}'`)
  }
}
await works('every call on a paused sandbox', async () => {
  const paused = await Sandbox.create({ timeoutMs: 300_000 })
  await paused.pause()
  await outcomes(paused, 1)
  holds(/connect/.test((await raises(SandboxError, () => paused.updateNetwork({}))).message), 'it does not say what to do')
  await paused.kill()
})
await works('every call on a deleted sandbox', async () => {
  const gone = await Sandbox.create({ timeoutMs: 300_000 })
  await gone.kill()
  await outcomes(gone, 0)
  await raises(SandboxNotFoundError, () => Sandbox.connect(gone.sandboxId))
  same(await gone.kill(), false)
})

await works('malformed envelopes', async () => {
  const start = JSON.stringify({ process: { cmd: '/bin/true' } })
  for (const [what, body] of Object.entries({
    nothing: Buffer.alloc(0), 'a head alone': Buffer.from([0, 0, 0]), 'a message cut off': frame('{}', 0, 100), 'no JSON': frame('{'), 'a list': frame('[]'),
    'a compressed message': frame(start, 1), 'unknown flags': frame(start, 0x40), 'two messages': Buffer.concat([frame(start), frame(start)]), 'an end first': frame('{}', 2),
    'an oversized frame': frame('x', 0, 0x7fffffff),
  }))
    same([what, await streamError(await rpc('process.Process/Start', 'application/connect+json', body))], [what, 'invalid_argument'])
  for (const [what, body] of Object.entries({ 'no JSON': '{', 'a list': '[]', 'a text': '"x"', 'a wrong type': '{"path":5}' }))
    same([what, (await rpc('filesystem.Filesystem/Stat', 'application/json', body)).status], [what, 400])
})
await works('an oversized message', async () => {
  const answer = await rpc('filesystem.Filesystem/Stat', 'application/json', `{"path":"${'x'.repeat(9 << 20)}"}`).catch((error) => error)
  holds(answer instanceof Error || answer.status === 400 || answer.status === 413, String(answer.status))
  same(await s.isRunning(), true)
})
await works('wrong content types', async () => {
  same((await rpc('process.Process/Start', 'application/json', '{}')).status, 415)
  same((await rpc('filesystem.Filesystem/Stat', 'text/plain', '{}')).status, 415)
  same((await rpc('filesystem.Filesystem/Nothing', 'application/json', '{}')).status, 404)
  const upload = await fetch(`${base}/files?path=f`, { method: 'POST', headers: to(s.sandboxId, { 'content-type': 'text/plain' }), body: 'x' })
  same([upload.status, typeof (await upload.json()).message], [400, 'string'])
  const form = await fetch(`${base}/files`, { method: 'POST', headers: to(s.sandboxId, { 'content-type': 'multipart/form-data; boundary=b' }), body: '--b\r\nno head' })
  same(form.status, 400)
  const packed = await fetch(`${base}/files?path=f`, { method: 'POST', headers: to(s.sandboxId, { 'content-type': 'application/octet-stream', 'content-encoding': 'gzip' }), body: 'not gzip' })
  same(packed.status, 400)
})
await works('protobuf where a client asks for it', async () => {
  // Stat {path: "/etc"}, and a Start of /bin/echo.
  const stat = await rpc('filesystem.Filesystem/Stat', 'application/proto', Buffer.from('\x0a\x04/etc', 'latin1'))
  same([stat.status, stat.headers.get('content-type')], [200, 'application/proto'])
  holds(Buffer.from(await stat.arrayBuffer()).includes('drwxr-xr-x'), 'no entry')
  const start = await rpc('process.Process/Start', 'application/connect+proto', frame('\x0a\x12\x0a\x09/bin/echo\x12\x05hello\x20\x00'))
  same(start.headers.get('content-type'), 'application/connect+proto')
  holds(Buffer.from(await start.arrayBuffer()).includes('hello\n'), 'no output')
  same((await rpc('filesystem.Filesystem/Stat', 'application/proto', Buffer.from([0x0a, 0x50]))).status, 400)
})
await works('tricks in paths', async () => {
  await s.files.write('../../../../tmp/up', 'x') // cleaned against the home: no way above the root
  same(await s.files.exists('/tmp/up'), true)
  for (const path of ['~root/x', 'a\0b', 'x'.repeat(5000)]) await raises(InvalidArgumentError, () => s.files.read(path))
  await raises(InvalidArgumentError, () => s.files.write('~other/x', 'x'))
  await raises(InvalidArgumentError, () => s.files.write('/tmp', 'a directory'))
  await raises(FileNotFoundError, () => s.files.read('/proc/1/root/nothing'))
  await s.commands.run('ln -sfn loop loop')
  await raises(SandboxError, () => s.files.list('loop'))
  const odd = 'ä "quoted" \\ % # ? & + name'
  await s.files.write(odd, 'odd')
  same([await s.files.read(odd), (await s.files.list('.')).some((e) => e.name === odd)], ['odd', true])
})
await works('unknown users', async () => {
  for (const call of [() => s.commands.run('true', { user: 'nobodyhere' }), () => s.files.read('f', { user: 'nobodyhere' }), () => s.files.list('.', { user: 'nobodyhere' })])
    holds(/nobodyhere/.test((await raises(AuthenticationError, call)).message), 'it does not name the user')
})
await works('wrong and expired signatures', async () => {
  await s.files.write('signed', 'x')
  const get = async (url) => (await fetch(url, { headers: { 'E2b-Sandbox-Id': s.sandboxId, 'E2b-Sandbox-Port': '49983' } })).status
  const good = await s.downloadUrl('signed', { user: 'user', useSignatureExpiration: 60_000 })
  same(await get(good), 200)
  same(await get(await s.downloadUrl('signed', { user: 'user', useSignatureExpiration: -60_000 })), 401)
  const wrong = new URL(good)
  wrong.searchParams.set('signature', 'v1_' + 'A'.repeat(43))
  same(await get(wrong), 401)
  const later = new URL(good)
  later.searchParams.set('signature_expiration', '9999999999')
  same(await get(later), 401)
  same((await fetch(`${base}/files?path=signed`, { headers: to(s.sandboxId, { 'X-Access-Token': 'wrong' }) })).status, 401)
})
await works('wrong destinations', async () => {
  for (const headers of [{ 'E2b-Sandbox-Id': s.sandboxId }, { 'E2b-Sandbox-Port': '49983' }, { 'E2b-Sandbox-Id': '../x', 'E2b-Sandbox-Port': '1' }, { 'E2b-Sandbox-Id': s.sandboxId, 'E2b-Sandbox-Port': '65536' }])
    same([JSON.stringify(headers), (await fetch(`${base}/health`, { headers })).status], [JSON.stringify(headers), 400])
  same((await fetch(`${base}/init`, { method: 'POST', headers: to(s.sandboxId), body: '{}' })).status, 404)
})
await works('wrong requests to the control plane', async () => {
  const ask = async (method, path, body) => {
    const answer = await fetch(process.env.E2B_API_URL + path, { method, headers: { 'X-API-KEY': process.env.E2B_API_KEY, 'content-type': 'application/json' }, body })
    const told = await answer.json()
    same([path, told.code, typeof told.message], [path, answer.status, 'string'])
    return answer.status
  }
  same(await ask('POST', '/v2/sandboxes', '{'), 400)
  same(await ask('POST', '/v2/sandboxes', '{"templateID":5}'), 400)
  same(await ask('POST', '/v2/sandboxes', '{"templateID":"base","timeout":-1}'), 400)
  same(await ask('POST', '/v2/sandboxes', '{"templateID":"../etc"}'), 400)
  same(await ask('GET', '/sandboxes/NOT-AN-ID'), 400)
  same(await ask('GET', '/v2/sandboxes?limit=0'), 400)
  same(await ask('GET', '/v2/no/such/path'), 404)
  same(await ask('PATCH', `/sandboxes/${s.sandboxId}`, '{}'), 405)
  same(await ask('GET', `/sandboxes/${s.sandboxId}/logs?start=x`), 400)
  await raises(NotFoundError, () => Sandbox.getInfo('i00000000000000000000')).catch((error) => {
    if (!(error instanceof SandboxNotFoundError)) throw error
  })
})
await s.kill()
process.exit(0)
