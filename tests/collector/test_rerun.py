"""The commands in a collection's report make the same campaign again: nothing it was created or finalised with is forgotten."""

from __future__ import annotations

import json
import shlex
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from collector_harness import KEY, SCHEMA, describe

from dither import cli
from dither.cli.options import Operator
from dither.collector import Campaigns, CampaignSpec, NewCampaign, SqliteStore
from dither.release import call_from_json, campaign_command
from dither.schema import Attribute, Schema

SPEC = CampaignSpec(schema=SCHEMA, epsilon=2.0, participants=1000)
OTHER: dict[str, Any] = {
    "name": '-it\'s a "try"',
    "schema": Schema(
        (Attribute("a", "boolean", (False, True)), Attribute("b", "boolean", (False, True)))
    ),
    "epsilon": 1 / 3,
    "method": "independent",
    "participants": 77,
    "parameters": {"total": 200, "rounds": 2},
    "seed": 0,
    "participation": "tokens",
    "holdout": 0.05,
    "title": "-Wie groß?",
    "purpose": "To see.\n\nAnd to tell.",
    "epsilon_reason": "-Few people.\n\nAnd no time.",
    "contact": "A. N. Other <a@example.org>",
    "closes": "2999-01-31",
    "closes_at_reports": 50,
    "assignment": "arrival",
}


def made_again(
    spec: CampaignSpec, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[NewCampaign, dict[str, Any]]:
    """What a collector hears if somebody types the commands of this campaign's report: the creation, and the end."""
    heard: dict[str, Any] = {}

    def call(self: Operator, method: str, path: str = "", body: Any = None) -> dict[str, Any]:
        heard[path] = body
        return {"campaign": "0" * 32, "tokens": ["00"]}

    def no_release(self: Operator, method: str, path: str = "", body: Any = None) -> bytes:
        return b"no zip file"

    monkeypatch.setattr(Operator, "call", call)
    monkeypatch.setattr(Operator, "fetch", no_release)
    monkeypatch.chdir(folder)
    (folder / "schema.json").write_text(json.dumps(spec.schema.to_json()))
    (folder / "dither-admin.key").write_text(KEY)
    record = call_from_json(json.loads(json.dumps(spec.call(7).to_json())))
    create, finalise = campaign_command(record, 5).rsplit("\n", 1)
    assert cli.run(shlex.split(create)[1:]) == 0
    assert cli.run(shlex.split(finalise)[1:]) == 2, "only because no release came back"
    return NewCampaign.from_json(heard[""]), heard["/CAMPAIGN/finalise"]


def test_every_field_of_a_campaign_is_tried() -> None:
    # Whether a collector's first page lists it and when its reports are deleted are no part of a campaign that is made again; a
    # campaign with consumers becomes a histogram's folder, whose release.json is read for them (test_number_commands.py).
    # Neither are its languages, which change nothing but what participants read.
    left_out = {"listed", "consumers", "delete_reports_after", "language", "translations"}
    assert set(OTHER) == {f.name for f in fields(CampaignSpec)} - left_out
    assert all(getattr(SPEC, name) != value for name, value in OTHER.items())


@pytest.mark.parametrize("name", [None, *OTHER])
def test_no_field_of_a_campaign_is_forgotten(
    name: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked, *_ = (SPEC if name is None else replace(SPEC, **{name: OTHER[name]})).begin()
    created, ending = made_again(asked, tmp_path, monkeypatch)
    again, *_ = created.begin()  # parameters travel as text; here they are spelt out
    assert {f.name: getattr(again, f.name) for f in fields(CampaignSpec)} == vars(asked)
    assert ending == {"rows": 7}


def test_the_release_of_a_collection_records_what_it_was_created_with(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "c.db")
    spec = Campaigns(store).create(describe(name="try", participation="tokens", holdout=0.05)).spec
    store.close()
    assert (spec.call(3).name, spec.call(3).participation, spec.call(3).participants) == (
        "try",
        "tokens",
        1000,
    )
    assert (spec.call(3).holdout, spec.call(3).seed, spec.call(3).rows) == (0.05, 5, 3)
