"""Schemas: attributes, their public domains, and tables as codes.

Importing this package needs the standard library only, so that a device can read a schema.
The modules `table`, `columns`, `files`, `infer` and `cells` need NumPy and PyArrow.
"""

from dither.schema.attribute import Attribute
from dither.schema.schema import Schema, attribute_from_json, load_schema, numeric, schema_from_json

__all__ = [
    "Attribute",
    "Schema",
    "attribute_from_json",
    "load_schema",
    "numeric",
    "schema_from_json",
]
