"""The Bayesian member: its degrees of freedom against fresh data, when it is left out, and what the average gains."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from small_mixture import known_mixture
from test_mixture_fit import collected
from threadpoolctl import threadpool_limits

from dither.fit.mixture import bayes as thorough
from dither.fit.mixture.bayes import (
    BayesMember,
    Posterior,
    SampleOptions,
    bayes_member,
    mean_potentials,
    thorough_fit,
)
from dither.fit.mixture.fit import FitOptions, MixtureFit, fit_mixture
from dither.fit.mixture.targets import Edges, PairTargets, inverse_variances
from dither.types import JsonObject

SHORT = SampleOptions(iterations=90, leaps=10, held=10, metric_again=20, warm=30, every=2, climb=30)


def quick(targets: PairTargets, **options: object) -> MixtureFit:
    return fit_mixture(
        targets,
        np.random.default_rng(0),
        FitOptions(total=48, components=16, iterations=100, **options),
    )  # type: ignore[arg-type]


@pytest.mark.slow
def test_the_estimated_risk_of_a_member_is_its_risk_on_average() -> None:
    """Over fresh data. Without the degrees of freedom the estimate is far too low."""
    weights, a = known_mixture()
    truth, one = (a.T * weights) @ a, weights @ a
    gaps, without = [], []
    for seed in range(8):
        targets = collected(1_500, 1.0, np.random.default_rng([seed, 11]))
        w2, w1 = inverse_variances(targets, truth, one)
        fit = quick(targets, edges=())
        with threadpool_limits(limits=1, user_api="blas"):
            member = bayes_member(targets, (w2, w1), fit, np.random.default_rng(seed), SHORT)
        found = [
            0.5 * float((w2 * (member.fit.pairs - pairs) ** 2).sum())
            + float((w1 * (member.fit.one - single) ** 2).sum())
            for pairs, single in ((truth, one), (targets.pairs, targets.singles))
        ]
        without.append(found[1] - targets.cells - found[0])
        gaps.append(without[-1] + 2.0 * member.df)
    error = float(np.std(gaps, ddof=1)) / np.sqrt(len(gaps))
    assert abs(np.mean(gaps)) < 4.0 * error
    assert abs(np.mean(without)) > 4.0 * error


def test_a_member_is_left_out_where_chains_disagree_or_its_risk_is_clearly_higher(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    targets = collected(4_000, 2.0, np.random.default_rng(3))
    fit = quick(targets, edges=())
    flat = replace(fit, pairs=np.outer(fit.one, fit.one))

    def given(member: BayesMember) -> tuple[MixtureFit, JsonObject]:
        monkeypatch.setattr(thorough, "bayes_member", lambda *_: member)
        return thorough_fit(targets, fit, np.random.default_rng(0))

    both, said = given(BayesMember(fit, 5.0, 1.5))
    assert both is fit
    assert "disagree (1.50" in said["left_out"]
    both, said = given(BayesMember(flat, 1e4, 1.0))
    assert both is fit
    assert "clearly higher" in said["left_out"]
    assert said["share"] == 0.0
    _, said = given(BayesMember(fit, 5.0, 1.0))
    assert said["share"] >= 0.25


@pytest.mark.parametrize(
    "edges", [((0, 2), (2, 4)), ((0, 2), (2, 4), (1, 4))], ids=["three", "four"]
)
def test_potentials_of_a_chain_come_apart_into_links_that_make_the_same_table(edges: Edges) -> None:
    targets = collected(20_000, 4.0, np.random.default_rng(2))
    fit = quick(targets, edges=edges)
    weights = inverse_variances(targets, fit.pairs, fit.one)
    posterior = Posterior(targets, weights, 4, fit.edges, mean_potentials(targets, fit), np.float64)
    found = np.log(posterior.descent.model().ties[0].psi)
    wanted = np.log(fit.potentials[0][:3]).mean(axis=0)
    assert np.allclose(found - found.max(), wanted - wanted.max())


def test_a_member_carries_the_edges_and_tells_how_far_it_is() -> None:
    targets = collected(20_000, 3.0, np.random.default_rng(2))
    fit = quick(targets, edges=((0, 2),))
    heard: list[tuple[str, int, int]] = []
    tiny = SampleOptions(iterations=8, leaps=2, held=2, metric_again=4, warm=5, every=1, climb=5)
    weights = inverse_variances(targets, fit.pairs, fit.one)
    member = bayes_member(
        targets, weights, fit, np.random.default_rng(1), tiny, lambda *told: heard.append(told)
    )
    assert member.fit.edges == ((0, 2),)
    assert member.fit.potentials[0].shape == (1, 3, 4)
    assert [done for _, done, _ in heard] == list(range(1, 17))
    assert {total for _, _, total in heard} == {16}
