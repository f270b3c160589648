"""The facts of a run in words: what a method noted about itself, as rows that a reader without its source understands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dither.types import JsonMapping

Rows = list[tuple[str, str]]
# What the keys of notes mean; the others are shown with spaces for underscores.
_NAMES = {
    "asked": "People who answered",
    "asked_in_groups": "Attributes asked in groups of values",
    "asked_in_pairs": "Attributes asked in pairs",
    "bits_per_report": "Bits in a report",
    "candidates": "Candidates for parents",
    "cliques": "Sets of attributes modelled together",
    "degree": "Most parents of an attribute",
    "edges": "Pairs joined in the model",
    "encoding": "How answers are written",
    "epsilon_per_attribute_as_in_the_paper": "Epsilon of one attribute, as the paper counts",
    "epsilon_record": "Epsilon of the whole record",
    "epsilon_remark": "On these two",
    "estimator": "How distributions are estimated",
    "fit": "The fit",
    "flip": "Chance that a bit is replaced by a coin",
    "hashes": "Hash functions",
    "largest_set_cells": "Combinations of the largest set asked",
    "not_asked": "Attributes that follow from others and were not asked",
    "pairs": "Pairs of attributes",
    "pairs_asked": "Pairs that were asked",
    "pairs_left_after_each_round": "Pairs kept after each round",
    "pairs_that_came_back": "Pairs that came back in the end",
    "rounds_of_pairs": "Rounds of pairs",
    "screen": "The first round",
    "sets": "Sets of attributes asked together",
    "threshold": "What decides whether a pair is kept",
    "tree_fit": "The fit of the tree",
}
_MOST_LETTERS = 400
_POWERS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def in_words(notes: JsonMapping) -> Rows:
    """Each note as a name and what it says."""
    return [(_NAMES.get(name, _spaced(name)), _told(name, value)) for name, value in notes.items()]


def plain_number(value: float, digits: int = 4) -> str:
    """A number as people write it: thousands apart, few digits, and a power of ten where it is very small or large.

    >>> [plain_number(v) for v in (16710.0755, 0.05, 7.65e-287, 3.0, 1.5e15)]
    ['16,710', '0.05', '8 × 10⁻²⁸⁷', '3', '1.5 × 10¹⁵']
    """
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    if 1e-4 <= abs(value) < 1e15:
        return f"{value:,.0f}" if abs(value) >= 10 ** (digits - 1) else f"{value:.{digits}g}"
    factor, _, power = f"{value:.{0 if abs(value) < 1 else 1}e}".partition("e")
    return f"{factor} × 10{str(int(power)).translate(_POWERS)}"


def _spaced(name: str) -> str:
    words = name.replace("_", " ")
    return words[:1].upper() + words[1:]


def _told(name: str, value: object) -> str:
    if name == "fit" and isinstance(value, Mapping) and "components" in value:
        return _mixture(value)
    if name == "screen" and isinstance(value, Mapping):
        return _screen(value)
    return _cut(_value(value))


def _value(value: object) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "none"}[value]
    if isinstance(value, (int, float)):
        return plain_number(value)
    if isinstance(value, Mapping):
        return "; ".join(f"{name.replace('_', ' ')} {_value(item)}" for name, item in value.items())
    if isinstance(value, (list, tuple)):
        inner = any(isinstance(item, (list, tuple)) for item in value)
        return ("; " if inner else ", ").join(
            _joined(item) if inner else _value(item) for item in value
        ) or "none"
    return (
        str(value).replace("_", " ") if isinstance(value, str) and value.islower() else str(value)
    )


def _joined(items: object) -> str:
    return (
        " and ".join(map(str, items))
        if isinstance(items, Sequence) and not isinstance(items, str)
        else _value(items)
    )


def _mixture(fit: Mapping[str, object]) -> str:
    """What the house method says of its fit."""
    numbers = {name: value for name, value in fit.items() if isinstance(value, (int, float))}
    told = []
    if {"starts", "components", "iterations"} <= numbers.keys():
        starts, components, steps = (
            plain_number(numbers[key]) for key in ("starts", "components", "iterations")
        )
        told.append(f"{starts} mixtures of {components} products each, {steps} steps, averaged")
    if {"cells", "chi2", "degrees_of_freedom"} <= numbers.keys():
        told.append(
            f"{plain_number(numbers['cells'])} measured figures fitted, chi-square {plain_number(numbers['chi2'])}, "
            f"{plain_number(round(numbers['degrees_of_freedom']))} degrees of freedom spent"
        )
    if "dependence_kept" in numbers:
        told.append(
            f"{100 * numbers['dependence_kept']:.0f}\N{NO-BREAK SPACE}% of the dependence found was kept"
        )
    edges, local = fit.get("edges"), fit.get("local")
    if isinstance(edges, (list, tuple)) and edges:
        told.append(f"joined besides: {'; '.join(map(_joined, edges))}")
    if isinstance(local, (list, tuple)) and local:
        told.append(f"{len(local)} pairs looked at one by one")
    return _cut("; ".join(told) or _value(fit)) + "."


def _screen(screen: Mapping[str, object]) -> str:
    share, attributes = screen.get("share"), screen.get("attributes")
    told = "asked to see whether there is anything to learn about pairs"
    if isinstance(share, (int, float)) and isinstance(attributes, int):
        told = f"{100 * share:g}\N{NO-BREAK SPACE}% of the people, {attributes} attributes, {told}"
    p_value = screen.get("p_value")
    if isinstance(p_value, (int, float)):
        chance = plain_number(p_value) if p_value >= 1e-4 else "less than 0.0001"
        told += f"; the chance of such answers without any dependence is {chance}"
    return told[:1].upper() + told[1:] + "."


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_LETTERS else f"{text[: _MOST_LETTERS - 1]}…"
