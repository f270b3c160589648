"""The call that made a release: every option that can change it, in one record, and how to make it again from that alone."""

from __future__ import annotations

import inspect
import math
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dither.reports import Plan
from dither.schema import Schema
from dither.types import JsonMapping, JsonObject

_WORDS = ("name", "title", "purpose", "epsilon_reason", "contact")  # what a campaign says of itself
_ENDS = ("closes", "closes_at_reports")
_OF_CAMPAIGNS = (
    *_WORDS,
    *_ENDS,
    "assignment",
    "participants",
    "participation",
    "campaign",
    "created",
    "finalised",
)
_NOT_OF_PUBLISH = ("simulated", "record", *_OF_CAMPAIGNS)
_LISTS = ("columns", "drop", "keep", "missing")
OWN_SCHEMA = "schema.json"  # a schema that was given as an object: every release folder has it under this name


@dataclass(frozen=True)
class Call:
    """What was asked for. Fields have the names of the arguments of `publish`; a collection has no table, population or path, but
    the rest of what its campaign was created with: `name`, `title`, `purpose`, `epsilon_reason`, `contact`, when it was to close,
    expected `participants`, `participation`; and its id (`campaign`) and the days on which it was created and finalised.

    `schema` is the file that was given, if any; `prior` the public table, if any (of a collection: when it was finalised); `rows`
    None for as many as participants. `seed` is what the caller of a simulation gave, if anything; of a collection it is the seed
    of the fit, which nobody's noise uses. `record` holds every argument of a call of `histogram`, `several_values` or
    `central_release` (see `recorded`); a call of `publish` has none.
    """

    epsilon: float
    method: str
    table: str | None = None
    schema: str | None = None
    population: int | None = None
    rows: int | None = None
    seed: int | None = None
    parameters: JsonMapping = field(default_factory=dict)
    path: str = "counts"
    unknown: str = "error"
    no_privacy: bool = False
    holdout: float = 0.0
    replicates: int = 0
    prior: str | None = None
    simulated: bool = False
    name: str = ""
    participants: int | None = None
    participation: str = "open"
    columns: Sequence[str] | None = None
    drop: Sequence[str] = ()
    keep: Sequence[str] = ()
    delimiter: str | None = None
    encoding: str | None = None
    decimal: str | None = None
    missing: Sequence[str] | None = None
    campaign: str = ""
    created: str = ""
    finalised: str = ""
    title: str = ""
    purpose: str = ""
    contact: str = ""
    closes: str | None = None
    closes_at_reports: int | None = None
    assignment: str = "token"
    epsilon_reason: str = ""
    record: JsonMapping | None = None

    @property
    def replayable(self) -> bool:
        """Whether somebody who knows the seed can draw the same noise again: only in a simulation that was given one."""
        return self.simulated and not self.no_privacy and self.seed is not None

    def to_json(self) -> JsonObject:
        """Plain values; epsilon is null where there is none."""
        return {**asdict(self), "epsilon": None if self.no_privacy else self.epsilon}

    def given(self) -> JsonObject:
        """Every option of a simulation that differs from its default, except the table: what a rerun has to state."""
        own = {
            f.name: getattr(self, f.name)
            for f in fields(self)
            if f.name not in ("table", *_NOT_OF_PUBLISH)
        }
        defaults = {f.name: {} if f.default is MISSING else f.default for f in fields(self)}
        out = {
            name: value
            for name, value in own.items()
            if name == "method" or value != defaults[name]
        }
        if self.no_privacy:
            del out["epsilon"]
        if "parameters" in out:
            out["parameters"] = {
                key: value for key, value in self.parameters.items() if value is not None
            }
        return out


def call_from_json(data: JsonMapping) -> Call:
    """The inverse of `Call.to_json`; an unknown option is an error."""
    epsilon = float("inf") if data["no_privacy"] else float(data["epsilon"])
    lists = {key: tuple(map(str, data[key])) for key in _LISTS if data.get(key) is not None}
    call = Call(**{**data, **lists, "epsilon": epsilon})
    if not isinstance(call.parameters, Mapping) or not isinstance(call.table, str | None):
        raise ValueError(
            "call has a table that is no name, or parameters that are no table of names and values"
        )
    check_record(call.record)
    return call


def recorded_call(record: JsonMapping, **facts: Any) -> Call:
    """The call of a simulation by `histogram`, `several_values` or `central_release`."""
    return Call(table=record.get("table"), simulated=True, record=record, **facts)


def command(call: Call) -> str | None:
    """The command line of a simulation that makes the same release from the same table, or one like it with noise of its own.

    None if the table has no name, or the command line cannot express the call.
    """
    if call.record is not None:
        return command_again(call.record)
    table = call.table or "TABLE"
    if table.startswith("-"):
        table = f"./{table}"  # a file, not an option
    return shlex.join(["dither", "publish", table, *_options(call.given()), "-o", "out"])


def campaign_command(call: Call, participants: int) -> str:
    """The commands that ask other people the same, with the schema of the release's folder, and make a release of their answers.

    All that the campaign was created and finalised with is in them, unless the commands take it for granted themselves; as many
    people are expected as were before, or `participants` if the record does not say.
    """
    asked: JsonObject = {
        "schema": OWN_SCHEMA,
        "epsilon": call.epsilon,
        "participants": call.participants or participants,
        "method": call.method,
        "holdout": call.holdout,  # always: the command holds some out unless it is told not to
    }
    asked |= {name: value for name in (*_WORDS, *_ENDS) if (value := getattr(call, name))}
    asked |= {
        "assignment": call.assignment
    }  # always: earlier versions took another one for granted
    asked |= {name: value for name, value in call.given().items() if name in ("seed", "parameters")}
    if call.participation == "tokens":
        asked |= {"tokens": asked["participants"], "tokens_file": "tokens.txt"}
    create = ["dither", "campaign", "create", *_options(asked)]
    wanted = {"rows": call.rows, "replicates": call.replicates or None, "prior": call.prior}
    made = _options({name: value for name, value in wanted.items() if value is not None})
    return f"{shlex.join(create)}\n{shlex.join(['dither', 'campaign', 'finalise', 'CAMPAIGN', *made, '-o', 'out'])}"


def python_code(call: Call) -> str:
    """The simulation in Python."""
    if call.record is not None:
        return python_again(call.record)
    given = call.given()
    if call.no_privacy:
        given = {"epsilon": 1.0, **given}  # of no effect, but asked for
    return _python("publish", repr(call.table or "TABLE"), given)


def _python(function: str, data: str, given: JsonMapping) -> str:
    inside = ",\n    ".join([data, *(f"{name}={value!r}" for name, value in given.items())])
    return f'import dither\n\nrelease = dither.{function}(\n    {inside},\n)\nrelease.save("out")'


NEVER_RECORDED = ("name", "attribute", "clock", "progress")  # of no effect on what is released
COMMANDS = {"histogram": "histogram", "central_release": "central"}


def recorded(function: Callable[..., object], given: Mapping[str, Any]) -> JsonObject:
    """The record of a histogram's or a curator's call: the function's name and every argument, plain; data only by its name."""
    data, *options = inspect.signature(function).parameters
    named = {data: str(given[data])} if isinstance(given[data], (str, Path)) else {}
    return {
        "function": function.__name__,
        **named,
        **{name: plain(given[name]) for name in options if name not in NEVER_RECORDED},
    }


def check_record(call: object) -> None:
    """Raise an error unless a manifest's `call` is such a record, or none was kept."""
    if call is None:
        return
    if not (isinstance(call, dict) and isinstance(call.get("function"), str)):
        raise ValueError(f"call must name its function, not {call!r}")
    command_again(call)
    python_again(call)


def command_again(call: JsonMapping) -> str | None:
    """The command line of such a record; None if its table has no name, or the command line cannot say all of it."""
    given = {
        name: value for name, value in call.items() if value is not None and value is not False
    }
    name, table, consumers = (
        COMMANDS.get(given.pop("function")),
        given.pop("table", None),
        given.pop("consumers", []),
    )
    bins, edges = (
        [entry for entry in consumers if isinstance(entry, kind)] for kind in (int, list)
    )
    unsaid = any("," in column or column != column.strip() for column in given.get("columns", ()))
    if name is None or table is None or consumers != bins + edges or unsaid:
        return None
    words = _options(given | ({"bins": bins} if bins else {}))
    words += [word for own in edges for word in ("--edges", _text(own))]
    return shlex.join(
        ["dither", name, f"./{table}" if table.startswith("-") else table, *words, "-o", "out"]
    )


def python_again(call: JsonMapping) -> str:
    """The same in Python; data without a name are called `values` or `table`."""
    given = {
        name: value
        for name, value in call.items()
        if value is not None and name not in ("function", "column")
    }
    table = given.pop("table", None)
    data = "table" if call["function"] == "central_release" else "values"
    return _python(call["function"], repr(table) if table and data == "table" else data, given)


def plain(value: Any) -> Any:
    """A value as JSON can hold it: NumPy scalars and arrays, tuples, sets and small records become plain numbers and lists."""
    if isinstance(value, Schema):
        return OWN_SCHEMA
    if is_dataclass(value) and not isinstance(value, type):
        value = asdict(value)
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, np.generic):
        return plain(value.item())
    if hasattr(value, "tolist"):  # an array, or a column of a table
        return plain(value.tolist())
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        return [plain(item) for item in value]
    if isinstance(value, (set, frozenset)):
        return sorted((plain(item) for item in value), key=str)
    if isinstance(value, float) and not math.isfinite(value):
        return None  # JSON has no infinity
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    return str(value)


def _options(given: JsonMapping) -> list[str]:
    words = []
    for name, value in given.items():
        if name == "parameters":
            words += [
                word for key, item in value.items() for word in ("--set", f"{key}={_text(item)}")
            ]
        elif value is True:
            words.append(_flag(name))
        else:
            words += [_flag(name), _text(value)]
    return words


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return repr(float(value)).removesuffix(".0")
    if isinstance(value, (list, tuple)):
        return ",".join(map(str, value))
    return str(value)


@dataclass(frozen=True)
class AskedRound:
    """One round's questions: how many of each number of attributes, the mechanisms, and what one participant sends."""

    round: int
    sizes: Mapping[int, int]
    mechanisms: Mapping[str, int]
    report_bytes: int
    epsilon: float
    split: bool
    population: float

    def to_json(self) -> JsonObject:
        """Plain JSON values."""
        return {
            "round": self.round,
            "questions_by_size": {str(size): count for size, count in self.sizes.items()},
            "mechanisms": dict(self.mechanisms),
            "report_bytes": self.report_bytes,
            "epsilon": self.epsilon,
            "split": self.split,
            "population": self.population,
        }


def asked_in(plans: Iterable[Plan]) -> tuple[AskedRound, ...]:
    """The summary of the plans of a campaign; report bytes are the longest report's."""
    return tuple(_asked(plan) for plan in plans)


def asked_from_json(data: Iterable[JsonMapping]) -> tuple[AskedRound, ...]:
    """The inverse of `AskedRound.to_json`."""
    return tuple(
        AskedRound(
            round=int(entry["round"]),
            sizes={int(size): int(count) for size, count in entry["questions_by_size"].items()},
            mechanisms={str(name): int(count) for name, count in entry["mechanisms"].items()},
            report_bytes=int(entry["report_bytes"]),
            epsilon=float(entry["epsilon"]),
            split=bool(entry["split"]),
            population=float(entry["population"]),
        )
        for entry in data
    )


def _asked(plan: Plan) -> AskedRound:
    lengths = [q.mechanism.report_bytes for q in plan.questions]
    return AskedRound(
        round=plan.round,
        sizes=dict(sorted(Counter(len(q.attributes) for q in plan.questions).items())),
        mechanisms=dict(sorted(Counter(q.mechanism.name for q in plan.questions).items())),
        report_bytes=sum(lengths) if plan.split else max(lengths),
        epsilon=plan.epsilon,
        split=plan.split,
        population=plan.population,
    )
