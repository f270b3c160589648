"""What a release promises against those who see nothing else: in its manifest, on its page and in the commands."""

from __future__ import annotations

import html
import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import dither
from dither.cli import run
from dither.errors import DitherError, PrivacyError
from dither.notice import shown_epsilon
from dither.release import Bound, CentralGuarantee, Release

RNG = np.random.default_rng(5)
TABLE = pa.table({name: RNG.choice(["x", "y", "z"], 3000).tolist() for name in "abcd"})


@pytest.fixture(scope="module")
def release() -> Release:
    return dither.publish(TABLE, epsilon=1.0, method="independent", rows=10, holdout=0.1)


def test_every_question_hides_its_people(release: Release) -> None:
    central = release.central
    assert central is not None
    assert central.known.people == 75  # the held-out copy of a question, which is published apart
    assert central.hidden.people == 3000
    assert central.known.delta == central.hidden.delta == 1e-9
    assert 0.1 < central.hidden.epsilon < 0.2 < central.known.epsilon < 1.0


def test_the_manifest_has_it_and_reads_it_back(release: Release, tmp_path: Path) -> None:
    folder = release.save(tmp_path / "out")
    written = json.loads((folder / "release.json").read_text())["central"]
    assert written["epsilon"] == release.central.known.epsilon  # type: ignore[union-attr]
    assert written["question_hidden"]["people"] == 3000
    assert written["sentence"] == release.readers
    assert written["rests_on"].startswith("The collector shows no one single reports")
    assert Release.load(folder).central == release.central


def test_the_page_has_it_after_the_local_guarantee(release: Release) -> None:
    page = html.unescape(release.report())
    assert release.guarantee in page
    assert page.index(release.guarantee) < page.index("To those who see only the release")
    assert release.readers in page
    for bound in (release.central.known, release.central.hidden):  # type: ignore[union-attr]
        assert f"({shown_epsilon(bound.epsilon, 3)}, " in page


def test_the_command_prints_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["publish", "adult", "--epsilon", "1", "--method", "independent", "--rows", "5", "-o"]
    assert run([*given, str(tmp_path / "a")]) == 0
    assert "-differential privacy allows" in capsys.readouterr().out
    assert run([*given, str(tmp_path / "b"), "--seed", "1"]) == 0
    assert "readers" not in capsys.readouterr().out


def test_a_seed_leaves_readers_no_guarantee(release: Release, tmp_path: Path) -> None:
    seeded = dither.publish(TABLE, epsilon=1.0, method="independent", rows=10, seed=1)
    assert seeded.central is None
    assert seeded.to_json()["central"] is None
    assert "Nothing is promised" in seeded.readers
    assert "To those who see only the release" not in seeded.report()
    with pytest.raises(PrivacyError, match="replayed"):
        replace(seeded, content=replace(seeded.content, central=release.central))
    # Whoever writes it into the manifest is not believed.
    folder = seeded.save(tmp_path / "out")
    manifest = json.loads((folder / "release.json").read_text())
    manifest["central"] = release.to_json()["central"]
    (folder / "release.json").write_text(json.dumps(manifest))
    with pytest.raises(DitherError):
        Release.load(folder)


def test_without_privacy_nobody_is_promised_anything() -> None:
    open_release = dither.publish(
        TABLE, epsilon=math.inf, method="jtree-nonprivate", rows=10, no_privacy=True
    )
    assert open_release.central is None
    assert open_release.readers.startswith("None.")


@pytest.mark.parametrize(
    "wrong",
    [
        {"epsilon": 3.0},
        {"epsilon": -0.1},
        {"epsilon": math.nan},
        {"epsilon": "x"},
        {"delta": 2.0},
        {"people": 0},
        {"question_hidden": None},
    ],
    ids=str,
)
def test_a_damaged_guarantee_is_one_clear_error(
    release: Release, tmp_path: Path, wrong: dict[str, Any]
) -> None:
    folder = release.save(tmp_path / "out")
    manifest = json.loads((folder / "release.json").read_text())
    manifest["central"] |= wrong
    (folder / "release.json").write_text(json.dumps(manifest))
    with pytest.raises(DitherError):
        Release.load(folder)


def test_an_earlier_release_without_it_is_read(release: Release, tmp_path: Path) -> None:
    folder = release.save(tmp_path / "out")
    manifest = json.loads((folder / "release.json").read_text())
    del manifest["central"]
    (folder / "release.json").write_text(json.dumps(manifest))
    again = Release.load(folder)
    assert again.central is None
    assert "No bound was computed" in again.readers


# Words.


def test_no_figure_promises_more_than_was_found(make_release: Callable[..., Release]) -> None:
    bound = Bound(0.12341, 4.441e-13, 900)
    central = CentralGuarantee(bound, Bound(0.0101, 4.441e-13, 9000))
    release = make_release(central=central, seed=None)
    assert "(0.124, 4.5 × 10⁻¹³)" in release.readers
    assert "one of 900 " in release.readers
    assert "(0.0101, 4.5 × 10⁻¹³)" in html.unescape(release.report())
    simulated = make_release(central=central, seed=None, simulated=True)
    assert simulated.readers.startswith("In a collection run with this plan, ")
    same = make_release(central=CentralGuarantee(bound, bound), seed=None)
    assert html.unescape(same.report()).count("(0.124, 4.5 × 10⁻¹³)") == 1


def test_where_nothing_is_gained_no_delta_is_named(make_release: Callable[..., Release]) -> None:
    central = CentralGuarantee(Bound(2.0, 0.0, 12), Bound(1.0, 1e-9, 5000))
    release = make_release(central=central, seed=None, epsilon_achieved=2.0)
    assert "(12 at the fewest)" in release.readers
    assert "differential" not in release.readers
    assert release.to_json()["central"]["epsilon"] == 2.0
