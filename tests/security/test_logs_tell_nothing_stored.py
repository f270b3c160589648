"""Whatever goes wrong in the database, neither the log nor an answer shows what was to be stored: no report, id or token."""

from __future__ import annotations

import json
import logging
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from collector_harness import (
    Caller,
    ServerThread,
    envelope_of,
    plan_of,
    token_of,
)

from dither.collector import (
    Batch,
    PostgresStore,
    Row,
    SqliteStore,
    SqlStore,
    State,
    StoredCampaign,
    StoredRound,
    StoreFailure,
    Writer,
    WriteResult,
)
from dither.reports import report_id

C = "ab" * 16
SECRET = b"a recognisable answer"


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SqlStore]:
    """A store whose database refuses every report, as an unforeseen defect would."""
    if request.param == "sqlite":
        opened = SqliteStore(tmp_path / "c.db")
        refusal = "CREATE TRIGGER refusing BEFORE INSERT ON reports BEGIN SELECT RAISE(ABORT, 'refused'); END"
    else:
        opened = PostgresStore(request.getfixturevalue("cluster").fresh())
        refusal = "ALTER TABLE reports ADD CHECK (question < -5)"
    with opened._engine.begin() as connection:
        connection.exec_driver_sql(refusal)
    yield opened
    opened.close()


def forms(secret: bytes) -> list[str]:
    """How bytes may show up in a text: as hexadecimal digits, as Python or SQL writes them, or as they are."""
    return [
        secret.hex(),
        repr(secret)[2:-1],
        secret.decode("latin-1"),
        "".join(f"\\{b:03o}" for b in secret),
    ]


def assert_silent(text: str, *secrets: bytes) -> None:
    for secret in secrets:
        for form in forms(secret):
            assert form.lower() not in text.lower()


def told(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))


def test_the_writer_logs_the_kind_and_the_place_of_a_failure_only(
    store: SqlStore, caplog: pytest.LogCaptureFixture
) -> None:
    store.create_campaign(
        StoredCampaign(C, {}, State.OPEN, 0, b""), StoredRound(C, 0, "open", 0.0, {})
    )
    results: list[WriteResult] = []
    writer = Writer(store, results.extend)
    row = Row(token_of(1), 0, SECRET)
    writer.submit(Batch(C, 0, [row]), None)
    assert writer.stop()
    assert isinstance(results[0].error, StoreFailure)
    for text in (caplog.text, told(results[0].error)):
        assert "INSERT" in text
        assert "sql_store.py" in text
        assert_silent(text, row.report_id, SECRET)


def test_an_error_of_our_own_that_repeats_a_value_is_not_repeated(
    store: SqlStore, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def defect(batches: list[Batch]) -> None:
        raise KeyError(batches[0].rows[0])

    monkeypatch.setattr(store, "add_reports", defect)
    results: list[WriteResult] = []
    writer = Writer(store, results.extend)
    row = Row(token_of(1), 0, SECRET)
    writer.submit(Batch(C, 0, [row]), None)
    assert writer.stop()
    assert results[0].error is not None
    for text in (caplog.text, told(results[0].error)):
        assert "KeyError" in text
        assert_silent(text, row.report_id, SECRET)


def test_neither_the_answer_nor_the_log_of_an_upload_that_failed_shows_it(
    store: SqlStore, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A server that another test ran in this process lets such a line pass only once per minute.
    monkeypatch.setattr(logging.getLogger("dither.collector.app"), "filters", [])
    running = ServerThread(store)
    caller = Caller(running.url)
    campaign = caller.create()
    plan = plan_of(caller.announcement(campaign))
    answer = caller.upload(campaign, envelope_of(campaign, plan, [token_of(1)]))
    assert (answer.status, json.loads(answer.body)["type"]) == (500, "urn:dither:problem:internal")
    assert b"CheckViolation" not in answer.body
    named = report_id(token_of(1), bytes.fromhex(campaign), 0)
    assert "unexpected error" in caplog.text
    assert_silent(caplog.text + answer.body.decode(), named, token_of(1))
    running.stop()


FAILURES: dict[str, Callable[[SqlStore], None]] = {
    "a token issued twice": lambda s: s.add_tokens(C, [SECRET, SECRET]),
    "a campaign created twice": lambda s: s.create_campaign(
        StoredCampaign(C, {"name": SECRET.decode()}, State.OPEN, 0, SECRET),
        StoredRound(C, 0, "open", 0.0, {}),
    ),
    "a value of a wrong type": lambda s: s.add_reports(
        [Batch(C, 0, [Row(SECRET, {SECRET}, SECRET)])]
    ),  # type: ignore[arg-type,list-item]
    "a number out of range": lambda s: s.add_reports(
        [Batch(C, 0, [Row(token_of(1), 1 << 70, SECRET)])]
    ),
}


@pytest.mark.parametrize("failure", FAILURES)
def test_no_refusal_of_the_database_repeats_what_it_was_given(
    store: SqlStore, caplog: pytest.LogCaptureFixture, failure: str
) -> None:
    caplog.set_level(logging.INFO)
    store.create_campaign(
        StoredCampaign(C, {}, State.OPEN, 0, b""), StoredRound(C, 0, "open", 0.0, {})
    )
    with pytest.raises((StoreFailure, OverflowError)) as caught:
        FAILURES[failure](store)
    text = told(caught.value) + caplog.text
    assert_silent(text, SECRET, token_of(1))
    assert str(1 << 70) not in text


def test_engines_hide_parameters(store: SqlStore) -> None:
    assert store._engine.hide_parameters
    with store._engine.connect() as connection, pytest.raises(sa.exc.DBAPIError) as caught:
        connection.execute(sa.text("SELECT :secret FROM nowhere"), {"secret": SECRET})
    assert_silent(str(caught.value), SECRET)
