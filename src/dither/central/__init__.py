"""Trusted-curator mechanisms: a curator holds the whole table and releases part of it.

A different trust model from the rest of the package, where nobody but the participant ever holds a record. Every name
here is central, except `release_records`, which is local and says so.
"""

from dither.central.registry import CENTRAL, central_mechanism

__all__ = ["CENTRAL", "central_mechanism"]
