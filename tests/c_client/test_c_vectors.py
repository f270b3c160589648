"""The C client gives the bytes of the golden vectors, of Python's reports, and refuses what Python refuses."""

from __future__ import annotations

import copy
import hashlib
import json
import random
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dither.client import encode_answer, read_announcement
from dither.errors import DitherError
from dither.mechanisms import (
    GRR,
    BloomRappor,
    Hadamard,
    LocalHash,
    Mechanism,
    SetStrategy,
    SquareWave,
    SubsetSelection,
    oue,
    sue,
)
from dither.reports import Envelope, Plan, Question, Report, encode, pick
from dither.schema import Attribute, Schema

Case = dict[str, Any]
VECTORS = Path(__file__).parents[2] / "vectors"
# The reports of each mechanism and every way to refuse have their vectors.
LEAST = {"mechanisms": 586, "envelopes": 17, "participation": 691}

pytestmark = pytest.mark.slow  # a build with sanitizers takes seconds


def vectors(name: str) -> list[Case]:
    """The cases of a file, without the probabilities that only pages show."""
    cases = json.loads((VECTORS / f"{name}.json").read_text(encoding="ascii"))["cases"]
    return [case for case in cases if case["kind"] != "odds"]


def check(runner: Path, folder: Path, cases: list[Case]) -> subprocess.CompletedProcess[str]:
    """Run the cases in C."""
    path = folder / "cases.json"
    path.write_text(json.dumps({"format": "dither-vectors-1", "cases": cases}), encoding="ascii")
    return subprocess.run(
        [str(runner), str(path)], capture_output=True, text=True, check=False, timeout=120
    )


def assert_all_hold(runner: Path, folder: Path, cases: list[Case]) -> None:
    done = check(runner, folder, cases)
    assert (done.returncode, done.stdout, done.stderr) == (
        0,
        f"{len(cases)} cases hold, 0 do not\n",
        "",
    )


@pytest.mark.parametrize("name", sorted(LEAST))
def test_the_vectors_hold(name: str, runner: Path, tmp_path: Path) -> None:
    cases = vectors(name)
    assert len(cases) >= LEAST[name]
    assert_all_hold(runner, tmp_path, cases)


def test_the_runner_notices_a_wrong_case_of_every_kind(runner: Path, tmp_path: Path) -> None:
    wrong: dict[str, Case] = {}
    for name in LEAST:
        for case in vectors(name):
            wrong.setdefault(case["kind"], case)
    good = wrong["randomise"]
    first = good["report"]
    changes: dict[str, Case] = {
        "randomise": {"report": f"{int(first[0], 16) ^ 1:x}{first[1:]}"},
        "refuse-mechanism": {"mechanism": good["mechanism"]},
        "refuse-report": {"mechanism": good["mechanism"], "report": first},
        "refuse-value": {"value": 0},
        "envelope": {"round": 77},
        "refuse-envelope": {"campaign": "00" * 16},
        "assign": {"place": 0.5},
        "announcement": {"fingerprint": "00" * 32},
        "refuse-announcement": {"text": wrong["announcement"]["text"]},
        "code": {"code": 7},
        "level": {"level": 7},
        "cell": {"cell": 77},
        "verdict": {"means": "refused"},
    }
    assert set(changes) == set(wrong)
    for kind, change in changes.items():
        done = check(runner, tmp_path, [wrong[kind] | change])
        assert done.returncode == 1, kind
        assert done.stdout.startswith(f"case 0 of kind {kind} does not hold"), done.stdout
        assert done.stderr == ""


# Whole reports.

SCHEMA = Schema(
    (
        Attribute("colour", "categorical", ("red", "grün", 3, True), missing=True),
        Attribute("member", "boolean", (False, True)),
        Attribute(
            "pay", "numeric", edges=(0.0, 10.0, 250.0), atoms=(0.0, 99.5), unit=0.5, clip=True
        ),
        Attribute("stay", "duration", edges=(0.0, 60.0, 3600.0)),
        Attribute("day", "date", edges=(19723.0, 19754.0, 19783.0), cycles=("weekday",)),
        Attribute(
            "at",
            "datetime",
            edges=(1704067200.0, 1706745600.0),
            cycles=("weekday", "hour"),
            missing=True,
        ),
        Attribute(
            "city",
            "ordinal",
            ("Leeds", "Bath", "York"),
            missing=True,
            groups=("North", "South", "North"),
        ),
    )
)
VALUES: dict[str, list[object]] = {
    "colour": ["red", "grün", 3, 3.0, True, 1, None, "pink", [], "3"],
    "member": [True, False, 0, 1, 2, "true", None],
    "pay": [0, 0.5, 99.5, 10, 250, 1e9, -3, "10", None, True],
    "stay": [0, 59.9, 60, 3600, 3601, None, 17],
    "day": ["2024-01-31", "2024-02-29", "2024-02-30", "2024-01-31T23:30:00-01:00", 5, None],
    "at": ["2024-01-15T12:30:00.5Z", "2024-01-15 23:59", "2025-01-01", None, "now"],
    "city": ["Leeds", "Bath", "York", "Rome", None],
}


def question(names: tuple[str, ...], kind: str, epsilon: float, grouped: str = "") -> Question:
    cells = 1
    for name in names:
        attribute = SCHEMA[name]
        groups = len(attribute.group_names) + attribute.missing
        cells *= groups if name == grouped else attribute.cardinality
    return Question(names, mechanism(kind, cells, epsilon), (grouped,) if grouped else ())


def mechanism(kind: str, cells: int, epsilon: float) -> Mechanism:
    if kind == "grr":
        return GRR.for_epsilon(cells, epsilon)
    if kind == "olh":
        return LocalHash.for_epsilon(cells, epsilon)
    if kind == "bloom":
        return BloomRappor.for_epsilon(cells, epsilon, 3 * cells + 4, 3, seed=cells)
    if kind == "subset":
        return SubsetSelection.for_epsilon(cells, epsilon, size=2)
    if kind == "hadamard":
        return Hadamard.for_one(cells, epsilon)
    if kind == "square-wave":
        return SquareWave.for_epsilon(cells, epsilon)
    if kind == "strategy":
        sets = [1 << cell for cell in range(cells)]
        return SetStrategy.for_epsilon(cells, sets, [0.5 / cells] * cells, epsilon)
    return (sue if kind == "sue" else oue)(cells, epsilon)


def plans() -> Iterator[Plan]:
    singles = [
        question((name,), kind, 0.5)
        for name, kind in zip(
            SCHEMA.names, ("grr", "oue", "olh", "bloom", "sue", "olh", "grr"), strict=True
        )
    ]
    pairs = [
        question(("city", "pay"), "oue", 1.0, "city"),
        question(("member", "city"), "grr", 1.0, "city"),
        question(("at", "colour", "member"), "olh", 1.0),
        question(("colour", "day"), "bloom", 1.0),
    ]
    rounded = [
        Question(("pay",), GRR.for_epsilon(257, 1.0), rounded=True),
        Question(("stay",), oue(17, 1.0), rounded=True),
    ]
    yield Plan(0, tuple(singles), split=True, tally="patterns")
    yield Plan(3, (*singles, *pairs, *rounded), tuple([1 / 13] * 13))
    yield Plan(
        65535, (pairs[1], pairs[3], rounded[0], rounded[1], singles[5]), split=True, population=0.5
    )
    yield Plan(1, tuple(pairs), (0.0, 0.5, 0.0, 0.5), population=0.25)
    kinds = ("subset", "hadamard", "square-wave", "strategy", "subset", "hadamard", "strategy")
    rest = [question((name,), kind, 0.5) for name, kind in zip(SCHEMA.names, kinds, strict=True)]
    wave = Question(("stay",), SquareWave.for_epsilon(257, 1.0), rounded=True)
    yield Plan(0, (*rest[:3], *rest[4:], wave), split=True)
    yield Plan(5, tuple(rest), tuple([1 / 7] * 7))


def announced(plan: Plan, assignment: str) -> str:
    return json.dumps(
        {
            "format": "dither-campaign-1",
            "campaign": bytes(range(16)).hex(),
            "name": "",
            "state": "open",
            "epsilon": 9.0,
            "participation": "open",
            "assignment": assignment,
            "schema": SCHEMA.to_json(),
            "schema_fingerprint": SCHEMA.fingerprint,
            "start": 0.25,
            "plan": plan.to_json(),
        }
    )


def answer_case(text: str, number: int, randomness: random.Random) -> Case:
    """A whole report as Python makes it, from bytes that both clients read."""
    announcement = read_announcement(text.encode())
    plan = announcement.plan
    assert plan is not None
    token = hashlib.sha256(f"{number}".encode()).digest()
    record = {name: randomness.choice(values) for name, values in VALUES.items()}
    del record[randomness.choice(SCHEMA.names)]
    stream, used = hashlib.shake_256(token).digest(65536), 0

    def source(count: int) -> bytes:
        nonlocal used
        used += count
        return stream[used - count : used]

    envelope = b""
    if announcement.asks(token):
        picked = pick(token, announcement.campaign, plan)
        asked = plan.questions if picked == -1 else (plan.questions[picked],)
        payload = b""
        for each in asked:
            cell = encode_answer(announcement.schema, each, record, source).cell
            payload += each.mechanism.randomise(cell, source)
        report = Report(token, picked, payload)
        envelope = encode(Envelope(announcement.campaign, plan.round, (report,)))
    return {
        "kind": "answer",
        "text": text,
        "token": token.hex(),
        "record": record,
        "random": stream[: used + 8].hex(),
        "envelope": envelope.hex(),
        "used": used,
    }


def test_whole_reports_are_the_bytes_that_python_makes(runner: Path, tmp_path: Path) -> None:
    randomness = random.Random(7)  # noqa: S311 - records, not noise
    cases = [
        answer_case(announced(plan, assignment), number, randomness)
        for plan in plans()
        for assignment in ("token", "arrival")
        for number in range(40)
    ]
    answered = [case for case in cases if case["envelope"]]
    assert len(cases) / 2 < len(answered) < len(cases), "some are not asked"
    assert_all_hold(runner, tmp_path, cases)
    changed = answered[0] | {"record": {"colour": "red"}, "used": answered[0]["used"] + 1}
    assert check(runner, tmp_path, [changed]).returncode == 1


# Announcements that no vector has.

_VALUES = (
    *(None, True, False, 0, 1, -1, 0.5, 1e300, -0.0, 2**53, 2**53 - 1, 2**63, 3, 8, 1.0, "", "a"),
    *("2024-01-01", "2024-02-30", "2024-01-01T00:00:00", "\ud800", "a\nb", [], {}, [1], ["a"]),
)
_KEYS = ("missing", "clip", "groups", "atoms", "unit", "cycles", "edges", "values", "labels")


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    entries = value.items() if isinstance(value, dict) else enumerate(value)
    for key, entry in entries:
        yield (*path, key)
        if isinstance(entry, (dict, list)):
            yield from places(entry, (*path, key))


def damage(body: Case, randomness: random.Random) -> Case:
    """Change one place of an announcement."""
    body = copy.deepcopy(body)
    path = randomness.choice(list(places(body)))
    parent: Any = body
    for key in path[:-1]:
        parent = parent[key]
    way = randomness.random()
    if way < 0.5:
        parent[path[-1]] = copy.deepcopy(randomness.choice(_VALUES))
    elif way < 0.7:
        del parent[path[-1]]
    elif isinstance(parent, list):
        parent.insert(0, copy.deepcopy(randomness.choice(parent)))
    elif "kind" in parent:
        parent[randomness.choice(_KEYS)] = copy.deepcopy(randomness.choice(_VALUES))
    return body


def coded_fingerprint(schema: Any) -> str:
    """The fingerprint of a schema, if it has attributes to leave texts out of."""
    try:
        coded = [
            {
                key: value
                for key, value in entry.items()
                if key not in ("question", "help", "labels")
            }
            for entry in schema["attributes"]
        ]
        text = json.dumps(schema | {"attributes": coded}, sort_keys=True, separators=(",", ":"))
    except (AttributeError, KeyError, TypeError):
        return ""
    return hashlib.sha256(text.encode()).hexdigest()


def judged(text: str) -> Case:
    """The case that says what Python makes of an announcement."""
    try:
        read = read_announcement(text.encode())
    except DitherError as error:
        return {"kind": "refuse-announcement", "text": text, "why": ascii(str(error))[:200]}
    epsilon = 0.0 if read.plan is None else read.plan.epsilon
    fingerprint = read.schema.fingerprint
    return {"kind": "announcement", "text": text, "fingerprint": fingerprint, "epsilon": epsilon}


def has_whole_atoms(body: Case) -> bool:
    """Whether atoms are written without a point, which only Python takes for another form."""
    attributes = body["schema"].get("attributes") if isinstance(body.get("schema"), dict) else None
    listed = attributes if isinstance(attributes, list) else []
    atoms = [entry.get("atoms") for entry in listed if isinstance(entry, dict)]
    return any(isinstance(part, list) and any(type(n) is int for n in part) for part in atoms)


def test_damaged_announcements_are_judged_as_python_judges_them(
    runner: Path, tmp_path: Path
) -> None:
    randomness = random.Random(11)  # noqa: S311 - damage, not noise
    bodies = [json.loads(announced(plan, "token")) for plan in plans()]
    cases: list[Case] = []
    while len(cases) < 700:
        body = damage(randomness.choice(bodies), randomness)
        if randomness.random() < 0.7 and isinstance(body.get("schema"), dict):
            body["schema_fingerprint"] = coded_fingerprint(body["schema"])
        text = json.dumps(body)
        if len(cases) % 5 == 0:  # damage that may leave no JSON
            at = randomness.randrange(len(text))
            text = text[:at] + randomness.choice('{}[]",:.0e+-\\u ') + text[at + 1 :]
        elif has_whole_atoms(body):
            continue
        cases.append(judged(text))
    accepted = [case for case in cases if case["kind"] == "announcement"]
    assert 30 < len(accepted) < 400
    assert_all_hold(runner, tmp_path, cases)
