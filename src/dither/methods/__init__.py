"""Methods: pure state machines over rounds, driven by the simulator, the server or a cluster."""

from dither.methods.diagnostics import Diagnostics
from dither.methods.machine import (
    Campaign,
    ProtocolMachine,
    build_parameters,
    describe_parameters,
)
from dither.methods.prior import EarlierReports, PublicRows
from dither.methods.published import PUBLISHED, published_parameters
from dither.methods.registry import (
    DEFAULT,
    HISTOGRAMS,
    MEANS,
    METHODS,
    NONPRIVATE,
    Method,
    method,
    methods,
    plugin_faults,
)
from dither.methods.run import MethodRun, fitted_tallies, restore, start, tallies_in

__all__ = [
    "DEFAULT",
    "HISTOGRAMS",
    "MEANS",
    "METHODS",
    "NONPRIVATE",
    "PUBLISHED",
    "Campaign",
    "Diagnostics",
    "EarlierReports",
    "Method",
    "MethodRun",
    "ProtocolMachine",
    "PublicRows",
    "build_parameters",
    "describe_parameters",
    "fitted_tallies",
    "method",
    "methods",
    "plugin_faults",
    "published_parameters",
    "restore",
    "start",
    "tallies_in",
]
