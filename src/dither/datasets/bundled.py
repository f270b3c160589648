"""Tables that come with the package, each with a public schema."""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib.resources import as_file, files

import pyarrow as pa

from dither.checks import check_choice
from dither.errors import TableError
from dither.schema import Schema, schema_from_json
from dither.schema.files import read_table


@dataclass(frozen=True)
class Dataset:
    """A table, the public domain of its columns, what it is and where it comes from."""

    name: str
    table: pa.Table
    schema: Schema
    description: str
    source: str


# name -> description, source
_ABOUT: dict[str, tuple[str, str]] = {
    "adult": (
        "45,222 people of the 1994 census of the United States, 15 attributes: the complete rows of UCI Adult, the "
        "train file (rows 0 to 30,161) before the test file. education and education_num say the same thing twice. "
        "The bins of the numeric attributes are round figures, at most 16 for each, chosen by hand with the spread of "
        "this public table in view, and the labels are the ones its rows hold; no capital gain, no capital loss, 40 "
        "hours a week and the top code 99,999 of capital_gain have a bin of their own.",
        "Becker and Kohavi (1996), Adult, UCI Machine Learning Repository, CC BY 4.0; changed as NOTICE says",
    ),
}
NAMES: tuple[str, ...] = tuple(_ABOUT)


def load_dataset(name: str) -> Dataset:
    """A bundled dataset by its name; the table is a PyArrow one."""
    schema = bundled_schema(name)
    with as_file(files("dither.datasets") / f"{name}.parquet") as path:
        return Dataset(name, read_table(path), schema, *_ABOUT[name])


def bundled_schema(name: str) -> Schema:
    """The public schema of a bundled dataset."""
    check_choice("the name of a bundled dataset", name, NAMES, error=TableError)
    text = (files("dither.datasets") / f"{name}.schema.json").read_text(encoding="utf-8")
    return schema_from_json(json.loads(text))
