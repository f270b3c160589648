"""The types of a synthetic table: what decides them is public, so that they tell nothing of any row.

A file of CSV has no types, and one gap turns whole numbers of a pandas frame into float64, so there the schema decides. Types
that a Parquet file or a PyArrow, polars or pandas table declares are kept.
"""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pyarrow as pa

from dither.schema.attribute import Attribute
from dither.schema.labels import label_array, plain_type
from dither.schema.native import Column, Layout
from dither.schema.schema import Schema

_EXACT = 2.0**53  # up to here every whole number is a float


def public_layout(layout: Layout, schema: Schema, *, declared: bool) -> Layout:
    """The layout of a synthetic table for a table that came in with `layout`.

    Guarantee: it depends on the schema, on the kind of table, the columns' order and, where `declared`, on their declared types.
    Labels are written as the schema writes them.
    """
    return replace(layout, columns=tuple(_column(c, schema[c.name], layout.kind, declared) for c in layout.columns))


def schema_type(attribute: Attribute) -> Any:
    """The Arrow type that an attribute has by the schema alone.

    Numeric: whole numbers if both bounds are whole and every bin holds a whole number, otherwise real ones.
    """
    if attribute.kind == "numeric":
        return pa.int64() if _whole(attribute.edges) else pa.float64()
    return plain_type(attribute)


def _column(column: Column, attribute: Attribute, kind: str, declared: bool) -> Column:
    if kind == "pandas":
        return _pandas_column(column, attribute)
    if declared:
        return replace(column, style=0)
    held = schema_type(attribute)
    return Column(column.name, held, held)


def _pandas_column(column: Column, attribute: Attribute) -> Column:
    import numpy as np
    import pandas as pd

    dtype, held = column.native, schema_type(attribute)
    text = pd.Series(["text"]).dtype
    if isinstance(dtype, pd.CategoricalDtype) and attribute.kind != "numeric":
        # astype("category") lists the values that it meets; the schema lists all.
        labels = label_array(attribute, held, 0)[0].to_pandas()
        ordered = bool(dtype.ordered)
        native = pd.CategoricalDtype(labels, ordered=ordered)
        return Column(column.name, pa.dictionary(pa.int32(), held, ordered=ordered), native)
    if not isinstance(dtype, pd.CategoricalDtype) and dtype != text and not (_gaps_show(dtype) and attribute.missing):
        return replace(column, style=0)
    if pa.types.is_integer(held):
        return Column(column.name, held, pd.Int64Dtype() if attribute.missing else np.dtype("int64"))
    if pa.types.is_boolean(held):
        return Column(column.name, held, pd.BooleanDtype() if attribute.missing else np.dtype("bool"))
    return Column(column.name, held, np.dtype("float64") if pa.types.is_floating(held) else text)


def _gaps_show(dtype: Any) -> bool:
    """Whether a pandas type changes with the first missing value: NumPy's whole numbers become real, its booleans objects."""
    import numpy as np

    return isinstance(dtype, np.dtype)


def _whole(edges: tuple[float, ...]) -> bool:
    if not (float(edges[0]).is_integer() and float(edges[-1]).is_integer()) or max(map(abs, edges)) > _EXACT:
        return False
    # Bins are half-open; the last one is closed and ends at a whole number.
    return all(math.ceil(low) < high for low, high in pairwise(edges[:-1]))
