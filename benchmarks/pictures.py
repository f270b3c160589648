"""The pictures of docs/explanation/mixture.md, as SVG.

    python -m benchmarks.pictures [-o FOLDER]

Writes pictures of what the method computes from public facts; nothing is read from disk.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

from dither.display import WIDTH, label
from dither.release.charts import Line, line_plot
from dither.release.pages import TEMPLATES

RIGHT, HEIGHT = 150, 250
PEOPLE = 10_000_000  # enough for pairs at every epsilon
STYLE = ".rule{fill:none;stroke:#ddd}.e{text-anchor:end}.m{text-anchor:middle}"
Points = Sequence[tuple[float, float]]


def line_chart(
    title: str, across: str, up: str, lines: Mapping[str, Points], log_x: bool = False
) -> str:
    """Lines with markers, y from zero, names at the right: a self-contained picture on white."""
    hues = (TEMPLATES / "hues.css").read_text(encoding="utf-8").split("@media")[0]
    drawn = [
        Line(hue, [(x, y, y, y) for x, y in points]) for hue, points in enumerate(lines.values())
    ]
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH + RIGHT} {HEIGHT}" font-family="sans-serif" font-size="12">',
        f'<style>{STYLE}{hues}</style><rect width="{WIDTH + RIGHT}" height="{HEIGHT}" fill="#fff"/>',
        f'<g font-size="14">{label(8, 20, title)}</g>',
        f'<g transform="translate(8 28)">{line_plot(drawn, (across, up), log_x=log_x)}</g>',
    ]
    for hue, name in enumerate(lines):
        y = 60 + 18 * hue
        out.append(
            f'<path class="course hue{hue}" d="M{WIDTH} {y}h18"/>{label(WIDTH + 24, y + 4, name)}'
        )
    return "\n".join([*out, "</svg>"]) + "\n"


def cost_of_pairs() -> str:
    """The one-way error of the pilot's questions alone, relative to single questions, by epsilon."""
    from dither.methods.mixture import Menu, pilot

    tables = {
        "16 of 2 values": (2,) * 16,
        "10 of 5 values": (5,) * 10,
        "12 of 10 values": (10,) * 12,
    }
    rows: dict[str, list[tuple[float, float]]] = {}
    for name, k in tables.items():
        rows[name] = []
        for epsilon in (0.25, 0.5, 1.0, 2.0, 4.0, 8.0):
            menu = Menu(k, epsilon, PEOPLE)
            shares, _ = pilot(menu)
            rows[name].append((epsilon, menu.cost(shares)))
    rows["no cost"] = [(0.25, 1.0), (8.0, 1.0)]
    return line_chart(
        "One-way error of asking pairs only",
        "epsilon",
        "one-way error / singles",
        rows,
        log_x=True,
    )


PICTURES = {"mixture-cost-of-pairs": cost_of_pairs}


def write(folder: Path) -> list[Path]:
    """Draw all pictures into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, draw in PICTURES.items():
        path = folder / f"{name}.svg"
        path.write_text(draw(), encoding="utf-8")
        paths.append(path)
    return paths


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path, default=Path("docs/explanation/pictures"))
    for drawn in write(parser.parse_args().output):
        print(drawn)
