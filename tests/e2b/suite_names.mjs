// The JavaScript SDK with a domain: TLS, and names like 49983-ID.DOMAIN in place of headers. What a suite with headers cannot show.
import { Sandbox, TimeoutError } from 'e2b'
import { holds, raises, same, works } from './report.mjs'

let s
await works('Sandbox.create over TLS', async () => {
  s = await Sandbox.create({ timeoutMs: 300_000 })
})
if (!s) process.exit(1)
await works('commands.run over TLS', async () => same((await s.commands.run('echo hi')).stdout, 'hi\n'))
await works('files.write over TLS', async () => {
  await s.files.write('f', 'x'.repeat(1_000_000))
  same((await s.files.read('f')).length, 1_000_000)
})
await works('Sandbox.downloadUrl by name', async () => {
  const url = await s.downloadUrl('f', { user: 'user', useSignatureExpiration: 60_000 })
  holds(new URL(url).host.startsWith(`49983-${s.sandboxId}.`), url)
  same((await (await fetch(url)).text()).length, 1_000_000)
  same((await fetch(url.replace('path=f', 'path=g'))).status, 401)
})
await works('Sandbox.uploadUrl by name', async () => {
  const form = new FormData()
  form.append('file', new Blob(['up']), 'ignored')
  same((await fetch(await s.uploadUrl('up', { user: 'user' }), { method: 'POST', body: form })).status, 200)
  same(await s.files.read('up'), 'up')
})
await works('files.read unsigned by name', async () => same((await fetch(`https://49983-${s.sandboxId}.${process.env.E2B_DOMAIN}/files?path=f`)).status, 401))
await works('Sandbox.kill over TLS', async () => {
  const running = s.commands.run('sleep 300', { timeoutMs: 0 })
  running.catch(() => {})
  await new Promise((r) => setTimeout(r, 500))
  await s.kill()
  await raises(TimeoutError, () => running)
  const gone = await fetch(`https://${s.getHost(8080)}/`)
  same([gone.status, (await gone.json()).message], [502, 'The sandbox was not found'])
})
process.exit(0)
