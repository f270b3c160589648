"""A release as a folder: written beside its place and moved in, so that it is there whole or not at all."""

from __future__ import annotations

import json
import math
import os
import secrets
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import narwhals as nw
import numpy as np
import pyarrow as pa

from dither.errors import DitherError, InputError, ReportError
from dither.fit import Marginal, model_from_bytes
from dither.notice import notice_from_json
from dither.private_files import make_private
from dither.release.call import Call, asked_from_json, call_from_json
from dither.release.release import FORMAT, Release
from dither.release.replicates import pack_replicates, reports_in, unpack_replicates
from dither.release.words import central_from_json, earlier_release, find_warnings
from dither.schema import Schema, load_schema, schema_from_json
from dither.schema.files import read_table, write_table
from dither.schema.schema import file_fault
from dither.tally.archive import pack, unpack
from dither.types import JsonObject, NativeTable

MANIFEST = "release.json"
FILES = (
    "synthetic.parquet",
    "synthetic.csv",
    MANIFEST,
    "report.html",
    "schema.json",
    "model.bin",
    "measured.bin",
    "state.bin",
    "replicates.bin",
)
MAX_STATE_BYTES = 64 << 20  # whole reports of millions of people are left out


READERS = {
    FORMAT: "dither.load_release",
    "dither-histogram-1": "dither.HistogramRelease.load",
    "dither-central-release-1": "dither.CentralRelease.load",
}


def check_target(directory: str | Path, form: str = FORMAT, *, overwrite: bool = False) -> Path:
    """The real path of a folder that a release may be written to.

    Args:
        directory: A folder that is new, empty or, with `overwrite`, an earlier release of the same format.
        form: The format of the release to be written.
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
        if format_of(target) not in (form, None):
            words = "has a release of another kind in it; name a new or empty folder"
            raise InputError(f"{directory} {words}", where=str(directory))
        if not overwrite:
            words = "holds a release; name another folder, or replace it with --overwrite (Python: overwrite=True)"
            raise InputError(f"{directory} {words}", where=str(directory))
    return target


def write_folder(
    directory: str | Path,
    form: str,
    files: Collection[str],
    write: Callable[[Path], object],
    *,
    overwrite: bool = False,
) -> Path:
    """Let `write` fill a hidden sibling folder, then swap it in; on failure the target stays as it was.

    `files` are the names that a release of this format may have. Anything else in an earlier one's folder is kept.
    """
    target = check_target(directory, form, overwrite=overwrite)
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


def save_release(
    release: Release,
    directory: str | Path,
    clock: Callable[[], float],
    form: str = "parquet",
    *,
    overwrite: bool = False,
) -> Path:
    """Write all files in one step; `form` is the ending of the synthetic table's name."""
    return write_folder(
        directory,
        FORMAT,
        FILES,
        lambda folder: _write(release, folder, clock, form),
        overwrite=overwrite,
    )


def load_release(directory: str | Path) -> Release:
    """Read a saved release. The truth of a simulation is not in the folder, so the result has none.

    >>> import dither, tempfile
    >>> release = dither.publish("adult", epsilon=4.0, method="independent", columns=["sex", "income"], rows=10)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     dither.load_release(release.save(f"{folder}/out")).method
    'independent'
    """
    from dither.release import report

    folder = Path(directory)
    manifest = read_manifest(folder)
    with reading(folder / MANIFEST):
        call = call_from_json(manifest["call"])
    with reading(folder / "schema.json"):
        schema = load_schema(folder / "schema.json")
    with reading(folder / MANIFEST):
        if manifest["schema_fingerprint"] != schema.fingerprint:
            raise _mixed(folder, MANIFEST, "schema.json")
    with reading(folder / "model.bin"):
        model = model_from_bytes((folder / "model.bin").read_bytes())
    with reading(folder / "measured.bin"):
        measured = _unpack_measured((folder / "measured.bin").read_bytes(), schema)
    with reading(folder / "state.bin"):
        state = _optional(folder / "state.bin")
        reports = reports_in(schema, state)
    with reading(folder / "replicates.bin"):
        packed = _optional(folder / "replicates.bin")
        replicates = None if packed is None else unpack_replicates(packed, model, reports)
    synthetic = _synthetic(folder, schema)
    with reading(folder / MANIFEST):
        _check_state(folder, call, schema, state)
        earlier = earlier_release(manifest["notes"])
        # A bound of an earlier version leaves out the participants of an earlier release.
        bounded = manifest.get("central") is not None and (earlier is None or "private" in earlier)
        release = Release(
            call=call,
            schema=schema,
            model=model,
            synthetic=synthetic,
            measured=measured,
            asked=asked_from_json(manifest["asked"]),
            central=central_from_json(manifest["central"]) if bounded else None,
            state=state,
            replicates=replicates,
            **{name: _plain_field(name, manifest[name]) for name in _PLAIN_FIELDS},
            warnings=tuple(notice_from_json(entry) for entry in manifest["warnings"]),
            epsilon_achieved=_epsilon(manifest["epsilon_achieved"]),
        )
        report.check_shown(release)
        return replace(
            release, warnings=find_warnings(release)
        )  # what a seed calls for stands whatever was written


def _check_state(folder: Path, call: Call, schema: Schema, state: bytes | None) -> None:
    """An error if `state.bin` is another release's: the guarantee of one says nothing about another's
    figures."""
    if state is None:
        return
    facts, _ = unpack(state)
    if schema_from_json(facts["schema"]).fingerprint != schema.fingerprint:
        raise _mixed(folder, "state.bin", "schema.json")
    if (facts["method"], facts["epsilon"]) != (call.method, call.epsilon):
        raise _mixed(folder, MANIFEST, "state.bin")


def _mixed(folder: Path, first: str, second: str) -> InputError:
    return InputError(
        f"{folder}: {first} and {second} are of two different releases", where=str(folder)
    )


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


def _synthetic(folder: Path, schema: Schema) -> NativeTable:
    """The synthetic table, in whichever form it was written."""
    path = folder / "synthetic.csv"
    if not path.is_file():
        path = folder / "synthetic.parquet"
    with reading(path):
        table = read_table(path, schema if path.suffix == ".csv" else None)
    known = set(nw.from_native(table, eager_only=True).columns)
    if lacking := [name for name in schema.names if name not in known]:
        raise InputError(
            f"{path} has no column {lacking[0]!r}, which schema.json names", where=str(path)
        )
    return table


def _optional(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None


def _epsilon(value: float | None) -> float:
    """Null in the manifest of a release without privacy."""
    return math.inf if value is None else value


_PLAIN_FIELDS: Mapping[str, type] = {
    "participants": int,
    "rounds": int,
    "rows": int,
    "seconds": dict,
    "notes": dict,
    "description": str,
    "reference": str,
    "dither_version": str,
}


def _plain_field(name: str, value: Any) -> Any:
    fits = isinstance(value, _PLAIN_FIELDS[name]) and not isinstance(value, bool)
    if not fits or (isinstance(value, int) and value < int(name == "participants")):
        raise ValueError(f"{name} is {value!r}"[:200])
    if name == "seconds" and isinstance(value, dict):
        return {stage: float(spent) for stage, spent in value.items()}
    return value


def read_manifest(folder: Path, form: str = FORMAT) -> JsonObject:
    """The manifest of a saved release of this format."""
    path = folder / MANIFEST
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except OSError:
        raise InputError(
            f"{folder} is not a release: it has no readable {MANIFEST}", where=str(folder)
        ) from None
    except (ValueError, RecursionError):
        raise InputError(f"{path} is not JSON", where=str(path)) from None
    found = _named_format(manifest)
    if found in READERS and found != form:
        raise InputError(
            f"{folder} is a release of another kind; read it with {READERS[found]}",
            where=str(folder),
        )
    if found != form:
        raise InputError(
            f"{path} is not a release manifest this version reads ({form})", where=str(path)
        )
    return manifest


def write_json(data: JsonObject, path: Path) -> None:
    """A document as every release writes it."""
    path.write_text(
        json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8"
    )


def format_of(folder: str | Path) -> str | None:
    """The format that a folder's manifest names, None if it can't be read."""
    try:
        manifest = json.loads((Path(folder) / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return _named_format(manifest)


def _named_format(manifest: object) -> str | None:
    found = manifest.get("format") if isinstance(manifest, dict) else None
    return found if isinstance(found, str) else None


def _write(release: Release, folder: Path, clock: Callable[[], float], form: str) -> None:
    from dither.release import report

    started = clock()
    write_table(release.synthetic, folder / f"synthetic.{form}")
    (folder / "model.bin").write_bytes(release.model.to_bytes())
    if release.state is not None and len(release.state) <= MAX_STATE_BYTES:
        (folder / "state.bin").write_bytes(release.state)
    if release.replicates is not None:
        (folder / "replicates.bin").write_bytes(pack_replicates(release.replicates))
    (folder / "measured.bin").write_bytes(_pack_measured(release.measured))
    write_json(release.schema.to_json(), folder / "schema.json")
    page = folder / "report.html"
    if release.truth is not None:  # the page shows it, so it is as confidential as the table
        make_private(page)
    page.write_text(report.render_report(release), encoding="utf-8")
    write_json(release.with_seconds("report", clock() - started).to_json(), folder / MANIFEST)


def _swap(fresh: Path, target: Path, files: Collection[str]) -> None:
    """Put `fresh` in the target's place; an earlier release is moved aside first and put back should that fail."""
    if not target.exists() or not any(target.iterdir()):
        os.replace(fresh, target)
        return
    aside = target.parent / f".{target.name}.old-{secrets.token_hex(6)}"
    os.replace(target, aside)
    try:
        for entry in aside.iterdir():
            if (
                entry.name not in files
            ):  # what people laid beside an earlier release is not ours to delete
                os.replace(entry, fresh / entry.name)
        os.replace(fresh, target)
    except BaseException:
        for entry in fresh.iterdir():
            if entry.name not in files:
                os.replace(entry, aside / entry.name)
        os.replace(aside, target)
        raise
    shutil.rmtree(aside)


def _pack_measured(measured: Sequence[Marginal]) -> bytes:
    arrays = {}
    for i, entry in enumerate(measured):
        arrays[f"{i}.frequencies"] = entry.frequencies
        arrays[f"{i}.standard_errors"] = np.sqrt(entry.variances)
    meta = [
        {"attributes": list(entry.attributes), "n": int(entry.n), "effective_n": entry.effective_n}
        for entry in measured
    ]
    return pack({"measured": meta}, arrays)


def _unpack_measured(data: bytes, schema: Schema) -> tuple[Marginal, ...]:
    meta, arrays = unpack(data)
    out = []
    for i, entry in enumerate(meta["measured"]):
        names = tuple(entry["attributes"])
        frequencies, errors = arrays[f"{i}.frequencies"], arrays[f"{i}.standard_errors"]
        if (
            not frequencies.shape
            == errors.shape
            == tuple(schema[name].cardinality for name in names)
        ):
            raise ReportError(
                f"measured.bin has a table of {', '.join(names)} that schema.json does not allow"
            )
        n, effective_n = (
            entry["n"],
            entry.get("effective_n", 0.0),
        )  # an earlier version wrote none: all answers alike
        if (
            type(n) is not int
            or n < 0
            or type(effective_n) not in (int, float)
            or not 0 <= effective_n <= n * (1 + 1e-9)
        ):
            raise ReportError(
                f"measured.bin says that {n!r} answers, worth {effective_n!r}, tell of {', '.join(names)}"
            )
        out.append(Marginal(names, frequencies, errors, n, effective_n=effective_n))
    return tuple(out)
