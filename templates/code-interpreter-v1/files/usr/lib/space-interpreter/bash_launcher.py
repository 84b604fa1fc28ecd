"""Starts bash_kernel out of the interpreter's own folder, which programs of the user's do not see."""
import sys

from kernel_app import IPKernelApp

sys.path.append("/usr/lib/space-interpreter/python")

from bash_kernel.kernel import BashKernel  # noqa: E402

IPKernelApp.launch_instance(kernel_class=BashKernel)
