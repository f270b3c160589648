"""Campaigns about one number: real reports over HTTP, closed, finalised, and right within their stated errors."""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import zipfile
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from collector_harness import REPORTS_TYPE, Caller, ServerProcess, ServerThread, describe
from tests.programs import require

from dither.cli.submit import SimulatedFleet, fetch_announcement, submit_round
from dither.client import Device, Participant, code_of, read_announcement
from dither.methods import HISTOGRAMS
from dither.methods.histogram import HistogramMachine, consumers_from_text
from dither.methods.mean import Mean
from dither.release import Release
from dither.schema import Schema

LOW, HIGH, N = 0.0, 60.0, 3000
SURE = 5.0  # standard errors: by the normal law one figure in two million is farther off
VALUES = [HIGH * (i / N) ** 2 for i in range(N)]  # many small ones, few large ones
EPSILONS = {
    "smart": 0.9,
    "ranges": 2.0,
}  # at which the one makes a report of its own, and the other made one in other tests
METHODS = ["chp", "shp", "split", "sampled", "smart", "ranges", "square-wave", "mean"]


def plan_for(method: str) -> tuple[dict[str, Any], Schema]:
    """The description of a campaign, and its schema."""
    known = {"method": method, "participants": N, "epsilon": EPSILONS.get(method, 3.0)}
    if method == "mean":
        schema = Mean.schema_of("minutes", LOW, HIGH)
        return describe(schema=schema.to_json(), **known), schema
    listed: list[Any] = (
        [4] if method == "shp" else [3, {"name": "tax office", "edges": [0, 15, 30, 45, 60]}]
    )
    machine = HISTOGRAMS[method].load()
    assert issubclass(machine, HistogramMachine)
    schema = machine.schema_of(
        "minutes", consumers_from_text(json.dumps(listed), LOW, HIGH), LOW, HIGH
    )
    schema = Schema(tuple(replace(attribute, clip=True) for attribute in schema))
    return describe(schema=schema.to_json(), consumers=listed, **known), schema


def share_of_bins(edges: Sequence[float]) -> np.ndarray:
    return np.histogram(VALUES, edges)[0] / N


def collect(
    caller: Caller, url: str, campaign: str, schema: Schema, people: Sequence[float] = VALUES
) -> int:
    """Everybody answers: three with a device and their number, the others with the codes of theirs. Gives how many were asked."""
    result = []
    for value in people[:3]:
        person = Participant(Device(":memory:"), url, campaign, cap=3.0)
        result.append(person.take_part(dict.fromkeys(schema.names, value)).result)
        person.device.close()
    assert set(result) <= {"acknowledged", "not-asked"}
    announcement = fetch_announcement(caller.connection, url, campaign)
    assert announcement.plan is not None
    rounded = announcement.plan.questions[0].rounded
    coded: list[list[Any]] = [
        [value if rounded else code_of(attribute, value) for attribute in schema]
        for value in people[3:]
    ]
    post = partial(_post, caller, f"/v1/campaigns/{campaign}/reports")
    sent = submit_round(announcement, coded, SimulatedFleet(), post)
    assert set(sent.results) == {"stored"}
    return sent.participants + result.count("acknowledged")


def _post(caller: Caller, address: str, body: bytes) -> Any:
    return caller.connection.request("POST", address, body, {"content-type": REPORTS_TYPE})


def finish(caller: Caller, campaign: str, folder: Path) -> Release:
    for step, body in (("close-round", {"round": 0}), ("finalise", {})):
        answer = caller.admin("POST", f"/{campaign}/{step}", body)
        assert answer.status == 200, answer
    with zipfile.ZipFile(io.BytesIO(caller.admin("GET", f"/{campaign}/release").body)) as archive:
        archive.extractall(folder)
    return Release.load(folder)


def off(found: np.ndarray, errors: np.ndarray, truth: np.ndarray) -> float:
    """How many standard errors the worst figure is away from the truth."""
    return float(np.abs((found - truth) / errors).max())


def check_figures(release: Release, holdout: float = 0.0) -> None:
    """Everything that is said lies within its errors, and these are small enough to tell a wrong answer."""
    if release.method == "mean":
        assert release.number.collected_mean is not None
        truth = float(np.mean(VALUES))
        assert (
            abs(release.number.collected_mean.estimate - truth)
            < SURE * release.number.collected_mean.standard_error
        )
        assert (
            abs(release.number.collected_mean.estimate - (HIGH - truth))
            > SURE * release.number.collected_mean.standard_error
        )
        return
    for consumer in release.consumers:
        truth = share_of_bins(consumer.edges)
        found = consumer.estimates / release.participants
        # With a hold-out a random 5 % of the answers are left out, whom the errors do not know of.
        errors = np.sqrt(
            (consumer.standard_errors / release.participants) ** 2
            + holdout * truth * (1 - truth) / N
        )
        assert off(found, errors, truth) < SURE
        assert off(found, errors, truth[::-1]) > SURE, "the errors are small enough to tell"


@pytest.mark.parametrize("method", METHODS)
def test_a_campaign_about_a_number_is_right_within_its_errors(
    method: str, caller: Caller, server: ServerThread, tmp_path: Path
) -> None:
    described, schema = plan_for(method)
    campaign = caller.create(**described)
    asked = collect(caller, server.url, campaign, schema)
    assert asked == N if method != "sampled" else 0.7 * N < asked < 0.9 * N
    release = finish(caller, campaign, tmp_path)
    assert release.method == method
    assert abs(release.participants - N) < (300 if method == "sampled" else 1)
    assert release.epsilon_achieved <= described["epsilon"]
    assert release.campaign is not None
    assert (release.call.campaign, release.number.clip, release.seed) == (
        campaign,
        True,
        None,
    )
    assert "devices" in release.noise
    check_figures(release)
    names = (
        {path.name for path in (tmp_path / "consumers").iterdir()} if release.consumers else set()
    )
    if method not in ("shp", "mean"):
        assert names == {
            f"{name}.{end}" for name in ("3-bins", "tax-office") for end in ("csv", "html", "json")
        }
    if release.number.cells is not None:
        assert release.number.answer(6).estimates.shape == (6,), (
            "late questions, from the folder alone"
        )
    if method == "smart":
        assert release.number.mechanisms == ("strategy",)


@pytest.mark.parametrize("method", ["chp", "mean"])
def test_a_hold_out_takes_people_from_the_figures_only(
    method: str, caller: Caller, server: ServerThread, tmp_path: Path
) -> None:
    described, schema = plan_for(method)
    campaign = caller.create(**described | {"holdout": 0.05})
    collect(caller, server.url, campaign, schema)
    check_figures(finish(caller, campaign, tmp_path), 0.05)


@pytest.mark.parametrize("method", ["chp", "smart", "mean"])
def test_devices_with_another_p_than_announced_are_found_out(
    method: str,
    caller: Caller,
    server: ServerThread,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The same road with devices that tell the truth: the figures are off by more than their errors allow."""
    described, schema = plan_for(method)
    campaign = caller.create(**described)
    plan = fetch_announcement(caller.connection, server.url, campaign).plan
    assert plan is not None
    for kind in {type(question.mechanism) for question in plan.questions}:
        monkeypatch.setattr(kind, "randomise", _likeliest)
    collect(caller, server.url, campaign, schema)
    release = finish(caller, campaign, tmp_path)
    with pytest.raises(AssertionError):
        check_figures(release)


def _likeliest(mechanism: Any, value: int, source: Any) -> bytes:
    """A report without noise: the most likely one."""
    number = max(mechanism.probabilities(value).items(), key=lambda found: found[1])[0]
    return int(number).to_bytes(mechanism.report_bytes, "little")


def test_participants_are_told_who_gets_what(caller: Caller) -> None:
    described, _ = plan_for("chp")
    described["consumers"][1]["epsilon"] = 0.5
    campaign = caller.create(**described)
    announced = read_announcement(json.dumps(caller.announcement(campaign)).encode())
    assert [(each.name, each.edges, each.epsilon) for each in announced.consumers] == [
        ("3 bins", (0.0, 20.0, 40.0, 60.0), None),
        ("tax office", (0.0, 15.0, 30.0, 45.0, 60.0), 0.5),
    ]
    assert announced.plan is not None
    assert announced.plan.epsilon <= 0.5, "the smallest that anybody asked for"
    assert announced.schema.attributes[0].clip


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"consumers": [0]}, "bins"),
        ({"consumers": []}, "at least one consumer"),
        ({"consumers": "3,5"}, "consumers"),
        ({"consumers": [{"name": "x", "edges": [0, 70]}]}, "outside"),
        ({"consumers": [7]}, "not among the edges"),
        ({"consumers": [3], "parameters": {"consumers": "3"}}, "separately"),
        ({"consumers": [3], "method": "independent"}, "has no consumers"),
        ({"method": "mean", "consumers": [3]}, "has no consumers"),
    ],
)
def test_consumers_that_cannot_be_served_are_named_when_the_campaign_is_created(
    caller: Caller, change: dict[str, Any], said: str
) -> None:
    described, _ = plan_for("chp")
    answer = caller.admin("POST", "", described | change)
    assert answer.status == 422, answer
    assert said in json.loads(answer.body)["detail"]


@pytest.mark.slow
def test_a_collector_killed_between_reports_and_closing_goes_on(tmp_path: Path) -> None:
    """The design of a strategy comes from the store, so that the round it restores is the one that was announced."""
    described, schema = plan_for("smart")
    store, half = tmp_path / "c.db", N // 2
    with ServerProcess(store) as first:
        caller = Caller(first.url)
        campaign = caller.create(**described)
        announced = caller.announcement(campaign)
        collect(caller, first.url, campaign, schema, VALUES[0::2])
        first.kill()
    with ServerProcess(store) as second:
        caller = Caller(second.url)
        assert caller.announcement(campaign) == announced
        collect(caller, second.url, campaign, schema, VALUES[1::2])
        assert caller.status(campaign)["rounds"][0]["reports"] == 2 * half
        check_figures(finish(caller, campaign, tmp_path / "out"))


@pytest.mark.slow
@pytest.mark.parametrize("method", ["smart", "mean"])
def test_browsers_encoders_take_part_in_the_same_campaign(
    method: str, caller: Caller, server: ServerThread, tmp_path: Path
) -> None:
    """Node makes every report of these people, with its own noise; the figures are right within their errors."""
    node = require(shutil.which("node"), "Node")
    described, schema = plan_for(method)
    campaign = caller.create(**described)
    script = tmp_path / "people.mjs"
    module = Path(__file__).parents[2] / "js" / "dither.js"
    script.write_text(
        f"import {{ takePart }} from {json.dumps(module.as_uri())};\n"
        "const [url, campaign, names, values] = JSON.parse(process.argv[2]);\n"
        "for (const value of values) {\n"
        "  const books = new Map();\n"
        "  const storage = { getItem: (k) => books.get(k) ?? null, setItem: (k, v) => books.set(k, v) };\n"
        "  const record = Object.fromEntries(names.map((n) => [n, value]));\n"
        "  const { result } = await takePart({ url, campaign, record, cap: 3, storage });\n"
        "  if (result !== 'acknowledged') throw new Error(result);\n"
        "}\n"
    )
    few = VALUES[:: N // 60]
    given = json.dumps([server.url, campaign, schema.names, few])
    done = subprocess.run(
        [node, str(script), given], capture_output=True, text=True, check=False, timeout=180
    )
    assert done.returncode == 0, done.stderr
    others = sorted(set(VALUES) - set(few))
    collect(caller, server.url, campaign, schema, others)
    release = finish(caller, campaign, tmp_path / "out")
    assert release.participants == N
    check_figures(release)
