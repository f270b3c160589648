"""Every public name teaches itself: a docstring with an example, and the example runs."""

from __future__ import annotations

import doctest
import warnings

import pytest

import dither

PUBLIC = ["dither", *(name for name in dither.__all__ if name != "__version__")]


@pytest.mark.parametrize("name", PUBLIC)
def test_its_example_runs(name: str) -> None:
    thing = dither if name == "dither" else getattr(dither, name)
    parser, runner = doctest.DocTestParser(), doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    example = parser.get_doctest(thing.__doc__ or "", {}, name, None, 0)
    assert example.examples, f"{name} has no example"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        runner.run(example)
    assert runner.failures == 0
    assert len((thing.__doc__ or "").strip().splitlines()[0]) > 20


def test_help_teaches() -> None:
    taught = dither.__doc__ or ""
    for name in (
        "publish",
        "forecast",
        "compare",
        "Synthesiser",
        "histogram",
        "evaluate",
        "central_release",
    ):
        assert f"dither.{name}" in taught
