// The JavaScript and TypeScript kernel: runs cells with Node's own REPL evaluator (top-level await, names that stay from cell to
// cell). The server writes one JSON object a line to one pipe and reads events from another, whose descriptors are the arguments;
// what child processes print comes over standard output and error, as of any program.
'use strict'
const fs = require('fs')
const readline = require('readline')
const repl = require('repl')
const { PassThrough } = require('stream')
const util = require('util')

const typescript = process.argv[2] === 'typescript'
const [requests, events] = process.argv.slice(3).map(Number)
const emit = (event) => {
  for (let rest = Buffer.from(JSON.stringify(event) + '\n'); rest.length > 0; ) rest = rest.subarray(fs.writeSync(events, rest))
}

for (const name of ['stdout', 'stderr'])
  process[name].write = (chunk, encoding, done) => {
    const text = typeof chunk === 'string' ? chunk : Buffer.from(chunk).toString('utf8')
    if (text) emit({ event: 'stream', name, text })
    const call = typeof encoding === 'function' ? encoding : done
    if (call) process.nextTick(call)
    return true
  }

const evaluator = repl.start({ prompt: '', input: new PassThrough(), output: new PassThrough(), terminal: false, useGlobal: true, breakEvalOnSigint: true })
process.on('SIGINT', () => evaluator.emit('SIGINT'))
process.on('uncaughtException', (error) => process.stderr.write(`${util.inspect(error)}\n`))
process.on('unhandledRejection', (error) => process.stderr.write(`Unhandled rejection: ${util.inspect(error)}\n`))

// A rich result of a cell's own: display({'text/html': '<b>hi</b>'}).
Object.defineProperty(globalThis, 'display', { value: (data) => emit({ event: 'display', data }), writable: true, configurable: true, enumerable: false })

// `import` statements stand in modules alone; in a cell they become awaited imports, whose names stay.
const names = (text) => text.replace(/\btype\s+/g, '').replace(/\s+as\s+/g, ': ')
const kImport = /^[ \t]*import\s+(?:(?<default>[\w$]+)\s*,?\s*)?(?:\*\s*as\s+(?<all>[\w$]+)|(?<some>\{[^}]*\}))?\s*(?<from>from)?\s*(?<module>'[^'\n]+'|"[^"\n]+")[ \t]*;?/gm
function withoutImports(code) {
  return code.replace(kImport, (text, ...rest) => {
    const part = rest[rest.length - 1]
    if (!part.from) return part.default || part.all || part.some ? text : `await import(${part.module});`
    const out = []
    if (part.all) out.push(`var ${part.all} = await import(${part.module});`)
    const taken = [part.default && `default: ${part.default}`, part.some && names(part.some.slice(1, -1)).trim()].filter(Boolean)
    if (taken.length) out.push(`var { ${taken.join(', ')} } = await import(${part.module});`)
    return out.join(' ')
  })
}

function prepared(code) {
  if (typescript) {
    const { transform } = require('/usr/lib/space-interpreter/node_modules/sucrase')
    code = transform(code, { transforms: ['typescript'], disableESTransforms: true, keepUnusedImports: true }).code
  }
  return withoutImports(code)
}

const shown = (value) => util.inspect(value, { depth: 4, maxArrayLength: 1000, maxStringLength: 1_000_000 })

function bundle(value) {
  const data = { 'text/plain': shown(value) }
  if (value && typeof value === 'object' && (Array.isArray(value) || Object.getPrototypeOf(value) === Object.prototype))
    try {
      data['application/json'] = JSON.parse(JSON.stringify(value))
    } catch {} // circular: the text has to do
  return data
}

function failure(error) {
  if (error instanceof repl.Recoverable) error = error.err
  if (!(error instanceof Error) && !(error && error.stack)) return { event: 'error', name: 'Error', value: shown(error), traceback: '' }
  return { event: 'error', name: error.name, value: error.message, traceback: String(error.stack) }
}

// The REPL hands what a cell throws to its domain, not to the callback; so does what a timer of an earlier cell throws.
let failed = null
evaluator._domain.removeAllListeners('error')
evaluator._domain.on('error', (error) => (failed ? failed(error) : process.stderr.write(`${util.inspect(error)}\n`)))

async function evaluate(code) {
  try {
    return await new Promise((resolve, reject) => {
      failed = reject
      evaluator.eval(code, evaluator.context, 'cell', (error, value) => (error ? reject(error) : resolve(value)))
    })
  } finally {
    failed = null
  }
}

async function run({ id, code, silent }) {
  try {
    let value = await evaluate(silent ? code : prepared(code) + '\n')
    if (value instanceof Promise) value = await value
    if (!silent && value !== undefined) emit({ event: 'result', data: bundle(value) })
  } catch (error) {
    emit(failure(error))
  }
  emit({ event: 'done', id })
}

let last = Promise.resolve()
readline.createInterface({ input: fs.createReadStream(null, { fd: requests }) }).on('line', (line) => {
  last = last.then(() => run(JSON.parse(line)))
}).on('close', () => process.exit(0))
emit({ event: 'ready' })
