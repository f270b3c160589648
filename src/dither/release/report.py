"""The report of a release: one HTML page that anybody can open, with no script and nothing loaded from elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.resources import files
from string import Template

from dither.release.figures import Quality, quality
from dither.release.markup import bullets, folded, paragraph, percent, section, table, text
from dither.release.pairs import strong_pairs
from dither.release.pictures import attribute_section, pair_section
from dither.release.release import Release
from dither.release.rerun import citation, rerun_command, rerun_lead, rerun_python
from dither.release.words import certainty, find_warnings, likelihood_factor, shown_epsilon

MOST_EXPOSED = 12
_HIDDEN_NOTES = ("warnings", "fallback", "fallbacks", "held_out", "held_out_skipped", "manipulation")


def render_report(release: Release) -> str:
    """The whole page. Everything that names come from, such as attributes and labels, is escaped."""
    found, pairs = quality(release), strong_pairs(release)
    parts: list[tuple[str, str, Callable[[], str]]] = [
        ("summary", "In short", lambda: _summary(release, found)),
        ("guarantee", "What is promised", lambda: _guarantee(release)),
    ]
    if found is not None:
        parts.append(("quality", "How good it is", lambda: _quality(release, found)))
    if release.notes.get("held_out"):
        parts.append(("held-out", "How good it is, without the truth", lambda: _held_out(release)))
    parts += [
        ("attributes", "Each attribute", lambda: attribute_section(release, pairs)),
        ("dependence", "What depends on what", lambda: pair_section(release, pairs)),
        *([("liars", "If participants lie", lambda: _liars(release))] if release.notes.get("manipulation") else []),
        ("asked", "What was asked", lambda: _asked(release)),
        ("method", "The method", lambda: _method(release)),
        ("run", "The run", lambda: _run(release)),
        ("again", "Cite and rerun", lambda: _again(release)),
    ]
    page = Template(files("dither.release").joinpath("report_template.html").read_text(encoding="utf-8"))
    source = "" if release.call.table is None else f" · {release.call.table}"
    return page.substitute(
        version=text(release.dither_version),
        title=text(f"Dither release: {release.method}, epsilon {shown_epsilon(release.epsilon_achieved, 4)}{source}"),
        heading=text("Simulated release" if release.simulated else "Release"),
        subtitle=text(f"{_kind(release)} · method {release.method}{source}"),
        facts=_facts(release),
        contents="".join(f'<li><a href="#{anchor}">{text(heading)}</a></li>' for anchor, heading, _ in parts),
        sections="\n".join(section(anchor, heading, make()) for anchor, heading, make in parts),
    )


def _kind(release: Release) -> str:
    if release.no_privacy:
        return "NOT PRIVATE"
    return "Local differential privacy" + (", but NOT PRIVATE with its seed" if release.replayable else "")


def _facts(release: Release) -> str:
    shown = (
        ("Participants", f"{release.participants:,}"),
        ("Epsilon per record", "not private" if release.no_privacy else shown_epsilon(release.epsilon_achieved, 4)),
        ("Attributes", f"{len(release.schema)}"),
        ("Synthetic rows", f"{release.rows:,}"),
        ("Rounds", f"{release.rounds}"),
    )
    cells = "".join(f"<div><dt>{text(name)}</dt><dd>{text(value)}</dd></div>" for name, value in shown)
    return f'<dl class="facts">{cells}</dl>'


def _summary(release: Release, found: Quality | None) -> str:
    if release.simulated:
        collected = (
            f"A simulation: whoever ran it held the table whose rows play {release.participants:,} participants, and noise was "
            "added to their answers there, on nobody's own device."
        )
    else:
        collected = (
            f"{release.participants:,} participants each answered with noise added on their own device; nobody collected a "
            "true record."
        )
    collected += (
        f" From these answers, with the method {release.method} and epsilon {shown_epsilon(release.epsilon_achieved, 4)} "
        f"for each person's whole record, Dither estimated how {len(release.schema)} attributes are distributed and "
        f"drew a synthetic table of {release.rows:,} rows from these estimates."
    )
    if release.no_privacy:
        collected = (
            f"The method {release.method} read {release.participants:,} true records and drew a table of {release.rows:,} rows "
            "from what it found. There is no privacy in it."
        )
    out = [paragraph(collected)]
    if release.simulated:
        out.append(
            '<div class="note">'
            + paragraph(
                "This is a simulation: the rows of a table played the participants."
                + (
                    ""
                    if release.truth is None
                    else " That is the only reason why this page can show the truth beside the estimates; a real "
                    "collection never has it."
                )
            )
            + "</div>"
        )
    if found is not None:
        mean = sum(found.one_way.values()) / len(found.one_way)
        words = f"On average a single attribute's distribution is {percent(mean)} away from the truth"
        if found.two_way_mean is not None:
            words += f", a pair's {percent(found.two_way_mean)}"
        out.append(paragraph(f"{words} (total variation distance: the share of people who would have to be moved)."))
    warnings = find_warnings(release)
    if warnings:
        out.append(
            f'<div class="warnings" role="note"><h3>Read with care</h3>{bullets(_sentence(w.message) for w in warnings)}</div>'
        )
    return "".join(out)


def _guarantee(release: Release) -> str:
    if release.no_privacy:
        return f'<div class="warnings" role="note">{paragraph(release.guarantee)}</div>'
    epsilon = release.epsilon_achieved
    shown, wanted = shown_epsilon(epsilon, 4), shown_epsilon(release.epsilon_asked, 4)
    asked = "" if wanted == shown else f" ({wanted} was asked for)"
    promised = (
        f"The factor is e to the power of epsilon, and epsilon is {shown} here{asked}: it covers the whole "
        "record, all attributes together, and everything one participant sends in all rounds of this campaign.",
        f"Put differently: somebody who holds two records equally likely before can be at most {certainty(epsilon)} "
        "sure of one of them after seeing everything that this person sent. Without any privacy it would be 100 %.",
        _against(release),
        f"The noise: {release.noise[:1].lower()}{release.noise[1:]}",
    )
    not_promised = (
        "It does not hide what is true of people in general: if a trend is learnt, it can be used to guess about "
        "anyone, participant or not.",
        "It covers this campaign only. Who also takes part in others gives away more; the epsilons add up.",
        "It says nothing about what surrounds a report, such as network addresses, times or the fact of taking part.",
        f"It is a limit, not a hiding place: a factor of {likelihood_factor(epsilon)} "
        + (
            "leaves a guess about one person close to open."
            if epsilon <= 1
            else "still lets a report tell a good deal."
        ),
    )
    return (
        f'<div class="card">{paragraph(release.guarantee)}{bullets(promised)}</div>'
        f"<h3>What it does not promise</h3>{bullets(not_promised)}"
    )


def _against(release: Release) -> str:
    """Whom the guarantee holds against."""
    if not release.simulated:
        return "It holds whatever else an observer knows, whoever runs the server, and even if all that is stored is stolen."
    words = "In this simulation it does not hold against whoever held the table"
    if release.replayable:
        return (
            f"{words}, nor against whoever knows the seed. The seed stands on this page and in this folder, so it does not hold "
            "against their readers."
        )
    return f"It holds whatever else an observer knows, and even if the synthetic table and the tallies are stolen. {words}."


def _held_out(release: Release) -> str:
    """The error estimate from reports that the fit never saw, in words."""
    number = {"1": "One attribute", "2": "Two attributes together"}
    found = [(number[ways], entry["sentence"]) for ways, entry in release.notes["held_out"].items()]
    return paragraph(
        "A share of the participants answered for this estimate only; the fit never saw their reports. That makes it "
        "unbiased although nobody knows the truth. It costs no privacy."
    ) + bullets([f"{name}: {sentence}" for name, sentence in found])


def _liars(release: Release) -> str:
    """How far dishonest participants could move the figures: the closed form of each mechanism, most exposed first."""
    bounds = sorted(release.notes["manipulation"].items(), key=lambda entry: -entry[1]["5%"])
    rows = [(name, percent(moved["1%"]), percent(moved["5%"])) for name, moved in bounds]
    words = paragraph(
        "Noise hides honest answers; it also gives weight to false ones. Nobody can tell a forged report from an honest one. So "
        "far could participants who agree on what to send move the most exposed figure of each attribute, up or down, in points "
        "of its percentage:"
    )
    head = ("Attribute", "if 1 % lie", "if 5 % lie")
    shown = table(head, rows[:MOST_EXPOSED], css="narrow")
    if len(rows) > MOST_EXPOSED:
        rest = rows[MOST_EXPOSED:]
        shown += folded(
            f"{len(rest)} less exposed attributes", table(head, rest, css="narrow"), "Less exposed attributes"
        )
    return f'{words}<div class="card">{shown}</div>'


def _quality(release: Release, found: Quality) -> str:
    rows: list[tuple[object, ...]] = []
    mean = sum(found.one_way.values()) / len(found.one_way)
    worst = max(found.one_way, key=lambda name: found.one_way[name])
    rows.append(("One-way distributions, mean", percent(mean), f"{len(found.one_way)} attributes"))
    rows.append(("One-way distributions, worst", percent(found.one_way[worst]), worst))
    if found.two_way_mean is not None and found.two_way_worst is not None:
        rows.append(
            ("Two-way distributions, mean", percent(found.two_way_mean), _of(found.pairs, found.possible_pairs))
        )
        pair, distance = found.two_way_worst
        rows.append(("Two-way distributions, worst", percent(distance), " and ".join(pair)))
    if found.covered is not None:
        rows.append(("True figures inside their 95 % interval", percent(found.covered), f"{found.intervals} intervals"))
    words = (
        "Total variation distance between the model and the simulated participants: 0 % is a perfect match, 100 % "
        "means nothing in common."
    )
    return f'{paragraph(words)}<div class="card">{table(("Measure", "Value", "Of"), rows, css="text narrow")}</div>'


def _asked(release: Release) -> str:
    if not release.asked:
        return paragraph(f"{release.participants:,} participants in {_count(release.rounds, 'round')}.")
    rows = []
    for entry in release.asked:
        sizes = ", ".join(
            f"{count:,} about {_count(size, 'attribute')}" + (" together" if size > 1 else "")
            for size, count in entry.sizes.items()
        )
        mechanisms = ", ".join(
            f"{name} ({count:,})" if len(entry.mechanisms) > 1 else name for name, count in entry.mechanisms.items()
        )
        answered = "every question" if entry.split else "one question"
        rows.append(
            (
                entry.round + 1,
                sizes,
                answered,
                mechanisms,
                shown_epsilon(entry.epsilon, 4),
                _count(entry.report_bytes, "byte"),
                percent(entry.population),
            )
        )
    head = ("Round", "Questions", "Each answers", "Mechanism", "Epsilon", "Longest report", "Of all people")
    words = (
        "Different people take part in each round: one person's epsilon is the largest of the rounds', not their sum."
    )
    table_html = (
        f'<div class="card scroll" tabindex="0" role="region" aria-label="Rounds">{table(head, rows, css="text")}</div>'
    )
    return table_html + (paragraph(words, "caption") if len(rows) > 1 else "")


def _method(release: Release) -> str:
    out = paragraph(release.description or f"Method {release.method}.")
    if release.reference:
        out += paragraph(f"Reference: {release.reference}", "soft")
    if release.parameters:
        rows = [(name, "none" if value is None else value) for name, value in release.parameters.items()]
        out += f'<div class="card">{table(("Parameter", "Value"), rows, css="text narrow")}</div>'
    return out


def _run(release: Release) -> str:
    rows = [(stage, f"{seconds:,.3f} s") for stage, seconds in release.seconds.items()]
    if rows:
        rows.append(("total", f"{sum(release.seconds.values()):,.3f} s"))
    cards = [f'<div class="card"><h3>Timings</h3>{table(("Stage", "Time"), rows)}</div>'] if rows else []
    facts: list[tuple[str, object]] = [
        (name, _note(value)) for name, value in release.notes.items() if name not in _HIDDEN_NOTES
    ]
    named = "seed" if release.simulated else "seed of the fit"
    facts += [
        (named, "none" if release.seed is None else release.seed),
        ("noise", release.noise),
        ("schema", release.schema_fingerprint[:16]),
    ]
    facts += [("epsilon asked", release.epsilon_asked), ("epsilon achieved", release.epsilon_achieved)]
    facts += [("model", release.model.kind), ("dither", release.dither_version)]
    cards.append(f'<div class="card"><h3>Facts of the run</h3>{table(("Name", "Value"), facts, css="text run")}</div>')
    return f'<div class="grid">{"".join(cards)}</div>'


def _again(release: Release) -> str:
    first, second = rerun_lead(release)
    return (
        f"{paragraph(citation(release))}"
        f"{paragraph(first)}<pre><code>{text(rerun_command(release))}</code></pre>"
        f"{paragraph(second)}<pre><code>{text(rerun_python(release))}</code></pre>"
    )


def _sentence(words: str) -> str:
    """With a capital letter and a full stop."""
    return words[:1].upper() + words[1:] + ("" if words[-1:] in (".", "!", "?") else ".")


def _of(used: int, possible: int) -> str:
    return f"{used:,} pairs" if used == possible else f"{used:,} of {possible:,} pairs"


def _note(value: object) -> str:
    if isinstance(value, Mapping):
        shown = ", ".join(f"{name} {_note(item)}" for name, item in value.items())
    elif isinstance(value, (list, tuple)):
        shown = ", ".join(_note(item) for item in value)
    else:
        shown = f"{value:g}" if isinstance(value, float) else str(value)
    return shown if len(shown) <= 400 else f"{shown[:399]}…"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
