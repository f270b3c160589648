"""The figures that the papers print, from printed.json: what measured figures are compared with, and nothing that we measured."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("printed.json")


@cache
def _all() -> dict[str, Any]:
    return dict(json.loads(FILE.read_text(encoding="utf-8")))


def printed(*path: str) -> Any:
    """A printed figure, text or table by paper and place; a KeyError names what is missing.

    >>> printed("privincr", "table 2", "privincr", "1")
    0.162
    """
    found: Any = _all()
    for key in path:
        if not isinstance(found, dict) or key not in found:
            raise KeyError(f"printed.json has no {' / '.join(path)}")
        found = found[key]
    return found


def by_epsilon(method: str) -> dict[float, float]:
    """A line of PrivIncr's table 2: mean total variation of pairs by epsilon."""
    return {float(epsilon): v for epsilon, v in printed("privincr", "table 2", method).items()}
