"""Answers: figures against counting by hand, and intervals against simulations with errors of a known law."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.release.conftest import Dense

from dither.errors import ParameterError
from dither.release import Answer, AnswerTable, Release, prepare_bootstrap
from dither.release.intervals import LinearAnswer
from dither.schema import Attribute, Schema

SCHEMA = Schema(
    (
        Attribute("sex", "categorical", values=("f", "m")),
        Attribute("size", "ordinal", values=(1, 2, 4)),
        Attribute("age", "numeric", edges=(0.0, 20.0, 40.0, 60.0, 100.0), missing=True),
    )
)
SHAPE = SCHEMA.cardinalities
CELLS = math.prod(SHAPE)
TRUTH = np.random.default_rng(1).dirichlet(np.full(CELLS, 2.0)).reshape(SHAPE)


@dataclass(frozen=True)
class KnownErrors:
    """In the place of replicates: estimates of cells with normal errors of this covariance, as a `LinearAnswer` states it."""

    cells: np.ndarray
    stated: np.ndarray
    freedom: float = math.inf
    caution: str = ""
    apart: bool = False  # states the sums' own variances and forgets how they hang together

    def linear(
        self, attributes: Sequence[str], groups: Sequence[np.ndarray], questions: np.ndarray
    ) -> LinearAnswer:
        axes = [SCHEMA.index(name) for name in attributes]
        places = np.ix_(*groups)
        whole = np.zeros((len(questions), *SHAPE))
        shape = [SHAPE[i] if i in axes else 1 for i in range(len(SHAPE))]
        for i, weights in enumerate(questions):
            spread = weights[places]  # one axis per attribute asked, in their order
            whole[i] += np.transpose(spread, np.argsort(axes)).reshape(shape)
        flat = whole.reshape(len(questions), -1)
        stated = flat @ self.stated @ flat.T
        stated = np.diag(np.diag(stated)) if self.apart else stated
        return LinearAnswer(flat @ self.cells.ravel(), stated, self.freedom, "model", self.caution)


def covariance(scale: float = 0.002) -> np.ndarray:
    """Errors that hang together strongly and leave the sum of all cells alone."""
    rng = np.random.default_rng(7)
    mixed = rng.normal(size=(CELLS, 4))
    mixed -= mixed.mean(axis=0)
    own = np.eye(CELLS) - 1 / CELLS
    return scale**2 * (mixed @ mixed.T / 2 + 0.3 * own)


COVARIANCE = covariance()


@pytest.fixture
def ask(make_release: Callable[..., Release]) -> Callable[..., Release]:
    table = pa.table({"sex": ["f"], "size": [1], "age": pa.array([3.5])})
    facts = {
        "schema": SCHEMA,
        "model": Dense(SCHEMA, TRUTH),
        "synthetic": table,
        "measured": (),
        "participants": 1000,
    }
    release = make_release(**facts)

    def make(cells: np.ndarray = TRUTH, stated: np.ndarray = COVARIANCE, **known: Any) -> Release:
        errors = KnownErrors(cells, stated, **known)
        return replace(release, content=replace(release.content, replicates=errors))  # type: ignore[arg-type]

    return make


def draws(count: int, seed: int) -> np.ndarray:
    errors = np.random.default_rng(seed).multivariate_normal(
        np.zeros(CELLS), COVARIANCE, count, method="svd"
    )
    return np.asarray(TRUTH + errors.reshape(count, *SHAPE))


# Figures.


def test_shares_conditional_shares_and_people(ask: Callable[..., Release]) -> None:
    release = ask()
    answer = release.query("sex == 'f' and age >= 40")
    share = TRUTH[0, :, 2:4].sum()
    assert answer.estimate == pytest.approx(share)
    assert answer.people == pytest.approx(1000 * share)
    weights = np.zeros(SHAPE)
    weights[0, :, 2:4] = 1
    error = math.sqrt(weights.ravel() @ COVARIANCE @ weights.ravel())
    assert answer.standard_error == pytest.approx(error)
    assert answer.low == pytest.approx(share - 1.959964 * error)
    assert answer.high == pytest.approx(share + 1.959964 * error)
    assert answer.warnings == ()
    conditional = release.query({"age": (40, None)}, given="sex == 'f'")
    assert conditional.estimate == pytest.approx(share / TRUTH[0].sum())
    assert conditional.people == pytest.approx(1000 * share)
    assert release.query("sex == 'f'", given="sex == 'f'").estimate == pytest.approx(1.0)
    assert release.query("True").to_json() == {
        "estimate": pytest.approx(1.0),
        "low": pytest.approx(1.0, abs=1e-6),
        "high": pytest.approx(1.0),
        "standard_error": pytest.approx(0.0, abs=1e-6),
        "people": pytest.approx(1000),
        "warnings": [],
    }


def test_a_divided_bin_counts_in_part_in_every_figure(ask: Callable[..., Release]) -> None:
    release = ask()
    by_age = TRUTH.sum(axis=(0, 1))
    answer = release.query("age >= 90")
    assert answer.estimate == pytest.approx(by_age[3] / 4)
    assert [warning.code for warning in answer.warnings] == ["inside-a-bin"]
    mean = release.mean("age", "age >= 50")
    expected = (by_age[2] / 2 * 55 + by_age[3] * 80) / (by_age[2] / 2 + by_age[3])
    assert mean.estimate == pytest.approx(expected)
    median = release.quantile("age", [0.5], "age >= 50").rows[0].estimate
    half = (by_age[2] / 2 + by_age[3]) / 2 - by_age[2] / 2
    assert half > 0
    assert median == pytest.approx(60 + 40 * half / by_age[3])


def test_a_table_has_a_row_for_each_combination_and_adds_up(ask: Callable[..., Release]) -> None:
    release = ask()
    table = release.table(["size", "sex"], where="age >= 40", given="age >= 20")
    part, base = TRUTH[..., 2:4].sum(axis=2), TRUTH[..., 1:4].sum()
    assert [row.values for row in table.rows][:3] == [("1", "f"), ("1", "m"), ("2", "f")]
    assert [row.estimate for row in table.rows] == pytest.approx((part.T / base).ravel().tolist())
    alone = release.query("size == 2 and sex == 'm' and age >= 40", given="age >= 20")
    row = table.rows[3]
    assert (row.estimate, row.low, row.high, row.standard_error) == pytest.approx(
        (alone.estimate, alone.low, alone.high, alone.standard_error)
    )
    assert release.table("age").rows[-1].values == ("(missing)",)
    assert sum(row.estimate for row in release.table(["age", "sex", "size"]).rows) == pytest.approx(
        1.0
    )


def test_means_leave_missing_answers_out_and_say_what_they_assume(
    ask: Callable[..., Release],
) -> None:
    release = ask()
    by_age = TRUTH.sum(axis=(0, 1))[:4]
    answer = release.mean("age")
    assert answer.estimate == pytest.approx(by_age @ [10, 30, 50, 80] / by_age.sum())
    assert answer.people == pytest.approx(1000 * by_age.sum())
    reach = by_age @ [10, 10, 10, 20] / by_age.sum()
    assert f"moves by at most {reach:.3g}" in answer.warnings[0].message
    assert answer.low is not None
    assert answer.high is not None
    assert answer.low < answer.estimate - reach
    assert answer.high > answer.estimate + reach
    exact = release.mean("size", given="sex == 'm'")
    assert exact.estimate == pytest.approx(TRUTH[1].sum(axis=1) @ [1, 2, 4] / TRUTH[1].sum())
    assert exact.warnings == ()


def test_whole_numbers_are_counted_as_such(ask: Callable[..., Release]) -> None:
    release, rows = ask(), pa.table({"sex": ["f"], "size": [1], "age": [3]})
    whole = replace(release, content=replace(release.content, synthetic=rows))
    by_age = TRUTH.sum(axis=(0, 1))[:4]
    assert whole.query("age <= 19").estimate == pytest.approx(by_age[0])
    assert whole.query("age == 7").estimate == pytest.approx(by_age[0] / 20)
    assert whole.query("age == 100").estimate == pytest.approx(by_age[3] / 41)
    assert whole.mean("age").estimate == pytest.approx(
        by_age @ [9.5, 29.5, 49.5, 80] / by_age.sum()
    )
    people = np.repeat(np.arange(101), 1) * 1.0
    weights = np.concatenate(
        [np.repeat(by_age[:3] / 20, 20), np.repeat(by_age[3] / 41, 41)]
    ).cumsum()
    for level in (0.1, 0.5, 0.83):
        smallest = people[np.searchsorted(weights, level * weights[-1])]
        assert whole.quantile("age", [level]).rows[0].estimate == smallest


def test_differences_and_ratios_of_anything(ask: Callable[..., Release]) -> None:
    release = ask()
    f, m = (release.query("age >= 40", given=f"sex == '{sex}'") for sex in "fm")
    assert (f - m).estimate == pytest.approx(f.estimate - m.estimate)
    assert (f / m).estimate == pytest.approx(f.estimate / m.estimate)
    assert (f - f).estimate == 0
    assert (f - f).standard_error == pytest.approx(0, abs=1e-9)
    assert (f / f).low == pytest.approx(1, abs=1e-6)
    assert (f - m).people is None
    twice = (f - m) - (m - f)
    assert twice.standard_error == pytest.approx(2 * (f - m).standard_error)
    with pytest.raises(ParameterError, match="only answers of one release"):
        f - ask().query("age >= 40")
    with pytest.raises(TypeError):
        f - 0.5  # type: ignore[operator]


# Intervals.


def test_a_conditional_share_has_all_ratios_that_are_not_ruled_out(
    ask: Callable[..., Release],
) -> None:
    """Fieller's interval, against a search."""
    wide = 100 * COVARIANCE
    found = ask(stated=wide).query("age >= 40", given="sex == 'f'")
    weights = np.zeros((2, *SHAPE))
    weights[0, 0, :, 2:4] = weights[1, 0] = 1
    weights = weights.reshape(2, -1)
    top, base = weights @ TRUTH.ravel()
    spread = weights @ wide @ weights.T
    ratios = np.linspace(0, 2, 200_001)
    error = np.sqrt(spread[0, 0] - 2 * ratios * spread[0, 1] + ratios**2 * spread[1, 1])
    kept = ratios[np.abs(top - ratios * base) <= 1.959964 * error]
    assert (found.low, found.high) == pytest.approx((kept.min(), kept.max()), abs=2e-5)
    assert ask(stated=1e4 * COVARIANCE).query("age >= 40", given="sex == 'f'").low is None


FIGURES: dict[str, Callable[[Release], Answer]] = {
    "share": lambda r: r.query("sex == 'f' and size >= 2"),
    "conditional share": lambda r: r.query("age >= 40", given="size == 1"),
    "difference": lambda r: r.query("size == 1") - r.query("size == 1 and age >= 20"),
    "difference of conditional shares": lambda r: (
        r.query("age >= 40", "sex == 'f'") - r.query("age >= 40", "sex == 'm'")
    ),
    "ratio": lambda r: r.query("size == 1") / r.query("size == 1 and age >= 20"),
    # The sizes are listed values: the interval of a mean of bins also has room for their inside.
    "mean": lambda r: r.mean("size", "sex == 'f'"),
    "difference of means": lambda r: r.mean("size", "sex == 'f'") - r.mean("size"),
}
DRAWS = 300
BAND = 3.3 * math.sqrt(
    0.95 * 0.05 / DRAWS
)  # 3.3 standard deviations of a coverage counted on so many draws


def coverage(
    ask: Callable[..., Release], figure: Callable[[Release], Answer], apart: bool = False
) -> float:
    truth = figure(ask()).estimate
    answers = [figure(ask(cells, apart=apart)) for cells in draws(DRAWS, 11)]
    return float(
        np.mean(
            [a.low <= truth <= a.high for a in answers if a.low is not None and a.high is not None]
        )
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", FIGURES)
def test_intervals_hold_as_often_as_they_say(name: str, ask: Callable[..., Release]) -> None:
    assert abs(coverage(ask, FIGURES[name]) - 0.95) < BAND


@pytest.mark.slow
@pytest.mark.parametrize("name", ["conditional share", "difference", "ratio"])
def test_sums_taken_as_independent_are_found_out(name: str, ask: Callable[..., Release]) -> None:
    assert abs(coverage(ask, FIGURES[name], apart=True) - 0.95) > BAND


@pytest.mark.slow
def test_quantiles_hold_as_often_as_they_say(ask: Callable[..., Release]) -> None:
    levels = [0.25, 0.5, 0.9]
    truths = [row.estimate for row in ask().quantile("age", levels, "sex == 'm'").rows]
    tables = [ask(cells).quantile("age", levels, "sex == 'm'") for cells in draws(DRAWS, 12)]
    for i, truth in enumerate(truths):
        rows = [table.rows[i] for table in tables]
        held = np.mean(
            [
                row.low <= truth <= row.high
                for row in rows
                if row.low is not None and row.high is not None
            ]
        )
        # To the ends of whole bins, since the place in a bin is not known.
        assert held > 0.95 - BAND
        # The ends are those of bins; the estimate alone would be missed by half of the draws.
        assert {row.low for row in rows} <= {0.0, 20.0, 40.0, 60.0}


def family(
    ask: Callable[..., Release], simultaneous: bool, freedom: float = math.inf, **asked: str
) -> float:
    """How often all rows of a table hold together. With a finite freedom the covariance itself is estimated from so few draws."""
    truth = [row.estimate for row in ask().table(["size", "age"], **asked).rows]
    rng, held = np.random.default_rng(5), []
    for cells in draws(DRAWS, 13):
        stated = COVARIANCE
        if math.isfinite(freedom):
            sample = rng.multivariate_normal(
                np.zeros(CELLS), COVARIANCE, int(freedom), method="svd"
            )
            stated = sample.T @ sample / freedom
        rows = (
            ask(cells, stated, freedom=freedom)
            .table(["size", "age"], simultaneous=simultaneous, **asked)
            .rows
        )
        held.append(all(row.low <= t <= row.high for row, t in zip(rows, truth, strict=True)))  # type: ignore[operator]
    return float(np.mean(held))


@pytest.mark.slow
@pytest.mark.parametrize("asked", [{}, {"given": "sex == 'm'"}])
def test_simultaneous_intervals_hold_together(
    ask: Callable[..., Release], asked: dict[str, str]
) -> None:
    assert family(ask, True, **asked) > 0.95 - BAND
    assert family(ask, True, 19.0, **asked) > 0.95 - BAND
    assert (
        family(ask, False, **asked) < 0.95 - BAND
    )  # intervals for each row on its own would be found out


# What cannot be told.


def test_a_divisor_that_may_be_zero_gives_no_interval(ask: Callable[..., Release]) -> None:
    release = ask(stated=1e4 * COVARIANCE)
    for answer in (
        release.query("age >= 40", given="size == 4"),
        release.query("age >= 40") / release.query("size == 4"),
        release.query("size == 1") - release.query("age >= 40", given="size == 4"),
    ):
        assert (answer.low, answer.high, answer.standard_error) == (None, None, None)
        assert math.isfinite(answer.estimate)
        assert "divisor-unsure" in [warning.code for warning in answer.warnings]
    table = release.table("sex", given="size == 4")
    assert {row.low for row in table.rows} == {None}
    assert "divisor-unsure" in [warning.code for warning in table.warnings]
    assert "divisor-unsure" in [
        w.code for w in release.quantile("age", [0.5], "size == 4").warnings
    ]
    nobody = ask().query("sex == 'f'", given="age > 200")
    assert math.isnan(nobody.estimate)
    assert nobody.to_json()["estimate"] is None


def test_no_interval_without_a_reason(ask: Callable[..., Release]) -> None:
    release = ask(stated=np.full((CELLS, CELLS), np.nan), caution="they were never asked together")
    for answer in (
        release.query("sex == 'f' and age >= 40", "size == 1"),
        release.mean("age", "sex == 'f'"),
    ):
        assert (answer.low, answer.high, answer.standard_error) == (None, None, None)
        assert "they were never asked together" in [str(warning) for warning in answer.warnings]
    for table in (release.table(["sex"], given="size == 1"), release.quantile("age", [0.5])):
        assert {row.low for row in table.rows} == {None}
        assert [w.code for w in table.warnings if w.code != "inside-a-bin"] == ["no-interval"]
    cautious = ask(caution="taken as independent").query("sex == 'f'")
    assert cautious.low is not None
    assert [str(warning) for warning in cautious.warnings] == ["taken as independent"]


def test_a_release_that_cannot_be_drawn_anew_still_answers(
    make_release: Callable[..., Release],
) -> None:
    release = make_release(method="lopub", parameters={})
    answer = release.query("colour == 'red' and age < 18")
    assert answer.estimate == pytest.approx(0.02)
    assert answer.low is None
    assert [warning.code for warning in answer.warnings] == ["no-interval"]


def test_a_release_of_true_records_has_no_interval(make_release: Callable[..., Release]) -> None:
    release = make_release()
    call = replace(release.call, method="jtree-nonprivate", no_privacy=True)
    answer = replace(release, call=call, epsilon_achieved=math.inf).query("colour == 'red'")
    assert answer.low is None
    assert "made from the true records" in str(answer.warnings[0])


def test_a_release_without_replicates_makes_them_once(
    make_release: Callable[..., Release], monkeypatch: pytest.MonkeyPatch
) -> None:
    made, real = [], prepare_bootstrap

    def counting(source: Any, **given: Any) -> Any:
        made.append(source)
        return real(source, **given)

    monkeypatch.setattr("dither.release.table.prepare_bootstrap", counting)
    release = make_release(parameters={"mechanism": "oue"}, epsilon_asked=2.1)
    first, second = release.query("colour == 'red'"), release.query("colour == 'red'")
    assert made == [release]
    assert first.low is not None
    assert first == second


def test_bad_questions_are_refused(ask: Callable[..., Release]) -> None:
    release = ask()
    for call, words in [
        (lambda: release.query("sex == 'f'", level=1.0), "level must lie in"),
        (lambda: release.query("sexx == 'f'"), "did you mean 'sex'"),
        (lambda: release.table([]), "a table needs attributes"),
        (lambda: release.table(["sex", "sex"]), "each once"),
        (lambda: release.table("sx"), "did you mean 'sex'"),
        (lambda: release.mean("sex"), "its values are no numbers"),
        (
            lambda: release.quantile("size", [0.5]),
            "size is ordinal; quantiles are of numbers in bins",
        ),
        (lambda: release.quantile("age", [1.5]), "a quantile's level must lie in"),
        (lambda: release.quantile("age", []), "at least one level"),
    ]:
        with pytest.raises(ParameterError, match=words):
            call()


def test_a_table_of_too_many_rows_is_refused(make_release: Callable[..., Release]) -> None:
    from dither.fit import Independent

    wide = Schema(tuple(Attribute(f"a{i}", "numeric", edges=tuple(range(51))) for i in range(2)))
    model = Independent(wide, (np.full(50, 0.02), np.full(50, 0.02)))
    release = make_release(
        schema=wide, model=model, synthetic=pa.table({"a0": [1], "a1": [1]}), measured=()
    )
    with pytest.raises(ParameterError, match="2,500 rows, more than 2,000"):
        release.table(["a0", "a1"])


def test_quantiles_against_a_search_of_every_point(ask: Callable[..., Release]) -> None:
    wide, ends = 25 * COVARIANCE, np.array([0.0, 20.0, 40.0, 60.0, 100.0])
    weights = np.zeros((4, *SHAPE))
    for code in range(4):
        weights[code, :, :, code] = 1
    weights = weights.reshape(4, -1)
    sums, spread = weights @ TRUTH.ravel(), weights @ wide @ weights.T
    x = np.linspace(0, 100, 100_001)
    below = np.clip((x[:, None] - ends[:-1]) / np.diff(ends), 0, 1)
    levels = (0.2, 0.5, 0.95)
    rows = ask(stated=wide).quantile("age", levels).rows
    for level, row in zip(levels, rows, strict=True):
        away = (below - level) @ sums
        error = np.sqrt(np.einsum("ij,jk,ik->i", below - level, spread, below - level))
        kept = x[np.abs(away) <= 1.959964 * error]
        assert row.estimate == pytest.approx(x[np.argmin(np.abs(away))], abs=2e-3)
        # Where in a bin people are is not known, so that the interval has whole bins.
        assert row.low == ends[np.searchsorted(ends, kept.min() - 0.2) - 1]
        assert row.high == ends[np.searchsorted(ends, kept.max() + 0.2)]
    (nobody,) = ask(cells=np.zeros(SHAPE)).quantile("age", [0.5]).rows
    assert math.isnan(nobody.estimate)
    assert nobody.low is None


def test_answers_are_tables_of_other_libraries(ask: Callable[..., Release]) -> None:
    release = ask()
    answer, table = release.query("sex == 'f'"), release.table(["sex", "size"])
    assert answer.to_arrow().to_pylist()[0]["estimate"] == answer.estimate
    assert answer.to_pandas()["low"][0] == answer.low
    assert answer.to_polars()["high"][0] == answer.high
    assert table.to_arrow().column_names == [
        "sex",
        "size",
        "estimate",
        "low",
        "high",
        "standard_error",
    ]
    assert table.to_pandas().shape == table.to_polars().shape == (6, 6)
    unknown = ask(stated=np.full((CELLS, CELLS), np.nan)).table(["sex"])
    assert unknown.to_arrow()["low"].to_pylist() == [None, None]
    assert release.quantile("age", [0.5]).to_arrow()["level"].to_pylist() == [0.5]


def test_answers_say_what_they_are(ask: Callable[..., Release]) -> None:
    release = ask()
    answer: Answer = release.query("sex == 'f'", given={"size": 2})
    assert "share with sex == 'f' given size: 2" in repr(answer)
    assert "95 % interval" in repr(answer)
    table: AnswerTable = release.table(["age", "sex", "size"])
    assert len(table) == 30
    assert "… and 18 smaller ones" in repr(table)
    assert "without an interval" in repr(
        ask(stated=np.full((CELLS, CELLS), np.nan)).query("sex == 'f'")
    )


def test_lists_are_asked_for_where_one_value_is_given(ask: Callable[..., Release]) -> None:
    release = ask()
    with pytest.raises(ParameterError, match="levels are a list"):
        release.quantile("age", None)  # type: ignore[arg-type]
    one = release.quantile("age", 0.5)
    (row,) = release.quantile("age", [0.5]).rows
    assert (one.estimate, one.low, one.high) == (row.estimate, row.low, row.high)
    with pytest.raises(ParameterError, match="list of attributes, not 3"):
        release.table(3)  # type: ignore[arg-type]
    assert len(release.quantile("age", np.array([0.25, 0.5]))) == 2  # type: ignore[arg-type]


def test_a_share_less_a_mean_is_no_share(ask: Callable[..., Release]) -> None:
    release = ask()
    share, mean = release.query("sex == 'f'"), release.mean("age")
    assert (share - mean).unit == (mean - share).unit == "number"
    assert "%" not in str(share - mean).split("(")[0]
    assert (share - share).unit == "share"


# Means by groups, deviations and correlations.


def _moments(cells: np.ndarray) -> tuple[float, float]:
    """The deviation of age and its correlation with size, from people spread evenly in bins."""
    known = cells[..., :4]
    shares = known / known.sum()
    age, size = np.array([10.0, 30.0, 50.0, 80.0]), np.array([1.0, 2.0, 4.0])
    width = np.array([20.0, 20.0, 20.0, 40.0])
    by_age, by_size = shares.sum(axis=(0, 1)), shares.sum(axis=(0, 2))
    variance = by_age @ (age**2 + width**2 / 12) - (by_age @ age) ** 2
    product = size @ shares.sum(axis=0) @ age
    sizes = by_size @ size**2 - (by_size @ size) ** 2
    correlation = (product - (by_age @ age) * (by_size @ size)) / math.sqrt(variance * sizes)
    return math.sqrt(variance), correlation


def test_deviations_and_correlations_have_the_errors_of_repeated_collections(
    ask: Callable[..., Release],
) -> None:
    release = ask()
    deviation, correlation = release.std("age"), release.corr("age", "size")
    expected = _moments(TRUTH)
    assert (deviation.estimate, correlation.estimate) == pytest.approx(expected)
    assert deviation.people == pytest.approx(1000 * TRUTH[..., :4].sum())
    assert {warning.code for warning in correlation.warnings} == {"inside-a-bin"}
    repeated = np.array([_moments(cells) for cells in draws(2000, 3)]).std(axis=0)
    assert deviation.standard_error == pytest.approx(repeated[0], rel=0.1)
    assert correlation.standard_error == pytest.approx(repeated[1], rel=0.1)
    assert deviation.low == pytest.approx(
        deviation.estimate - 1.959964 * (deviation.standard_error or 0)
    )
    assert release.corr("size", "age").estimate == pytest.approx(correlation.estimate)
    men = release.std("size", given="sex == 'm'")
    shares = TRUTH[1].sum(axis=1) / TRUTH[1].sum()
    sizes = np.array([1.0, 2.0, 4.0])
    assert men.estimate == pytest.approx(math.sqrt(shares @ sizes**2 - (shares @ sizes) ** 2))
    with pytest.raises(ParameterError, match="different"):
        release.corr("age", "age")
    with pytest.raises(ParameterError, match="no numbers"):
        release.std("sex")


def test_means_by_groups_are_the_means_of_each_group(ask: Callable[..., Release]) -> None:
    release = ask()
    table = release.mean("age", where="size > 1", by=["sex", "size"])
    assert table.by == ("sex", "size")
    assert table.unit == "number"
    assert len(table) == 6
    alone = release.mean("age", where="size > 1", given="sex == 'm' and size == 4")
    row = table.rows[-1]
    assert row.values == ("m", "4")
    assert (row.estimate, row.low, row.high) == pytest.approx(
        (alone.estimate, alone.low, alone.high)
    )
    # Nobody of size 1 meets the condition, so that group has no mean.
    assert math.isnan(table.rows[0].estimate)
    assert release.mean("age", by="sex").rows == release.mean("age", by=["sex"]).rows


def test_names_are_given_one_by_one_or_as_a_list(ask: Callable[..., Release]) -> None:
    release = ask()
    assert release.table("sex", "size").rows == release.table(["sex", "size"]).rows
    assert release.median("age").estimate == release.quantile("age", [0.5]).rows[0].estimate
    with pytest.raises(ParameterError, match="one by one or in one list"):
        release.table("sex", ["size"])
