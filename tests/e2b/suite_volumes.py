"""Volumes by the unmodified Python SDK. Started by `tests/e2b/run`, which sets E2B_*."""

import inspect
import io
import time

from e2b import AuthenticationException, NotFoundException, Sandbox, SandboxException, Volume, VolumeException

from checks import check, named, raises, same, tell

volume_name = f"suite-py-{time.time_ns()}"
volume = None


@check("Volume.create")
def _():
    global volume
    volume = Volume.create(volume_name)
    same(volume.name, volume_name)
    raises(VolumeException, lambda: Volume.create(volume_name), "already")
    raises(VolumeException, lambda: Volume.create("not a name"), "name")


@check("Volume.list")
def _():
    assert any(one.volume_id == volume.volume_id and one.name == volume_name for one in Volume.list())


@check("Volume.connect")
def _():
    same(Volume.connect(volume.volume_id).token, volume.token)


@check("Volume.make_dir")
def _():
    made = volume.make_dir("/folder", mode=0o750, uid=7, gid=8)
    same((made.name, made.path, made.type.value, made.mode, made.uid, made.gid), ("folder", "/folder", "directory", 0o750, 7, 8))
    raises(NotFoundException, lambda: volume.make_dir("/no/such/folder"))
    same(volume.make_dir("/deep/er/still", force=True).path, "/deep/er/still")


@check("Volume.write_file")
def _():
    same(volume.write_file("/folder/text", "text ä").size, 7)
    same(volume.write_file("/folder/bytes", bytes([0, 255, 1]), mode=0o600).mode, 0o600)
    same(volume.write_file("/new/stream", io.BytesIO(b"of a stream"), force=True).size, 11)


@check("Volume.read_file")
def _():
    same(volume.read_file("/folder/text"), "text ä")
    same(volume.read_file("/folder/bytes", format="bytes"), bytes([0, 255, 1]))
    same(b"".join(volume.read_file("/new/stream", format="stream")), b"of a stream")
    raises(NotFoundException, lambda: volume.read_file("/none"))


@check("Volume.read_file of what it may not")
def _():
    raises(AuthenticationException, lambda: Volume(volume_id=volume.volume_id, name=volume_name, token="vol_another").read_file("/folder/text"))
    for path in ("/../etc/passwd", "folder/text", "/folder/./text", ""):
        raises(VolumeException, lambda: volume.read_file(path))
    raises(VolumeException, lambda: volume.remove("/"))


@check("Volume.list of a folder")
def _():
    same([one.name for one in volume.list("/folder")], ["bytes", "text"])
    same([one.path for one in volume.list("/deep", depth=2)], ["/deep/er", "/deep/er/still"])
    raises(NotFoundException, lambda: volume.list("/none"))


@check("Volume.get_info")
def _():
    same(Volume.get_info(volume.volume_id).name, volume_name)
    info = volume.get_info("/folder/text")
    same((info.type.value, info.size), ("file", 7))
    raises(NotFoundException, lambda: Volume.get_info("nothing"))


@check("Volume.exists")
def _():
    same((volume.exists("/folder/text"), volume.exists("/none")), (True, False))


@check("Volume.update_metadata")
def _():
    now = volume.update_metadata("/folder/text", mode=0o666, uid=1000)
    same((now.mode, now.uid), (0o666, 1000))


@check("Volume.remove")
def _():
    volume.remove("/deep")
    same(volume.exists("/deep/er"), False)
    raises(NotFoundException, lambda: volume.remove("/deep"))


@check("Sandbox.create with volumes")
def _():
    one = Sandbox.create(volume_mounts={"/mnt/data": volume})
    two = Sandbox.create(volume_mounts={"/mnt/data": volume_name})
    same(one.get_info().volume_mounts, [{"name": volume_name, "path": "/mnt/data"}])
    same(one.commands.run("cat /mnt/data/new/stream; echo shared >/mnt/data/of-one").stdout, "of a stream")
    same(two.files.read("/mnt/data/of-one"), "shared\n")
    same(volume.read_file("/of-one"), "shared\n")
    one.pause()
    one.connect()
    two.files.write("/mnt/data/of-two", "after")
    same(one.commands.run("cat /mnt/data/of-two").stdout, "after")
    raises(SandboxException, lambda: Sandbox.create(volume_mounts={"/mnt": "no-such-volume"}), "no-such-volume")
    one.kill()
    two.kill()


@check("Volume.destroy")
def _():
    same((Volume.destroy(volume.volume_id), Volume.destroy(volume.volume_id)), (True, False))
    same(volume.exists("/folder"), False)


for name, value in inspect.getmembers(Volume):
    if not name.startswith("_") and callable(value) and f"Volume.{name}" not in named:
        tell(f"Volume.{name}", "not checked")
