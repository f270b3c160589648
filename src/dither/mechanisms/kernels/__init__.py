"""Batches of reports with NumPy and Numba, for simulations and servers.

`randomise`, `support`, `simulate` and `estimate` take a mechanism as their first argument
and dispatch on its class. Devices never import this package.
"""

from dither.mechanisms.kernels.batch import estimate, randomise, simulate, support, uniform_draws
from dither.mechanisms.kernels.bits import count_bits
from dither.mechanisms.kernels.means import estimate_means, numbers
from dither.mechanisms.kernels.outputs import density, quantiles

__all__ = [
    "count_bits",
    "density",
    "estimate",
    "estimate_means",
    "numbers",
    "quantiles",
    "randomise",
    "simulate",
    "support",
    "uniform_draws",
]
