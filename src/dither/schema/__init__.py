"""Schemas: attributes, their public domains, and tables as codes.

Importing this package needs the standard library only, so that a device can read a schema.
The names in `_LAZY` need NumPy and PyArrow; their modules are imported when they are used.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from dither.schema.attribute import Attribute, build_line
from dither.schema.rules import Determines, Impossible, Order, Sum
from dither.schema.schema import Schema, attribute_from_json, load_schema, numeric, schema_from_json

if TYPE_CHECKING:
    from dither.schema.cells import cells_of, codes_of, count_cells
    from dither.schema.files import (
        ReadOptions,
        read_noted,
        read_table,
        write_atomically,
        write_table,
    )
    from dither.schema.infer import LEAK_WARNING, draft_schema, infer_schema
    from dither.schema.rule_tables import all_orders, broken
    from dither.schema.table import (
        Column,
        Layout,
        decode,
        encode,
        plain_layout,
        schema_type,
        to_arrow,
    )

_LAZY = {
    "LEAK_WARNING": "infer",
    "Column": "table",
    "Layout": "table",
    "ReadOptions": "files",
    "all_orders": "rule_tables",
    "broken": "rule_tables",
    "cells_of": "cells",
    "codes_of": "cells",
    "count_cells": "cells",
    "decode": "table",
    "draft_schema": "infer",
    "encode": "table",
    "infer_schema": "infer",
    "plain_layout": "table",
    "read_noted": "files",
    "read_table": "files",
    "schema_type": "table",
    "to_arrow": "table",
    "write_atomically": "files",
    "write_table": "files",
}

__all__ = [
    "LEAK_WARNING",
    "Attribute",
    "Column",
    "Determines",
    "Impossible",
    "Layout",
    "Order",
    "ReadOptions",
    "Schema",
    "Sum",
    "all_orders",
    "attribute_from_json",
    "broken",
    "build_line",
    "cells_of",
    "codes_of",
    "count_cells",
    "decode",
    "draft_schema",
    "encode",
    "infer_schema",
    "load_schema",
    "numeric",
    "plain_layout",
    "read_noted",
    "read_table",
    "schema_from_json",
    "schema_type",
    "to_arrow",
    "write_atomically",
    "write_table",
]


def __getattr__(name: str) -> object:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)
