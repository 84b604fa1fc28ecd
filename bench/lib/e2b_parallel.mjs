// N commands at once on one sandbox, then N on each side of M sandboxes; counts outputs that are not exactly what they must be.
import { Sandbox } from 'e2b'

const [count, others] = process.argv.slice(2).map(Number)
const patience = { timeoutMs: 0, requestTimeoutMs: 600_000 }
const examples = []
let wrong = 0

async function check(sandbox, name) {
  const lines = Array.from({ length: 20 }, (_, i) => `${name} line ${i}`)
  try {
    const { stdout, stderr } = await sandbox.commands.run(`for i in $(seq 0 19); do echo "${name} line $i"; echo "${name} error $i" >&2; done`, patience)
    if (stdout === lines.map((l) => l + '\n').join('') && stderr === lines.map((l) => l.replace('line', 'error') + '\n').join('')) return
    examples.push(`${name}: ${JSON.stringify(stdout.slice(0, 80))}`)
  } catch (error) {
    examples.push(`${name}: ${error.message}`)
  }
  wrong++
}

const make = () => Sandbox.create({ timeoutMs: 1_200_000, requestTimeoutMs: 600_000 })
const one = await make()
await Promise.all(Array.from({ length: count }, (_, i) => check(one, `one-${i}`)))
const all = []
for (let i = 0; i < others; i++) all.push(await make())
await Promise.all(Array.from({ length: count }, (_, i) => check(all[i % others], `many-${i}`)))
await Promise.all([one, ...all].map((s) => s.kill()))
console.log(JSON.stringify({ wrong, commands: 2 * count, examples: examples.slice(0, 3) }))
process.exit(0)
