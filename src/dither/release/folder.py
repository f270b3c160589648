"""A release as a folder: written beside its place and moved in, so that it is there whole or not at all."""

from __future__ import annotations

import json
import math
import os
import secrets
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from dither.errors import InputError, ReportError
from dither.estimate import Marginal
from dither.models import model_from_bytes
from dither.notice import notice_from_json
from dither.release.asked import asked_from_json
from dither.release.call import call_from_json
from dither.release.release import FORMAT, Release
from dither.release.words import find_warnings
from dither.schema import load_schema
from dither.tally.archive import pack, unpack

FILES = ("synthetic.parquet", "release.json", "report.html", "schema.json", "model.bin", "measured.bin", "state.bin")
MOST_STATE_BYTES = 64 << 20  # whole reports of millions of people are left out


def check_target(directory: str | Path) -> Path:
    """The real path of a folder that a release may be written to; an error if something else is there."""
    target = Path(os.path.realpath(directory))
    if target.exists() and not target.is_dir():
        raise InputError(f"{directory} is a file; name a folder for the release", where=str(directory))
    if target.is_dir() and any(target.iterdir()) and not (target / "release.json").is_file():
        raise InputError(
            f"{directory} has files in it and is not an earlier release; name a new or empty folder",
            where=str(directory),
        )
    return target


def save_release(release: Release, directory: str | Path, clock: Callable[[], float]) -> Path:
    """Write all files into a hidden sibling folder, then swap it in; on failure the target stays as it was."""
    target = check_target(directory)
    target.parent.mkdir(parents=True, exist_ok=True)
    fresh = target.parent / f".{target.name}.tmp-{secrets.token_hex(6)}"
    fresh.mkdir()
    try:
        _write(release, fresh, clock)
        _swap(fresh, target)
    except BaseException:
        shutil.rmtree(fresh, ignore_errors=True)
        raise
    return Path(directory)


def load_release(directory: str | Path) -> Release:
    """Read a saved release. The truth of a simulation is not in the folder, so the result has none."""
    from dither.schema.files import read_table

    folder = Path(directory)
    manifest = _manifest(folder)
    try:
        schema = load_schema(folder / "schema.json")
        release = Release(
            call=call_from_json(manifest["call"]),
            schema=schema,
            model=model_from_bytes((folder / "model.bin").read_bytes()),
            synthetic=read_table(folder / "synthetic.parquet"),
            measured=_unpack_measured((folder / "measured.bin").read_bytes()),
            asked=asked_from_json(manifest["asked"]),
            state=_optional(folder / "state.bin"),
            **{name: manifest[name] for name in _PLAIN_FIELDS},
            warnings=tuple(notice_from_json(entry) for entry in manifest["warnings"]),
            epsilon_achieved=_epsilon(manifest["epsilon_achieved"]),
        )
        return replace(release, warnings=find_warnings(release))  # what a seed calls for stands whatever was written
    except OSError as error:
        raise InputError(f"{folder} is not a whole release: cannot read {error.filename}", where=str(folder)) from None
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{folder / 'release.json'} is not a whole manifest: {error!r}", where=str(folder)) from None
    except ReportError as error:
        raise InputError(f"{folder} is not a whole release: {error}", where=str(folder)) from None


def _optional(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None


def _epsilon(value: float | None) -> float:
    """Null in the manifest of a release without privacy."""
    return math.inf if value is None else value


_PLAIN_FIELDS = (
    "participants",
    "rounds",
    "rows",
    "seconds",
    "notes",
    "description",
    "reference",
    "dither_version",
)


def _manifest(folder: Path) -> dict[str, Any]:
    path = folder / "release.json"
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except OSError:
        raise InputError(f"{folder} is not a release: it has no readable release.json", where=str(folder)) from None
    except ValueError:
        raise InputError(f"{path} is not JSON", where=str(path)) from None
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise InputError(f"{path} is not a release manifest this version reads ({FORMAT})", where=str(path))
    return manifest


def _write(release: Release, folder: Path, clock: Callable[[], float]) -> None:
    from dither.release import report
    from dither.schema.files import write_table

    started = clock()
    write_table(release.synthetic, folder / "synthetic.parquet")
    (folder / "model.bin").write_bytes(release.model.to_bytes())
    if release.state is not None and len(release.state) <= MOST_STATE_BYTES:
        (folder / "state.bin").write_bytes(release.state)
    (folder / "measured.bin").write_bytes(_pack_measured(release.measured))
    _write_json(release.schema.to_json(), folder / "schema.json")
    (folder / "report.html").write_text(report.render_report(release), encoding="utf-8")
    _write_json(release.with_seconds("report", clock() - started).to_json(), folder / "release.json")


def _write_json(data: dict[str, Any], path: Path) -> None:
    path.write_text(json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")


def _swap(fresh: Path, target: Path) -> None:
    """Put `fresh` in the target's place; an earlier release is moved aside first and put back should that fail."""
    if not target.exists() or not any(target.iterdir()):
        os.replace(fresh, target)
        return
    aside = target.parent / f".{target.name}.old-{secrets.token_hex(6)}"
    os.replace(target, aside)
    try:
        for entry in aside.iterdir():
            if entry.name not in FILES:  # what people laid beside an earlier release is not ours to delete
                os.replace(entry, fresh / entry.name)
        os.replace(fresh, target)
    except BaseException:
        for entry in fresh.iterdir():
            if entry.name not in FILES:
                os.replace(entry, aside / entry.name)
        os.replace(aside, target)
        raise
    shutil.rmtree(aside)


def _pack_measured(measured: Sequence[Marginal]) -> bytes:
    arrays = {}
    for i, entry in enumerate(measured):
        arrays[f"{i}.frequencies"] = entry.frequencies
        arrays[f"{i}.standard_errors"] = np.sqrt(entry.variances)
    meta = [{"attributes": list(entry.attributes), "n": int(entry.n)} for entry in measured]
    return pack({"measured": meta}, arrays)


def _unpack_measured(data: bytes) -> tuple[Marginal, ...]:
    meta, arrays = unpack(data)
    return tuple(
        Marginal(tuple(entry["attributes"]), arrays[f"{i}.frequencies"], arrays[f"{i}.standard_errors"], entry["n"])
        for i, entry in enumerate(meta["measured"])
    )
