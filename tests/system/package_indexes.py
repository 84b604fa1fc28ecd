"""Tiny package indexes for pip, npm, git and apt, as files for the fake internet's servers: below /pkg/ of every name."""

import base64
import hashlib
import io
import json
import subprocess
import tarfile
import zipfile


def run(*words, **options):
    subprocess.run(words, check=True, capture_output=True, **options)


def pip(www):
    folder = www / "pkg/simple/tinypip"
    folder.mkdir(parents=True)
    content = {"tinypip.py": "answer = 42\n", "tinypip-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: tinypip\nVersion: 1.0\n",
               "tinypip-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"}
    record = ""
    with zipfile.ZipFile(folder / "tinypip-1.0-py3-none-any.whl", "w") as wheel:
        for name, text in content.items():
            wheel.writestr(name, text)
            digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
            record += f"{name},sha256={digest},{len(text)}\n"
        wheel.writestr("tinypip-1.0.dist-info/RECORD", record + "tinypip-1.0.dist-info/RECORD,,\n")
    (folder / "index.html").write_text('<!DOCTYPE html><html><body><a href="tinypip-1.0-py3-none-any.whl">tinypip-1.0-py3-none-any.whl</a></body></html>')


def npm(www, base):
    folder = www / "pkg/npm"
    folder.mkdir(parents=True)
    buffer = io.BytesIO()
    package = json.dumps({"name": "tinynpm", "version": "1.0.0", "main": "index.js"}).encode()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in (("package/package.json", package), ("package/index.js", b"module.exports = 42\n")):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o644
            archive.addfile(entry, io.BytesIO(content))
    (folder / "tinynpm-1.0.0.tgz").write_bytes(buffer.getvalue())
    integrity = "sha512-" + base64.b64encode(hashlib.sha512(buffer.getvalue()).digest()).decode()
    version = {"name": "tinynpm", "version": "1.0.0", "main": "index.js", "dist": {"tarball": f"{base}/tinynpm-1.0.0.tgz", "integrity": integrity}}
    (folder / "tinynpm").write_text(json.dumps({"name": "tinynpm", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": version}}))


def git(www, scratch):
    work = scratch / "work"
    run("git", "init", "-q", "-b", "main", str(work))
    (work / "README").write_text("tiny\n")
    identity = ("-c", "user.name=test", "-c", "user.email=test@example.org")
    run("git", "-C", str(work), "add", "README")
    run("git", "-C", str(work), *identity, "commit", "-q", "-m", "first")
    (www / "pkg").mkdir(parents=True, exist_ok=True)
    run("git", "clone", "-q", "--bare", str(work), str(www / "pkg/tiny.git"))
    run("git", "-C", str(www / "pkg/tiny.git"), "update-server-info")


def apt(www, scratch):
    tree, folder = scratch / "deb", www / "pkg/apt"
    (tree / "DEBIAN").mkdir(parents=True)
    (tree / "usr/share/tinyapt").mkdir(parents=True)
    folder.mkdir(parents=True)
    (tree / "DEBIAN/control").write_text("Package: tinyapt\nVersion: 1.0\nArchitecture: all\nMaintainer: test <test@example.org>\nDescription: tiny\n")
    (tree / "usr/share/tinyapt/answer").write_text("42\n")
    deb = folder / "tinyapt_1.0_all.deb"
    run("dpkg-deb", "--root-owner-group", "-Zgzip", "-b", str(tree), str(deb))
    content = deb.read_bytes()
    (folder / "Packages").write_text(f"Package: tinyapt\nVersion: 1.0\nArchitecture: all\nMaintainer: test <test@example.org>\nFilename: ./{deb.name}\nSize: {len(content)}\n"
                                     f"SHA256: {hashlib.sha256(content).hexdigest()}\nDescription: tiny\n")


def make_all(folder, npm_base):
    www, scratch = folder / "www", folder / "scratch"
    www.mkdir()
    scratch.mkdir()
    pip(www)
    npm(www, npm_base)
    git(www, scratch)
    apt(www, scratch)
