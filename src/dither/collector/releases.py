"""Published releases over HTTP: public reading, and publication by a curator.

`/v1/releases/{campaign}` and the addresses below it serve a published release to all
readers, and any release to a reader with a key. Without a key all other addresses of
this form have the same answer: a private campaign, one without a release and one that
does not exist return the same bytes after the same lookup.

CSV files are safe for spreadsheets. Excel, LibreOffice and others run a cell that
begins with = + - or @ (OWASP, "CSV Injection"), and labels come from the schema's
author. Such text is prefixed with an apostrophe, which marks it as text; numbers stay
unchanged, also as text.
"""

from __future__ import annotations

import io
import json
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Annotated, Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
from fastapi import APIRouter, Depends, Query, Request
from pydantic.dataclasses import dataclass
from starlette.responses import Response

from dither.collector import limits
from dither.collector.access import Access, Who
from dither.collector.admin import PARQUET, ZIP, FileAnswer, operator_router, sends
from dither.collector.answering import Question
from dither.collector.audit import acting
from dither.collector.collector import Collector
from dither.collector.problems import DOCUMENTED, Problem, json_response
from dither.collector.publications import Publications, Published, no_release
from dither.release.query import Answer, AnswerTable

CSV = "text/csv; charset=utf-8; header=present"
FORMATS = ("json", "csv", "parquet")
Text = Annotated[str, Query()]
Names = Annotated[Sequence[str], Query()]


@dataclass(frozen=True)
class PublicationStatus:
    """Whether anybody may read a release, and the SHA-256 of its folder as a zip file."""

    campaign: str
    published: bool
    sha256: str | None = None


def _question_of(where: str, given: str, by: Sequence[str]) -> Question:
    """The question in an address; empty parameters are ignored."""
    return Question(
        where.strip() or None, given.strip() or None, tuple(name for name in by if name.strip())
    )


def _answer_file(answer: Answer | AnswerTable, form: str) -> Response:
    """An answer as JSON (like `dither query --json`), CSV or Parquet."""
    if form == "json":
        return json_response(answer.to_json())
    out = io.BytesIO()
    if form == "csv":
        write_spreadsheet([answer.to_arrow()], out)
    elif form == "parquet":
        pq.write_table(answer.to_arrow(), out)
    else:
        raise Problem("invalid", f"format: {form[:20]!r} is none of {', '.join(FORMATS)}")
    return Response(
        out.getvalue(),
        media_type=CSV if form == "csv" else PARQUET,
        headers=_named(f"answer.{form}"),
    )


def _named(file: str) -> dict[str, str]:
    """Lets a browser save an answer as a file of this name."""
    return {"content-disposition": f'attachment; filename="{file}"'}


def release_routes(collector: Collector, access: Access) -> APIRouter:
    """Routes by which anybody reads published releases and a curator publishes them."""
    routes = APIRouter()
    routes.include_router(_publishing_routes(collector, access))
    routes.include_router(_reading_routes(collector, access))
    return routes


def _reading_routes(collector: Collector, access: Access) -> APIRouter:
    """Routes that read releases. They query the store in the framework's threads."""
    routes = APIRouter(prefix="/v1/releases/{campaign}", tags=["releases"], responses=DOCUMENTED)
    publications = collector.publications

    async def reader(request: Request) -> bool:
        """Whether a valid key or session was sent; a wrong one is an error for every address."""
        if await access.principal(request) is not None:
            return True
        if request.headers.get("authorization"):
            raise Problem("unauthorised", "send Authorization: Bearer with a key of this collector")
        return False

    def find(campaign: str, everything: bool = Depends(reader)) -> Published:
        return publications.find(campaign, everything)

    found = Depends(find)

    @routes.get("")
    def manifest(release: Published = found) -> Response:
        """The manifest of a release (`release.json` of its folder), its schema, and the SHA-256 of the folder as a zip file."""
        document = {
            **json.loads(publications.manifest(release)),
            "schema": json.loads(publications.schema(release)),
            "published": release.public,
            "sha256": release.digest,
        }
        return json_response(document)

    @routes.get("/query")
    def query(
        release: Published = found,
        where: Text = "",
        given: Text = "",
        by: Names = (),
        range: Names = (),
        below: Text = "",
        quantiles: Text = "",
        bins: Text = "",
        figure: Text = "",
        format: Text = "json",
    ) -> Response:
        """The share of people for whom `where` holds among those for whom `given` holds, `by` some attributes; with intervals.

        Of a release about one number: the share in each `range` (30000,50000) or `below` each number, `quantiles` (0.1,0.5,0.9),
        a histogram of other `bins` (a number of them, or edges), or a `figure` (mean, variance).
        """
        if format not in FORMATS:
            raise Problem("invalid", f"format: {format[:20]!r} is none of {', '.join(FORMATS)}")
        asked = replace(
            _question_of(where, given, by),
            range=tuple(text for text in range if text.strip()),
            below=below,
            quantiles=quantiles,
            bins=bins,
            figure=figure,
        )
        return _answer_file(publications.ask(release, asked), format)

    _add_downloads(routes, publications, found)
    return routes


def _add_downloads(routes: APIRouter, publications: Publications, found: Any) -> None:
    """Add the files of a release; `found` is the dependency that finds it."""

    def synthetic(release: Published) -> bytes:
        held = publications.file(release, "synthetic.parquet")
        if held is None:
            raise no_release()
        return held

    slots = threading.BoundedSemaphore(limits.MAX_DOWNLOADS)

    def download(write: Callable[[BinaryIO], object], media_type: str, name: str) -> Response:
        """Send a file that `write` fills from disk; it occupies a slot until it is sent."""
        if not slots.acquire(blocking=False):
            raise Problem(
                "too-many-downloads",
                f"{limits.MAX_DOWNLOADS} downloads are under way; try again in a moment",
            )
        file: BinaryIO = tempfile.TemporaryFile()  # noqa: SIM115
        try:
            write(file)
        except BaseException:
            file.close()
            slots.release()
            raise
        return FileAnswer(file, media_type, _named(name), slots.release)

    @routes.get(
        "/synthetic.parquet",
        response_class=Response,
        responses=sends(PARQUET, "The synthetic table"),
    )
    def parquet(release: Published = found) -> Response:
        """The synthetic table, a Parquet file."""
        return download(lambda file: file.write(synthetic(release)), PARQUET, "synthetic.parquet")

    @routes.get(
        "/synthetic.csv",
        response_class=Response,
        responses=sends("text/csv", "The synthetic table"),
    )
    def csv(release: Published = found) -> Response:
        """The synthetic table as CSV; text that a spreadsheet would take for a formula has an apostrophe before it."""
        return download(
            lambda file: write_spreadsheet(_parts(synthetic(release)), file),
            CSV,
            "synthetic.csv",
        )

    @routes.get(
        "/folder.zip", response_class=Response, responses=sends(ZIP, "The release's folder")
    )
    def folder(release: Published = found) -> Response:
        """The release's folder, which `dither query` and `dither.load_release` read once it is unpacked."""
        return download(lambda file: file.write(publications.archive(release)), ZIP, "release.zip")


def _publishing_routes(collector: Collector, access: Access) -> APIRouter:
    """Routes by which a curator publishes a release or withdraws it."""
    routes = operator_router(access, "/v1/admin/campaigns/{campaign}")

    @routes.post("/publish-release")
    def publish(campaign: str, who: Who, listed: bool | None = None) -> PublicationStatus:
        """Let everybody read the release; makes its replicates at the first time, which may take minutes. Safe to repeat.

        `listed` says whether the first page names it; by default, as the campaign itself.
        """
        live = collector.campaigns.current(campaign)
        on_first_page = live.spec.listed if listed is None else listed
        with acting(who.name, "publish-release"):
            found = collector.publications.publish(campaign, on_first_page)
        return PublicationStatus(campaign, found.public, found.digest)

    @routes.post("/unpublish-release")
    def unpublish(campaign: str, who: Who) -> PublicationStatus:
        """Hide the release from everybody without a key. Safe to repeat; what was downloaded is out."""
        collector.campaigns.current(campaign)
        with acting(who.name, "unpublish-release"):
            collector.publications.unpublish(campaign)
        return PublicationStatus(campaign, False)

    return routes


_FORMULA = r"^[\s\x00]*[=+\-@\t\r]"
_NUMBER = r"^[+\-]?(\d+(\.\d*)?|\.\d+)([eE][+\-]?\d+)?$"


def _without_formulas(table: pa.Table) -> pa.Table:
    """The same table with safe text and headings; dictionaries become plain text."""
    columns = []
    for column in table.columns:
        plain = (
            column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column
        )
        columns.append(_marked(plain) if _is_text(plain.type) else plain)
    names = _marked(pa.chunked_array([pa.array(table.column_names, pa.string())])).to_pylist()
    return pa.Table.from_arrays(columns, names=names)


def write_spreadsheet(tables: Iterable[pa.Table], out: BinaryIO) -> None:
    """Write the parts of a table as one CSV file."""
    writer: pa_csv.CSVWriter | None = None
    for table in tables:
        rows = _without_formulas(table)
        writer = writer or pa_csv.CSVWriter(out, rows.schema)
        writer.write_table(rows)
    if writer is not None:
        writer.close()


def _parts(parquet: bytes) -> Iterator[pa.Table]:
    """The rows of a Parquet file, some at a time."""
    for batch in pq.ParquetFile(io.BytesIO(parquet)).iter_batches(batch_size=1 << 16):
        yield pa.Table.from_batches([batch])


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _marked(text: pa.ChunkedArray) -> pa.ChunkedArray:
    risky = pc.and_(
        pc.match_substring_regex(text, _FORMULA), pc.invert(pc.match_substring_regex(text, _NUMBER))
    )
    mark, nothing = (pa.scalar(sign, text.type) for sign in ("'", ""))
    return pc.if_else(risky, pc.binary_join_element_wise(mark, text, nothing), text)
