"""The seam that every method meets: a pure state machine over rounds. No I/O, no clock, no participant noise.

From the schema, epsilon and the tallies so far a machine gives the next round's plan or a finished model. A simulator over a
table, the collection server and a cluster job drive the same object. A machine is deterministic given what it started from and
the tallies it has closed, so these are its whole state: restoring starts it anew and closes the same tallies, and no method can
forget a part of its state (decision 0004).
"""

from __future__ import annotations

import json
import types
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, fields
from typing import (
    Any,
    ClassVar,
    Generic,
    Literal,
    Self,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import numpy as np

from dither.errors import ParameterError, ReportError, StateError, TooFewAnswers
from dither.fit import Marginal, Model
from dither.methods.prior import Prior, prior_from_state
from dither.reports import Plan
from dither.schema import Schema, schema_from_json
from dither.tally import CountTally, RoundTally, tally_from_bytes
from dither.tally.archive import decoding, pack, unpack
from dither.types import JsonMapping, JsonObject, Progress

T = TypeVar("T")
Pairs = tuple[tuple[str, str], ...]  # of names
_TRUE, _FALSE = ("true", "yes", "1", "on"), ("false", "no", "0", "off")


def build_parameters(cls: type[T], given: JsonMapping, method: str) -> T:
    """The parameters of a method; text is read as the field's type, and an unknown name lists the known ones."""
    hints = get_type_hints(cls)
    known = {f.name: hints[f.name] for f in fields(cls)}  # type: ignore[arg-type]
    out: JsonObject = {}
    for key, value in given.items():
        name = key.replace("-", "_")
        if name not in known:
            choices = ", ".join(sorted(known)) or "none"
            raise ParameterError(
                f"method {method!r} has no parameter {key!r}; it has: {choices}",
                where=key,
                value=value,
            )
        out[name] = _read(key, value, known[name])
    return cls(**out)


def describe_parameters(cls: type[Any]) -> JsonObject:
    """Names and defaults, for help and documentation."""
    out: JsonObject = {}
    for f in fields(cls):
        out[f.name] = f.default_factory() if f.default_factory is not MISSING else f.default
    return out


def _read(key: str, value: Any, hint: Any) -> Any:
    origin = get_origin(hint)
    if hint == Pairs | str:
        return value if isinstance(value, str) and "[" not in value else _read_pairs(key, value)
    if origin in (Union, types.UnionType):
        options = [h for h in get_args(hint) if h is not type(None)]
        if value is None or (isinstance(value, str) and value.lower() in ("none", "auto", "")):
            return None
        return _read(key, value, options[0])
    if origin is Literal:
        choices = get_args(hint)
        for choice in choices:
            if str(value) == str(choice):
                return choice
        raise ParameterError(
            f"{key}={value}: must be one of {', '.join(map(str, choices))}", where=key, value=value
        )
    if hint is bool:
        text = str(value).lower()
        if text in _TRUE + _FALSE:
            return text in _TRUE
        raise ParameterError(f"{key}={value}: must be true or false", where=key, value=value)
    try:
        if hint is int:
            if isinstance(value, float) and value != int(value):
                raise ValueError
            return int(value)
        if hint is float:
            return float(value)
    except (TypeError, ValueError):
        kind = "a whole number" if hint is int else "a number"
        raise ParameterError(f"{key}={value}: must be {kind}", where=key, value=value) from None
    return str(value)


def _read_pairs(key: str, value: Any) -> Pairs:
    """Pairs of names from lists of two, or from such lists as JSON text."""
    try:
        listed = json.loads(value) if isinstance(value, str) else list(value)
        pairs = tuple((a, b) for a, b in listed)
    except (ValueError, TypeError):
        pairs = None
    if pairs is None or not all(isinstance(name, str) for pair in pairs for name in pair):
        raise ParameterError(
            f'{key}={value}: must be a list of pairs of names, as [["a", "b"]]',
            where=key,
            value=value,
        )
    return pairs


P = TypeVar("P")  # the dataclass of a method's parameters


@dataclass(frozen=True)
class Campaign:
    """What every method starts from: public facts, and a seed for its own (not the participants') choices."""

    schema: Schema
    epsilon: float
    participants: int
    seed: int = 0


class ProtocolMachine(ABC, Generic[P]):
    """A method in the middle of a campaign. A method defines `plan`, `model` and `measured`, and may add to the rest.

    `method` is the name under which the registry knows it, `parameters_class` the dataclass of its parameters. A driver that
    shows progress sets `progress`; a fit that takes long calls it. A method that `takes_prior` fits with `prior`, if given one
    (`give_prior`) before it is asked for the model.
    """

    method: ClassVar[str]
    parameters_class: ClassVar[type]
    takes_prior: ClassVar[bool] = False
    progress: Progress | None
    prior: Prior | None

    def __init__(self, campaign: Campaign, parameters: P) -> None:
        self.campaign = campaign
        self.parameters = parameters
        self.progress = None
        self.prior = None
        self._closed: list[RoundTally] = []

    @classmethod
    def start(cls, campaign: Campaign, parameters: P) -> Self:
        """A campaign before its first round."""
        return cls(campaign, parameters)

    @property
    def closed(self) -> tuple[RoundTally, ...]:
        """The tallies of the rounds that are over."""
        return tuple(self._closed)

    @property
    def tallies(self) -> tuple[RoundTally, ...]:
        """The same with what was held out: all that `state` holds and a release can tell."""
        return tuple(self._closed)

    @property
    def core(self) -> ProtocolMachine:
        """The machine whose fit this is: itself, unless it stands around another one."""
        return self

    @property
    def plans(self) -> tuple[Plan, ...]:
        """What participants were asked in those rounds."""
        return tuple(tally.plan for tally in self._closed)

    @property
    def counted(self) -> tuple[CountTally, ...]:
        """Those of them that count supports, question by question."""
        return tuple(tally for tally in self.closed if isinstance(tally, CountTally))

    @abstractmethod
    def plan(self) -> Plan | None:
        """The open round, the same at each call; None when finished."""

    @abstractmethod
    def model(self) -> Model:
        """The finished model; an error while a round is open."""

    @abstractmethod
    def measured(self) -> Sequence[Marginal]:
        """What has been measured so far, pooled: at least every one-way marginal that was."""

    def notes(self) -> JsonObject:
        """Facts about the run that a release states: fallbacks used, pairs kept, components chosen."""
        return {}

    def close(self, tally: RoundTally) -> None:
        """Take in the open round's tally and go on to the next round.

        An error when none is open, when the tally is of another plan, or when its answers do not suffice; then nothing has been
        taken in and the round stays open.
        """
        self.check(tally)
        self._closed.append(tally)
        self._go_on(tally)

    def check(self, tally: RoundTally) -> None:
        """Raise what closing the open round with this tally would raise; nothing changes."""
        _check_close(self.plan(), tally)
        self._check_answers(tally)

    def _check_answers(self, tally: RoundTally) -> None:
        """Raise `TooFewAnswers` if the method could not use this tally."""

    def _go_on(self, tally: RoundTally) -> None:
        """Prepare the next round, now that this tally has been taken in."""

    def _finished(self) -> None:
        """An error while a round is open."""
        plan = self.plan()
        if plan is not None:
            raise StateError(
                f"round {plan.round} is still open: close it before asking for the model"
            )

    def state(self) -> bytes:
        """Everything needed to go on elsewhere with identical results."""
        tallies = {
            str(i): np.frombuffer(t.to_bytes(), np.uint8) for i, t in enumerate(self._closed)
        }
        known: Mapping[str, np.ndarray] = (
            {} if self.core.prior is None else self.core.prior.arrays()
        )
        return pack({**self._facts(), "rounds": len(self._closed)}, {**tallies, **known})

    def design(self) -> JsonObject | None:
        """What the machine worked out before anybody was asked and another computer might work out otherwise: it is kept, as
        plain values, and given to `take_design` when the machine starts again. Nothing, for most methods."""
        return None

    def take_design(self, design: JsonObject) -> None:
        """Start from a design that was kept; it is checked like anything that comes from outside."""
        raise ReportError(f"method {self.method!r} keeps no design")

    def _facts(self) -> JsonObject:
        """What the machine started from."""
        campaign, design = self.campaign, self.core.design()
        facts: JsonObject = ({} if design is None else {"design": design}) | {
            "method": self.method,
            "schema": campaign.schema.to_json(),
            "epsilon": campaign.epsilon,
            "participants": campaign.participants,
            "seed": campaign.seed,
            "parameters": self.plain_parameters(),
        }
        return facts if self.core.prior is None else {**facts, "prior": self.core.prior.facts()}

    @classmethod
    def restore(cls, state: bytes) -> Self:
        """The machine whose `state` this is: started anew, with the same tallies closed."""
        machine = cls.start_again(state)
        for tally in tallies_in(state):
            machine.close(tally)
        return machine

    @classmethod
    def start_again(cls, state: bytes) -> Self:
        """The machine whose `state` this is, as it was before its first round."""
        meta, arrays = unpack(state)
        if meta.get("method") != cls.method:
            raise ReportError(
                f"a state of method {meta.get('method')!r} cannot be restored as {cls.method!r}"
            )
        campaign = Campaign(
            schema_from_json(meta["schema"]), meta["epsilon"], meta["participants"], meta["seed"]
        )
        machine = cls.start(
            campaign, build_parameters(cls.parameters_class, meta["parameters"], cls.method)
        )
        if "design" in meta:
            machine.take_design(meta["design"])
        if "prior" in meta:
            machine.prior = prior_from_state(meta["prior"], arrays, campaign.schema)
        return machine

    def plain_parameters(self) -> JsonObject:
        """The parameters as plain values, for a manifest."""
        return asdict(self.parameters)  # type: ignore[call-overload]


def tallies_in(state: bytes) -> list[RoundTally]:
    """The tallies of the rounds that a saved machine had closed."""
    meta, arrays = unpack(state)
    with decoding("state of a method"):
        return [tally_from_bytes(arrays[str(i)].tobytes()) for i in range(meta["rounds"])]


def _check_close(open_plan: Plan | None, tally: RoundTally) -> None:
    """A tally can close the round it was made for, and only while that is open."""
    if open_plan is None:
        raise StateError("no round is open: the protocol has finished")
    if tally.plan.to_json() != open_plan.to_json():
        raise StateError(f"this tally is of another plan than the open round {open_plan.round}")
    if tally.participants == 0:
        raise TooFewAnswers(
            "a round cannot be closed without a single report; leave it open until reports arrive"
        )


def check_clique_cells(schema: Schema, most: int) -> None:
    """Every attribute has to fit into a clique of the tree by itself."""
    widest = max(schema.cardinalities)
    if widest > most:
        raise ParameterError(
            f"an attribute has {widest:,} values, more than max_clique_cells={most:,}; raise it",
            where="max_clique_cells",
            value=most,
        )
