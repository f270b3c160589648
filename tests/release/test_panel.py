"""Panels: simulation, estimates, their covariance, the folder and the command line."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest
from tools.epsilon_pictures import wave_errors

import dither
from dither._panel import simulate_panel
from dither.cli import run
from dither.errors import DitherError, InputError, ParameterError, QuestionError
from dither.mechanisms.loloha import Loloha
from dither.release import Release, load_release
from dither.release.panel import ABSENT, PanelContent, hash_cells

SHARES = np.array([[0.5, 0.3, 0.2], [0.4, 0.4, 0.2]])


def weeks(people: int = 3000, waves: int = 3, seed: int = 7) -> dict[str, list[Any]]:
    """A table in which the share of "good" grows by a tenth each week; a tenth miss each week."""
    rng = np.random.default_rng(seed)
    place = rng.random(people)
    table: dict[str, list[Any]] = {"id": [], "week": [], "mood": [], "age": []}
    for wave in range(waves):
        there = np.flatnonzero(rng.random(people) < 0.9)
        table["id"] += [f"p{i}" for i in there]
        table["week"] += [wave + 1] * len(there)
        table["mood"] += ["good" if place[i] < 0.3 + 0.1 * wave else "bad" for i in there]
        table["age"] += [["young", "middle", "old"][i % 3] for i in there]
    return table


def ask(table: Any = None, **options: Any) -> Release:
    options = {"columns": ["mood"], "epsilon_lifetime": 6.0, "seed": 3, **options}
    return dither.panel(weeks() if table is None else table, person="id", time="week", **options)


@pytest.fixture(scope="module")
def release() -> Release:
    return ask()


def test_a_panel_answers_about_waves_and_changes(release: Release) -> None:
    assert release.kind == "panel"
    assert release.epsilon <= 6.0
    assert release.panel.first_epsilon < release.epsilon
    for wave, share in ((1, 0.3), (2, 0.4), (3, 0.5)):
        answer = release.query("mood == 'good'", wave=wave)
        assert answer.low is not None
        assert answer.high is not None
        assert answer.low < share < answer.high
    change = release.change(1, 3, "mood == 'good'")
    difference = [release.query("mood == 'good'", wave=wave).estimate for wave in (1, 3)]
    assert change.estimate == pytest.approx(difference[1] - difference[0])
    assert change.low is not None
    assert change.high is not None
    assert change.low < 0.2 < change.high


def test_shares_of_a_wave_have_sum_one(release: Release) -> None:
    rows = release.table("mood", wave=2).rows
    assert sum(row.estimate for row in rows) == pytest.approx(1.0)
    asked = release.query("mood == 'good'", wave=2)
    row = next(row for row in rows if row.values == ("good",))
    assert (row.estimate, row.low, row.high) == pytest.approx(
        (asked.estimate, asked.low, asked.high)
    )


def test_a_trend_has_a_band_over_all_waves(release: Release) -> None:
    band = release.trend("mood == 'good'")
    alone = release.trend("mood == 'good'", simultaneous=False)
    assert band.by == ("week",)
    assert [row.values for row in band.rows] == [(1,), (2,), (3,)]
    for wide, narrow, wave in zip(band.rows, alone.rows, (1, 2, 3), strict=True):
        assert wide.low < narrow.low < narrow.high < wide.high  # type: ignore[operator]
        assert narrow.low == pytest.approx(release.query("mood == 'good'", wave=wave).low)


def test_the_same_seed_gives_the_same_panel(release: Release) -> None:
    again = ask()
    assert np.array_equal(again.panel.reports, release.panel.reports)
    assert not np.array_equal(ask(seed=None).panel.reports, release.panel.reports)


def test_waves_may_be_dates_and_texts_and_people_numbers() -> None:
    table = weeks(400)
    table["id"] = [int(name[1:]) for name in table["id"]]
    table["week"] = [date(2026, 1, 5) + timedelta(7 * week) for week in table["week"]]
    made = ask(table)
    assert made.panel.waves == ("2026-01-12", "2026-01-19", "2026-01-26")
    by_date = made.query("mood == 'good'", wave=date(2026, 1, 19))
    assert by_date == made.query("mood == 'good'", wave="2026-01-19")


def test_several_columns_divide_the_people() -> None:
    made = ask(columns=["mood", "age"])
    assert set(made.panel.chosen) == {0, 1}
    assert made.table("age", wave=1).rows[0].estimate > 0
    with pytest.raises(QuestionError, match="never asked together"):
        made.query("mood == 'good' and age == 'old'", wave=1)


def test_questions_that_a_panel_cannot_answer(release: Release) -> None:
    with pytest.raises(ParameterError, match="name a wave"):
        release.query("mood == 'good'")
    with pytest.raises(ParameterError, match="no wave '9'"):
        release.query("mood == 'good'", wave=9)
    with pytest.raises(ParameterError, match="two different waves"):
        release.change(1, 1, "mood == 'good'")
    for question in (lambda: release.synthetic, lambda: release.marginal("mood")):
        with pytest.raises(QuestionError, match="a panel has no"):
            question()
    number = dither.histogram([1.0, 2.0, 3.0] * 50, consumers=[3], epsilon=1.0, low=0, high=4)
    with pytest.raises(QuestionError, match="no waves"):
        number.query(None, wave=1)


def broken(name: str, value: Any, row: int = 0) -> dict[str, list[Any]]:
    table = weeks(50)
    table[name][row] = value
    return table


@pytest.mark.parametrize(
    ("table", "options", "words"),
    [
        (broken("id", None), {}, "'id' has no value in row 1"),
        (broken("week", None, 2), {}, "'week' has no value in row 3"),
        (broken("id", weeks(50)["id"][1]), {}, "more than one row in week 1"),
        (weeks(50), {"columns": ["hat"]}, "no column 'hat'"),
        (weeks(50), {"columns": []}, "name from 1"),
        (weeks(50), {"columns": ["week"]}, "different columns"),
        (weeks(50), {"waves": 2}, "raise waves"),
        (weeks(50), {"epsilon_lifetime": 0.0}, "epsilon"),
        (weeks(50), {"epsilon_first": 7.0}, "first report"),
    ],
)
def test_bad_input_is_one_clear_error(table: Any, options: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        ask(table, **options)


def test_more_announced_waves_mean_more_noise(release: Release) -> None:
    longer = ask(waves=12)
    assert longer.panel.lifetime_waves == 12
    errors = [one.query("mood == 'good'", wave=1).standard_error for one in (release, longer)]
    assert errors[0] < errors[1]  # type: ignore[operator]


def test_a_saved_panel_gives_the_same_answers(release: Release, tmp_path: Path) -> None:
    again = load_release(release.save(tmp_path / "out"))
    assert again.epsilon == release.epsilon
    assert again.query("mood == 'good'", wave=2) == release.query("mood == 'good'", wave=2)
    assert again.change(1, 3, "mood == 'bad'") == release.change(1, 3, "mood == 'bad'")
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert "mood: good" in page
    assert "times that of two independent waves" in page


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("waves", [1, 2]),
        ("waves", [1, 1, 2]),
        ("waves", "abc"),
        ("mechanisms", []),
        ("epsilon_achieved", 0.5),
        ("participants", 5),
    ],
)
def test_a_damaged_panel_is_refused(
    release: Release, tmp_path: Path, key: str, value: object
) -> None:
    folder = release.save(tmp_path / "out")
    manifest = json.loads((folder / "release.json").read_text(encoding="utf-8"))
    manifest[key] = value
    (folder / "release.json").write_text(json.dumps(manifest), encoding="utf-8")
    with pytest.raises(DitherError):
        load_release(folder)


def test_reports_of_no_bucket_are_refused(release: Release) -> None:
    reports = release.panel.reports.copy()
    reports[0, 0] = release.panel.mechanisms[0].buckets
    with pytest.raises(ParameterError, match="no bucket"):
        replace(release, content=replace(release.panel, reports=reports))


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pa.csv.write_csv(pa.table(weeks(2000)), tmp_path / "weeks.csv")
    words = ["panel", str(tmp_path / "weeks.csv"), "--person", "id", "--time", "week"]
    words += ["--columns", "mood", "--epsilon-lifetime", "4", "--seed", "1"]
    out = str(tmp_path / "out")
    assert run([*words, "-o", out, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["epsilon_achieved"] <= 4
    assert printed["waves"] == [1, 2, 3]
    assert run([*words, "-o", out]) == 2
    assert "--overwrite" in capsys.readouterr().err
    assert run([*words, "-o", out, "--overwrite"]) == 0
    assert run(["query", out, "mood == 'good'", "--wave", "2", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out.splitlines()[-1])
    asked = load_release(out).query("mood == 'good'", wave=2)
    assert answer["estimate"] == asked.estimate
    assert run(["query", out, "--wave", "2"]) == 0
    assert "good" in capsys.readouterr().out
    assert run(["query", out]) == 0
    assert "Waves (week): 1, 2, 3" in capsys.readouterr().out
    assert run(["query", out, "--wave", "7", "mood == 'good'"]) == 2
    assert run([*words, "--columns", "hat"]) == 2


def test_the_recorded_command_repeats_the_panel(release: Release, tmp_path: Path) -> None:
    pa.csv.write_csv(pa.table(weeks(300)), tmp_path / "weeks.csv")
    made = ask(str(tmp_path / "weeks.csv"))
    page = made.report()
    assert "dither panel" in page
    assert "--epsilon-lifetime 6" in page
    assert "dither.panel(" in page


# Statistics.


def played(mechanism: Loloha, people: int, seed: int, *, constant: bool = False) -> PanelContent:
    """Participants of two waves with SHARES; with `constant` they keep the values of wave 0."""
    rng = np.random.default_rng(seed)
    first = rng.choice(3, people, p=SHARES[0])
    moved = (first == 0) & (rng.random(people) < 0.2)
    second = first if constant else np.where(moved, 1, first)
    codes = np.concatenate([first, second])[:, None].astype(np.int32)
    rows = np.tile(np.arange(people), 2), np.repeat([0, 1], people)
    return simulate_panel(codes, rows, [mechanism], ("id", "week"), [0, 1], rng)


def split(content: PanelContent, people: int) -> list[PanelContent]:
    """Many small panels from one large simulation."""
    return [
        replace(
            content,
            chosen=content.chosen[start : start + people],
            words=content.words[start : start + people],
            reports=content.reports[start : start + people],
        )
        for start in range(0, len(content.chosen), people)
    ]


@pytest.fixture(scope="module")
def small_panels() -> list[PanelContent]:
    return split(played(Loloha.for_epsilon(3, 6.0, 2), 800 * 1200, 11), 800)


def covered(panels: list[PanelContent], *, with_covariance: bool) -> tuple[float, float, float]:
    """How often 95 % intervals cover the waves' and the changes' true figures.

    Also returned is the variance of the changes' errors in units of the stated one.
    """
    weights = np.array([1.0, 0.0, 0.0])
    waves, changes, scaled = [], [], []
    for content in panels:
        shares, covariance = content.moments(0, weights, [0, 1])
        errors = shares - SHARES[:, 0]
        waves += list(np.abs(errors) < 1.96 * np.sqrt(np.diag(covariance)))
        shared = covariance[0, 1] if with_covariance else 0.0
        spread = math.sqrt(covariance[0, 0] + covariance[1, 1] - 2 * shared)
        scaled.append((errors[1] - errors[0]) / spread)
        changes.append(abs(scaled[-1]) < 1.96)
    return float(np.mean(waves)), float(np.mean(changes)), float(np.var(scaled))


@pytest.mark.slow
def test_intervals_of_waves_and_changes_cover(small_panels: list[PanelContent]) -> None:
    waves, changes, variance = covered(small_panels, with_covariance=True)
    assert 0.93 < waves < 0.97
    assert 0.93 < changes < 0.97
    # Four standard deviations of a sample variance.
    assert abs(variance - 1) < 4 * math.sqrt(2 / len(small_panels))


@pytest.mark.slow
def test_a_change_without_the_shared_noise_is_rejected(small_panels: list[PanelContent]) -> None:
    _, changes, variance = covered(small_panels, with_covariance=False)
    assert changes > 0.97
    assert abs(variance - 1) > 4 * math.sqrt(2 / len(small_panels))


@pytest.mark.slow
def test_simultaneous_bands_cover_all_waves() -> None:
    mechanism = Loloha.for_epsilon(3, 6.0, 2)
    table = {"id": [0, 1], "week": [1, 2], "mood": ["a", "b"]}
    schema = dither.Schema((dither.Attribute("mood", "categorical", values=("a", "b", "c")),))
    made = ask(table, schema=schema)
    hits = []
    for content in split(played(mechanism, 800 * 500, 5), 800):
        one = replace(
            made,
            content=content,
            epsilon_achieved=mechanism.epsilon,
            participants=800,
        )
        rows = one.trend("mood == 'a'").rows
        truth = SHARES[:, 0]
        hits.append(all(row.low < true < row.high for row, true in zip(rows, truth, strict=True)))
    # Bonferroni's and Sidak's bands cover at least as often as stated.
    assert np.mean(hits) > 0.95 - 3 * math.sqrt(0.05 * 0.95 / len(hits))


def test_the_variance_of_a_wave_is_the_mechanisms() -> None:
    # Estimates of many small panels scatter as the formula says, sampling included.
    mechanism = Loloha.for_epsilon(3, 4.0, 2)
    panels = split(played(mechanism, 200 * 2000, 2), 200)
    raw = np.array([content.raw(0, 0) for content in panels])
    assert np.allclose(
        raw.mean(axis=0), SHARES[0], atol=4 * raw.std(axis=0).max() / math.sqrt(2000)
    )
    contrast = raw[:, 0] - raw[:, 1]
    p, q = float(mechanism.p), float(mechanism.q)
    # Of a score for cell 0 less cell 1; q(1-q) of both for cell 2, and p with q for these.
    both = float(mechanism.p)
    mean_square = 0.8 * (p * (1 - q) + q * (1 - p)) + 0.2 * 2 * q * (1 - q)
    assert both == p
    expected = (mean_square / (p - q) ** 2 - (SHARES[0, 0] - SHARES[0, 1]) ** 2) / 200
    assert contrast.var() == pytest.approx(expected, rel=4 * math.sqrt(2 / 2000))


def test_hashes_of_arrays_are_those_of_devices() -> None:
    mechanism = Loloha(40, 3, 2**32 // 9, 2**32 // 7, 2)
    words = np.random.default_rng(1).integers(0, 1 << 32, (20, 2)).astype(np.uint32)
    hashed = hash_cells(mechanism, words)
    for i, (a, b) in enumerate(words.tolist()):
        assert hashed[i].tolist() == [mechanism.bucket(a, b, value) for value in range(40)]


def test_simulated_people_keep_their_permanent_answers() -> None:
    # Constant values: the agreement of two waves is that of the law.
    mechanism = Loloha(3, 2, 2**32 // 5, 2**32 // 4, 2)
    content = played(mechanism, 60_000, 4, constant=True)
    assert not (content.reports == ABSENT).any()
    same = float((content.reports[:, 0] == content.reports[:, 1]).mean())
    law = mechanism.law((0, 0))
    expected = float(law[0, 0] + law[1, 1])
    assert abs(same - expected) < 4 * math.sqrt(expected * (1 - expected) / 60_000)


def test_the_documented_errors_are_those_of_the_mechanisms() -> None:
    page = Path(__file__).resolve().parents[2] / "docs" / "explanation" / "panels.md"
    text = page.read_text(encoding="utf-8")
    for waves, errors in wave_errors().items():
        assert f"| {waves} | {errors[0]:.1f} | {errors[1]:.1f} |" in text
