// The unmodified JavaScript SDK of E2B's code interpreter against the template code-interpreter-v1.
import { NotFoundError, Sandbox, SandboxError, TimeoutError } from '@e2b/code-interpreter'
import { holds, raises, same, tellUnchecked, until, works } from './report.mjs'

const limit = { requestTimeoutMs: 240_000 }
let s
await works('Sandbox.create', async () => {
  s = await Sandbox.create({ timeoutMs: 1_200_000, envs: { GLOBAL: 'g' } })
  same((await s.getInfo()).name ?? (await s.getInfo()).templateId, 'code-interpreter-v1')
})
if (!s) process.exit(1)
const run = (code, options = {}) => s.runCode(code, { timeoutMs: 240_000, ...limit, ...options })

await works('Sandbox.runCode', async () => {
  const e = await run('x = 6\nx * 7')
  same([e.text, e.error, e.executionCount, e.results.length, e.results[0].isMainResult], ['42', undefined, 1, 1, true])
  same((await run('x + 1')).text, '7')
  same((await run("'a text'")).text, 'a text')
})
await works('Sandbox.runCode streams', async () => {
  const seen = []
  const at = (kind) => (m) => seen.push([kind, m.line ?? m.text ?? m.name])
  const code = 'import sys, time\nfor i in range(3):\n    print(i, flush=True); time.sleep(0.5)\nprint("no", file=sys.stderr)\n"end"'
  const e = await run(code, { onStdout: at('out'), onStderr: at('err'), onResult: at('result'), onError: at('error') })
  same(seen.filter(([k]) => k === 'out').map(([, l]) => l).join(''), '0\n1\n2\n')
  holds(seen.filter(([k]) => k === 'out').length > 1, 'all output came at once')
  same([seen.at(-1), e.logs.stderr.join('')], [['result', 'end'], 'no\n'])
  holds((await run("print('wörld ☃ 🙂' * 3000)")).logs.stdout.join('').startsWith('wörld ☃ 🙂wörld'), 'characters were lost')
})
await works('Sandbox.runCode with an error', async () => {
  const seen = []
  const e = await run('def f():\n    return 1 / 0\nf()', { onError: (error) => seen.push(error.name) })
  same([e.error.name, e.error.value, seen], ['ZeroDivisionError', 'division by zero', ['ZeroDivisionError']])
  holds(/line 2, in f/.test(e.error.traceback) || /f\(\)/.test(e.error.traceback), e.error.traceback)
  same((await run('syntax error here')).error.name, 'SyntaxError')
  same((await run('1 + 1')).text, '2')
})
await works('Sandbox.runCode with rich results', async () => {
  const e = await run(`from IPython.display import display, HTML, Markdown, Latex, SVG, JSON, Javascript
display(HTML('<b>h</b>')); display(Markdown('*m*')); display(Latex('$l$')); display(SVG('<svg xmlns="http://www.w3.org/2000/svg"></svg>')); display(Javascript('1'))
{'a': [1, float('nan')]}`)
  const [html, markdown, latex, svg, script, dict] = e.results
  same([html.html, markdown.markdown, latex.latex, script.javascript, dict.json], ['<b>h</b>', '*m*', '$l$', '1', { a: [1, null] }])
  holds(svg.svg.includes('<svg'), svg.svg)
  same([html.isMainResult, dict.isMainResult], [false, true])
})
await works('Sandbox.runCode with a table', async () => {
  const e = await run("import pandas as pd\npd.DataFrame({'a': [1, 2], 'd': pd.to_datetime(['2026-01-01', '2026-01-02'])})")
  same(e.results[0].data, { a: [1, 2], d: ['2026-01-01T00:00:00', '2026-01-02T00:00:00'] })
  holds(e.results[0].html.includes('<table'), 'no table')
})
const chart = async (code) => {
  const e = await run(`import matplotlib.pyplot as plt\n${code}\nplt.show()`)
  if (e.error) throw new Error(e.error.traceback)
  const [result] = e.results
  holds(Buffer.from(result.png, 'base64').subarray(1, 4).toString() === 'PNG', 'no picture')
  return result.chart
}
await works('Sandbox.runCode with charts', async () => {
  const bar = await chart("plt.bar(['A', 'B'], [1, 2], label='Sold'); plt.title('T'); plt.xlabel('Who'); plt.ylabel('Money (EUR)')")
  same([bar.type, bar.title, bar.x_label, bar.y_unit], ['bar', 'T', 'Who', 'EUR'])
  same(bar.elements, [{ label: 'A', group: 'Sold', value: 1 }, { label: 'B', group: 'Sold', value: 2 }])
  const line = await chart("plt.plot([1, 2], [3, 4], label='l'); plt.yscale('log')")
  same([line.type, line.x_scale, line.y_scale, line.title, line.elements], ['line', 'linear', 'log', null, [{ label: 'l', points: [[1, 3], [2, 4]] }]])
  const days = await chart("import datetime as d\nplt.plot([d.date(2026, 1, 1), d.date(2026, 1, 2)], [1, 2])")
  same([days.x_scale, days.elements[0].points[0], days.elements[0].label], ['datetime', ['2026-01-01', 1], 'Line 0'])
  const scatter = await chart("plt.scatter([1, 2], [3, 4], label='s')")
  same([scatter.type, scatter.elements], ['scatter', [{ label: 's', points: [[1, 3], [2, 4]] }]])
  const pie = await chart("plt.pie([25, 75], labels=['q', 'r'])")
  same([pie.type, pie.elements], ['pie', [{ label: 'q', angle: 90, radius: 1 }, { label: 'r', angle: 270, radius: 1 }]])
  const box = await chart("plt.boxplot([[1, 2, 3, 4, 5, 20], [2, 3, 4, 5, 6]], labels=['a', 'b'], patch_artist=True)")
  same(box.type, 'box_and_whisker')
  same(box.elements[0], { label: 'a', min: 1, first_quartile: 2.25, median: 3.5, third_quartile: 4.75, max: 5, outliers: [20] })
  const many = await chart("f, (a, b) = plt.subplots(1, 2); f.suptitle('both'); a.plot([1, 2], [1, 2]); b.bar(['x'], [1])")
  same([many.type, many.title, many.elements.map((c) => c.type)], ['superchart', 'both', ['line', 'bar']])
})
await works('Sandbox.runCode with files', async () => {
  await run("from PIL import Image\nImage.new('RGB', (2, 2)).save('p.png'); open('made', 'w').write('by code')")
  same([await s.files.read('made'), (await s.files.getInfo('p.png')).owner], ['by code', 'user'])
})
for (const [language, cases] of Object.entries({
  js: [['const a = 6; a * 7', '42'], ['a + 1', '7'], ["await Promise.resolve('later')", 'later'], ['process.cwd()', '/home/user'], ['process.env.GLOBAL', 'g']],
  typescript: [['const b: number = 6; b * 7', '42'], ['type T = { n: number }; const t: T = { n: b }; t.n', '6']],
}))
  await works(`Sandbox.runCode in ${language}`, async () => {
    for (const [code, text] of cases) same([code, (await run(code, { language })).text], [code, text])
    same((await run("import { readFileSync } from 'fs'\nconsole.log(typeof readFileSync)", { language })).logs.stdout.join(''), 'function\n')
    same((await run("typeof readFileSync", { language })).text, 'function')
    const e = await run("console.error('bad'); throw new TypeError('wrong')", { language })
    same([e.error.name, e.error.value, e.logs.stderr.join('')], ['TypeError', 'wrong', 'bad\n'])
  })
await works('Sandbox.runCode in bash', async () => {
  same((await run('A=6; echo $((A * 7)); pwd; echo $GLOBAL', { language: 'bash' })).logs.stdout.join(''), '42\n/home/user\ng\n')
  same((await run('echo $A', { language: 'bash' })).logs.stdout.join(''), '6\n')
  holds((await run('false', { language: 'bash' })).error, 'no error')
})
await works('Sandbox.runCode in a language that is not there', async () => holds(/500/.test((await raises(SandboxError, () => run('1', { language: 'cobol' }))).message), 'another error'))
await works('Sandbox.runCode with an environment', async () => {
  const code = "import os; (os.environ.get('OWN'), os.environ.get('GLOBAL'))"
  same((await run(code, { envs: { OWN: "it's", GLOBAL: 'other' } })).text, '("it\'s", \'other\')')
  same((await run(code)).text, "(None, 'g')")
  same((await run('process.env.OWN', { language: 'js', envs: { OWN: 'o' } })).text, 'o')
  same((await run("process.env.OWN || 'none'", { language: 'js' })).text, 'none')
})
await works('Sandbox.runCode past its time', async () => {
  await raises(TimeoutError, () => s.runCode('kept = 1\nimport time; time.sleep(300)', { timeoutMs: 3000 }))
  same((await run('kept + 1')).text, '2')
  await raises(TimeoutError, () => s.runCode('while (true) {}', { language: 'js', timeoutMs: 2000 }))
  same((await run('1 + 1', { language: 'js' })).text, '2')
})
let context
await works('Sandbox.createCodeContext', async () => {
  await s.files.makeDir('/tmp/there')
  context = await s.createCodeContext({ language: 'python', cwd: '/tmp/there', ...limit })
  same([context.language, context.cwd], ['python', '/tmp/there'])
  same((await run('import os; os.getcwd()', { context })).text, '/tmp/there')
  same((await run('x', { context })).error.value, "name 'x' is not defined")
  await raises(SandboxError, () => s.createCodeContext({ cwd: '/not/there', ...limit }))
})
await works('Sandbox.listCodeContexts', async () => {
  const all = await s.listCodeContexts()
  same([all.slice(0, 2).map((c) => c.language), all.at(-1).id === context.id], [['python', 'javascript'], true])
})
await works('Sandbox.restartCodeContext', async () => {
  await run('y = 1', { context })
  await s.restartCodeContext(context.id, limit)
  same((await run('y', { context })).error.name, 'NameError')
})
await works('Sandbox.removeCodeContext', async () => {
  await s.removeCodeContext(context.id)
  holds(!(await s.listCodeContexts()).some((c) => c.id === context.id), 'still there')
  await raises(NotFoundError, () => run('1', { context }))
})
await works('Sandbox.runCode with a kernel that died', async () => {
  same((await run('import os; os._exit(1)')).error.name, 'UnexpectedEndOfExecution')
  same((await run('x = 1\nx')).text, '1')
})
await works('Sandbox.runCode after a kill of the server', async () => {
  await s.commands.run("pkill -9 -f space-interpreter/server.py", { user: 'root' })
  await until(async () => (await fetch(`${process.env.E2B_SANDBOX_URL}/health`, { headers: { 'E2b-Sandbox-Id': s.sandboxId, 'E2b-Sandbox-Port': '49999' } })).status === 200, 110)
  same((await run('1 + 1')).text, '2')
})
await works('Sandbox.pause keeps state', async () => {
  await run('kept = {"a": 1}')
  await run('kept = 7', { language: 'js' })
  await s.pause()
  await s.connect({ timeoutMs: 600_000 })
  same([(await run("kept['a']")).text, (await run('kept', { language: 'js' })).text], ['1', '7'])
})
await works('Sandbox.fork keeps state', async () => {
  const [child] = await s.fork({ count: 1, timeoutMs: 300_000 })
  same((await child.runCode("kept['b'] = 2; kept", { timeoutMs: 60_000 })).results[0].json, { a: 1, b: 2 })
  same((await run('kept')).results[0].json, { a: 1 })
  await child.kill()
})
await works('Sandbox.createSnapshot keeps state', async () => {
  const snapshot = await s.createSnapshot({ name: 'with-code' })
  await run('kept = 0')
  const from = await Sandbox.create(snapshot.snapshotId, { timeoutMs: 300_000, envs: { GLOBAL: 'mine' } })
  same([(await from.runCode('kept')).results[0].json, (await from.runCode("import os; os.environ['GLOBAL']")).text], [{ a: 1 }, 'mine'])
  await from.kill()
  await Sandbox.deleteSnapshot(snapshot.snapshotId)
})
await works('Sandbox.kill', async () => {
  const running = run('import time; time.sleep(100)')
  running.catch(() => {})
  await new Promise((r) => setTimeout(r, 1000))
  await s.kill()
  await raises(TimeoutError, () => running)
})
await works('Sandbox.runCode without public traffic', async () => {
  const own = await Sandbox.create({ timeoutMs: 120_000, network: { allowPublicTraffic: false } })
  same((await own.runCode('1 + 1', limit)).text, '2')
  const bare = await fetch(`${process.env.E2B_SANDBOX_URL}/health`, { headers: { 'E2b-Sandbox-Id': own.sandboxId, 'E2b-Sandbox-Port': '49999' } })
  same(bare.status, 403)
  await own.kill()
})

const own = Object.getOwnPropertyNames(Sandbox.prototype).filter((n) => !['constructor', 'jupyterUrl', 'getJupyterRequestUrl', 'includeDiagnostics', 'handleRequestError'].includes(n) && !n.startsWith('_'))
tellUnchecked(own.map((n) => `Sandbox.${n}`))
process.exit(0)
