// Template builds by the unmodified JavaScript SDK. Started by `tests/e2b/run js-templates`.
import { mkdtempSync, mkdirSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { BuildError, Sandbox, Template, TemplateBase, waitForFile, waitForProcess } from 'e2b'
import { differs, holds, methodsOf, raises, refused, same, tellUnchecked, works } from './report.mjs'

const context = mkdtempSync(join(tmpdir(), 'space-e2b-'))
mkdirSync(join(context, 'folder', 'deep'), { recursive: true })
writeFileSync(join(context, 'file.txt'), 'a file\n')
writeFileSync(join(context, 'folder', 'one.txt'), 'one\n')
writeFileSync(join(context, 'folder', 'deep', 'two.txt'), 'two\n')
symlinkSync('one.txt', join(context, 'folder', 'link'))
writeFileSync(join(context, 'packages.sh'), `set -e
python3 - <<END
import zipfile
with zipfile.ZipFile('mini-1-py3-none-any.whl', 'w') as wheel:
    for name, text in {'mini.py': 'said = "by pip"', 'mini-1.dist-info/METADATA': 'Metadata-Version: 2.1\\nName: mini\\nVersion: 1\\n',
                       'mini-1.dist-info/WHEEL': 'Wheel-Version: 1.0\\nGenerator: x\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n', 'mini-1.dist-info/RECORD': ''}.items():
        wheel.writestr(name, text)
END
mkdir -p deb/DEBIAN
printf 'Package: mini\\nVersion: 1\\nArchitecture: all\\nMaintainer: A <a@example.org>\\nDescription: nothing\\n' >deb/DEBIAN/control
dpkg-deb --build deb mini.deb
rm -f /etc/apt/sources.list
git -c init.defaultBranch=main init -q origin
git -C origin -c user.name=A -c user.email=a@example.org commit -q --allow-empty -m first
chown -R user: origin
printf '#!/bin/sh\\necho "$*" >/app/bun-said\\n' >/usr/local/bin/bun
chmod +x /usr/local/bin/bun
`)
mkdirSync(join(context, 'mini'))
writeFileSync(join(context, 'mini', 'package.json'), '{"name":"mini","version":"1.0.0","main":"mini.js"}')
writeFileSync(join(context, 'mini', 'mini.js'), "module.exports = 'by npm'")
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
await works(['Template.build', ...['fromTemplate', 'setEnvs', 'setWorkdir', 'copy', 'runCmd', 'makeSymlink', 'setStartCmd'].map((one) => `Template.${one}`)], async () => {
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
  const again = await build(first, 'debian:suite')
  holds(again.buildId !== info.buildId, 'the same build')
  holds(lines.filter((line) => /\(kept\)/.test(line)).length >= 7, lines.join('\n'))
})
// Each of these is a command of the guest's; packages of each kind are made there, so that no network is needed.
const second = Template({ fileContextPath: context })
  .fromTemplate(name)
  .makeDir(['made-here', 'made-too'], { mode: 0o755 })
  .copyItems([{ src: 'file.txt', dest: 'made-here/' }, { src: 'packages.sh', dest: 'packages.sh' }, { src: 'mini', dest: 'mini' }])
  .rename('made-here/file.txt', 'made-too/renamed.txt')
  .remove('made-here', { recursive: true })
  .runCmd('bash packages.sh', { user: 'root' })
  .gitClone('/app/origin', 'cloned', { branch: 'main', depth: 1 })
  .pipInstall('/app/mini-1-py3-none-any.whl')
  .npmInstall('/app/mini', { g: true })
  .bunInstall('from-bun')
  .aptInstall('/app/mini.deb')
  .skipCache()
  .setUser('other')
  .setReadyCmd(waitForFile('/app/made-too/renamed.txt'))
await differs('Template.bunInstall', 'the template `base` has no Bun: install it by a step before', () => build(second, `${name}-second`))
await works(['makeDir', 'copyItems', 'rename', 'remove', 'gitClone', 'pipInstall', 'npmInstall', 'aptInstall', 'skipCache', 'setUser', 'setReadyCmd'].map((one) => `Template.${one}`), async () => {
  const s = await Sandbox.create(`${name}-second`)
  const r = await s.commands.run('ls -d made*; cat made-too/renamed.txt; sudo -u user git -C cloned log --format=%s; python3 -c "import mini; print(mini.said)"; node -p "require(\'/usr/local/lib/node_modules/mini\')"; cat bun-said; dpkg-query -W mini', { user: 'root' })
  same(r.stdout.split('\n'), ['made', 'made-too', 'a file', 'first', 'by pip', 'by npm', 'install from-bun', 'mini\t1', ''])
  same((await s.commands.run('id -un')).stdout, 'other\n')
  await s.kill()
})
await works('Template.build that fails', async () => {
  const fails = Template().fromTemplate('base').runCmd('echo before').runCmd('exit 7')
  const error = await raises(Error, () => build(fails, `${name}-fails`))
  holds(/failed to run command 'exit 7': exit status 7/.test(error.message), error.message)
  const nobody = Template().fromTemplate('base').runCmd('whoami', { user: 'root123' })
  const other = await raises(Error, () => build(nobody, `${name}-fails`))
  holds(other.message.includes("failed to run command 'whoami': command failed: unauthenticated: invalid username: 'root123'"), other.message)
})
const imported = 'names an image that was imported by `space template build -t NAME:TAG --image …`'
for (const [method, image, from] of [
  ['fromImage', 'such:1', (t) => t.fromImage('nowhere/such:1')], ['fromUbuntuImage', 'ubuntu:24.04', (t) => t.fromUbuntuImage('24.04')],
  ['fromFedoraImage', 'fedora:', (t) => t.fromFedoraImage()], ['fromAlpineImage', 'alpine:', (t) => t.fromAlpineImage()], ['fromArchImage', 'archlinux:', (t) => t.fromArchImage()],
  ['fromPythonImage', 'python:3', (t) => t.fromPythonImage('3')], ['fromNodeImage', 'node:', (t) => t.fromNodeImage()], ['fromBunImage', 'bun:', (t) => t.fromBunImage()]])
  await differs(`Template.${method}`, imported, async () => {
    const error = await raises(BuildError, () => build(from(Template()).runCmd('true'), `${name}-image`))
    holds(error.message.includes(image) && /--image/.test(error.message), error.message)
  })
const keys = { accessKeyId: 'a', secretAccessKey: 'b', region: 'c' }
await refused('Template.fromAWSRegistry', /credentials of a registry/, () => build(Template().fromAWSRegistry('x.example.org/i', keys).runCmd('true'), `${name}-image`))
await refused('Template.fromGCPRegistry', /credentials of a registry/, () => build(Template().fromGCPRegistry('x.example.org/i', { serviceAccountJSON: { a: 1 } }).runCmd('true'), `${name}-image`))
await refused('Template.addMcpServer', /mcp-gateway/, () => Template().fromTemplate('base').addMcpServer('exa'))
await refused('Template.betaDevContainerPrebuild', /devcontainer/, () => Template().fromTemplate('base').betaDevContainerPrebuild('/x'))
await refused('Template.betaSetDevContainerStart', /devcontainer/, () => Template().fromTemplate('base').betaSetDevContainerStart('/x'))
await works('Template.toJSON', async () => same(JSON.parse(await Template.toJSON(first, false)).fromTemplate, 'base'))
await works('Template.toDockerfile', () => holds(/FROM e2bdev\/base/.test(Template.toDockerfile(Template().fromBaseImage().runCmd('true'))), 'another FROM'))
await works('Template.fromDockerfile', async () => {
  const file = Template({ fileContextPath: context }).fromDockerfile('FROM base\nRUN echo docker > /docker\nCOPY file.txt /copied.txt\n')
  await build(file, `${name}-docker`)
  const s = await Sandbox.create(`${name}-docker`)
  same((await s.commands.run('cat /docker /copied.txt; pwd; id -un')).stdout, 'docker\na file\n/home/user\nuser\n')
  await s.kill()
})
await differs('Template.fromDebianImage', imported, async () => {
  const slow = Template().fromDebianImage('suite').runCmd('sleep 2').setStartCmd('touch /tmp/begun; sleep 1000', waitForFile('/tmp/begun'))
  const started = await Template.buildInBackground(slow, `${name}-slow`)
  same((await Template.getBuildStatus(started)).status, 'building')
  for (;;) {
    const now = await Template.getBuildStatus(started)
    if (now.status === 'ready') break
    holds(now.status === 'building', JSON.stringify(now))
    await new Promise((r) => setTimeout(r, 500))
  }
})
await works(['Template.buildInBackground', 'Template.getBuildStatus', 'Template.fromBaseImage'], async () => {
  const started = await Template.buildInBackground(Template().fromBaseImage().runCmd('exit 1'), `${name}-fails`)
  for (let now; now?.status !== 'error'; await new Promise((r) => setTimeout(r, 200))) now = await Template.getBuildStatus(started)
})
await works('Template.exists', async () => same([await Template.exists(name), await Template.exists(`${name}-none`)], [true, false]))
await works('Template.aliasExists', async () => same([await Template.aliasExists(name), await Template.aliasExists(`${name}-none`)], [true, false]))
await works('Template.assignTags', async () => {
  const tags = await Template.assignTags(name, ['stable', 'v1'])
  same(tags.tags.sort(), ['stable', 'v1'])
  const s = await Sandbox.create(`${name}:stable`)
  await s.kill()
  await raises(Error, () => Template.assignTags(name, [':bad']))
  await raises(Error, () => Template.assignTags(`${name}-none`, ['x']))
})
await works('Template.getTags', async () => same((await Template.getTags(name)).map((t) => t.tag).sort(), ['default', 'stable', 'v1']))
await works('Template.removeTags', async () => {
  await Template.removeTags(name, ['v1'])
  same((await Template.getTags(name)).map((t) => t.tag).sort(), ['default', 'stable'])
  await raises(Error, () => Template.removeTags(name, ['default']))
  await raises(Error, () => Sandbox.create(`${name}:v1`))
})

tellUnchecked(methodsOf('Template', TemplateBase, ['resolveOpts', 'build', 'collectStackTrace', 'instructionsWithHashes', 'serialize']))
process.exit(0)
