"""`dither.mechanism`: value, report and estimate of every mechanism by name."""

from __future__ import annotations

import numpy as np
import pytest

import dither
from dither.errors import ParameterError, ReportError
from dither.mechanisms import MEANS, MECHANISMS, Estimate

CELLS, PEOPLE = 6, 6000
SHARES = np.array([0.4, 0.3, 0.15, 0.1, 0.05, 0.0])
NUMBERS = np.linspace(-1.0, 0.6, PEOPLE)


@pytest.mark.parametrize("name", [*MECHANISMS, "best"])
def test_frequencies_are_estimated_without_bias(name: str) -> None:
    made = dither.mechanism(name, cells=CELLS, epsilon=2.0)
    assert made.epsilon <= 2.0
    cells = np.repeat(np.arange(CELLS), (SHARES * PEOPLE).astype(int))
    reports = made.randomise_all(cells)
    # Reports of a device and of a batch mix.
    reports[0] = made.randomise(int(cells[0]))
    found = made.estimate(reports)
    assert isinstance(found, Estimate)
    assert found.n == PEOPLE
    # Six cells of ten mechanisms: 4.5 standard errors are exceeded once in 2,000 runs.
    assert (np.abs(found.frequencies - SHARES) < 4.5 * found.standard_errors).all()


@pytest.mark.parametrize("name", MEANS)
def test_means_are_estimated_without_bias(name: str) -> None:
    several = name in ("duchi-vector", "several-means")
    made = dither.mechanism(name, epsilon=2.0, **({"attributes": 2} if several else {}))
    values = np.stack([NUMBERS, -NUMBERS], axis=1) if several else NUMBERS
    reports = made.randomise_all(values)
    reports[0] = made.randomise(values[0])
    found = made.estimate(reports)
    for mean, sign in zip(found if isinstance(found, list) else [found], (1, -1), strict=False):
        truth = sign * float(NUMBERS.mean())
        assert abs(mean.mean - truth) < 5 * mean.standard_error


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"name": "nonsense", "cells": 3}, "nonsense"),
        ({"name": "oue"}, "needs cells"),
        ({"name": "duchi", "cells": 3}, "takes no cells"),
        ({"name": "duchi-vector"}, "needs attributes"),
        ({"name": "oue", "cells": 3, "attributes": 2}, "takes no attributes"),
    ],
)
def test_arguments_that_do_not_belong_are_refused(asked: dict[str, object], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        dither.mechanism(**asked, epsilon=1.0)  # type: ignore[arg-type]


def test_values_and_reports_out_of_range_are_refused() -> None:
    made = dither.mechanism("grr", cells=3, epsilon=1.0)
    with pytest.raises(ParameterError):
        made.randomise(3)
    with pytest.raises(ParameterError, match="at least one report"):
        made.estimate([])
    with pytest.raises(ReportError, match="bytes"):
        made.estimate([b"", b"\x00"])
    with pytest.raises(ReportError):
        made.estimate([b"\xff"])
    assert repr(made) == f"LocalMechanism('grr', cells=3, epsilon={made.epsilon:.6g})"
