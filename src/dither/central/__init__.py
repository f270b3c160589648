"""Trusted-curator methods: a curator holds the whole table and releases part of it.

A different trust model from the rest of the package, where nobody but the participant ever holds a record. Every name
here is central, except the record form of `csm`, which is local and says so.
"""

from dither.central.methods import CENTRAL, CentralMethod, central_method

__all__ = ["CENTRAL", "CentralMethod", "central_method"]
