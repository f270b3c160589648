"""Whatever a campaign's description may hold is refused when it is created, or lasts until the release."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from collector_harness import Caller, ServerThread, describe, token_of

from dither import cli
from dither.collector import Campaigns, SqliteStore
from dither.errors import SchemaError
from dither.reports import Envelope, Report, pick
from dither.schema import Attribute, schema_from_json

HALF = "\ud800"  # half a surrogate pair: JSON can write it, UTF-8 cannot
HUGE = 10**400


def values(*given: Any, name: str = "colour", kind: str = "categorical") -> dict[str, Any]:
    return {"schema": {"attributes": [{"name": name, "kind": kind, "values": list(given)}]}}


def edges(**given: Any) -> dict[str, Any]:
    return {"schema": {"score": {"kind": "numeric", **given}}}


REFUSED: list[tuple[dict[str, Any], str]] = [
    (values("red", HALF), "colour"),
    (values("red", "a" + HALF + "b"), "colour"),
    (values("red", "green", name="x" + HALF), "surrogate"),
    (values(1, 2**63), "colour"),
    (values(1, -(2**63) - 1), "colour"),
    (values(1, HUGE, kind="ordinal"), "colour"),
    (values(1, float("nan")), "colour"),
    (values(1, float("inf")), "colour"),
    (values(1, None), "colour"),
    (values(2**63 - 1, -(2**63), 0), "colour"),
    (values(2**53, 0.5), "colour"),
    (edges(edges=[-(2**70), 0, 2**70]), "score"),
    (edges(edges=[0, HUGE]), "score"),
    (edges(edges=[0, float("inf")]), "score"),
    (edges(edges=[0, 1, float("nan")]), "score"),
    (edges(edges=[False, True]), "score"),
    (edges(edges=[-1.7e308, 1.7e308, 1.75e308]), "score"),
    (edges(min=0, max=HUGE), "score"),
    (edges(min=float("-inf"), max=0), "score"),
    (edges(min=-1e308, max=1e308), "score"),
    (edges(min=0, max=5, bins=True), "score"),
    (edges(min=0, max=5, bins=HUGE), "bins"),
    ({"name": "a" + HALF}, "name"),
    ({"method": HALF}, "method"),
    ({"participation": HALF}, "participation"),
    ({"parameters": {"mechanism": HALF}}, "mechanism"),
    ({"parameters": {HALF: 1}}, "parameter"),
    ({"parameters": {"mechanism": 2**63}}, "mechanism"),
    ({"parameters": {"mechanism": float("inf")}}, "mechanism"),
    ({"parameters": []}, "parameters"),
    ({"seed": 2**63}, "seed"),
    ({"seed": True}, "seed"),
    ({"seed": -1}, "seed"),
    ({"participants": 2**63}, "participants"),
    ({"participants": True}, "participants"),
    ({"participants": 1.0}, "participants"),
    ({"epsilon": HUGE}, "epsilon"),
    ({"epsilon": float("nan")}, "epsilon"),
    ({"epsilon": float("inf")}, "epsilon"),
    ({"epsilon": True}, "epsilon"),
    ({"epsilon": None}, "epsilon"),
    ({"holdout": HUGE}, "holdout"),
    ({"holdout": True}, "holdout"),
    ({"holdout": float("nan")}, "holdout"),
]


@pytest.fixture(scope="module")
def creating(tmp_path_factory: pytest.TempPathFactory) -> Any:
    running = ServerThread(SqliteStore(tmp_path_factory.mktemp("d") / "c.db"))
    yield Caller(running.url)
    running.stop()


@pytest.fixture
def closed_connections() -> None:
    """The module's connection stays open between tests."""


@pytest.mark.parametrize(("changes", "named"), REFUSED, ids=range(len(REFUSED)))
def test_what_would_fail_later_is_refused_at_once_by_name(
    creating: Caller, changes: dict[str, Any], named: str
) -> None:
    answer = creating.admin("POST", "", describe(**changes))
    problem = json.loads(answer.body)
    assert (answer.status, problem["type"]) == (422, "urn:dither:problem:invalid")
    assert named in problem["detail"]
    assert len(problem["detail"]) < 300


ACCEPTED: list[dict[str, Any]] = [
    values("", " ", "\U0001f600", "\u202e", "\ufffe", "a\nb", "<b>"),
    values("nul \0", "x"),
    values(2**53 - 1, -(2**53) + 1, 0),
    values("x", 1, 2.5),
    values("x", True),
    values(2**53 - 1, 0.5, 2.0**53),
    values(1e308, -1e-320, kind="ordinal"),
    edges(edges=[-(2.0**70), 0, 2.0**70]),
    edges(min=-1e305, max=1e305),
    {"name": "\U0001f600 <b>", "participants": 2**63 - 1, "seed": 2**63 - 1},
]


@pytest.mark.parametrize("changes", ACCEPTED, ids=range(len(ACCEPTED)))
def test_what_is_accepted_lasts_until_the_release(tmp_path: Path, changes: dict[str, Any]) -> None:

    store = SqliteStore(tmp_path / "c.db")
    campaigns = Campaigns(store)
    live = campaigns.create(describe(**changes))
    now, schema = live.open_round, live.spec.schema
    assert now is not None
    reports = []
    for i in range(60):
        token = token_of(i)
        picked = pick(token, now.campaign_bytes, now.plan)
        question = now.plan.questions[picked]
        codes = [i % a.cardinality for a in schema]
        payload = question.mechanism.randomise(
            question.cell(schema, codes), lambda n: token_of(n)[:n]
        )
        reports.append(Report(token, picked, payload))
    judged = now.judge(Envelope(now.campaign_bytes, 0, tuple(reports)))
    store.add_reports([judged.batch])
    campaigns.close_round(live.stored.id, 0)
    finalised = campaigns.finalise(live.stored.id, rows=20)
    assert finalised.stored.state == "finalised"
    store.close()


def test_a_schema_file_with_half_a_character_or_65_bits_is_refused_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for given in (["red", HALF], [1, 2**63]):
        with pytest.raises(SchemaError, match="colour"):
            Attribute("colour", "categorical", tuple(given))
        (tmp_path / "s.json").write_text(
            json.dumps({"colour": {"kind": "categorical", "values": given}})
        )
        (tmp_path / "t.csv").write_text("colour\nred\n1\n")
        arguments = [
            "publish",
            str(tmp_path / "t.csv"),
            "--schema",
            str(tmp_path / "s.json"),
            "--epsilon",
            "1",
        ]
        assert cli.run([*arguments, "-o", str(tmp_path / "out")]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert "colour" in line
    assert (
        schema_from_json(
            {"colour": {"kind": "categorical", "values": [2**63 - 1, -(2**63)]}}
        ).cells(["colour"])
        == 2
    )
