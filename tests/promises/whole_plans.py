"""Generated announcements of whole campaigns, and records to answer them: what a hostile server could show a device.

Nothing here checks that a plan is one a device should accept: plans are written as JSON, question by question, so that
combinations which the project's own code would never build are generated as well.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import strategies as st

from dither.errors import DitherError
from dither.mechanisms import GRR, BloomRappor, SetStrategy, SquareWave, mechanism, oue
from dither.schema import Attribute, Schema

CAMPAIGN = "5a" * 16
MECHANISM_NAMES = (
    "grr",
    "sue",
    "oue",
    "olh",
    "subset",
    "bloom",
    "hadamard",
    "square-wave",
    "strategy",
)
ATTRIBUTES = (
    Attribute("income", "numeric", edges=(0.0, 10.0, 20.0, 250.0)),
    Attribute("income", "numeric", edges=(0.0, 10.0, 250.0), clip=True, atoms=(0.0, 40.0)),
    Attribute("income", "numeric", edges=(0.0, 100.0, 250.0), missing=True, groups=("low", "high")),
    Attribute("sex", "boolean", (False, True)),
    Attribute("sex", "categorical", ("f", "m", "x"), missing=True),
    Attribute("city", "categorical", ("Leeds", "York", "Bath", "Ely"), groups=("N", "N", "S", "S")),
    Attribute(
        "city", "categorical", ("Leeds", "York", "Bath"), missing=True, groups=("N", "S", "N")
    ),
    Attribute("grade", "ordinal", (1, 2, 3.5, "4")),
    Attribute("stay", "duration", edges=(0.0, 60.0, 3600.0), groups=("short", "long")),
    Attribute("day", "date", edges=(19723.0, 19754.0, 19783.0), cycles=("weekday",)),
    Attribute("at", "datetime", edges=(1704067200.0, 1706745600.0), cycles=("hour",), missing=True),
)
# Values of every type that JSON has, most of them outside the domains. Both clients read them.
STRANGE: tuple[Any, ...] = (
    0,
    1,
    True,
    False,
    None,
    -1,
    1e300,
    "",
    "x",
    "\u2603",
    [],
    [1],
    {},
    {"income": 1},
)
INSIDE: dict[str, tuple[Any, ...]] = {
    "income": (0, 3.5, 10, 40, 130, 250),
    "sex": ("f", "m", "x"),
    "city": ("Leeds", "York", "Bath", "Ely"),
    "grade": (2, 3.5, "4"),
    "stay": (30, 60, 3599, 3600),
    "day": ("2024-01-15", "2024-02-28", "2024-02-30"),
    "at": ("2024-01-15T12:30:00", "2024-01-31"),
}


@dataclass(frozen=True)
class Campaign:
    """What one server announces over time: one text for each visit of the device."""

    announcements: tuple[str, ...]
    cap: float


def build_mechanism(name: str, cells: int, epsilon: float) -> dict[str, Any]:
    """The numbers of a mechanism by name; of optimised unary encoding where the named one cannot be built."""
    try:
        if name == "square-wave":
            made: Any = SquareWave.for_epsilon(cells, epsilon)
        elif name == "strategy":
            sets = [1 << cell for cell in range(cells)]
            made = SetStrategy.for_epsilon(cells, sets, [1 / (2 * cells)] * cells, epsilon)
        elif name == "bloom":
            made = BloomRappor.for_epsilon(cells, epsilon, 24, 2)
        else:
            made = mechanism(name, cells, epsilon)
    except DitherError:
        made = oue(cells, epsilon)
    return dict(made.to_json())


@st.composite
def schemas(draw: st.DrawFn) -> Schema:
    names = draw(
        st.lists(
            st.sampled_from(sorted({a.name for a in ATTRIBUTES})),
            min_size=2,
            max_size=3,
            unique=True,
        )
    )
    chosen = [draw(st.sampled_from([a for a in ATTRIBUTES if a.name == name])) for name in names]
    return Schema(tuple(chosen))


@st.composite
def questions(draw: st.DrawFn, schema: Schema) -> dict[str, Any]:
    """One question that fits the schema; it may round a number or ask for groups."""
    names = draw(st.lists(st.sampled_from(schema.names), min_size=1, max_size=2, unique=True))
    form = draw(st.sampled_from(["plain", "grouped", "rounded"]))
    numbers = [a.name for a in schema if a.kind in ("numeric", "duration") and not a.missing]
    grouped = [n for n in names if schema[n].groups]
    question: dict[str, Any] = {}
    if form == "rounded" and numbers:
        names, cells = numbers[:1], draw(st.sampled_from([2, 3, 5, 17, 257]))
        question["rounded"] = True
    else:
        grouped = grouped if form == "grouped" else []
        cells = 1
        for name in names:
            attribute = schema[name]
            groups = len(attribute.group_names) + int(attribute.missing)
            cells *= groups if name in grouped else attribute.cardinality
        if grouped:
            question["grouped"] = grouped
    made = build_mechanism(
        draw(st.sampled_from(MECHANISM_NAMES)), cells, draw(st.sampled_from([0.1, 0.5, 1.5]))
    )
    return {"attributes": names, "mechanism": made, **question}


@st.composite
def campaigns(draw: st.DrawFn) -> Campaign:
    """Announcements of one campaign, in the order in which the device sees them."""
    schema = draw(schemas())
    assignment = draw(st.sampled_from(["token", "arrival"]))
    texts = []
    for visit in range(draw(st.integers(1, 3))):
        # A set of attributes asked twice is refused whatever else a split plan holds, so it is rarely generated.
        distinct = draw(st.integers(0, 7)) > 0
        by_names = (lambda question: frozenset(question["attributes"])) if distinct else id
        asked = draw(st.lists(questions(schema), min_size=1, max_size=4, unique_by=by_names))
        split = draw(st.sampled_from([True, True, False]))
        plan = {
            "round": draw(st.sampled_from([visit, 0])),
            "questions": asked,
            "shares": [] if split else [1 / len(asked)] * len(asked),
            "split": split,
            "population": draw(st.sampled_from([1.0, 0.5])),
            "tally": draw(st.sampled_from(["counts", "patterns"])) if split else "counts",
        }
        texts.append(announce(schema, plan, assignment))
    return Campaign(tuple(texts), draw(st.sampled_from([0.5, 5.0, 40.0])))


def announce(schema: Schema, plan: dict[str, Any], assignment: str = "token") -> str:
    """The text of an announcement."""
    body = {
        "format": "dither-campaign-1",
        "campaign": CAMPAIGN,
        "name": "n",
        "state": "open",
        "epsilon": 20.0,
        "participation": "open",
        "schema": schema.to_json(),
        "schema_fingerprint": schema.fingerprint,
        "start": 0.0,
        "plan": plan,
        "assignment": assignment,
    }
    return json.dumps(body)


records = st.fixed_dictionaries(
    {},
    optional={
        **{
            name: st.sampled_from(values) | st.sampled_from(STRANGE)
            for name, values in INSIDE.items()
        },
        "__proto__": st.sampled_from(STRANGE),
    },
)


def rounded_and_joint() -> Campaign:
    """The announcement with which a server read numbers off devices: income rounded, and once more in a pair."""
    income = Attribute("income", "numeric", edges=(0.0, 5e5, 1e6))
    schema = Schema((income, Attribute("sex", "boolean", (False, True))))
    asked = [
        {
            "attributes": ["income"],
            "mechanism": GRR.for_epsilon(257, 1e-3).to_json(),
            "rounded": True,
        },
        {"attributes": ["income", "sex"], "mechanism": GRR.for_epsilon(4, 1e-3).to_json()},
    ]
    plan = {
        "round": 0,
        "questions": asked,
        "shares": [],
        "split": True,
        "population": 1.0,
        "tally": "counts",
    }
    return Campaign((announce(schema, plan),), 1.0)


def grouped_and_joint() -> Campaign:
    """The same with a number in groups."""
    schema = Schema(
        (replace(ATTRIBUTES[2], missing=False), Attribute("sex", "boolean", (False, True)))
    )
    asked = [
        {
            "attributes": ["income"],
            "mechanism": GRR.for_epsilon(257, 1e-3).to_json(),
            "rounded": True,
        },
        {
            "attributes": ["sex", "income"],
            "mechanism": GRR.for_epsilon(4, 1e-3).to_json(),
            "grouped": ["income"],
        },
    ]
    plan = {
        "round": 0,
        "questions": asked,
        "shares": [],
        "split": True,
        "population": 1.0,
        "tally": "counts",
    }
    return Campaign((announce(schema, plan),), 1.0)
