"""Replicates as bytes: kept with a release, so that every later question is answered from the same ones."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

import numpy as np

from dither.errors import ReportError
from dither.models import Model, model_from_bytes
from dither.schema import Schema
from dither.tally.archive import decoding, pack, unpack
from dither.types import AnyArray, JsonObject
from dither.uncertainty.bootstrap import Bootstrap
from dither.uncertainty.misfit import Misfit, PairMisfit
from dither.uncertainty.reports import Reports

FORMAT = "dither-replicates-1"
MOST_REPLICATES = 1000


def pack_replicates(found: Bootstrap) -> bytes:
    """The refitted models in single precision, which is a thousand times finer than their noise, and what the residuals said.

    The schema and the real answers are the release's own and not written again; a digest of its model ties them to it.
    """
    models: list[JsonObject] = []
    arrays: dict[str, AnyArray] = {}
    for number, model in enumerate(found.replicates):
        meta, tables = unpack(model.to_bytes())
        models.append(
            {key: value for key, value in meta.items() if key != "schema"}
            | {"arrays": list(tables)}
        )
        for name, table in tables.items():
            arrays[f"{number}.{name}"] = (
                table.astype(np.float32) if table.dtype == np.float64 else table
            )
    pairs = [
        [*sorted(pair), one.factor, one.shared, one.weight]
        for pair, one in found.misfit.pairs.items()
    ]
    asked = None if found.asked is None else sorted(sorted(some) for some in found.asked)
    facts = {
        "learnt": found.dependence_learnt,
        "pairs": sorted(pairs),
        "typical": found.misfit.typical,
        "asked": asked,
    }
    facts["spread"] = found.misfit.spread
    return pack({"format": FORMAT, "of": _digest(found.model), "models": models, **facts}, arrays)


def unpack_replicates(data: bytes, model: Model, reports: Reports | None) -> Bootstrap:
    """The replicates of a release with this model and these answers; bytes that are none of it raise `ReportError`."""
    meta, arrays = unpack(data)
    if not isinstance(meta, dict) or meta.get("format") != FORMAT:
        raise ReportError(f"not the replicates of a release ({FORMAT})")
    if meta.get("of") != _digest(model):
        raise ReportError("the replicates are of another release's model")
    with decoding("set of replicates"):
        if not 2 <= len(meta["models"]) <= MOST_REPLICATES:
            raise ValueError(f"{len(meta['models'])} replicates")
        replicates = tuple(
            _model(entry, str(i), arrays, model.schema) for i, entry in enumerate(meta["models"])
        )
        pairs = {_known(pair[:2], model.schema): _pair_misfit(pair[2:]) for pair in meta["pairs"]}
        asked = (
            None
            if meta["asked"] is None
            else frozenset(_known(some, model.schema) for some in meta["asked"])
        )
        misfit = Misfit(pairs, _number(meta["typical"]), _number(meta["spread"]))
        return Bootstrap(model, replicates, bool(meta["learnt"]), misfit, asked, reports)


def _digest(model: Model) -> str:
    """What tells models apart whose tables have the same shape."""
    return sha256(model.to_bytes()).hexdigest()


def _model(entry: JsonObject, prefix: str, arrays: dict[str, AnyArray], schema: Schema) -> Model:
    tables = {name: arrays[f"{prefix}.{name}"] for name in entry["arrays"]}
    wide = {
        name: t.astype(np.float64) if t.dtype == np.float32 else t for name, t in tables.items()
    }
    if not all(np.isfinite(table).all() for table in wide.values()):
        raise ValueError("a table is not of numbers")
    meta = {key: value for key, value in entry.items() if key != "arrays"} | {
        "schema": schema.to_json()
    }
    return model_from_bytes(pack(meta, wide))


def _known(names: Sequence[str], schema: Schema) -> frozenset[str]:
    if len({schema.index(name) for name in names}) != len(names):
        raise ValueError(f"an attribute twice in {names!r}")
    return frozenset(names)


def _pair_misfit(values: Sequence[object]) -> PairMisfit:
    factor, shared, weight = (_number(value) for value in values)
    if max(shared, weight) > 1:
        raise ValueError(f"shares above one: {values!r}")
    return PairMisfit(factor, shared, weight)


def _number(value: object) -> float:
    if not isinstance(value, int | float) or not 0 <= value < np.inf:
        raise ValueError(f"{value!r} is not a number from zero on")
    return float(value)
