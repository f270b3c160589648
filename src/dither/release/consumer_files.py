"""What each consumer of a histogram release gets for itself: its figures as JSON and CSV, and a page."""

from __future__ import annotations

import csv
import io
import re
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dither.release.folder import write_json
from dither.release.number_report import number_body, number_page
from dither.types import JsonObject

if TYPE_CHECKING:
    from dither.release.histogram import ConsumerHistogram, HistogramRelease

FOLDER = "consumers"
_MAX_LETTERS = 60
_OF_DEVICES = re.compile(
    r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE
)  # no file on Windows may be called so


def file_names(names: Sequence[str]) -> list[str]:
    """A file name, without its ending, for each consumer: plain letters, digits, dots and dashes, and no two alike.

    Whatever a name holds, the file lies in the folder: no separator, no leading dot, no name of a device.
    """
    out: list[str] = []
    taken: set[str] = set()
    for name in names:
        plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
        base = (
            re.sub(r"[^A-Za-z0-9._-]+", "-", plain).strip("-._")[:_MAX_LETTERS].rstrip("-._")
            or "consumer"
        )
        if _OF_DEVICES.fullmatch(base):
            base = f"consumer-{base}"
        found, number = base, 1
        while found.lower() in taken:
            number += 1
            found = f"{base}-{number}"
        taken.add(found.lower())
        out.append(found)
    return out


def write_consumers(release: HistogramRelease, folder: Path) -> None:
    """Write consumers/NAME.json, .csv and .html for every consumer, if there is any."""
    if not release.consumers:
        return
    (folder / FOLDER).mkdir()
    for consumer, name in zip(
        release.consumers, file_names([c.name for c in release.consumers]), strict=True
    ):
        path = folder / FOLDER / name
        body = number_body(release, [consumer], f"Histogram for {consumer.name}")
        write_json(_consumer_json(release, consumer), path.with_name(f"{name}.json"))
        path.with_name(f"{name}.csv").write_text(
            _consumer_csv(consumer), encoding="utf-8", newline=""
        )
        path.with_name(f"{name}.html").write_text(number_page(release, body), encoding="utf-8")


def _consumer_json(release: HistogramRelease, consumer: ConsumerHistogram) -> JsonObject:
    """A consumer's figures with what they rest on."""
    low, high = consumer.interval()
    return {
        "format": "dither-consumer-1",
        **consumer.to_json(),
        "low": low.tolist(),
        "high": high.tolist(),
        "participants": release.participants,
        "epsilon_achieved": release.epsilon_achieved,
        "method": release.method,
        "range": [release.low, release.high],
        "consistent": release.consistent,
        "private": release.seed is None,
        "campaign": None if release.campaign is None else release.campaign.to_json(),
        "dither_version": release.dither_version,
    }


def _consumer_csv(consumer: ConsumerHistogram) -> str:
    """One row per bin: its edges, the count, its standard error and 95 % interval."""
    low, high = consumer.interval()
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(("from", "to", "count", "standard_error", "low", "high"))
    columns = (
        consumer.edges[:-1],
        consumer.edges[1:],
        consumer.estimates,
        consumer.standard_errors,
        low,
        high,
    )
    writer.writerows([repr(float(number)) for number in row] for row in zip(*columns, strict=True))
    return out.getvalue()
