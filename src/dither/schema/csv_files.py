"""CSV as it comes: delimiter, encoding and decimal comma are found out and said, and codes with leading zeros stay text."""

from __future__ import annotations

import codecs
import csv
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from dither.errors import ParameterError, TableError
from dither.schema.schema import Schema

MISSING = ("", "NA", "N/A", "n/a", "#N/A", "NULL", "null", "NaN", "nan", "?")
DELIMITERS = (",", ";", "\t", "|")
_SAMPLE = 1 << 18
_SHOWN = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar"}
_COMMA_NUMBER = re.compile(r"[+-]?\d+,\d+")
_POINT_NUMBER = re.compile(r"[+-]?\d+\.\d+")


@dataclass(frozen=True)
class CsvOptions:
    """How a CSV file is written; what is None is found out from the file itself. `missing` lists the texts that mean no answer."""

    delimiter: str | None = None
    encoding: str | None = None
    decimal: str | None = None
    missing: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if self.delimiter is not None and (len(self.delimiter) != 1 or self.delimiter in '\r\n"'):
            raise ParameterError(
                f"a delimiter is one character, not {self.delimiter!r}", where="delimiter"
            )
        if self.decimal not in (None, ".", ","):
            raise ParameterError(f"decimal is . or , and not {self.decimal!r}", where="decimal")
        if self.decimal is not None and self.decimal == self.delimiter:
            raise ParameterError(
                "the same character cannot be delimiter and decimal mark", where="decimal"
            )
        if self.encoding is not None:
            try:
                codecs.lookup(self.encoding)
            except LookupError:
                raise ParameterError(
                    f"no encoding {self.encoding!r}; try utf-8 or cp1252", where="encoding"
                ) from None


@dataclass(frozen=True)
class CsvForm:
    """How a CSV file was read."""

    delimiter: str
    encoding: str
    decimal: str

    def assumed(self, given: CsvOptions) -> str:
        """What was found out and is out of the ordinary, in words; empty if nothing is."""
        words = []
        if given.delimiter is None and self.delimiter != ",":
            words.append(f"{_SHOWN.get(self.delimiter, repr(self.delimiter))}-separated")
        if given.encoding is None and self.encoding != "utf-8":
            words.append(f"in the encoding {self.encoding}")
        if given.decimal is None and self.decimal == ",":
            words.append("with decimal commas")
        return ", ".join(words)


def find_form(path: Path, given: CsvOptions) -> CsvForm:
    """The form of a file from its first part; its encoding from all of it."""
    encoding = given.encoding or _find_encoding(path)
    with path.open("rb") as file:
        head = file.read(_SAMPLE)
    text = codecs.getincrementaldecoder(encoding)("replace").decode(head).lstrip("\ufeff")
    lines = text.splitlines(keepends=True)
    whole = lines[:-1] if len(lines) > 1 and len(head) == _SAMPLE else lines
    usual = "\t" if path.suffix.lower() == ".tsv" else ","
    delimiter = given.delimiter or _find_delimiter(whole[:500], usual, given.decimal)
    decimal = given.decimal or _find_decimal(whole[:500], delimiter)
    return CsvForm(delimiter, encoding, decimal)


def _find_encoding(path: Path) -> str:
    with path.open("rb") as file:
        if file.read(2) in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
            return "utf-16"
    for encoding in ("utf-8", "cp1252"):
        decoder = codecs.getincrementaldecoder(encoding)()
        with path.open("rb") as file:
            try:
                while block := file.read(1 << 20):
                    decoder.decode(block)
                decoder.decode(b"", True)
            except UnicodeDecodeError:
                continue
        return encoding
    return "latin-1"


def _find_delimiter(lines: Sequence[str], usual: str, decimal: str | None) -> str:
    """The one that cuts all lines into the same number of fields, at least two; of several the one with most fields."""
    best, most = usual, 1
    for delimiter in dict.fromkeys((usual, *DELIMITERS)):
        rows = [row for row in csv.reader(lines, delimiter=delimiter) if row]
        widths = {len(row) for row in rows}
        if len(widths) == 1 and max(widths) > most and delimiter != decimal:
            best, most = delimiter, max(widths)
    return best


def _find_decimal(lines: Sequence[str], delimiter: str) -> str:
    if delimiter == ",":
        return "."
    fields = [field.strip() for row in csv.reader(lines, delimiter=delimiter) for field in row]
    commas = any(_COMMA_NUMBER.fullmatch(field) for field in fields)
    return "," if commas and not any(_POINT_NUMBER.fullmatch(field) for field in fields) else "."


def read_csv(path: Path, schema: Schema | None, given: CsvOptions) -> tuple[pa.Table, CsvForm]:
    """The table of a file and the form it was read in.

    With a schema, columns whose domain lists text are read as text, and what the domain lists is an answer even where it is
    usually none ("NA" for Namibia). Without one, whole numbers with leading zeros are text.
    """
    form = find_form(path, given)
    missing = MISSING if given.missing is None else given.missing
    listed = (
        {}
        if schema is None
        else {a.name: a for a in schema if any(isinstance(v, str) for v in a.values)}
    )
    table = _parse(path, form, missing, dict.fromkeys(listed, pa.string()))
    plain = [f.name for f in table.schema if pa.types.is_time(f.type)]
    if (
        schema is not None
    ):  # a day is a label to a schema that lists it, and labels come back as they were written
        moments = {a.name for a in schema if a.kind in ("date", "datetime")}
        plain += [
            f.name for f in table.schema if pa.types.is_temporal(f.type) and f.name not in moments
        ]
    numbers = set() if schema is None else {a.name for a in schema}
    plain += _leading_zeros(path, form, missing, table, numbers)
    if plain:
        table = _parse(path, form, missing, dict.fromkeys([*listed, *plain], pa.string()))
    literal = [
        name
        for name, a in listed.items()
        if any(v in missing for v in a.values) and name in table.column_names
    ]
    if literal:
        kept = {v for name in literal for v in listed[name].values}
        own = _parse(
            path,
            form,
            [text for text in missing if text not in kept],
            dict.fromkeys(literal, pa.string()),
            literal,
        )
        for name in literal:
            table = table.set_column(table.column_names.index(name), name, own.column(name))
    for field in table.schema:
        if pa.types.is_binary(field.type):
            raise TableError(
                f"cannot read {path} as CSV: column {field.name!r} is not {form.encoding} text",
                where=str(path),
            )
    return table, form


def _leading_zeros(
    path: Path, form: CsvForm, missing: Sequence[str], table: pa.Table, known: Collection[str]
) -> list[str]:
    """The columns of whole numbers some of which begin with a zero: codes, such as postal ones."""
    whole = [f.name for f in table.schema if pa.types.is_integer(f.type) and f.name not in known]
    if not whole or len(set(table.column_names)) < len(table.column_names):
        return []
    texts = _parse(path, form, missing, dict.fromkeys(whole, pa.string()), whole)
    found = (
        name
        for name in whole
        if pc.any(pc.match_substring_regex(texts.column(name), r"^\s*[+-]?0[0-9]")).as_py()
    )
    return list(found)


def _parse(
    path: Path,
    form: CsvForm,
    missing: Sequence[str],
    types: dict[str, pa.DataType],
    columns: Sequence[str] | None = None,
) -> pa.Table:
    with path.open("rb") as file:
        header = file.readline()
    return pa_csv.read_csv(
        path,
        read_options=pa_csv.ReadOptions(encoding=form.encoding),
        # In a file of one column an empty line is a missing value, not a gap between rows.
        parse_options=pa_csv.ParseOptions(
            delimiter=form.delimiter,
            newlines_in_values=True,
            ignore_empty_lines=form.delimiter.encode(form.encoding)[-1:] in header,
        ),
        convert_options=pa_csv.ConvertOptions(
            column_types=types,
            null_values=list(missing),
            strings_can_be_null=True,
            decimal_point=form.decimal,
            include_columns=None if columns is None else list(columns),
        ),
    )
