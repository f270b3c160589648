"""RESULTS.md and the README say what benchmarks/results.json holds, and nothing else."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from benchmarks import figures, results
from dither.cli import run
from dither.lab.harness import Bench, Outcome, Study, execute


def outside_figures(readme: str) -> str:
    before, _, rest = readme.partition(results.BEGIN)
    return before + rest.partition(results.END)[2]


def claims(text: str) -> list[str]:
    """Measured figures: decimal fractions, and amounts of time, memory, error or speed."""
    units = r"(?:s|seconds?|minutes?|ms|MB|GB|%|per cent|times|x)"
    return re.findall(
        rf"(?<![\w.])(?:\d[\d,]*(?:\.\d+)? ?{units}|\d+\.\d+(?!\.?\d))(?![\w/])", text
    )


def test_results_page_is_what_the_stored_results_give() -> None:
    assert results.RESULTS.read_text(encoding="utf-8") == results.results_text(results.load())


def test_readme_figures_are_what_the_stored_results_give() -> None:
    assert results.README.read_text(encoding="utf-8") == results.readme_text(results.load())


def test_readme_claims_no_figure_outside_its_generated_part() -> None:
    text = outside_figures(results.README.read_text(encoding="utf-8"))
    code = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    for no_claim in ("Python 3.11", "Apache-2.0", "1.5 million participants"):
        code = code.replace(no_claim, "")
    assert claims(code) == []


def test_a_claim_slipped_into_the_prose_would_be_seen() -> None:
    assert claims("an error of 0.027 in 3 s with 1.2 GB, 54 times as fast, 30 %") == [
        "0.027",
        "3 s",
        "1.2 GB",
        "54 times",
        "30 %",
    ]
    assert claims("epsilon 4, 45,222 participants, 15 attributes, version 0.1.0, 2^32") == []


def test_a_changed_result_changes_both_texts() -> None:
    stored = results.load()
    figure = next(
        f
        for f in stored["mixture"]["figures"]
        if f["labels"].get("method") == "mixture" and f["labels"]["epsilon"] == 4.0
    )
    figure["mean"] *= 2
    assert results.RESULTS.read_text(encoding="utf-8") != results.results_text(stored)
    assert results.README.read_text(encoding="utf-8") != results.readme_text(stored)


def test_stored_results_are_of_full_runs_with_machine_versions_and_date() -> None:
    stored = results.load()
    assert {"mixture", "privincr"} <= set(stored)
    for name, entry in stored.items():
        assert re.fullmatch(r"\d{4}-\d\d-\d\d", entry["date"]), name
        assert {"processor", "system", "python", "dither", "numpy"} <= set(entry["machine"]), name
        assert entry["figures"], name


def test_a_line_of_the_readme_without_any_figure_is_an_error() -> None:
    stored = results.load()
    stored["privincr"]["figures"] = [
        f for f in stored["privincr"]["figures"] if f["labels"].get("source") != "published"
    ]
    with pytest.raises(KeyError, match="no stored figure for the README"):
        results.readme_text(stored)


def test_finding_a_figure_is_exact() -> None:
    stored = results.load()
    with pytest.raises(KeyError, match="figures in mixture/errors"):
        results.find(stored, "mixture", "errors", "tvd_2", dataset="Adult")


def test_pictures_are_what_the_stored_results_give() -> None:
    made = figures.pictures(results.load())
    there = {path.name: path.read_text(encoding="utf-8") for path in figures.PICTURES.glob("*.svg")}
    assert there == made, "run python -m benchmarks.results"


def test_the_results_page_shows_every_picture_and_stays_short() -> None:
    text = results.RESULTS.read_text(encoding="utf-8")
    shown = re.findall(r"\(../docs/pictures/results/([\w.-]+\.svg)\)", text)
    assert sorted(shown) == sorted(figures.pictures(results.load()))
    assert text.count("\n") <= 600


def test_pictures_are_well_formed_and_have_colours_for_dark_pages() -> None:
    for name, text in figures.pictures(results.load()).items():
        ElementTree.fromstring(text)
        assert "prefers-color-scheme:dark" in text, name
        assert "nan" not in text, name


def test_printed_figures_are_hollow_markers() -> None:
    stored = results.load()
    picture = figures.pictures(stored)["privincr-table-2-tvd-2.svg"]
    published = [
        f
        for f in stored["privincr"]["figures"]
        if f["study"] == "table_2" and f["labels"].get("source") == "published"
    ]
    # Each of them in its panel, and two for each line in the legend.
    lines = {f["labels"]["method"] for f in published}
    assert picture.count('class="hollow') == len(published) + 2 * len(lines)


def test_every_figure_of_a_paper_with_stored_points_has_a_picture() -> None:
    made = figures.pictures(results.load())
    for start in (
        "lopub-joints-avd",
        "lopub-joints-cpu",
        "lopub-correlations",
        "lopub-classification",
        "lopub-model-cpu",
        "bayesnet-networks",
        "bayesnet-ranges",
        "bayesnet-queries",
        "bayesnet-classifiers",
        "privincr-figure-3",
        "privincr-figure-4",
        "privincr-table-2",
        "privincr-figure-6",
        "csm-figure2",
        "csm-figure3",
        "csm-figure4",
        "csm-figure5",
        "csm-figure6",
        "chp-figures-1-to-3",
        "chp-figure4",
        "chp-figure5",
        "chp-figure6",
        "chp-figure7",
    ):
        assert any(name.startswith(start) for name in made), start


def _outcome(tmp_path, value: float) -> Outcome:
    study = Study("one", "One", {"x": (1, 2)}, lambda x: {"y": value * x}, note="Noted.")
    bench = Bench("mine", "Mine", "About.", (study,), "full")
    return execute(bench, tmp_path, fresh=True, show=lambda text: None)


def test_one_study_replaces_its_own_figures_only(tmp_path) -> None:
    entry = results._entry(_outcome(tmp_path, 1.0))
    other = {"study": "two", "labels": {}, "measure": "y", "mean": 7.0, "spread": None, "runs": 1}
    before = {
        **entry,
        "studies": [*entry["studies"], {**entry["studies"][0], "name": "two", "title": "Two"}],
        "figures": [*entry["figures"], other],
        "notes": ["one: not there", "two: not there"],
    }
    merged = results._merged(before, results._entry(_outcome(tmp_path, 3.0)))
    assert [s["name"] for s in merged["studies"]] == ["one", "two"]
    assert other in merged["figures"]
    assert [f["mean"] for f in merged["figures"] if f["study"] == "one"] == [3.0, 6.0]
    assert merged["notes"] == ["two: not there"]
    text = results.results_text({"mine": merged})
    assert text.count("dither bench mine --study one") == 1
    assert "--study two" not in text


def test_a_study_is_chosen_by_name_and_a_wrong_one_is_named(tmp_path, capsys) -> None:
    given = ["bench", "chp", "--quick", "-o", str(tmp_path)]
    assert run([*given, "--study", "figure6", "--quiet"]) == 0
    assert run([*given, "--study", "figure9"]) == 2
    assert "chp has no study 'figure9'; it has figures_1_to_3" in capsys.readouterr().err
    assert run(["bench", "all", "--study", "x"]) == 2
    assert "--study" in capsys.readouterr().err
