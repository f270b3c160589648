"""A release as a folder, written next to its target and moved into place in one step."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa

from dither.errors import DitherError, InputError
from dither.schema.schema import file_fault
from dither.types import JsonMapping, JsonObject

FORMAT = "dither-release-2"
# The formats of earlier versions, one for each kind of content.
_EARLIER_KINDS = {
    "dither-release-1": "table",
    "dither-histogram-1": "number",
    "dither-central-release-1": "cells",
}
MANIFEST = "release.json"
REPORT = "report.html"
SCHEMA = "schema.json"
# A histogram of an early central release was written up to this many cells.
_EARLIER_CELLS = 2**20
_EARLIER_RECORDS = "csm-records"


def check_target(directory: str | Path, *, overwrite: bool = False) -> Path:
    """The real path of a folder that a release may be written to.

    Args:
        directory: A folder that is new, empty or, with `overwrite`, an earlier release.
        overwrite: Whether an earlier release may be replaced.

    Raises:
        InputError: If anything else is there.
    """
    target = Path(os.path.realpath(directory))
    if target.exists() and not target.is_dir():
        raise InputError(
            f"{directory} is a file; name a folder for the release", where=str(directory)
        )
    for above in target.parents:
        if above.exists() and not above.is_dir():
            raise InputError(
                f"{directory} lies below {above.name}, which is a file", where=str(directory)
            )
    if target.is_dir() and any(target.iterdir()):
        if not (target / MANIFEST).is_file():
            words = "has files in it and is not an earlier release; name a new or empty folder"
            raise InputError(f"{directory} {words}", where=str(directory))
        if _format_of(target) not in (FORMAT, *_EARLIER_KINDS, None):
            words = "has a release of another version in it; name a new or empty folder"
            raise InputError(f"{directory} {words}", where=str(directory))
        if not overwrite:
            words = "holds a release; name another folder, or replace it with --overwrite (Python: overwrite=True)"
            raise InputError(f"{directory} {words}", where=str(directory))
    return target


def write_folder(
    directory: str | Path,
    files: Collection[str],
    write: Callable[[Path], object],
    *,
    overwrite: bool = False,
) -> Path:
    """Let `write` fill a hidden sibling folder, then swap it in; a failure leaves the target.

    `files` are the names that a release may have. Other files in an earlier release's
    folder are kept.
    """
    target = check_target(directory, overwrite=overwrite)
    target.parent.mkdir(parents=True, exist_ok=True)
    fresh = target.parent / f".{target.name}.tmp-{secrets.token_hex(6)}"
    fresh.mkdir()
    try:
        write(fresh)
        _swap(fresh, target, files)
    except BaseException:
        shutil.rmtree(fresh, ignore_errors=True)
        raise
    return Path(directory)


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn every error that a damaged or missing file of a release causes into one `InputError`.

    The message names the file.
    """
    try:
        with np.errstate(all="ignore"):
            yield
    except DitherError as error:
        if isinstance(error, InputError) and path.name in str(error):
            raise
        fault = f"is damaged: {error}"
    except OSError as error:
        fault = f"cannot be read: {file_fault(error)}"
    except MemoryError:
        fault = "needs more memory than there is"
    except (
        LookupError,
        AttributeError,
        TypeError,
        ValueError,
        ArithmeticError,
        RecursionError,
        pa.ArrowException,
    ) as error:
        fault = f"is damaged: {error!r}"
    else:
        return
    raise InputError(
        f"{path.parent} is not a whole release: {path.name} {fault[:300]}", where=str(path)
    ) from None


def file_digests(folder: Path, names: Collection[str]) -> dict[str, str]:
    """The SHA-256 of each of these files that is there."""
    paths = [folder / name for name in names]
    return {path.name: _digest(path) for path in paths if path.is_file()}


def check_digests(folder: Path, names: Collection[str], stated: object) -> None:
    """Raise an error if a file is not the one that the manifest was written with.

    Args:
        folder: The release.
        names: The files to check, if they are there.
        stated: The digests in the manifest; None in a folder of an earlier version.
    """
    if stated is None:
        return
    if not isinstance(stated, dict):
        raise InputError(
            f"{folder} is not a whole release: {MANIFEST} is damaged: files is {stated!r:.80}",
            where=str(folder / MANIFEST),
        )
    for name in names:
        path = folder / name
        if not path.is_file():
            continue
        with reading(path):
            digest = _digest(path)
        if stated.get(name) != digest:
            raise InputError(
                f"{folder} is not a whole release: {name} is damaged or of another release than "
                f"{MANIFEST}",
                where=str(path),
            )


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_if_there(path: Path) -> bytes | None:
    """The bytes of a file that a release may lack."""
    return path.read_bytes() if path.is_file() else None


def mixed(folder: Path, first: str, second: str) -> InputError:
    """The error for two files of different releases."""
    return InputError(
        f"{folder}: {first} and {second} are of two different releases", where=str(folder)
    )


def read_manifest(folder: Path) -> JsonObject:
    """The manifest of a saved release, brought to the current format."""
    path = folder / MANIFEST
    try:
        manifest: JsonObject = json.loads(path.read_text(encoding="utf-8"))
    except OSError:
        raise InputError(
            f"{folder} is not a release: it has no readable {MANIFEST}", where=str(folder)
        ) from None
    except (ValueError, RecursionError):
        raise InputError(f"{path} is not JSON", where=str(path)) from None
    form = _named_format(manifest)
    if form == FORMAT:
        return manifest
    if form not in _EARLIER_KINDS:
        raise InputError(
            f"{path} is not a release manifest this version reads ({FORMAT})", where=str(path)
        )
    with reading(path):
        return _upgraded(manifest, _EARLIER_KINDS[form])


def _upgraded(manifest: JsonMapping, kind: str) -> JsonObject:
    """A manifest of an earlier version with the keys of the current format."""
    if kind == "table":
        return {**manifest, "kind": kind}
    campaign = manifest.get("campaign")
    record = manifest["call"]
    call: JsonObject = {
        "epsilon": manifest["epsilon_asked"],
        "method": manifest["method"],
        "parameters": manifest["parameters"],
        "seed": manifest["seed"],
        "path": manifest.get("path", "counts"),
        "no_privacy": False,
        "simulated": campaign is None,
        "record": record,
        "table": None if record is None else record.get("table"),
    }
    facts: JsonObject = {"kind": kind, "rounds": 1, "description": "", "reference": ""}
    if kind == "number":
        facts |= {"rows": 0, "seconds": {}, "number": "number", "clip": False, "mean": None}
        if campaign is not None:
            named = {**campaign}
            facts |= {"number": named.pop("number"), "clip": named.pop("clip", False)}
            named["participants"] = named.pop("expected_participants", None)
            call |= named
        elif record is not None and isinstance(record.get("column"), str):
            facts["number"] = record["column"]
    else:
        by_record = manifest["method"] == _EARLIER_RECORDS
        known = manifest["neighbours"] == "replace"
        facts["participants"] = manifest["rows"] if known else None
        facts["by_record"] = by_record
        facts["histogram"] = not by_record and manifest["cells"] <= _EARLIER_CELLS
    return {**facts, **manifest, "kind": kind, "call": call}


def write_json(data: JsonMapping, path: Path) -> None:
    """A document as every release writes it."""
    path.write_text(
        json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8"
    )


def _format_of(folder: Path) -> str | None:
    """The format that a folder's manifest names, None if it can't be read."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return _named_format(manifest)


def _named_format(manifest: object) -> str | None:
    form = manifest.get("format") if isinstance(manifest, dict) else None
    return form if isinstance(form, str) else None


def _swap(fresh: Path, target: Path, files: Collection[str]) -> None:
    """Move `fresh` to the target; restore the earlier release if that fails."""
    if not target.exists() or not any(target.iterdir()):
        os.replace(fresh, target)
        return
    aside = target.parent / f".{target.name}.old-{secrets.token_hex(6)}"
    os.replace(target, aside)
    try:
        for entry in aside.iterdir():
            # Other files in an earlier release's folder are kept.
            if entry.name not in files:
                os.replace(entry, fresh / entry.name)
        os.replace(fresh, target)
    except BaseException:
        for entry in fresh.iterdir():
            if entry.name not in files:
                os.replace(entry, aside / entry.name)
        os.replace(aside, target)
        raise
    shutil.rmtree(aside)
