"""A narrow table for benchmarks whose cost is that of fits to all pairs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.tables import FILES
from dither import load_dataset
from dither.schema import Schema, write_table

NARROW = ("workclass", "education", "education_num", "relationship", "sex", "income")


@pytest.fixture(scope="session")
def narrow_adult(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six columns of Adult, as a folder of tables has them: 15 pairs to fit in the place of 105."""
    adult = load_dataset("adult")
    folder = tmp_path_factory.mktemp("tables")
    name = folder / FILES["Adult"]
    write_table(adult.table.select(list(NARROW)), name.with_suffix(".parquet"))
    schema = Schema(tuple(adult.schema[column] for column in NARROW))
    name.with_suffix(".schema.json").write_text(json.dumps(schema.to_json()), encoding="utf-8")
    return folder
