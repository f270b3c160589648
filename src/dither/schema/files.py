"""Tables in files: CSV and Parquet in and out, nothing ever half-written."""

from __future__ import annotations

import codecs
import csv
import os
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from dither.errors import ParameterError, TableError
from dither.notice import Notice, assumed_form
from dither.private_files import make_private
from dither.schema.schema import Schema, file_fault
from dither.schema.table import check_names, to_arrow
from dither.types import NativeTable

MISSING = ("", "NA", "N/A", "n/a", "#N/A", "NULL", "null", "NaN", "nan", "?")
_DELIMITERS = (",", ";", "\t", "|")
_SAMPLE = 1 << 18
_SHOWN = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar"}
_COMMA_NUMBER = re.compile(r"[+-]?\d+,\d+")
_POINT_NUMBER = re.compile(r"[+-]?\d+\.\d+")


@dataclass(frozen=True)
class ReadOptions:
    """How a table is read: which columns, and how a CSV file is written.

    Attributes:
        columns: Columns to read; None for all.
        drop: Columns to leave out.
        keep: Columns to ask although they look like identifiers or free text. Used only
            where the domain is inferred from the rows.
        delimiter: One character; None to detect it.
        encoding: Name of a codec; None to detect it.
        decimal: The decimal mark, "." or ","; None to detect it.
        missing: Texts that mean no answer, besides the empty one; None for `MISSING`.

    Raises:
        ParameterError: If an option cannot describe any CSV file.
    """

    columns: Sequence[str] | None = None
    drop: Sequence[str] = ()
    keep: Sequence[str] = ()
    delimiter: str | None = None
    encoding: str | None = None
    decimal: str | None = None
    missing: Sequence[str] | None = None

    @property
    def missing_texts(self) -> tuple[str, ...]:
        """Every text that means no answer."""
        return MISSING if self.missing is None else tuple(dict.fromkeys(("", *self.missing)))

    def __post_init__(self) -> None:
        for name in ("columns", "drop", "keep", "missing"):
            if (names := getattr(self, name)) is not None:
                object.__setattr__(self, name, tuple(names))
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
class _CsvForm:
    """How a CSV file was read."""

    delimiter: str
    encoding: str
    decimal: str

    def assumed(self, given: ReadOptions) -> str:
        """What was found out and is out of the ordinary, in words; empty if nothing is."""
        words = []
        if given.delimiter is None and self.delimiter != ",":
            words.append(f"{_SHOWN.get(self.delimiter, repr(self.delimiter))}-separated")
        if given.encoding is None and self.encoding != "utf-8":
            words.append(f"in the encoding {self.encoding}")
        if given.decimal is None and self.decimal == ",":
            words.append("with decimal commas")
        return ", ".join(words)


def _find_form(path: Path, given: ReadOptions) -> _CsvForm:
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
    return _CsvForm(delimiter, encoding, decimal)


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
    """The delimiter that cuts all lines into equally many fields; of several the finest."""
    best, most = usual, 1
    for delimiter in dict.fromkeys((usual, *_DELIMITERS)):
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


def read_csv(path: Path, schema: Schema | None, given: ReadOptions) -> tuple[pa.Table, _CsvForm]:
    """Read a CSV file, and report the detected options.

    With a schema, columns whose domain lists text are read as text, and a listed value is an
    answer even if it usually means missing ("NA" for Namibia). Without one, whole numbers with
    leading zeros are text.
    """
    form = _find_form(path, given)
    missing = given.missing_texts
    listed = (
        {}
        if schema is None
        else {a.name: a for a in schema if any(isinstance(v, str) for v in a.values)}
    )
    table = _parse(path, form, missing, dict.fromkeys(listed, pa.string()))
    plain = [f.name for f in table.schema if pa.types.is_time(f.type)]
    # A day is a label to a schema that lists it, and labels come back as they were
    # written.
    if schema is not None:
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
        as_text = _parse(
            path,
            form,
            [text for text in missing if text not in kept],
            dict.fromkeys(literal, pa.string()),
            literal,
        )
        for name in literal:
            table = table.set_column(table.column_names.index(name), name, as_text.column(name))
    for field in table.schema:
        if pa.types.is_binary(field.type):
            raise TableError(
                f"cannot read {path} as CSV: column {field.name!r} is not {form.encoding} text",
                where=str(path),
            )
    return table, form


def _leading_zeros(
    path: Path,
    form: _CsvForm,
    missing: Sequence[str],
    table: pa.Table,
    text_columns: Collection[str],
) -> list[str]:
    """The columns of whole numbers with leading zeros: codes, such as postal codes."""
    whole = [
        f.name for f in table.schema if pa.types.is_integer(f.type) and f.name not in text_columns
    ]
    if not whole or len(set(table.column_names)) < len(table.column_names):
        return []
    texts = _parse(path, form, missing, dict.fromkeys(whole, pa.string()), whole)
    columns = (
        name
        for name in whole
        if pc.any(pc.match_substring_regex(texts.column(name), r"^\s*[+-]?0[0-9]")).as_py()
    )
    return list(columns)


def _parse(
    path: Path,
    form: _CsvForm,
    missing: Sequence[str],
    types: dict[str, pa.DataType],
    columns: Sequence[str] | None = None,
) -> pa.Table:
    with path.open("rb") as file:
        header = file.readline()
    return pa_csv.read_csv(
        path,
        read_options=pa_csv.ReadOptions(encoding=form.encoding),
        # In a file of one column an empty line is a missing value, not a gap between
        # rows.
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


TEXT_SUFFIXES = (".csv", ".tsv")
SUFFIXES = (*TEXT_SUFFIXES, ".parquet")


def read_table(
    source: str | Path, schema: Schema | None = None, options: ReadOptions | None = None
) -> pa.Table:
    """Read a .csv, .tsv or .parquet file as a PyArrow table with rows and distinct column names."""
    return read_noted(source, schema, options)[0]


def read_noted(
    source: str | Path, schema: Schema | None = None, options: ReadOptions | None = None
) -> tuple[pa.Table, list[Notice]]:
    """Read a table, and the assumptions made about a CSV file in an unusual format.

    CSV does not mark text. With a schema, columns whose domain lists text are read as text, so
    that "01" and "1" stay distinct; without one, columns of whole numbers with leading zeros are
    text.

    Args:
        source: A .csv, .tsv or .parquet file.
        schema: The schema of the table, if there is one.
        options: How to read a CSV file; by default all of it is detected.

    Raises:
        TableError: The file is not a table with rows and distinct column names.
    """
    path, given = Path(source), options or ReadOptions()
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise TableError(
            f"cannot tell what {path} is; a table's name ends in {' or '.join(SUFFIXES)}",
            where=str(path),
        )
    if not path.exists():
        raise TableError(f"file not found: {path}", where=str(path))
    if path.is_dir():
        raise TableError(f"{path} is a folder, not a table", where=str(path))
    notes: list[Notice] = []
    try:
        if suffix in TEXT_SUFFIXES:
            table, form = read_csv(path, schema, given)
            assumed = form.assumed(given)
            if assumed and not (suffix == ".tsv" and assumed == "tab-separated"):
                notes.append(assumed_form(path, assumed))
        else:
            table = _read_parquet(path)
    except MemoryError:  # PyArrow's own is one of these
        raise TableError(
            f"{path} needs more memory than this process may use; take fewer columns or rows",
            where=str(path),
        ) from None
    except (pa.ArrowException, OSError, UnicodeError, csv.Error) as error:
        kind = "Parquet" if suffix == ".parquet" else "CSV"
        raise TableError(
            f"cannot read {path} as {kind}: {file_fault(error)}", where=str(path)
        ) from None
    check_names(table.column_names, str(path))
    if table.num_rows == 0:
        raise TableError(f"{path} has no rows", where=str(path))
    return table, notes


def write_table(table: NativeTable, path: str | Path) -> None:
    """Write a table atomically: CSV if the name ends in .csv, else Parquet."""
    arrow = to_arrow(table)
    if Path(path).suffix.lower() == ".csv":
        plain = [
            c.cast(c.type.value_type) if pa.types.is_dictionary(c.type) else c
            for c in arrow.columns
        ]
        flat = pa.table(dict(zip(arrow.column_names, plain, strict=True)))
        write_atomically(path, lambda temporary: pa_csv.write_csv(flat, temporary))
        return
    write_atomically(path, lambda temporary: pq.write_table(arrow, temporary, compression="zstd"))


def write_atomically(
    path: str | Path, write: Callable[[Path], object], *, private: bool = False
) -> None:
    """Write a file so that readers see it whole or not at all.

    Args:
        path: The file to write.
        write: Fills a temporary file in the same folder, which is then moved to `path`.
        private: Only the owner can read the file.

    Raises:
        TableError: The folder does not exist, or the path is not a file.
    """
    path = Path(path)
    if not path.parent.is_dir():
        raise TableError(
            f"cannot write {path}: the folder {path.parent} does not exist", where=str(path)
        )
    if not path.name or (path.exists() and not (path.is_file() or path.is_dir())):
        # To move a file there would put it in the place of a device or a pipe.
        raise TableError(f"cannot write {path}: it is not a file; name one", where=str(path))
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        if private:
            make_private(temporary)
        write(temporary)
        os.replace(temporary, path)
    except OSError as error:
        raise TableError(f"cannot write {path}: {file_fault(error)}", where=str(path)) from None
    finally:
        temporary.unlink(missing_ok=True)


def _read_parquet(path: Path) -> pa.Table:
    # A file, not the path: for a path PyArrow would add columns for folders named like
    # key=value. And PyArrow's file, not Python's: its threads may still hold the latter
    # when the interpreter ends, which aborts the process.
    with pa.OSFile(str(path)) as file:
        return pq.read_table(file)
