"""A server may announce any parameters that can be built: what a device computes from them must be the true epsilon.

The truth is brute force: the exact law of every report under every value, and the largest ratio of two of them. It is held
against the claim for all constructible parameters, not only for those that our own designs choose.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import fields
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from dither.errors import DitherError, ParameterError, PrivacyError
from dither.mechanisms import (
    DRAW_WIDTHS,
    GRR,
    MECHANISMS,
    BloomRappor,
    Duchi,
    DuchiVector,
    Hadamard,
    Hybrid,
    LocalHash,
    MultiMean,
    SetStrategy,
    SquareWave,
    SubsetSelection,
    Unary,
    Window,
    log_up,
    mechanism_from_json,
    oue,
    sue,
)
from dither.mechanisms.subset import circle, order_probability
from dither.reports import Plan, Question

Law = dict[Any, Fraction]
MANY = settings(max_examples=150, deadline=None, derandomize=True)
COARSE = 8  # bits of a draw, so that rounding matters and every draw can be tried


def true_epsilon(laws: Sequence[Law]) -> Decimal:
    """ln of the largest ratio of one report's probabilities under two values, to 50 digits."""
    worst = Fraction(1)
    for first, second in itertools.permutations(laws, 2):
        for report, chance in first.items():
            if chance:
                other = second.get(report, Fraction(0))
                if not other:
                    return Decimal("Infinity")
                worst = max(worst, chance / other)
    with localcontext() as context:
        context.prec = 60
        return (Decimal(worst.numerator) / Decimal(worst.denominator)).ln()


def check_claim(claimed: float, laws: Sequence[Law], slack: str = "1e-9") -> None:
    """The claim is the truth, at most a hair above it and never below."""
    assert all(sum(law.values()) == 1 for law in laws)
    truth = true_epsilon(laws)
    assert Decimal(claimed) >= truth - Decimal("1e-50"), f"claimed {claimed}, true {truth}"
    assert Decimal(claimed) <= truth + Decimal(slack), f"claimed {claimed}, true {truth}"


def laws_of(built: Any) -> list[Law]:
    return [built.law(value) for value in range(built.cells)]


def numbers(*names: str) -> st.SearchStrategy[dict[str, int]]:
    """Whole numbers for these fields: small, around the draws' ends, and anything between."""
    ends = [2**b + d for b in (3, 7, 8, 16, 24, 32) for d in (-1, 0, 1)]
    number = st.one_of(st.integers(-1, 12), st.integers(0, 300), st.sampled_from(ends))
    width = st.sampled_from([COARSE, COARSE, 16, 32, 48, 12, 0, 64])
    return st.fixed_dictionaries(dict.fromkeys(names, number) | {"threshold_bits": width})


# The whole numbers of every mechanism that has nothing else; strategies have lists, and a test of their own below.
FIELDS = {
    name: tuple(
        f.name for f in fields(kind.cls) if f.name not in ("name", "cells", "threshold_bits")
    )
    for name, kind in MECHANISMS.items()
    if name != "strategy"
}
MAX_CELLS = {"subset": 5, "sue": 6, "oue": 6, "bloom": 6}


@pytest.mark.slow
@pytest.mark.parametrize("name", FIELDS)
@MANY
@given(data=st.data())
def test_whatever_can_be_announced_is_refused_or_costs_what_it_says(
    name: str, data: st.DataObject
) -> None:
    cells = data.draw(st.integers(0, MAX_CELLS.get(name, 20)), "cells")
    announced = {"name": name, "cells": cells} | data.draw(numbers(*FIELDS[name]), "fields")
    try:
        built = mechanism_from_json(announced)
    except DitherError:
        return
    assume(not isinstance(built, BloomRappor) or built.bits <= 12)
    try:
        claimed = built.epsilon
    except (
        ParameterError
    ):  # Bloom filters that are all the same: nothing could be learnt, and nothing is answered
        assert isinstance(built, BloomRappor)
        assert len(set(built.filters)) == 1
        return
    check_claim(claimed, laws_of(built))


@pytest.mark.slow
@pytest.mark.parametrize(
    "build",
    [
        lambda other: GRR(4, other, COARSE),
        lambda other: LocalHash(9, 4, other, COARSE),
        lambda other: Unary("sue", 4, 256 - other, other, COARSE),
        lambda other: Unary("oue", 3, 128, other, COARSE),
        lambda missing: SubsetSelection(5, 1, missing, COARSE),
        lambda missing: SubsetSelection(5, 3, missing, COARSE),
        lambda missing: SubsetSelection(5, 4, missing, COARSE),
        lambda missing: SubsetSelection(4, 3, missing, COARSE),
        lambda flipped: BloomRappor(5, 6, 2, flipped, 1, COARSE),
        lambda flipped: BloomRappor(4, 5, 4, flipped, 2, COARSE),
        lambda flip: Hadamard(6, 2, flip, COARSE),
    ],
)
def test_every_threshold_of_a_coarse_draw(build: Any) -> None:
    built = 0
    for threshold in range(-1, 258):
        try:
            mechanism = build(threshold)
        except DitherError:
            continue
        check_claim(mechanism.epsilon, laws_of(mechanism))
        built += 1
    assert built >= 20


@pytest.mark.slow
@settings(max_examples=40, deadline=None, derandomize=True)
@given(epsilon=st.floats(0.01, 12), cells=st.integers(2, 5), width=st.sampled_from([32, 48]))
def test_our_own_designs_keep_what_was_asked_and_claim_no_more_than_the_truth(
    epsilon: float, cells: int, width: int
) -> None:
    designs = [
        GRR.for_epsilon(cells, epsilon, width),
        sue(cells, epsilon, width),
        oue(cells, epsilon, width),
        LocalHash.for_epsilon(cells, min(epsilon, 8), threshold_bits=width),
        SubsetSelection.for_epsilon(cells, epsilon, threshold_bits=width),
        BloomRappor.for_epsilon(cells, epsilon, 8, 2, threshold_bits=width),
        Hadamard.for_epsilon(cells, cells, epsilon, width),
        SquareWave.for_epsilon(cells, epsilon, width),
        SetStrategy.for_epsilon(4, [3, 5, 9], [0.02, 0.03, 0.01], min(epsilon, 2), width),
    ]
    for built in designs:
        assert built.epsilon <= epsilon
        check_claim(built.epsilon, laws_of(built))


# The law is that of the reports really made.


def reports_of(built: Any, value: int, prefix: bytes = b"") -> Law:
    """Every last draw of a coarse build through the real `randomise`, after these bytes."""
    count: Counter[bytes] = Counter()
    for draw in range(256):
        data = prefix + bytes([draw])
        count[built.randomise(value, lambda _n, data=data: data)] += 1
    return {report: Fraction(c, 256) for report, c in count.items()}


def mixed(laws: Iterable[Law]) -> Law:
    listed = list(laws)
    out: Counter[Any] = Counter()
    for law in listed:
        for report, chance in law.items():
            out[report] += chance / len(listed)
    return dict(out)


@pytest.mark.parametrize("other", [1, 17, 60])
def test_the_law_of_randomised_response_and_hashing_is_that_of_every_draw(other: int) -> None:
    response, hashing = GRR(4, other, COARSE), LocalHash(9, 4, other, COARSE)
    for value in range(4):
        assert response.law(value) == reports_of(response, value)
    for a, b in ((5 << 28, 0), (2**32 // 9, 0), (123456789, 987654321)):
        for value in range(9):
            shown = a.to_bytes(4, "little") + b.to_bytes(4, "little")
            law = {
                n.to_bytes(9, "little"): chance
                for n, chance in hashing.probabilities(value, a, b).items()
            }
            assert law == reports_of(hashing, value, shown)


def test_the_law_of_coefficients_is_that_of_every_draw() -> None:
    built = Hadamard(6, 2, 77, COARSE)
    for value in range(6):
        assert built.law(value) == mixed(
            reports_of(built, value, bytes([index])) for index in range(8)
        )


@pytest.mark.parametrize(
    "built", [Unary("sue", 2, 200, 31, COARSE), BloomRappor(3, 2, 1, 90, 4, COARSE)]
)
def test_the_law_of_bits_is_that_of_every_pair_of_draws(built: Any) -> None:
    for value in range(built.cells):
        assert built.law(value) == mixed(
            reports_of(built, value, bytes([first])) for first in range(256)
        )


@pytest.mark.parametrize(("size", "missing"), [(1, 20), (2, 33), (3, 41), (3, 5)])
def test_the_law_of_subsets_is_that_of_every_draw_in_every_order(size: int, missing: int) -> None:
    built = SubsetSelection(4, size, missing, COARSE)
    for value in range(4):
        law: Counter[bytes] = Counter()
        for order in itertools.permutations(range(4)):
            keys = b"".join(order.index(cell).to_bytes(8, "little") for cell in range(4))
            for report, chance in reports_of(built, value, keys).items():
                law[report] += chance * order_probability(order)
        assert built.law(value) == dict(law)


@pytest.mark.parametrize(("cells", "keys"), [(2, 3), (3, 4), (4, 5), (4, 2)])
def test_orders_of_tied_keys_are_as_likely_as_stated(cells: int, keys: int) -> None:
    found = Counter(tuple(circle(drawn)) for drawn in itertools.product(range(keys), repeat=cells))
    for order in itertools.permutations(range(cells)):
        assert Fraction(found[order], keys**cells) == order_probability(order, keys)


# The attack: plans that claimed less than they took.


class FloorsCovering(SubsetSelection):
    """The claim as it was: what division leaves over was given to the arcs that miss the value, and not counted."""

    def __post_init__(self) -> None:
        if not 1 <= self.missing < self.covering:
            raise PrivacyError("refused")

    @property
    def epsilon(self) -> float:  # type: ignore[override]
        return log_up(Fraction(self.covering, self.missing))


def sets_law(built: SubsetSelection, value: int) -> Law:
    """Every set's probability if all orders were equally likely."""
    law = {}
    for chosen in itertools.combinations(range(built.cells), built.size):
        holds = value in chosen
        draws = built.size * built.covering if holds else built.left
        alike = math.comb(built.cells - 1, built.size - 1 if holds else built.size)
        law[chosen] = Fraction(draws, 2**built.threshold_bits * alike)
    return law


def test_coarse_draws_with_large_sets_are_refused_where_the_claim_was_false() -> None:
    was = FloorsCovering(10, 9, 24, COARSE)
    laws = [sets_law(was, value) for value in range(10)]
    assert was.epsilon == pytest.approx(0.041, abs=1e-3)
    assert float(true_epsilon(laws)) == pytest.approx(0.215, abs=1e-3)
    with pytest.raises(AssertionError, match="claimed"):
        check_claim(was.epsilon, laws)
    for cells, size, missing, bits in ((10, 9, 24, 8), (21_952, 21_951, 1, 16)):
        with pytest.raises(PrivacyError):
            SubsetSelection(cells, size, missing, bits)


@MANY
@given(cells=st.integers(2, 9), data=st.data())
@example(cells=9, data=None)
def test_subsets_of_more_cells_than_can_be_ordered(cells: int, data: st.DataObject | None) -> None:
    size = cells - 1 if data is None else data.draw(st.integers(1, cells - 1))
    missing = 26 if data is None else data.draw(st.integers(1, 256 // (cells - size)))
    try:
        built = SubsetSelection(cells, size, missing, COARSE)
    except PrivacyError:
        return
    check_claim(built.epsilon, [sets_law(built, value) for value in range(cells)])


@pytest.mark.parametrize("bits", [-8, 0, 1, 4, 7, 9, 12, 31, 33, 56, 64])
def test_draws_that_are_not_drawn_whole_are_refused(bits: int) -> None:
    makers = [
        lambda: GRR(2, 1, bits),
        lambda: Unary("sue", 2, 3, 1, bits),
        lambda: LocalHash(2, 2, 1, bits),
        lambda: SubsetSelection(3, 1, 1, bits),
        lambda: BloomRappor(2, 4, 1, 1, 0, bits),
        lambda: Hadamard(2, 2, 1, bits),
        lambda: Window(2, 1, 1, bits),
        lambda: Duchi(3, 1, bits),
        lambda: SetStrategy(2, (1,), (2,), (1,), (1, 1), bits),
    ]
    assert bits not in DRAW_WIDTHS
    for make in makers:
        with pytest.raises(ParameterError, match="bits"):
            make()


# Numbers: windows, means, strategies.


@MANY
@given(levels=st.integers(0, 7), width=st.integers(0, 7), base=st.integers(-1, 260))
def test_windows(levels: int, width: int, base: int) -> None:
    try:
        window = Window(levels, width, base, COARSE)
    except DitherError:
        return
    wave = SquareWave(levels, width, base, COARSE)
    laws = laws_of(wave)
    check_claim(wave.epsilon, laws)
    for level in range(levels):
        found = Counter(window.output(level, draw) for draw in range(256))
        assert {o.to_bytes(1, "little"): Fraction(c, 256) for o, c in found.items()} == laws[level]


def level_laws(built: Any) -> list[Law]:
    return [
        built.law(levels)
        for levels in itertools.product(range(built.levels), repeat=built.attributes)
    ]


@MANY
@given(
    levels=st.integers(0, 7),
    step=st.integers(-1, 260),
    coin=st.integers(-1, 257),
    width=st.integers(1, 5),
)
def test_grids_of_means(levels: int, step: int, coin: int, width: int) -> None:
    try:
        duchi = Duchi(levels, step, COARSE)
    except DitherError:
        return
    check_claim(duchi.epsilon, level_laws(duchi))
    try:
        hybrid = Hybrid(levels, width, max(1, step), step, coin, COARSE)
    except DitherError:
        return
    check_claim(hybrid.epsilon, level_laws(hybrid))
    several = MultiMean(3, 2, hybrid)
    ends = itertools.product((0, levels - 1), repeat=3)
    check_claim(several.epsilon, [several.law(record) for record in ends])


@MANY
@given(
    cells=st.integers(2, 4),
    outputs=st.lists(
        st.tuples(st.integers(-1, 16), st.integers(-2, 60), st.integers(-2, 60)), max_size=4
    ),
)
def test_strategies(cells: int, outputs: list[tuple[int, int, int]]) -> None:
    sets, high, low = (tuple(o[i] for o in outputs) for i in range(3))
    rest = tuple(
        256 - sum(h if mask >> cell & 1 else lo for mask, h, lo in outputs) for cell in range(cells)
    )  # whatever a server likes, as long as a cell's draws add up
    try:
        built = SetStrategy(cells, sets, high, low, rest, COARSE)
    except DitherError:
        return
    laws = laws_of(built)
    check_claim(built.epsilon, laws)
    assert laws[0] == reports_of(built, 0)


@MANY
@given(attributes=st.integers(1, 4), low=st.integers(-1, 300))
def test_sign_vectors(attributes: int, low: int) -> None:
    try:
        built = DuchiVector(attributes, low, COARSE)
    except DitherError:
        return
    check_claim(built.epsilon, level_laws(built))


def test_a_split_plan_costs_what_all_its_answers_take_together() -> None:
    first, second = GRR(3, 37, COARSE), Unary("oue", 3, 100, 60, COARSE)
    plan = Plan(0, (Question(("a",), first), Question(("a", "b"), second)), split=True)
    laws = [
        {
            r + s: x * y
            for (r, x), (s, y) in itertools.product(first.law(v).items(), second.law(v).items())
        }
        for v in range(3)
    ]
    check_claim(plan.epsilon, laws)


@pytest.mark.parametrize("share", [0.9, 0.999, 0.9999999])
def test_the_check_rejects_a_claim_below_the_truth(share: float) -> None:
    built = GRR(3, 37, COARSE)
    with pytest.raises(AssertionError, match="claimed"):
        check_claim(built.epsilon * share, laws_of(built))
    with pytest.raises(AssertionError, match="claimed"):
        check_claim(built.epsilon + 1e-8, laws_of(built))
