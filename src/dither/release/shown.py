"""A release in a notebook: its facts as a table, its attributes or their dependences as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dither.display import Picture, html_list, html_table, stand_alone
from dither.errors import ParameterError
from dither.notice import shown_epsilon
from dither.release.charts import dependency_chart
from dither.release.figures import graph_edges, strong_pairs
from dither.release.words import find_warnings

if TYPE_CHECKING:
    from dither.release.release import Release


def plot_release(release: Release, attributes: Sequence[str] | str | None) -> Picture:
    """The distribution of these attributes, or the graph of all dependences that a picture can show."""
    if attributes is not None:
        return release.marginal(attributes).plot()
    edges = graph_edges(strong_pairs(release))
    if not edges:
        raise ParameterError(
            "no attributes of this release depend on each other; name some to draw",
            where="attributes",
        )
    linked = {name for pair in edges for name in (pair.first, pair.second)}
    return stand_alone(
        dependency_chart([name for name in release.schema.names if name in linked], edges)
    )


def release_html(release: Release) -> str:
    """What it is, what it promises and what to mind."""
    kind = (
        "simulated, each row of a table one participant"
        if release.simulated
        else "collected from participants"
    )
    facts = [
        ("method", release.method),
        ("participants", f"{release.participants:,} ({kind})"),
        (
            "epsilon",
            f"{shown_epsilon(release.epsilon_achieved)} for each participant's whole record",
        ),
        ("guarantee", release.guarantee),
        ("synthetic rows", f"{release.rows:,}"),
        ("attributes", ", ".join(release.schema.names)),
    ]
    table = html_table(("", ""), facts, "Dither release", 0)
    return table + html_list(
        [str(warning) for warning in find_warnings(release)], "Read with care:"
    )
