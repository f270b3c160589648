"""The release itself: marginals, manifest, guarantee."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import dither
from dither.errors import InputError, ParameterError, PrivacyError, ReportError
from dither.fit import Independent, Marginal, model_from_bytes
from dither.mechanisms import kernels, mechanism
from dither.notice import ADVICE, Notice, shown_certainty
from dither.release import Release, truth_from_codes
from dither.release.figures import measured_errors
from dither.schema import Attribute, Schema
from dither.tally import pack

CONTRACT = (
    "method",
    "parameters",
    "epsilon_asked",
    "epsilon_achieved",
    "participants",
    "rounds",
    "seed",
    "rows",
    "seconds",
)


def test_a_marginal_has_labels_frequencies_and_measured_errors(
    make_release: Callable[..., Release],
) -> None:
    release = make_release()
    one = release.marginal(["colour"])
    assert one.labels == (("red", "green <&>", "blue"),)
    assert one.frequencies.tolist() == [0.2, 0.5, 0.3]
    assert one.standard_errors is not None
    assert one.standard_errors.tolist() == [0.01] * 3
    assert release.marginal("colour").attributes == ("colour",)
    two = release.marginal(["age", "colour"])
    assert two.frequencies.shape == (4, 3)
    assert two.standard_errors is None
    assert "not measured together" in two.reason
    assert two.reason in repr(two)
    assert one.reason == ""
    assert "green <&>" in repr(one)
    assert "± 0.0196" in repr(one), "the half-width of a 95 % interval"
    assert "95 %" in repr(one)
    with pytest.raises(InputError, match="nobody"):
        release.marginal(["nobody"])


def test_a_pair_measured_in_another_order_gives_its_errors(
    make_release: Callable[..., Release],
) -> None:
    errors = np.arange(12.0).reshape(4, 3)
    small = Marginal(("colour", "age"), np.full((3, 4), 1 / 12), np.zeros((3, 4)), 12344)
    large = Marginal(("age", "colour"), np.full((4, 3), 1 / 12), errors, 12345)
    release = make_release(measured=[small, large])
    found = release.marginal(["colour", "age"]).standard_errors
    assert found is not None
    assert np.array_equal(found, errors.T)


def test_a_marginal_becomes_an_arrow_table(
    make_release: Callable[..., Release], schema: Schema
) -> None:
    table = make_release().marginal(["colour", "age"]).to_arrow()
    assert table.column_names == ["colour", "age", "frequency", "standard_error"]
    assert table.num_rows == 12
    assert table.slice(5, 1).to_pylist() == [
        {
            "colour": "green <&>",
            "age": "[18, 65)",
            "frequency": pytest.approx(0.3),
            "standard_error": None,
        }
    ]
    one = make_release().marginal(["age"]).to_arrow()
    assert one["age"].to_pylist()[-1] == "(missing)"
    assert one["standard_error"].to_pylist() == pytest.approx([0.03] * 4)
    odd = Schema((Attribute("frequency", "boolean", values=(False, True)),))
    release = make_release(schema=odd, model=Independent(odd, (np.array([0.5, 0.5]),)), measured=[])
    assert release.marginal("frequency").to_arrow().column_names == [
        "frequency",
        "frequency_",
        "standard_error",
    ]


def test_the_manifest_keeps_the_contract(
    make_release: Callable[..., Release], schema: Schema
) -> None:
    data = json.loads(json.dumps(make_release().to_json(), allow_nan=False))
    assert set(CONTRACT) | {"dither_version", "schema_fingerprint", "guarantee", "format"} <= set(
        data
    )
    assert data["epsilon_achieved"] <= data["epsilon_asked"] == 2.0
    assert (data["participants"], data["rounds"], data["rows"], data["seed"]) == (12345, 1, 2, 7)
    assert data["seconds"] == {"read": 0.25, "fit": 1.5}
    assert data["notes"] == {"kept": 3}
    assert data["schema_fingerprint"] == schema.fingerprint
    assert data["estimates"][2] == {
        "attribute": "age",
        "labels": ["[0, 18)", "[18, 65)", "[65, 120]", "(missing)"],
        "frequencies": [0.1, 0.6, 0.2, 0.1],
        "standard_errors": [0.03] * 4,
    }
    assert data["asked"][0]["questions_by_size"] == {"1": 3}
    assert data["asked"][0]["mechanisms"] == {"oue": 3}


def test_the_manifest_never_holds_the_truth(simulated: Release, schema: Schema) -> None:
    assert simulated.truth is not None
    without = json.loads(json.dumps(simulated.to_json()))
    assert "shows-the-truth" in [warning["code"] for warning in without.pop("warnings")]
    assert "truth" not in json.dumps(without)
    truth = simulated.truth.marginal(["colour"]).tolist()
    assert not any(str(value) in json.dumps(without) for value in truth)


def test_a_release_that_breaks_its_promise_is_refused(
    make_release: Callable[..., Release], schema: Schema
) -> None:
    with pytest.raises(PrivacyError, match="more than"):
        make_release(epsilon_achieved=math.nextafter(2.0, 3.0))
    with pytest.raises(PrivacyError, match="finite"):
        make_release(epsilon_asked=math.inf)
    with pytest.raises(ParameterError, match="truth"):
        make_release(truth=truth_from_codes(schema, np.zeros((1, 3), int)))
    other = Schema((Attribute("z", "boolean", values=(False, True)),))
    with pytest.raises(ParameterError, match="schema"):
        make_release(model=Independent(other, (np.array([0.5, 0.5]),)))


@pytest.mark.parametrize(
    ("epsilon", "factor", "sure"),
    [
        (4.0, "54.6", "98.3 %"),
        (1.0, "2.72", "73.2 %"),
        (7.0, "1,100", "99.91 %"),
        (30.0, None, None),
    ],
)
def test_the_guarantee_is_rounded_up(
    epsilon: float, factor: str | None, sure: str | None, make_release: Callable[..., Release]
) -> None:
    release = make_release(epsilon_asked=epsilon, epsilon_achieved=epsilon)
    found = re.search(r"factor of ([\d,.]+)", release.guarantee)
    assert found is not None
    shown, certain = found[1].rstrip(",."), shown_certainty(epsilon)
    assert float(shown.replace(",", "")) >= math.exp(epsilon)
    assert float(certain.split()[0]) / 100 >= 1 / (1 + math.exp(-epsilon))
    if factor is not None:
        assert (shown, certain) == (factor, sure)


def test_a_truth_counts_any_marginal(schema: Schema) -> None:
    codes = np.array([[0, 1, 3], [0, 1, 3], [2, 0, 1], [1, 1, 0]])
    truth = truth_from_codes(schema, codes)
    assert truth.marginal(["age"]).tolist() == [0.25, 0.25, 0.0, 0.5]
    joint = truth.marginal(["age", "colour"])
    assert joint.shape == (4, 3)
    assert joint[3, 0] == 0.5
    assert joint[1, 2] == 0.25


def test_warnings_tell_of_little_data_cuts_and_fallbacks(
    make_release: Callable[..., Release],
) -> None:
    assert make_release(seed=None).warnings == ()
    inferred = Notice("inferred-domain", "inferred")
    wide = [Marginal(("colour",), np.array([0.8, 0.5, -0.3]), np.full(3, 0.4), 10)]
    notes = {"fallbacks": ["no pair kept"]}
    found = make_release(seed=None, measured=wide, notes=notes, warnings=[inferred]).warnings
    assert found[:2] == (inferred, Notice("fallback", "Fallback used: no pair kept."))
    assert [notice.code for notice in found[2:]] == ["too-little-data", "cut-at-zero"]
    assert found[2].message.startswith("Too little data")
    assert found[3].message.startswith("Estimates were cut at zero for colour")
    mixed = [*make_release().measured, Marginal(("age",), np.full(4, 0.25), np.full(4, 0.2), 10)]
    (little,) = make_release(seed=None, measured=mixed).warnings
    assert little.message.startswith("Little data for age")


def test_the_manifest_s_warnings_have_a_code_and_a_message(
    make_release: Callable[..., Release],
) -> None:
    """All of them, those that the figures call for too: the same list that the report shows."""
    release = make_release(
        notes={"fallbacks": ["no pair kept"]}, warnings=[Notice("care", "careful")]
    )
    assert release.to_json()["warnings"] == [
        {"code": "care", "message": "careful", "advice": ""},
        {
            "code": "fallback",
            "message": "Fallback used: no pair kept.",
            "advice": ADVICE["fallback"],
        },
    ]


def test_models_are_read_by_their_kind(make_release: Callable[..., Release]) -> None:
    model = make_release().model
    again = model_from_bytes(model.to_bytes())
    assert isinstance(again, Independent)
    assert again.to_bytes() == model.to_bytes()
    with pytest.raises(ReportError, match="'alien'"):
        model_from_bytes(pack({"kind": "alien"}, {}))


def test_intervals_cover_all_participants_when_few_were_asked() -> None:
    """400 campaigns that ask 500 of 2,000 people: coverage is 95 +- 1.1 %; with the devices' noise alone far less."""
    rng = np.random.default_rng(11)
    people, asked, f = 2000, 500, 0.5
    device = mechanism("grr", 2, 4.0)
    covered = alone = 0
    for _ in range(400):
        ones = rng.hypergeometric(int(people * f), people - int(people * f), asked)
        estimate = kernels.estimate(
            device, kernels.simulate(device, np.array([asked - ones, ones]), rng), asked
        )
        measured = Marginal(("x",), estimate.frequencies, estimate.standard_errors, asked)
        errors = measured_errors([measured], ["x"], people)
        assert errors is not None
        covered += abs(estimate.frequencies[1] - f) <= 1.96 * errors[1]
        alone += abs(estimate.frequencies[1] - f) <= 1.96 * estimate.standard_errors[1]
    assert abs(covered / 400 - 0.95) < 0.044
    assert alone / 400 < 0.8


def test_a_release_equals_itself_alone_and_can_be_hashed() -> None:
    first, second = (
        dither.publish(pa.table({"a": ["x", "y"] * 20}), epsilon=2.0, method="independent", rows=5)
        for _ in range(2)
    )
    assert first == first  # noqa: PLR0124
    assert first != second
    assert len({first, second}) == 2


def test_an_unknown_form_of_the_table_is_refused(tmp_path: Path) -> None:
    release = dither.publish(
        pa.table({"a": ["x", "y"] * 20}), epsilon=2.0, method="independent", rows=5
    )
    with pytest.raises(ParameterError, match="form"):
        release.save(tmp_path / "out", form="xls")  # type: ignore[arg-type]
    assert not (tmp_path / "out").exists()
