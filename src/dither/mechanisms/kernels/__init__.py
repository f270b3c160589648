"""Batches of reports at once, with NumPy and Numba: what a simulation and a server need. A device never imports these.

`batch` has one function per task, with which every mechanism's own code, in the modules imported here, is registered.
"""

from dither.mechanisms.kernels import batch, bits, local_hash, means, outputs

__all__ = ["batch", "bits", "local_hash", "means", "outputs"]
