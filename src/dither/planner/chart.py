"""A forecast as a picture: errors against the number of participants."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from markupsafe import Markup

from dither import __version__
from dither.display import WIDTH, Picture, drawing, label, stand_alone
from dither.errors import ParameterError
from dither.release.charts import HEIGHT, Line, line_chart, line_plot
from dither.release.pages import TEMPLATES, render_page
from dither.schema.files import write_atomically

if TYPE_CHECKING:
    from dither.planner.forecasting import Forecast

SUFFIXES = (".svg", ".html")
WAYS = {1: "error of single attributes", 2: "error of pairs"}
_TITLE, _LEGEND, _STEP = 24, 20, 18


def _lines(given: Forecast, ways: int) -> list[Line]:
    """A line for each method that was played, of its own colour in all charts."""
    names = list(dict.fromkeys(p.method for p in given.points))
    points = {
        name: [
            (float(p.participants), v, v, v)
            for p in given.points
            if p.method == name and (v := p.tvd.get(ways))
        ]
        for name in names
    }
    return [Line(hue, points[name]) for hue, name in enumerate(names) if points[name]]


def curve_picture(given: Forecast) -> Picture:
    """Both charts above each other in one picture that stands alone."""
    inside, y = "", 0
    drawn = [(title, lines) for ways, title in WAYS.items() if (lines := _lines(given, ways))]
    for title, lines in drawn:
        plot = line_plot(lines, ("participants", title), log_x=True, log_y=True)
        inside += f'<g transform="translate(0 {y})">{plot}</g>'
        y += HEIGHT + _TITLE
    names = list(dict.fromkeys(p.method for p in given.points))
    for hue, name in enumerate(names):
        inside += f'<path class="course hue{hue}" d="M8 {y + _LEGEND / 2}h18"/>{label(32, y + _LEGEND / 2 + 4, name)}'
        y += _STEP
    words = (
        f"Predicted errors of {', '.join(names)} against participants at epsilon {given.epsilon:g}"
    )
    hues = (TEMPLATES / "hues.css").read_text(encoding="utf-8").partition(".figures")[0]
    picture = stand_alone(drawing(WIDTH, y + 6, words, inside))
    return Picture(picture.svg.replace("</style>", f"{hues}</style>", 1), picture.words)


def check_picture(path: Path) -> None:
    """An error unless the name says what is to be drawn."""
    if path.suffix.lower() not in SUFFIXES:
        raise ParameterError(
            f"{path}: a plot's name ends in {' or '.join(SUFFIXES)}", where="plot", value=str(path)
        )


def write_picture(given: Forecast, path: Path) -> None:
    """The picture as SVG, or a page with it and every figure, by the ending of the name; whole or not at all."""
    check_picture(path)
    text = given.plot().svg if path.suffix.lower() == ".svg" else page(given)
    write_atomically(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def page(given: Forecast) -> str:
    """One file with the advice, the charts and the figures behind them."""
    charts: list[tuple[str, Markup]] = []
    for ways, title in WAYS.items():
        if lines := _lines(given, ways):
            words = f"Predicted {title} against participants; the figures stand in the table"
            charts.append(
                (title, line_chart(lines, ("participants", title), words, log_x=True, log_y=True))
            )
    names = list(dict.fromkeys(p.method for p in given.points))
    rows = [
        (p.method, f"{p.participants:,}", *(f"{p.tvd[w]:.4f}" if w in p.tvd else "" for w in WAYS))
        for p in given.points
    ]
    return render_page(
        "forecast.html",
        title="What to expect of a collection",
        version=__version__,
        facts=(
            ("Participants", f"{given.participants:,}"),
            ("Epsilon", f"{given.epsilon:g}"),
            ("Use", given.recommendation),
        ),
        given=given,
        charts=charts,
        legend=list(enumerate(names)),
        head=("method", "participants", *WAYS.values()),
        rows=rows,
    )
