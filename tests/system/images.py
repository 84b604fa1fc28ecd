"""Container images made by hand: docker archives and OCI layouts, from programs of this machine, small enough for tests."""

import gzip
import hashlib
import io
import json
import re
import subprocess
import tarfile
from pathlib import Path

PROGRAMS = ["/bin/sh", "/bin/bash", "/bin/cat", "/bin/ls", "/bin/sync", "/bin/sleep", "/bin/mkdir", "/usr/bin/id", "/usr/bin/env", "/bin/tar", "/bin/chown", "/bin/chmod",
            "/bin/cp", "/bin/rm", "/usr/bin/basename", "/usr/bin/dirname", "/usr/bin/mktemp", "/usr/bin/find", "/usr/bin/cut", "/usr/bin/getent", "/bin/grep"]


def files_of_programs():
    """path → bytes of the programs and the libraries that they load."""
    found = {}
    for program in PROGRAMS:
        path = Path(program)
        found["usr/bin/" + path.name] = path.resolve().read_bytes()
        loaded = subprocess.run(["ldd", path.resolve()], capture_output=True, text=True).stdout
        for library in re.findall(r"(/\S+)", loaded):
            found[library.lstrip("/").removeprefix("usr/")] = Path(library).resolve().read_bytes()
    return {(path if path.startswith("usr/") else "usr/" + path): content for path, content in found.items()}


def layer(files=None, links=None, folders=(), hard=None, compressed=False):
    """A layer: path → bytes, path → target, folders. Names go in as they are."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name in folders:
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(entry)
        for name, target in (links or {}).items():
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = tarfile.SYMTYPE, target
            tar.addfile(entry)
        for name, content in (files or {}).items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o755
            tar.addfile(entry, io.BytesIO(content))
        for name, target in (hard or {}).items():
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = tarfile.LNKTYPE, target
            tar.addfile(entry)
    data = out.getvalue()
    return gzip.compress(data, 1) if compressed else data


def base_layer(compressed=False):
    merged = {"bin": "usr/bin", "lib": "usr/lib", "lib64": "usr/lib64", "sbin": "usr/sbin"}
    more = {"etc/passwd": b"root:x:0:0:root:/root:/bin/bash\n", "etc/group": b"root:x:0:\n", "etc/nsswitch.conf": b"passwd: files\ngroup: files\n"}
    return layer({**files_of_programs(), **more}, merged, ["usr", "usr/bin", "usr/lib", "usr/lib64", "usr/sbin", "etc", "root"], compressed=compressed)


def archive(members):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, content in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return out.getvalue()


CONFIG = json.dumps({"architecture": "amd64", "os": "linux", "config": {}}).encode()


def docker_archive(layers):
    """As `docker save` writes it."""
    names = [f"{i}/layer.tar" for i in range(len(layers))]
    manifest = json.dumps([{"Config": "config.json", "RepoTags": ["x:1"], "Layers": names}]).encode()
    return archive({"manifest.json": manifest, "config.json": CONFIG, **dict(zip(names, layers))})


def oci_layout(layers):
    """path → bytes of a layout's files."""
    blobs = {}

    def put(content, kind):
        digest = hashlib.sha256(content).hexdigest()
        blobs["blobs/sha256/" + digest] = content
        return {"mediaType": kind, "digest": "sha256:" + digest, "size": len(content)}

    manifest = {"schemaVersion": 2, "config": put(CONFIG, "application/vnd.oci.image.config.v1+json"),
                "layers": [put(one, "application/vnd.oci.image.layer.v1.tar" + ("+gzip" if one[:2] == b"\x1f\x8b" else "")) for one in layers]}
    top = put(json.dumps(manifest).encode(), "application/vnd.oci.image.manifest.v1+json")
    return {"oci-layout": b'{"imageLayoutVersion":"1.0.0"}', "index.json": json.dumps({"schemaVersion": 2, "manifests": [top]}).encode(), **blobs}
