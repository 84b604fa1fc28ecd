// A file of N bytes up and down through E2B's SDK, streamed, with the agent's resident memory sampled inside the sandbox.
import { createHash } from 'node:crypto'
import { writeFileSync } from 'node:fs'
import { Sandbox } from 'e2b'

const [size, marker] = [Number(process.argv[2]), process.argv[3]]
const block = Buffer.alloc(1 << 20)
for (let i = 0; i < block.length; i++) block[i] = (i * 131) % 251

const sandbox = await Sandbox.create({ timeoutMs: 3_600_000 })
const agentKib = async () => Number((await sandbox.commands.run("awk '/^VmRSS/ { print $2 }' /proc/1/status", { user: 'root' })).stdout)

async function up(path, bytes) {
  const hash = createHash('sha256')
  let left = bytes
  const stream = new ReadableStream({
    pull(controller) {
      if (left === 0) return controller.close()
      const piece = block.subarray(0, Math.min(left, block.length))
      block.writeUInt32LE(left, 0)
      left -= piece.length
      hash.update(piece)
      controller.enqueue(new Uint8Array(piece))
    },
  })
  await sandbox.files.write(path, stream, { requestTimeoutMs: 0 })
  return hash.digest('hex')
}

async function down(path) {
  const hash = createHash('sha256')
  for await (const piece of await sandbox.files.read(path, { format: 'stream', requestTimeoutMs: 0 })) hash.update(piece)
  return hash.digest('hex')
}

for (let i = 0; i < 3; i++) {
  await up('small', 8 << 20)
  await down('small')
}
const before = await agentKib()
writeFileSync(marker, '') // from here on it is "during"
let peak = before, over = false
const watch = (async () => {
  while (!over) {
    peak = Math.max(peak, await agentKib())
    await new Promise((r) => setTimeout(r, 1000))
  }
})()
const sent = await up('large', size)
const back = await down('large')
over = true
await watch
await sandbox.kill()
console.log(JSON.stringify({ same: sent === back, agent_before_kib: before, agent_peak_kib: peak }))
process.exit(0)
