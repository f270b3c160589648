"""The page for operators states the limits that the code has."""

from __future__ import annotations

from pathlib import Path

from dither.collector import PROBLEMS, Metrics, limits
from dither.reports import limits as wire_limits

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "operate-a-collector.md").read_text(
    encoding="utf-8"
)


def test_the_table_of_limits() -> None:
    c = limits.ConnectionLimits()
    for row in (
        f"| body of a request | {wire_limits.BODY_BYTES >> 20} MiB,",
        f"| bodies of all requests in memory | {limits.BODIES_BYTES >> 20} MiB |",
        f"| a table or schema in the console | {limits.UPLOAD_BYTES >> 20} MiB |",
        f"in the bounded process | {limits.FILE_SECONDS:g} s, {limits.MEMORY_BYTES >> 30} GiB | 413",
        f"or folder under way | {limits.MAX_DOWNLOADS} in each collector process | 429 |",
        f"| a report; reports in a request | {wire_limits.REPORT_BYTES >> 10} KiB; {wire_limits.REQUEST_REPORTS:,} |",
        f"while they are read | {c.header_bytes >> 10} KiB, {c.header_lines} headers | 431",
        f"on one connection | {c.pipelined} |",
        f"to the end of its headers | {c.head_seconds:g} s |",
        f"| a body, as a whole | {limits.BODY_SECONDS:g} s | 408, closed {c.drain_seconds:g} s later",
        f"| between two requests of a connection | {c.idle_seconds:g} s |",
        f"| reading an answer | {limits.MIN_WRITE_BYTES >> 10} KiB, or what is left, in any {c.write_seconds:g} s |",
        f"| a tally counted elsewhere | {limits.TALLY_BYTES >> 20} MiB,",
        f"| an upload's commit | {limits.UPLOAD_SECONDS:g} s | 503 |",
        f"answer to `/ready` | {limits.READY_SECONDS:g} s | 503;",
        f"report is stored (`POST .../lookup`) | {limits.MAX_LOOKUPS:,}, one query at a time | 429; 503 after "
        f"{limits.READY_SECONDS:g} s |",
        f"| connections | {c.most:,} (`--connections`)",
        f"keeps {limits.RESERVE + limits.BACKLOG} of them",
        f"stored in blocks of {limits.TOKEN_BLOCK:,}",
        f"differs from it by more than {limits.MAX_SKEW_SECONDS:g} s",
        f"its tally is taken {limits.UNDO_SECONDS / 60:g} min later",
    ):
        assert row in PAGE, row


def test_the_end_fits_into_what_is_promised() -> None:
    assert "stops within ten seconds" in PAGE
    assert limits.GRACE_SECONDS + limits.STOP_SECONDS + limits.THREAD_SECONDS < 9


def test_the_end_is_as_stated() -> None:
    assert f"cut off after {limits.GRACE_SECONDS - 0.5:g} s" in PAGE


def test_every_cause_is_named_with_its_status() -> None:
    rows = [
        line.split("|")[1:3]
        for line in PAGE.splitlines()
        if line.startswith("| ") and line[2].isdigit()
    ]
    listed = {name.strip(): statuses for statuses, names in rows for name in names.split(",")}
    for cause, (status, _) in PROBLEMS.items():
        assert str(status) in listed[cause], cause


def test_what_devices_read_is_stated() -> None:
    assert f"({wire_limits.PLAN_BYTES >> 20} MiB, its work and sizes)" in PAGE
    assert wire_limits.MAX_NUMBER == 2**53


def test_every_counter_is_named() -> None:
    names = {line.split()[2] for line in Metrics().text().splitlines() if line.startswith("# TYPE")}
    assert all(f"`{name}" in PAGE for name in names), names
