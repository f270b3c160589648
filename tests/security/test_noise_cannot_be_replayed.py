"""Nothing that is published lets a reader draw the noise again and take it off; a seed that was given is said aloud.

The adversary holds every row of a table but one, and the released folder. With a recorded seed it runs the same release for
each value that the last row may have, and keeps those that give the published figures: one is left.
"""

from __future__ import annotations

import importlib
import inspect
import json
import pkgutil
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dither
from dither import several_values
from dither.central.curator import central_release
from dither.cli import run
from dither.notice import REPLAYABLE
from dither.schema import Attribute, Schema
from dither.tally import unpack

SCHEMA = Schema(
    (
        Attribute("town", "categorical", values=("a", "b", "c", "d", "e", "f")),
        Attribute("age", "numeric", edges=tuple(float(e) for e in range(0, 101, 10))),
        Attribute("ill", "boolean", values=(False, True)),
    )
)
CANDIDATES = [
    {"town": town, "age": 10 * decade + 5.0, "ill": ill}
    for town in ("a", "d", "f")
    for decade in (1, 4, 8)
    for ill in (False, True)
]
SECRET = CANDIDATES[11]
OPTIONS: dict[str, Any] = {"epsilon": 3.0, "schema": SCHEMA, "method": "independent", "rows": 300}


def others() -> list[dict[str, Any]]:
    """The 299 rows that the adversary knows."""
    rng = np.random.default_rng(3)
    return [
        {
            "town": "abcdef"[rng.integers(6)],
            "age": float(rng.integers(100)),
            "ill": bool(rng.integers(2)),
        }
        for _ in range(299)
    ]


def table(last: dict[str, Any]) -> pa.Table:
    return pa.Table.from_pylist([*others(), last])


@pytest.fixture
def published(tmp_path: Path) -> Path:
    return dither.publish(table(SECRET), **OPTIONS).save(tmp_path / "out")


def figures(folder: Path) -> Any:
    return json.loads((folder / "release.json").read_text())["estimates"]


def numbers_in(folder: Path) -> set[int]:
    """Every whole number that the folder holds anywhere: manifest, page, and what is packed in the binary files."""
    found: set[int] = set()

    def walk(value: Any) -> None:
        if isinstance(value, dict):
            for item in value.values():
                walk(item)
        elif isinstance(value, list | tuple):
            for item in value:
                walk(item)
        elif isinstance(value, int) and not isinstance(value, bool):
            found.add(value)

    for path in folder.iterdir():
        if path.suffix == ".json":
            walk(json.loads(path.read_text()))
        elif path.suffix == ".bin":
            walk(unpack(path.read_bytes())[0])
        elif path.suffix == ".html":
            found.update(
                int(digits) for digits in re.findall(r"(?<![\d.,#])\d+(?![\d.,])", path.read_text())
            )
    return {number for number in found if number >= 0}


def test_the_last_row_cannot_be_found_by_rerunning(published: Path) -> None:
    seed = json.loads((published / "release.json").read_text())["seed"]
    left = [
        candidate
        for candidate in CANDIDATES
        if dither.publish(table(candidate), **OPTIONS, seed=seed).to_json()["estimates"]
        == figures(published)
    ]
    assert left == [], "the rerun told these apart from all other candidates"
    assert seed is None


def test_the_attack_works_on_a_seed_that_was_given(tmp_path: Path) -> None:
    """So that the test above shows what it claims: it is the missing seed that stops the attack."""
    folder = dither.publish(table(SECRET), **OPTIONS, seed=5).save(tmp_path / "out")
    left = [
        candidate
        for candidate in CANDIDATES
        if dither.publish(table(candidate), **OPTIONS, seed=5).to_json()["estimates"]
        == figures(folder)
    ]
    assert SECRET in left
    assert len(left) < len(CANDIDATES)


def test_no_number_in_the_folder_is_a_seed_of_the_noise(published: Path) -> None:
    """Whatever is recorded for the fit or by accident is tried as the seed, with the whole true table at hand."""
    options = {**OPTIONS, "rows": 1}
    found = numbers_in(published)
    fit = unpack((published / "state.bin").read_bytes())[0]["seed"]
    assert fit in found
    # A drawn 32-bit seed is below 2**16 once in 65,536 runs; smaller numbers are counts and the page's coordinates.
    for number in {fit, *(number for number in found if number >= 1 << 16)}:
        assert dither.publish(table(SECRET), **options, seed=number).to_json()[
            "estimates"
        ] != figures(published)


@pytest.mark.parametrize("path", ["counts", "reports"])
def test_two_releases_without_a_seed_differ(path: str) -> None:
    one, two = (dither.publish(table(SECRET), **OPTIONS, path=path) for _ in range(2))  # type: ignore[arg-type]
    assert one.to_json()["estimates"] != two.to_json()["estimates"]
    assert not one.synthetic.equals(two.synthetic)
    for release in (one, two):
        assert release.seed is None
        assert not release.replayable
        assert "Not replayable" in release.noise
        assert REPLAYABLE not in release.warnings


# Twenty counts with errors of ten people or so: two draws agree in all of them less than once in 10**20 runs.
HISTOGRAM: dict[str, Any] = {"consumers": [20], "epsilon": 1.0, "low": 0.0, "high": 100.0}


def ages(last: float = 45.0) -> list[float]:
    return [*(row["age"] for row in others()), last]


MAKERS: dict[str, Callable[[int | None], Any]] = {
    "publish": lambda seed: dither.publish(table(SECRET), **OPTIONS, **given(seed)),
    "histogram": lambda seed: dither.histogram(ages(), **HISTOGRAM, **given(seed)),
    "several_values": lambda seed: several_values(
        [[a] for a in ages()], **HISTOGRAM, most=2, **given(seed)
    ),
    "central_release": lambda seed: central_release(
        table(SECRET), epsilon=0.3, method="laplace", schema=SCHEMA, replicates=0, **given(seed)
    ),
}


def given(seed: int | None) -> dict[str, int]:
    """Nothing at all without a seed: the default is what is tested."""
    return {} if seed is None else {"seed": seed}


def outcome(release: Any) -> Any:
    if release.kind == "number":
        return release.consumers[0].raw.tolist()
    return (
        release.cells.estimate.tolist()
        if release.kind == "cells"
        else release.to_json()["estimates"]
    )


@pytest.mark.parametrize("maker", MAKERS)
def test_by_default_noise_is_fresh_and_says_so(maker: str) -> None:
    one, two = (MAKERS[maker](None) for _ in range(2))
    assert outcome(one) != outcome(two)
    manifest = one.to_json()
    assert manifest["seed"] is None
    assert manifest["noise"].startswith("Not replayable")
    assert "replayable-noise" not in {warning["code"] for warning in manifest["warnings"]}


@pytest.mark.parametrize("maker", MAKERS)
def test_a_given_seed_repeats_the_release_and_is_said_aloud(maker: str) -> None:
    one, two, other = (MAKERS[maker](seed) for seed in (4, 4, 5))
    assert outcome(one) == outcome(two) != outcome(other)
    assert REPLAYABLE in one.warnings
    manifest = one.to_json()
    assert manifest["seed"] == 4
    assert REPLAYABLE.to_json() in manifest["warnings"]
    assert manifest["noise"].startswith("Replayable")
    assert "as confidential as the table" in manifest["noise"]


VERBS = {
    "publish": (["--method", "independent", "--schema", "SCHEMA"], "release.json", "report.html"),
    "histogram": (
        ["--column", "age", "--bins", "4", "--schema", "SCHEMA"],
        "release.json",
        "report.html",
    ),
    "central": (["--method", "laplace", "--schema", "SCHEMA"], "release.json", "report.html"),
}


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("seeded", [False, True])
def test_the_warning_stands_in_all_four_places(
    verb: str, seeded: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """On standard error, in the manifest, on the page, and read back into Python."""
    pq.write_table(table(SECRET), tmp_path / "people.parquet")
    (tmp_path / "schema.json").write_text(json.dumps(SCHEMA.to_json()))
    options, manifest, page = VERBS[verb]
    words = [str(tmp_path / "schema.json") if word == "SCHEMA" else word for word in options]
    command = [
        verb,
        str(tmp_path / "people.parquet"),
        "--epsilon",
        "3",
        *words,
        "-o",
        str(tmp_path / "out"),
    ]
    assert run([*command, *(["--seed", "6"] if seeded else [])]) == 0
    printed = capsys.readouterr()
    written = json.loads((tmp_path / "out" / manifest).read_text())
    shown = (tmp_path / "out" / page).read_text()
    assert written["seed"] == (6 if seeded else None)
    assert (f"dither: warning: {REPLAYABLE.message}\n" in printed.err) is seeded
    assert (REPLAYABLE.to_json() in written["warnings"]) is seeded
    assert (REPLAYABLE.message[1:] in shown) is seeded  # the page begins it with a capital letter
    assert ("ot replayable: it came from the operating system" in shown) is not seeded
    assert ("ot replayable" in printed.out) is not seeded
    if verb == "publish":
        assert (REPLAYABLE in dither.load_release(tmp_path / "out").warnings) is seeded


def test_the_page_says_whether_the_same_noise_can_be_drawn_again() -> None:
    fresh, seeded = (
        dither.publish(table(SECRET), **OPTIONS, seed=seed).report() for seed in (None, 6)
    )
    assert "The very same noise cannot be drawn again" in fresh
    assert "--seed" not in fresh
    assert "The very same release" in seeded
    assert "--seed 6" in seeded


def test_a_simulated_page_claims_no_devices_and_a_collected_one_does(tmp_path: Path) -> None:
    from dataclasses import replace

    simulated = dither.publish(table(SECRET), **OPTIONS)
    page = simulated.report()
    assert "own device; nobody collected a true record" not in page
    assert "the person who ran it held the table" in page
    call = replace(simulated.call, simulated=False, seed=9)
    collected = replace(simulated, call=call, truth=None, warnings=()).report()
    assert "noise added on their own device; no true record was collected" in collected
    assert "held the table" not in collected
    assert REPLAYABLE.message[1:] not in collected, (
        "the seed of a collection's fit replays nobody's noise"
    )


def test_a_saved_central_release_keeps_its_public_seed_apart(tmp_path: Path) -> None:
    """What the manifest calls public draws matrices and the order of rows; as a seed it gives other noise."""
    options: dict[str, Any] = {
        "epsilon": 0.3,
        "method": "laplace",
        "schema": SCHEMA,
        "replicates": 0,
    }
    release = central_release(table(SECRET), **options)
    folder = release.save(tmp_path / "out")
    public = json.loads((folder / "release.json").read_text())["public_seed"]
    again = central_release(table(SECRET), **options, seed=public)
    assert not np.array_equal(again.cells.estimate, release.cells.estimate)


# Functions that draw nothing to hide: each starts from what is public already, or from rows to compare in the open.
OPEN_SEEDS = {
    "dither.evaluation.compare.evaluate": "which attribute sets are compared",
    "dither.release.replicates.bootstrap": "people drawn from a published model",
    "dither.release.replicates.prepare_bootstrap": "people drawn from a published model",
    "dither.release.release.Release.with_replicates": "people drawn from a published model",
    "dither.planner.forecasting.forecast": "imagined people",
    "dither.planner.prediction.predict": "imagined people",
    "dither.planner.prediction.population_of": "imagined people",
    "dither.planner.prediction.reference_population": "imagined people",
    "dither.methods.run.start": "a method's own choices, all of them published",
    "dither.methods.machine.Campaign": "a method's own choices, all of them published",
    "dither.mechanisms.bloom.BloomRappor": "hash functions, part of the public plan",
    "dither.mechanisms.bloom.BloomRappor.for_flip": "hash functions, part of the public plan",
    "dither.mechanisms.bloom.BloomRappor.for_epsilon": "hash functions, part of the public plan",
    "dither.cli.evaluate.evaluate": "which attribute sets are compared",
    "dither.cli.plan.plan": "imagined people",
    "dither.lab.comparison.run.compare": "methods judged by the true rows, whose result says that no epsilon protects it",
    "dither.cli.compare.compare": "methods judged by the true rows, whose result says that no epsilon protects it",
    "dither.lab.comparison.measure.train_and_test": "a classifier judged by true rows",
    "dither.lab.testing.contracts.MethodContract.people": "people of a test",
}


def callables() -> Iterator[tuple[str, Any]]:
    """Every function, class and method that some module of the package defines."""
    for info in pkgutil.walk_packages(dither.__path__, "dither."):
        if info.name.endswith("__main__"):
            continue
        module = importlib.import_module(info.name)
        for name, value in vars(module).items():
            if getattr(value, "__module__", None) != info.name or not callable(value):
                continue
            yield f"{info.name}.{name}", value
            if inspect.isclass(value):
                for own in vars(value):
                    bound = getattr(value, own, None)
                    if not own.startswith("__") and callable(bound):
                        yield f"{info.name}.{name}.{own}", bound


def test_no_function_that_hides_something_has_a_seed_by_default() -> None:
    seeded = set()
    for name, value in callables():
        try:
            parameters = inspect.signature(value).parameters
        except ValueError:  # made in C, without a signature
            continue
        seed = parameters.get("seed")
        if seed is not None and seed.default not in (None, inspect.Parameter.empty):
            seeded.add(name)
    assert seeded == set(OPEN_SEEDS)
    assert {"dither._publish.publish", "dither._histogram.several_values"} <= {
        name for name, _ in callables()
    }
