"""Writes docs/reference/python.md: every public name with its signature and its docstring.

python -m tools.api_reference            # write it
python -m tools.api_reference --check    # exit with 1 if it is out of date
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import sys
from importlib import import_module
from pathlib import Path
from typing import get_args

import dither

PAGE = Path(__file__).resolve().parents[1] / "docs" / "reference" / "python.md"
LEAD = """# Python

Everything here is `dither.NAME`; names load when first used, so that `import dither` is quick. What is not listed is not public
and may change. This page is written by `python -m tools.api_reference` from the code's own signatures and docstrings, and a test
holds it against them.
"""

RETURNED = {
    "Answer": "dither.release.query",
    "AnswerRow": "dither.release.query",
    "AnswerTable": "dither.release.query",
    "AskedRound": "dither.release",
    "Bootstrap": "dither.release.intervals",
    "Bound": "dither.release.amplification",
    "Call": "dither.release",
    "CentralGuarantee": "dither.release.amplification",
    "CellsContent": "dither.release",
    "Combined": "dither.release",
    "ConsumerHistogram": "dither.release",
    "Dataset": "dither.datasets",
    "Estimate": "dither.mechanisms",
    "Evaluation": "dither.evaluation",
    "Interval": "dither.release.intervals",
    "LateAnswer": "dither.methods.histogram.late",
    "LinearAnswer": "dither.release.intervals",
    "Marginal": "dither.fit",
    "MeanAnswer": "dither.methods.mean",
    "MeanEstimate": "dither.mechanisms.means",
    "Model": "dither.fit",
    "Notice": "dither.notice",
    "ColumnDistances": "dither.evaluation",
    "NumberContent": "dither.release",
    "PanelContent": "dither.release",
    "Picture": "dither.display",
    "Point": "dither.planner",
    "Prediction": "dither.planner",
    "Regression": "dither.release",
    "SDMetricsScores": "dither.evaluation.compare",
    "ColumnStatistics": "dither.evaluation.metrics",
    "Score": "dither.evaluation.compare",
    "TableContent": "dither.release",
    "Truth": "dither.release",
    "WaySummary": "dither.evaluation",
}
CHOICES = {
    "Basis": "dither.release.intervals",
    "Cycle": "dither.schema.attribute",
    "DateOrder": "dither.schema.formats",
    "Kind": "dither.schema.attribute",
    "Neighbours": "dither.central.measurement",
    "OutOfRange": "dither.methods.histogram.consumer",
    "Family": "dither.release",
    "ReportPath": "dither.simulate",
    "SeveralMethod": "dither._histogram",
    "Unit": "dither.release.query.answer",
}
PLAIN = {
    "Content": "a `TableContent`, `NumberContent`, `CellsContent` or `PanelContent`",
    "Inquiry": "answers questions, by the methods of `Release` of the same names",
    "NumberQuestions": "answers questions, by the methods of `Release` of the same names",
    "Questions": "answers questions, by the methods of `Release` of the same names",
    "ReportBody": "the sections of a report as HTML, its heading and its facts",
    "Codes": "a NumPy array of whole numbers: one row per person, one column per attribute",
    "Condition": "a value, a list of values, or a range as a pair (low, high)",
    "Floats": "a NumPy array of float64",
    "Indices": "a NumPy array of positions",
    "JsonMapping": "a mapping from names to plain values, such as parameters",
    "JsonObject": "a dictionary from names to plain values, as JSON holds them",
    "NativeTable": "a pandas, polars or PyArrow table",
    "Progress": "a function that is called with what is done, how much of it, and of how much",
    "RandomState": "a whole number, a NumPy `RandomState` or `Generator`, or None for noise that nobody can draw again",
    "Rule": "a `Determines`, `Impossible`, `Order` or `Sum` of `dither.schema.rules`",
    "Value": "text, a number or a boolean",
    "Wave": "text or a number, as the time column has it",
    "Where": "text such as `sex == 'Female' and age >= 50`, or a mapping such as `{'sex': 'Female', 'age': (50, None)}`",
}
INSIDE = (
    "Reader",
    "CellEstimates",
    "HistogramMachine",
    "Layout",
    "Line",
    "Loloha",
    "Mean",
    "MeanMechanism",
    "Mechanism",
    "Misfit",
    "Partition",
    "MethodRun",
    "ProtocolMachine",
    "Reports",
    "Wording",
)
STANDARD = {
    "Collection",
    "Any",
    "Callable",
    "False",
    "Generator",
    "Iterable",
    "Literal",
    "Mapping",
    "None",
    "Path",
    "Self",
    "Sequence",
    "Table",
    "True",
}


def page() -> str:
    """The whole page."""
    public = [name for name in dither.__all__ if name != "__version__"]
    functions = [name for name in public if inspect.isfunction(getattr(dither, name))]
    classes = [name for name in public if inspect.isclass(getattr(dither, name))]
    left = set(public) - set(functions) - set(classes)
    if left:
        raise SystemExit(f"neither functions nor classes: {', '.join(sorted(left))}")
    parts = [
        LEAD,
        "## Functions\n",
        *(_function(f"dither.{n}", getattr(dither, n), "###") for n in functions),
    ]
    parts += ["## Classes\n", *(_class(f"dither.{n}", getattr(dither, n)) for n in classes)]
    parts += [
        "## Returned types\n",
        "What the functions and classes above give back. They are not made by hand.\n",
    ]
    parts += [
        _class(f"{home}.{name}", getattr(import_module(home), name))
        for name, home in RETURNED.items()
    ]
    parts += ["## Plain types\n", _plain_types()]
    text = "\n".join(parts)
    unknown = _named(text) - {*classes, *RETURNED, *CHOICES, *PLAIN, *INSIDE, *STANDARD}
    if unknown:
        raise SystemExit(
            f"named in a signature and described nowhere: {', '.join(sorted(unknown))}"
        )
    return text


def site_page() -> str:
    """The same names for the documentation site, where mkdocstrings renders them."""
    public = [name for name in dither.__all__ if name != "__version__"]
    parts = ["# Python\n", LEAD.split("\n\n", 1)[1].split(" This page is written", 1)[0] + "\n"]
    for title, kind in (("Functions", inspect.isfunction), ("Classes", inspect.isclass)):
        parts += [
            f"## {title}\n",
            *(f"::: dither.{name}\n" for name in public if kind(getattr(dither, name))),
        ]
    parts += [
        "## Returned types\n",
        "What the functions and classes above give back. They are not made by hand.\n",
    ]
    parts += [f"::: {home}.{name}\n" for name, home in RETURNED.items()]
    return "\n".join([*parts, "## Plain types\n", _plain_types()])


def _named(text: str) -> set[str]:
    """The types that signatures and fields name."""
    shown = [
        *re.findall(r"```text\n(.*?)```", text, re.DOTALL),
        *re.findall(r"^- `(.*?)`$", text, re.MULTILINE),
    ]
    return {name for part in shown for name in re.findall(r"\b[A-Z]\w+", part)}


def _plain_types() -> str:
    rows = dict(PLAIN)
    for name, home in CHOICES.items():
        choices = get_args(getattr(import_module(home), {"ReportPath": "Path"}.get(name, name)))
        rows[name] = " or ".join(f"`{choice!r}`" for choice in choices)
    lines = [f"| `{name}` | {rows[name]} |" for name in sorted(rows)]
    inside = ", ".join(f"`{name}`" for name in INSIDE)
    return "\n".join(
        [
            "| name | means |",
            "|---|---|",
            *lines,
            "",
            f"{inside} belong to the inside of the package and are not public.",
            "",
        ]
    )


def _function(title: str, function: object, level: str) -> str:
    signature = _signature(title, function)
    return f"{level} `{title}`\n\n```text\n{signature}\n```\n\n{_text(function)}\n"


def _signature(title: str, function: object) -> str:
    signature = inspect.signature(function)  # type: ignore[arg-type]
    arguments: list[str] = []
    for p in signature.parameters.values():
        if p.name in ("self", "cls"):
            continue
        if p.kind is p.KEYWORD_ONLY and not any(argument.startswith("*") for argument in arguments):
            arguments.append("*")
        star = {p.VAR_POSITIONAL: "*", p.VAR_KEYWORD: "**"}.get(p.kind, "")
        default = (
            "" if p.default is p.empty else f" = {getattr(p.default, '__name__', repr(p.default))}"
        )
        arguments.append(f"{star}{p.name}: {p.annotation}{default}")
    result = (
        ""
        if signature.return_annotation is signature.empty
        else f" -> {signature.return_annotation}"
    )
    line = f"{title}({', '.join(arguments)}){result}"
    if len(line) <= 110:
        return line
    inside = "".join(f"    {argument},\n" for argument in arguments)
    return f"{title}(\n{inside}){result}"


def _class(title: str, cls: type) -> str:
    name = cls.__name__
    lines = [f"### `{title}`\n", f"{_text(cls)}\n"]
    if dataclasses.is_dataclass(cls):
        lines += [
            *(
                f"- `{f.name}: {f.type}`"
                for f in dataclasses.fields(cls)
                if not f.name.startswith("_")
            ),
            "",
        ]
    for member, value in vars(cls).items():
        if member.startswith("_"):
            continue
        if isinstance(value, property):
            lines.append(f"#### `.{member}`\n\n{_text(value.fget)}\n")
        elif isinstance(value, classmethod):
            lines.append(_function(f"{name}.{member}", value.__func__, "####"))
        elif inspect.isfunction(value):
            lines.append(_function(f".{member}", value, "####"))
    return "\n".join(lines)


def _text(thing: object) -> str:
    text = inspect.getdoc(thing)
    if not text:
        raise SystemExit(f"{thing} has no docstring")
    before, arrows, example = text.partition(">>> ")
    prose = _with_sections(before)
    return f"{prose}```python\n>>> {example}\n```" if arrows else prose


def _with_sections(text: str) -> str:
    """Google-style sections as Markdown: `Args:` and similar sections become lists."""
    lines: list[str] = []
    section = ""
    for line in text.split("\n"):
        if line in ("Args:", "Attributes:", "Raises:", "Returns:", "Yields:"):
            section = line.rstrip(":")
            lines += [f"*{section}:*", ""]
        elif section and line.strip() and not line.startswith("    "):
            section = ""
            lines.append(line)
        elif section in ("Args", "Attributes", "Raises"):
            entry = re.match(r"    (\S[^:]*): (.*)", line)
            indent = "" if not line.strip() else "  "
            lines.append(f"- **{entry[1]}**: {entry[2]}" if entry else indent + line.strip())
        else:
            lines.append(line.strip() if section else line)
    return "\n".join(lines)


def main() -> int:
    """Write the page, or compare it."""
    if sys.argv[1:] == ["--check"]:
        return int(not PAGE.is_file() or PAGE.read_text(encoding="utf-8") != page())
    PAGE.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
