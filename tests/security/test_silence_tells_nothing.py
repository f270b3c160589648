"""Whether, when and with how many bytes a device answers is the same for every record, so silence is no answer."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from tests.client.small_collector import CAMPAIGN, RECORD, SCHEMA, Collector, announce, participant

from dither.client import Device, Participant, code_of, draw_below, encode_answer
from dither.errors import ParameterError, PrivacyError
from dither.mechanisms import GRR
from dither.reports import Plan, Question, decode
from dither.schema import Attribute, Schema


class Raises:
    """An object that cannot be compared, hashed or shown."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no")

    def __repr__(self) -> str:
        raise RuntimeError("no")

    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError("no")


class Lies(float):
    """A number whose comparisons contradict each other."""

    def __le__(self, other: object) -> bool:
        return True

    def __ge__(self, other: object) -> bool:
        return True

    def __lt__(self, other: object) -> bool:
        return True


class RecordWatcher(Mapping[str, object]):
    """A record that notes what is looked at; keys that it lacks raise something other than KeyError."""

    def __init__(self) -> None:
        self.seen: list[object] = []

    def __getitem__(self, name: str) -> object:
        self.seen.append(name)
        raise ZeroDivisionError

    def __iter__(self) -> Iterator[str]:
        self.seen.append("all")
        return iter(())

    def __len__(self) -> int:
        self.seen.append("length")
        return 0


STRANGE: list[object] = [
    "pink",
    "",
    "\ud800",
    None,
    math.nan,
    math.inf,
    -1,
    0,
    True,
    9.1,
    4.5,
    10**5000,
    -(10**400),
    1e308,
    Decimal("NaN"),
    Fraction(1, 3),
    1j,
    b"red",
    [],
    {},
    {"a": []},
    object(),
    Raises(),
    Lies(3.0),
    Lies(math.nan),
]
PLAN = Plan(
    0,
    tuple(Question((n,), GRR.for_epsilon(SCHEMA.cells([n]), 0.6)) for n in SCHEMA.names),
    split=True,
)
PAIR = Plan(0, (Question(("colour", "score"), GRR.for_epsilon(9, 2.0)),), (1.0,))


def traffic(record: Any, plan: Plan) -> tuple[str, list[int], list[int], tuple[str, ...]]:
    """What the world sees of a device with this record: the result, the lengths sent, the draws asked for; and `outside`."""
    device, collector, draws = Device(":memory:"), Collector(announce(plan)), []

    def zeros(count: int) -> bytes:
        draws.append(count)
        return bytes(count)

    taken = participant(device, collector, source=zeros).take_part(record)
    device.close()
    return taken.result, [len(body) for body in collector.bodies], draws, taken.outside


@pytest.mark.parametrize("plan", [PLAN, PAIR], ids=["all questions", "a pair"])
def test_every_record_is_answered_with_the_same_bytes_and_draws(plan: Plan) -> None:
    expected = traffic(RECORD, plan)
    assert expected[0] == "acknowledged"
    for value in STRANGE:
        for name in SCHEMA.names:
            assert traffic({**RECORD, name: value}, plan)[:3] == expected[:3], (
                f"{name}: {type(value)}"
            )
    assert traffic({}, plan)[:3] == expected[:3]
    assert traffic(RecordWatcher(), plan)[:3] == expected[:3]
    assert traffic({**RECORD, "more": Raises(), 5: "x"}, plan) == expected


@pytest.mark.parametrize("clip", [True, False])
@pytest.mark.parametrize("levels", [2, 257])
def test_a_number_that_is_to_be_rounded_takes_the_same_draws_whatever_it_is(
    clip: bool, levels: int
) -> None:
    schema = Schema((Attribute("pay", "numeric", edges=(0.0, 10.0, 20.0), clip=clip),))
    for value in (*STRANGE, 5, 5.5, -1e300, 10**400, math.inf, -math.inf):
        draws: list[int] = []

        def zeros(count: int, draws: list[int] = draws) -> bytes:
            draws.append(count)
            return bytes(count)

        asked = Question(("pay",), GRR.for_epsilon(levels, 1.0), rounded=True)
        coded = encode_answer(schema, asked, {"pay": value}, zeros)
        assert draws == [1 if levels == 2 else 2, 4]
        assert 0 <= coded.cell < levels
        if type(value) in (int, float):
            inside = 0 <= value <= 20 or (
                clip and not (isinstance(value, float) and math.isnan(value))
            )
            assert coded.outside == (() if inside else ("pay",)), value


def test_a_domain_with_a_hole_learns_nothing_from_who_is_silent() -> None:
    """The attack: halve the domain with every campaign; whose device keeps silent has the value that was left out."""
    for age in (0, 37, 64):
        for bit in range(7):
            values = tuple(v for v in range(128) if not v >> bit & 1)
            schema = Schema((Attribute("age", "ordinal", values),))
            plan = Plan(0, (Question(("age",), GRR.for_epsilon(64, 1.0)),), (1.0,))
            collector, device = Collector(announce(plan, schema)), Device(":memory:")
            taken = participant(device, collector).take_part({"age": age})
            assert (taken.result, len(collector.bodies)) == ("acknowledged", 1)
            assert taken.outside == (() if age in values else ("age",))
            device.close()


def test_only_what_is_asked_is_looked_at() -> None:
    colour = Plan(0, (Question(("colour",), GRR.for_epsilon(3, 1.0)),), (1.0,))
    assert traffic({"colour": "red"}, colour)[3] == ()
    record = RecordWatcher()
    assert traffic(record, colour)[3] == ("colour",)
    assert record.seen == ["colour"]


def test_a_value_outside_is_answered_as_missing_or_as_any_code() -> None:
    def answers_of(record: dict[str, object], drawn: int) -> int:
        """The true cell that went into the mechanism: zeros draw the truth; `drawn` is what the first draw gives."""
        device, collector, draws = Device(":memory:"), Collector(announce(PAIR)), iter([drawn])
        source = lambda count: next(draws, 0).to_bytes(count, "little")  # noqa: E731
        participant(device, collector, source=source).take_part(record)
        device.close()
        return decode(collector.bodies[0]).reports[0].payload[0]

    assert {answers_of({"colour": "pink", "score": 0.5}, drawn) // 3 for drawn in range(3)} == {
        0,
        1,
        2,
    }
    assert {answers_of({"colour": "blue", "score": 0.5}, drawn) // 3 for drawn in range(3)} == {2}
    member = Question(("member",), GRR.for_epsilon(3, 1.0))
    missing = encode_answer(
        SCHEMA, member, {"member": "who knows"}, lambda count: pytest.fail("nothing to draw")
    )
    assert (missing.cell, missing.outside) == (2, ("member",))
    absent = encode_answer(SCHEMA, member, {}, bytes)
    assert (absent.cell, absent.outside) == (2, ()), (
        "no answer is an answer where the schema has it"
    )


@pytest.mark.parametrize("count", [2, 3, 5, 8, 200, 256])
def test_the_code_drawn_instead_is_exactly_uniform(count: int) -> None:
    found: Counter[int | None] = Counter()
    for first in range(256):
        draws = iter([bytes([first])])
        try:
            found[draw_below(count, lambda n, draws=draws: next(draws))] += 1  # type: ignore[misc]
        except StopIteration:
            found[None] += 1  # drawn again
    again = found.pop(None, 0)
    assert set(found) == set(range(count))
    assert len(set(found.values())) == 1
    assert again < 128


def test_codes_are_always_codes() -> None:
    for attribute in SCHEMA:
        for value in STRANGE:
            code = code_of(attribute, value)
            assert code is None or 0 <= code < attribute.cardinality


def test_a_record_that_is_no_mapping_is_refused_before_anything_is_asked() -> None:
    device = Device(":memory:")

    def transport(*arguments: object) -> Any:
        raise AssertionError("nothing is asked")

    for record in (None, [("colour", "red")], "red"):
        with pytest.raises(ParameterError, match="mapping"):
            Participant(
                device, "https://c.example", CAMPAIGN, cap=2.0, transport=transport
            ).take_part(record)  # type: ignore[arg-type]
    device.close()


def test_refusals_do_not_look_at_the_record() -> None:
    for more, said in (
        ({"allowed": ["member"]}, "does not allow"),
        ({"schema_fingerprint": "0" * 64}, "not the one agreed on"),
        ({"cap": 0.1}, "more than its cap"),
    ):
        device, collector, record = Device(":memory:"), Collector(announce(PAIR)), RecordWatcher()
        with pytest.raises(PrivacyError, match=said):
            participant(device, collector, **more).take_part(record)
        assert (record.seen, collector.bodies, device.outbox()) == ([], [], [])
        device.close()


def test_a_pinned_schema_is_answered() -> None:
    device = Device(":memory:")
    taken = participant(
        device, Collector(announce(PAIR)), schema_fingerprint=SCHEMA.fingerprint
    ).take_part(RECORD)
    assert taken.result == "acknowledged"
    device.close()
