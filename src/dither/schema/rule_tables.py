"""Rules as tables of allowed cells, and rows that satisfy them, in codes and in numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dither.errors import SchemaError, TableError
from dither.schema.attribute import Attribute
from dither.schema.columns import from_multiples, multiples_in, step_of
from dither.schema.rules import Determines, Impossible, Order, Rule, Sum, code_of_value
from dither.schema.schema import Schema
from dither.types import Codes, Flags, Floats, Integers

MAX_CELLS = 1 << 24  # of the attributes of one rule together


@dataclass(frozen=True)
class Allowed:
    """The allowed cells of some attributes' product domain, one axis for each attribute."""

    names: tuple[str, ...]
    table: Flags


def outcome_codes(rule: Determines, schema: Schema) -> Integers | None:
    """The code of the determined attribute for each code of the other; None if not stated."""
    if rule.outcomes is None:
        return None
    target, by = schema[rule.attribute], schema[rule.by]
    codes = [code_of_value(target, value) for value in rule.outcomes]
    return np.array([*codes, *([target.answers] if by.missing else [])], dtype=np.int64)


def constraints(schema: Schema) -> tuple[Allowed, ...]:
    """The tables of all rules except determinations, with implied orders added."""
    rules = [rule for rule in schema.rules if not isinstance(rule, (Determines, Order))]
    return tuple(_allowed(rule, schema) for rule in (*rules, *all_orders(schema.rules)))


def all_orders(rules: Sequence[Rule]) -> list[Order]:
    """The stated and the implied orders: a <= b and b < c imply a < c."""
    orders = {(rule.low, rule.high): rule.strict for rule in rules if isinstance(rule, Order)}
    while True:
        more = {
            (a, d): max(orders.get((a, d), False), first or second)
            for (a, b), first in orders.items()
            for (c, d), second in orders.items()
            if b == c
        }
        if any(a == d for a, d in more):
            raise SchemaError("the rules put an attribute before itself", where="rules")
        if {**orders, **more} == orders:
            return [Order(low, high, strict) for (low, high), strict in orders.items()]
        orders |= more


def _allowed(rule: Impossible | Order | Sum, schema: Schema) -> Allowed:
    """The cells that satisfy a rule for some numbers in them; missing answers are exempt."""
    cells = schema.cells(rule.names)
    if cells > MAX_CELLS:
        raise SchemaError(
            f"the rule about {', '.join(rule.names)} has {cells:,} cells, more than {MAX_CELLS:,}; use coarser bins",
            where="rules",
        )
    attributes = [schema[name] for name in rule.names]
    if isinstance(rule, Impossible):
        hit = np.ones((), dtype=bool)
        for attribute, (_, values) in zip(attributes, rule.values, strict=True):
            listed = np.zeros(attribute.cardinality, dtype=bool)
            codes = (code_of_value(attribute, value) for value in values)
            listed[[code for code in codes if code is not None]] = True
            hit = np.logical_and.outer(hit, listed)
        return Allowed(rule.names, ~hit)
    first, last = zip(*(_reach(attribute) for attribute in attributes), strict=True)
    grids = [np.meshgrid(*ends, indexing="ij") for ends in (first, last)]
    with np.errstate(invalid="ignore"):
        if isinstance(rule, Order):
            kept = grids[0][0] < grids[1][1] if rule.strict else grids[0][0] <= grids[1][1]
        else:
            slack = 1e-9 * (1 + np.abs(grids[1][-1]))
            kept = (sum(grids[0][:-1]) <= grids[1][-1] + slack) & (
                sum(grids[1][:-1]) >= grids[0][-1] - slack
            )
    unbound = np.isnan(sum(grids[0]))
    return Allowed(rule.names, kept | unbound)


def _reach(attribute: Attribute, step: float | None = None) -> tuple[Floats, Floats]:
    """The smallest and the largest number of each code, in steps if given; NaN if missing."""
    gap = [np.nan] if attribute.missing else []
    if not attribute.on_line:
        values = np.array([*(float(v) for v in attribute.values), *gap])
        return values, values
    unit = step_of(attribute) if step is None else step
    if unit is not None:
        first, last = (
            from_multiples(n, unit) for n in multiples_in(attribute.line, unit, (-(2**62), 2**62))
        )
        return np.append(first, gap), np.append(last, gap)
    low, high = np.asarray(attribute.line.ends, dtype=np.float64).T
    point_codes = dict(zip(attribute.line.boundaries, attribute.line.points, strict=True))
    opened = np.array([point_codes[b] != code for code, (_, b) in enumerate(attribute.line.ends)])
    return np.append(low, gap), np.append(np.where(opened, np.nextafter(high, -np.inf), high), gap)


def broken(schema: Schema, codes: Codes) -> Flags:
    """The rows of codes that violate a rule for all numbers in their bins.

    If a determination is not stated, the rows that differ from the most frequent outcome violate
    it.
    """
    wrong = np.zeros(len(codes), dtype=bool)
    for table in constraints(schema):
        wrong |= ~table.table[tuple(codes[:, schema.index(name)] for name in table.names)]
    for rule in schema.rules:
        if isinstance(rule, Determines):
            by, target = codes[:, schema.index(rule.by)], codes[:, schema.index(rule.attribute)]
            stated = outcome_codes(rule, schema)
            outcome = _most_frequent(rule, schema, by, target) if stated is None else stated
            wrong |= outcome[by] != target
    return wrong


def _most_frequent(rule: Determines, schema: Schema, by: Codes, target: Codes) -> Integers:
    """The most frequent code of the determined attribute for each code of the other.

    The missing code determines the missing code.
    """
    width, given = schema[rule.attribute], schema[rule.by]
    cells, counts = np.unique(by.astype(np.int64) * width.cardinality + target, return_counts=True)
    # Sorted, so that the most frequent one is written last.
    order = np.argsort(counts, kind="stable")
    outcome = np.zeros(given.cardinality, dtype=np.int64)
    outcome[cells[order] // width.cardinality] = cells[order] % width.cardinality
    if given.missing:
        outcome[given.answers] = width.answers
    return outcome


def check_rows(schema: Schema, codes: Codes) -> None:
    """Check that no row violates a rule.

    Raises:
        TableError: A row does. The rule would then be wrong for some records.
    """
    wrong = broken(schema, codes)
    if wrong.any():
        first = int(np.argmax(wrong))
        names = next(
            rule.names
            for rule in schema.rules
            if broken(Schema(schema.attributes, (rule,)), codes)[first]
        )
        shown = ", ".join(
            f"{name} = {schema[name].labels[codes[first, schema.index(name)]]}" for name in names
        )
        raise TableError(
            f"{int(wrong.sum()):,} rows break a rule of the schema, first row {first + 1:,} ({shown}); correct the table or drop "
            "the rule",
            where=names[0],
        )


def keep_rules(
    schema: Schema,
    codes: Codes,
    numbers: Mapping[str, Floats],
    rng: np.random.Generator,
    steps: Mapping[str, float | None] | None = None,
) -> tuple[dict[str, Floats], Flags]:
    """Move numbers inside their cells until orders and sums hold.

    Atoms, listed values and determined values stay.

    Args:
        numbers: The values of every attribute in a rule that is on a line or lists numbers.
        steps: The steps of the columns if they differ from the attribute's unit: integers cannot
            represent the halves that a schema without a unit allows.

    Returns:
        The numbers, and the rows where that failed.
    """
    held = {name: values.copy() for name, values in numbers.items()}
    step = {name: step_of(schema[name]) if steps is None else steps[name] for name in held}
    limits = {name: _limits(schema, codes, name, step[name]) for name in held}
    for rule in schema.rules:
        if isinstance(rule, Determines) and schema[rule.attribute].on_line:
            held[rule.attribute] = _determined(rule, schema, codes, held[rule.attribute])
            limits[rule.attribute] = (held[rule.attribute].copy(), held[rule.attribute].copy())
    orders, sums = (
        all_orders(schema.rules),
        [rule for rule in schema.rules if isinstance(rule, Sum)],
    )
    for _ in range(3):
        for rule in sums:
            _keep_sum(rule, held, limits, step)
        for order in orders:
            _keep_order(order, held, limits, step, rng)
    return held, breaks(schema, held)


def breaks(schema: Schema, held: Mapping[str, Floats], slack: float = 1e-9) -> Flags:
    """The rows whose numbers violate an order or a sum, up to a relative `slack`."""
    wrong = np.zeros(len(next(iter(held.values()), ())), dtype=bool)
    for order in all_orders(schema.rules):
        wrong |= _out_of_order(order, held)
    for rule in schema.rules:
        if isinstance(rule, Sum):
            total = sum(held[name] for name in rule.parts)
            wrong |= ~(np.abs(total - held[rule.total]) <= slack * (1 + np.abs(total))) & ~np.isnan(
                total + held[rule.total]
            )
    return wrong


def _limits(schema: Schema, codes: Codes, name: str, step: float | None) -> tuple[Floats, Floats]:
    first, last = _reach(schema[name], step)
    column = codes[:, schema.index(name)]
    return first[column], last[column]


def _determined(rule: Determines, schema: Schema, codes: Codes, drawn: Floats) -> Floats:
    """The stated number for each row, or one number for each answer of the other attribute."""
    target, by = schema[rule.attribute], codes[:, schema.index(rule.by)]
    if rule.outcomes is None:
        cells = by.astype(np.int64) * target.cardinality + codes[:, schema.index(rule.attribute)]
        _, first, place = np.unique(cells, return_index=True, return_inverse=True)
        return np.asarray(drawn[first][place.ravel()])
    exact = [float(v) if target.kind == "numeric" else target.number(v) for v in rule.outcomes]
    return np.array([*exact, math.nan], dtype=np.float64)[by]


def _out_of_order(rule: Order, held: Mapping[str, Floats]) -> Flags:
    low, high = held[rule.low], held[rule.high]
    return np.asarray(low >= high if rule.strict else low > high)


def _keep_order(
    rule: Order,
    held: dict[str, Floats],
    limits: Mapping[str, tuple[Floats, Floats]],
    step: Mapping[str, float | None],
    rng: np.random.Generator,
) -> None:
    """Swap two numbers if each fits the other's cell; else redraw them.

    The first is then drawn low enough to leave room for the second.
    """
    wrong = np.flatnonzero(_out_of_order(rule, held))
    if not len(wrong):
        return
    low, high = held[rule.low][wrong], held[rule.high][wrong]
    (first_low, last_low), (first_high, last_high) = (
        tuple(ends[wrong] for ends in limits[name]) for name in (rule.low, rule.high)
    )
    swap = (low != high) & (high >= first_low) & (low <= last_high)
    steps = [step[name] or 0.0 for name in (rule.low, rule.high)]
    gap = max(*steps, 0.0) if rule.strict else 0.0
    top = np.maximum(np.minimum(last_low, last_high - gap), first_low)
    drawn_low = np.clip(
        _on_grid(first_low + (top - first_low) * rng.random(len(wrong)), steps[0]), first_low, top
    )
    bottom = np.minimum(np.maximum(first_high, drawn_low + gap), last_high)
    drawn_high = _on_grid(bottom + (last_high - bottom) * rng.random(len(wrong)), steps[1])
    drawn_high = np.clip(drawn_high, bottom, last_high)
    held[rule.low][wrong] = np.where(swap, high, drawn_low)
    held[rule.high][wrong] = np.where(swap, low, drawn_high)


def _keep_sum(
    rule: Sum,
    held: dict[str, Floats],
    limits: Mapping[str, tuple[Floats, Floats]],
    step: Mapping[str, float | None],
) -> None:
    """Shift the parts inside their cells until their sum lies in the total's cell."""
    parts = np.stack([held[name] for name in rule.parts])
    first, last = (np.stack([limits[name][i] for name in rule.parts]) for i in (0, 1))
    total, least, most = parts.sum(axis=0), first.sum(axis=0), last.sum(axis=0)
    target = np.clip(
        total, np.maximum(least, limits[rule.total][0]), np.minimum(most, limits[rule.total][1])
    )
    with np.errstate(invalid="ignore", divide="ignore"):
        down = np.where(total > least, (target - least) / (total - least), 1.0)
        up = np.where(most > total, (most - target) / (most - total), 1.0)
        moved = np.where(target < total, first + (parts - first) * down, last - (last - parts) * up)
    moved = np.clip(moved, first, last)
    part_steps = [step[name] for name in rule.parts]
    if any(one is not None for one in part_steps):
        # Rounding leaves a remainder, which parts with room take one after another.
        rounded = [
            np.clip(_on_grid(part, one or 0.0), a, b)
            for part, one, a, b in zip(moved, part_steps, first, last, strict=True)
        ]
        for i, one in enumerate(part_steps):
            rest = target - sum(rounded)
            shifted = _on_grid(rounded[i] + rest, one or 0.0)
            rounded[i] = np.clip(shifted, first[i], last[i])
        moved = np.stack(rounded)
    for name, part in zip(rule.parts, moved, strict=True):
        held[name] = part
    summed = _on_grid(moved.sum(axis=0), step[rule.total] or 0.0)
    held[rule.total] = np.where(np.isnan(held[rule.total]), np.nan, summed)
    outside = (held[rule.total] < limits[rule.total][0]) | (
        held[rule.total] > limits[rule.total][1]
    )
    # Detected as a violation, and replaced.
    held[rule.total] = np.where(outside, np.inf, held[rule.total])


def _on_grid(values: Floats, step: float) -> Floats:
    return np.asarray(np.round(np.rint(values / step) * step, 9)) if step else values
