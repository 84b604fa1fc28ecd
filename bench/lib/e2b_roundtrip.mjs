// create + `echo hi` + kill, N times: through E2B's SDK, and through the native API with the same runtime's fetch.
import { Sandbox } from 'e2b'

const count = Number(process.argv[2])
const [url, key] = [process.env.SPACE_URL, process.env.SPACE_KEY]

async function throughSdk() {
  const sandbox = await Sandbox.create({ timeoutMs: 120_000 })
  const { stdout } = await sandbox.commands.run('echo hi')
  if (stdout !== 'hi\n') throw new Error(`got ${stdout}`)
  await sandbox.kill()
}

async function native(method, path, body, headers = {}) {
  const answer = await fetch(url + path, {
    method,
    headers: { Authorization: `Bearer ${key}`, ...(body ? { 'Content-Type': 'application/json' } : {}), ...headers },
    body: body && JSON.stringify(body),
  })
  if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status} ${await answer.text()}`)
  return answer
}

async function natively() {
  const made = await (await native('POST', '/v1/sandboxes', { template: 'base', egress: 'open', time_limit_s: 120 }, { Prefer: 'wait=60' })).json()
  const { id } = made.sandbox ?? made
  // As the SDK runs it: by a login shell.
  const session = await (await native('POST', `/v1/sandboxes/${id}/commands`, { argv: ['/bin/bash', '-l', '-c', 'echo hi'] })).json()
  const text = await (await native('GET', `/v1/sandboxes/${id}/commands/${session.session}/attach`)).text()
  if (!text.includes(Buffer.from('hi\n').toString('base64'))) throw new Error(text)
  await native('DELETE', `/v1/sandboxes/${id}`, null, { Prefer: 'wait=60' })
}

async function timed(work) {
  const begun = performance.now()
  await work()
  return performance.now() - begun
}

const ours = [], peer = []
for (let i = 0; i < count + 2; i++) {
  const pair = i % 2 ? [await timed(throughSdk), await timed(natively)] : [await timed(natively), await timed(throughSdk)].reverse()
  if (i < 2) continue
  ours.push(pair[0])
  peer.push(pair[1])
}
console.log(JSON.stringify({ ours, peer }))
process.exit(0)
