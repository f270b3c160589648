"""The call that made a release: all its options in one record, and the command that repeats it."""

from __future__ import annotations

import inspect
import math
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np

from dither.checks import check_choice, check_whole, check_whole_or_none
from dither.mechanisms import check_epsilon
from dither.randomness import check_seed
from dither.reports import Plan
from dither.schema import Schema
from dither.schema.files import ReadOptions
from dither.types import JsonMapping, JsonObject, NativeTable

# A schema given as an object is in every release folder under this name.
OWN_SCHEMA = "schema.json"
# Limit of simulated participants and of synthetic rows; memory runs out earlier.
MAX_PEOPLE = 10**9
# Fewer replicates say too little about the spread.
MIN_REPLICATES, MAX_REPLICATES = 5, 1000
# Recorded for a prior that has no name.
IN_MEMORY = "a table in memory"
_CAMPAIGN_TEXTS = ("name", "title", "purpose", "epsilon_reason", "contact")
_CAMPAIGN_ENDS = ("closes", "closes_at_reports")
_LISTS = ("columns", "drop", "keep", "missing")


@dataclass(frozen=True)
class RunOptions:
    """How a table is published: all options of `publish` except how the table is read.

    Attributes:
        epsilon: Guarantee of one participant's whole record over the whole campaign.
        method: Name of the method.
        schema: A schema, its path or the dict that its file holds; None for the one that comes with
            the table, else for one inferred from its rows.
        population: Number of simulated participants, drawn from the rows with replacement;
            None to take each row once.
        rows: Rows of the synthetic table; None for as many as there are participants.
        seed: Seed of the simulated noise; None for noise of the operating system.
        parameters: The method's parameters by name.
        path: "counts" to draw tallies directly, "reports" to make each report.
        unknown: "error" to reject values outside the domain, "other" to count them as the
            category of that name.
        no_privacy: Whether the true records are read, by the one method that does so.
        holdout: Share of the participants kept from the fit for an error estimate.
        replicates: Number of further fits that intervals are computed from; 0 for none.
        prior: A public table of the same schema; None for none.
        as_published: Whether the method's parameters are those of its paper, unless given.
    """

    epsilon: float
    method: str
    schema: Schema | JsonMapping | str | Path | None = None
    population: int | None = None
    rows: int | None = None
    seed: int | None = None
    parameters: JsonMapping = field(default_factory=dict)
    path: Literal["counts", "reports"] = "counts"
    unknown: Literal["error", "other"] = "error"
    no_privacy: bool = False
    holdout: float = 0.0
    replicates: int = 0
    prior: NativeTable | None = None
    as_published: bool = False

    def checked(self) -> Self:
        """The same options as plain Python numbers.

        Raises:
            ParameterError: If a number is out of range.
        """
        if not self.no_privacy:
            check_epsilon(self.epsilon)
        check_replicates(self.replicates)
        check_choice("unknown", self.unknown, ("error", "other"))
        return replace(
            self,
            epsilon=float(self.epsilon),
            population=check_whole_or_none("population", self.population, 1, MAX_PEOPLE),
            rows=check_whole_or_none("rows", self.rows, 1, MAX_PEOPLE),
            seed=check_seed(self.seed),
            holdout=float(self.holdout),
        )


def check_replicates(replicates: int) -> None:
    """Raise ParameterError unless a number of replicates is 0 or in range."""
    if replicates:
        check_whole("replicates", replicates, MIN_REPLICATES, MAX_REPLICATES)


@dataclass(frozen=True)
class Call(ReadOptions, RunOptions):
    """The record of the call that made a release, in plain values.

    A simulation has the options of `publish`; its table, schema and prior are recorded by
    name. A collection has no table, population or path, but the texts, dates and numbers
    that its campaign was created with. Its `seed` is that of the fit, which no
    participant's noise depends on. `record` holds every argument of a call of `histogram`,
    `several_values` or `central_release` (see `recorded`).
    """

    schema: str | None = None
    prior: str | None = None
    table: str | None = None
    simulated: bool = False
    name: str = ""
    participants: int | None = None
    participation: str = "open"
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
        """Whether anyone who knows the seed can draw the same noise again."""
        return self.simulated and not self.no_privacy and self.seed is not None

    @property
    def fitted_method(self) -> str:
        """The method whose state a release keeps: of a discovery that of its last round."""
        return "independent" if self.method == "discover" else self.method

    def to_json(self) -> JsonObject:
        """Plain values; epsilon is null for a release without privacy."""
        return {**asdict(self), "epsilon": None if self.no_privacy else self.epsilon}

    def given(self) -> JsonObject:
        """The options of a simulation that differ from their defaults, and the method."""
        options = {}
        for option in (*fields(RunOptions), *fields(ReadOptions)):
            value = getattr(self, option.name)
            default = {} if option.default is MISSING else option.default
            if option.name == "method" or value != default:
                options[option.name] = value
        if self.no_privacy:
            del options["epsilon"]
        if "parameters" in options:
            options["parameters"] = {
                key: value for key, value in self.parameters.items() if value is not None
            }
        return options


def publish_call(table: NativeTable, run: RunOptions, read: ReadOptions) -> Call:
    """The record of a call of `publish`."""
    values = _values(run) | _values(read)
    values["schema"] = _recorded_name(run.schema, OWN_SCHEMA)
    values["prior"] = _recorded_name(run.prior, IN_MEMORY)
    values["parameters"] = plain(run.parameters)
    return Call(**values, table=_recorded_name(table, None), simulated=True)


def _values(options: RunOptions | ReadOptions) -> dict[str, Any]:
    return {option.name: getattr(options, option.name) for option in fields(options)}


def _recorded_name(value: object, name_of_object: str | None) -> str | None:
    if value is None:
        return None
    return str(value) if isinstance(value, (str, Path)) else name_of_object


def call_from_json(data: JsonMapping) -> Call:
    """The inverse of `Call.to_json`.

    Raises:
        TypeError: If an option is not known.
        ValueError: If a value has the wrong kind.
    """
    epsilon = math.inf if data["no_privacy"] else float(data["epsilon"])
    lists = {key: tuple(map(str, data[key])) for key in _LISTS if data.get(key) is not None}
    call = Call(**{**data, **lists, "epsilon": epsilon})
    if not isinstance(call.parameters, Mapping) or not isinstance(call.table, str | None):
        raise ValueError("call: table must be a name and parameters an object")
    _check_record(call.record)
    return call


def recorded_call(record: JsonMapping, **facts: Any) -> Call:
    """The call of a simulation by `histogram`, `several_values` or `central_release`."""
    return Call(table=record.get("table"), simulated=True, record=record, **facts)


def command(call: Call) -> str | None:
    """The command line that repeats a simulation; with new noise unless a seed was given.

    None if the table has no name, or the command line cannot express the call.
    """
    if call.record is not None:
        return _command_again(call.record)
    table = _argument(call.table or "TABLE")
    return shlex.join(["dither", "publish", table, *_options(call.given()), "-o", "out"])


def campaign_command(call: Call, participants: int) -> str:
    """The commands that create a campaign like this one and finalise it.

    Args:
        call: The record of a collection.
        participants: Expected participants, where the record does not say.
    """
    # holdout and assignment always: their defaults on the command line are others.
    options: JsonObject = {
        "schema": OWN_SCHEMA,
        "epsilon": call.epsilon,
        "participants": call.participants or participants,
        "method": call.method,
        "holdout": call.holdout,
    }
    for name in (*_CAMPAIGN_TEXTS, *_CAMPAIGN_ENDS):
        if value := getattr(call, name):
            options[name] = value
    options["assignment"] = call.assignment
    given = call.given()
    options |= {name: given[name] for name in ("seed", "parameters") if name in given}
    if call.participation == "tokens":
        options |= {"tokens": options["participants"], "tokens_file": "tokens.txt"}
    create = shlex.join(["dither", "campaign", "create", *_options(options)])
    wanted = {"rows": call.rows, "replicates": call.replicates or None, "prior": call.prior}
    results = _options({name: value for name, value in wanted.items() if value is not None})
    finalise = shlex.join(["dither", "campaign", "finalise", "CAMPAIGN", *results, "-o", "out"])
    return f"{create}\n{finalise}"


def python_code(call: Call) -> str:
    """The Python code that repeats a simulation."""
    if call.record is not None:
        return _python_again(call.record)
    given = call.given()
    if call.no_privacy:
        # epsilon is a required argument; it has no effect here.
        given = {"epsilon": 1.0, **given}
    return _python("publish", repr(call.table or "TABLE"), given)


def _python(function: str, data: str, given: JsonMapping) -> str:
    inside = ",\n    ".join([data, *(f"{name}={value!r}" for name, value in given.items())])
    return f'import dither\n\nrelease = dither.{function}(\n    {inside},\n)\nrelease.save("out")'


# Arguments without effect on the release.
_NEVER_RECORDED = ("name", "attribute", "clock", "progress")
COMMANDS = {
    "histogram": "histogram",
    "several_values": "histogram",
    "central_release": "central",
    "discover": "discover",
    "panel": "panel",
}
# Functions of whole tables; the others take the values of one column.
_OF_TABLES = ("central_release", "panel")
# Arguments whose option has another name.
_OPTION_NAMES = {"most": "values_per_person"}


def recorded(function: Callable[..., object], given: Mapping[str, Any]) -> JsonObject:
    """The record of a call of `histogram`, `several_values` or `central_release`: every argument in plain values.

    Data are recorded by name, if they have one.
    """
    data, *options = inspect.signature(function).parameters
    named = {data: str(given[data])} if isinstance(given[data], (str, Path)) else {}
    return {
        "function": function.__name__,
        **named,
        **{name: plain(given[name]) for name in options if name not in _NEVER_RECORDED},
    }


def _check_record(call: object) -> None:
    """Raise ValueError unless a manifest's `call` is such a record or null."""
    if call is None:
        return
    if not (isinstance(call, dict) and isinstance(call.get("function"), str)):
        raise ValueError(f"call must name its function, not {call!r}")
    _command_again(call)
    _python_again(call)


def _command_again(call: JsonMapping) -> str | None:
    """The command line that repeats such a record.

    Returns:
        None if the table has no name, or if the command line cannot express the call.
    """
    given = {
        name: value for name, value in call.items() if value is not None and value is not False
    }
    verb = COMMANDS.get(given.pop("function"))
    table = given.pop("table", None)
    consumers = given.pop("consumers", [])
    bins = [entry for entry in consumers if isinstance(entry, int)]
    edges = [entry for entry in consumers if isinstance(entry, list)]
    # A list on the command line has commas, and spaces around a name are stripped.
    awkward = any("," in column or column != column.strip() for column in given.get("columns", ()))
    if verb is None or table is None or consumers != bins + edges or awkward:
        return None
    words = _options(given | ({"bins": bins} if bins else {}))
    for entry in edges:
        words += ["--edges", _text(entry)]
    return shlex.join(["dither", verb, _argument(table), *words, "-o", "out"])


def _argument(table: str) -> str:
    """A table's name as an argument that no parser takes for an option."""
    return f"./{table}" if table.startswith("-") and table != "-" else table


def _python_again(call: JsonMapping) -> str:
    """The Python code that repeats such a record; unnamed data are `values` or `table`."""
    left_out = ("function",) if call["function"] in _OF_TABLES else ("function", "column", "person")
    given = {
        name: value for name, value in call.items() if value is not None and name not in left_out
    }
    table = given.pop("table", None)
    if call["function"] not in _OF_TABLES:
        return _python(call["function"], "values", given)
    return _python(call["function"], repr(table) if table else "table", given)


def plain(value: Any) -> Any:
    """A value as JSON holds it: arrays, tuples, sets and dataclasses become lists and objects."""
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
        # JSON has no infinity.
        return None
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    return str(value)


def _options(given: JsonMapping) -> list[str]:
    words = []
    for name, value in given.items():
        if name == "parameters":
            for key, item in value.items():
                words += ["--set", f"{key}={_text(item)}"]
        elif value is True:
            words.append(_flag(name))
        else:
            words += [_flag(name), _text(value)]
    return words


def _flag(name: str) -> str:
    return f"--{_OPTION_NAMES.get(name, name).replace('_', '-')}"


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
    """The questions of one round, and what one participant sends.

    Attributes:
        round: Number of the round, from 0.
        sizes: Number of questions by number of attributes.
        mechanisms: Number of questions by mechanism.
        report_bytes: Length of the longest report.
        epsilon: Guarantee of one report of this round.
        split: Whether each participant answers all questions.
        population: Share of the participants that the round asks.
    """

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
    """A summary of each plan of a campaign."""
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
