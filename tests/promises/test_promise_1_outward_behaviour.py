"""Promise 1: outward behaviour never depends on the record.

For any announcement that a device accepts and any two records, everything that others can observe is equal: whether and
how much is sent, the number of random bytes taken, the error, and what is written to the device's file apart from the
randomised answer itself.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, example, given, settings
from tests.programs import require
from tests.promises.whole_plans import (
    CAMPAIGN,
    Campaign,
    campaigns,
    grouped_and_joint,
    records,
    rounded_and_joint,
)

from dither.client import Answer, Device, Participant, draw_below, encode_answer, read_announcement
from dither.errors import DitherError
from dither.reports import encode

POOR, RICH = {"income": 1_000.0, "sex": True}, {"income": 62_000.0, "sex": True}


@dataclass(frozen=True)
class Outcome:
    """What anyone but the device's owner can see of a device."""

    visits: tuple[Any, ...]
    sent: tuple[Any, ...]
    draws: tuple[int, ...]
    books: tuple[Any, ...]


def python_outcome(campaign: Campaign, record: Mapping[str, object]) -> Outcome:
    """Let Python's client visit each announcement in turn."""
    draws: list[int] = []
    sent: list[tuple[str, str, int]] = []
    visits: list[Any] = []
    state = 1

    def source(count: int) -> bytes:
        nonlocal state
        draws.append(count)
        out = bytearray()
        for _ in range(count):
            state = (state * 1_103_515_245 + 12_345) % 2**32
            out.append(state >> 24)
        return bytes(out)

    device = Device(":memory:", source, clock=lambda: 1.7e9)
    for text in campaign.announcements:

        def transport(method: str, address: str, body: bytes | None, text: str = text) -> Answer:
            sent.append((method, address, len(body or b"")))
            if method == "GET":
                return Answer(200, text.encode())
            return Answer(201, b'{"results":["stored"]}', content_type="application/json")

        person = Participant(
            device,
            "https://c.example",
            CAMPAIGN,
            cap=campaign.cap,
            transport=transport,
            source=source,
        )
        try:
            taken = person.take_part(record)
            visits.append((taken.result, taken.spent, taken.reason, taken.receipt))
        except (
            Exception
        ) as error:  # of any class: an unexpected one is behaviour that others can see
            visits.append((type(error).__name__, str(error)))
    books = _books(device)
    device.close()
    return Outcome(tuple(visits), tuple(sent), tuple(draws), books)


def _books(device: Device) -> tuple[Any, ...]:
    """Every row of the device's file, with the randomised answers replaced by their lengths."""
    connection = device._connection
    dump = []
    for table in ("device", "campaigns", "answers", "asked", "memo", "outbox"):
        cursor = connection.execute(
            f"SELECT * FROM {table} ORDER BY 1, 2" if table != "device" else "SELECT * FROM device"
        )
        names = [column[0] for column in cursor.description]
        for row in cursor.fetchall():
            shown = [
                len(x) if name in ("payload", "body") else x
                for name, x in zip(names, row, strict=True)
            ]
            dump.append((table, *shown))
    return tuple(dump)


class Browser:
    """The browser's client in a Node process that answers line by line."""

    def __init__(self, node: str) -> None:
        script = Path(__file__).with_name("device_outcomes.mjs")
        self._process = subprocess.Popen(
            [node, str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def outcome(self, campaign: Campaign, record: Mapping[str, object]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        body = {"announcements": campaign.announcements, "record": record, "cap": campaign.cap}
        self._process.stdin.write(json.dumps(body) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        assert "failed" not in answer, answer
        return answer

    def close(self) -> None:
        self._process.communicate(timeout=30)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    node = Browser(require(shutil.which("node"), "Node"))
    yield node
    node.close()


def accepts(text: str) -> bool:
    try:
        read_announcement(text.encode())
    except DitherError:
        return False
    return True


def any_two_records(test: Any) -> Any:
    """Run a test over generated campaigns and pairs of records, the known attacks among them."""
    test = given(campaigns(), records, records)(test)
    for attack in (rounded_and_joint(), grouped_and_joint()):
        test = example(attack, POOR, RICH)(test)
    return settings(max_examples=200, deadline=None, derandomize=True)(test)


@any_two_records
def test_python_devices_behave_alike_for_any_two_records(
    campaign: Campaign, record: dict[str, Any], other: dict[str, Any]
) -> None:
    assert python_outcome(campaign, record) == python_outcome(campaign, other)


@pytest.mark.slow
def test_browsers_behave_alike_for_any_two_records(browser: Browser) -> None:
    @any_two_records
    def check(campaign: Campaign, record: dict[str, Any], other: dict[str, Any]) -> None:
        outcome = browser.outcome(campaign, record)
        assert outcome == browser.outcome(campaign, other)
        accepted = [visit["accepted"] for visit in outcome["outcomes"]]
        assert accepted == [accepts(text) for text in campaign.announcements], (
            "Python and JavaScript accept the same"
        )

    check()


def test_a_number_cannot_be_asked_rounded_and_in_a_pair() -> None:
    for attack in (rounded_and_joint(), grouped_and_joint()):
        with pytest.raises(DitherError, match="in one question only"):
            read_announcement(attack.announcements[0].encode())


@pytest.mark.parametrize("fault", ["silence", "draws", "length"])
def test_the_check_rejects_a_device_that_behaves_by_its_record(
    fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three faults that a device could have for values outside the domain: it raises, draws more, or sends more."""
    outside = False

    def faulty_answer(schema: Any, question: Any, record: Any, source: Any) -> Any:
        nonlocal outside
        answer = encode_answer(schema, question, record, source)
        outside = bool(answer.outside)
        if outside and fault == "silence":
            raise ValueError("outside the domain")
        if outside and fault == "draws":
            draw_below(2, source)
        return answer

    def faulty_encode(envelope: Any) -> bytes:
        return encode(envelope) + (b"+" if outside and fault == "length" else b"")

    monkeypatch.setattr("dither.client.participant.encode_answer", faulty_answer)
    monkeypatch.setattr("dither.client.participant.encode", faulty_encode)

    @settings(
        max_examples=100, deadline=None, derandomize=True, database=None, phases=[Phase.generate]
    )
    @given(campaigns(), records, records)
    def check(campaign: Campaign, record: dict[str, Any], other: dict[str, Any]) -> None:
        assert python_outcome(campaign, record) == python_outcome(campaign, other)

    with pytest.raises(AssertionError):
        check()


def test_most_generated_campaigns_are_answered() -> None:
    """The promise is tested on what devices accept: enough of what is generated must be answered."""
    results: Counter[str] = Counter()

    @settings(max_examples=100, deadline=None, derandomize=True, database=None)
    @given(campaigns(), records)
    def count(campaign: Campaign, record: dict[str, Any]) -> None:
        results.update(str(visit[0]) for visit in python_outcome(campaign, record).visits)

    count()
    assert results["acknowledged"] > 0.25 * results.total(), results
    assert results["ParameterError"] > 0, results
    assert results["PrivacyError"] > 0, results
