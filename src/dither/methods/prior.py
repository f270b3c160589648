"""What a method may know beforehand: a public table of the same schema, as rows and as the classes that a fit takes from them.

A prior is public and costs nobody any privacy. It is part of a machine's state, so that a saved machine fits as it did.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dither.errors import ParameterError, ReportError
from dither.fit.mixture.latent_class import (
    LatentClasses,
    classes_help,
    latent_classes,
    one_ways,
    smoothed,
)
from dither.fit.mixture.targets import Columns
from dither.methods.earlier import EarlierReports, earlier_from_state
from dither.schema import Schema
from dither.types import Codes, Floats, JsonMapping, JsonObject

if TYPE_CHECKING:
    from dither.methods.machine import ProtocolMachine

WEIGHTS, COMPONENTS = "prior weights", "prior components"  # of the arrays in a state
MAX_ROWS = 10**9
MAX_CLASSES = 10_000


@dataclass(frozen=True)
class PublicRows:
    """A public table as codes of a campaign's schema; `source` is the file or name it came from, `sha256` that of its bytes."""

    codes: Codes
    source: str
    sha256: str


@dataclass(frozen=True)
class PublicPrior:
    """The smoothed latent classes of a public table over the attributes that a method asks, and where they came from."""

    classes: LatentClasses
    rows: int
    source: str
    sha256: str

    def facts(self) -> JsonObject:
        """Where it came from, for a state and for a release."""
        return {"kind": "table", "source": self.source, "rows": self.rows, "sha256": self.sha256}

    def arrays(self) -> dict[str, Floats]:
        return {WEIGHTS: self.classes.weights, COMPONENTS: self.classes.components}


Prior = PublicPrior | EarlierReports


def give_prior(machine: ProtocolMachine, rows: PublicRows | EarlierReports) -> None:
    """Let a machine know a public table or an earlier campaign; an error for a method that has no use for one."""
    inner = machine.core
    if not inner.takes_prior:
        raise ParameterError(
            f"method {machine.method!r} takes no prior; leave it out, or use the method mixture",
            where="prior",
            value=rows.source,
        )
    if isinstance(rows, EarlierReports):
        if inner.campaign.schema.fingerprint != machine.campaign.schema.fingerprint:
            raise ParameterError(
                f"prior {rows.source}: an earlier release cannot be pooled where rules or groups leave something unasked; "
                "leave it out",
                where="prior",
                value=rows.source,
            )
        inner.prior = rows
        return
    if not len(rows.codes):
        raise ParameterError(f"prior {rows.source} has no rows", where="prior", value=rows.source)
    inner.prior = _learnt(
        inner.campaign.schema, _asked_codes(machine, rows.codes), rows, inner.campaign.seed
    )


def _learnt(schema: Schema, codes: Codes, rows: PublicRows, seed: int) -> PublicPrior:
    columns = Columns(schema.cardinalities)
    judged = classes_help(columns, codes, np.random.default_rng([seed, 0x7075626C, 1]))
    found = latent_classes(
        columns, codes, np.random.default_rng([seed, 0x7075626C]), None if judged else 1
    )
    return PublicPrior(
        smoothed(columns, found, one_ways(columns, codes)), len(codes), rows.source, rows.sha256
    )


def _asked_codes(machine: ProtocolMachine, codes: Codes) -> Codes:
    """Codes of a campaign's whole schema as codes of what the method inside asks: without what is determined, wide values in
    groups."""
    whole, asked = machine.campaign.schema, machine.core.campaign.schema
    columns = []
    for attribute in asked:
        column = codes[:, whole.index(attribute.name)]
        if attribute.cardinality != whole[attribute.name].cardinality:
            column = np.asarray(whole[attribute.name].group_codes)[column]
        columns.append(column)
    return np.stack(columns, axis=1)


def prior_from_state(facts: JsonMapping, arrays: dict[str, np.ndarray], schema: Schema) -> Prior:
    """The prior of a saved machine, checked: a state may come from anywhere."""
    if isinstance(facts, dict) and facts.get("kind") == "release":
        return earlier_from_state(facts, arrays)
    columns = Columns(schema.cardinalities)
    try:
        weights, components = (
            np.asarray(arrays[name], dtype=np.float64) for name in (WEIGHTS, COMPONENTS)
        )
        rows, source, digest = int(facts["rows"]), str(facts["source"]), str(facts["sha256"])
    except (KeyError, TypeError, ValueError) as error:
        raise ReportError(f"not the state of a method: its prior is damaged ({error!r})") from None
    fits = weights.ndim == 1 and 0 < len(weights) <= MAX_CLASSES and 0 < rows <= MAX_ROWS
    fits = fits and components.shape == (len(weights), columns.width)
    if not fits or not (_distributions(weights[None]) and _distributions(components, columns)):
        raise ReportError("not the state of a method: its prior is no mixture over its attributes")
    return PublicPrior(LatentClasses(weights, components), rows, source, digest)


def _distributions(values: Floats, columns: Columns | None = None) -> bool:
    if not np.isfinite(values).all() or (values < 0).any():
        return False
    return bool(np.allclose(values.sum(axis=1) if columns is None else columns.sums(values), 1.0))
