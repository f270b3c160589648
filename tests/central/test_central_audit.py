"""The audit of central methods: correct ones pass with power, mutants of every method are rejected."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from dither.central import (
    CENTRAL,
    CentralMethod,
    CuratorTask,
    Neighbours,
    NoisyHistogram,
    noise,
    seeded_source,
)
from dither.central.audit import audit_central

# Of the exact loss. What the bound hardly sees is a choice among many: its worst outcome is rare. With the default number
# of releases it reached 0.53 (standard deviation 0.02 over 12 seeds) for fourier, 0.68 (0.01) for dawa, 0.81 (0.02) for
# privbayes; four standard deviations are left.
POWER = {"dawa": 0.64, "fourier": 0.45, "privbayes": 0.73}
QUICK = ("laplace", "threshold", "hierarchical", "projection")
FAST_LANE = ("laplace", "hierarchical")
BY_SPEED = [
    pytest.param(name, marks=[] if name in FAST_LANE else [pytest.mark.slow]) for name in CENTRAL
]


# Under `replace` a method adds more noise by the same code, so the quick ones stand for all.
CASES = [*((name, "add-remove") for name in CENTRAL), *((name, "replace") for name in QUICK)]


@pytest.mark.parametrize(
    ("name", "neighbours"),
    [
        pytest.param(*case, marks=[] if case[0] in FAST_LANE else [pytest.mark.slow])
        for case in CASES
    ],
)
def test_correct_methods_pass(name: str, neighbours: Neighbours) -> None:
    trials = None if name in POWER else 600
    verdict = audit_central(
        CENTRAL[name], 1.0, source=seeded_source(5), neighbours=neighbours, trials=trials
    )
    assert verdict.passed, verdict
    assert verdict.epsilon_exact is not None
    assert 0.65 < verdict.epsilon_exact <= verdict.epsilon_stated <= 1.0
    if neighbours == "add-remove":
        assert verdict.epsilon_empirical_lower > POWER.get(name, 0.8) * verdict.epsilon_exact


@pytest.mark.parametrize("name", BY_SPEED)
def test_less_noise_than_a_method_states_is_noticed(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = noise.discrete_laplace

    def weak(scale: Fraction, size: int, source: Any) -> Any:
        return honest(scale * Fraction(10, 13), size, source)

    monkeypatch.setattr(noise, "discrete_laplace", weak)
    verdict = audit_central(CENTRAL[name], 1.0, source=seeded_source(6), trials=600)
    assert not verdict.passed
    assert verdict.problem is not None
    assert "stated scale" in verdict.problem


def changed(name: str, release: Any) -> CentralMethod:
    return replace(CENTRAL[name], release=release)


HISTOGRAMS = [param for param in BY_SPEED if CENTRAL[str(param.values[0])].release is not None]


@pytest.mark.parametrize("name", HISTOGRAMS)
def test_a_method_that_spends_more_than_it_states_fails(name: str) -> None:
    # A choice often tells less than its share; twice the epsilon is above the stated one in any case.
    more = 1.3 if name not in ("fourier", "privbayes") else 2.0
    honest = CENTRAL[name].release
    assert honest is not None

    def spends_more(task: CuratorTask, parameters: Any) -> NoisyHistogram:
        made = honest(replace(task, epsilon=more * task.epsilon), parameters)
        return replace(made, epsilon=task.epsilon)

    verdict = audit_central(changed(name, spends_more), 1.0, source=seeded_source(7), trials=100)
    assert verdict.epsilon_exact is not None
    assert verdict.epsilon_exact > 1.0
    assert not verdict.passed


@pytest.mark.parametrize("name", HISTOGRAMS)
def test_a_figure_without_noise_fails(name: str) -> None:
    honest = CENTRAL[name].release
    assert honest is not None

    def leaks(task: CuratorTask, parameters: Any) -> NoisyHistogram:
        made = honest(task, parameters)
        return replace(made, estimate=made.estimate + 1e-9 * np.sqrt(task.counts))

    verdict = audit_central(changed(name, leaks), 1.0, source=seeded_source(8), trials=100)
    assert not verdict.passed
    assert verdict.problem is not None
    assert "beyond what was noted" in verdict.problem


def test_an_exact_count_in_the_notes_fails() -> None:
    honest = CENTRAL["laplace"].release
    assert honest is not None

    def leaks(task: CuratorTask, parameters: Any) -> NoisyHistogram:
        made = honest(task, parameters)
        return replace(made, notes={**made.notes, "counts": task.counts.tolist()})

    verdict = audit_central(changed("laplace", leaks), 1.0, source=seeded_source(9), trials=100)
    assert not verdict.passed
    assert verdict.problem is not None
    assert "its notes" in verdict.problem


def test_an_epsilon_that_depends_on_the_table_fails() -> None:
    honest = CENTRAL["laplace"].release
    assert honest is not None

    def leaks(task: CuratorTask, parameters: Any) -> NoisyHistogram:
        made = honest(replace(task, epsilon=0.9 * task.epsilon), parameters)
        return replace(made, epsilon=made.epsilon * (1 + 1e-9 * float(task.counts[0])))

    verdict = audit_central(changed("laplace", leaks), 1.0, source=seeded_source(9), trials=100)
    assert not verdict.passed
    assert verdict.problem is not None


@pytest.mark.parametrize("threshold", [100, 1_000, 2_500])
def test_a_method_without_noise_for_large_counts_fails(threshold: int) -> None:
    honest = CENTRAL["laplace"].release
    assert honest is not None

    def leaks(task: CuratorTask, parameters: Any) -> NoisyHistogram:
        made = honest(task, parameters)
        return (
            made
            if task.counts.max() <= threshold
            else replace(made, estimate=task.counts.astype(float))
        )

    verdict = audit_central(changed("laplace", leaks), 1.0, source=seeded_source(10), trials=100)
    assert not verdict.passed
    assert verdict.problem is not None
