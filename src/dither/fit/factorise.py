"""The distribution of a large clique as a product of small factors, chosen by relevance without redundancy.

Reference: Liu, Tang, Hu, Jin, Guo, "Multi-dimensional data publishing with local differential privacy" (PrivIncr), EDBT
2023, algorithm 2: from the last conditional of the chain rule to the first, the attribute whose reduced condition set
makes the smallest factor is split off, until what is left is small enough to be asked as a whole. Condition sets are
reduced by minimal-redundancy-maximal-relevance (Peng, Long, Ding, TPAMI 2005).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dither.checks import check_whole
from dither.errors import ParameterError
from dither.fit.dependence import entropy
from dither.types import Floats

MIN_GAIN = 1e-9  # nats; a condition that tells nothing is left out


@dataclass(frozen=True)
class Factorisation:
    """P(clique) = P(core) * product over (a, given) of P(a | given), each `given` inside the core and earlier ones.

    The paper goes on splitting single attributes off the core; the product of those conditionals is the core's own
    distribution in whatever order, so it stays whole here.
    """

    core: tuple[int, ...]
    conditionals: tuple[tuple[int, tuple[int, ...]], ...]

    @property
    def sets(self) -> tuple[tuple[int, ...], ...]:
        """The attribute sets whose distributions are needed; one inside another is read off the larger."""
        every = [self.core, *(tuple(sorted((a, *given))) for a, given in self.conditionals)]
        return tuple(
            s for s in dict.fromkeys(every) if not any(set(s) < set(other) for other in every)
        )


def reduce_conditions(
    target: int,
    candidates: Sequence[int],
    information: Floats,
    cardinalities: Sequence[int],
    most_cells: int,
) -> tuple[int, ...]:
    """The conditions of `target` worth keeping: most relevant first, less what is redundant with those already taken.

    A candidate c scores I(c; target) - mean of I(c; s) over the s taken; the best is taken while its score is above
    zero and the factor stays within `most_cells`.
    """
    taken: list[int] = []
    cells = cardinalities[target]
    left = list(candidates)
    while left:
        fitting = [c for c in left if cells * cardinalities[c] <= most_cells]
        scores = {
            c: information[c, target]
            - (float(np.mean([information[c, s] for s in taken])) if taken else 0.0)
            for c in fitting
        }
        best = max(fitting, key=lambda c: (scores[c], -c), default=None)
        if best is None or scores[best] <= 0:
            break
        taken.append(best)
        left.remove(best)
        cells *= cardinalities[best]
    return tuple(sorted(taken))


def factorise(
    clique: Sequence[int], cardinalities: Sequence[int], information: Floats, most_cells: int
) -> Factorisation:
    """Algorithm 2 on one clique: every factor has at most `most_cells` cells (the paper's sigma).

    `information` is the symmetric matrix of mutual informations. An attribute wider than `most_cells` stands alone.
    """
    check_whole("factor_cells", most_cells, 2)
    left = sorted(clique)
    split: list[tuple[int, tuple[int, ...]]] = []
    while len(left) > 1 and math.prod(cardinalities[a] for a in left) > most_cells:
        options = []
        for a in left:
            given = reduce_conditions(
                a, [b for b in left if b != a], information, cardinalities, most_cells
            )
            cells = cardinalities[a] * math.prod(cardinalities[b] for b in given)
            options.append((cells, a, given))
        # Among equally small factors the attribute that its conditions explain best should be the one that goes.
        _, a, given = min(
            options, key=lambda o: (o[0], -sum(information[o[1], b] for b in o[2]), o[1])
        )
        split.append((a, given))
        left.remove(a)
    return Factorisation(tuple(left), tuple(reversed(split)))


def factorise_by_information(
    clique: Sequence[int], cardinalities: Sequence[int], joint: Floats, most_cells: int
) -> Factorisation:
    """Algorithm 2 with conditions filled up to `most_cells` by conditional information, from a joint of the whole clique.

    Minimal redundancy stops at the first condition that is as much like those taken as like its target, and so leaves out what
    is redundant only in part. Here the condition with the largest conditional information given those taken comes next while
    the factor fits, and the attribute is split off that its conditions leave the least about: what is lost, the sum of these,
    is the divergence of the product from the joint. `joint` has one axis for each attribute of the clique, in order.
    """
    check_whole("factor_cells", most_cells, 2)
    left = sorted(clique)
    entropies = _Entropies(tuple(left), joint)
    split: list[tuple[int, tuple[int, ...]]] = []
    while len(left) > 1 and math.prod(cardinalities[a] for a in left) > most_cells:
        options = []
        for a in left:
            others = [b for b in left if b != a]
            given = _fill(a, others, entropies, cardinalities, most_cells)
            lost = entropies.given(a, given) - entropies.given(a, others)
            options.append((round(lost, 12), a, given))
        _, a, given = min(options)
        split.append((a, given))
        left.remove(a)
    return Factorisation(tuple(left), tuple(reversed(split)))


@dataclass(frozen=True)
class _Entropies:
    """The entropies of sets of a clique's attributes, each computed once."""

    scope: tuple[int, ...]
    joint: Floats
    _known: dict[frozenset[int], float] = field(default_factory=dict, repr=False, compare=False)

    def of(self, members: Iterable[int]) -> float:
        key = frozenset(members)
        if key not in self._known:
            summed = self.joint.sum(axis=tuple(i for i, a in enumerate(self.scope) if a not in key))
            self._known[key] = entropy(summed)
        return self._known[key]

    def given(self, target: int, conditions: Iterable[int]) -> float:
        """The entropy that is left of an attribute when others are known."""
        known = set(conditions)
        return self.of({target, *known}) - self.of(known)


def _fill(
    target: int,
    candidates: Sequence[int],
    entropies: _Entropies,
    cardinalities: Sequence[int],
    most_cells: int,
) -> tuple[int, ...]:
    """The conditions of a target, each the one that tells most beyond those before it, while the factor fits."""
    taken: list[int] = []
    cells = cardinalities[target]
    while fitting := [
        c for c in candidates if c not in taken and cells * cardinalities[c] <= most_cells
    ]:
        gains = {
            c: entropies.given(target, taken) - entropies.given(target, [*taken, c])
            for c in fitting
        }
        best = max(fitting, key=lambda c: (round(gains[c], 12), -c))
        if gains[best] <= MIN_GAIN:
            break
        taken.append(best)
        cells *= cardinalities[best]
    return tuple(sorted(taken))


def compose(
    clique: Sequence[int],
    factorisation: Factorisation,
    tables: Sequence[tuple[tuple[int, ...], Floats]],
) -> Floats:
    """The clique's table, axes in the order of `clique`, from distributions over sets that hold each factor."""
    label = {a: i for i, a in enumerate(clique)}
    joint = _read(factorisation.core, tables)
    scope = list(factorisation.core)
    for a, given in factorisation.conditionals:
        factor = _read((*given, a), tables)
        total = factor.sum(axis=-1, keepdims=True)
        # A condition that never occurs leaves the conditional open: the attribute's own distribution is the plain choice.
        alone = factor.sum(axis=tuple(range(factor.ndim - 1)))
        conditional = np.where(total > 0, factor / np.where(total > 0, total, 1.0), alone)
        operands: list[Any] = [
            joint,
            [label[s] for s in scope],
            conditional,
            [label[g] for g in (*given, a)],
        ]
        joint = np.asarray(np.einsum(*operands, [label[s] for s in (*scope, a)]))
        scope.append(a)
    out = np.transpose(joint, [scope.index(a) for a in clique])
    return np.asarray(out / out.sum())


def _read(wanted: Sequence[int], tables: Sequence[tuple[tuple[int, ...], Floats]]) -> Floats:
    """The distribution of some attributes, axes as wanted, off the smallest table that holds them."""
    holding = [(scope, table) for scope, table in tables if set(wanted) <= set(scope)]
    if not holding:
        raise ParameterError(f"no table holds the attributes {tuple(wanted)}", value=tuple(wanted))
    scope, table = min(holding, key=lambda t: t[1].size)
    kept = [a for a in scope if a in wanted]
    summed = table.sum(axis=tuple(i for i, a in enumerate(scope) if a not in wanted))
    return np.transpose(summed, [kept.index(a) for a in wanted])
