"""Marginals of values put into groups: "aged 50 or more" needs two groups of ages, not every age."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy as np

from dither.errors import ParameterError
from dither.models.model import Model
from dither.types import Floats, Indices

MOST_UNGROUPED = (
    5_000_000  # cells of a model that cannot add up on its way; a second for twenty replicates
)


@runtime_checkable
class Grouping(Protocol):
    """A model that can add values up before it multiplies attributes, so that many attributes stay cheap."""

    def grouped(self, attributes: Sequence[str], groups: Sequence[Indices]) -> Floats:
        """See `grouped_marginal`."""


def grouped_marginal(model: Model, attributes: Sequence[str], groups: Sequence[Indices]) -> Floats:
    """The distribution over groups of values, one axis per attribute.

    `groups[i][code]` is the group of a code of the i-th attribute; groups are numbered from 0 without gaps. Equal to adding up
    the cells of `model.marginal(attributes)`.
    """
    if isinstance(model, Grouping):
        return model.grouped(attributes, groups)
    if model.schema.cells(attributes) > MOST_UNGROUPED:
        raise ParameterError(
            f"{', '.join(attributes)} together have {model.schema.cells(attributes):,} cells, more than {MOST_UNGROUPED:,}; "
            "ask about fewer attributes at a time",
            where="attributes",
        )
    return add_up(model.marginal(attributes), groups)


def add_up(marginal: Floats, groups: Sequence[Indices]) -> Floats:
    """A table of cells added up along each axis by group."""
    for axis, group in enumerate(groups):
        indicator = np.zeros((len(group), int(group.max()) + 1))
        indicator[np.arange(len(group)), group] = 1.0
        marginal = np.moveaxis(np.tensordot(marginal, indicator, (axis, 0)), -1, axis)
    return np.asarray(marginal)
