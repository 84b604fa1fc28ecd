// The JavaScript SDK with a domain: TLS, and names like 49983-ID.DOMAIN in place of headers. What a suite with headers cannot show.
import { Sandbox, TimeoutError } from 'e2b'
import { holds, raises, same, until, works } from './report.mjs'

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
await works('Sandbox.getHost serves a port', async () => {
  await s.commands.run('mkdir -p www && cd www && echo page > page && nohup python3 -m http.server 8000 --bind 127.0.0.1 >/dev/null 2>&1 &')
  const answer = await until(async () => {
    const one = await fetch(`https://${s.getHost(8000)}/page`)
    return one.status === 200 && one
  }, 60)
  same(await answer.text(), 'page\n')
  const closed = await fetch(`https://${s.getHost(8001)}/`)
  same([closed.status, (await closed.json()).message], [502, 'The sandbox is running but port is not open'])
})
await works('Sandbox.create without public traffic', async () => {
  const own = await Sandbox.create({ timeoutMs: 120_000, network: { allowPublicTraffic: false } })
  holds(own.trafficAccessToken, 'no token')
  same((await fetch(`https://${own.getHost(8000)}/`)).status, 403)
  same((await fetch(`https://${own.getHost(8000)}/`, { headers: { 'e2b-traffic-access-token': own.trafficAccessToken } })).status, 502)
  await own.kill()
})
await works('Sandbox.create with HTTPS ports', async () => {
  const own = await Sandbox.create({ timeoutMs: 120_000, network: { httpsPorts: [3000] } })
  await own.commands.run('openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=x -keyout k -out c 2>/dev/null && echo page >page')
  await own.commands.run('openssl s_server -accept 3000 -key k -cert c -WWW -quiet', { background: true })
  const answer = await until(async () => {
    const one = await fetch(`https://${own.getHost(3000)}/page`)
    return one.status === 200 && one
  }, 60)
  same(await answer.text(), 'page\n')
  await own.kill()
})
await works('Sandbox.pause and connect', async () => {
  await s.pause()
  same([(await s.getInfo()).state, await s.isRunning()], ['paused', false])
  await s.connect({ timeoutMs: 300_000 })
  same(await s.files.read('up'), 'up')
})
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
