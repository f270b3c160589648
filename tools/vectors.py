"""Golden vectors: the output and the refusals of every encoder. Python writes them.

    python -m tools.vectors vectors

Three files, at least a quarter of each negative: mechanisms (random bytes -> report, and its
epsilon), envelopes (reports -> bytes) and participation (token -> place, question, report
id; announcements; values as codes; answers to uploads). Standard library only.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dither.errors import ReportError
from dither.mechanisms import (
    DRAW_WIDTHS,
    GRR,
    BloomRappor,
    Hadamard,
    LocalHash,
    Mechanism,
    PureMechanism,
    SetStrategy,
    SquareWave,
    SubsetSelection,
    Unary,
    oue,
    sue,
)
from dither.reports import limits
from dither.reports.codec import Envelope, Report, encode
from dither.reports.plan import Plan, Question, is_asked, pick, place, report_id, token_hash
from tools.announcement_vectors import announcements, cells, codes, levels, verdicts
from tools.campaign_vectors import told_announcements

FORMAT = "dither-vectors-1"
Case = dict[str, Any]
_CAMPAIGN = bytes(range(16))


def all_vectors() -> dict[str, dict[str, Any]]:
    """The content of each file by its name; it is deterministic."""
    cases = {
        "mechanisms.json": [
            *_randomised(),
            *_odds(),
            *_claims(),
            *_refused_reports(),
            *_refused_mechanisms(),
        ],
        "envelopes.json": [*_envelopes(), *_refused_envelopes()],
        "participation.json": [
            *(*_assigned(), *announcements(), *told_announcements()),
            *(*codes(), *cells(), *levels(), *verdicts()),
        ],
    }
    return {name: {"format": FORMAT, "cases": list(listed)} for name, listed in cases.items()}


def write_vectors(folder: Path) -> None:
    """Write the files, each atomically."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in all_vectors().items():
        lines = ",\n".join(json.dumps(case, sort_keys=True) for case in content["cases"])
        temporary = folder / f".{name}.tmp"
        temporary.write_text(
            f'{{"format": "{FORMAT}", "cases": [\n{lines}\n]}}\n', encoding="ascii"
        )
        os.replace(temporary, folder / name)


def random_bytes(label: str, count: int) -> bytes:
    """Pseudorandom bytes, the same on every machine."""
    return hashlib.shake_256(f"dither-vector:{label}".encode()).digest(count)


def _mechanisms() -> list[Mechanism]:
    return [
        GRR.for_epsilon(2, 1.0),
        GRR.for_epsilon(5, 0.1),
        GRR.for_epsilon(300, 4.0),
        sue(3, 1.0),
        sue(17, 3.0),
        oue(2, 0.5),
        oue(64, 2.0),
        oue(65, 8.0),
        LocalHash.for_epsilon(10, 1.0),
        LocalHash.for_epsilon(5000, 3.0),
        LocalHash.for_epsilon(65536, 6.0),
        SubsetSelection.for_epsilon(4, 0.5),
        SubsetSelection.for_epsilon(20, 1.0),
        SubsetSelection.for_epsilon(33, 2.0),
        BloomRappor.for_epsilon(6, 2.0, 16, 2),
        BloomRappor.for_epsilon(40, 5.0, 67, 3, seed=9),
        Hadamard.for_epsilon(6, 2, 1.0),
        Hadamard.for_epsilon(5000, 50, 3.0),
        SquareWave.for_epsilon(2, 0.5),
        SquareWave.for_epsilon(257, 1.0),
        SquareWave.for_epsilon(4096, 4.0),
        SetStrategy.for_epsilon(4, [3, 5, 9, 14], [0.06, 0.05, 0.04, 0.03], 1.0),
        SetStrategy.for_epsilon(
            70, [(1 << 70) - (1 << 35), (1 << 35) - 1, 1 << 69], [0.2, 0.2, 0.01], 0.5
        ),
        _many_sets(),
    ]


def _many_sets() -> SetStrategy:
    """More outputs than one byte can number."""
    return SetStrategy.for_epsilon(9, list(range(1, 301)), [0.0008] * 300, 1.0)


def _coarse() -> list[Mechanism]:
    """Every mechanism with draws of every width, and with unusual thresholds."""
    built: list[Mechanism] = []
    for bits in DRAW_WIDTHS:
        unit = 2 ** (bits - 8)
        built += [
            GRR(3, 37 * unit, bits),
            Unary("sue", 3, 250 * unit, 3 * unit, bits),
            Unary("oue", 2, 9 * unit, 8 * unit, bits),
            LocalHash(7, 3, 50 * unit, bits),
            SubsetSelection(5, 3, 30 * unit, bits),
            SubsetSelection(4, 3, unit, bits),
            BloomRappor(4, 6, 2, 100 * unit, 3, bits),
            BloomRappor(9, 5, 4, unit, 1, bits),
            Hadamard(12, 4, 99 * unit, bits),
            SquareWave(5, 3, 10 * unit, bits),
            SquareWave(4, 2, 1, bits),
            _sets(unit, bits),
            SetStrategy(
                2,
                (0, 3),
                (100 * unit, 3 * unit),
                (50 * unit, 90 * unit),
                (203 * unit, 203 * unit),
                bits,
            ),
        ]
    return built


def _sets(unit: int, bits: int) -> SetStrategy:
    return SetStrategy(
        *(3, (1, 6, 3)),
        high=(60 * unit, 50 * unit, 10 * unit),
        low=(20 * unit, 30 * unit, 40 * unit),
        rest=(156 * unit, 176 * unit, 146 * unit),
        threshold_bits=bits,
    )


def _claims() -> Iterator[Case]:
    """The epsilon of unusual parameters, which a device must not understate."""
    for mechanism in _coarse():
        label = json.dumps(mechanism.to_json(), sort_keys=True)
        yield _report(mechanism, 1, random_bytes(label, mechanism.draw_bytes))


def _report(mechanism: Mechanism, value: int, draws: bytes) -> Case:
    return {
        "kind": "randomise",
        "mechanism": mechanism.to_json(),
        "value": value,
        "random": draws.hex(),
        "report": mechanism.randomise(value, lambda count: draws[:count]).hex(),
        "epsilon": mechanism.epsilon,
    }


def _each() -> list[Mechanism]:
    """One of each kind."""
    return list({mechanism.name: mechanism for mechanism in _mechanisms()}.values())


def _randomised() -> Iterator[Case]:
    for number, mechanism in enumerate(_mechanisms()):
        extremes = [b"\0", b"\xff"]
        for i in range(10):
            value = (i * 7919) % mechanism.cells if i < 8 else (0, mechanism.cells - 1)[i - 8]
            draws = random_bytes(f"{number}:{i}", mechanism.draw_bytes)
            if i >= 8:
                draws = extremes[i - 8] * mechanism.draw_bytes
            yield _report(mechanism, value, draws)


def _refused_reports() -> Iterator[Case]:
    for mechanism in _mechanisms():
        length = mechanism.report_bytes
        good = mechanism.randomise(0, lambda count: random_bytes("good", count))
        for report in (good[:-1], good + b"\0", b"", b"\0" * length, b"\xff" * length):
            if _refused(mechanism, report):
                yield {
                    "kind": "refuse-report",
                    "mechanism": mechanism.to_json(),
                    "report": report.hex(),
                }
        for value in (-1, mechanism.cells):
            yield {"kind": "refuse-value", "mechanism": mechanism.to_json(), "value": value}


def _refused(mechanism: Mechanism, report: bytes) -> bool:
    try:
        mechanism.check_report(report)
    except ReportError:
        return True
    return False


def _refused_mechanisms() -> Iterator[Case]:
    changes: list[tuple[Mechanism, dict[str, Any]]] = [
        (GRR.for_epsilon(5, 1.0), {"other": 0}),
        (GRR.for_epsilon(5, 1.0), {"other": 2**32}),
        (GRR.for_epsilon(5, 1.0), {"cells": 1}),
        (GRR.for_epsilon(5, 1.0), {"other": 1.5}),
        (oue(5, 1.0), {"other_set": 2**31}),
        (oue(5, 1.0), {"true_set": 2**32}),
        (oue(5, 1.0), {"other_set": 0}),
        (LocalHash.for_epsilon(5, 1.0), {"cells": 131073}),
        (LocalHash.for_epsilon(5, 1.0), {"buckets": 1}),
        (SubsetSelection.for_epsilon(5, 1.0), {"size": 5}),
        (SubsetSelection.for_epsilon(5, 1.0), {"missing": 0}),
        (BloomRappor.for_epsilon(5, 1.0, 12, 2), {"hashes": 12}),
        (BloomRappor.for_epsilon(5, 1.0, 12, 2), {"flipped": 2**31}),
        (GRR.for_epsilon(5, 1.0), {"name": "nonsense"}),
        (GRR.for_epsilon(5, 1.0), {"name": "constructor"}),
        (GRR.for_epsilon(5, 1.0), {"columns": 1}),
        (GRR.for_epsilon(5, 1.0), {"cells": 2**31 + 1, "other": 1, "threshold_bits": 48}),
        (Hadamard.for_epsilon(6, 2, 1.0), {"columns": 4}),
        (Hadamard.for_epsilon(6, 2, 1.0), {"columns": 0}),
        (Hadamard.for_epsilon(6, 2, 1.0), {"flip": 0}),
        (Hadamard.for_epsilon(6, 2, 1.0), {"flip": 2**31}),
        (Hadamard.for_epsilon(6, 2, 1.0), {"cells": 2**24, "columns": 2**12}),
        # Coarse draws that leave more to the arcs which miss the value than to those which hold it.
        (SubsetSelection.for_epsilon(10, 1.0), {"size": 9, "missing": 24, "threshold_bits": 8}),
        (
            SubsetSelection.for_epsilon(10, 1.0),
            {"cells": 21952, "size": 21951, "missing": 1, "threshold_bits": 16},
        ),
        (SubsetSelection.for_epsilon(10, 1.0), {"size": 9, "missing": 25, "threshold_bits": 8}),
        (SubsetSelection.for_epsilon(10, 1.0), {"cells": 2**20 + 1}),
        # Filters whose last bit would take for ever to find, and filters that fill the memory.
        (BloomRappor.for_epsilon(5, 1.0, 12, 2), {"bits": 1000, "hashes": 999}),
        (BloomRappor.for_epsilon(5, 1.0, 12, 2), {"bits": 131072, "hashes": 65}),
        (BloomRappor.for_epsilon(5, 1.0, 12, 2), {"cells": 65536, "bits": 131072}),
        (SquareWave.for_epsilon(9, 1.0), {"width": 0}),
        (SquareWave.for_epsilon(9, 1.0), {"width": 8193, "base": 1}),
        (SquareWave.for_epsilon(9, 1.0), {"base": 0}),
        (SquareWave.for_epsilon(9, 1.0), {"base": 2**31}),
        (SquareWave.for_epsilon(9, 1.0), {"cells": 4097, "base": 1}),
        (SquareWave.for_epsilon(9, 1.0), {"width": 2**53}),
        *((_sets(2**24, 32), change) for change in _wrong_sets()),
        # Draws shorter than their thresholds, or longer than a browser holds exactly.
        *(
            (mechanism, {"threshold_bits": bits})
            for mechanism in _each()
            for bits in (0, 7, 12, 31, 33, 56, 64)
        ),
    ]
    for mechanism, change in changes:
        yield {"kind": "refuse-mechanism", "mechanism": mechanism.to_json() | change}


def _wrong_sets() -> Iterator[dict[str, Any]]:
    """Changes that make a strategy of three cells and three sets invalid or not private."""
    unit = 2**24
    high, low, rest = (
        [60 * unit, 50 * unit, 10 * unit],
        [20 * unit, 30 * unit, 40 * unit],
        [156 * unit, 176 * unit, 146 * unit],
    )
    yield from (
        {"rest": [156 * unit, 176 * unit, 146 * unit + 1]},  # draws that do not add up
        {"high": [60 * unit + 1, *high[1:]]},
        {"rest": [156 * unit, 176 * unit]},
        {"high": high[:2]},
        {"low": [*low, 1]},
        {"sets": ["1", "6"]},
        {"sets": [], "high": [], "low": [], "rest": [2**32] * 3},
        {"sets": ["1", "6", "8"]},  # beyond the cells
        {"sets": ["1", "6", "13"]},
        {"sets": ["01", "6", "3"]},
        {"sets": ["1", "6", ""]},
        {"sets": ["1", "6", "-3"]},
        {"sets": ["1", "6", "0x3"]},
        {"sets": ["A", "6", "3"]},
        {"sets": [1, 6, 3]},
        {"sets": "163"},
        {"sets": None},
        {"high": {"length": 3}},
        {"high": [60 * unit, 50 * unit, 10.5 * unit + 0.5]},
        {"low": ["1", 30 * unit, 40 * unit]},
        # An output that a cell never gives would name the others.
        {"low": [0, *low[1:]], "rest": [rest[0], rest[1] + low[0], rest[2] + low[0]]},
        {"rest": [rest[0], 0, rest[2]], "high": [high[0], high[1] + rest[1], high[2]]},
        {"high": [2**53, *high[1:]]},
        {"cells": 4097},
        {"more": 1},
    )


def _envelopes() -> Iterator[Case]:
    for i, sizes in enumerate(
        [[1], [8], [1, 2, 3], [16384], [5] * 40, [255, 256, 257], [1], [300, 1]]
    ):
        reports = tuple(
            Report(
                random_bytes(f"token:{i}:{j}", 32),
                -1 if (i + j) % 3 == 2 else j * 1000 % 65535,
                random_bytes(f"{i}:{j}", n),
            )
            for j, n in enumerate(sizes)
        )
        number = (0, 1, 255, 256, 65535, 7, 0, 3)[i]
        yield {
            "kind": "envelope",
            "campaign": _CAMPAIGN.hex(),
            "round": number,
            "reports": [
                {"token": r.token.hex(), "question": r.question, "payload": r.payload.hex()}
                for r in reports
            ],
            "bytes": encode(Envelope(_CAMPAIGN, number, reports)).hex(),
        }


def _refused_envelopes() -> Iterator[Case]:
    report = {"token": "00" * 32, "question": 0, "payload": "00"}
    changes: tuple[dict[str, Any], ...] = (
        {"campaign": "00"},
        {"round": -1},
        {"round": limits.MAX_ROUNDS},
        {"reports": []},
        {"reports": [report | {"token": "00"}]},
        {"reports": [report | {"question": 65535}]},
        {"reports": [report | {"question": -2}]},
        {"reports": [report | {"payload": ""}]},
        {"reports": [report | {"payload": "00" * (limits.REPORT_BYTES + 1)}]},
    )
    for change in changes:
        yield {
            "kind": "refuse-envelope",
            "campaign": _CAMPAIGN.hex(),
            "round": 0,
            "reports": [report],
        } | change


def _plans() -> list[Plan]:
    a, b, c = (
        Question(("a",), oue(3, 1.0)),
        Question(("b",), GRR.for_epsilon(2, 1.0)),
        Question(("a", "b"), oue(6, 1.0)),
    )
    return [
        Plan(0, (a, b, c), (0.2, 0.5, 0.3)),
        Plan(1, (a, b, c), (0.0, 0.0, 1.0), population=0.25),
        Plan(2, (a, b), split=True, population=0.5),
        Plan(3, (a, b, c), (1 / 3, 1 / 3, 1 / 3), population=1 / 3),
    ]


def _odds() -> Iterator[Case]:
    """The probabilities that a report supports the true cell and another cell."""
    for mechanism in _mechanisms():
        if isinstance(mechanism, PureMechanism):
            chances = {"own": float(mechanism.p), "other": float(mechanism.q)}
            yield {"kind": "odds", "mechanism": mechanism.to_json(), **chances}


def _assigned() -> Iterator[Case]:
    for n, plan in enumerate(_plans()):
        for i in range(8):
            token, start = random_bytes(f"assign:{n}:{i}", 32), (0.0, 0.25, 0.5, 2 / 3)[n]
            yield {
                "kind": "assign",
                "token": token.hex(),
                "campaign": _CAMPAIGN.hex(),
                "start": start,
                "plan": plan.to_json(),
                "place": place(token, _CAMPAIGN),
                "asked": is_asked(token, _CAMPAIGN, start, plan.population),
                "question": pick(token, _CAMPAIGN, plan),
                "report_id": report_id(token, _CAMPAIGN, plan.round).hex(),
                "only_report_id": report_id(token, _CAMPAIGN, None).hex(),
                "token_hash": token_hash(token).hex(),
                "epsilon": plan.epsilon,
            }


if __name__ == "__main__":
    write_vectors(Path(sys.argv[1]))
