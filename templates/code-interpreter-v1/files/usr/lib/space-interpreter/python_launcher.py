"""Starts IPython's kernel."""
import sys

from kernel_app import IPKernelApp

del sys.path[0]  # this folder's modules would hide the user's
IPKernelApp.launch_instance()
