"""Adaptive shrinkage of squared dependences, against the posterior under the true prior and against the raw squares."""

import numpy as np
import pytest

from dither.fit import Dependence, shrunk_squares

NOISE = 0.01  # standard deviation of one direction


def draw(share, size, rng, pairs=400, shape=(3, 4)):
    """Tests of pairs of which a share has normal effects of this standard deviation; their true squares beside them."""
    degrees = (shape[0] - 1) * (shape[1] - 1)
    depends = rng.random(pairs) < share
    effects = np.where(depends[:, None], rng.normal(0, size, (pairs, degrees)), 0.0)
    seen = effects + rng.normal(0, NOISE, effects.shape)
    squares, noise = (seen**2).sum(1), degrees * NOISE**2
    tests = [Dependence(float(s - noise), np.sqrt(2 * degrees) * NOISE**2, noise) for s in squares]
    return tests, [shape] * pairs, (effects**2).sum(1), squares, degrees


def oracle(squares, degrees, share, size):
    """The posterior mean when the prior is known."""
    ratio = (size / NOISE) ** 2
    scaled = squares / NOISE**2
    odds = share * (1 + ratio) ** (-degrees / 2) * np.exp(0.5 * scaled * ratio / (1 + ratio))
    kept = ratio / (1 + ratio)
    return odds / (odds + 1 - share) * (kept**2 * scaled + degrees * kept) * NOISE**2


@pytest.mark.parametrize(("share", "size"), [(0.3, 0.03), (0.1, 0.05), (1.0, 0.02), (0.0, 0.02)])
def test_the_estimate_is_near_that_of_the_true_prior_and_far_better_than_the_raw_square(
    share, size
):
    tests, shapes, truth, squares, degrees = draw(share, size, np.random.default_rng(7))
    found = shrunk_squares(tests, shapes)

    def error(estimate):
        return float(((estimate - truth) ** 2).mean())

    best = error(oracle(squares, degrees, share, size)) if 0 < share < 1 else 0.0
    raw = error(np.maximum([t.statistic for t in tests], 0.0))
    assert error(found) < raw
    # 400 pairs tell the prior well; what is left over is a small part of what the raw squares lose.
    assert error(found) - best < 0.15 * (raw - best) if share < 1 else error(found) < 0.9 * raw


def test_no_dependence_shrinks_to_nothing_and_dependence_everywhere_hardly_at_all():
    tests, shapes, *_ = draw(0.0, 0.02, np.random.default_rng(1))
    raw = np.maximum([t.statistic for t in tests], 0.0).sum()
    assert shrunk_squares(tests, shapes).sum() < 0.1 * raw
    tests, shapes, truth, *_ = draw(1.0, 0.1, np.random.default_rng(2))
    assert shrunk_squares(tests, shapes).sum() == pytest.approx(truth.sum(), rel=0.05)


def test_wide_and_narrow_pairs_share_one_prior():
    rng = np.random.default_rng(3)
    narrow, wide = draw(0.0, 0.02, rng, 60, (2, 2)), draw(0.0, 0.02, rng, 60, (8, 9))
    found = shrunk_squares([*narrow[0], *wide[0]], [*narrow[1], *wide[1]])
    assert found.shape == (120,)
    assert (found >= 0).all()
    assert found.sum() < 0.1 * (narrow[3].sum() + wide[3].sum())
