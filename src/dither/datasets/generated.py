"""Populations with a known joint distribution: random Bayes networks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from dither.checks import check_between, check_whole
from dither.fit.bayes_net import BayesNet
from dither.schema import Attribute, Schema
from dither.schema.cells import cells_of
from dither.schema.table import decode, plain_layout
from dither.types import Codes, Floats

_CYCLE = ("categorical", "ordinal", "numeric", "boolean")


@dataclass(frozen=True)
class RandomNetwork:
    """A Bayes network: attribute i depends on `parents[i]`, all before i.

    The table `conditionals[i]` has one axis for each parent in order, then one for the
    attribute's codes, along which it sums to one.
    """

    schema: Schema
    parents: tuple[tuple[int, ...], ...]
    conditionals: tuple[Floats, ...]

    def sample_codes(self, rows: int, rng: np.random.Generator) -> Codes:
        """Independent rows of codes by ancestral sampling, one column per attribute."""
        codes = np.empty((rows, len(self.schema)), dtype=np.int32, order="F")
        for i, (parents, table) in enumerate(zip(self.parents, self.conditionals, strict=True)):
            given = cells_of(codes, self.schema.cardinalities, parents)
            cumulative = np.cumsum(table.reshape(-1, table.shape[-1]), axis=1)
            uniform = rng.random(rows)
            drawn = np.zeros(rows, dtype=np.int32)
            # One pass per code keeps memory at a few columns.
            for threshold in cumulative.T[:-1]:
                drawn += uniform >= threshold[given]
            codes[:, i] = drawn
        return codes

    def table(self, rows: int, rng: np.random.Generator) -> pa.Table:
        """A PyArrow table of independent rows; numbers are uniform inside their bins."""
        return decode(self.sample_codes(rows, rng), self.schema, plain_layout(self.schema), rng)

    def marginal(self, attributes: Sequence[str]) -> Floats:
        """The exact distribution of some attributes, one axis each in the order given."""
        return self._model.marginal(attributes)

    @cached_property
    def _model(self) -> BayesNet:
        return BayesNet(self.schema, self.parents, self.conditionals)


def generate_network(
    attributes: int | Sequence[int],
    *,
    parents: int = 2,
    strength: float = 1.5,
    seed: int,
    missing: bool = False,
) -> RandomNetwork:
    """A random network.

    Conditional tables are softmaxes of normal scores. Parents are among the few attributes
    before, so exact marginals stay cheap for any number of attributes. Equal seeds produce equal
    networks.

    Args:
        attributes: The number of attributes, or their cardinalities.
        parents: The largest number of parents of an attribute.
        strength: Scales the part that depends on the parents; 0 makes attributes independent.
        missing: Whether every second attribute with three codes or more has a missing code, its
            last.
    """
    rng = np.random.default_rng(seed)
    if isinstance(attributes, int):
        sizes = [int(size) for size in rng.integers(2, 7, check_whole("attributes", attributes, 1))]
    else:
        sizes = [check_whole("the codes of an attribute", size, 2) for size in attributes]
        check_whole("the number of attributes", len(sizes), 1)
    check_whole("parents", parents)
    check_between("strength", strength, 0, math.inf, ends="[)")
    chosen, tables = [], []
    for i, size in enumerate(sizes):
        window = min(i, 2 * parents)
        count = min(i, parents)
        before = (
            tuple(sorted(i - 1 - int(back) for back in rng.choice(window, count, replace=False)))
            if count
            else ()
        )
        shape = (*(sizes[parent] for parent in before), size)
        scores = 0.5 * rng.standard_normal(size) + strength * rng.standard_normal(shape) * bool(
            before
        )
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        chosen.append(before)
        tables.append(weights / weights.sum(axis=-1, keepdims=True))
    schema = Schema(
        tuple(_attribute(i, size, missing and i % 2 == 1) for i, size in enumerate(sizes))
    )
    return RandomNetwork(schema, tuple(chosen), tuple(tables))


def _attribute(position: int, codes: int, missing: bool) -> Attribute:
    """An attribute with this number of codes; kinds alternate if the number allows."""
    missing = missing and codes >= 3
    answers = codes - int(missing)
    kind = _CYCLE[position % len(_CYCLE)]
    name = f"x{position}"
    if kind == "boolean" and answers == 2:
        return Attribute(name, "boolean", values=(False, True), missing=missing)
    if kind == "numeric":
        return Attribute(
            name, "numeric", edges=tuple(10.0 * k for k in range(answers + 1)), missing=missing
        )
    if kind == "ordinal":
        return Attribute(name, "ordinal", values=tuple(range(1, answers + 1)), missing=missing)
    return Attribute(
        name, "categorical", values=tuple(f"v{k}" for k in range(answers)), missing=missing
    )
