"""Tuned and published constants of the mechanisms: moving one by a third changes a mechanism."""

from __future__ import annotations

from dataclasses import fields, replace
from types import ModuleType

import pytest

from dither.mechanisms import BloomRappor, Hybrid, MultiMean, bloom, means, registry, several_means

SIZES = ((16, 2.0), (16, 1.0), (16, 3.0), (3_500, 1.0), (4_500, 1.0))


@pytest.mark.parametrize("factor", [4 / 3, 2 / 3], ids=["up", "down"])
@pytest.mark.parametrize("name", [field.name for field in fields(registry.SETTINGS)])
def test_the_choice_of_the_best_mechanism_notices_a_moved_constant(
    name: str, factor: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = [registry.best(*size) for size in SIZES]
    value = getattr(registry.SETTINGS, name)
    moved = replace(registry.SETTINGS, **{name: type(value)(value * factor)})
    monkeypatch.setattr(registry, "SETTINGS", moved)
    assert [registry.best(*size) for size in SIZES] != before


def _built() -> list[object]:
    return [
        BloomRappor.for_cells(8, 1.0),
        *(Hybrid.for_epsilon(epsilon) for epsilon in (0.5, 0.7)),
        *(MultiMean.for_epsilon(9, epsilon) for epsilon in (4.0, 6.0)),
    ]


@pytest.mark.parametrize("factor", [4 / 3, 2 / 3], ids=["up", "down"])
@pytest.mark.parametrize(
    ("module", "name"),
    [(bloom, "FALSE_POSITIVE"), (means, "HYBRID_FROM"), (several_means, "EPSILON_EACH")],
)
def test_a_moved_constant_of_a_paper_is_noticed(
    module: ModuleType, name: str, factor: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = _built()
    monkeypatch.setattr(module, name, getattr(module, name) * factor)
    assert _built() != before
