"""Histogram methods on the road: real reports over HTTP, closed, finalised, and right within their stated errors."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from collector_harness import REPORTS_TYPE, Caller, ServerThread, describe

from dither.client import Device, Participant, code_of
from dither.client.fleet import SimulatedFleet, look, submit_round
from dither.protocols import HISTOGRAMS, restore
from dither.protocols.histogram.machine import HistogramMachine, consumers_from_text
from dither.release import Release, load_release
from dither.schema import Schema

LOW, HIGH, N = 0.0, 60.0, 3000
SURE = 5.0  # standard errors: by the normal law one figure in two million is farther off
VALUES = [HIGH * (i / N) ** 2 for i in range(N)]  # many small ones, few large ones


def plan_for(method: str) -> tuple[dict[str, Any], Schema]:
    """The description of a campaign, and its schema."""
    text = "4" if method == "shp" else "3,4"
    machine = HISTOGRAMS[method].load()
    assert issubclass(machine, HistogramMachine)
    schema = machine.schema_of("minutes", consumers_from_text(text, LOW, HIGH), LOW, HIGH)
    return describe(
        schema=schema.to_json(), method=method, participants=N, epsilon=3.0, parameters={"consumers": text}
    ), schema


def share_of_bins(edges: Sequence[float]) -> np.ndarray:
    return np.histogram(VALUES, edges)[0] / N


def collect(caller: Caller, server: ServerThread, campaign: str, schema: Schema) -> int:
    """Everybody answers: three with a device and their number, the others with the codes of theirs. Gives how many were asked."""
    result = []
    for value in VALUES[:3]:
        person = Participant(Device(":memory:"), server.url, campaign, cap=3.0)
        result.append(person.take_part(dict.fromkeys(schema.names, value)).result)
        person.device.close()
    assert set(result) <= {"acknowledged", "not-asked"}
    people = [[code_of(attribute, value) for attribute in schema] for value in VALUES[3:]]
    address = f"/v1/campaigns/{campaign}/reports"
    post = partial(_post, caller, address)
    sent = submit_round(look(caller.connection, server.url, campaign), people, SimulatedFleet(), post)  # type: ignore[arg-type]
    assert set(sent.results) == {"stored"}
    return sent.participants + result.count("acknowledged")


def _post(caller: Caller, address: str, body: bytes) -> Any:
    return caller.connection.request("POST", address, body, {"content-type": REPORTS_TYPE})


def finish(caller: Caller, campaign: str, folder: Path) -> Release:
    for step, body in (("close-round", {"round": 0}), ("finalise", {"rows": 50})):
        answer = caller.admin("POST", f"/{campaign}/{step}", body)
        assert answer.status == 200, answer
    with zipfile.ZipFile(io.BytesIO(caller.admin("GET", f"/{campaign}/release").body)) as archive:
        archive.extractall(folder)
    return load_release(folder)


def off(found: np.ndarray, errors: np.ndarray, truth: np.ndarray) -> float:
    """How many standard errors the worst figure is away from the truth."""
    return float(np.abs((found - truth) / errors).max())


@pytest.mark.parametrize("method", ["chp", "shp", "split", "sampled", "smart"])
@pytest.mark.parametrize("holdout", [0.0, 0.05], ids=["all", "held-out"])
def test_a_histogram_campaign_gives_counts_within_their_errors(
    method: str, holdout: float, caller: Caller, server: ServerThread, tmp_path: Path
) -> None:
    described, schema = plan_for(method)
    campaign = caller.create(**described | {"holdout": holdout})
    asked = collect(caller, server, campaign, schema)
    assert asked == N if method != "sampled" else 0.7 * N < asked < 0.9 * N
    release = finish(caller, campaign, tmp_path)
    assert (release.method, release.participants) == (method, asked)
    assert release.epsilon_achieved <= 3.0
    assert {m.attributes for m in release.measured} == {(name,) for name in schema.names}
    for measured in release.measured:
        truth = share_of_bins(schema[measured.attributes[0]].edges)
        # With a hold-out a random 5 % of the answers are left out, whom the errors do not know of.
        errors = np.sqrt(measured.standard_errors**2 + holdout * truth * (1 - truth) / asked)
        assert off(measured.frequencies, errors, truth) < SURE
        assert off(measured.frequencies, errors, truth[::-1]) > SURE, "the errors are small enough to tell"
    if holdout:
        return
    assert release.state is not None
    machine = restore(release.state)
    assert isinstance(machine, HistogramMachine)
    answer = machine.answer()
    for consumer, counts, variances in zip(machine.consumers, answer.counts, answer.variances, strict=True):
        found, errors = counts / machine.population, np.sqrt(variances) / machine.population
        assert off(found, errors, share_of_bins(consumer.edges)) < SURE
