"""Batches for means: reports, the unbiased numbers in them, estimates."""

from __future__ import annotations

import math
from functools import singledispatch
from typing import Any

import numpy as np
import numpy.typing as npt

from dither.errors import ParameterError, ReportError
from dither.mechanisms.base import PackedReports
from dither.mechanisms.kernels.batch import (
    randomise,
    read_numbers,
    uniform_draws,
    write_numbers,
)
from dither.mechanisms.means import GridMean, MeanEstimate, MeanMechanism
from dither.mechanisms.probability import THRESHOLD_BITS
from dither.mechanisms.several_means import SIGN_BYTES, DuchiVector, MultiMean, binomials
from dither.randomness import RandomStream
from dither.types import Bytes, Flags, Floats

# Participants whose signs are randomised at a time; one draw may take 72 bytes.
_BLOCK = 1 << 15
# The largest number of attributes whose binomial coefficients all fit 63 bits.
_INT64_UP_TO = 66


def estimate_means(mechanism: MeanMechanism, reports: PackedReports) -> list[MeanEstimate]:
    """One unbiased mean per attribute, over the reports that cover it, with standard error."""
    table = numbers(mechanism, reports)
    return [_mean_of(column[~np.isnan(column)]) for column in table.T]


def _mean_of(values: Floats) -> MeanEstimate:
    if len(values) < 2:
        raise ParameterError(
            "a mean with a standard error needs at least two reports",
            where="reports",
            value=len(values),
        )
    return MeanEstimate(
        float(values.mean()), float(values.std(ddof=1) / math.sqrt(len(values))), len(values)
    )


def _check_numbers(mechanism: MeanMechanism, values: npt.ArrayLike) -> Floats:
    """Check a table of numbers from -1 to 1 with one column per attribute."""
    table = np.asarray(values, dtype=np.float64)
    shaped = table.ndim == 2 and table.shape[1] == mechanism.attributes
    if not shaped or not np.all((table >= -1) & (table <= 1)):
        raise ParameterError(
            f"values must be a table of {mechanism.attributes} columns of numbers from -1 to 1",
            where="values",
            value=table.shape,
        )
    return table


@singledispatch
def numbers(mechanism: MeanMechanism, reports: PackedReports) -> Floats:
    """The unbiased numbers of reports, one row each; NaN for attributes not covered."""
    raise NotImplementedError(f"{mechanism.name} has no batch kernel")


# Grids.


@randomise.register(GridMean)
def _grid(mechanism: GridMean, values: npt.ArrayLike, stream: RandomStream) -> PackedReports:
    """Draw by draw as on a device."""
    column = _check_numbers(mechanism, values)[:, 0]
    # The draws of a participant are adjacent in the stream, as a device reads them.
    words = uniform_draws(stream, len(column) * (1 + mechanism.draws), mechanism.threshold_bits)
    draws = list(words.reshape(len(column), 1 + mechanism.draws).T)
    place = (column + 1) / 2 * (mechanism.levels - 1)
    level = np.minimum(place.astype(np.int64), mechanism.levels - 2)
    level += draws[0] < np.round((place - level) * 2**mechanism.threshold_bits)
    return write_numbers(mechanism, mechanism.output(level, draws[1:]))


@numbers.register(GridMean)
def _grid_numbers(mechanism: GridMean, reports: PackedReports) -> Floats:
    table = np.array([float(mechanism.value_of(output)) for output in range(mechanism.outputs)])
    return np.asarray(table[read_numbers(mechanism, reports)][:, None], dtype=np.float64)


# Vectors of signs.


@randomise.register(DuchiVector)
def _signs(mechanism: DuchiVector, values: npt.ArrayLike, stream: RandomStream) -> PackedReports:
    """Draw by draw as on a device."""
    table = _check_numbers(mechanism, values)
    out = np.empty((len(table), mechanism.report_bytes), np.uint8)
    width = mechanism.attributes * SIGN_BYTES
    for start in range(0, len(table), _BLOCK):
        block = table[start : start + _BLOCK]
        data = stream.words(len(block) * mechanism.draw_bytes, np.uint8).reshape(
            len(block), mechanism.draw_bytes
        )
        signs = np.ascontiguousarray(data[:, :width]).view("<u4") < np.round(
            (block + 1) / 2 * 2**THRESHOLD_BITS
        )
        same = signs == agreeing_many(mechanism, data[:, width:])
        out[start : start + _BLOCK] = np.packbits(same, axis=1, bitorder="little")
    return PackedReports(out)


def agreeing_many(mechanism: DuchiVector, data: Bytes) -> Flags:
    """`agreeing` for many draws, one per row; draws exceed 64 bits, most ranks do not."""
    kind: Any = np.int64 if mechanism.attributes <= _INT64_UP_TO else object
    places = [mechanism.place(int.from_bytes(row.tobytes(), "little")) for row in data]
    left = np.array([agreements for agreements, _ in places], np.int64)
    rank = np.array([rank for _, rank in places], kind)
    out = np.empty((len(data), mechanism.attributes), np.bool_)
    for j in reversed(range(mechanism.attributes)):
        without = np.array(binomials(mechanism.attributes)[j], kind)[left]
        out[:, j] = rank >= without
        rank -= without * out[:, j]
        left -= out[:, j]
    return out


@numbers.register(DuchiVector)
def _sign_numbers(mechanism: DuchiVector, reports: PackedReports) -> Floats:
    _check_width(mechanism, reports)
    bits = np.unpackbits(reports.rows, axis=1, bitorder="little")
    if bits[:, mechanism.attributes :].any():
        raise ReportError(f"a report has more than {mechanism.attributes} signs", where="reports")
    scale = float(mechanism.scale)
    return np.where(bits[:, : mechanism.attributes], scale, -scale)


def _check_width(mechanism: MeanMechanism, reports: PackedReports) -> None:
    width = reports.rows.shape[1]
    if width != mechanism.report_bytes:
        raise ReportError(
            f"reports of {mechanism.report_bytes} bytes were expected, not {width}", value=width
        )


# Some of several attributes.


@randomise.register(MultiMean)
def _several(mechanism: MultiMean, values: npt.ArrayLike, stream: RandomStream) -> PackedReports:
    """The same law as on a device; all choices of attributes are drawn before the answers."""
    table = _check_numbers(mechanism, values)
    keys = stream.words(table.size).reshape(table.shape)
    chosen = np.sort(np.argsort(keys, axis=1, kind="stable")[:, : mechanism.asked], axis=1)
    parts: list[Bytes] = []
    for attribute in chosen.T:
        answers = randomise(
            mechanism.grid, table[np.arange(len(table)), attribute][:, None], stream
        )
        parts += [attribute.astype(np.uint8)[:, None], answers.rows]
    return PackedReports(np.concatenate(parts, axis=1))


@numbers.register(MultiMean)
def _several_numbers(mechanism: MultiMean, reports: PackedReports) -> Floats:
    _check_width(mechanism, reports)
    pairs = reports.rows.reshape(len(reports), mechanism.asked, -1)
    chosen = pairs[:, :, 0].astype(np.int64)
    if chosen.size and (
        chosen.max() >= mechanism.attributes or (np.diff(chosen, axis=1) <= 0).any()
    ):
        raise ReportError(
            f"a report must be about {mechanism.asked} of {mechanism.attributes} attributes, in order"
        )
    answers = PackedReports(
        np.ascontiguousarray(pairs[:, :, 1:].reshape(len(reports) * mechanism.asked, -1))
    )
    table = np.full((len(reports), mechanism.attributes), np.nan)
    np.put_along_axis(table, chosen, numbers(mechanism.grid, answers).reshape(chosen.shape), axis=1)
    return table
