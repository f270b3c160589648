"""Draws the pictures of choosing-epsilon.md and panels.md in docs/explanation; prints their tables.

python -m tools.epsilon_pictures            # about half a minute

The figures of choosing-epsilon.md are forecasts for a survey of six questions with five answers
each, those of panels.md the laws of mechanisms.
"""

from __future__ import annotations

from pathlib import Path

import dither
from dither.display import WIDTH, drawing, label, stand_alone
from dither.mechanisms.local_hash import LocalHash
from dither.mechanisms.loloha import Loloha
from dither.notice import certainty
from dither.planner import predict, reference_population
from dither.release.charts import HEIGHT, Line, line_plot
from dither.release.pages import TEMPLATES

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "explanation" / "pictures"
EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0)
PEOPLE = (1_000, 10_000, 100_000, 1_000_000)
QUESTIONS, ANSWERS = 6, 5
REPEATS = 12
# A panel about one question with 20 answers.
PANEL_CELLS, PANEL_EPSILON, PANEL_PEOPLE = 20, 4.0, 10_000
PANEL_WAVES = (2, 3, 6, 12, 24, 52)


def survey() -> dither.Schema:
    """Six questions with five answers each."""
    answers = tuple(f"answer {i}" for i in range(1, ANSWERS + 1))
    names = [f"question {i}" for i in range(1, QUESTIONS + 1)]
    return dither.Schema(tuple(dither.Attribute(n, "categorical", answers) for n in names))


def half_widths() -> dict[float, dict[int, float]]:
    """The 95 % half-width of the share of one answer, by epsilon and people."""
    population = reference_population(survey(), 0.0)
    return {
        epsilon: {
            people: predict("independent", population, people, epsilon, repeats=REPEATS).half_width[
                1
            ]
            for people in PEOPLE
        }
        for epsilon in EPSILONS
    }


def lifetimes() -> list[Line]:
    """The exact lifetime epsilon by waves: of noise for six waves, and the permanent answers'."""
    six = Loloha.for_epsilon(PANEL_CELLS, PANEL_EPSILON, 6)
    exact = []
    for waves in (1, 2, 4, 6, 8, 10, 12):
        panel = Loloha(PANEL_CELLS, 2, six.permanent_other, six.wave_other, waves)
        exact.append((float(waves), panel.epsilon, panel.epsilon, panel.epsilon))
    bound = [
        (waves, six.values_epsilon, six.values_epsilon, six.values_epsilon) for waves, *_ in exact
    ]
    return [Line(0, exact), Line(1, bound)]


def wave_errors() -> dict[int, tuple[float, float]]:
    """Standard errors by waves, in points: of a panel, and of different people in each wave."""
    fresh = LocalHash.for_epsilon(PANEL_CELLS, PANEL_EPSILON)
    found = {}
    for waves in PANEL_WAVES:
        panel = Loloha.for_epsilon(PANEL_CELLS, PANEL_EPSILON, waves)
        variances = panel.variance(0.0, PANEL_PEOPLE), waves * fresh.variance(0.0, PANEL_PEOPLE)
        found[waves] = (100 * variances[0] ** 0.5, 100 * variances[1] ** 0.5)
    return found


def write(
    name: str, lines: list[Line], titles: tuple[str, str], legend: list[str], **log: bool
) -> None:
    """Write a chart with a legend below it."""
    inside, y = str(line_plot(lines, titles, **log)), HEIGHT + 16
    for hue, words in enumerate(legend):
        inside += f'<path class="course hue{hue}" d="M8 {y - 4}h18"/>{label(32, y, words)}'
        y += 18
    hues = (TEMPLATES / "hues.css").read_text(encoding="utf-8").partition(".figures")[0]
    picture = stand_alone(drawing(WIDTH, y, f"{titles[1]} against {titles[0]}", inside))
    svg = picture.svg.replace("</style>", f"{hues}</style>", 1)
    (FOLDER / name).write_text(svg + "\n", encoding="utf-8")


def main() -> None:
    """Draw the pictures and print the tables."""
    steps = [i / 10 for i in range(1, 81)]
    sure = [(e, c, c, c) for e in steps for c in [100 * certainty(e)]]
    write("certainty.svg", [Line(0, sure)], ("epsilon", "certainty, %"), [])
    found = half_widths()
    lines = [
        Line(hue, [(float(n), 100 * w, 100 * w, 100 * w) for n, w in widths.items()])
        for hue, widths in enumerate(found.values())
    ]
    legend = [f"epsilon {epsilon:g}" for epsilon in found]
    titles = ("participants", "half-width, points")
    write("what-people-learn.svg", lines, titles, legend, log_x=True, log_y=True)
    for people in PEOPLE:
        cells = " | ".join(f"\u00b1{100 * found[epsilon][people]:.2g}" for epsilon in EPSILONS)
        print(f"| {people:,} | {cells} |")
    legend = ["all histories", "histories that change at the same waves"]
    write("panel-lifetime.svg", lifetimes(), ("waves", "lifetime epsilon"), legend)
    for waves, errors in wave_errors().items():
        print(f"| {waves} | {errors[0]:.1f} | {errors[1]:.1f} |")


if __name__ == "__main__":
    main()
