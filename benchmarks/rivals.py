"""Four ways to learn the joint distribution of a few attributes, one call each: PrivIncr's figure 3.

Reference: Liu et al., EDBT 2023, section 5.2.3. VOUE and VRAPPOR treat the attributes as one with the product domain and
spend the whole epsilon on it; OUE+EM and RAPPOR+EM split epsilon over the attributes and put the joint together by EM.
Each simulates its own participants, so that the four differ in nothing else.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from dither.errors import ParameterError
from dither.fit import norm_sub
from dither.fit.joint import SplitReports, em_joint
from dither.mechanisms import PackedReports, kernels, mechanism
from dither.randomness import RandomStream
from dither.reports import Plan, Question
from dither.schema import Schema
from dither.tally import PatternTally
from dither.types import Codes, Floats

Rival = Literal["voue", "vrappor", "oue+em", "rappor+em"]
RIVALS: tuple[Rival, ...] = ("voue", "vrappor", "oue+em", "rappor+em")
_BITS = {"voue": "oue", "vrappor": "sue", "oue+em": "oue", "rappor+em": "sue"}


def rival_joint(
    schema: Schema,
    codes: Codes,
    rival: Rival,
    epsilon: float,
    rng: np.random.Generator,
    steps: int = 500,
) -> Floats:
    """The joint distribution of all the schema's attributes as one rival learns it, at epsilon a record."""
    if rival not in RIVALS:
        raise ParameterError(
            f"no rival {rival!r}; there are {', '.join(RIVALS)}", where="rival", value=rival
        )
    if codes.ndim != 2 or codes.shape[1] != len(schema) or not len(codes):
        raise ParameterError(
            f"codes of {len(schema)} columns and at least one row are needed, not {codes.shape}"
        )
    if rival in ("voue", "vrappor"):
        return _whole_domain(schema, codes, _BITS[rival], epsilon, rng)
    return _split_and_em(schema, codes, _BITS[rival], epsilon, rng, steps)


def _whole_domain(
    schema: Schema, codes: Codes, name: str, epsilon: float, rng: np.random.Generator
) -> Floats:
    shape = schema.cardinalities
    cells = np.ravel_multi_index(tuple(np.asarray(c, np.int64) for c in codes.T), shape)
    chosen = mechanism(name, int(np.prod(shape)), epsilon)
    support = kernels.simulate(chosen, np.bincount(cells, minlength=chosen.cells), rng)
    return norm_sub(kernels.estimate(chosen, support, len(codes)).frequencies).reshape(shape)


def _split_and_em(
    schema: Schema, codes: Codes, name: str, epsilon: float, rng: np.random.Generator, steps: int
) -> Floats:
    # A hair below the even share, so that rounding each part up cannot carry the sum past the whole.
    part = epsilon * (1 - 1e-12) / len(schema)
    questions = tuple(Question((a.name,), mechanism(name, a.cardinality, part)) for a in schema)
    plan = Plan(0, questions, split=True, tally="patterns")
    stream = RandomStream.from_generator(rng)
    rows = [
        kernels.randomise(q.mechanism, codes[:, i], stream).rows for i, q in enumerate(questions)
    ]
    tally = PatternTally(plan)
    tally.add(-1, PackedReports(np.concatenate(rows, axis=1)))
    reports = SplitReports.from_tally(tally)
    return em_joint(reports, range(len(schema)), steps=steps).joint
