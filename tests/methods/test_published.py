"""The methods with their papers' parameters: `as_published`, `--as-published`, `@published`."""

from __future__ import annotations

import json

import numpy as np
import pytest

import dither
from dither.cli import run
from dither.errors import ParameterError
from dither.fit import AnswerCounts, pool
from dither.mechanisms import mechanism
from dither.methods import PUBLISHED, Campaign, build_parameters, method, published_parameters
from dither.methods.privincr import PrivIncr, PrivIncrParameters
from dither.release import command
from dither.reports import Question
from dither.schema import Attribute, Schema
from dither.simulate import simulate

COLUMNS = ["sex", "income", "race"]


def _adult(rows=6000):
    return dither.load_dataset("adult").table.select(COLUMNS).slice(0, rows)


@pytest.mark.parametrize("name", ["lopub", "bayesnet", "privincr", "noincremental"])
def test_a_table_is_published_with_the_papers_parameters(name):
    release = dither.publish(_adult(), epsilon=20.0, method=name, as_published=True, seed=3)
    for key, value in PUBLISHED[name].parameters.items():
        assert release.parameters[key] == value
    assert release.epsilon_achieved <= 20.0
    assert release.call.as_published
    assert "--as-published" in (command(release.call) or "")


def test_lopub_asks_a_tenth_of_the_people_and_half_of_them_for_binary_tables():
    wide = published_parameters("lopub", None, (2, 5))
    assert (wide["bits"], wide["sample"], wide["phi"]) == (128, 0.1, 0.4)
    binary = published_parameters("lopub", None, (2, 2))
    assert (binary["bits"], binary["sample"], binary["phi"]) == (32, 0.5, 0.25)
    release = dither.publish(_adult(), epsilon=20.0, method="lopub", as_published=True, seed=3)
    assert release.notes["bits_per_report"] == 3 * 128


def test_parameters_given_override_the_preset():
    assert published_parameters("privincr", {"unit": "nats"})["unit"] == "nats"
    assert published_parameters("privincr", {"max-clique-cells": 9})["max_clique_cells"] == 9


def test_every_preset_is_valid_for_its_method():
    for name in PUBLISHED:
        if not name.startswith("csm"):
            build_parameters(method(name).parameters(), published_parameters(name), name)


def test_a_method_without_a_paper_is_refused(tmp_path, capsys):
    with pytest.raises(ParameterError, match="no published parameters"):
        dither.publish(_adult(100), epsilon=1.0, method="mixture", as_published=True)
    command = ["publish", "adult", "--epsilon", "1", "--method", "calm", "--as-published"]
    assert run([*command, "-o", str(tmp_path / "out")]) == 2
    assert "no published parameters" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_histogram_as_published_sends_basic_rappor(capsys):
    values = [1.0, 2.0, 7.5, 9.0] * 50
    release = dither.histogram(
        values, consumers=[2, 5], epsilon=3.0, low=0, high=10, seed=1, as_published=True
    )
    assert release.number.mechanisms == ("sue",)
    assert release.call.record["as_published"] is True
    arguments = ["--column", "age", "--bins", "3", "--epsilon", "3", "--seed", "1", "--json"]
    assert run(["histogram", "adult", *arguments, "--as-published"]) == 0
    assert json.loads(capsys.readouterr().out)["bits_per_report"] == 3


def test_central_release_as_published():
    release = dither.central_release(
        _adult(), epsilon=1.0, columns=COLUMNS[:2], method="csm", as_published=True, seed=1
    )
    assert release.parameters["measurement"] == "gaussian"
    assert release.parameters["tau"] == 0.4
    assert not release.parameters["total"]
    with pytest.raises(ParameterError, match="needs a method"):
        dither.central_release(_adult(), epsilon=1.0, as_published=True)


def test_compare_runs_a_method_as_published():
    comparison = dither.compare(
        _adult(2000),
        epsilons=8.0,
        methods=["privincr@published", "privincr"],
        replicates=0,
        isolated=False,
        quiet=True,
    )
    names = [result["method"] for result in comparison.results]
    assert "privincr@published" in names
    with pytest.raises(ParameterError, match="publishes no tables"):
        dither.compare(_adult(2000), methods="chp@published")


def _machine(threshold, unit="nats", seed=0):
    rng = np.random.default_rng(seed)
    first = rng.integers(0, 4, 40_000)
    weak = np.where(rng.random(40_000) < 0.2, first, rng.integers(0, 4, 40_000))
    strong = np.where(rng.random(40_000) < 0.9, first, rng.integers(0, 4, 40_000))
    codes = np.stack([first, weak, strong, rng.integers(0, 4, 40_000)], axis=1)
    schema = Schema(tuple(Attribute(n, "categorical", tuple("abcd")) for n in "wxyz"))
    parameters = PrivIncrParameters(
        threshold=threshold, unit=unit, rounds=2, mechanism="oue", singles=0.0, fit="paper"
    )
    machine = PrivIncr(Campaign(schema, 8.0, len(codes), 0), parameters)
    simulate(machine, codes.astype(np.int32), rng)
    return machine.diagnostics().to_json()


def test_the_plain_threshold_prunes_where_the_relaxed_one_keeps_every_pair():
    assert _machine("paper")["pairs_left_after_each_round"] == [6, 6]
    assert _machine("plain")["pairs_left_after_each_round"] == [1, 1]


def test_bits_ask_less_of_a_pair_than_nats():
    nats = published_parameters("privincr", {"unit": "nats"})
    bits = published_parameters("privincr")
    assert (bits["unit"], nats["unit"]) == ("bits", "nats")
    assert sum(_machine("plain", "bits")["pairs_left_after_each_round"]) >= sum(
        _machine("plain", "nats")["pairs_left_after_each_round"]
    )


def test_printed_weights_favour_the_smaller_round():
    schema = Schema((Attribute("a", "categorical", ("x", "y")),))
    asked = Question(("a",), mechanism("oue", 2, 1.0))
    few = AnswerCounts(asked, np.array([100, 0]), 100)
    many = AnswerCounts(asked, np.array([0, 10_000]), 10_000)
    alone = pool(schema, [few], ["a"]).frequencies
    printed = pool(schema, [few, many], ["a"], "paper").frequencies
    usual = pool(schema, [few, many], ["a"]).frequencies
    assert abs(printed - alone).max() < abs(usual - alone).max() / 10
