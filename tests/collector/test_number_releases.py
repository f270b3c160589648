"""A published release about one number: read, asked and downloaded over HTTP by anybody, and every wrong question named."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import numpy as np
import pytest
from collector_harness import Caller, ServerThread
from test_histogram_campaigns import HIGH, VALUES, collect, plan_for

from dither.client import Connection
from dither.collector import SqliteStore, add_pages
from dither.release import Release

pytestmark = pytest.mark.slow


class Site:
    """A collector with a published histogram and a published mean."""

    def __init__(self, folder: Path) -> None:
        self.server = ServerThread(SqliteStore(folder / "collector.db"), pages=add_pages)
        self.caller = Caller(self.server.url)
        self.histogram, self.mean = self.published("chp"), self.published("mean")

    def published(self, method: str) -> str:
        described, schema = plan_for(method)
        campaign = self.caller.create(**described)
        collect(self.caller, self.server.url, campaign, schema)
        for step, body in (
            ("close-round", {"round": 0}),
            ("finalise", {}),
            ("publish-release", {}),
        ):
            answer = self.caller.admin("POST", f"/{campaign}/{step}", body)
            assert answer.status == 200, answer
        return campaign

    def get(self, path: str, **query: Any) -> Any:
        full = path + (f"?{urlencode(query, doseq=True)}" if query else "")
        connection = Connection(self.server.url)
        try:
            return connection.request("GET", full, None)
        finally:
            connection.close()

    def ask(self, campaign: str, **query: Any) -> dict[str, Any]:
        answer = self.get(f"/v1/releases/{campaign}/query", **query)
        assert answer.status == 200, answer
        return dict(json.loads(answer.body))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    made = Site(tmp_path_factory.mktemp("site"))
    yield made
    made.server.stop()


def test_everything_that_can_be_asked_is_answered_with_intervals_that_hold(site: Site) -> None:
    values = np.asarray(VALUES)
    found = site.ask(site.histogram, range=["15,30", "0,45"])
    assert found["by"] == ["from", "to"]
    for row in found["rows"]:
        low, high = row["values"]
        truth = float(np.mean((values >= low) & (values < high)))
        assert row["low"] - 0.05 <= truth <= row["high"] + 0.05
        assert row["high"] - row["low"] < 0.5
    assert len(site.ask(site.histogram, quantiles="0.1,0.5,0.9")["rows"]) == 3
    assert len(site.ask(site.histogram, below="20,40")["rows"]) == 2
    assert len(site.ask(site.histogram, bins="7")["rows"]) == 7
    assert len(site.ask(site.histogram, bins="0,10,60")["rows"]) == 2
    mean = site.ask(site.histogram, figure="mean")
    assert mean["low"] <= values.mean() <= mean["high"]
    asked = site.ask(site.mean, figure="mean")
    assert abs(asked["estimate"] - values.mean()) < 5 * asked["standard_error"]
    csv = site.get(f"/v1/releases/{site.histogram}/query", range="15,30", format="csv")
    assert csv.body.startswith(b'"from","to","estimate"')


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ({}, "there is no question"),
        ({"where": "hours > 5"}, "no attribute"),
        ({"range": "15"}, "two numbers"),
        ({"range": "a,b"}, "numbers with commas"),
        ({"range": "30,15"}, "smaller to a larger"),
        ({"range": f"{HIGH + 1},{HIGH + 2}"}, "outside"),
        ({"range": "nan,1"}, "range"),
        ({"quantiles": "1.5"}, "level"),
        ({"quantiles": "0.5", "range": "1,2"}, "one of"),
        ({"bins": "0"}, "number of them"),
        ({"bins": "100000"}, "number of them"),
        ({"bins": "10,70"}, "outside"),
        ({"figure": "median"}, "mean"),
        ({"quantiles": ",".join(["0.5"] * 2000)}, "at most"),
        ({"range": "1,2", "format": "xml"}, "format"),
    ],
)
def test_a_wrong_question_is_named(site: Site, query: dict[str, Any], said: str) -> None:
    answer = site.get(f"/v1/releases/{site.histogram}/query", **query)
    assert answer.status == 422, answer
    assert said in json.loads(answer.body)["detail"]


def test_a_mean_alone_answers_nothing_else(site: Site) -> None:
    answer = site.get(f"/v1/releases/{site.mean}/query", range="1,2")
    assert answer.status == 422
    assert "keeps no cells" in json.loads(answer.body)["detail"]


def test_the_folder_and_the_manifest_can_be_taken_home(site: Site, tmp_path: Path) -> None:
    manifest = json.loads(site.get(f"/v1/releases/{site.histogram}").body)
    assert (manifest["format"], manifest["published"]) == ("dither-release-2", True)
    assert [c["name"] for c in manifest["consumers"]] == ["3 bins", "tax office"]
    with zipfile.ZipFile(
        io.BytesIO(site.get(f"/v1/releases/{site.histogram}/folder.zip").body)
    ) as archive:
        archive.extractall(tmp_path)
    assert Release.load(tmp_path).number.answer(5).estimates.shape == (5,)
    assert site.get(f"/v1/releases/{site.histogram}/synthetic.csv").status == 404


def test_its_pages_show_figures_and_no_forms_that_there_are_not(site: Site) -> None:
    page = site.get(f"/releases/{site.histogram}")
    assert page.status == 200
    assert b"tax office" in page.body
    assert b"/compare" not in page.body
    assert site.get(f"/releases/{site.histogram}/download").status == 200
    assert b"The mean lies between" in site.get(f"/releases/{site.mean}").body
    assert b'id="choose"' not in site.get(f"/releases/{site.mean}").body
    assert b'id="choose"' in page.body
    for address in (f"{site.histogram}/compare", f"{site.mean}/ask", f"{site.mean}/compare"):
        assert site.get(f"/releases/{address}").status == 303
