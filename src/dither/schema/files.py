"""Tables in files: CSV, JSON lines and Parquet in, CSV and Parquet out, nothing half-written."""

from __future__ import annotations

import codecs
import csv
import gzip
import json
import os
import re
import sys
import tempfile
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO, Literal, get_args

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.json as pa_json
import pyarrow.parquet as pq

from dither.checks import check_choice
from dither.errors import ParameterError, TableError
from dither.notice import (
    Notice,
    assumed_form,
    header_like_data,
    marks_are_missing,
    unnamed_index,
)
from dither.private_files import make_private
from dither.schema.attribute import Attribute
from dither.schema.columns import is_text
from dither.schema.formats import MISSING, MISSING_MARKS, DateOrder
from dither.schema.schema import Schema, file_fault
from dither.schema.table import adopt_table, check_names, to_arrow
from dither.types import NativeTable

# The name of standard input.
STDIN = "-"
# The name of a first column without one, which R and pandas write for the rows' index.
INDEX = "index"
_DELIMITERS = (",", ";", "\t", "|")
_SAMPLE = 1 << 18
_BLOCK = 1 << 20
# Python's own limit for a field of a CSV file.
_MAX_FIELD_BYTES = 1 << 17
_SHOWN = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar"}
_COMMA_NUMBER = re.compile(r"[+-]?\d+,\d+")
# Also 1,234.50: its comma is not a decimal mark.
_POINT_NUMBER = re.compile(r"[+-]?\d[\d,]*\.\d+")
_NUMBER = r"^\s*[+-]?([0-9]+[.,]?[0-9]*|[.,][0-9]+)([eE][+-]?[0-9]+)?\s*$"
_LEADING_ZERO = r"^\s*[+-]?0[0-9]"
_DATA = re.compile(r"\s*[+-]?\d+([.,]\d+)?\s*")
# A packed file may grow to this size, and beyond it to so many times its own: tables shrink to
# a fifth or a twentieth, and no file may fill the disk.
_UNPACKED_BYTES = 1 << 26
_UNPACKED_RATIO = 100

_Suffix = Literal[".csv", ".tsv", ".jsonl", ".ndjson", ".json", ".parquet"]
_SUFFIXES: tuple[_Suffix, ...] = get_args(_Suffix)
_PACKED = ".gz"


def _listed(option: str, names: object) -> tuple[str, ...]:
    """The texts of an option; a single text is a list of one."""
    if isinstance(names, str):
        return (names,)
    if not isinstance(names, Iterable) or not all(isinstance(name, str) for name in names):
        raise ParameterError(
            f"{option} takes a list of texts, such as {option}=['a', 'b'], not {names!r}",
            where=option,
            value=names,
        )
    return tuple(names)


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
        missing: Texts that mean no answer, besides the empty one; None for `MISSING`, and in
            columns of numbers also "." and "-".
        no_header: Whether the first row is data; columns are then named column_1, column_2, ...
        date_order: "dmy" or "mdy", for dates such as 03/09/2020 that can be read both ways. Used
            only where the domain is inferred from the rows.

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
    no_header: bool = False
    date_order: DateOrder | None = None

    @property
    def missing_texts(self) -> tuple[str, ...]:
        """Every text that means no answer."""
        return MISSING if self.missing is None else tuple(dict.fromkeys(("", *self.missing)))

    def __post_init__(self) -> None:
        for name in ("columns", "drop", "keep", "missing"):
            if (names := getattr(self, name)) is not None:
                object.__setattr__(self, name, _listed(name, names))
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
        if self.date_order is not None:
            check_choice("date_order", self.date_order, get_args(DateOrder))
        if self.encoding is not None:
            try:
                codecs.lookup(self.encoding)
            except LookupError:
                raise ParameterError(
                    f"no encoding {self.encoding!r}; try utf-8 or cp1252", where="encoding"
                ) from None


@dataclass(frozen=True)
class _Source:
    """A file to read.

    Attributes:
        path: The unpacked file.
        name: What the user called it, for messages.
        suffix: What it holds.
    """

    path: Path
    name: str
    suffix: _Suffix

    def fault(self, message: str) -> TableError:
        """An error that names the file."""
        return TableError(f"{self.name}: {message}", where=self.name)


@dataclass(frozen=True)
class _CsvForm:
    """How a CSV file was read.

    Attributes:
        names: The columns' names.
        skipped: Rows before the first row of data.
        unnamed: The name given to a first column without one; None if it has one.
    """

    delimiter: str
    encoding: str
    decimal: str
    names: tuple[str, ...] = ()
    skipped: int = 1
    unnamed: str | None = None

    def assumed(self, given: ReadOptions, usual: str) -> str:
        """What was found out and is out of the ordinary, in words; empty if nothing is."""
        words = []
        if given.delimiter is None and self.delimiter != usual:
            words.append(f"{_SHOWN.get(self.delimiter, repr(self.delimiter))}-separated")
        if given.encoding is None and self.encoding != "utf-8":
            words.append(f"in the encoding {self.encoding}")
        if given.decimal is None and self.decimal == ",":
            words.append("with decimal commas")
        return ", ".join(words)


def _find_form(source: _Source, schema: Schema | None, given: ReadOptions) -> _CsvForm:
    """The form of a file from its first part; its encoding from all of it."""
    if given.encoding is None:
        encoding = _find_encoding(source)
    else:
        encoding = given.encoding
        if (wrong := _undecodable_line(source, encoding)) is not None:
            raise source.fault(f"line {wrong:,} is not {encoding} text; state another encoding")
    _check_no_nul(source, encoding)
    with source.path.open("rb") as file:
        head = file.read(_SAMPLE)
    text = codecs.getincrementaldecoder(encoding)("replace").decode(head).lstrip("\ufeff")
    lines = text.splitlines(keepends=True)
    whole = lines[:-1] if len(lines) > 1 and len(head) == _SAMPLE else lines
    usual = "\t" if source.suffix == ".tsv" else ","
    delimiter = given.delimiter or _find_delimiter(whole[:500], usual, given.decimal)
    rows = list(csv.reader(whole[:500], delimiter=delimiter))
    decimal = given.decimal or _find_decimal(rows, delimiter)
    return _with_names(source, _CsvForm(delimiter, encoding, decimal), rows, schema, given)


def _with_names(
    source: _Source,
    form: _CsvForm,
    rows: Sequence[Sequence[str]],
    schema: Schema | None,
    given: ReadOptions,
) -> _CsvForm:
    """The form with the columns' names, from the header or by their place."""
    blank = next((i for i, row in enumerate(rows) if row), None)
    if blank is None:
        raise source.fault("the file is empty")
    header = rows[blank]
    if given.no_header:
        numbered = tuple(f"column_{i}" for i in range(1, len(header) + 1))
        return replace(form, names=numbered, skipped=blank)
    wanted = set() if schema is None else set(schema.names)
    names = [name if name in wanted else name.strip() for name in header]
    # R's write.table leaves the name of the index out of the header.
    if {len(row) for row in rows[blank + 1 :] if row} == {len(header) + 1}:
        names = ["", *names]
    unnamed = None
    if names[0] in ("", "Unnamed: 0") and len(names) > 1:
        unnamed = INDEX if INDEX not in names else f"{INDEX}_1"
        names[0] = unnamed
    names = [name or f"column_{i}" for i, name in enumerate(names, start=1)]
    try:
        check_names(names, source.name)
    except TableError as error:
        hint = _header_hint(header)
        raise TableError(f"{error}{hint}", where=error.where, value=error.value) from None
    return replace(form, names=tuple(names), skipped=blank + 1, unnamed=unnamed)


def _header_hint(header: Sequence[str]) -> str:
    """What to do about a header that looks like data; empty if it does not."""
    numbers = [field for field in header if _DATA.fullmatch(field)]
    if 2 * len(numbers) <= len(header) or not numbers:
        return ""
    return f"; the first row looks like data ({', '.join(header[:3])}): give no_header"


def _find_encoding(source: _Source) -> str:
    with source.path.open("rb") as file:
        if file.read(2) in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
            return "utf-16"
    if _undecodable_line(source, "utf-8") is None:
        return "utf-8"
    wrong, right = _lines_by_utf8(source)
    if right is not None:
        raise source.fault(
            f"mixed encodings: line {wrong:,} is not UTF-8, but line {right:,} is; "
            "convert the file, or state its encoding"
        )
    return "cp1252" if _undecodable_line(source, "cp1252") is None else "latin-1"


def _undecodable_line(source: _Source, encoding: str) -> int | None:
    """The first line that is not text in an encoding; None if all are."""
    decoder = codecs.getincrementaldecoder(encoding)()
    line = 1
    with source.path.open("rb") as file:
        block = b"start"
        while block:
            block = file.read(_BLOCK)
            try:
                decoder.decode(block, final=not block)
            except UnicodeDecodeError as error:
                return line + block[: error.start].count(b"\n")
            line += block.count(b"\n")
    return None


def _lines_by_utf8(source: _Source) -> tuple[int, int | None]:
    """The first line that is not UTF-8, and the first that is and has other than ASCII letters."""
    wrong, right = 0, None
    with source.path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if line.isascii():
                continue
            try:
                line.decode("utf-8")
            except UnicodeDecodeError:
                wrong = wrong or number
            else:
                right = right or number
            if wrong and right:
                break
    return wrong, right


def _check_no_nul(source: _Source, encoding: str) -> None:
    """Raise TableError if a text file holds a NUL byte."""
    if codecs.lookup(encoding).name.startswith(("utf-16", "utf-32")):
        return
    line = 1
    with source.path.open("rb") as file:
        while block := file.read(_BLOCK):
            if (at := block.find(0)) >= 0:
                raise source.fault(
                    f"line {line + block[:at].count(10):,} holds a NUL byte, so it is not text; "
                    "a UTF-16 file needs the encoding utf-16"
                )
            line += block.count(b"\n")


def _find_delimiter(lines: Sequence[str], usual: str, decimal: str | None) -> str:
    """The delimiter that cuts all lines into equally many fields; of several the finest."""
    best, most = usual, 1
    for delimiter in dict.fromkeys((usual, *_DELIMITERS)):
        rows = [row for row in csv.reader(lines, delimiter=delimiter) if row]
        widths = {len(row) for row in rows}
        if len(widths) == 1 and max(widths) > most and delimiter != decimal:
            best, most = delimiter, max(widths)
    return best


def _find_decimal(rows: Sequence[Sequence[str]], delimiter: str) -> str:
    if delimiter == ",":
        return "."
    fields = [field.strip() for row in rows for field in row]
    commas = any(_COMMA_NUMBER.fullmatch(field) for field in fields)
    return "," if commas and not any(_POINT_NUMBER.fullmatch(field) for field in fields) else "."


def _read_csv(
    source: _Source, schema: Schema | None, given: ReadOptions
) -> tuple[pa.Table, list[Notice]]:
    """Read a CSV file, and report what was assumed.

    With a schema, columns whose domain lists text are read as text, and a listed value is an
    answer even if it usually means missing ("NA" for Namibia). Without one, whole numbers with
    leading zeros are text.
    """
    try:
        form = _find_form(source, schema, given)
        table, marked = _read_columns(source, form, schema, given)
    except (pa.ArrowInvalid, csv.Error) as error:
        raise _explained(source, given, error) from None
    _check_fields(source, table)
    usual = "\t" if source.suffix == ".tsv" else ","
    name = Path(source.name).name
    assumed = form.assumed(given, usual)
    notes = [assumed_form(name, assumed)] if assumed else []
    if marked and schema is None:
        notes.append(marks_are_missing(name, marked))
    if not given.no_header and _header_hint(form.names):
        notes.append(header_like_data(name))
    return _without_index(table, form, schema, given, notes)


def _check_fields(source: _Source, table: pa.Table) -> None:
    """Raise TableError if a text is longer than any field of a table should be."""
    for name in table.column_names:
        column = table[name]
        if not is_text(column.type):
            continue
        lengths = pc.binary_length(column)
        longest = pc.max(lengths).as_py() or 0
        if longest > _MAX_FIELD_BYTES:
            row = pc.index(lengths, longest).as_py() + 1
            raise source.fault(
                f"row {row:,}, column {name!r} holds {longest:,} bytes in one field, more than "
                f"{_MAX_FIELD_BYTES:,}; perhaps a quotation mark is not closed"
            )


def _without_index(
    table: pa.Table,
    form: _CsvForm,
    schema: Schema | None,
    given: ReadOptions,
    notes: list[Notice],
) -> tuple[pa.Table, list[Notice]]:
    """The table without an unnamed first column, unless an option or the schema names it."""
    named = {*(given.columns or ()), *given.drop, *given.keep}
    if schema is not None:
        named |= {*schema.names, *(name for name, _ in (*schema.dropped, *schema.constants))}
    if form.unnamed is None or form.unnamed in named:
        return table, notes
    return table.drop_columns([form.unnamed]), [*notes, unnamed_index(form.unnamed)]


def _read_columns(
    source: _Source, form: _CsvForm, schema: Schema | None, given: ReadOptions
) -> tuple[pa.Table, dict[str, list[str]]]:
    """The columns in their types, and those of numbers where a mark means missing."""
    missing = given.missing_texts
    attributes = () if schema is None else tuple(schema)
    listed = {a.name: a for a in attributes if any(isinstance(v, str) for v in a.values)}
    as_text = {*listed, *(a.name for a in attributes if a.format)}
    table = _parse(source.path, form, missing, dict.fromkeys(as_text, pa.string()))
    plain = [f.name for f in table.schema if pa.types.is_time(f.type)]
    # A day is a label to a schema that lists it, and labels come back as they were
    # written.
    if schema is not None:
        moments = {a.name for a in schema if a.kind in ("date", "datetime")}
        plain += [
            f.name for f in table.schema if pa.types.is_temporal(f.type) and f.name not in moments
        ]
    numbers = {a.name for a in attributes}
    plain += _leading_zeros(source.path, form, missing, table, numbers)
    if plain:
        table = _parse(source.path, form, missing, dict.fromkeys([*as_text, *plain], pa.string()))
    table = _with_literals(source, form, missing, table, listed)
    if given.missing is not None:
        return table, {}
    numeric = {a.name for a in attributes if a.bounds is not None and not a.format}
    candidates = [
        name
        for name in table.column_names
        if is_text(table[name].type) and (name in numeric or schema is None)
    ]
    marked = {name: marks for name in candidates if (marks := _number_marks(table[name]))}
    if marked:
        more = [*missing, *MISSING_MARKS]
        parsed = _parse(source.path, form, more, {}, list(marked))
        for name in marked:
            table = table.set_column(table.column_names.index(name), name, parsed.column(name))
    return table, marked


def _with_literals(
    source: _Source,
    form: _CsvForm,
    missing: Sequence[str],
    table: pa.Table,
    listed: dict[str, Attribute],
) -> pa.Table:
    """The table with listed values as answers, although they usually mean missing."""
    literal = [
        name
        for name, a in listed.items()
        if any(v in missing for v in a.values) and name in table.column_names
    ]
    if not literal:
        return table
    kept = {v for name in literal for v in listed[name].values}
    texts = _parse(
        source.path,
        form,
        [text for text in missing if text not in kept],
        dict.fromkeys(literal, pa.string()),
        literal,
    )
    for name in literal:
        table = table.set_column(table.column_names.index(name), name, texts.column(name))
    return table


def _number_marks(column: pa.ChunkedArray) -> list[str]:
    """The marks of missing answers in a text column whose other values are plain numbers."""
    values = pc.unique(column).drop_null()
    is_mark = pc.is_in(values, pa.array(MISSING_MARKS))
    marks = values.filter(is_mark)
    numbers = values.filter(pc.invert(is_mark))
    if not len(marks) or not len(numbers):
        return []
    plain = pc.all(pc.match_substring_regex(numbers, _NUMBER)).as_py()
    coded = pc.any(pc.match_substring_regex(numbers, _LEADING_ZERO)).as_py()
    return marks.to_pylist() if plain and not coded else []


def _explained(source: _Source, given: ReadOptions, error: Exception) -> TableError:
    """The error for a CSV file that cannot be parsed, with the line where it fails."""
    encoding = given.encoding or _find_encoding(source)
    with source.path.open(encoding=encoding, errors="replace", newline="") as file:
        lines = [line for _, line in zip(range(500), file, strict=False)]
    line = 1
    try:
        usual = "\t" if source.suffix == ".tsv" else ","
        delimiter = given.delimiter or _find_delimiter(lines, usual, given.decimal)
        with source.path.open(encoding=encoding, errors="replace", newline="") as file:
            reader = csv.reader(file, delimiter=delimiter)
            width = None
            for row in reader:
                width = width or len(row) or None
                if row and width is not None and len(row) != width:
                    return source.fault(
                        f"line {reader.line_num:,}: fields: {len(row):,}, in the first row: "
                        f"{width:,}; correct the line or state the delimiter"
                    )
                line = reader.line_num + 1
    except csv.Error:
        return source.fault(
            f"line {line:,} begins a field of more than {_MAX_FIELD_BYTES:,} characters; "
            "perhaps a quotation mark is not closed"
        )
    return TableError(f"cannot read {source.name} as CSV: {file_fault(error)}", where=source.name)


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
    if not whole:
        return []
    texts = _parse(path, form, missing, dict.fromkeys(whole, pa.string()), whole)
    columns = (
        name
        for name in whole
        if pc.any(pc.match_substring_regex(texts.column(name), _LEADING_ZERO)).as_py()
    )
    return list(columns)


def _parse(
    path: Path,
    form: _CsvForm,
    missing: Sequence[str],
    types: dict[str, pa.DataType],
    columns: Sequence[str] | None = None,
) -> pa.Table:
    return pa_csv.read_csv(
        path,
        read_options=pa_csv.ReadOptions(
            encoding=form.encoding,
            column_names=list(form.names),
            skip_rows_after_names=form.skipped,
        ),
        # In a file of one column an empty line is a missing value, not a gap between
        # rows.
        parse_options=pa_csv.ParseOptions(
            delimiter=form.delimiter,
            newlines_in_values=True,
            ignore_empty_lines=len(form.names) > 1,
        ),
        convert_options=pa_csv.ConvertOptions(
            column_types=types,
            null_values=list(missing),
            strings_can_be_null=True,
            decimal_point=form.decimal,
            include_columns=None if columns is None else list(columns),
        ),
    )


def is_untyped(source: object) -> bool:
    """Whether a table's source declares no types: text, or Python's own lists."""
    if not isinstance(source, (str, Path)):
        return isinstance(source, (dict, list, tuple))
    name = str(source).lower().removesuffix(_PACKED)
    return name == STDIN or (name.endswith(_SUFFIXES) and not name.endswith(".parquet"))


@contextmanager
def _opened(source: str | Path) -> Iterator[_Source]:
    """The file to read: unpacked, or copied from standard input, into a private file."""
    name = str(source)
    path = Path(source)
    if name == STDIN:
        with _temporary() as copy:
            with copy.open("wb") as file:
                while block := sys.stdin.buffer.read(_BLOCK):
                    file.write(block)
            with _unpacked(copy, "standard input") as plain:
                yield _Source(plain, "standard input", _sniff(plain))
        return
    bare = name.lower().removesuffix(_PACKED)
    suffix = next((known for known in _SUFFIXES if bare.endswith(known)), None)
    if suffix is None:
        raise TableError(
            f"cannot tell what {path} is; a table's name ends in {', '.join(_SUFFIXES)} or .csv.gz",
            where=name,
        )
    if not path.exists():
        raise TableError(f"file not found: {path}", where=name)
    if path.is_dir():
        raise TableError(f"{path} is a folder, not a table", where=name)
    with _unpacked(path, name) as plain:
        yield _Source(plain, name, suffix)


@contextmanager
def _temporary() -> Iterator[Path]:
    """A file of the owner alone, deleted at the end."""
    handle, name = tempfile.mkstemp(prefix="dither-")
    os.close(handle)
    try:
        yield Path(name)
    finally:
        Path(name).unlink(missing_ok=True)


@contextmanager
def _unpacked(path: Path, name: str) -> Iterator[Path]:
    """The file itself, or what it holds if it is packed with gzip."""
    with path.open("rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
    if not packed:
        yield path
        return
    most = max(_UNPACKED_BYTES, _UNPACKED_RATIO * path.stat().st_size)
    with _temporary() as plain:
        try:
            with gzip.open(path) as source, plain.open("wb") as target:
                _copy(source, target, most, name)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise TableError(f"cannot unpack {name}: {error}", where=name) from None
        yield plain


def _copy(source: BinaryIO | gzip.GzipFile, target: BinaryIO, most: int, name: str) -> None:
    size = 0
    while block := source.read(_BLOCK):
        size += len(block)
        if size > most:
            raise TableError(
                f"{name} unpacks to more than {most >> 20:,} MB, which is {_UNPACKED_RATIO} times "
                "its size or more; unpack it yourself if you trust it",
                where=name,
            )
        target.write(block)


def _sniff(path: Path) -> _Suffix:
    """What a file without a name holds."""
    with path.open("rb") as file:
        head = file.read(64).lstrip()
    if head.startswith(b"PAR1"):
        return ".parquet"
    if head.startswith(b"["):
        return ".json"
    return ".jsonl" if head.startswith(b"{") else ".csv"


def read_table(
    source: str | Path, schema: Schema | None = None, options: ReadOptions | None = None
) -> pa.Table:
    """Read a file as a PyArrow table with rows and distinct column names; see `read_noted`."""
    return read_noted(source, schema, options)[0]


def read_noted(
    source: str | Path, schema: Schema | None = None, options: ReadOptions | None = None
) -> tuple[pa.Table, list[Notice]]:
    """Read a table, and the assumptions made about a CSV file in an unusual format.

    CSV does not mark text. With a schema, columns whose domain lists text are read as text, so
    that "01" and "1" stay distinct; without one, columns of whole numbers with leading zeros are
    text. A first column without a name is the rows' index and is left out, unless it is named.

    Args:
        source: A .csv, .tsv, .jsonl (one object a line), .json (a list of records) or .parquet
            file, also packed as .gz; "-" for standard input.
        schema: The schema of the table, if there is one.
        options: How to read a CSV file; by default all of it is detected.

    Raises:
        TableError: The file is not a table with rows and distinct column names.
    """
    given = options or ReadOptions()
    notes: list[Notice] = []
    with _opened(source) as file:
        try:
            if file.suffix in (".csv", ".tsv"):
                table, notes = _read_csv(file, schema, given)
            elif file.suffix == ".parquet":
                table = _read_parquet(file.path)
            else:
                table = _read_json(file)
        except MemoryError:  # PyArrow's own is one of these
            raise TableError(
                f"{file.name} needs more memory than this process may use; take fewer columns or rows",
                where=file.name,
            ) from None
        except (pa.ArrowException, OSError, UnicodeError) as error:
            kind = {".csv": "CSV", ".tsv": "CSV", ".parquet": "Parquet"}.get(file.suffix, "JSON")
            raise TableError(
                f"cannot read {file.name} as {kind}: {file_fault(error)}", where=file.name
            ) from None
        check_names(table.column_names, file.name)
        if table.num_rows == 0:
            raise TableError(f"{file.name} has no rows", where=file.name)
    return table, notes


def _read_json(source: _Source) -> pa.Table:
    """JSON lines, or one list of records or object of columns."""
    if source.suffix != ".json":
        return pa_json.read_json(source.path)
    try:
        data = json.loads(source.path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise source.fault(f"not JSON: {file_fault(error)}") from None
    if isinstance(data, dict) and not all(isinstance(part, list) for part in data.values()):
        raise source.fault("a table in JSON is a list of records, or an object of columns")
    try:
        return adopt_table(data)
    except TableError as error:
        raise source.fault(str(error)) from None


def _read_parquet(path: Path) -> pa.Table:
    # A file, not the path: for a path PyArrow would add columns for folders named like
    # key=value. And PyArrow's file, not Python's: its threads may still hold the latter
    # when the interpreter ends, which aborts the process.
    with pa.OSFile(str(path)) as file:
        return pq.read_table(file)


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
