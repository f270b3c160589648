"""Whatever is sent to whichever address: never a 5xx, never a traceback, always problem details."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from collector_harness import (
    KEY,
    REPORTS_TYPE,
    Caller,
    ServerThread,
    describe,
    envelope_of,
    plan_of,
    token_of,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dither.client import Answer
from dither.collector import SqliteStore

pytestmark = pytest.mark.slow

FUZZ = settings(
    deadline=None,
    max_examples=120,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from([10**400, -(2**63), 1e308]),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4)
    ),
    max_leaves=12,
)
KEYS = st.sampled_from(
    [
        "schema",
        "epsilon",
        "participants",
        "name",
        "method",
        "parameters",
        "seed",
        "participation",
        "draft",
    ]
)


class Target:
    """A server with one open campaign and a valid upload for it."""

    def __init__(self, running: ServerThread) -> None:
        self.running = running
        self.caller = Caller(running.url)
        self.campaign = self.caller.create()
        self.body = envelope_of(
            self.campaign,
            plan_of(self.caller.announcement(self.campaign)),
            [token_of(i) for i in range(3)],
        )

    def send(self, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> Answer:
        answer = self.caller.connection.request(method, path, body, headers)
        assert answer.status < 500, answer
        assert b"Traceback" not in answer.body
        if answer.status >= 400 and method != "HEAD":
            problem = json.loads(answer.body)
            assert problem["status"] == answer.status
            assert problem["type"].startswith("urn:dither:problem:")
        return answer


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    running = ServerThread(SqliteStore(tmp_path_factory.mktemp("fuzz") / "c.db"))
    yield Target(running)
    running.stop()


@pytest.fixture
def closed_connections() -> None:
    """The module's connection stays open between tests."""


@FUZZ
@given(data=st.data())
def test_uploads(target: Target, data: st.DataObject) -> None:
    body = data.draw(st.binary(max_size=300))
    if data.draw(st.booleans()):
        whole = bytearray(target.body)
        for _ in range(data.draw(st.integers(1, 4))):
            whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
        body = (
            bytes(whole[: data.draw(st.integers(0, len(whole)))])
            if data.draw(st.booleans())
            else bytes(whole)
        )
    kind = data.draw(
        st.sampled_from([REPORTS_TYPE, REPORTS_TYPE, REPORTS_TYPE, "application/json", ""])
    )
    target.send("POST", f"/v1/campaigns/{target.campaign}/reports", body, {"content-type": kind})


@FUZZ
@given(body=st.binary(max_size=70) | st.binary(min_size=32, max_size=32), known=st.booleans())
def test_lookups(target: Target, body: bytes, known: bool) -> None:
    campaign = target.campaign if known else "0" * 32
    answer = target.send("POST", f"/v1/campaigns/{campaign}/lookup", body, {})
    if known and len(body) == 32:
        assert (answer.status, answer.body) == (200, b'{"stored":false}')


@FUZZ
@given(
    method=st.sampled_from(["GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD"]),
    parts=st.lists(
        st.sampled_from(
            [
                "v1",
                "campaigns",
                "admin",
                "reports",
                "rounds",
                "tally",
                "release",
                "live",
                "docs",
                "metrics",
                "%00",
            ]
        )
        | st.text("abc0123456789-._~%", max_size=6),
        max_size=6,
    ),
    known=st.booleans(),
    body=st.none() | st.binary(max_size=50),
    key=st.sampled_from([f"Bearer {KEY}", "Bearer x", ""]),
)
def test_addresses(
    target: Target, method: str, parts: list[str], known: bool, body: bytes | None, key: str
) -> None:
    path = "/" + "/".join(parts)
    if known:
        path = f"/v1/admin/campaigns/{target.campaign}{path}"
    target.send(method, path, body, {"authorization": key})


@FUZZ
@given(
    changes=st.dictionaries(KEYS, JSON, max_size=3),
    extra=st.dictionaries(st.text(max_size=5), JSON, max_size=1),
)
def test_descriptions_of_campaigns(
    target: Target, changes: dict[str, Any], extra: dict[str, Any]
) -> None:
    body = json.dumps(describe() | changes | extra).encode()
    target.send(
        "POST",
        "/v1/admin/campaigns",
        body,
        {"authorization": f"Bearer {KEY}", "content-type": "application/json"},
    )


@FUZZ
@given(
    body=JSON.map(lambda value: json.dumps(value).encode())
    | st.binary(max_size=40)
    | st.just(b"[" * 5000),
    action=st.sampled_from(
        [
            "",
            "/00/open",
            "/{}/tokens",
            "/{}/finalise",
            "/00/close-round",
            "/{}/rounds/1/reports",
            "/{}/tally",
        ]
    ),
)
def test_operators_bodies(target: Target, body: bytes, action: str) -> None:
    path = f"/v1/admin/campaigns{action.format(target.campaign)}"
    target.send(
        "POST", path, body, {"authorization": f"Bearer {KEY}", "content-type": "application/json"}
    )


def test_the_server_still_works_afterwards(target: Target) -> None:
    answer = target.send(
        "POST",
        f"/v1/campaigns/{target.campaign}/reports",
        target.body,
        {"content-type": REPORTS_TYPE},
    )
    assert answer.status in (200, 201, 409)
    assert target.running.collector.running_tally(
        target.campaign
    ).participants == target.running.collector.store.count(target.campaign, 0)
    target.caller.connection.close()
