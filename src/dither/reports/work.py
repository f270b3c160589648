"""How much work a plan asks of a device, counted from its numbers before anything is built from them. Standard library only.

A plan comes from whoever runs the collector. A few bytes of it can ask for hours of hashing, so a device counts first; the
collector counts the same before it announces a plan.
"""

from __future__ import annotations

import json
import math
from typing import Any

from dither.errors import ReportError
from dither.mechanisms.bloom import ALL_PAIRS, MOST_HASHES
from dither.mechanisms.probability import DRAW_WIDTHS
from dither.reports import limits


def check_work(plan: dict[str, Any]) -> None:
    """Refuse a plan, in its JSON form, whose mechanisms would cost a device more than the limits allow."""
    questions = plan["questions"]
    if not isinstance(questions, list) or len(questions) >= limits.MOST_QUESTIONS:
        raise ReportError(f"a plan has a list of fewer than {limits.MOST_QUESTIONS:,} questions")
    different: set[str] = set()
    digests = pairs = size = 0
    for question in questions:
        mechanism = question["mechanism"]
        _check_numbers(mechanism)
        name = json.dumps(mechanism, sort_keys=True)
        if name in different:
            continue
        different.add(name)
        if len(different) > limits.MOST_MECHANISMS:
            raise ReportError(f"a plan of more than {limits.MOST_MECHANISMS:,} different mechanisms is too much work")
        if mechanism["name"] == "bloom":
            digests += _digests(mechanism)
            pairs += min(mechanism["cells"], ALL_PAIRS) ** 2 // 2
            size += mechanism["cells"] * (mechanism["bits"] // 8 + 1)
            if digests > limits.BLOOM_DIGESTS or pairs > limits.BLOOM_PAIRS or size > limits.BLOOM_BYTES:
                raise ReportError("the plan's Bloom filters are too much work for a device; use fewer cells or hashes")


def _check_numbers(mechanism: dict[str, Any]) -> None:
    for key, value in mechanism.items():
        if key != "name" and (
            isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < limits.MOST_NUMBER
        ):
            raise ReportError("a mechanism's numbers are whole, not negative and below 2^53", where=key[:40])
    bits = mechanism["threshold_bits"]
    if bits not in DRAW_WIDTHS:
        raise ReportError(f"draws of {bits} bits are not supported", value=bits)


def _digests(mechanism: dict[str, Any]) -> int:
    """The SHA-256 that a Bloom mechanism's filters are expected to take; eight positions come from each."""
    bits, hashes = mechanism["bits"], mechanism["hashes"]
    if not 1 <= hashes <= MOST_HASHES or hashes >= bits:
        raise ReportError(f"a Bloom filter sets 1 to {MOST_HASHES} bits, and fewer than it has", value=hashes)
    # The i-th new bit is found after bits/(bits-i) positions, as with collected coupons.
    expected = sum(bits / (bits - i) for i in range(hashes))
    return int(mechanism["cells"]) * math.ceil(expected / 8)
