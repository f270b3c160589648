"""A citation is text, whatever a curator has called a campaign."""

from __future__ import annotations

import pytest

from dither.collector.pages.releases import bibtex


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Work & play, 50 % of it", r"Work \& play, 50 \% of it"),
        ("}, url = {https://elsewhere.example}", r"\}, url = \{https://elsewhere.example\}"),
        ("\\input{/etc/passwd}", r"\textbackslash{}input\{/etc/passwd\}"),
        ("a_b ^ c ~ d # $e", r"a\_b \textasciicircum{} c \textasciitilde{} d \# \$e"),
        ("two\nlines\x00 and\u202e more", "two lines and more"),
    ],
)
def test_signs_of_latex_are_text(text: str, said: str) -> None:
    assert f"title = {{{{{said}}}}}" in bibtex({}, text, "", "")


def test_an_entry() -> None:
    manifest = {"campaign": {"id": "ab" * 16, "finalised": "2026-03-01"}}
    entry = bibtex(manifest, "Ways", "Dither 1, epsilon 4.", "https://x.example/releases/ab")
    assert entry == (
        "@misc{dither-abababababab,\n  title = {{Ways}},\n  year = {2026},\n  note = {Dither 1, epsilon 4.},\n"
        "  url = {https://x.example/releases/ab}\n}\n"
    )
    assert "year" not in bibtex({}, "Ways", "", "https://x.example")
