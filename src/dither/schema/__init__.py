"""1. What is asked: attributes, their public domains, and tables as codes.

Names that need NumPy, PyArrow or narwhals load when first used, so that a device can read a schema without them.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from dither.schema.attribute import Attribute, attribute_from_json, numeric
from dither.schema.schema import Schema, load_schema, schema_from_json

if TYPE_CHECKING:
    from dither.schema.files import read_table, write_table
    from dither.schema.infer import LEAK_WARNING, infer_schema
    from dither.schema.native import Layout
    from dither.schema.table import Encoded, decode, encode

_HOMES = {
    "LEAK_WARNING": "infer",
    "Encoded": "table",
    "Layout": "native",
    "decode": "table",
    "encode": "table",
    "infer_schema": "infer",
    "read_table": "files",
    "write_table": "files",
}

__all__ = [
    "LEAK_WARNING",
    "Attribute",
    "Encoded",
    "Layout",
    "Schema",
    "attribute_from_json",
    "decode",
    "encode",
    "infer_schema",
    "load_schema",
    "numeric",
    "read_table",
    "schema_from_json",
    "write_table",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"dither.schema.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'dither.schema' has no attribute {name!r}")
