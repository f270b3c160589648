"""A campaign about one number as an operator writes it on the command line: its range, and who gets which bins."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from dither.cli.number_questions import read_bins
from dither.errors import InputError, ParameterError
from dither.methods import HISTOGRAMS, MEANS, method
from dither.methods.histogram.consumer import read_consumers
from dither.methods.histogram.machine import HistogramMachine
from dither.methods.histogram.values import check_range
from dither.methods.mean import Mean
from dither.schema import Schema
from dither.types import JsonObject

DEFAULT_METHOD = "chp"
Outside = Literal["clip", "random"]
_MAX_BYTES = 1 << 20  # of a file of consumers; a request to the collector has no more


@dataclass(frozen=True)
class NumberOptions:
    """What the options of `dither campaign create` say about one number."""

    name: str | None
    low: float | None
    high: float | None
    bins: str
    edges: Sequence[str]
    consumers: Path | None
    outside: Outside


def number_campaign(given: NumberOptions, wanted: str | None) -> JsonObject:
    """Schema, method and consumers of a campaign, from a number's name and public range; errors name the option at fault."""
    assert given.name is not None
    if not given.name.strip():
        raise ParameterError(
            "--histogram: give the number a name, such as pay", where="--histogram"
        )
    if given.low is None or given.high is None:
        raise ParameterError(
            "--histogram needs the public range: give --low and --high", where="--low"
        )
    low, high = check_range(given.low, given.high)
    chosen = wanted or DEFAULT_METHOD
    if chosen not in HISTOGRAMS | MEANS:
        raise ParameterError(
            f"--method {chosen} is not for one number; choose one of {', '.join(HISTOGRAMS | MEANS)}",
            where="--method",
        )
    machine = method(chosen).load()
    if issubclass(machine, Mean):
        if given.bins or given.edges or given.consumers is not None:
            raise ParameterError("--method mean gives a mean and has no consumers", where="--bins")
        return {
            "schema": _settle(machine.schema_of(given.name, low, high), given.outside).to_json(),
            "method": chosen,
        }
    assert issubclass(machine, HistogramMachine)
    consumers = read_consumers(_listed(given, machine.overview), low, high)
    schema = _settle(machine.schema_of(given.name, consumers, low, high), given.outside)
    return {
        "schema": schema.to_json(),
        "method": chosen,
        "consumers": [consumer.to_json() for consumer in consumers],
    }


def _settle(schema: Schema, outside: Outside) -> Schema:
    """What becomes of numbers beyond the range is a part of the schema, for every device to see."""
    return Schema(tuple(replace(attribute, clip=outside == "clip") for attribute in schema))


def _listed(given: NumberOptions, overview: Sequence[int]) -> list[Any]:
    out: list[Any] = list(read_bins(given.bins, list(given.edges)))
    if given.consumers is not None:
        out += consumers_file(given.consumers)
    if not out and not overview:
        raise ParameterError(
            "name at least one consumer with --bins, --edges or --consumers, or take --method ranges",
            where="--bins",
        )
    return out or list(overview)


def consumers_file(path: Path) -> list[Any]:
    """A JSON list of consumers, or the release.json of an earlier histogram, whose consumers are asked for again."""
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_BYTES + 1)
        if len(data) > _MAX_BYTES:
            raise InputError(
                f"{path} has more than 1 MiB; name fewer consumers", where="--consumers"
            )
        read = json.loads(data)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}", where="--consumers") from None
    except (ValueError, RecursionError):
        raise InputError(f"{path} is not JSON", where="--consumers") from None
    earlier = isinstance(read, dict) and isinstance(read.get("consumers"), list)
    listed = read["consumers"] if earlier else read
    if not isinstance(listed, list):
        raise InputError(
            f'{path} must hold a list such as [{{"name": "tax office", "bins": 5}}, {{"name": "union", "edges": [0, 10, 50]}}]',
            where="--consumers",
        )
    if earlier:  # with figures, which are nothing to ask for
        listed = [_asked(entry) for entry in listed]
    return list(listed)


def _asked(entry: Any) -> Any:
    kept = ("name", "bins", "width", "edges", "epsilon")
    return {key: entry[key] for key in kept if key in entry} if isinstance(entry, dict) else entry
