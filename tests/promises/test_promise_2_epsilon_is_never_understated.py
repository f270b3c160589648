"""Promise 2: the stated epsilon is never below the law's, for everything one device ever sends under one ticket.

Mechanisms: any parameters that can be announced are refused, or the law is enumerated from the draws themselves, by
the code that a device runs, without a look at the mechanism's own arithmetic. Plans: a device answers whatever a
collector announces, over rounds, restarts and lost uploads; the losses of all draws it made add up to no more than it
says it has spent, and than its cap.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import secrets
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, localcontext
from fractions import Fraction
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from tests.client.small_collector import CAMPAIGN, RECORD, SCHEMA, Collector, announce, participant

from dither.client import Device
from dither.errors import DitherError, PrivacyError
from dither.mechanisms import (
    GRR,
    MEANS,
    MECHANISMS,
    BitMechanism,
    Mechanism,
    Unary,
    mean_from_json,
    mechanism,
    mechanism_from_json,
)
from dither.reports import Plan, Question, decode

QUICK = settings(
    max_examples=12, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)
MANY = settings(QUICK, max_examples=50)
BITS = 8  # of a draw, so that every draw can be tried


def logarithm(ratio: Fraction) -> Decimal:
    """ln of a ratio to 50 digits."""
    with localcontext() as context:
        context.prec = 60
        return (Decimal(ratio.numerator) / Decimal(ratio.denominator)).ln()


def check_stated(stated: float, worst: Fraction) -> None:
    truth = logarithm(worst)
    assert Decimal(stated) >= truth - Decimal("1e-45"), f"states {stated}, gives away {truth}"


# Mechanisms: the law from every draw.


@dataclass(frozen=True)
class Layout:
    """How a report comes from its random bytes: a beginning, then for each part some fixed bytes and one that is tried.

    Where the beginning does not show in the report, the law is the mean over all beginnings.
    """

    beginnings: Sequence[bytes] = (b"",)
    lead: bytes = b""
    parts: int = 1
    split: Callable[[bytes], Sequence[object]] = lambda report: (report,)
    hidden: bool = False


def reports_law(built: Any, value: Any, layout: Layout, beginning: bytes) -> list[Counter[object]]:
    """How many of 256 draws lead to each outcome of each part; parts must depend on no bytes but their own."""

    def parts_of(draws: Sequence[int]) -> Sequence[object]:
        data = beginning + b"".join(layout.lead + bytes([draw]) for draw in draws)
        return layout.split(built.randomise(value, lambda count: data[:count]))

    tables = []
    for part in range(layout.parts):
        quiet = [
            [draw * (place == part) for place in range(layout.parts)] for draw in range(2**BITS)
        ]
        tables.append([parts_of(draws)[part] for draws in quiet])
    for draws in (
        list(secrets.token_bytes(layout.parts)) for _ in range(8 if layout.parts > 1 else 0)
    ):
        assert list(parts_of(draws)) == [
            table[draw] for table, draw in zip(tables, draws, strict=True)
        ]
    return [Counter(table) for table in tables]


def worst_ratio(built: Any, inputs: Sequence[Any], layout: Layout) -> Fraction:
    """The largest ratio of one report's probabilities under two inputs; infinite ratios are an error."""
    worst = Fraction(1)
    laws = [
        [reports_law(built, value, layout, start) for start in layout.beginnings]
        for value in inputs
    ]
    if layout.hidden:
        laws = [[[sum((law[0] for law in of), Counter())]] for of in laws]
    for first, second in itertools.permutations(laws, 2):
        for mine, theirs in zip(first, second, strict=True):
            ratio = Fraction(1)
            for a, b in zip(mine, theirs, strict=True):
                assert set(a) <= set(b), "an outcome that another input never gives"
                ratio *= max(Fraction(a[outcome], b[outcome]) for outcome in a)
            worst = max(worst, ratio)
    return worst


def bits_of(count: int) -> Callable[[bytes], list[int]]:
    return lambda report: [int.from_bytes(report, "little") >> bit & 1 for bit in range(count)]


def layout_of(built: Any) -> Layout:
    """How this mechanism lays out its random bytes."""
    if isinstance(built, BitMechanism):
        return Layout(parts=built.report_bits, split=bits_of(built.report_bits))
    if built.name == "olh":  # the hash function shows in the report
        return Layout(
            beginnings=[
                bytes(8),
                bytes([1, 2, 3, 77, 5, 6, 7, 8]),
                bytes([0, 0, 0, 64, 0, 0, 0, 0]),
            ]
        )
    if built.name == "hadamard":  # so does the coefficient
        return Layout(beginnings=[bytes([index]) for index in range(2**built.bits)])
    if built.name == "subset":
        orders = itertools.permutations(range(built.cells))
        return Layout(beginnings=[keys(order) for order in orders], hidden=True)
    if built.name == "hybrid":  # whether the coin chose the window or the line shows in the report
        return Layout(beginnings=[bytes([0, 0]), bytes([0, 255])])
    if built.name == "duchi-vector":
        return Layout(beginnings=[bytes(4 * built.attributes)])
    if built.name == "several-means":  # which attributes are asked shows in the report
        width = 1 + built.grid.report_bytes
        orders = itertools.permutations(range(built.attributes))
        return Layout(
            beginnings=[keys(order) for order in orders],
            lead=bytes(1),
            parts=built.asked,
            split=lambda report: [report[i : i + width] for i in range(0, len(report), width)],
        )
    return Layout(lead=bytes(1)) if built.name in MEANS else Layout()


def keys(order: Sequence[int]) -> bytes:
    """Sort keys that put cells into this order."""
    return b"".join(bytes([place, *bytes(6), place]) for place in order)


def inputs_of(built: Any) -> list[Any]:
    """Every cell, or the ends of every attribute's numbers and, for a single one, all levels."""
    if isinstance(built, Mechanism):
        return list(range(built.cells))
    if built.attributes > 1:
        return [list(record) for record in itertools.product((-1.0, 1.0), repeat=built.attributes)]
    return [[2 * level / (built.levels - 1) - 1] for level in range(built.levels)]


small, draws = st.integers(2, 5), st.integers(0, 2**BITS)
FIELDS: dict[str, dict[str, st.SearchStrategy[Any]]] = {
    "grr": {"cells": small, "other": draws},
    "sue": {"cells": st.integers(2, 4), "true_set": draws, "other_set": draws},
    "oue": {"cells": st.integers(2, 4), "true_set": draws, "other_set": draws},
    "olh": {"cells": small, "buckets": small, "other": draws},
    "subset": {
        "cells": st.integers(2, 4),
        "size": st.integers(1, 3),
        "missing": st.integers(0, 90),
    },
    "bloom": {
        "cells": st.integers(2, 3),
        "bits": st.integers(2, 5),
        "hashes": st.integers(1, 3),
        "flipped": st.integers(0, 130),
        "seed": st.integers(0, 9),
    },
    "hadamard": {
        "cells": st.just(4),
        "columns": st.sampled_from([1, 2, 4]),
        "flip": st.integers(0, 130),
    },
    "square-wave": {"cells": small, "width": st.integers(1, 5), "base": st.integers(0, 80)},
    "duchi": {"levels": st.sampled_from([3, 5]), "step": st.integers(0, 90)},
    "piecewise": {
        "levels": st.sampled_from([3, 5]),
        "width": st.integers(1, 5),
        "base": st.integers(0, 60),
    },
    "hybrid": {
        "levels": st.sampled_from([3, 5]),
        "width": st.integers(1, 4),
        "base": st.integers(0, 60),
        "step": st.integers(0, 80),
        "coin": st.integers(1, 255),
    },
    "duchi-vector": {"attributes": st.integers(1, 3), "low": st.integers(0, 64)},
}


@st.composite
def announced(draw: st.DrawFn, name: str) -> dict[str, Any]:
    """The numbers of a mechanism as a server could announce them, most of them drawable."""
    if name == "several-means":
        grid = {
            "name": "duchi",
            "levels": 3,
            "step": draw(st.integers(1, 120)),
            "threshold_bits": BITS,
        }
        return {
            "name": name,
            "attributes": draw(st.integers(1, 3)),
            "asked": draw(st.integers(1, 2)),
            "grid": grid,
        }
    if name == "strategy":
        cells = draw(st.integers(2, 4))
        outputs = draw(
            st.lists(
                st.tuples(st.integers(1, 15), st.integers(1, 60), st.integers(1, 60)), max_size=3
            )
        )
        sums = [
            sum(high if mask >> cell & 1 else low for mask, high, low in outputs)
            for cell in range(cells)
        ]
        lists = {
            "sets": [format(mask, "x") for mask, _, _ in outputs],
            "rest": [2**BITS - used for used in sums],
        }
        high, low = [high for _, high, _ in outputs], [low for _, _, low in outputs]
        return {
            "name": name,
            "cells": cells,
            **lists,
            "high": high,
            "low": low,
            "threshold_bits": BITS,
        }
    return {"name": name, **draw(st.fixed_dictionaries(FIELDS[name])), "threshold_bits": BITS}


def check_announced(name: str, data: st.DataObject) -> None:
    numbers = data.draw(announced(name))
    try:
        built = (mechanism_from_json if name in MECHANISMS else mean_from_json)(numbers)
        stated = built.epsilon
    except DitherError:
        assume(False)
    check_stated(stated, worst_ratio(built, inputs_of(built), layout_of(built)))


def test_the_registry_is_covered() -> None:
    assert set(FIELDS) | {"strategy", "several-means"} == set(MECHANISMS) | set(MEANS)


@pytest.mark.parametrize("name", ["grr", "olh", "square-wave", "strategy", "duchi", "duchi-vector"])
@QUICK
@given(data=st.data())
def test_whatever_is_announced_costs_no_more_than_is_stated(name: str, data: st.DataObject) -> None:
    check_announced(name, data)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*MECHANISMS, *MEANS])
@MANY
@given(data=st.data())
def test_whatever_is_announced_costs_no_more_than_is_stated_at_length(
    name: str, data: st.DataObject
) -> None:
    check_announced(name, data)


@pytest.mark.parametrize("share", [0.99, 0.999999])
@pytest.mark.parametrize(
    "built", [GRR(3, 37, BITS), Unary("sue", 3, 200, 31, BITS)], ids=["grr", "sue"]
)
def test_a_stated_epsilon_below_the_law_is_noticed(built: Mechanism, share: float) -> None:
    worst = worst_ratio(built, inputs_of(built), layout_of(built))
    check_stated(built.epsilon, worst)
    with pytest.raises(AssertionError, match="states"):
        check_stated(built.epsilon * share, worst)


# Plans: everything that a device sends under one token.


@dataclass(frozen=True)
class Visit:
    """What a collector announces at one visit, and what happens to the device and to its uploads."""

    round: int
    asked: tuple[tuple[str, str, float], ...]  # attribute, mechanism, epsilon
    split: bool
    start: float
    population: float
    restart: bool
    answers: tuple[int | None, ...]


def plans() -> st.SearchStrategy[Visit]:
    question = st.tuples(
        st.sampled_from(SCHEMA.names),
        st.sampled_from(["grr", "oue", "olh"]),
        st.sampled_from([0.3, 0.5, 0.9]),
    )
    return st.builds(
        Visit,
        round=st.integers(0, 3),
        asked=st.lists(question, min_size=1, max_size=3, unique_by=lambda q: q[0]).map(tuple),
        split=st.booleans(),
        start=st.sampled_from([0.0, 0.0, 0.5]),
        population=st.sampled_from([1.0, 0.5]),
        restart=st.booleans(),
        answers=st.lists(st.sampled_from([None, 201, 503]), max_size=3).map(tuple),
    )


@dataclass
class Watched:
    """The losses of all draws that a device's mechanisms made, and the uploads of every round."""

    ratios: list[Fraction] = field(default_factory=list)
    bodies: dict[int, set[bytes]] = field(default_factory=dict)


@contextlib.contextmanager
def watching() -> Iterator[Watched]:
    """Note every draw; its loss is the largest ratio in the written-out law, not the mechanism's own figure."""
    watched, randomise = Watched(), Mechanism.randomise

    def noted(self: Mechanism, value: int, source: Any) -> bytes:
        laws = [self.law(cell) for cell in range(self.cells)]
        ratios = [a[report] / b[report] for a, b in itertools.permutations(laws, 2) for report in a]
        watched.ratios.append(max(ratios))
        return randomise(self, value, source)

    with patch.object(Mechanism, "randomise", noted):
        yield watched


def plan_of(visit: Visit) -> Plan:
    questions = [
        Question((name,), mechanism(how, SCHEMA.cells([name]), each))
        for name, how, each in visit.asked
    ]
    shares = () if visit.split else (1 / len(questions),) * len(questions)
    return Plan(visit.round, tuple(questions), shares, visit.split, visit.population)


def check_device(
    path: Path, visits: Sequence[Visit], assignment: str, cap: float, kind: type[Device] = Device
) -> Watched:
    """Let a device take part at every visit; what its draws give away is stated, and within the cap."""
    device = kind(path)
    with watching() as watched:
        for visit in visits:
            if visit.restart:
                device.close()
                device = kind(path)
            collector = Collector(
                announce(plan_of(visit), epsilon=9.0, start=visit.start, assignment=assignment),
                *visit.answers,
            )
            with contextlib.suppress(
                PrivacyError
            ):  # above the cap, or a question asked in another way
                participant(device, collector, cap=cap, tries=2).take_part(RECORD)
            for body in collector.bodies:
                watched.bodies.setdefault(decode(body).round, set()).add(body)
            check_stated(device.spent(CAMPAIGN), math.prod(watched.ratios, start=Fraction(1)))
            assert device.spent(CAMPAIGN) <= cap
            assert all(len(bodies) == 1 for bodies in watched.bodies.values()), (
                "a retry sends the same bytes"
            )
    device.close()
    if assignment == "arrival":
        assert len(watched.bodies) <= 1, "one round is answered, and no other"
    return watched


CAMPAIGNS = given(
    visits=st.lists(plans(), min_size=1, max_size=5),
    assignment=st.sampled_from(["arrival", "token"]),
    cap=st.sampled_from([0.5, 1.0, 1.8, 4.0]),
)


@QUICK
@CAMPAIGNS
def test_everything_a_device_sends_costs_no_more_than_it_says(
    tmp_path_factory: pytest.TempPathFactory, visits: list[Visit], assignment: str, cap: float
) -> None:
    check_device(tmp_path_factory.mktemp("device") / "d.db", visits, assignment, cap)


@pytest.mark.slow
@MANY
@CAMPAIGNS
def test_everything_a_device_sends_costs_no_more_than_it_says_at_length(
    tmp_path_factory: pytest.TempPathFactory, visits: list[Visit], assignment: str, cap: float
) -> None:
    check_device(tmp_path_factory.mktemp("device") / "d.db", visits, assignment, cap)


VISIT = Visit(0, (("colour", "grr", 0.5), ("score", "oue", 0.9)), True, 0.0, 1.0, False, ())


def test_rounds_repeats_and_restarts_of_one_device_add_up(tmp_path: Path) -> None:
    """Two questions at once, the same again in another round (from the memo), then a third question."""
    again = Visit(1, VISIT.asked, True, 0.0, 1.0, True, (None, None))
    third = Visit(2, (("member", "grr", 0.3),), False, 0.0, 1.0, True, (503, 201))
    watched = check_device(tmp_path / "d.db", [VISIT, again, again, third, third], "token", 1.8)
    assert len(watched.ratios) == 3, "an answer that is repeated is not drawn again"
    assert len(watched.bodies) == 3


class HalvesItsBooks(Device):
    """Mutant: enters half of what an answer costs."""

    def enter(self, announcement: Any, epsilon: float, body: bytes) -> None:
        super().enter(announcement, epsilon / 2, body)


class ForgetsAnswers(Device):
    """Mutant: draws an answer that it gave before once more, and takes it for the earlier one."""

    def recall(self, campaign: str, question: Question) -> bytes | None:
        earlier = super().recall(campaign, question)
        return None if earlier is None else question.mechanism.randomise(0, self.source)


@pytest.mark.parametrize("mutant", [HalvesItsBooks, ForgetsAnswers])
def test_a_device_that_understates_its_spending_is_noticed(
    mutant: type[Device], tmp_path: Path
) -> None:
    again = Visit(1, VISIT.asked, True, 0.0, 1.0, False, ())
    with pytest.raises(AssertionError, match="states"):
        check_device(tmp_path / "d.db", [VISIT, again], "token", 4.0, mutant)
