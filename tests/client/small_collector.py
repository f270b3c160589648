"""A small schema and a collector of the tests' own, which announces what it is told and answers uploads from a list."""

from __future__ import annotations

import json
from typing import Any

from dither.client import Answer, Device, Participant, Transport, Unreachable
from dither.reports import Plan, decode, question, report_id
from dither.schema import Attribute, Schema

SCHEMA = Schema(
    (
        Attribute("colour", "categorical", ("red", "green", "blue")),
        Attribute("member", "boolean", (False, True), missing=True),
        Attribute("score", "numeric", edges=(0.0, 1.0, 5.0, 9.0)),
    )
)
RECORD = {"colour": "green", "member": True, "score": 4.5}
CAMPAIGN = "0f" * 16


def plan(
    number: int = 0, epsilon: float = 2.0, names: tuple[str, ...] = SCHEMA.names, **more: Any
) -> Plan:
    asked = tuple(question(SCHEMA, [n], epsilon, "oue") for n in names)
    return Plan(number, asked, **({"shares": (1 / len(asked),) * len(asked)} | more))


def announce(asked: Plan | None, schema: Schema = SCHEMA, **more: Any) -> dict[str, Any]:
    return {
        "format": "dither-campaign-1",
        "campaign": CAMPAIGN,
        "name": "n",
        "state": "open" if asked else "collected",
        "epsilon": 2.0,
        "participation": "open",
        "schema": schema.to_json(),
        "schema_fingerprint": schema.fingerprint,
        "start": 0.0,
        "plan": asked.to_json() if asked else None,
        **more,
    }


class Collector:
    """A collector of the test's own: announces what it is told and answers uploads from a list.

    It keeps what it has acknowledged and says so when a device looks an id up, unless `lookups` has another answer.
    """

    def __init__(self, announced: dict[str, Any], *answers: int | Answer | None) -> None:
        self.announced = announced
        self.answers = list(answers)
        self.bodies: list[bytes] = []
        self.stored: set[bytes] = set()
        self.looked_up: list[bytes] = []
        self.lookups: list[Answer | None] = []

    def __call__(self, method: str, address: str, body: bytes | None) -> Answer:
        assert address.startswith(f"https://c.example/v1/campaigns/{CAMPAIGN}")
        if method == "GET":
            return Answer(200, json.dumps(self.announced).encode())
        assert body is not None
        if address.endswith("/lookup"):
            return self._look_up(body)
        self.bodies.append(body)
        answer = self.answers.pop(0) if self.answers else 201
        if answer is None:
            raise Unreachable("lost")
        if isinstance(answer, Answer):
            return answer
        if answer in (200, 201):
            self.stored |= self._ids(body)
            return stored(answer)
        return Answer(
            answer, b'{"title":"why"}', 7.0 if answer == 429 else None, "application/problem+json"
        )

    def _look_up(self, wanted: bytes) -> Answer:
        self.looked_up.append(wanted)
        answer = self.lookups.pop(0) if self.lookups else said(wanted in self.stored)
        if answer is None:
            raise Unreachable("lost")
        return answer

    def _ids(self, body: bytes) -> set[bytes]:
        envelope = decode(body)
        number = None if self.announced.get("assignment") == "arrival" else envelope.round
        return {report_id(report.token, envelope.campaign, number) for report in envelope.reports}


def said(is_stored: bool) -> Answer:
    """The collector's answer to a lookup."""
    return Answer(200, json.dumps({"stored": is_stored}).encode(), content_type="application/json")


def stored(status: int = 201) -> Answer:
    result = "stored" if status == 201 else "duplicate"
    return Answer(
        status, json.dumps({"results": [result]}).encode(), content_type="application/json"
    )


def problem(status: int, cause: str, **more: Any) -> Answer:
    body = {"type": f"urn:dither:problem:{cause}", "title": "why", "status": status, **more}
    return Answer(status, json.dumps(body).encode(), content_type="application/problem+json")


def participant(device: Device, collector: Transport, cap: float = 2.0, **more: Any) -> Participant:
    pauses = more.pop("pauses", [])
    return Participant(
        device,
        "https://c.example/",
        CAMPAIGN,
        cap=cap,
        transport=collector,
        sleep=pauses.append,
        **more,
    )
