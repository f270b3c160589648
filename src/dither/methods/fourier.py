"""FT: each participant answers with one randomised Fourier coefficient of a pair of attributes written in bits.

Reference: Cormode, Kulkarni, Srivastava, "Marginal release under local differential privacy", SIGMOD 2018 (MargHT), with
non-binary attributes encoded in bits as in PrivIncr's and CALM's comparisons. One round; coefficients are drawn uniformly
over all that the pairs need. FT stops at marginals: for a synthetic table a junction tree is fitted to them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import numpy as np

from dither.checks import check_whole
from dither.fit import norm_sub, pool
from dither.mechanisms import Hadamard
from dither.methods.calm import reconstruct
from dither.methods.tree import OneRoundTree
from dither.reports import Plan, Question
from dither.types import Floats, JsonObject


@dataclass(frozen=True)
class FourierParameters:
    """`significance` and `max_clique_cells` are of the tree that the synthetic table is drawn from."""

    significance: float = 2.0
    max_clique_cells: int = 8_000

    def __post_init__(self) -> None:
        check_whole("max_clique_cells", self.max_clique_cells, 2)


class Fourier(OneRoundTree[FourierParameters]):
    """One round of coefficients of all pairs."""

    method = "fourier"
    parameters_class = FourierParameters

    @cached_property
    def _round(self) -> Plan:
        names, sizes = self.campaign.schema.names, self.campaign.schema.cardinalities
        sets: list[tuple[int, ...]] = list(combinations(range(len(names)), 2)) or [(0,)]
        questions = []
        for s in sets:
            cells = int(np.prod([sizes[a] for a in s]))
            coefficients = Hadamard.for_epsilon(cells, sizes[s[-1]], self.campaign.epsilon)
            questions.append(Question(tuple(names[a] for a in s), coefficients))
        weights = np.array(
            [2.0**q.mechanism.bits for q in questions if isinstance(q.mechanism, Hadamard)]
        )
        return Plan(0, tuple(questions), tuple(float(w) for w in weights / weights.sum()))

    def marginal(self, attributes: Sequence[str]) -> Floats:
        """FT's own answer: a pair by inverting its coefficients, anything larger by maximum entropy given the pairs."""
        schema = self.campaign.schema
        if len(attributes) <= 2:
            return norm_sub(pool(schema, self.evidence.answers, attributes).frequencies)
        inside = [
            p
            for p in combinations(attributes, 2)
            if self.evidence.pair(*sorted(map(schema.index, p)))
        ]
        return reconstruct(schema, [(p, self.marginal(p)) for p in inside], attributes)

    def notes(self) -> JsonObject:
        bits = [
            q.mechanism.bits for q in self._round.questions if isinstance(q.mechanism, Hadamard)
        ]
        return {"coefficients": sum(2**b for b in bits), **super().notes()}
