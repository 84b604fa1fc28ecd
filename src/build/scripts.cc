#include "build/scripts.h"

namespace space::build {

// GNU tar keeps folders that are links as they are; where there is another one, cp has to do.
const char* const kCopyScript = R"sh(set -eu
archive=$1 source=$2 destination=$3 owner=$4 mode=$5 folder=$6 user=$7
umask 022
[ -n "$folder" ] || folder=$(getent passwd "$user" 2>/dev/null | cut -d: -f6)
[ -n "$folder" ] || folder=/
case $destination in /*) ;; *) destination=${folder%/}/$destination ;; esac
scratch=$(mktemp -d /var/tmp/.space-copy-XXXXXX)
trap 'rm -rf "$scratch" "$archive"' EXIT
mkdir "$scratch/files"
tar -x -f "$archive" -C "$scratch/files"
entry=$scratch/files/$source
[ -e "$entry" ] || [ -L "$entry" ] || { echo "there is no $source among the files that were sent" >&2; exit 1; }
[ -n "$owner" ] || owner=$user
case $owner in *:*) ;; *) owner=$owner: ;; esac
chown -hR "$owner" "$entry"
if [ -d "$entry" ] && [ ! -L "$entry" ]; then
  [ -z "$mode" ] || find "$entry" ! -type l -exec chmod "$mode" {} +
  made=false
  [ -d "$destination" ] || { mkdir -p "$destination"; made=true; }
  if tar --version 2>/dev/null | grep -q GNU; then
    tar -c -C "$entry" . | tar -x -C "$destination" --keep-directory-symlink --no-overwrite-dir -p --same-owner
  else
    cp -a "$entry/." "$destination/"
  fi
  if $made; then chown "$owner" "$destination"; [ -z "$mode" ] || chmod "$mode" "$destination"; fi
else
  [ -z "$mode" ] || [ -L "$entry" ] || chmod "$mode" "$entry"
  case $destination in */) mkdir -p "$destination" ;; *) mkdir -p "$(dirname "$destination")" ;; esac
  [ ! -d "$destination" ] || destination=${destination%/}/$(basename "$entry")
  [ ! -d "$destination" ] || { echo "$destination is a folder" >&2; exit 1; }
  rm -f "$destination"
  cp -a "$entry" "$destination"
fi
)sh";

const char* const kWorkdirScript = R"sh(set -eu
path=$1 user=$2
umask 022
first=
here=$path
while [ ! -e "$here" ]; do first=$here; here=$(dirname "$here"); done
mkdir -p "$path"
[ -z "$first" ] || chown -R "$user:" "$first"
)sh";

const char* const kUserScript = R"sh(set -eu
name=$1 sudo=$2
id "$name" >/dev/null 2>&1 || {
  shell=/bin/bash
  [ -x "$shell" ] || shell=/bin/sh
  if command -v useradd >/dev/null; then useradd --create-home --shell "$shell" "$name"
  else adduser -D -s "$shell" "$name"; fi
}
[ "$sudo" != true ] || {
  mkdir -p /etc/sudoers.d
  echo "$name ALL=(ALL) NOPASSWD:ALL" >"/etc/sudoers.d/space-$name"
  chmod 0440 "/etc/sudoers.d/space-$name"
}
)sh";

// Layers are unpacked inside a chroot, so a link in one leads nowhere else; a name with ".." and a device are refused all the same.
// The old root's folders are renamed away and the new ones put in their places: nothing but this process, whose modules are all
// loaded, runs meanwhile.
const char* const kImageScript = R"py(
import gzip, hashlib, io, json, lzma, os, posixpath, shutil, stat, sys, tarfile, zlib, bz2, encodings.idna
NEW, OLD = "/.space-image", "/.space-old"
KEEP = {"dev", "proc", "sys", "run", "lost+found", NEW[1:], OLD[1:]}
MOST_FILES, MOST_BYTES, MOST_JSON = 1_000_000, 32 << 30, 8 << 20

def fail(text):
    print(text, file=sys.stderr)
    sys.exit(1)

def tidy(name):
    parts = [p for p in name.split("/") if p not in ("", ".")]
    if ".." in parts:
        fail(f"a layer holds a path that leads out: {name[:200]!r}")
    return "/".join(parts)

class Archive:
    """The outer archive: a docker archive or an OCI layout, as `docker save` and skopeo write them."""
    def __init__(self, path):
        self.tar = tarfile.open(path, "r:*")
        self.members = {}
        for member in self.tar:
            if len(self.members) > 100_000:
                fail("the archive holds too many entries")
            if member.isfile() or member.islnk() or member.issym():
                self.members[tidy(member.name)] = member

    def open(self, name):
        for _ in range(8):
            member = self.members.get(tidy(name))
            if member is None:
                fail(f"the archive lacks {name[:200]!r}")
            if member.issym():
                name = posixpath.normpath(posixpath.join(posixpath.dirname(tidy(name)), member.linkname))
            elif member.islnk():
                name = member.linkname
            else:
                return self.tar.extractfile(member)
        fail("the archive's links go in circles")

    def json(self, name, what=None):
        data = self.open(name).read(MOST_JSON + 1)
        if len(data) > MOST_JSON:
            fail(f"{name[:200]!r} is too large")
        if what and "sha256:" + hashlib.sha256(data).hexdigest() != what:
            fail(f"{name[:200]!r} is not what its digest says")
        return json.loads(data)

    def blob(self, digest):
        if not (isinstance(digest, str) and digest.startswith("sha256:") and len(digest) == 71 and all(c in "0123456789abcdef" for c in digest[7:])):
            fail("the image names a blob by something else than a SHA-256")
        return "blobs/sha256/" + digest[7:]

    def layers(self):
        """(name, digest or None) from the lowest up, and the image's configuration."""
        if "manifest.json" in self.members:
            images = self.json("manifest.json")
            if len(images) != 1:
                fail("the archive holds several images: save one")
            return [(name, None) for name in images[0]["Layers"]], self.json(images[0]["Config"])
        if "index.json" not in self.members:
            fail("this is neither a docker archive (manifest.json) nor an OCI layout (index.json)")
        document = self.json("index.json")
        for _ in range(4):
            if "layers" in document:
                break
            found = [m for m in document.get("manifests", []) if m.get("platform", {}).get("architecture", "amd64") == "amd64"
                     and m.get("annotations", {}).get("vnd.docker.reference.type") is None]
            if len(found) != 1:
                fail("the layout must hold exactly one image for amd64")
            document = self.json(self.blob(found[0]["digest"]), found[0]["digest"])
        for layer in document["layers"]:
            if "zstd" in layer.get("mediaType", ""):
                fail("layers compressed with zstd are not understood: save the image with gzip")
        config = document["config"]["digest"]
        return [(self.blob(layer["digest"]), layer["digest"]) for layer in document["layers"]], self.json(self.blob(config), config)

class Checked(io.RawIOBase):
    def __init__(self, source, digest):
        self.source, self.digest, self.sum = source, digest, hashlib.sha256()
    def readable(self):
        return True
    def readinto(self, into):
        data = self.source.read(len(into))
        self.sum.update(data)
        into[:len(data)] = data
        return len(data)
    def finish(self):
        while self.readinto(bytearray(1 << 20)):
            pass
        if self.digest and "sha256:" + self.sum.hexdigest() != self.digest:
            fail("a layer is not what its digest says")

def empty(path):
    for entry in os.scandir(path):
        remove(entry.path)

def remove(path):
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    else:
        os.unlink(path)

counted = [0, 0]
def unpack(layer):
    """One layer over what there is; inside the chroot."""
    dates, seen = [], set()
    for member in layer:
        counted[0] += 1
        counted[1] += member.size
        if counted[0] > MOST_FILES or counted[1] > MOST_BYTES:
            fail("the image is too large: at most a million files and 32 GiB")
        name = tidy(member.name)
        if not name:
            continue
        path, base = "/" + name, posixpath.basename(name)
        parent = posixpath.dirname(path)
        if base == ".wh..wh..opq":
            if os.path.isdir(parent):
                for entry in os.listdir(parent):
                    if posixpath.join(parent, entry) not in seen:
                        remove(posixpath.join(parent, entry))
            continue
        if base.startswith(".wh."):
            gone = posixpath.join(parent, base[4:])
            if base[4:] in ("", ".", ".."):
                fail("a layer removes something that has no name")
            if os.path.lexists(gone):
                remove(gone)
            continue
        os.makedirs(parent, exist_ok=True)
        mode = member.mode & 0o7777
        if member.isdir():
            if os.path.islink(path) and os.path.isdir(path):
                continue  # /bin where that is a link to usr/bin
            if os.path.lexists(path) and not os.path.isdir(path):
                os.unlink(path)
            if not os.path.isdir(path):
                os.mkdir(path)
        elif member.isfile() or member.islnk() or member.issym() or member.isfifo():
            if os.path.lexists(path):
                remove(path)
            if member.issym():
                os.symlink(member.linkname, path)
            elif member.islnk():
                os.link("/" + tidy(member.linkname), path, follow_symlinks=False)
            elif member.isfifo():
                os.mkfifo(path)
            else:
                with layer.extractfile(member) as source, open(path, "xb") as out:
                    shutil.copyfileobj(source, out, 1 << 20)
        else:
            continue  # devices: the guest's kernel makes its own
        at = path
        while at != "/" and at not in seen:
            seen.add(at)
            at = posixpath.dirname(at)
        if member.islnk():
            continue
        os.chown(path, member.uid, member.gid, follow_symlinks=False)
        if not member.issym():
            os.chmod(path, mode)
        for key, value in member.pax_headers.items():
            if key.startswith("SCHILY.xattr.security.capability"):
                os.setxattr(path, "security.capability", value.encode("utf-8", "surrogateescape"), follow_symlinks=False)
        if member.isdir():
            dates.append((path, member.mtime))
        else:
            os.utime(path, (member.mtime, member.mtime), follow_symlinks=False)
    for path, date in reversed(dates):
        if os.path.isdir(path) and not os.path.islink(path):
            os.utime(path, (date, date))

def read(path):
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return file.read()
    except FileNotFoundError:
        return ""

def add_user():
    """`user`, uid 1000 where that is free, as every template has it; inside the chroot."""
    passwd, group = read("/etc/passwd"), read("/etc/group")
    if any(line.startswith("user:") for line in passwd.splitlines()):
        return
    used = {line.split(":")[2] for line in (passwd + group).splitlines() if line.count(":") >= 2}
    number = next(str(n) for n in [1000, *range(1001, 60000)] if str(n) not in used)
    shell = "/bin/bash" if os.path.exists("/bin/bash") else "/bin/sh"
    os.makedirs("/etc", exist_ok=True)
    with open("/etc/passwd", "a") as file:
        file.write(("" if passwd.endswith("\n") or not passwd else "\n") + f"user:x:{number}:{number}::/home/user:{shell}\n")
    with open("/etc/group", "a") as file:
        file.write(("" if group.endswith("\n") or not group else "\n") + f"user:x:{number}:\n")
    if os.path.exists("/etc/shadow"):
        with open("/etc/shadow", "a") as file:
            file.write("user:!:19000:0:99999:7:::\n")
    if not os.path.isdir("/home/user"):
        if os.path.isdir("/etc/skel"):
            os.makedirs("/home", exist_ok=True)
            shutil.copytree("/etc/skel", "/home/user", symlinks=True)
        else:
            os.makedirs("/home/user")
    for folder, _, files in os.walk("/home/user"):
        for path in [folder, *(posixpath.join(folder, f) for f in files)]:
            os.chown(path, int(number), int(number), follow_symlinks=False)
    if os.path.isdir("/etc/sudoers.d"):
        with open("/etc/sudoers.d/space-user", "w") as file:
            file.write("user ALL=(ALL) NOPASSWD:ALL\n")
        os.chmod("/etc/sudoers.d/space-user", 0o440)

archive = Archive(sys.argv[1])
layers, config = archive.layers()
if config.get("architecture", "amd64") != "amd64" or config.get("os", "linux") != "linux":
    fail(f"the image is for {config.get('os')}/{config.get('architecture')}, and this machine is linux/amd64")
print(f"unpacking {len(layers)} layers")
os.mkdir(NEW)
sources = [(archive.open(name), digest) for name, digest in layers]
outside = os.open("/", os.O_RDONLY)
os.chroot(NEW)
os.chdir("/")
for source, digest in sources:
    head = source.read(6)
    source.seek(0)
    if head[:4] == b"\x28\xb5\x2f\xfd":
        fail("layers compressed with zstd are not understood: save the image with gzip")
    checked = io.BufferedReader(Checked(source, digest), 1 << 20)
    with tarfile.open(fileobj=checked, mode="r|*") as layer:
        unpack(layer)
    checked.raw.finish()
if not any(os.path.exists(shell) for shell in ("/bin/sh", "/usr/bin/sh")):
    fail("the image has no shell: nothing could be run in a sandbox of it")
add_user()
for folder, mode in (("etc", 0o755), ("tmp", 0o1777), ("var/tmp", 0o1777), ("usr/local", 0o755), ("home", 0o755), ("root", 0o700)):
    if not os.path.isdir("/" + folder):
        os.makedirs("/" + folder)
        os.chmod("/" + folder, mode)
os.fchdir(outside)
os.chroot(".")
# What SPACE itself put into the root: names and addresses, which the agent writes anew.
for name in ("resolv.conf", "hosts", "hostname"):
    kept, new = "/etc/" + name, NEW + "/etc/" + name
    if os.path.isfile(kept):
        if os.path.lexists(new):
            os.unlink(new)
        shutil.copyfile(kept, new)
archive.tar.close()
os.unlink(sys.argv[1])
os.mkdir(OLD)
for name in os.listdir("/"):
    if name not in KEEP and not os.path.ismount("/" + name):
        os.rename("/" + name, OLD + "/" + name)
for name in os.listdir(NEW):
    if name in KEEP:
        continue
    if os.path.ismount("/" + name):
        continue  # the kernel's own, or memory
    os.rename(NEW + "/" + name, "/" + name)
for name in ("dev", "proc", "sys", "run"):
    os.makedirs("/" + name, exist_ok=True)
shutil.rmtree(OLD)
shutil.rmtree(NEW)
print("the root filesystem is the image's now")
)py";

}  // namespace space::build
