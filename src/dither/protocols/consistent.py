"""From answers about overlapping sets to consistent marginals, and from those to any other marginal.

References: CALM (Zhang et al., CCS 2018), sections 4.2 and 4.4; consistency and maximum entropy as in PriView (Qardaji,
Yang, Li, SIGMOD 2014).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dither.errors import ParameterError
from dither.estimate import AnswerCounts, make_consistent, norm_sub
from dither.estimate.pool import precision
from dither.models.model import check_marginal
from dither.schema import Schema
from dither.types import Floats

Table = tuple[tuple[str, ...], Floats]
MOST_CELLS = 4_000_000


def consistent_marginals(
    schema: Schema, answers: Sequence[AnswerCounts], rounds: int = 5
) -> list[Table]:
    """The answered sets' distributions: consistency and projection take turns, projection last.

    Tables are weighted by the inverse variance, of noise and of who was asked, of a cell. Projection disturbs consistency a
    little and the other way round; a few turns bring both within a hair.
    """
    tables: list[Table] = []
    weights = []
    for answer in answers:
        names = answer.question.attributes
        raw = answer.question.mechanism.estimate(answer.support, answer.n).frequencies
        tables.append((names, raw.reshape([schema[a].cardinality for a in names])))
        weights.append(precision(answer.question.mechanism, raw.size, answer.n))
    for _ in range(rounds):
        tables = [(names, norm_sub(table)) for names, table in make_consistent(tables, weights)]
    return tables


def reconstruct(
    schema: Schema,
    tables: Sequence[Table],
    attributes: Sequence[str],
    rounds: int = 100,
    tolerance: float = 1e-7,
) -> Floats:
    """The distribution of largest entropy over some attributes whose marginals agree with the tables' views of it.

    Iterative proportional fitting from the even table; a set inside one table is read off it. Views that contradict
    each other a little (projection leaves a hair) end in a compromise.
    """
    check_marginal(schema, attributes)
    shape = tuple(schema[a].cardinality for a in attributes)
    if math.prod(shape) > MOST_CELLS:
        raise ParameterError(
            f"the marginal of {', '.join(attributes)} has {math.prod(shape):,} cells, more than the {MOST_CELLS:,} that "
            "can be reconstructed; ask fewer attributes",
            where="attributes",
        )
    views = _largest_views(tables, attributes)
    joint = np.full(shape, 1.0 / math.prod(shape))
    for _ in range(rounds):
        before = joint
        for axes, target in views:
            others = tuple(i for i in range(len(shape)) if i not in axes)
            now = joint.sum(axis=others, keepdims=True)
            wanted = target.reshape([shape[i] if i in axes else 1 for i in range(len(shape))])
            joint = joint * np.divide(wanted, now, out=np.zeros_like(now), where=now > 0)
            total = joint.sum()
            joint = joint / total if total > 0 else before
        if np.abs(joint - before).max() <= tolerance:
            break
    return np.asarray(joint)


def _largest_views(
    tables: Sequence[Table], attributes: Sequence[str]
) -> list[tuple[tuple[int, ...], Floats]]:
    """What each table says about the attributes, without views that another one's hold; axes in order."""
    found: dict[tuple[int, ...], list[Floats]] = {}
    for names, table in tables:
        axes = tuple(i for i, a in enumerate(attributes) if a in names)
        if axes:
            kept = [a for a in names if a in attributes]
            summed = table.sum(axis=tuple(i for i, a in enumerate(names) if a not in attributes))
            view = np.transpose(summed, [kept.index(attributes[i]) for i in axes])
            found.setdefault(axes, []).append(view)
    maximal = [a for a in found if not any(set(a) < set(other) for other in found)]
    return [(axes, np.mean(found[axes], axis=0)) for axes in sorted(maximal)]
