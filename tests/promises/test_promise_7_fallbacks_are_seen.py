"""Promise 7: a method that falls back says so in `repr`, as a Python warning, in `warnings` and first in the report."""

from __future__ import annotations

import re
import warnings
from functools import cache

import numpy as np
import pyarrow as pa
import pytest

import dither
from dither.methods import METHODS
from dither.release import Release
from dither.schema import Attribute, Schema

SCHEMA = Schema(
    tuple(
        Attribute(name, "categorical", values=tuple(f"{name}{i}" for i in range(5)))
        for name in "abc"
    )
)
# Far too few people for pairs, and attributes that are independent anyway.
PEOPLE = 300
# Methods that have a simpler model to fall back to.
FALL_BACK = ("bayesnet", "mixture", "privincr")


@cache
def rows() -> pa.Table:
    rng = np.random.default_rng(7)
    return pa.table({a.name: rng.choice(a.values, PEOPLE).tolist() for a in SCHEMA})


def publish(method: str) -> tuple[Release, list[str]]:
    """A release and the texts of the Python warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", dither.DitherWarning)
        release = dither.publish(rows(), epsilon=0.5, schema=SCHEMA, method=method, rows=20, seed=1)
    told = [str(one.message) for one in caught if one.category is dither.DitherWarning]
    return release, told


def first_sentence(page: str) -> str:
    """The first paragraph of the report's first section."""
    found = re.search(r'id="summary".*?<p>(.*?)</p>', page, re.DOTALL)
    assert found is not None
    return found.group(1)


def check_seen(method: str) -> None:
    """Every place states the fallback if there was one, and none does otherwise."""
    release, told = publish(method)
    fell_back = bool(release.notes.get("fallback") or release.notes.get("fallbacks"))
    assert ("fell back" in repr(release)) == fell_back
    assert any("fell back" in words for words in told) == fell_back
    assert ("fallback" in [warning.code for warning in release.warnings]) == fell_back
    assert ("fell back" in first_sentence(release.report())) == fell_back


@pytest.mark.parametrize("method", sorted(METHODS))
def test_a_fallback_is_seen_everywhere(method: str) -> None:
    check_seen(method)


@pytest.mark.parametrize("method", FALL_BACK)
def test_these_fall_back_here(method: str) -> None:
    release, _ = publish(method)
    assert release.fallbacks


def test_the_estimator_warns() -> None:
    estimator = dither.Synthesiser(0.5, method="mixture", schema=SCHEMA, random_state=1)
    with pytest.warns(dither.DitherWarning, match="fell back"):
        estimator.fit(rows())


def test_a_release_that_keeps_silent_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Release, "fallbacks", ())
    with pytest.raises(AssertionError):
        check_seen("mixture")
