"""9. Methods: pure state machines over rounds, driven alike by the simulator, the server and a cluster."""

from dither.methods.machine import Campaign, ProtocolMachine
from dither.methods.registry import (
    DEFAULT,
    HISTOGRAMS,
    MEANS,
    METHODS,
    method,
    methods,
    plugin_faults,
    restore,
    start,
)

__all__ = [
    "DEFAULT",
    "HISTOGRAMS",
    "MEANS",
    "METHODS",
    "Campaign",
    "ProtocolMachine",
    "method",
    "methods",
    "plugin_faults",
    "restore",
    "start",
]
