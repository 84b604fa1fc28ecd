// Volumes by the unmodified JavaScript SDK. Started by `tests/e2b/run`, which sets E2B_*.
import { AuthenticationError, Sandbox, SandboxError, Volume, VolumeError, VolumeNotFoundError, VolumePathNotFoundError } from 'e2b'
import { holds, methodsOf, raises, same, tellUnchecked, works } from './report.mjs'

const volumeName = `suite-js-${Date.now()}`
let volume
await works('Volume.create', async () => {
  volume = await Volume.create(volumeName)
  same(volume.name, volumeName)
  await raises(VolumeError, () => Volume.create(volumeName))
  await raises(VolumeError, () => Volume.create('not a name'))
})
await works('Volume.list', async () => holds((await Volume.list()).some((one) => one.volumeId === volume.volumeId && one.name === volumeName), 'not listed'))
await works('Volume.connect', async () => same((await Volume.connect(volume.volumeId)).token, volume.token))
await works('Volume.makeDir', async () => {
  const made = await volume.makeDir('/folder', { mode: 0o750, uid: 7, gid: 8 })
  same([made.name, made.path, made.type, made.mode, made.uid, made.gid], ['folder', '/folder', 'directory', 0o750, 7, 8])
  await raises(VolumePathNotFoundError, () => volume.makeDir('/no/such/folder'))
  same((await volume.makeDir('/deep/er/still', { force: true })).path, '/deep/er/still')
})
await works('Volume.writeFile', async () => {
  same((await volume.writeFile('/folder/text', 'text ä')).size, 7)
  same((await volume.writeFile('/folder/bytes', new Uint8Array([0, 255, 1]).buffer, { mode: 0o600 })).mode, 0o600)
  same((await volume.writeFile('/folder/blob', new Blob(['blob']))).size, 4)
  const pieces = ['of ', 'a ', 'stream']
  const stream = new ReadableStream({ pull: (c) => (pieces.length ? c.enqueue(new TextEncoder().encode(pieces.shift())) : c.close()) })
  same((await volume.writeFile('/new/stream', stream, { force: true })).size, 11)
})
await works('Volume.readFile', async () => {
  same(await volume.readFile('/folder/text'), 'text ä')
  same([...(await volume.readFile('/folder/bytes', { format: 'bytes' }))], [0, 255, 1])
  same(await (await volume.readFile('/folder/blob', { format: 'blob' })).text(), 'blob')
  same(await new Response(await volume.readFile('/new/stream', { format: 'stream' })).text(), 'of a stream')
  await raises(VolumePathNotFoundError, () => volume.readFile('/none'))
})
await works('Volume.readFile of what it may not', async () => {
  await raises(AuthenticationError, () => new Volume(volume.volumeId, volumeName, 'vol_another').readFile('/folder/text'))
  for (const path of ['/../etc/passwd', 'folder/text', '/folder/./text', '']) await raises(VolumeError, () => volume.readFile(path))
  await raises(VolumeError, () => volume.readFile('/folder'))
  await raises(VolumeError, () => volume.remove('/'))
})
await works('Volume.list of a folder', async () => {
  same((await volume.list('/folder')).map((one) => one.name), ['blob', 'bytes', 'text'])
  same((await volume.list('/deep', { depth: 2 })).map((one) => one.path), ['/deep/er', '/deep/er/still'])
  await raises(VolumePathNotFoundError, () => volume.list('/none'))
})
await works('Volume.getInfo', async () => {
  same((await Volume.getInfo(volume.volumeId)).name, volumeName)
  const info = await volume.getInfo('/folder/text')
  same([info.type, info.size, Math.abs(Date.now() - info.mtime.getTime()) < 600_000], ['file', 7, true])
  await raises(VolumeNotFoundError, () => Volume.getInfo('nothing'))
  await raises(VolumePathNotFoundError, () => volume.getInfo('/none'))
})
await works('Volume.exists', async () => same([await volume.exists('/folder/text'), await volume.exists('/none')], [true, false]))
await works('Volume.updateMetadata', async () => {
  const now = await volume.updateMetadata('/folder/text', { mode: 0o666, uid: 1000 })
  same([now.mode, now.uid], [0o666, 1000])
})
await works('Volume.remove', async () => {
  await volume.remove('/deep')
  same(await volume.exists('/deep/er'), false)
  await raises(VolumePathNotFoundError, () => volume.remove('/deep'))
})
await works('Sandbox.create with volumes', async () => {
  const [one, two] = await Promise.all([1, 2].map(() => Sandbox.create({ volumeMounts: { '/mnt/data': volume } })))
  same((await one.getInfo()).volumeMounts, [{ name: volumeName, path: '/mnt/data' }])
  same((await one.commands.run('cat /mnt/data/new/stream; echo shared >/mnt/data/of-one')).stdout, 'of a stream')
  same(await two.files.read('/mnt/data/of-one'), 'shared\n')
  same(await volume.readFile('/of-one'), 'shared\n')
  await one.pause()
  await one.connect()
  await two.files.write('/mnt/data/of-two', 'after')
  same((await one.commands.run('cat /mnt/data/of-two')).stdout, 'after')
  await raises(SandboxError, () => Sandbox.create({ volumeMounts: { '/mnt': 'no-such-volume' } }))
  await Promise.all([one.kill(), two.kill()])
})
await works('Volume.destroy', async () => {
  same([await Volume.destroy(volume.volumeId), await Volume.destroy(volume.volumeId)], [true, false])
  same(await volume.exists('/folder'), false)
})

tellUnchecked(methodsOf('Volume', Volume, ['resolveApiOpts', 'resolveOpts', 'boundOpts']))
process.exit(0)
