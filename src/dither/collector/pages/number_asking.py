"""A question about one number as a form: a range, quantiles, other bins, or a figure, one at a time.

The forms are plain GET, so that an address is a question: `from` and `to` are the ends of a range (an empty one is the end of what
was asked), `quantiles`, `bins` and `figure` are as programs give them. The release's own reader judges them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dither.collector.answering import Question

_WHOLE = ("quantiles", "bins", "figure")


@dataclass(frozen=True)
class _NumberForm:
    """The forms as they were filled in, and the question that they ask."""

    from_: str
    to: str
    quantiles: str
    bins: str
    figure: str
    low: str
    high: str
    number: str = "number"

    @property
    def asks(self) -> bool:
        """Whether anything is asked."""
        return bool(self.parameters)

    @property
    def parameters(self) -> list[tuple[str, str]]:
        """The question as programs write it in an address."""
        ends = (
            [("range", f"{self.from_ or self.low},{self.to or self.high}")]
            if self.from_ or self.to
            else []
        )
        return ends + [(name, text) for name in _WHOLE if (text := getattr(self, name))]

    @property
    def question(self) -> Question:
        """The question as a release reads it."""
        asked = dict(self.parameters)
        return Question(
            range=(asked["range"],) if "range" in asked else (),
            quantiles=asked.get("quantiles", ""),
            bins=asked.get("bins", ""),
            figure=asked.get("figure", ""),
        )

    @property
    def python(self) -> str:
        """The lines that give the same answer in Python."""
        name, text = next(iter(self.parameters), ("", ""))
        calls = {
            "range": f"number.range({text.replace(',', ', ')})",
            "quantiles": f"quantile({self.number!r}, [{text}])",
            "bins": f"number.answer([{text}])" if "," in text else f"number.answer({text})",
            "figure": "mean()" if text == "mean" else f"number.{text}()",
        }
        load = 'release = dither.load_release("release")  # folder.zip, unpacked'
        return f"import dither\n\n{load}\nrelease.{calls.get(name, '')}"


def read_number_form(
    asked: Sequence[tuple[str, str]], ends: Sequence[float], number: str = "number"
) -> _NumberForm:
    """The forms that an address fills in; `ends` are those of the range of the `number`."""
    values: dict[str, str] = {}
    for name, value in asked:
        values.setdefault(name, value.strip())
    low, high = (f"{end:.15g}" for end in ends)
    texts = {name: values.get(name, "") for name in ("to", *_WHOLE)}
    return _NumberForm(from_=values.get("from", ""), low=low, high=high, number=number, **texts)
