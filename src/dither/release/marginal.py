"""A marginal of a release: frequencies under the attributes' labels, with standard errors where they were measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dither.estimate.pool import answered, pool
from dither.mechanisms import Mechanism
from dither.protocols.machine import Measured, unpack_state
from dither.tally import CountTally, RoundTally
from dither.tally.archive import unpack
from dither.types import Floats

if TYPE_CHECKING:
    from dither.release.release import Release

_ROWS_SHOWN = 12


@dataclass(frozen=True)
class Marginal:
    """The model's distribution of some attributes, one axis each; `labels` names the codes along each axis.

    `standard_errors` is None unless these very attributes were measured together; it then holds the standard errors
    of the measurement that the model was fitted to, devices' noise and the choice of who was asked included.
    """

    attributes: tuple[str, ...]
    labels: tuple[tuple[str, ...], ...]
    frequencies: Floats
    standard_errors: Floats | None = None

    def to_arrow(self) -> Any:
        """A PyArrow table: a label column an attribute, `frequency`, `standard_error`; the last attribute fastest."""
        import pyarrow as pa

        codes = np.indices(self.frequencies.shape).reshape(len(self.attributes), -1)
        arrays = [
            pa.DictionaryArray.from_arrays(pa.array(axis.astype(np.int32)), pa.array(labels, pa.string())).cast(
                pa.string()
            )
            for axis, labels in zip(codes, self.labels, strict=True)
        ]
        errors = pa.nulls(self.frequencies.size, pa.float64())
        if self.standard_errors is not None:
            errors = pa.array(self.standard_errors.ravel())
        names = [*self.attributes, *_figure_names(self.attributes)]
        return pa.table([*arrays, pa.array(self.frequencies.ravel()), errors], names=names)

    def __repr__(self) -> str:
        order = np.argsort(-self.frequencies, axis=None, kind="stable")[:_ROWS_SHOWN]
        if len(self.attributes) == 1 and self.frequencies.size <= _ROWS_SHOWN:
            order = np.arange(self.frequencies.size)
        lines = [f"Marginal({' x '.join(self.attributes)}, {self.frequencies.size:,} cells)"]
        shown = [np.unravel_index(int(flat), self.frequencies.shape) for flat in order]
        texts = [" | ".join(labels[i] for labels, i in zip(self.labels, at, strict=True)) for at in shown]
        width = max(len(text) for text in texts)
        for at, text in zip(shown, texts, strict=True):
            error = "" if self.standard_errors is None else f" ± {self.standard_errors[at]:.4f}"
            lines.append(f"  {text:<{width}}  {self.frequencies[at]:.4f}{error}")
        if self.frequencies.size > len(order):
            lines.append(f"  … and {self.frequencies.size - len(order):,} smaller cells")
        return "\n".join(lines)


def measured_errors(measured: Sequence[Measured], attributes: Sequence[str], participants: int) -> Floats | None:
    """The standard errors of exactly these attributes for all participants, axes in this order; None if not measured.

    A measurement's own standard error is that of the devices' noise. Where only n of N participants were asked, who
    they are adds f(1-f)/n * (1 - n/N) to the variance (sampling without replacement). Of several measurements of the
    same attributes the one with the most answers counts.
    """
    found = [m for m in measured if sorted(m.attributes) == sorted(attributes)]
    if not found:
        return None
    best = max(found, key=lambda m: m.n)
    f = np.clip(best.frequencies, 0.0, 1.0)
    unasked = max(0.0, 1 - best.n / participants) if participants else 0.0
    errors = np.sqrt(best.standard_errors**2 + f * (1 - f) / max(best.n, 1) * unasked)
    return np.transpose(errors, [best.attributes.index(name) for name in attributes])


def _figure_names(attributes: Sequence[str]) -> list[str]:
    """`frequency` and `standard_error`, with underscores added if an attribute has that name."""
    names = []
    for name in ("frequency", "standard_error"):
        while name in attributes:
            name = f"{name}_"  # noqa: PLW2901
        names.append(name)
    return names


# --------------------
# Standard errors of two attributes taken together, from what was asked: the intervals of a release that knows no truth.
#
# They are those of the reports about the pair alone, as the single attributes' are: the noise that devices added and the choice of
# who was asked. What a model gains by pooling other answers, or loses by its own shape, is not in them: `dither.bootstrap` has it.

Errors = Callable[[Sequence[str]], Floats | None]


def pair_errors(release: Release) -> Errors:
    """A function from two attributes to the standard errors of their cells, None where no answer tells of both.

    In this order: the pair as the method measured it; every answer about a set that holds both, pooled; whole records of which
    each attribute was randomised on its own.
    """
    tallies = _tallies(release)
    answers = answered([tally for tally in tallies if isinstance(tally, CountTally)])
    asked = [set(answer.question.attributes) for answer in answers]
    whole = [tally for tally in tallies if not isinstance(tally, CountTally)]

    def errors(names: Sequence[str]) -> Floats | None:
        measured = measured_errors(release.measured, names, release.participants)
        if measured is not None:
            return measured
        if any(set(names) <= together for together in asked):
            pooled = pool(release.schema, answers, names)
            held = Measured(pooled.attributes, pooled.frequencies, pooled.standard_errors, pooled.n)
            return measured_errors([held], names, release.participants)
        for tally in whole:
            alone = {q.attributes[0]: q.mechanism for q in tally.plan.questions if len(q.attributes) == 1}
            if set(names) <= set(alone) and tally.participants:
                first, second = (alone[name] for name in names)
                return split_errors(first, second, release.model.marginal(names), tally.participants)
        return None

    return errors


def split_errors(first: Mechanism, second: Mechanism, joint: Floats, n: int) -> Floats:
    """Standard errors of the products of two attributes' unbiased estimates, averaged over n people who report both.

    With u and w the single estimates of one person's cells a and b, independent given the record, the variance of the mean of u w
    is (E[u^2 w^2] - f_ab) / n, and E[u^2] is 1 plus the variance for people whose value is a, the variance alone for others.
    An EM fit is at least as precise for many people.
    """
    hit, miss = 1 + first.variance(1.0, 1), first.variance(0.0, 1)
    hit_, miss_ = 1 + second.variance(1.0, 1), second.variance(0.0, 1)
    rows, columns = joint.sum(axis=1, keepdims=True), joint.sum(axis=0, keepdims=True)
    squares = joint * hit * hit_ + (rows - joint) * hit * miss_ + (columns - joint) * miss * hit_
    squares = squares + (1 - rows - columns + joint) * miss * miss_
    return np.asarray(np.sqrt(np.maximum(squares - joint, 0.0) / n))


def _tallies(release: Release) -> list[RoundTally]:
    """The closed rounds of the finished protocol that a release carries, without what was held out of the fit."""
    state = release.state
    if state is None:
        return []
    meta, arrays = unpack(state)
    if "holdout" in meta:
        state = arrays["machine"].tobytes()
    return unpack_state(state, release.method)[2]
