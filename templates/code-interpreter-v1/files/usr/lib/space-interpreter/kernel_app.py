"""Jupyter's kernel application without the debugger that it would load: nobody attaches one here, and it takes much of a kernel's start."""
import sys

sys.modules["debugpy"] = None  # so its import fails
from ipykernel.kernelapp import IPKernelApp  # noqa: E402

del sys.modules["debugpy"]  # programs of the user's may have it

__all__ = ["IPKernelApp"]
