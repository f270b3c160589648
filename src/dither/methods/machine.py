"""The base of every method: a pure state machine over rounds. No I/O, no clock, no participant noise.

From the schema, epsilon and the tallies so far a machine returns the next round's plan or a
finished model. It is deterministic given its campaign, its parameters and the tallies it has
closed, so these are its whole state (decision 0004): `methods.run` saves them, and restores a
machine by closing the same tallies again.
"""

from __future__ import annotations

import json
import types
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import MISSING, asdict, dataclass, fields
from typing import (
    Any,
    ClassVar,
    Generic,
    Literal,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from dither.errors import ParameterError, ReportError, StateError, TooFewAnswers
from dither.fit import Marginal, Model
from dither.methods.diagnostics import Diagnostics
from dither.methods.prior import Prior
from dither.reports import Plan
from dither.schema import Schema
from dither.tally import CountTally, RoundTally
from dither.types import JsonMapping, JsonObject, Progress

T = TypeVar("T")
Pairs = tuple[tuple[str, str], ...]  # of names
_TRUE, _FALSE = ("true", "yes", "1", "on"), ("false", "no", "0", "off")


def build_parameters(cls: type[T], given: JsonMapping, method: str) -> T:
    """The parameters of a method.

    Args:
        cls: The method's dataclass of parameters.
        given: Names and values; text is read as the field's type.
        method: The method's name, for error messages.

    Raises:
        ParameterError: A name is unknown, or a value is not of the field's type.
    """
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
    """Names and defaults of parameters, for help and documentation."""
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
    """The public facts that a method starts from.

    Attributes:
        schema: The attributes to ask.
        epsilon: The guarantee of one participant's whole record over the campaign.
        participants: How many participants are expected.
        seed: For the method's own choices, not for the participants' noise.
        in_full: Attributes that are asked in groups with others and in full alone, each with
            the number of its values.
    """

    schema: Schema
    epsilon: float
    participants: int
    seed: int = 0
    in_full: tuple[tuple[str, int], ...] = ()


class ProtocolMachine(ABC, Generic[P]):
    """A method in the middle of a campaign. A method defines `plan`, `model` and `measured`.

    Attributes:
        method: The name in the registry.
        parameters_class: The dataclass of the method's parameters.
        takes_prior: Whether the fit can use a prior.
        fits_pairs_only: Whether the fit ignores what three attributes asked together tell.
        coarse_grids: Whether ordered attributes may be asked on coarse grids.
        progress: Called by long fits, if set.
        prior: Used by the fit, if set before the model is asked for.
    """

    method: ClassVar[str]
    parameters_class: ClassVar[type[Any]]
    takes_prior: ClassVar[bool] = False
    fits_pairs_only: ClassVar[bool] = False
    coarse_grids: ClassVar[bool] = False
    progress: Progress | None
    prior: Prior | None

    def __init__(self, campaign: Campaign, parameters: P) -> None:
        self.campaign = campaign
        self.parameters = parameters
        self.progress = None
        self.prior = None
        self._closed: list[RoundTally] = []

    @property
    def closed(self) -> tuple[RoundTally, ...]:
        """The tallies of the closed rounds."""
        return tuple(self._closed)

    @property
    def counted(self) -> tuple[CountTally, ...]:
        """The tallies in `closed` that count supports question by question."""
        return tuple(tally for tally in self.closed if isinstance(tally, CountTally))

    @abstractmethod
    def plan(self) -> Plan | None:
        """The open round, the same at each call; None when finished."""

    @abstractmethod
    def model(self) -> Model:
        """The finished model.

        Raises:
            StateError: A round is still open.
        """

    @abstractmethod
    def measured(self) -> Sequence[Marginal]:
        """The pooled estimates so far: at least every one-way marginal that was measured."""

    def diagnostics(self) -> Diagnostics:
        """The facts about the run that a release states."""
        return Diagnostics()

    def close(self, tally: RoundTally) -> None:
        """Close the open round with its tally and open the next.

        After an error nothing has changed and the round is still open.

        Raises:
            StateError: No round is open, or the tally is of another plan.
            TooFewAnswers: The method could not use the answers.
        """
        self.check(tally)
        self._closed.append(tally)
        self._go_on(tally)

    def check(self, tally: RoundTally) -> None:
        """Raise the error that closing the open round with this tally would raise."""
        check_close(self.plan(), tally)
        self._check_answers(tally)

    def _check_answers(self, tally: RoundTally) -> None:
        """Raise `TooFewAnswers` if the method could not use this tally."""

    def _go_on(self, tally: RoundTally) -> None:
        """Prepare the next round, after this tally was added to `closed`."""

    def _finished(self) -> None:
        """Raise `StateError` while a round is open."""
        plan = self.plan()
        if plan is not None:
            raise StateError(
                f"round {plan.round} is still open: close it before asking for the model"
            )

    def design(self) -> JsonObject | None:
        """Choices made before the first round that another computer might make differently.

        They are stored in the state as JSON values and passed to `take_design` by `restore`. Most
        methods have none.
        """
        return None

    def take_design(self, design: JsonObject) -> None:
        """Start from a stored design.

        Raises:
            ReportError: The design is not one of this method.
        """
        raise ReportError(f"method {self.method!r} keeps no design")

    def plain_parameters(self) -> JsonObject:
        """The parameters as plain values, for a manifest."""
        plain: JsonObject = asdict(self.parameters)  # type: ignore[call-overload]
        return plain


def check_close(open_plan: Plan | None, tally: RoundTally) -> None:
    """Check that a tally is of the open round's plan and has at least one report.

    Raises:
        StateError: No round is open, or the tally is of another plan.
        TooFewAnswers: The tally has no reports.
    """
    if open_plan is None:
        raise StateError("no round is open: the protocol has finished")
    if tally.plan.to_json() != open_plan.to_json():
        raise StateError(f"this tally is of another plan than the open round {open_plan.round}")
    if tally.participants == 0:
        raise TooFewAnswers(
            "a round cannot be closed without a single report; leave it open until reports arrive"
        )


def check_clique_cells(schema: Schema, most: int) -> None:
    """Raise `ParameterError` if an attribute alone exceeds the largest clique allowed."""
    widest = max(schema.cardinalities)
    if widest > most:
        raise ParameterError(
            f"an attribute has {widest:,} values, more than max_clique_cells={most:,}; raise it",
            where="max_clique_cells",
            value=most,
        )
