"""A central release as a folder, there whole or not at all: tables, manifest, report."""

from __future__ import annotations

import json
import os
import secrets
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from dither.central.domain import cell_codes
from dither.central.release import CentralRelease
from dither.errors import InputError
from dither.release.words import shown_epsilon

FILES = ("synthetic.parquet", "histogram.parquet", "release.json", "report.html")


def check_central_target(directory: str | Path) -> Path:
    """The real path of a folder to write to; an error unless it is new, empty or an earlier central release."""
    target = Path(os.path.realpath(directory))
    if target.exists() and not target.is_dir():
        raise InputError(f"{directory} is a file; name a folder for the release", where=str(directory))
    if target.is_dir():
        strange = sorted(entry.name for entry in target.iterdir() if entry.name not in FILES)
        manifest = target / "release.json"
        local = manifest.is_file() and '"dither-central-release-1"' not in manifest.read_text(
            encoding="utf-8", errors="replace"
        )
        if strange or local:
            what = f"{strange[0]!r} in it" if strange else "a release of another kind in it"
            raise InputError(f"{directory} has {what}; name a new or empty folder", where=str(directory))
    return target


def save_central(release: CentralRelease, directory: str | Path) -> Path:
    """Write all files into a hidden sibling folder, then swap it in; on failure the target stays as it was."""
    from dither.schema.files import write_table

    target = check_central_target(directory)
    target.parent.mkdir(parents=True, exist_ok=True)
    fresh = target.parent / f".{target.name}.tmp-{secrets.token_hex(6)}"
    fresh.mkdir()
    try:
        write_table(release.synthetic, fresh / "synthetic.parquet")
        if release.estimate is not None:
            write_table(histogram_table(release), fresh / "histogram.parquet")
        manifest = json.dumps(release.to_json(), indent=1, ensure_ascii=False, allow_nan=False)
        (fresh / "release.json").write_text(manifest + "\n", encoding="utf-8")
        (fresh / "report.html").write_text(report(release), encoding="utf-8")
        if target.exists():
            aside = target.parent / f".{target.name}.old-{secrets.token_hex(6)}"
            os.replace(target, aside)
            os.replace(fresh, target)
            shutil.rmtree(aside)
        else:
            os.replace(fresh, target)
    except BaseException:
        shutil.rmtree(fresh, ignore_errors=True)
        raise
    return Path(directory)


def histogram_table(release: CentralRelease) -> Any:
    """All cells in C order: the label of each column, the raw estimate, and its standard error where there is one."""
    import pyarrow as pa

    if release.estimate is None:
        raise ValueError("this release has no histogram")
    cells = cell_codes(np.arange(release.estimate.size), release.schema.cardinalities)
    columns: dict[str, Any] = {}
    for j, attribute in enumerate(release.schema):
        columns[attribute.name] = pa.DictionaryArray.from_arrays(pa.array(cells[:, j]), pa.array(attribute.labels))
    columns[_free("estimate", columns)] = pa.array(release.estimate)
    if release.standard_errors is not None:
        columns[_free("standard_error", columns)] = pa.array(release.standard_errors)
    return pa.table(columns)


def _free(name: str, taken: dict[str, Any]) -> str:
    while name in taken:
        name += "_"
    return name


def report(release: CentralRelease) -> str:
    """A small page: who has to be trusted, the guarantee, how it was made, and the one-way tables."""
    from dither.release.markup import bullets, paragraph, section, table

    manifest = release.to_json()
    guarantee = table(
        ("guarantee", "value"),
        [
            ("trust model", manifest["trust_model"]),
            (
                "epsilon achieved",
                f"{shown_epsilon(release.epsilon_achieved)} (asked {shown_epsilon(release.epsilon_asked)})",
            ),
            ("neighbouring tables", manifest["neighbours_meaning"]),
            ("noise", manifest["noise"]),
            ("synthetic rows", f"{release.rows:,}"),
        ],
    )
    made = table(
        ("how", "value"), [(key, _shown(value)) for key, value in {**release.parameters, **release.details}.items()]
    )
    body = section("guarantee", "Guarantee", guarantee + bullets(warning.message for warning in release.warnings))
    body += section("made", f"How it was made: {release.mechanism} ({manifest['reference']})", made)
    body += section("one-way", "One column at a time", "".join(_one_way(release)))
    style = (
        "body{font-family:system-ui,sans-serif;max-width:52rem;margin:2rem auto;padding:0 1rem;line-height:1.5}"
        "table{border-collapse:collapse;margin:.8rem 0}"
        "td,th{border-bottom:1px solid #d9dfe5;padding:.2rem .7rem;text-align:left}"
        "@media(prefers-color-scheme:dark){body{background:#14191e;color:#e6eaee}}"
    )
    head = "Central release" if release.trust_model.startswith("central") else "Record-wise (local) release"
    lead = paragraph(
        "A curator who holds the whole table made this release; the guarantee protects people from its readers, "
        "not from the curator."
        if release.trust_model.startswith("central")
        else "A curator who holds the whole table made this release; the guarantee protects people from its readers, not from "
        "the curator. Noise was added to each record on its own: done on people's own devices, the guarantee would hold even "
        "against whoever collects the noisy records."
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{head}</title><style>{style}</style></head><body><h1>{head}</h1>{lead}{body}</body></html>\n"
    )


def _one_way(release: CentralRelease) -> list[str]:
    """Shares of each value in the estimate (projected to be a distribution), or in the synthetic table."""
    from dither.release.markup import percent, table

    out = []
    for j, attribute in enumerate(release.schema):
        shares = _shares(release, j)
        rows = [(label, percent(share)) for label, share in zip(attribute.labels, shares, strict=True)]
        out.append(table((attribute.name, "share"), rows))
    return out


def _shares(release: CentralRelease, column: int) -> np.ndarray:
    from dither.estimate.project import norm_sub
    from dither.schema.table import encode

    sizes = release.schema.cardinalities
    if release.estimate is not None:
        other = tuple(j for j in range(len(sizes)) if j != column)
        sums = release.estimate.reshape(sizes).sum(axis=other)
        return norm_sub(sums / max(1.0, float(sums.sum())))
    if release.rows == 0:
        return np.zeros(sizes[column])
    codes = encode(release.synthetic, release.schema).codes[:, column]
    return np.bincount(codes, minlength=sizes[column]) / codes.size


def _shown(value: object) -> str:
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    return text if len(text) <= 300 else text[:299] + "…"
