"""A campaign with rules, groups and times, over HTTP: devices answer about groups, and the release keeps every rule."""

from __future__ import annotations

import io
import zipfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from collector_harness import REPORTS_TYPE, Caller, ServerThread, describe

from dither.cli.submit import SimulatedFleet, fetch_announcement, submit_round
from dither.client import Device, Participant, code_of
from dither.release import load_release
from dither.schema import Attribute, Determines, Schema, attribute_from_json

CITIES = (
    1200  # wide: cut into groups by the collector, which devices then read from its announcement
)
SCHEMA = Schema(
    (
        Attribute("city", "ordinal", tuple(range(CITIES))),
        Attribute("grade", "ordinal", (1, 2, 3)),
        Attribute("passed", "boolean", (False, True)),
        attribute_from_json(
            "day", {"kind": "date", "min": "2024-01-01", "max": "2024-06-30", "by": "quarter"}
        ),
        Attribute("paid", "numeric", edges=(0.0, 10.0, 100.0), atoms=(0.0,), unit=0.01),
    ),
    (Determines("grade", "passed", (True, True, False)),),
)


def record(i: int) -> dict[str, object]:
    grade = i % 3 + 1
    return {
        "city": (i * 37) % CITIES,
        "grade": grade,
        "passed": grade < 3,
        "day": f"2024-0{i % 6 + 1}-15",
        "paid": 0.0 if i % 2 else 12.5,
    }


def test_a_campaign_with_rules_and_a_wide_attribute(
    caller: Caller, server: ServerThread, tmp_path: Path
) -> None:
    campaign = caller.create(
        **describe(
            schema=SCHEMA.to_json(), epsilon=3.0, participants=1500, method="mixture", name="grades"
        )
    )
    post = partial(_post, caller, f"/v1/campaigns/{campaign}/reports")
    records = [record(i) for i in range(1500)]
    codes = [[code_of(a, r[a.name]) for a in SCHEMA] for r in records]
    fleet, number, grouped = SimulatedFleet(), 0, set()
    while True:
        announced = fetch_announcement(caller.connection, server.url, campaign)
        if announced.plan is None:
            break
        asked = {name for q in announced.plan.questions for name in q.attributes}
        assert "passed" not in asked
        grouped |= {name for q in announced.plan.questions for name in q.grouped}
        assert len(set(announced.schema["city"].groups)) > 1
        person = Participant(Device(":memory:"), server.url, campaign, cap=3.0)
        assert person.take_part(records[number]).result in ("acknowledged", "not-asked")
        person.device.close()
        assert set(submit_round(announced, codes, fleet, post).results) == {"stored"}  # type: ignore[arg-type]
        assert caller.admin("POST", f"/{campaign}/close-round", {"round": number}).status == 200
        number += 1
    assert number >= 2
    assert grouped == {"city"}
    answer = caller.admin("POST", f"/{campaign}/finalise", {"rows": 400})
    assert answer.status == 200, answer
    with zipfile.ZipFile(io.BytesIO(caller.admin("GET", f"/{campaign}/release").body)) as archive:
        archive.extractall(tmp_path)
    release = load_release(tmp_path)
    made = release.synthetic.to_pandas()
    assert (made["passed"] == (made["grade"] < 3)).all()
    assert abs((made["paid"] == 0).mean() - 0.5) < 0.2
    assert made["day"].astype(str).between("2024-01-01", "2024-06-30").all()
    assert release.notes["asked_in_groups"] == ["city"]
    told = release.campaign
    assert told is not None
    assert (told["id"], told["name"]) == (campaign, "grades")
    assert told["created"] <= told["finalised"]
    assert len(told["created"]) == 10
    page = (tmp_path / "report.html").read_text()
    assert f"campaign grades, {campaign}, {told['created']}" in page
    np.testing.assert_allclose(
        release.model.marginal(["grade", "passed"])[[0, 1, 2], [0, 0, 1]], 0.0
    )


def _post(caller: Caller, address: str, body: bytes) -> Any:
    return caller.connection.request("POST", address, body, {"content-type": REPORTS_TYPE})
