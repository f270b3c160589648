"""Read a public table, or an earlier release, as a prior."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np

from dither.datasets import open_table
from dither.errors import DitherError, InputError, TableError
from dither.methods import EarlierReports, PublicRows, fitted_tallies
from dither.notice import RESAMPLED
from dither.release.call import IN_MEMORY
from dither.schema import Schema, schema_from_json
from dither.schema.files import ReadOptions
from dither.schema.table import encode
from dither.tally import CountTally
from dither.tally.archive import unpack
from dither.types import NativeTable


def read_prior(
    table: NativeTable,
    schema: Schema,
    *,
    unknown: Literal["error", "other"] = "error",
    missing: Sequence[str] | None = None,
) -> PublicRows | EarlierReports:
    """Read a public table's rows as codes of a schema, or an earlier release's tallies.

    Further columns are ignored.

    Args:
        table: A file, a bundled dataset's name, a table in memory, or an earlier
            release's folder.
        schema: The schema of the campaign.
        unknown: "error" to reject values outside the domain, "other" to count them as
            that category.
        missing: Texts that mean a missing value.

    Returns:
        The rows or tallies, with the SHA-256 of the file, or of the codes without a
        file.

    Raises:
        TableError: A column is missing, a value is outside its domain, or the folder is
            not a release of this schema.
    """
    source = str(table) if isinstance(table, (str, Path)) else IN_MEMORY
    if isinstance(table, (str, Path)) and Path(table).is_dir():
        return _earlier(Path(table), schema)
    options = ReadOptions(columns=schema.names, missing=missing)
    try:
        native, _, _ = open_table(table, schema, options)
        codes = encode(native, schema, unknown=unknown, keep_rules=False).codes
    except InputError as error:
        raise TableError(f"prior {source}: {error}", where="prior", value=source) from None
    if not len(codes):
        raise TableError(f"prior {source} has no rows", where="prior", value=source)
    return PublicRows(codes, source, _digest(table, np.ascontiguousarray(codes)))


def _earlier(folder: Path, schema: Schema) -> EarlierReports:
    """The tallies that an earlier release was fitted to, and their protection by its manifest."""
    try:
        state = (folder / "state.bin").read_bytes()
        facts, _ = unpack(state)
        same = schema_from_json(facts["schema"]).fingerprint == schema.fingerprint
        counted = [t for t in fitted_tallies(state) if isinstance(t, CountTally)] if same else []
        tallies = tuple(t for t in counted if t.participants)
    except OSError:
        raise TableError(
            f"prior {folder} is a folder without a state.bin; give a public table, or the folder of an earlier release",
            where="prior",
            value=str(folder),
        ) from None
    except (DitherError, KeyError, TypeError, ValueError) as error:
        raise TableError(
            f"prior {folder}: its state.bin is damaged ({error})", where="prior", value=str(folder)
        ) from None
    if not same:
        raise TableError(
            f"prior {folder} is a release of another schema; pool campaigns of one schema only",
            where="prior",
            value=str(folder),
        )
    if not tallies:
        raise TableError(
            f"prior {folder}: its method keeps no counts that could be pooled", where="prior"
        )
    try:
        manifest = json.loads((folder / "release.json").read_text(encoding="utf-8"))
        private = manifest["private"] is True
        resampled = any(warning["code"] == RESAMPLED.code for warning in manifest["warnings"])
    except (OSError, LookupError, TypeError, ValueError, RecursionError) as error:
        raise TableError(
            f"prior {folder}: its release.json does not say how its participants are protected ({error}); "
            "give the whole folder of an earlier release",
            where="prior",
            value=str(folder),
        ) from None
    digest = hashlib.sha256(b"".join(tally.to_bytes() for tally in tallies)).hexdigest()
    return EarlierReports(tallies, str(folder), digest, private, resampled)


def _digest(table: NativeTable, codes: np.ndarray) -> str:
    if isinstance(table, (str, Path)) and Path(table).is_file():
        with Path(table).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    return hashlib.sha256(codes.tobytes()).hexdigest()
