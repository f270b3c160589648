"""The README's picture: a pair of attributes: the truth, one answer, the sum of answers, and the estimate.

    python -m benchmarks.readme_picture [-o docs/pictures/education-and-occupation.svg]

1.5 million simulated participants drawn from the bundled Adult, epsilon 4 for the whole record, the default method, seed 7.
"""

from __future__ import annotations

import argparse
from html import escape
from pathlib import Path

import numpy as np

from dither.datasets import open_table
from dither.evaluation.metrics import marginal
from dither.mechanisms import kernels
from dither.methods import start
from dither.randomness import RandomStream
from dither.schema import encode
from dither.simulate import simulate

PAIR = ("education", "occupation")
PEOPLE, EPSILON, SEED = 1_500_000, 4.0, 7
CELL, LEFT, TOP, GAP = 15, 108, 62, 34
INK = np.array([11, 61, 105])  # full strength; white is nothing


def grids() -> tuple[tuple[list[str], list[str]], list[tuple[str, np.ndarray]]]:
    """Row and column labels, and the four panels."""
    table, schema, _ = open_table("adult")
    codes = np.asarray(encode(table, schema).codes)
    rng = np.random.default_rng(SEED)
    people = np.asfortranarray(codes[rng.integers(0, len(codes), PEOPLE)])
    machine = start("mixture", schema, EPSILON, PEOPLE, seed=SEED)
    simulate(machine, people, rng)
    asked = machine.closed[-1]
    number = next(i for i, q in enumerate(asked.plan.questions) if set(q.attributes) == set(PAIR))
    question = asked.plan.questions[number]
    shape = [schema[n].cardinality for n in question.attributes]
    received = np.asarray(asked.counts[number], float).reshape(shape)
    received = received if question.attributes == PAIR else received.T
    truth = marginal(people, schema.cardinalities, [schema.index(n) for n in PAIR])
    rows = np.argsort([int(v) for v in _schooling(table, schema)])  # from little schooling to much
    columns = np.argsort(-truth.sum(axis=0))
    labels = [
        [str(v) for v in np.array(schema[n].labels, dtype=object)[o]]
        for n, o in zip(PAIR, (rows, columns), strict=True)
    ]
    someone = question.cell(schema, codes[0])
    answer = kernels.randomise(
        question.mechanism, np.array([someone]), RandomStream.from_generator(rng)
    )
    one = np.asarray(kernels.support(question.mechanism, answer), float).reshape(shape)
    one = one if question.attributes == PAIR else one.T
    panels = [
        ("The truth, which nobody sees", truth),
        ("One person's answer", one),
        (f"{int(asked.n[number]):,} answers added up", received),
        ("What comes out", machine.model().marginal(PAIR)),
    ]
    return (labels[0], labels[1]), [(title, grid[np.ix_(rows, columns)]) for title, grid in panels]


def _schooling(table: object, schema: object) -> list[int]:
    """The years of schooling that go with each degree, in the schema's order of degrees."""
    names = table["education"].to_pylist()  # type: ignore[index]
    years = table["education_num"].to_pylist()  # type: ignore[index]
    known = dict(zip(names, years, strict=True))
    return [known[v] for v in schema["education"].labels]  # type: ignore[index]


def draw() -> str:
    """The picture as SVG text."""
    (rows, columns), panels = grids()
    wide, high = CELL * len(columns), CELL * len(rows)
    width, height = LEFT + 4 * wide + 3 * GAP + 12, TOP + high + 112
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="system-ui,sans-serif" '
        f'font-size="11" role="img" aria-label="Education by occupation of 1.5 million simulated participants: the truth, one '
        f'answer, which is noise, the sum of the answers, and the estimate, which resembles the truth">',
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
        f'<text x="{LEFT}" y="22" font-size="14" font-weight="600">Education by occupation, {PEOPLE / 1e6:g} million participants, '
        f"epsilon {EPSILON:g} for the whole record</text>",
    ]
    for i, name in enumerate(rows):
        out.append(
            f'<text x="{LEFT - 6}" y="{TOP + CELL * i + 11}" text-anchor="end">{escape(name)}</text>'
        )
    strongest = float(panels[0][1].max())
    for number, (title, grid) in enumerate(panels):
        x = LEFT + number * (wide + GAP)
        top = (
            float(grid.max()) if number in (1, 2) else strongest
        )  # answers are counts, no frequencies
        out.append(f'<text x="{x}" y="{TOP - 12}" font-size="12.5">{escape(title)}</text>')
        for (i, j), value in np.ndenumerate(grid):
            shade = np.sqrt(min(max(float(value) / top, 0.0), 1.0))
            red, green, blue = (255 - (255 - INK) * shade).round().astype(int)
            place = f'x="{x + CELL * j}" y="{TOP + CELL * i}" width="{CELL}" height="{CELL}"'
            out.append(f'<rect {place} fill="#{red:02x}{green:02x}{blue:02x}"/>')
        out.append(
            f'<rect x="{x}" y="{TOP}" width="{wide}" height="{high}" fill="none" stroke="#999"/>'
        )
        for j, name in enumerate(columns):
            place = f"translate({x + CELL * j + 11} {TOP + high + 8}) rotate(-60)"
            out.append(f'<text transform="{place}" text-anchor="end">{escape(name)}</text>')
    return "\n".join([*out, "</svg>"]) + "\n"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "-o", "--output", type=Path, default=Path("docs/pictures/education-and-occupation.svg")
    )
    chosen = parser.parse_args().output
    chosen.parent.mkdir(parents=True, exist_ok=True)
    chosen.write_text(draw(), encoding="utf-8")
    print(chosen)
