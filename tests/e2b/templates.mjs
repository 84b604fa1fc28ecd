// Template builds by the unmodified JavaScript SDK. Started by `tests/e2b/run js-templates`.
import { mkdtempSync, mkdirSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Sandbox, Template, waitForFile, waitForProcess } from 'e2b'
import { holds, raises, same, works } from './report.mjs'

const context = mkdtempSync(join(tmpdir(), 'space-e2b-'))
mkdirSync(join(context, 'folder', 'deep'), { recursive: true })
writeFileSync(join(context, 'file.txt'), 'a file\n')
writeFileSync(join(context, 'folder', 'one.txt'), 'one\n')
writeFileSync(join(context, 'folder', 'deep', 'two.txt'), 'two\n')
symlinkSync('one.txt', join(context, 'folder', 'link'))
const name = `tt-js-${process.pid}`
const lines = []
const build = (template, as, options = {}) => Template.build(template, as, { onBuildLogs: (entry) => lines.push(entry.message), ...options })

const first = Template({ fileContextPath: context })
  .fromTemplate('base')
  .setEnvs({ GREETING: 'hello', PLACE: '/srv' })
  .setWorkdir('/app')
  .copy('file.txt', 'file.txt')
  .copy('folder', 'folder', { user: 'root', mode: 0o755 })
  .runCmd('echo "$GREETING from $(id -un) in $PWD" > made')
  .runCmd('echo root > /made', { user: 'root' })
  .makeSymlink('/app/made', '/app/linked')
  .setStartCmd('sleep 98765', waitForProcess('sleep'))

let info
await works('Template.build', async () => {
  info = await build(first, name)
  holds(/^[0-9a-f-]{36}$/.test(info.buildId), JSON.stringify(info))
  holds(lines.some((line) => /RUN/.test(line)), lines.join('\n'))
})
await works('Template.build gives sandboxes', async () => {
  const s = await Sandbox.create(name)
  const r = await s.commands.run('pwd; echo $GREETING; cat file.txt folder/one.txt folder/deep/two.txt made linked /made; readlink folder/link; stat -c %U:%a folder/one.txt; pgrep -fc "^sleep 98765"')
  same(r.stdout.split('\n'), ['/app', 'hello', 'a file', 'one', 'two', 'hello from user in /app', 'hello from user in /app', 'root', 'one.txt', 'root:755', '1', ''])
  await s.kill()
})
await works('Template.build again', async () => {
  lines.length = 0
  const again = await build(first, `${name}:again`)
  holds(again.buildId !== info.buildId, 'the same build')
  holds(lines.filter((line) => /\(kept\)/.test(line)).length >= 7, lines.join('\n'))
})
await works('Template.build that fails', async () => {
  const fails = Template().fromTemplate('base').runCmd('echo before').runCmd('exit 7')
  const error = await raises(Error, () => build(fails, `${name}-fails`))
  holds(/failed to run command 'exit 7': exit status 7/.test(error.message), error.message)
  const nobody = Template().fromTemplate('base').runCmd('whoami', { user: 'root123' })
  const other = await raises(Error, () => build(nobody, `${name}-fails`))
  holds(other.message.includes("failed to run command 'whoami': command failed: unauthenticated: invalid username: 'root123'"), other.message)
})
await works('Template.build of an image that is not here', async () => {
  const error = await raises(Error, () => build(Template().fromImage('nowhere/such:1').runCmd('true'), `${name}-image`))
  holds(/such:1/.test(error.message), error.message)
})
await works('Template.fromDockerfile', async () => {
  const file = Template({ fileContextPath: context }).fromDockerfile('FROM base\nRUN echo docker > /docker\nCOPY file.txt /copied.txt\n')
  await build(file, `${name}-docker`)
  const s = await Sandbox.create(`${name}-docker`)
  same((await s.commands.run('cat /docker /copied.txt; pwd; id -un')).stdout, 'docker\na file\n/home/user\nuser\n')
  await s.kill()
})
await works('Template.buildInBackground', async () => {
  const slow = Template().fromTemplate('base').runCmd('sleep 2').setStartCmd('touch /tmp/begun; sleep 1000', waitForFile('/tmp/begun'))
  const started = await Template.buildInBackground(slow, `${name}-slow`)
  same((await Template.getBuildStatus(started)).status, 'building')
  for (;;) {
    const now = await Template.getBuildStatus(started)
    if (now.status === 'ready') break
    holds(now.status === 'building', JSON.stringify(now))
    await new Promise((r) => setTimeout(r, 500))
  }
})
await works('Template.exists of a built one', async () => same([await Template.exists(name), await Template.exists(`${name}-none`)], [true, false]))
await works('Template.assignTags', async () => {
  const tags = await Template.assignTags(name, ['stable', 'v1'])
  same(tags.tags.sort(), ['stable', 'v1'])
  const s = await Sandbox.create(`${name}:stable`)
  await s.kill()
  await raises(Error, () => Template.assignTags(name, [':bad']))
  await raises(Error, () => Template.assignTags(`${name}-none`, ['x']))
})
await works('Template.getTags', async () => same((await Template.getTags(name)).map((t) => t.tag).sort(), ['again', 'default', 'stable', 'v1']))
await works('Template.removeTags', async () => {
  await Template.removeTags(name, ['v1'])
  same((await Template.getTags(name)).map((t) => t.tag).sort(), ['again', 'default', 'stable'])
  await raises(Error, () => Template.removeTags(name, ['default']))
  await raises(Error, () => Sandbox.create(`${name}:v1`))
})
