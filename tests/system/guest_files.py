"""gRPC's Python library (Debian's python3-grpcio) of this machine, packed so that a guest of the same Debian release can import it."""

import io
import re
import subprocess
import tarfile
from pathlib import Path

OF_THE_GUEST = re.compile(r"^(ld-linux|libc\.|libm\.|libdl\.|libpthread\.|librt\.|libresolv\.|libssl\.|libcrypto\.|linux-vdso)")


def pack():
    """A tar: grpc/ for PYTHONPATH, lib/ for LD_LIBRARY_PATH."""
    folder = Path("/usr/lib/python3/dist-packages/grpc")  # of the package, whichever Python runs the tests
    extension, = (folder / "_cython").glob("cygrpc*.so")
    wanted = subprocess.run(["ldd", extension], capture_output=True, text=True, check=True).stdout
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz", compresslevel=1) as tar:
        tar.add(folder, "grpc", filter=lambda one: None if "__pycache__" in one.name else one)
        for name, path in re.findall(r"^\s*(\S+) => (/\S+)", wanted, re.MULTILINE):
            if not OF_THE_GUEST.match(name):
                tar.add(Path(path).resolve(), f"lib/{name}")
    return out.getvalue()
