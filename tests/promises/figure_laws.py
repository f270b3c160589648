"""Random questions to a release, and the laws that its shares and counts obey."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np
import pytest

from dither import cli
from dither.release import Release
from dither.schema import Attribute, Schema

# Shares are sums over the same cells, so they agree up to the rounding of sums and of scaling.
TOLERANCE = 1e-9
Figure = Mapping[str, Any]


class Asker(Protocol):
    """One surface that answers questions, with the keys of `dither query --json`."""

    def share(self, where: str, given: str | None = None) -> Figure: ...
    def table(self, by: list[str], where: str | None = None) -> list[Figure]: ...


class Python:
    """Questions to the object."""

    def __init__(self, release: Release) -> None:
        self.release = release

    def share(self, where: str, given: str | None = None) -> Figure:
        return self.release.query(where, given).to_json()

    def table(self, by: list[str], where: str | None = None) -> list[Figure]:
        return list(self.release.table(by, where=where).to_json()["rows"])


class CommandLine:
    """Questions to a folder by `dither query`."""

    def __init__(self, folder: str, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self.capsys = folder, capsys

    def ask(self, *arguments: str) -> Any:
        assert cli.run(["query", self.folder, *arguments, "--json", "--quiet"]) == 0
        return json.loads(self.capsys.readouterr().out)

    def share(self, where: str, given: str | None = None) -> Figure:
        return dict(self.ask(where, *([] if given is None else ["--given", given])))

    def table(self, by: list[str], where: str | None = None) -> list[Figure]:
        told = self.ask(*([] if where is None else [where]), "--by", ",".join(by))
        return list(told["rows"])


class Http:
    """Questions to a collector, given a function from a query to the JSON of its answer."""

    def __init__(self, ask: Callable[..., Any]) -> None:
        self.ask = ask

    def share(self, where: str, given: str | None = None) -> Figure:
        return dict(self.ask(where=where) if given is None else self.ask(where=where, given=given))

    def table(self, by: list[str], where: str | None = None) -> list[Figure]:
        told = self.ask(by=by) if where is None else self.ask(by=by, where=where)
        return list(told["rows"])


def condition(attribute: Attribute, rng: np.random.Generator) -> str:
    """A random condition on one attribute; numbers are compared with any place, edges included."""
    name = f"attr[{attribute.name!r}]"
    if attribute.on_line:
        edges = attribute.edges
        within = rng.uniform(edges[0], edges[-1], 2)
        low, high = sorted(rng.choice([*edges, *within], 2, replace=False).tolist())
        return str(
            rng.choice(
                [f"{name} >= {low!r}", f"{name} <= {high!r}", f"{low!r} <= {name} < {high!r}"]
            )
        )
    answers = attribute.labels[: attribute.answers]
    kept = rng.choice(answers, int(rng.integers(1, len(answers) + 1)), replace=False)
    return f"{name} in {kept.tolist()!r}"


def check_laws(asker: Asker, schema: Schema, rng: np.random.Generator) -> None:
    """Ask a few related questions and compare their answers."""
    order = [schema.attributes[i] for i in rng.permutation(len(schema))]
    first = condition(order[0], rng)
    second = condition(order[min(1, len(order) - 1)], rng)
    whole, part = asker.share(first), asker.share(f"({first}) and ({second})")
    rest = asker.share(f"({first}) and not ({second})")
    for figure in (whole, part, rest):
        check_figure(figure)
    assert part["estimate"] <= whole["estimate"] + TOLERANCE, (part, whole)
    assert part["estimate"] + rest["estimate"] == pytest.approx(whole["estimate"], abs=TOLERANCE)
    other = asker.share(f"not ({first})")
    assert whole["estimate"] + other["estimate"] == pytest.approx(1.0, abs=TOLERANCE)
    by = [attribute.name for attribute in order[: int(rng.integers(1, min(len(order), 3) + 1))]]
    rows = asker.table(by)
    for row in rows:
        check_figure(row)
    assert sum(row["estimate"] for row in rows) == pytest.approx(1.0, abs=TOLERANCE)
    alone = {row["values"][0]: row["estimate"] for row in asker.table(by[:1])}
    for value, share in alone.items():
        within = sum(row["estimate"] for row in rows if row["values"][0] == value)
        assert within == pytest.approx(share, abs=TOLERANCE), (by, value)
    if len(order) == 1:
        return
    met = asker.table(by, second)
    assert sum(row["estimate"] for row in met) == pytest.approx(
        asker.share(second)["estimate"], abs=TOLERANCE
    )
    conditional = asker.share(first, second)
    if conditional["estimate"] is not None:
        check_figure(conditional)


def check_figure(figure: Figure) -> None:
    """A share lies in [0, 1] and in its interval, which has a width unless the share is certain."""
    estimate, low, high = figure["estimate"], figure["low"], figure["high"]
    assert 0.0 <= estimate <= 1.0 + TOLERANCE, figure
    assert figure.get("people") is None or figure["people"] >= 0, figure
    if low is None:
        return
    assert 0.0 <= low <= estimate + TOLERANCE, figure
    assert estimate <= high + TOLERANCE <= 1.0 + 2 * TOLERANCE, figure
