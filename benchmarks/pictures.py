"""The pictures of docs/explanation/mixture.md, as SVG.

    python -m benchmarks.pictures [-o FOLDER]

Writes pictures made from generated tables with a known truth; nothing is read from disk.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from dither.display import WIDTH, label
from dither.release.charts import Line, line_plot
from dither.release.pages import TEMPLATES

RIGHT, HEIGHT = 150, 250
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


def stopping() -> str:
    """True and estimated risk along one fit, and the residual that keeps falling."""
    from dither.datasets import generate_network
    from dither.fit import answers_of
    from dither.fit.mixture.fit import FitOptions, _prepared
    from dither.fit.mixture.targets import pair_targets
    from dither.methods.machine import Campaign
    from dither.methods.mixture.machine import MixtureParameters, MixtureProtocol
    from dither.simulate import simulate

    network = generate_network((2, 3, 4, 5, 6, 2, 3, 4, 5, 6), strength=3.0, seed=7)
    rng, n = np.random.default_rng(1), 150_000
    machine = MixtureProtocol(
        Campaign(network.schema, 1.0, n, 0), MixtureParameters(screen="never")
    )
    simulate(machine, network.sample_codes(n, rng), rng)
    targets = pair_targets(network.schema, answers_of(machine._closed))
    columns, names = targets.columns, network.schema.names
    true = np.zeros_like(targets.pairs)
    for i, a in enumerate(names):
        for j, b in enumerate(names):
            if i != j:
                true[columns.of(i), columns.of(j)] = network.marginal([a, b])
    true_one = np.concatenate([network.marginal([a]) for a in names])
    group = _prepared(targets, rng, FitOptions())
    rows: dict[str, list[tuple[float, float]]] = {"true risk": [], "SURE": [], "chi² − cells": []}
    for iteration in range(90):
        check = iteration % 5 == 0
        models, chi2, df = group.advance(check)
        if check:
            pairs = np.mean([group.starts[0].pairs(state) for state in models], axis=0)
            one = np.mean([state.one for state in models], axis=0)
            risk = 0.5 * float((group.w2 * (pairs - true) ** 2).sum()) + float(
                group.w1 @ (one - true_one) ** 2
            )
            rows["true risk"].append((float(iteration), risk))
            rows["SURE"].append((float(iteration), chi2 - targets.cells + 2 * df))
            rows["chi² − cells"].append((float(iteration), chi2 - targets.cells))
    return line_chart("Where to stop: the estimate sees the turn", "step", "weighted squares", rows)


def cost_of_pairs() -> str:
    """The one-way error of asking everything in pairs or sets, relative to single questions, by epsilon."""
    from dither.methods.mixture.plan import (
        Sets,
        one_way_error,
        one_way_precision,
        pair_plan,
        single_shares,
    )

    tables = {
        "16 of 2 values": (2,) * 16,
        "10 of 5 values": (5,) * 10,
        "12 of 10 values": (10,) * 12,
    }
    rows: dict[str, list[tuple[float, float]]] = {}
    for name, k in tables.items():
        rows[name] = []
        for epsilon in (0.25, 0.5, 1.0, 2.0, 4.0, 8.0):
            alone: Sets = [((i,), float(s)) for i, s in enumerate(single_shares(k, epsilon))]
            plans = (pair_plan(k, epsilon, range(len(k))), alone)
            together, single = (one_way_error(k, one_way_precision(k, epsilon, p)) for p in plans)
            rows[name].append((epsilon, together / single))
    rows["no cost"] = [(0.25, 1.0), (8.0, 1.0)]
    return line_chart(
        "What pairs cost the one-way marginals",
        "epsilon",
        "one-way error / singles",
        rows,
        log_x=True,
    )


PICTURES = {"mixture-stopping": stopping, "mixture-cost-of-pairs": cost_of_pairs}


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
