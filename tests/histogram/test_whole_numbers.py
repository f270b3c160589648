"""Numbers that are multiples of a unit: cells between the multiples, exact questions, and intervals that hold."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

import dither
from dither._histogram import asked_partition, collect
from dither.cli import run
from dither.errors import InputError, ParameterError
from dither.methods.histogram import Partition, gather, read_consumers
from dither.release.query.numbers import NumberInquiry

LOW, HIGH = 1, 99


def hours(people: int = 30_000, seed: int = 4) -> np.ndarray:
    """Whole numbers from 1 to 99 with heaps: almost half of the people at 40, many at other tens."""
    rng = np.random.default_rng(seed)
    heaps = rng.choice([20, 30, 40, 45, 50, 60], people, p=[0.07, 0.06, 0.6, 0.07, 0.12, 0.08])
    rest = rng.normal(40, 14, people).round().clip(LOW, HIGH)
    return np.where(rng.random(people) < 0.75, heaps, rest).astype(np.int64)


VALUES = hours()


def inquiry(epsilon: float, seed: int, unit: float | None = 1.0) -> NumberInquiry:
    consumers = read_consumers([16], float(LOW), float(HIGH))
    partition = asked_partition("ranges", consumers, float(LOW), float(HIGH), unit)
    people = gather(VALUES, partition, reports=False)
    rng = np.random.default_rng([seed, 11])
    cells = collect("ranges", people, consumers, partition, epsilon, rng).answer().cells
    assert cells is not None
    return NumberInquiry(cells)


def range_errors(epsilon: float, unit: float | None, runs: int) -> tuple[float, float]:
    """The share of random ranges whose interval holds, and their mean squared error."""
    held, square = [], []
    for seed in range(runs):
        asked, rng = inquiry(epsilon, seed, unit), np.random.default_rng([seed, 12])
        for low, high in np.sort(rng.integers(LOW, HIGH + 1, (20, 2)), axis=1).tolist():
            if low == high:
                continue
            truth = float(((low <= VALUES) & (high > VALUES)).mean())
            answer = asked.share_of([(low, high)], 0.95, "")
            assert answer.low is not None
            assert answer.high is not None
            held.append(answer.low <= truth <= answer.high)
            square.append((answer.estimate - truth) ** 2)
    return float(np.mean(held)), float(np.mean(square))


@pytest.mark.slow
@pytest.mark.parametrize(("epsilon", "most"), [(4.0, 1.4e-5), (8.0, 1e-6)])
def test_ranges_of_whole_numbers_hold_and_their_error_falls(epsilon: float, most: float) -> None:
    """Of about 800 intervals of 40 collections 95 % hold within four standard errors of collections, and the error is
    near the noise; cells of equal width, as if the numbers were real, fail on both."""
    held, square = range_errors(epsilon, 1.0, 40)
    assert 0.92 <= held <= 0.975
    assert square < most
    _, blurred = range_errors(epsilon, None, 3)
    assert blurred > 1.2 * most
    assert blurred > 8 * most or epsilon < 8


@pytest.mark.slow
def test_means_and_quantiles_of_heaped_whole_numbers_hold() -> None:
    levels, ordered = (0.1, 0.25, 0.5, 0.9), np.sort(VALUES)
    ranks = [float(ordered[math.ceil(level * len(ordered)) - 1]) for level in levels]
    means, quantiles = [], []
    for seed in range(60):
        asked = inquiry(4.0, seed)
        mean = asked.mean(0.95)
        assert mean.low is not None
        assert mean.high is not None
        means.append(mean.low <= VALUES.mean() <= mean.high)
        rows = asked.quantiles(levels, 0.95).rows
        assert all(float(row.estimate).is_integer() for row in rows)
        quantiles += [r.low <= x <= r.high for r, x in zip(rows, ranks, strict=True)]  # type: ignore[operator]
    assert np.mean(means) >= 0.88
    assert np.mean(quantiles) >= 0.94


def test_cells_lie_between_multiples() -> None:
    schema_edges = asked_partition("ranges", read_consumers([3], 1, 99), 1, 99, 1.0)
    assert schema_edges.cells == 99
    assert schema_edges.edges[0] == 0.5
    assert schema_edges.edges[-1] == 99.5
    assert (schema_edges.low, schema_edges.high) == (1, 99)
    # Of 1,001 numbers each cell holds several, and none of them is cut.
    wide = np.asarray(asked_partition("ranges", read_consumers([3], 0, 1000), 0, 1000, 1.0).edges)
    assert len(wide) <= 257
    assert (wide % 1 == 0.5).all()
    # Cents.
    cents = asked_partition("ranges", read_consumers([3], 0, 1), 0, 1, 0.01)
    assert cents.cells == 101


def test_a_bin_of_whole_numbers_is_the_sum_of_its_numbers() -> None:
    """Every share is the plain sum over the distribution of single numbers."""
    asked = inquiry(4.0, 1)
    shares = asked.cells.smoothed
    assert shares is not None
    for low, high in [(1, 2), (40, 41), (17, 63), (98, 99)]:
        answer = asked.share_of([(float(low), float(high))], 0.95, "")
        assert answer.estimate == pytest.approx(shares[low - LOW : high - LOW].sum())
        assert not answer.warnings
    assert asked.share_of([(99.0, math.inf)], 0.95, "").estimate == pytest.approx(shares[-1])
    assert asked.share_of([(39.2, 40.7)], 0.95, "").estimate == pytest.approx(shares[40 - LOW])


def test_spread_within_a_cell_of_several_multiples() -> None:
    """A cell of the numbers 3, 4, 5, 6 has their mean and variance, not those of a stretch of real numbers."""
    from dither.methods.histogram import late

    partition = Partition((2.5, 6.5, 7.5), 1.0)
    assert late.number(partition).mean.tolist() == [4.5, 7.0]
    assert late.number(partition).spread == pytest.approx([np.var([3, 4, 5, 6]), 0.0])
    assert late.number(partition).least.tolist() == [3.0, 7.0]
    square = late.squared_distance(partition, 0.0)
    assert square.mean == pytest.approx([np.mean(np.square([3, 4, 5, 6])), 49.0])
    assert late.inside(partition, 4.0, 6.0).mean.tolist() == [0.5, 0.0]


def test_integers_are_asked_as_whole_numbers_and_kept_so(tmp_path: Path) -> None:
    release = dither.histogram(
        VALUES, epsilon=4.0, low=LOW, high=HIGH, method="ranges", attribute="hours"
    )
    loaded = dither.load_release(release.save(tmp_path / "out"))
    for one in (release, loaded):
        assert one.number.unit == 1.0
        exactly = one.query("hours == 40")
        assert abs(exactly.estimate - (VALUES == 40).mean()) < 0.03
        around = one.query("40 <= hours < 41")
        assert (exactly.low, exactly.high) == (around.low, around.high)
        assert one.query("hours <= 99").estimate == pytest.approx(1.0)
        assert one.query("hours > 99").estimate == 0.0
        assert one.query("hours == 40.5").estimate == 0.0
        assert one.query("hours != 40").estimate == pytest.approx(1 - exactly.estimate)
        assert sum(row.estimate for row in one.table("hours").rows) == pytest.approx(1.0)
        assert one.quantile("hours", 0.5).estimate == 40.0
    assert loaded.to_json()["partition"] == release.to_json()["partition"]
    real = dither.histogram(VALUES.astype(float), epsilon=4.0, low=LOW, high=HIGH, method="ranges")
    assert real.number.unit is None


def test_a_unit_that_does_not_divide_the_range_is_refused() -> None:
    with pytest.raises(ParameterError, match=r"does not end at multiples of the unit 0\.3"):
        dither.histogram([0.3, 0.6], epsilon=1.0, low=0, high=1, unit=0.3, method="ranges")
    with pytest.raises(ParameterError, match="unit"):
        dither.histogram([0.3, 0.6], epsilon=1.0, low=0, high=1, unit=-1, method="ranges")


def test_damaged_units_are_refused(tmp_path: Path) -> None:
    folder = dither.histogram(
        VALUES, epsilon=1.0, low=LOW, high=HIGH, method="ranges", attribute="hours"
    ).save(tmp_path / "out")
    manifest = json.loads((folder / "release.json").read_text())
    for unit in (0.7, -1, "x", 1e9):
        (folder / "release.json").write_text(json.dumps({**manifest, "unit": unit}))
        with pytest.raises(InputError, match=r"release\.json"):
            dither.load_release(folder)


def test_the_command_takes_the_unit_from_schema_and_type(tmp_path: Path) -> None:
    schema, table = tmp_path / "public.json", tmp_path / "pay.csv"
    schema.write_text('{"pay": {"kind": "numeric", "min": 0, "max": 2, "unit": 0.05}}')
    table.write_text("pay\n" + "\n".join(f"{5 * (i % 41) / 100:.2f}" for i in range(900)))
    args = ["histogram", str(table), "--column", "pay", "--epsilon", "4", "--method", "ranges"]
    out = tmp_path / "out"
    assert run([*args, "--schema", str(schema), "-o", str(out)]) == 0
    assert dither.load_release(out).number.unit == 0.05
    assert (
        run(
            ["campaign", "create", "--histogram", "n", "--low", "0.5", "--high", "9", "--unit", "1"]
        )
        == 2
    )


def test_a_campaign_in_a_unit_answers_as_a_simulation() -> None:
    """A device puts whole numbers where the simulator does."""
    partition = asked_partition("ranges", read_consumers([4], 1, 99), 1, 99, 1.0)
    line = dither.Attribute("hours", "numeric", edges=partition.edges, unit=1.0)
    codes = gather(np.arange(1.0, 100.0), partition, reports=True).codes
    assert codes is not None
    assert [line.line_code(float(value)) for value in range(1, 100)] == codes.tolist()
