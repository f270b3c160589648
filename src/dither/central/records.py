"""The record form of compressed sensing: each record is measured, noised and decoded separately.

Trust model: LOCAL, unlike the rest of this package. Each record is measured and noised
alone, so a person could do it on the device, and the noise would protect the record
even from the collector of the measurements. Here a curator runs it on a table.
Guarantee: pure epsilon for one whole record, any record against any other.

A record is a vector of zeros and ones: one place for a yes-or-no attribute, one place
for each value of any other. The rows of a Hadamard matrix over these places, with
random signs, are dealt into groups of s; a record is measured by the rows of one group,
drawn at random. Over all groups the transpose is the inverse, so `decode` is unbiased
for all records, and the error of a value's share decreases with epsilon and with the
number of records.

`form=paper` is the paper's algorithm 1 on the d x n matrix instead: a record is the vector
of its d codes, s rows of a random matrix measure it, and matching pursuit decodes each
record alone. Without noise it recovers records that are sparse in the dictionary exactly.
With noise calibrated to whole records the measurements of one record carry almost nothing,
and the shares of values are biased.

Few rows mean little noise (the sensitivity grows with s) but leave much unmeasured;
`best_rows` minimises the sum, from public figures.

Reference: Zheng et al. 2020, algorithm 1 and section IV-A (their d x n matrix, column
by column); the Hadamard rows: Ailon, Chazelle, "The fast Johnson-Lindenstrauss
transform", 2009.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Literal, get_args, get_type_hints

import numpy as np
from scipy.linalg import hadamard

from dither.central.noise import ByteSource, achieved_epsilon, add_noise, calibrate
from dither.central.sensing import check_tau, rows_for
from dither.central.sensing import sensing as draw_sensing
from dither.central.sparse import dictionary, matching_pursuit
from dither.checks import check_choice, check_whole_or_none
from dither.errors import ParameterError
from dither.fit import apportion, norm_sub
from dither.mechanisms import check_epsilon
from dither.types import Codes, Floats, Integers

EXACT_CORNERS = 2**16
MAX_PLACES = 4096
# A residual below this share of the measurement is rounding error.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class RecordParameters:
    """Parameters of the record form.

    Attributes:
        tau: Compression ratio of one record, from public figures unless given.
        form: "linear", or "paper" for algorithm 1.
        measurement: The matrix of algorithm 1.
        dictionary: The dictionary of algorithm 1.
        sparsity: Atoms of a record in algorithm 1; None for a quarter of the rows.
    """

    tau: float | None = None
    form: Literal["linear", "paper"] = "linear"
    measurement: Literal["gaussian", "bernoulli", "hadamard", "fourier"] = "gaussian"
    dictionary: Literal["dct", "haar", "walsh", "identity", "dct+haar"] = "dct"
    sparsity: int | None = None

    def __post_init__(self) -> None:
        if self.tau is not None:
            check_tau(self.tau)
        for name in ("form", "measurement", "dictionary"):
            check_choice(name, getattr(self, name), get_args(get_type_hints(type(self))[name]))
        check_whole_or_none("sparsity", self.sparsity, 1)


@dataclass(frozen=True)
class NoisyRecords:
    """Rows of codes within their domains, unbiased shares by attribute, and the epsilon spent."""

    codes: Codes
    shares: tuple[Floats, ...]
    epsilon: float
    sensitivity: int
    exact: bool
    rows: int


@dataclass(frozen=True)
class Places:
    """Places of each attribute's values in a record's vector; a yes-or-no attribute has one."""

    sizes: tuple[int, ...]

    @property
    def widths(self) -> list[int]:
        """How many places each attribute has."""
        return [1 if size == 2 else size for size in self.sizes]

    @property
    def starts(self) -> list[int]:
        """The first place of each attribute."""
        return [0, *np.cumsum(self.widths)[:-1].tolist()]

    @property
    def count(self) -> int:
        """All places."""
        return sum(self.widths)

    @property
    def order(self) -> int:
        """The order of the Hadamard matrix: the next power of two."""
        return 1 << max(0, self.count - 1).bit_length()

    def measured(self, codes: Codes, matrix: Integers) -> Integers:
        """The measurements of records by some rows, exactly: records by rows."""
        out = np.zeros((len(codes), matrix.shape[0]), dtype=np.int64)
        for j, (start, size) in enumerate(zip(self.starts, self.sizes, strict=True)):
            out += self.columns(matrix, start, size)[codes[:, j]]
        return out

    @staticmethod
    def columns(matrix: Integers, start: int, size: int) -> Integers:
        """The contribution of each value of an attribute to the measurements: values by rows."""
        if size == 2:
            return np.stack([np.zeros_like(matrix[:, start]), matrix[:, start]])
        return matrix[:, start : start + size].T


def sensitivity(matrix: Integers, places: Places) -> tuple[int, bool]:
    """The largest L1 distance of the measurements of two records, and whether it is exact.

    The distance is convex in the difference of two records, so its maximum is where
    every attribute differs. All such differences are tried where they are few;
    otherwise the smaller of two bounds is given: the sum over attributes, and
    sqrt(rows) times the Euclidean length, which no part of a Hadamard matrix stretches
    by more than sqrt(order).
    """
    moves = []
    for start, size in zip(places.starts, places.sizes, strict=True):
        values = places.columns(matrix, start, size)
        pairs = [(a, b) for a, b in product(range(size), repeat=2) if a != b]
        moves.append(
            np.stack([values[a] - values[b] for a, b in pairs])
            if pairs
            else np.zeros((1, matrix.shape[0]), dtype=np.int64)
        )
    if math.prod(len(options) for options in moves) <= EXACT_CORNERS:
        sums = np.zeros((1, matrix.shape[0]), dtype=np.int64)
        for options in moves:
            sums = (sums[:, None, :] + options[None, :, :]).reshape(-1, matrix.shape[0])
        return int(np.abs(sums).sum(axis=1).max()), True
    added = sum(int(np.abs(options).sum(axis=1).max()) for options in moves)
    squares = sum(1 if size == 2 else 2 for size in places.sizes if size > 1)
    return min(added, math.isqrt(matrix.shape[0] * places.order * squares)), False


def best_rows(places: Places, epsilon: float) -> int:
    """The number of rows that measure one record: a power of two, from public figures.

    The variance of a decoded place is that of the noise, 2 (sensitivity / epsilon)^2 /
    s, and of the unmeasured part, about d (1 - s / order) / s for d attributes.
    """
    d, order = len(places.sizes), places.order
    moved = sum(1 if size == 2 else 2 for size in places.sizes if size > 1)
    best, least = order, math.inf
    for power in range(order.bit_length()):
        rows = 1 << power
        reach = min(rows * moved, math.sqrt(rows * order * moved))
        variance = (2 * (reach / epsilon) ** 2 + d * (1 - rows / order)) / rows
        if variance < least:
            best, least = rows, variance
    return best


def release_records(
    codes: Codes,
    cardinalities: Sequence[int],
    epsilon: float,
    source: ByteSource,
    rng: np.random.Generator,
    parameters: RecordParameters,
) -> NoisyRecords:
    """Measure, noise and decode every record.

    `rng` is public: it draws the signs, the groups of rows, and each record's group.
    """
    check_epsilon(epsilon)
    places = Places(tuple(int(k) for k in cardinalities))
    if (
        len(places.sizes) != codes.shape[1]
        or (codes < 0).any()
        or (codes >= np.asarray(places.sizes)).any()
    ):
        raise ParameterError("codes do not lie in the domains given", where="codes")
    if places.count > MAX_PLACES:
        raise ParameterError(
            f"the columns have {places.count:,} values, more than the {MAX_PLACES:,} that fit; name fewer columns or use "
            "coarser bins",
            where="columns",
            value=places.count,
        )
    if parameters.form == "paper":
        return _published_form(codes, places.sizes, epsilon, source, rng, parameters)
    order = places.order
    rows = (
        best_rows(places, epsilon)
        if parameters.tau is None
        else _power_of_two(parameters.tau * order)
    )
    mixing = hadamard(order, dtype=np.int64)[rng.permutation(order), : places.count]
    mixing *= rng.integers(0, 2, places.count, dtype=np.int64) * 2 - 1
    groups = mixing.reshape(-1, rows, places.count)
    found = [sensitivity(group, places) for group in groups]
    reach, exact = max(one for one, _ in found), all(exactly for _, exactly in found)
    scale = calibrate(max(reach, 1), epsilon)
    dealt = rng.permutation(np.arange(len(codes)) % len(groups))
    noisy = np.zeros((len(codes), rows), dtype=np.int64)
    for which, group in enumerate(groups):
        noisy[dealt == which] = places.measured(codes[dealt == which], group)
    noisy = add_noise(noisy, scale, source)
    decoded, shares = np.empty_like(codes), []
    for j, (start, size) in enumerate(zip(places.starts, places.sizes, strict=True)):
        scores = decode(noisy, groups, dealt, start, size)
        shares.append(scores.mean(axis=0) if len(codes) else np.full(size, 1 / size))
        decoded[:, j] = fill(scores, apportion(len(codes), norm_sub(shares[-1])))
    return NoisyRecords(decoded, tuple(shares), achieved_epsilon(reach, scale), reach, exact, rows)


def _published_form(
    codes: Codes,
    sizes: Sequence[int],
    epsilon: float,
    source: ByteSource,
    rng: np.random.Generator,
    parameters: RecordParameters,
) -> NoisyRecords:
    """Algorithm 1 of Zheng et al. 2020: the rows of `codes` are the columns of their matrix D."""
    drawn = record_sensing(len(sizes), parameters, rng)
    reach, exact = code_sensitivity(drawn.matrix, sizes)
    scale = calibrate(max(reach, 1), epsilon)
    noisy = add_noise(codes.astype(np.int64) @ drawn.matrix.T.astype(np.int64), scale, source)
    found = drawn.decode(noisy.astype(np.float64))
    decoded = np.rint(found).clip(0, np.asarray(sizes) - 1).astype(codes.dtype)
    shares = []
    for j, size in enumerate(sizes):
        counts = np.bincount(decoded[:, j], minlength=size)
        shares.append(counts / len(codes) if len(codes) else np.full(size, 1 / size))
    return NoisyRecords(
        decoded,
        tuple(shares),
        achieved_epsilon(reach, scale),
        reach,
        exact,
        drawn.matrix.shape[0],
    )


@dataclass(frozen=True)
class RecordSensing:
    """The measurement matrix of algorithm 1, s by d, with its dictionary and number of atoms."""

    matrix: Integers
    atoms: Floats
    sparsity: int

    def decode(self, measured: Floats) -> Floats:
        """Records by attributes: D* = Phi X*, X* by orthogonal matching pursuit."""
        sensing = self.matrix @ self.atoms
        lengths = np.linalg.norm(sensing, axis=0)
        lengths[lengths == 0] = 1.0
        coefficients = np.zeros((len(measured), len(lengths)))
        for record, observed in enumerate(measured):
            picked, values = matching_pursuit(
                observed,
                lambda atom: sensing[:, atom],
                lambda residual: residual @ sensing,
                atoms=self.sparsity,
                stop=_ROUNDING * float(np.linalg.norm(observed)),
                norms=lengths,
            )
            coefficients[record, picked] = values
        return np.asarray(coefficients @ self.atoms.T)


def record_sensing(
    attributes: int, parameters: RecordParameters, rng: np.random.Generator
) -> RecordSensing:
    """Draw the matrix of algorithm 1 for records of some attributes, from public randomness."""
    rows = rows_for(parameters.tau if parameters.tau is not None else 1.0, attributes)
    drawn = draw_sensing(parameters.measurement, rows, attributes, rng)
    columns = np.eye(attributes, dtype=np.int64)
    matrix = np.stack([drawn.apply(column) for column in columns], axis=1)
    basis = dictionary(parameters.dictionary)
    size = attributes
    if basis.power_of_two:
        size = 1 << (attributes - 1).bit_length()
    atoms = basis.synthesise(np.eye(basis.atoms(size))).T[:attributes]
    sparsity = parameters.sparsity or max(1, rows // 4)
    return RecordSensing(matrix, np.asarray(atoms, np.float64), min(sparsity, rows))


def code_sensitivity(matrix: Integers, sizes: Sequence[int]) -> tuple[int, bool]:
    """The largest L1 distance of the measured codes of two records, and whether it is exact.

    The distance is convex in the difference of the codes, so its maximum is where every code
    moves across its whole domain. All signs are tried where they are few; otherwise the sum
    over attributes is given, a bound.
    """
    moves = matrix * (np.asarray(sizes, dtype=np.int64) - 1)
    if 2 ** (len(sizes) - 1) > EXACT_CORNERS:
        return int(np.abs(moves).sum()), False
    # A difference and its opposite have one distance, so the first sign is fixed.
    sums = moves[:, :1].T
    for j in range(1, len(sizes)):
        sums = np.concatenate([sums + moves[:, j], sums - moves[:, j]])
    return int(np.abs(sums).sum(axis=1).max()), True


def _power_of_two(rows: float) -> int:
    return 1 << max(0, round(math.log2(max(1.0, rows))))


def decode(noisy: Integers, groups: Integers, dealt: Integers, start: int, size: int) -> Floats:
    """Unbiased scores of an attribute's values, records by values: the transpose over the number of rows."""
    rows = noisy.shape[1]
    width = 1 if size == 2 else size
    scores = np.empty((len(noisy), width))
    for which, group in enumerate(groups):
        mine = dealt == which
        scores[mine] = noisy[mine] @ group[:, start : start + width] / rows
    return np.concatenate([1 - scores, scores], axis=1) if size == 2 else scores


def fill(scores: Floats, counts: Integers) -> Integers:
    """A value for each row: each value as often as its share, to the rows with the highest scores.

    So the rows have the shares that were estimated from all of them, and keep their own
    information. Rounding each row alone would shrink all shares towards the middle,
    more so with noisier rows.
    """
    out = np.zeros(len(scores), dtype=np.int64)
    waiting = np.arange(len(scores))
    # Rare values first: they take few rows and leave the others to more common values.
    for value in np.argsort(counts, kind="stable"):
        lead = scores[waiting, value] - (
            scores[waiting].sum(axis=1) - scores[waiting, value]
        ) / max(1, len(counts) - 1)
        taken = np.argsort(-lead, kind="stable")[: counts[value]]
        out[waiting[taken]] = value
        waiting = np.delete(waiting, taken)
    return out
