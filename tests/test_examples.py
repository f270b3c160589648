"""Every public name teaches itself: a docstring with an example, and the example runs."""

from __future__ import annotations

import doctest
import warnings
from inspect import isfunction, signature

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


@pytest.mark.parametrize("name", [n for n in PUBLIC[1:] if isfunction(getattr(dither, n))])
def test_every_argument_is_explained(name: str) -> None:
    function = getattr(dither, name)
    text = function.__doc__ or ""
    assert "Returns:" in text
    explained = text.partition("Args:")[2]
    for argument in signature(function).parameters:
        assert argument in explained, f"{name} does not explain {argument}"


QUESTIONS = ("query", "table", "mean", "quantile", "std", "corr", "marginal")


@pytest.mark.parametrize("name", QUESTIONS)
def test_the_example_of_a_question_runs(name: str) -> None:
    method = getattr(dither.Release, name)
    parser, runner = doctest.DocTestParser(), doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    example = parser.get_doctest(method.__doc__ or "", {}, name, None, 0)
    assert example.examples
    runner.run(example)
    assert runner.failures == 0


def test_a_schema_and_a_dataset_are_shown_in_a_few_words() -> None:
    adult = dither.load_dataset("adult")
    assert repr(adult) == "Dataset('adult', 45,222 rows, 15 attributes)"
    assert repr(adult.schema).startswith("Schema(age: numeric 15, workclass: categorical 7, ")
    assert len(repr(adult.schema)) < 200
    hostile = dither.Schema((dither.Attribute("<b>", "categorical", ("<i>", "x")),))
    assert "<td>&lt;b&gt;</td>" in hostile._repr_html_()
    assert "<i>" not in hostile._repr_html_()
    assert adult._repr_html_().count("<tr>") == 16


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
