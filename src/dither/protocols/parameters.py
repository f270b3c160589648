"""Method parameters: frozen dataclasses with typed fields, filled from text or from Python values."""

from __future__ import annotations

import json
import types
from dataclasses import MISSING, fields
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from dither.errors import ParameterError
from dither.types import JsonMapping, JsonObject

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
