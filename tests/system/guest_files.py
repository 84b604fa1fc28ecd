"""Programs of this machine, packed so that a guest of the same Debian release can run them: lib/ is for LD_LIBRARY_PATH."""

import io
import re
import subprocess
import tarfile
from pathlib import Path

OF_THE_GUEST = re.compile(r"^(ld-linux|libc\.|libm\.|libdl\.|libpthread\.|librt\.|libresolv\.|libssl\.|libcrypto\.|linux-vdso)")


def add_libraries(tar, binary):
    wanted = subprocess.run(["ldd", binary], capture_output=True, text=True, check=True).stdout
    for name, path in re.findall(r"^\s*(\S+) => (/\S+)", wanted, re.MULTILINE):
        if not OF_THE_GUEST.match(name):
            tar.add(Path(path).resolve(), f"lib/{name}")


def grpc():
    """gRPC's Python library (Debian's python3-grpcio): grpc/ is for PYTHONPATH."""
    folder = Path("/usr/lib/python3/dist-packages/grpc")  # of the package, whichever Python runs the tests
    extension, = (folder / "_cython").glob("cygrpc*.so")
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz", compresslevel=1) as tar:
        tar.add(folder, "grpc", filter=lambda one: None if "__pycache__" in one.name else one)
        add_libraries(tar, extension)
    return out.getvalue()


def program(path):
    """One program: bin/ holds it."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz", compresslevel=1) as tar:
        tar.add(path, f"bin/{path.name}")
        add_libraries(tar, path)
    return out.getvalue()
