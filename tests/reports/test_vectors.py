"""Golden vectors: the files are what this version writes, Python keeps them, and so does the browser's encoder."""

from __future__ import annotations

import gzip
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.programs import require
from tools.vectors import all_vectors, write_vectors

from dither.client import code_of, read_announcement, rounded_code
from dither.errors import DitherError
from dither.mechanisms import MECHANISMS, mechanism_from_json
from dither.reports import (
    Envelope,
    Report,
    decode,
    encode,
    is_asked,
    pick,
    place,
    plan_from_json,
    report_id,
    verdict,
)
from dither.schema import Schema, attribute_from_json

ROOT = Path(__file__).parents[2]
NAMES = ("mechanisms", "envelopes", "participation")
ONE_QUESTION = {"round": 0, "shares": [1.0], "split": False, "population": 1.0, "tally": "counts"}


def cases(name: str) -> list[dict[str, Any]]:
    return list(json.loads((ROOT / "vectors" / f"{name}.json").read_text())["cases"])


def keep(case: dict[str, Any]) -> None:  # noqa: PLR0912 (one branch for each kind of case)
    """Check one positive case, or do what a negative one says must fail."""
    kind = case["kind"]
    if "mechanism" in case:
        mechanism = mechanism_from_json(case["mechanism"])
        if kind == "odds":
            assert (float(mechanism.p), float(mechanism.q)) == (case["own"], case["other"])  # type: ignore[attr-defined]
        elif kind == "refuse-report":
            mechanism.check_report(bytes.fromhex(case["report"]))
        elif kind == "refuse-value":
            mechanism.randomise(case["value"], bytes)
        elif kind == "randomise":
            draws = bytes.fromhex(case["random"])
            report = mechanism.randomise(case["value"], lambda count: draws[:count])
            assert (report.hex(), mechanism.epsilon, len(draws)) == (
                case["report"],
                case["epsilon"],
                mechanism.draw_bytes,
            )
            mechanism.check_report(report)
    elif "reports" in case:
        reports = tuple(
            Report(bytes.fromhex(r["token"]), r["question"], bytes.fromhex(r["payload"]))
            for r in case["reports"]
        )
        envelope = Envelope(bytes.fromhex(case["campaign"]), case["round"], reports)
        data = encode(envelope)
        assert data.hex() == case["bytes"]
        assert decode(data) == envelope
    elif kind == "assign":
        token, campaign, plan = (
            bytes.fromhex(case["token"]),
            bytes.fromhex(case["campaign"]),
            plan_from_json(case["plan"]),
        )
        assert place(token, campaign) == case["place"]
        assert is_asked(token, campaign, case["start"], plan.population) is case["asked"]
        assert pick(token, campaign, plan) == case["question"]
        assert report_id(token, campaign, plan.round).hex() == case["report_id"]
        assert report_id(token, campaign, None).hex() == case["only_report_id"]
        assert plan.epsilon == case["epsilon"]
    elif kind == "code":
        assert code_of(attribute_from_json("a", case["attribute"]), case["value"]) == case["code"]
    elif kind == "level":
        attribute = attribute_from_json("a", case["attribute"])
        assert rounded_code(attribute, case["value"], case["levels"], case["draw"]) == case["level"]
    elif kind == "cell":
        schema = Schema(tuple(attribute_from_json(a["name"], a) for a in case["attributes"]))
        question = plan_from_json({**ONE_QUESTION, "questions": [case["question"]]}).questions[0]
        assert question.cell(schema, [case["codes"][name] for name in schema.names]) == case["cell"]
    elif kind == "verdict":
        assert verdict(case["status"], case["content_type"], case["body"].encode()) == case["means"]
    elif kind == "refuse-announcement":
        read_announcement(case["text"].encode())
    else:
        announcement = read_announcement(case["text"].encode())
        assert announcement.schema.fingerprint == case["fingerprint"]
        assert (0.0 if announcement.plan is None else announcement.plan.epsilon) == case["epsilon"]


@pytest.mark.parametrize("name", NAMES)
def test_python_keeps_every_vector(name: str) -> None:
    for number, case in enumerate(cases(name)):
        if case["kind"].startswith("refuse"):
            with pytest.raises(DitherError):
                keep({**case, "number": number, "file": name})
        else:
            keep(case)


@pytest.mark.parametrize("name", NAMES)
def test_a_quarter_or_more_is_negative_and_every_mechanism_is_there(name: str) -> None:
    listed = cases(name)
    assert 4 * sum(c["kind"].startswith("refuse") for c in listed) >= len(listed)
    if name == "mechanisms":
        found = {c["mechanism"]["name"] for c in listed if c["kind"] == "randomise"}
        assert found == set(MECHANISMS)


def test_the_files_are_what_this_version_writes(tmp_path: Path) -> None:
    write_vectors(tmp_path)
    for name in NAMES:
        assert (tmp_path / f"{name}.json").read_bytes() == (
            ROOT / "vectors" / f"{name}.json"
        ).read_bytes()
    assert all_vectors() == all_vectors()


@pytest.mark.slow
def test_the_browsers_encoder_keeps_every_vector() -> None:
    node = require(shutil.which("node"), "Node")
    done = subprocess.run(
        [node, "--test"], cwd=ROOT / "js", capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stdout
    written = sum(path.read_text().count("\ntest(") for path in (ROOT / "js").glob("*.test.js"))
    assert f"# pass {written + len(NAMES)}" in done.stdout, "every test of every file has run"


def test_the_browsers_encoder_is_small_and_stands_alone() -> None:
    source = (ROOT / "js" / "dither.js").read_bytes()
    assert len(gzip.compress(source, 9)) <= 22_000
    text = source.decode()
    assert "import " not in text
    assert "require(" not in text
    assert "Math.random" not in text
    assert "crypto.getRandomValues" in text
