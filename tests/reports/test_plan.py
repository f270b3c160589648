"""Who answers what: fixed by the token, shared out as the plan says, and checked before it is stored."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from functools import cache
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dither.errors import ReportError
from dither.mechanisms import oue
from dither.reports import (
    Plan,
    Question,
    check_payload,
    is_asked,
    pick,
    place,
    report_id,
    token_hash,
)

CAMPAIGN = bytes(16)
N = 4000
TOKENS = [hashlib.sha256(f"{i}".encode()).digest() for i in range(N)]


@cache
def plan(shares: tuple[float, ...], number: int = 0) -> Plan:
    return Plan(
        number, tuple(Question((f"a{i}",), oue(9, 1.0)) for i in range(len(shares))), shares
    )


def test_ids_differ_by_token_campaign_and_round_and_repeat_otherwise() -> None:
    seen = {
        report_id(t, c, r) for t in TOKENS[:20] for c in (CAMPAIGN, b"\1" * 16) for r in range(5)
    }
    assert len(seen) == 200
    assert report_id(TOKENS[0], CAMPAIGN, 3) == report_id(TOKENS[0], CAMPAIGN, 3)
    assert token_hash(TOKENS[0]) not in seen


def test_questions_come_with_their_shares() -> None:
    shares = (0.1, 0.0, 0.6, 0.3)
    picked = [pick(t, CAMPAIGN, plan(shares)) for t in TOKENS]
    for i, share in enumerate(shares):
        spread = math.sqrt(N * share * (1 - share))
        assert abs(picked.count(i) - N * share) <= 5 * spread, f"question {i}"
    assert picked == [pick(t, CAMPAIGN, plan(shares)) for t in TOKENS]
    assert picked != [pick(t, CAMPAIGN, plan(shares, 1)) for t in TOKENS], (
        "another round is another draw"
    )


def test_a_share_of_zero_is_never_picked_even_at_the_end_of_the_range() -> None:
    thirds = (1 / 3, 1 / 3, 1 / 3, 0.0)
    assert {pick(t, CAMPAIGN, plan(thirds)) for t in TOKENS} == {0, 1, 2}


def walk(point: float, shares: tuple[float, ...]) -> int:
    """The slow, obvious way: along the shares until the point is passed."""
    total, last = 0.0, 0
    for i, share in enumerate(shares):
        total += share
        if share > 0:
            last = i
            if point < total:
                return i
    return last


SHARES = st.lists(st.one_of(st.just(0.0), st.floats(1e-18, 1.0)), min_size=1, max_size=40).filter(
    any
)


@pytest.mark.slow
@given(SHARES, st.lists(st.integers(0, 2**53 - 1), max_size=20), st.booleans())
@settings(deadline=None)
def test_bisection_picks_what_a_walk_along_the_shares_picks(
    weights: list[float], points: list[int], short: bool
) -> None:
    total = sum(weights) * (1 + 5e-10 if short else 1)  # a plan's shares may end a hair before 1
    asked = plan(tuple(w / total for w in weights))
    ends = [round(end * 2**53) + step for end in asked.share_ends[0] for step in (-1, 0, 1)]
    for point in [0, 2**53 - 1, *points, *(p for p in ends if 0 <= p < 2**53)]:
        with mock.patch("dither.reports.plan._fraction", return_value=point / 2**53):
            assert pick(TOKENS[0], CAMPAIGN, asked) == walk(point / 2**53, asked.shares)


def test_a_plan_of_many_questions_is_walked_once() -> None:
    """However many people are asked, the shares are added up once."""

    class WalkCounter(tuple[float, ...]):
        walks = 0

        def __iter__(self) -> Iterator[float]:
            WalkCounter.walks += 1
            return super().__iter__()

    asked = Plan(0, plan((1.0,)).questions * 5000, WalkCounter([1 / 5000] * 5000))
    before = WalkCounter.walks
    assert len({pick(t, CAMPAIGN, asked) for t in TOKENS}) > 1000
    assert WalkCounter.walks == before + 1


def test_places_are_uniform_and_rounds_cover_everybody_once() -> None:
    places = sorted(place(t, CAMPAIGN) for t in TOKENS)
    assert max(abs(p - (i + 0.5) / N) for i, p in enumerate(places)) < 1.95 / math.sqrt(N), (
        "Kolmogorov-Smirnov at 0.1 %"
    )
    shares = (0.1,) * 10
    starts = [0.0]
    for share in shares:
        starts.append(starts[-1] + share)
    assert starts[-1] != 1.0, (
        "the sum is not exactly one in floats, and nobody may fall into the gap"
    )
    asked = [
        [is_asked(t, CAMPAIGN, s, p) for s, p in zip(starts, shares, strict=False)] for t in TOKENS
    ]
    assert all(sum(row) == 1 for row in asked)


def test_the_place_does_not_tell_the_question() -> None:
    low = [pick(t, CAMPAIGN, plan((0.5, 0.5))) for t in TOKENS if place(t, CAMPAIGN) < 0.5]
    assert abs(sum(low) - len(low) / 2) < 5 * math.sqrt(len(low) / 4)


def test_payloads_are_checked_against_the_question() -> None:
    single = plan((0.5, 0.5))
    check_payload(single, 1, b"\xff\x01")
    for question, payload in (
        (1, b"\xff"),
        (1, b"\xff\x02"),
        (2, b"\xff\x01"),
        (-1, b"\xff\x01\xff\x01"),
    ):
        with pytest.raises(ReportError):
            check_payload(single, question, payload)
    split = Plan(0, single.questions, split=True)
    check_payload(split, -1, b"\xff\x01\x00\x00")
    for question, payload in ((0, b"\xff\x01"), (-1, b"\xff\x01\x00"), (-1, b"\xff\x01\x00\x02")):
        with pytest.raises(ReportError):
            check_payload(split, question, payload)
