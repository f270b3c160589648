"""A model raked to known totals: P(x) multiplied by a factor for each total's attributes.

Raking corrects for who took part where the totals of the population are known. Of all
distributions with these totals it is the one closest to the model in relative entropy (Csiszar,
Annals of Probability 3, 1975), found by iterative proportional fitting (Deming and Stephan 1940).
Marginals are exact; rows are drawn by rejection, which is exact too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from dither.errors import ParameterError, ReportError
from dither.fit.model import MAX_CELLS, Model, check_marginal, model_from_bytes
from dither.fit.project import scale_to
from dither.fit.ruled import grouped_marginal
from dither.schema import Schema, schema_from_json
from dither.tally.archive import pack, unpack
from dither.types import AnyArray, Codes, Floats, Indices

# Known totals over attributes of a model, one axis for each.
Totals = Mapping[tuple[str, ...], Floats]
# Largest difference between a total and the raked table's, in shares.
_TOLERANCE = 1e-9
# Rows are drawn in batches of at least this many, until few enough are left out.
_BATCH = 1024
_MAX_BATCHES = 10_000


@dataclass(frozen=True)
class Raked:
    """A model with factors.

    Attributes:
        base: The model that was raked.
        names: The attributes with factors.
        factors: What the cells of their table are multiplied by, one axis for each attribute.
    """

    base: Model
    names: tuple[str, ...]
    factors: Floats
    kind = "raked"

    @property
    def schema(self) -> Schema:
        """See `Model`."""
        return self.base.schema

    def marginal(self, attributes: Sequence[str]) -> Floats:
        """See `Model`."""
        groups = [np.arange(self.schema[name].cardinality) for name in attributes]
        return self.grouped(attributes, groups)

    def grouped(self, attributes: Sequence[str], groups: Sequence[Indices]) -> Floats:
        """See `grouped_marginal`."""
        wide = [*attributes, *(name for name in self.names if name not in attributes)]
        by_name = dict(zip(attributes, groups, strict=True))
        # Attributes with factors keep all their values until the factors are applied.
        whole = [
            np.arange(self.schema[name].cardinality) if name in self.names else by_name[name]
            for name in wide
        ]
        cells = math.prod(int(group.max()) + 1 for group in whole)
        if cells > MAX_CELLS:
            raise ParameterError(
                f"{', '.join(wide)} together have {cells:,} cells, more than {MAX_CELLS:,}; rake to "
                "fewer totals, or ask about fewer attributes",
                where="attributes",
            )
        table = grouped_marginal(self.base, wide, whole)
        order = sorted(range(len(self.names)), key=lambda i: wide.index(self.names[i]))
        shape = [len(whole[i]) if name in self.names else 1 for i, name in enumerate(wide)]
        table = table * np.transpose(self.factors, order).reshape(shape)
        table = table.sum(axis=tuple(range(len(attributes), len(wide))))
        for axis, (name, group) in enumerate(zip(attributes, groups, strict=True)):
            if name in self.names:
                indicator = np.zeros((len(group), int(group.max()) + 1))
                indicator[np.arange(len(group)), group] = 1.0
                table = np.moveaxis(np.tensordot(table, indicator, (axis, 0)), -1, axis)
        return np.asarray(table)

    def sample(self, rows: int, rng: np.random.Generator) -> Codes:
        """See `Model`."""
        places = [self.schema.index(name) for name in self.names]
        chances = self.factors / self._largest
        parts: list[Codes] = []
        left = rows
        for _ in range(_MAX_BATCHES):
            if left <= 0:
                break
            codes = self.base.sample(max(left, _BATCH), rng)
            kept = codes[
                rng.random(len(codes)) < chances[tuple(codes[:, place] for place in places)]
            ]
            parts.append(kept[:left])
            left -= len(parts[-1])
        if left > 0:
            raise ParameterError(
                "the totals are too far from the model to draw rows", where="totals"
            )
        return np.asfortranarray(
            np.concatenate([*parts, np.empty((0, len(self.schema)), np.int32)])
        )

    @cached_property
    def _largest(self) -> float:
        """The largest factor of a cell that the model thinks possible."""
        return float(self.factors[self.base.marginal(self.names) > 0].max())

    def to_bytes(self) -> bytes:
        """See `Model`."""
        arrays: dict[str, AnyArray] = {
            "base": np.frombuffer(self.base.to_bytes(), np.uint8),
            "factors": self.factors,
        }
        meta = {"kind": self.kind, "schema": self.schema.to_json(), "names": list(self.names)}
        return pack(meta, arrays)

    @classmethod
    def from_bytes(cls, data: bytes) -> Raked:
        """See `Model`."""
        meta, arrays = unpack(data)
        inner = arrays["base"].tobytes()
        # Nested archives would be copied at each level.
        if unpack(inner)[0].get("kind") == cls.kind:
            raise ReportError("a raked model contains another one")
        model = cls(model_from_bytes(inner), tuple(meta["names"]), arrays["factors"])
        if model.schema.fingerprint != schema_from_json(meta["schema"]).fingerprint:
            raise ReportError("a raked model is over another schema than the one inside")
        sizes = tuple(model.schema[name].cardinality for name in model.names)
        if len(set(model.names)) < len(sizes) or model.factors.shape != sizes:
            raise ReportError("the factors of a raked model have the wrong shape")
        if not np.isfinite(model.factors).all() or (model.factors < 0).any():
            raise ReportError("a factor of a raked model is not a number from zero on")
        return model


def read_totals(
    schema: Schema, given: Mapping[str | tuple[str, ...], Mapping[Any, float]]
) -> dict[tuple[str, ...], Floats]:
    """Totals by label as tables of shares.

    Raises:
        ParameterError: An attribute or value is unknown, or the numbers are no totals.
    """
    if not (isinstance(given, Mapping) and all(isinstance(t, Mapping) for t in given.values())):
        raise ParameterError(
            f"totals are a dict such as {{'sex': {{'F': 51, 'M': 49}}}}, not {given!r}",
            where="totals",
        )
    out = {}
    for key, by_value in given.items():
        names = (key,) if isinstance(key, str) else tuple(key)
        check_marginal(schema, names)
        shown = " x ".join(names)
        table = np.zeros([schema[name].cardinality for name in names])
        for value, number in by_value.items():
            labels = (value,) if isinstance(key, str) else tuple(value)
            if len(labels) != len(names):
                raise ParameterError(
                    f"totals of {shown} need {len(names)} values, not {value!r}", where="totals"
                )
            place = tuple(_code(schema, n, label) for n, label in zip(names, labels, strict=True))
            if not (isinstance(number, int | float) and 0 <= number < math.inf):
                raise ParameterError(
                    f"the total of {shown} {value!r} is {number!r}, not a number from zero on",
                    where="totals",
                    value=number,
                )
            table[place] = number
        if not table.sum() > 0:
            raise ParameterError(f"the totals of {shown} add up to zero", where="totals")
        out[names] = table / table.sum()
    if not out:
        raise ParameterError("there are no totals to rake to", where="totals")
    return out


def _code(schema: Schema, name: str, label: object) -> int:
    """The code of a value, or of a bin by its label."""
    attribute = schema[name]
    for code, value in enumerate(attribute.values):
        if value == label and isinstance(value, bool) == isinstance(label, bool):
            return code
    if label is None and attribute.missing:
        return attribute.answers
    if str(label) in attribute.labels:
        return attribute.labels.index(str(label))
    raise ParameterError(
        f"{name} has no value {label!r}; it has {', '.join(attribute.labels[:12])}",
        where="totals",
        value=label,
    )


def rake(model: Model, totals: Totals) -> Raked:
    """Rake a model to known totals.

    Args:
        model: Any model.
        totals: For each set of attributes the shares of its combinations, which add up to one.

    Raises:
        ParameterError: The totals contradict each other, or need people that the model excludes.
    """
    base = model.base if isinstance(model, Raked) else model
    names = tuple(dict.fromkeys(name for attributes in totals for name in attributes))
    before = base.marginal(names)
    targets = {}
    for key, table in totals.items():
        axes = [names.index(name) for name in key]
        targets[tuple(sorted(axes))] = np.transpose(table, np.argsort(axes))
    after = scale_to(before, targets)
    for places, target in targets.items():
        others = tuple(axis for axis in range(after.ndim) if axis not in places)
        if np.abs(after.sum(axis=others) - target).max() > _TOLERANCE:
            missed = [names[axis] for axis in places]
            raise ParameterError(
                f"the totals of {' and '.join(missed)} cannot be reached: totals contradict each other, "
                "or the model has nobody with a wanted value",
                where="totals",
                value=missed,
            )
    factors = np.divide(after, before, out=np.zeros_like(after), where=before > 0)
    return Raked(base, names, factors)
