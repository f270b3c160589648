"""The stored results: the means of full runs, and the pictures, RESULTS.md and the README's figures made from them.

    dither bench NAME --store        measure in full, then put the means into benchmarks/results.json
    python -m benchmarks.results     rewrite pictures, RESULTS.md and the README's table from benchmarks/results.json

A test fails when a picture or text differs from what the stored results give.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from statistics import geometric_mean
from typing import TYPE_CHECKING, Any

from benchmarks import figures as drawn
from dither.lab.harness.page import digits, label, words
from dither.schema import write_atomically

if TYPE_CHECKING:
    from dither.lab.harness import Outcome

HERE = Path(__file__).resolve().parent
STORED, RESULTS, README = HERE / "results.json", HERE / "RESULTS.md", HERE.parent / "README.md"
BEGIN, END = "<!-- figures from benchmarks/results.json -->", "<!-- end of figures -->"
Figure = dict[str, Any]
WHOLE_LINES = 30  # a longer study is shown as its charts' lines instead


# ---- storing ---------------------------------------------------------------------------------------------------------


def keep(outcome: Outcome, partly: bool = False) -> None:
    """Put a full run's means into results.json, replacing its earlier figures, and rewrite the texts.

    Args:
        outcome: What was measured.
        partly: Whether only some studies were measured; the figures of the others stay.
    """
    if outcome.bench.size != "full":
        raise ValueError("only full sizes are stored")
    stored = load()
    name, entry = outcome.bench.name, _entry(outcome)
    stored[name] = _merged(stored[name], entry) if partly and name in stored else entry
    text = _dumped(stored)
    write_atomically(STORED, lambda path: path.write_text(text, encoding="utf-8"))
    write_texts()


def _merged(before: dict[str, Any], entry: dict[str, Any]) -> dict[str, Any]:
    """An entry with some studies measured again or added; each of them states its own run."""
    run = {key: entry[key] for key in ("date", "code", "seconds")}
    new = {study["name"]: {**study, "measured": run} for study in entry["studies"]}
    studies = [new.pop(study["name"], study) for study in before["studies"]]
    names = {study["name"] for study in entry["studies"]}
    figures = [f for f in before["figures"] if f["study"] not in names]
    notes = [n for n in before["notes"] if n.partition(":")[0] not in names]
    return {
        **before,
        "title": entry["title"],
        "about": entry["about"],
        "notes": [*notes, *entry["notes"]],
        "studies": [*studies, *new.values()],
        "figures": [*figures, *entry["figures"]],
    }


def _entry(outcome: Outcome) -> dict[str, Any]:
    from dither.lab.harness.run import machine

    return {
        "title": outcome.bench.title,
        "about": outcome.bench.about,
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "code": outcome.code,
        "seconds": round(outcome.seconds),
        "machine": machine(),
        "notes": outcome.notes,
        "studies": [
            {
                "name": s.name,
                "title": s.title,
                "note": s.note,
                "charts": [_chart(asdict(c)) for c in s.charts],
            }
            for s in outcome.bench.studies
        ],
        "figures": [_rounded(row) for row in outcome.summary],
    }


def load() -> dict[str, dict[str, Any]]:
    """Every stored benchmark by name."""
    return json.loads(STORED.read_text(encoding="utf-8")) if STORED.is_file() else {}


def _chart(chart: dict[str, Any]) -> dict[str, Any]:
    return {key: chart[key] for key in ("x", "y", "colour", "panels", "only")}


def _rounded(row: Figure) -> Figure:
    return {
        **row,
        "mean": float(f"{row['mean']:.6g}"),
        "spread": row["spread"] and float(f"{row['spread']:.3g}"),
    }


def _dumped(stored: dict[str, dict[str, Any]]) -> str:
    """One figure per line, so that a change shows which figure changed."""
    parts = []
    for name in sorted(stored):
        head = {key: value for key, value in stored[name].items() if key != "figures"}
        lines = ",\n".join("  " + json.dumps(figure) for figure in stored[name]["figures"])
        parts.append(
            f'"{name}": {json.dumps(head, indent=1)[:-2]},\n "figures": [\n{lines}\n ]\n}}'
        )
    return "{\n" + ",\n".join(parts) + "\n}\n"


def find(
    stored: dict[str, dict[str, Any]], bench: str, study: str, measure: str, **labels: Any
) -> float:
    """One stored mean by its labels; a KeyError names the missing or ambiguous label."""
    found = [
        figure["mean"]
        for figure in stored[bench]["figures"]
        if figure["study"] == study
        and figure["measure"] == measure
        and all(figure["labels"].get(key) == value for key, value in labels.items())
    ]
    if len(found) != 1:
        raise KeyError(f"{len(found)} figures in {bench}/{study} have {measure} with {labels}")
    return float(found[0])


# ---- RESULTS.md ------------------------------------------------------------------------------------------------------


def results_text(stored: dict[str, dict[str, Any]]) -> str:
    """The whole of RESULTS.md."""
    parts = [
        "# Results\n",
        "Generated from [results.json](results.json) by `python -m benchmarks.results`; do not edit. Every section gives the "
        "command that measures it again, the machine and the versions. Tables are folded below the pictures. ± is the standard "
        "deviation over seeds. Hollow markers and lines marked *published* are figures from papers, not measured here; "
        "[the papers, part by part](../docs/papers.md). Times are CPU seconds unless they say otherwise, on a machine "
        "that was busy with other work: compare them with each other, not with a clock.\n",
        "\n".join(f"- [{entry['title']}](#{_anchor(entry['title'])})" for entry in stored.values())
        + "\n",
    ]
    for name, entry in stored.items():
        facts = entry["machine"]
        versions = ", ".join(
            f"{key} {value}" for key, value in facts.items() if key not in ("processor", "system")
        )
        parts.append(f"## {entry['title']}\n")
        parts.append(
            f"`dither bench {name}`, {entry['date']}, {entry['seconds']:,} s. {entry['about']} "
            f"({facts['processor']}, {facts['system']}; {versions}.)\n"
        )
        parts += [f"Not measured: {note}\n" for note in entry["notes"]]
        for study in entry["studies"]:
            rows = [figure for figure in entry["figures"] if figure["study"] == study["name"]]
            if rows:
                parts.append(f"### {study['title']}")  # no empty line: the page stays short
                text = " ".join(filter(None, (study["note"], _own_run(name, study))))
                parts += [f"{text}\n"] if text else []
                parts += _pictures(name, entry, study)
                parts += _study(study, rows)
    return "\n".join(parts)


def _own_run(bench: str, study: dict[str, Any]) -> str:
    """The command of a study that was measured by itself."""
    run = study.get("measured")
    if run is None:
        return ""
    return f"Measured by itself: `dither bench {bench} --study {study['name']}`, {run['date']}, {run['seconds']:,} s."


def _pictures(bench: str, entry: dict[str, Any], study: dict[str, Any]) -> list[str]:
    """The pictures of a study, side by side where there is room."""
    shown = [
        f"![{study['title']}, {words(chart['y'] or 'values')}](../docs/pictures/results/{name})"
        for name, chart in drawn.charts_of(bench, study).items()
        if drawn.draw(entry, study, chart)
    ]
    # No empty line after the pictures: the tables follow directly.
    return [" ".join(shown)] if shown else []


def _study(study: dict[str, Any], rows: Sequence[Figure]) -> list[str]:
    """The tables of a study in one line of HTML, folded."""
    lines = {tuple(row["labels"].items()) for row in rows}
    if len(lines) <= WHOLE_LINES or not study["charts"]:
        return [f"<details><summary>Table</summary>{_whole(rows)}</details>\n"]
    tables = [(c, text) for c in study["charts"] if (text := _crossed(c, rows))]
    inside = "".join(f"<p>{escape(words(chart['y']))}</p>{text}" for chart, text in tables)
    return [f"<details><summary>Tables</summary>{inside}</details>\n"]


def _whole(rows: Sequence[Figure]) -> str:
    labels = list(dict.fromkeys(name for row in rows for name in row["labels"]))
    measures = list(dict.fromkeys(row["measure"] for row in rows))
    lines: dict[tuple[Any, ...], dict[str, str]] = {}
    for row in rows:
        lines.setdefault(tuple(row["labels"].get(n) for n in labels), {})[row["measure"]] = _shown(
            row
        )
    body = [
        [*map(_plain, key), *(found.get(m, "") for m in measures)] for key, found in lines.items()
    ]
    return _table([*labels, *measures], body, len(labels))


def _crossed(chart: dict[str, Any], rows: Sequence[Figure]) -> str:
    """A chart as a table: one line per line of the chart, one column per place on its x axis."""
    chosen = [
        row
        for row in rows
        if row["measure"] == chart["y"]
        and chart["x"] in row["labels"]
        and all(row["labels"].get(k) in v for k, v in chart["only"].items())
    ]
    if not chosen:
        return ""
    across = sorted({row["labels"][chart["x"]] for row in chosen})
    names = [*chart["panels"], chart["colour"]]
    names += ["source"] if any("source" in row["labels"] for row in chosen) else []
    lines: dict[tuple[Any, ...], dict[Any, str]] = {}
    for row in chosen:
        lines.setdefault(tuple(row["labels"].get(n) for n in names), {})[
            row["labels"][chart["x"]]
        ] = _shown(row)
    body = [
        [*map(_plain, key), *(found.get(x, "") for x in across)] for key, found in lines.items()
    ]
    return _table([*names, *(f"{words(chart['x'])} {_plain(x)}" for x in across)], body, len(names))


def _table(head: Iterable[str], body: Iterable[Sequence[str]], left: int) -> str:
    """A table in one line of HTML, with `left` columns of names."""
    top = "".join(f"<th>{escape(words(name))}</th>" for name in head)
    rows = [
        "".join(
            f"<th>{escape(text)}</th>" if i < left else f"<td>{escape(text)}</td>"
            for i, text in enumerate(line)
        )
        for line in body
    ]
    return f"<table><tr>{top}</tr>{''.join(f'<tr>{row}</tr>' for row in rows)}</table>"


def _plain(value: Any) -> str:
    return label(value)


def _shown(row: Figure) -> str:
    spread = f" ± {digits(row['spread'], 1)}" if row["spread"] and row["runs"] > 1 else ""
    return f"{digits(row['mean'], 3)}{spread}"


def _anchor(title: str) -> str:
    return "".join(c for c in title.lower().replace(" ", "-") if c.isalnum() or c == "-")


# ---- the README ------------------------------------------------------------------------------------------------------


def readme_figures(stored: dict[str, dict[str, Any]]) -> str:
    """The README's sentence on held-out kinds, its table and the sentence under it: stored figures only."""
    from benchmarks.tables import PRODUCT

    ratios = [
        float(figure["mean"])
        for figure in stored["kinds"]["figures"]
        if (figure["study"], figure["measure"]) == ("held_out", "ratio")
    ]
    ahead = (
        "On [ten kinds of generated tables](docs/explanation/mixture.md#measured) that had no part in its design "
        f"(20,000 and 100,000 people, epsilon 1 to 8, {len(ratios)} settings with four tables each) the default's 2-way error "
        f"is {geometric_mean(ratios):.2f} of that of the best other built-in method in the geometric mean, and "
        f"{max(ratios):.2f} times at worst (`dither bench kinds --study held_out`).\n\n"
        "Mean distance of all pairs of attributes from the truth (total variation, 0 is exact), Adult with 15 attributes, "
        "1.5 million participants, each protected by epsilon for the whole record:\n"
    )
    adult: dict[str, Any] = {"dataset": "Adult", "participants": 1_500_000}
    table_2, published = ("privincr", "table_2"), ("published", "table_2")
    lines: list[tuple[str, tuple[str, str], dict[str, Any]]] = [
        (
            "LoPub, as run by PrivIncr's authors (published)",
            table_2,
            {"method": "lopub", "source": "published", **adult},
        ),
        (
            "LoPub with its paper's parameters, a tenth of 45,222 rows (`--as-published`)",
            published,
            {"method": "lopub@published", "source": None},
        ),
        ("Dither, `lopub`", ("published", "lopub"), {}),
        (
            "PrivIncr (published)",
            table_2,
            {"method": "privincr, as printed", "source": "published", **adult},
        ),
        (
            "PrivIncr with its paper's parameters (`--as-published`)",
            published,
            {"method": "privincr@published", "source": None},
        ),
        (
            "product of the **exact** one-way marginals: no dependence learnt",
            ("mixture", "errors"),
            {"method": PRODUCT, **adult},
        ),
        ("Dither, `privincr`", table_2, {"method": "privincr", "source": None, **adult}),
        ("Dither, `mixture` (default)", ("mixture", "errors"), {"method": "mixture", **adult}),
    ]
    epsilons = (1.0, 2.0, 4.0, 8.0)
    text = [
        ahead,
        "| | " + " | ".join(f"epsilon {e:g}" for e in epsilons) + " |",
        "|---|" + "---:|" * len(epsilons),
    ]
    for title, (bench, study), labels in lines:
        cells = []
        for epsilon in epsilons:
            try:
                value = f"{find(stored, bench, study, 'tvd_2', epsilon=epsilon, **labels):.3f}"
            except KeyError:
                value = ""  # the papers give no figure at epsilon 2
            cells.append(f"**{value}**" if "default" in title else value)
        if not any(cells):
            raise KeyError(f"no stored figure for the README's line {title!r}")
        text.append(f"| {title} | " + " | ".join(cells) + " |")
    seconds = find(stored, "mixture", "cost", "cpu_s", dataset="Adult", epsilon=4.0)
    memory = find(stored, "mixture", "cost", "peak_megabytes", dataset="Adult", epsilon=4.0)
    text.append(
        f"\n`mixture` and `privincr` are means of {_runs(stored)} seeds, the lines of the papers' parameters and of `lopub` one "
        f"run. From the reports of 1.5 million participants to as many synthetic rows takes "
        f"{seconds:.1f} s of one processor core and {memory / 1000:.1f} GB at epsilon 4."
    )
    return "\n".join(text)


def _runs(stored: dict[str, dict[str, Any]]) -> int:
    return min(
        f["runs"] for f in stored["mixture"]["figures"] if f["labels"].get("method") == "mixture"
    )


def readme_text(stored: dict[str, dict[str, Any]]) -> str:
    """The README with its figures replaced."""
    text = README.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{readme_figures(stored)}\n\n{END}{after}"


def write_texts() -> None:
    """Rewrite pictures and texts."""
    stored = load()
    drawn.write(stored)
    results = results_text(stored)
    write_atomically(RESULTS, lambda path: path.write_text(results, encoding="utf-8"))
    if {"mixture", "privincr", "published"} <= set(stored):
        readme = readme_text(stored)
        write_atomically(README, lambda path: path.write_text(readme, encoding="utf-8"))


if __name__ == "__main__":
    write_texts()
