"""Exported reports come back as the tally that a store would give: each id once across files, the impossible left out."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.programs import require

from dither.errors import InputError, ReportError
from dither.mechanisms import PackedReports
from dither.reports import Plan, check_payload, question
from dither.schema import Attribute, Schema
from dither.tally import (
    CountTally,
    PatternTally,
    RoundTally,
    check_tally,
    counting,
    pack,
    tally_from_bytes,
    unpack,
    zero,
)
from dither.tally.counting import (
    COLUMNS,
    add_digests,
    begin_export,
    count_all,
    digest_of,
    find_reports,
    read_reports,
)

SCHEMA = Schema(
    (
        Attribute("a", "categorical", ("x", "y", "z")),
        Attribute("b", "boolean", (False, True)),
        Attribute("c", "ordinal", tuple(range(70))),
    )
)
SPLIT = tuple(question(SCHEMA, [n], 1.0, "sue") for n in SCHEMA.names)
PLANS = {
    "counts": Plan(
        0,
        tuple(
            question(SCHEMA, p, 2.0, m)
            for p, m in ((["a"], "grr"), (["a", "b"], "oue"), (["c"], "oue"))
        ),
        (0.5, 0.25, 0.25),
    ),
    "counts-split": Plan(0, SPLIT, split=True),
    "patterns": Plan(0, SPLIT, split=True, tally="patterns"),
}
Row = tuple[bytes, int, bytes]


def name(number: int) -> bytes:
    return hashlib.sha256(str(number).encode()).digest()


def reports(plan: Plan, count: int, seed: int = 0) -> list[Row]:
    """Reports that somebody can have sent, with ids of their own."""
    rng, out = np.random.default_rng(seed), []
    for i in range(count):
        asked = -1 if plan.split else i % len(plan.questions)
        mechanisms = [
            q.mechanism for q in (plan.questions if plan.split else [plan.questions[asked]])
        ]
        out.append(
            (
                name(i),
                asked,
                b"".join(m.randomise(int(rng.integers(m.cells)), rng.bytes) for m in mechanisms),
            )
        )
    return out


def table(rows: Iterable[Row]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) or [(), (), ()]
    return pa.table(
        [pa.array(c, f.type) for c, f in zip(columns, COLUMNS, strict=True)], schema=COLUMNS
    )


def counted_slowly(plan: Plan, rows: Iterable[Row]) -> tuple[RoundTally, set[Row]]:
    """One report after the other, in a dictionary."""
    kept: dict[bytes, Row] = {}
    for row in rows:
        try:
            check_payload(plan, row[1], row[2])
        except ReportError:
            continue
        if len(row[0]) == 32 and row[1] >= -1:
            kept[row[0]] = min(row, kept.get(row[0], row))
    tally = zero(plan)
    for _, asked, payload in kept.values():
        tally.add(asked, PackedReports(np.frombuffer(payload, np.uint8)[None, :]))
    return tally, set(kept.values())


def spoilt(plan: Plan, rows: list[Row]) -> list[Row]:
    """The same reports with repeats, conflicts and impossible ones among them, in another order."""
    wrong = [
        (name(9_001), 99, rows[0][2]),
        (name(9_002), -2, rows[0][2]),
        (name(9_003), rows[0][1], b""),
        (name(9_004), rows[0][1], rows[0][2] + b"\0"),
        (name(9_005), rows[0][1], b"\xff" * len(rows[0][2])),
        (b"short", *rows[0][1:]),
        (name(9_006), 0 if plan.split else -1, rows[0][2]),
    ]
    conflicts = [(rows[i][0], rows[i + 3][1], rows[i + 3][2]) for i in range(0, 12, 3)]
    mixed = rows + rows[:20] + rows[:5] + conflicts + wrong
    return [mixed[i] for i in np.random.default_rng(1).permutation(len(mixed))]


@pytest.mark.parametrize("kind", PLANS)
def test_the_count_is_that_of_a_dictionary_in_any_number_of_parts(kind: str) -> None:
    plan = PLANS[kind]
    rows = spoilt(plan, reports(plan, 200))
    tally, kept = counted_slowly(plan, rows)
    pieces = [table(rows[i::3]) for i in range(3)]
    for at_once in (10_000, 60, 7):
        found = count_all(plan, pieces, len(rows), at_once)
        assert found.tally.to_bytes() == tally.to_bytes()
        assert (found.reports, found.digest) == (len(kept), digest_of(kept))
        assert found.malformed == 7
        assert found.reports + found.malformed + found.repeated == len(rows)


def test_the_digest_is_the_sum_of_hashes_in_any_order_and_tells_one_changed_bit() -> None:
    rows = reports(PLANS["counts"], 40)
    hashes = [
        hashlib.sha256(i + q.to_bytes(4, "big", signed=True) + p).hexdigest() for i, q, p in rows
    ]
    slow = "".join(
        f"{sum(int(h[at : at + 16], 16) for h in hashes) % 2**64:016x}" for at in range(0, 64, 16)
    )
    assert digest_of(rows) == digest_of(rows[::-1]) == int(slow, 16)
    assert add_digests(digest_of(rows[:11]), digest_of(rows[11:])) == digest_of(rows)
    assert digest_of([]) == 0
    i, q, p = rows[3]
    for other in (
        (i, q, bytes([p[0] ^ 1]) + p[1:]),
        (i, q + 1, p),
        (bytes([i[0] ^ 1]) + i[1:], q, p),
    ):
        assert digest_of([*rows[:3], other, *rows[4:]]) != digest_of(rows)


@pytest.mark.parametrize("kind", PLANS)
def test_an_export_repeated_while_reports_come_in_holds_each_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    plan = PLANS[kind]
    rows = sorted(reports(plan, 300))
    monkeypatch.setattr(counting, "BUFFER", 40)
    written = []
    for share in (0.0, 0.3, 0.3, 0.8, 1.0):
        so_far = [row for i, row in enumerate(rows) if i * 7919 % 300 < 300 * share]
        export = begin_export(str(tmp_path), "ab" * 16, plan)
        for start in range(0, len(so_far), 23):
            export.add(table(so_far[start : start + 23]))
        export.flush()
        written.append(export.written)
    assert written == [0, 90, 0, 150, 60], "only what was not there yet"
    folder = tmp_path / f"campaign={'ab' * 16}" / "round=0"
    assert json.loads((folder / "plan.json").read_text()) == plan.to_json()
    assert {p.parent.name for p in folder.rglob("*.parquet")} == (
        {"question=all"} if plan.split else {f"question={i}" for i in range(3)}
    )
    files = find_reports([str(tmp_path)], plan)
    found = count_all(plan, read_reports(files), sum(f.rows for f in files))
    assert (found.reports, found.repeated, found.malformed) == (300, 0, 0)
    assert found.tally.to_bytes() == counted_slowly(plan, rows)[0].to_bytes()
    assert not [p for p in folder.rglob("*") if p.name.startswith(".")]


def test_many_questions_share_folders(tmp_path: Path) -> None:
    asked = tuple(question(SCHEMA, ["b"], 1.0, "grr") for _ in range(300))
    plan = Plan(0, asked, (1 / 300,) * 300)
    export = begin_export(str(tmp_path), "ab" * 16, plan)
    export.add(table(sorted(reports(plan, 600))))
    export.flush()
    folders = {p.parent.name for p in tmp_path.rglob("*.parquet")}
    assert len(folders) == 100
    assert {"questions=0-2", "questions=297-299"} <= folders


def test_files_that_are_not_this_rounds_are_refused_by_name(tmp_path: Path) -> None:
    plan = PLANS["counts"]
    rows = table(reports(plan, 9))

    def refused(match: str, *paths: Path, of: Plan = plan) -> None:
        with pytest.raises(InputError, match=match) as error:
            find_reports([str(p) for p in paths], of)
        assert "\n" not in str(error.value)

    refused("nothing at", tmp_path / "absent")
    refused("no Parquet file", tmp_path)
    (tmp_path / "no.parquet").write_bytes(b"PAR1 and nothing more")
    refused(r"no\.parquet cannot be read as Parquet", tmp_path)
    pq.write_table(rows.drop_columns(["payload"]), tmp_path / "no.parquet")
    refused("column 'payload' is absent", tmp_path)
    pq.write_table(rows.set_column(1, "question", pa.array(["x"] * 9)), tmp_path / "no.parquet")
    refused("column 'question' is of type string", tmp_path)
    twice = pa.table([*rows.columns, rows.column(0)], names=[*rows.column_names, "report_id"])
    pq.write_table(twice, tmp_path / "no.parquet")
    refused("more than one column 'report_id'", tmp_path)
    pq.write_table(rows, tmp_path / "no.parquet")
    whole = (tmp_path / "no.parquet").read_bytes()
    (tmp_path / "no.parquet").write_bytes(whole.replace(b"report_id", b"report\xfaid"))
    refused("cannot be read as Parquet", tmp_path)
    refused("cannot read", Path("/dev/null"))
    refused("cannot read", Path("a" * 5000))
    refused("not a path in plain text", Path("\udcff"))
    for i, campaign in enumerate(("one", "two")):
        told = {"dither_campaign": campaign, "dither_plan": json.dumps(plan.to_json())}
        pq.write_table(rows.replace_schema_metadata(told), tmp_path / f"{i}.parquet")
    refused("different campaigns", tmp_path / "0.parquet", tmp_path / "1.parquet")
    refused(
        r"0\.parquet holds reports of another plan", tmp_path / "0.parquet", of=PLANS["patterns"]
    )
    (tmp_path / "campaign=x" / "round=0").mkdir(parents=True)
    pq.write_table(rows, tmp_path / "campaign=x" / "round=0" / "mine.parquet")
    with pytest.raises(InputError, match=r"mine\.parquet is not a file that an export writes"):
        begin_export(str(tmp_path), "x", plan)


def test_pages_that_cannot_be_read_are_named_in_one_line(tmp_path: Path) -> None:
    plan = PLANS["counts"]
    pq.write_table(table(reports(plan, 90)), tmp_path / "no.parquet")
    whole = (tmp_path / "no.parquet").read_bytes()
    (tmp_path / "no.parquet").write_bytes(whole[:4] + b"\xff" * 60 + whole[64:])
    with pytest.raises(InputError, match=r"no\.parquet cannot be read") as error:
        list(read_reports(find_reports([str(tmp_path)], plan)))
    assert "\n" not in str(error.value)


def test_an_export_that_cannot_go_on_says_why_and_leaves_what_is_there(tmp_path: Path) -> None:
    plan = PLANS["counts"]
    page = table(sorted(reports(plan, 50)))
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot write to"):
        begin_export(str(tmp_path / "file"), "ab", plan)
    with pytest.raises(InputError, match="name a file or a folder"):
        begin_export("", "ab", plan)
    export = begin_export(str(tmp_path), "ab", plan)
    export.add(page)
    export.flush()
    first, *_ = sorted(tmp_path.rglob("*.parquet"))
    first.write_bytes(first.read_bytes()[:50])
    with pytest.raises(
        InputError, match="is damaged; delete it, and its reports are written again"
    ):
        begin_export(str(tmp_path), "ab", plan).add(page)
    first.unlink()
    export = begin_export(str(tmp_path), "ab", plan)
    export.add(page)
    export.flush()
    assert count_all(plan, read_reports(find_reports([str(tmp_path)], plan)), 50).reports == 50


def test_two_exports_to_one_folder_at_once_both_end_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = PLANS["counts"]
    first, second = (begin_export(str(tmp_path), "ab", plan) for _ in range(2))
    for export in (first, second):
        export.add(table(sorted(reports(plan, 50))))
    write = pq.write_table

    def interrupted(*given: Any, **more: Any) -> None:
        write(*given, **more)
        second.flush()

    monkeypatch.setattr(counting.pq, "write_table", interrupted)
    monkeypatch.setattr(second, "flush", lambda: (monkeypatch.undo(), type(second).flush(second)))
    first.flush()
    counted = count_all(plan, read_reports(find_reports([str(tmp_path)], plan)), 50)
    assert (counted.reports, counted.repeated, counted.malformed) == (50, 0, 0)
    assert not list(tmp_path.rglob(".*")), "nothing is left under a temporary name"


def test_addresses_without_a_file_system_are_refused_in_one_line() -> None:
    with pytest.raises(InputError, match="nosuch://"):
        begin_export("nosuch://bucket/reports", "ab" * 16, PLANS["counts"])


def test_an_export_to_an_fsspec_address_comes_back() -> None:
    require(None if importlib.util.find_spec("fsspec") is None else sys.executable, "fsspec")
    plan = PLANS["counts"]
    for _ in range(2):
        export = begin_export("memory://dither-test/out", "ab" * 16, plan)
        export.add(table(sorted(reports(plan, 50))))
        export.flush()
    assert export.written == 0
    files = find_reports(["memory://dither-test/out"], plan)
    assert count_all(plan, read_reports(files), 50).reports == 50


@pytest.mark.parametrize("kind", PLANS)
def test_an_impossible_tally_is_refused(kind: str) -> None:
    plan = PLANS[kind]
    good = count_all(plan, [table(reports(plan, 60))], 60).tally
    check_tally(good, plan, 60)
    others = [p for p in PLANS.values() if p is not plan]
    with pytest.raises(ReportError):
        check_tally(good, others[0], 60)
    with pytest.raises(ReportError, match="60 reports, not of 61"):
        check_tally(good, plan, 61)
    bad = tally_from_bytes(good.to_bytes())
    if isinstance(bad, CountTally):
        bad.counts[1][0] = 10_000
    else:
        bad.patterns = bad.patterns[::-1]
    with pytest.raises(ReportError):
        check_tally(bad, plan, 60)
    short = tally_from_bytes(good.to_bytes())
    if isinstance(short, CountTally):
        short.n = short.n[:-1]
    else:
        assert isinstance(short, PatternTally)
        short.counts = short.counts[:-1]
    with pytest.raises(ReportError):
        check_tally(short, plan, 60)


@pytest.mark.parametrize("kind", PLANS)
def test_a_forged_tally_whose_sums_come_out_right_is_refused(kind: str) -> None:
    plan = PLANS[kind]
    good = count_all(plan, [table(reports(plan, 60))], 60).tally
    meta, arrays = unpack(good.to_bytes())
    forged = [{**arrays, name: array.astype("<f8")} for name, array in arrays.items()]
    forged += [{**arrays, name: array.astype("<i4")} for name, array in arrays.items()]
    if isinstance(good, CountTally):
        forged.append({**arrays, "n": np.full(len(good.n), np.nan)})
        if not plan.split:
            forged.append(
                {**arrays, "0": arrays["0"] * 0}
            )  # each answer to question 0 names exactly one cell
            top = np.int64(2**63 - 1)
            forged.append({**arrays, "n": np.array([top, top, 62])})  # 60 reports modulo 2^64
    else:
        last = arrays["patterns"].copy()
        last[-1] = 255  # sets bits that no answer has
        forged.append({**arrays, "patterns": last})
        counts = arrays["counts"].copy()
        counts[:3] = (2**63 - 1, 2**63 - 1, counts[:3].sum() + 2)
        forged.append({**arrays, "counts": counts})
    for each in forged:
        with pytest.raises(ReportError):
            check_tally(tally_from_bytes(pack(meta, each)), plan, 60)
