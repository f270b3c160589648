"""What LoPub asks: its parameters, and the one round in which every participant reports every attribute.

Reference: Ren et al., "LoPub", IEEE TIFS 2018, section 5.2 (local transformation, eq. 5 to 8).
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Literal, get_args, get_type_hints

from dither.checks import check_between, check_choice, check_finite, check_whole_or_none
from dither.errors import ParameterError, PrivacyError
from dither.mechanisms import BitMechanism, BloomRappor, bloom_size, sue_from_flip, telling_seed
from dither.reports import Plan, Question
from dither.schema import Attribute, Schema

FALSE_POSITIVE = 0.05  # four hashes, as in the paper's experiments


@dataclass(frozen=True)
class LoPubParameters:
    """What LoPub leaves open.

    `flip` is the paper's f; without it f follows from the record's epsilon. `bits` and `hashes` of a Bloom filter
    follow from `false_positive` unless given; `hash_seed` is the first that tells an attribute's values apart.
    `threshold=noise` keeps a pair that stands out from noise by `significance` standard deviations and, with `phi`,
    reaches the paper's threshold too; `threshold=paper` uses mutual information and phi (0.2) alone. `pruning=paper`
    starts full for binary schemas and empty for others. `fit=pairs` fits the tree to all pairs at once, `fit=cliques`
    estimates each clique by itself with the `estimator`, as the paper does. For the paper's own figures: `em=printed`
    (even start, printed stopping rule) and `relative_entropy=degrees`, H/(k-1), with which its table 7 was made.
    """

    estimator: Literal["em", "lasso", "hybrid"] = "em"
    lasso_features: Literal["cooccurrence", "paper"] = "cooccurrence"
    encoding: Literal["unary", "bloom"] = "unary"
    flip: float | None = None
    bits: int | None = None
    hashes: int | None = None
    false_positive: float | None = None
    hash_seed: int | None = None
    threshold: Literal["noise", "paper"] = "noise"
    phi: float | None = None
    significance: float = 3.0
    pruning: Literal["none", "paper", "empty", "full"] = "none"
    relative_entropy: Literal["values", "degrees"] = "values"
    max_clique_cells: int = 2_000
    fit: Literal["cliques", "pairs"] = "cliques"
    em: Literal["converged", "printed"] = "converged"
    tolerance: float = 1e-5
    steps: int = 2_000

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            choices = get_args(get_type_hints(LoPubParameters)[name])
            if isinstance(value, str):
                check_choice(name, value, choices)
        for name in ("flip", "false_positive"):
            if getattr(self, name) is not None:
                check_between(name, getattr(self, name), 0, 1, ends="()")
        if self.phi is not None:
            check_between("phi", self.phi, 0, 1)
        for name in ("bits", "hashes", "max_clique_cells", "steps"):
            check_whole_or_none(name, getattr(self, name), 1)
        check_whole_or_none("hash_seed", self.hash_seed, 0)
        check_between("tolerance", self.tolerance, 0, math.inf, ends="()")
        check_finite("significance", self.significance)
        given = [
            n
            for n in ("bits", "hashes", "false_positive", "hash_seed")
            if getattr(self, n) is not None
        ]
        if self.encoding == "unary" and given:
            raise ParameterError(
                f"{given[0]} belongs to Bloom filters; add encoding=bloom or leave it out",
                where=given[0],
            )
        if self.bits is not None and self.hashes is not None and self.false_positive is not None:
            raise ParameterError(
                "give bits and hashes, or a false_positive rate, not all three",
                where="false_positive",
            )

    @property
    def degree(self) -> float:
        """phi with its default: 0.2 for the paper's rule, none beside the noise test."""
        return self.phi if self.phi is not None else (0.2 if self.threshold == "paper" else 0.0)

    def filter_size(self, cells: int) -> tuple[int, int]:
        """Bits and hashes of a Bloom filter over some cells (eq. 6 and 7)."""
        if self.bits is not None:
            return self.bits, self.hashes or max(1, round(self.bits / cells * math.log(2)))
        if self.hashes is not None:
            return max(self.hashes + 1, math.ceil(self.hashes * cells / math.log(2))), self.hashes
        return bloom_size(
            cells, self.false_positive if self.false_positive is not None else FALSE_POSITIVE
        )


def lopub_plan(schema: Schema, epsilon: float, parameters: LoPubParameters) -> Plan:
    """The one round: all attributes, one flip probability, at most epsilon for the whole record."""
    flip = parameters.flip if parameters.flip is not None else 0.5
    mechanisms = [_mechanism(attribute, flip, parameters) for attribute in schema]
    if parameters.flip is None:
        mechanisms = _for_epsilon(mechanisms, epsilon)
    questions = tuple(Question((a.name,), m) for a, m in zip(schema, mechanisms, strict=True))
    plan = Plan(0, questions, split=True, tally="patterns")
    if plan.epsilon > epsilon:
        raise PrivacyError(
            f"flip={parameters.flip} gives a whole record epsilon {plan.epsilon:.6g}, more than the {epsilon:g} asked "
            "for; raise epsilon or flip, or leave flip out",
            where="flip",
            value=parameters.flip,
        )
    return plan


def _mechanism(attribute: Attribute, flip: float, parameters: LoPubParameters) -> BitMechanism:
    """The bits of one attribute; one whose values the filters cannot tell apart is refused by its name."""
    cells = attribute.cardinality
    if parameters.encoding == "unary":
        return sue_from_flip(cells, flip)
    bits, hashes = parameters.filter_size(cells)
    try:
        seed = telling_seed(cells, bits, hashes, parameters.hash_seed)
    except ParameterError as error:
        raise ParameterError(
            f"{attribute.name}: {error}", where=error.where, value=error.value
        ) from None
    return BloomRappor.for_flip(cells, flip, bits, hashes, seed)


def _for_epsilon(mechanisms: list[BitMechanism], epsilon: float) -> list[BitMechanism]:
    """The same bits, with the flip probability that the record's epsilon allows, equal for all attributes."""
    # A hair below the share, so that rounding each attribute's epsilon up cannot carry the sum past the whole.
    share = epsilon * (1 - 1e-12) / sum(m.distance for m in mechanisms)
    try:
        return [m.with_epsilon(share * m.distance) for m in mechanisms]
    except PrivacyError:
        raise PrivacyError(
            f"epsilon {epsilon:g} split over {len(mechanisms)} attributes is so small that the flip probability "
            "rounds to 1 and reports say nothing; raise epsilon or ask fewer attributes",
            where="epsilon",
            value=epsilon,
        ) from None
