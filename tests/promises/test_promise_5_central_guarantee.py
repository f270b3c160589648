"""Promise 5, central guarantee: the stated (epsilon, delta) is never below the exact divergence.

The law of everything that is published about one crowd (support counts of each question and copy,
or the multiset of whole reports) is computed person by person, for two values of one participant and
fixed values of the others. Its hockey-stick divergence at the stated epsilon must not exceed the
stated delta, in every kind of plan and for every mechanism of cells.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from scipy.stats import binom

import dither
from dither.datasets import generate_network
from dither.errors import InputError
from dither.mechanisms import (
    BloomRappor,
    LocalHash,
    Mechanism,
    PackedReports,
    SetStrategy,
    SquareWave,
    kernels,
    mechanism,
)
from dither.methods import start, tallies_in
from dither.methods.prior import EARLIER_TALLY
from dither.notice import shown_epsilon
from dither.release import Bound, Call, central_guarantee
from dither.release.amplification import crowds, worst_bound
from dither.reports import Plan, Question
from dither.schema import Attribute, Schema
from dither.simulate import simulate
from dither.tally import CountTally, PatternTally, RoundTally, tally_from_bytes, unpack

Increments = tuple[int, ...]
Law = Mapping[Increments, float]  # of what one participant adds to the published counters


def counted_law(asked: Mechanism, value: int) -> Law:
    """What a report of this value adds to the tally of its question, with probabilities."""
    if asked.name == "olh":  # its reports name one of 2^64 hash functions; two cells suffice here
        assert asked.cells == 2
        assert isinstance(asked, LocalHash)
        p, q, lie = float(asked.p), float(asked.q), float(asked.p / asked.ratio)
        both = p * (q - lie) / (p - lie)  # both cells share a bucket, and it is the answer
        alone, other = (1, 0) if value == 0 else (0, 1), (0, 1) if value == 0 else (1, 0)
        return {(1, 1): both, alone: p - both, other: q - both, (0, 0): 1 - p - q + both}
    law: dict[Increments, float] = {}
    for report, probability in asked.law(value).items():
        row = PackedReports(np.frombuffer(report, np.uint8)[None, :])
        added = tuple(kernels.support(asked, row).tolist())
        law[added] = law.get(added, 0.0) + float(probability)
    return law


def together(laws: Sequence[Law]) -> Law:
    """The law of several independent answers of one participant, side by side."""
    out: Law = {(): 1.0}
    for law in laws:
        pairs = itertools.product(out.items(), law.items())
        out = {a + b: p * q for (a, p), (b, q) in pairs}
    return out


def as_patterns(law: Law) -> Law:
    """The same where the multiset of whole reports is published instead of their sum."""
    ordered = sorted(law)
    return {tuple(int(a == b) for b in ordered): law[a] for a in ordered}


def without_redundant(laws: Sequence[Law]) -> list[Law]:
    """The laws without counters that follow from the others and the number of participants."""
    table = np.array(sorted({added for law in laws for added in law}))
    kept: list[int] = []
    for column in range(table.shape[1]):
        chosen = np.column_stack([np.ones(len(table)), table[:, [*kept, column]]])
        if np.linalg.matrix_rank(chosen) == len(kept) + 2:
            kept.append(column)
    out = []
    for law in laws:
        reduced: dict[Increments, float] = {}
        for added, probability in law.items():
            key = tuple(added[column] for column in kept)
            reduced[key] = reduced.get(key, 0.0) + probability
        out.append(reduced)
    return out


def hockey_stick(epsilon: float, p: np.ndarray, q: np.ndarray) -> float:
    return float(np.maximum(p - math.exp(epsilon) * q, 0.0).sum())


def exact_delta(laws: Sequence[Law], people: int, epsilon: float) -> float:
    """The divergence between any two records of one participant, the others alike or half and half.

    `laws` has one law for each record. Sums of independent participants are convolutions, which are
    products of Fourier transforms; the transform is exact to about 1e-12 in the divergence.
    """
    reduced = without_redundant(laws)
    shape = (people + 1,) * len(next(iter(reduced[0])))
    waves = []
    for law in reduced:
        one = np.zeros(shape)
        for added, probability in law.items():
            one[added] += probability
        waves.append(np.fft.fftn(one))
    worst, half = 0.0, (people - 1) // 2
    for first, second in itertools.combinations_with_replacement(waves, 2):
        others = first**half * second ** (people - 1 - half)
        published = [np.fft.ifftn(others * wave).real for wave in waves]
        for p, q in itertools.permutations(published, 2):
            worst = max(worst, hockey_stick(epsilon, p, q))
    return worst


def dominates(bound: Bound, laws: Sequence[Law], people: int) -> bool:
    return exact_delta(laws, people, bound.epsilon) <= bound.delta + 1e-11


def answered(plan: Plan, numbers: Sequence[int]) -> CountTally:
    """A tally of a plan in which each question was answered by this many participants."""
    tally = CountTally(plan)
    for i, n in enumerate(numbers):
        tally.add_counts(i, np.zeros(plan.questions[i].mechanism.counters, np.int64), n)
    return tally


def stated(tallies: Iterable[RoundTally], *, known: bool) -> Bound:
    rounds = list(tallies)
    central = central_guarantee(rounds, sum(tally.participants for tally in rounds))
    return central.known if known else central.hidden


def laws_of(asked: Mechanism) -> list[Law]:
    return [counted_law(asked, value) for value in range(asked.cells)]


EPSILON = 0.4
PEOPLE = 60
ASKED = [
    mechanism("grr", 2, EPSILON),
    mechanism("grr", 3, EPSILON),
    mechanism("sue", 2, EPSILON),
    mechanism("oue", 2, EPSILON),
    mechanism("olh", 2, EPSILON),
    mechanism("subset", 3, EPSILON),
    mechanism("hadamard", 2, EPSILON),
    SquareWave.for_epsilon(2, EPSILON),
    BloomRappor.for_epsilon(2, EPSILON, 3, 1),
    SetStrategy.for_epsilon(2, [1, 2, 3], [0.1, 0.1, 0.1], EPSILON),
]


def name_of(asked: Mechanism) -> str:
    return f"{asked.name}-{asked.cells}"


def gains(bound: Bound) -> bool:
    """Whether the statement is about a crowd at all, and not just the local guarantee."""
    return bound.delta > 0 and bound.epsilon < 0.99 * EPSILON


@pytest.mark.parametrize("asked", ASKED, ids=name_of)
def test_one_question(asked: Mechanism) -> None:
    tally = answered(Plan(0, (Question(("a",), asked),), (1.0,)), [PEOPLE])
    for known in (True, False):
        bound = stated([tally], known=known)
        assert gains(bound)
        assert dominates(bound, laws_of(asked), PEOPLE)
    assert not dominates(
        stated([answered(tally.plan, [20 * PEOPLE])], known=True), laws_of(asked), PEOPLE
    )


@pytest.mark.parametrize("asked", ASKED, ids=name_of)
def test_held_out_copies_of_a_question(asked: Mechanism) -> None:
    """Both tallies are published, so a reader who knows the copy looks at the smaller one alone."""
    question = Question(("a",), asked)
    tally = answered(Plan(0, (question, question), (0.95, 0.05)), [19 * PEOPLE, PEOPLE])
    bound = stated([tally], known=True)
    assert gains(bound)
    assert bound.people == PEOPLE
    assert dominates(bound, laws_of(asked), PEOPLE)
    # The crowd that releases claimed before: the participants of both copies together.
    summed = worst_bound(crowds(answered(Plan(0, (question,), (1.0,)), [20 * PEOPLE])), bound.delta)
    assert not dominates(summed, laws_of(asked), PEOPLE)


def test_the_smallest_of_several_questions() -> None:
    asked = [mechanism("grr", 2, EPSILON), mechanism("oue", 2, 0.3)]
    plan = Plan(0, tuple(Question((n,), m) for n, m in zip("ab", asked, strict=True)), (0.75, 0.25))
    for numbers in ([900, 100], [100, 900]):
        bound = stated([answered(plan, numbers)], known=True)
        assert gains(bound)
        for each, people in zip(asked, numbers, strict=True):
            if people == 100:
                assert dominates(bound, laws_of(each), people)
    assert not dominates(stated([answered(plan, [900, 900])], known=True), laws_of(asked[1]), 100)


@pytest.mark.slow
@pytest.mark.parametrize("shares", [(0.5, 0.5), (0.9, 0.1)])
def test_questions_that_the_reader_does_not_know(shares: tuple[float, float]) -> None:
    """A record answers both questions; the published counters are those of both."""
    asked = mechanism("grr", 2, EPSILON)
    people = 50
    plan = Plan(0, (Question(("a",), asked), Question(("b",), asked)), shares)
    laws = []
    for record in itertools.product(range(2), repeat=2):
        law: dict[Increments, float] = {}
        for j, (value, share) in enumerate(zip(record, shares, strict=True)):
            for added, probability in counted_law(asked, value).items():
                law[(0, 0) * j + added + (0, 0) * (1 - j)] = share * probability
        laws.append(law)
    numbers = [round(share * people) for share in shares]
    bound = stated([answered(plan, numbers)], known=False)
    assert gains(bound)
    assert bound.people == people
    assert dominates(bound, laws, people)
    assert not dominates(stated([answered(plan, [700, 700])], known=False), laws, people)


@pytest.mark.slow
@pytest.mark.parametrize("patterns", [False, True])
def test_everybody_answers_everything(patterns: bool) -> None:
    asked = [mechanism("grr", 2, 0.25), mechanism("grr", 2, 0.15)]
    people = 50
    questions = tuple(Question((n,), m) for n, m in zip("ab", asked, strict=True))
    plan = Plan(0, questions, split=True, tally="patterns" if patterns else "counts")
    records = itertools.product(range(2), repeat=2)
    laws = [together([counted_law(m, v) for m, v in zip(asked, r, strict=True)]) for r in records]

    def tally(n: int) -> RoundTally:
        if not patterns:
            return answered(plan, [n, n])
        return PatternTally(plan, np.zeros((1, plan.report_offsets[-1]), np.uint8), np.array([n]))

    laws = [as_patterns(law) for law in laws] if patterns else laws
    for known in (True, False):
        bound = stated([tally(people)], known=known)
        assert gains(bound)
        assert dominates(bound, laws, people)
        assert not dominates(stated([tally(30 * people)], known=known), laws, people)


def test_the_smallest_of_several_rounds() -> None:
    question = Question(("a",), mechanism("grr", 3, EPSILON))
    rounds = [
        answered(Plan(i, (question,), (1.0,), population=0.5), [n])
        for i, n in enumerate((2000, 110))
    ]
    for known in (True, False):
        bound = stated(rounds, known=known)
        assert gains(bound)
        assert dominates(bound, laws_of(question.mechanism), 110)
        assert not dominates(stated(rounds[:1], known=known), laws_of(question.mechanism), 110)


def test_tiny_crowds_at_every_epsilon() -> None:
    """Up to twelve participants and deltas far above those that a release states."""
    for asked in ASKED:
        [crowd] = crowds(answered(Plan(0, (Question(("a",), asked),), (1.0,)), [9]))
        for delta in (0.1, 0.03, 0.01, 1e-3):
            assert dominates(worst_bound([crowd], delta), laws_of(asked), 9)


# Releases, whose state holds the tallies.

BINARY = Schema(
    (
        Attribute("a", "boolean", values=(False, True)),
        Attribute("b", "boolean", values=(False, True)),
    )
)
TABLE = pa.table({"a": [True, False] * 200, "b": [True, True, False, False] * 100})


@pytest.mark.parametrize(
    "options",
    [
        {"method": "independent", "holdout": 0.0},
        {"method": "independent", "holdout": 0.05},
        {"method": "independent", "holdout": 0.05, "columns": ["a"]},
        {"method": "mixture", "holdout": 0.2},
        {"method": "privincr", "holdout": 0.2},
    ],
    ids=str,
)
def test_what_a_release_states_covers_every_tally_in_it(options: dict[str, Any]) -> None:
    schema = BINARY if "columns" not in options else Schema(BINARY.attributes[:1])
    release = dither.publish(TABLE, epsilon=EPSILON, schema=schema, rows=10, **options)
    assert release.central is not None
    assert release.state is not None
    for tally in tallies_in(release.state):
        for question, n in zip(tally.plan.questions, tally.n.tolist(), strict=True):  # type: ignore[union-attr]
            asked = question.mechanism
            if n == 0 or asked.name != "grr":
                continue
            # Two cells against each other: what the count of one of them tells is a lower bound.
            laws = [{(0,): 1 - float(p), (1,): float(p)} for p in (asked.p, asked.q)]
            assert dominates(release.central.known, laws, n)


# An earlier release given as prior: its tallies are in the new release's state.

NETWORK, OTHERS = (
    generate_network([2, 2, 3], parents=1, strength=1.2, seed=seed) for seed in (3, 8)
)
PARAMETERS = {"total": 24, "components": 8}


def private_release(
    epsilon: float, seed: int, network: Any = NETWORK, people: int = 4_000
) -> dither.Release:
    """A release as if its noise came from the operating system, but the same in every run."""
    machine = start("mixture", NETWORK.schema, epsilon, people, PARAMETERS, seed=seed)
    simulate(
        machine,
        network.sample_codes(people, np.random.default_rng([seed, 1])),
        np.random.default_rng(seed),
    )
    draw = np.random.default_rng(1), np.random.default_rng(2)
    return dither.Release.from_machine(
        machine, Call(epsilon, "mixture", simulated=True, rows=5), people, draw
    )


def earlier_tallies(release: dither.Release) -> list[CountTally]:
    assert release.state is not None
    _, arrays = unpack(release.state)
    found = [
        tally_from_bytes(array.tobytes())
        for name, array in arrays.items()
        if name.startswith(EARLIER_TALLY)
    ]
    return [tally for tally in found if isinstance(tally, CountTally)]


def covers(bound: Bound, tallies: Iterable[CountTally]) -> bool:
    """Whether the bound holds for the count of one cell, of every question.

    All others have another value, so the count is a binomial and the person; its divergence is a
    lower bound of what the whole tally tells. Without a Fourier transform, whose rounding errors
    are too large for an epsilon of 16.
    """
    asked = [
        (q.mechanism, n)
        for t in tallies
        for q, n in zip(t.plan.questions, t.n.tolist(), strict=True)
        if n
    ]
    assert asked
    for each, n in asked:
        p, q = float(each.p), float(each.q)  # type: ignore[attr-defined]
        others = binom.pmf(np.arange(n), n - 1, q)
        counts = [np.append(others, 0) * (1 - own) + np.append(0, others) * own for own in (p, q)]
        if hockey_stick(bound.epsilon, counts[0], counts[1]) > bound.delta + 1e-11:
            return False
    return True


@pytest.mark.parametrize("epsilon", [1.0, 2.0, 16.0])
def test_a_release_with_an_earlier_one_as_prior_covers_its_participants(
    epsilon: float, tmp_path: Path
) -> None:
    folder = private_release(epsilon, 51).save(tmp_path / "earlier")
    alone = private_release(1.0, 1, people=8_000)
    release = alone.with_prior(folder)
    assert release.notes["prior"]["share_of_prior"] > 0
    pooled = earlier_tallies(release)
    assert release.central is not None
    assert alone.central is not None
    assert covers(release.central.known, pooled)
    assert release.central.known.epsilon >= alone.central.known.epsilon
    if epsilon > 1:
        assert not covers(alone.central.known, pooled), "what was stated before"
    weak = [w.message for w in release.warnings if w.code == "weak-protection"]
    assert len(weak) == int(epsilon > 4)
    assert all(str(folder) in message for message in weak)
    again = dither.load_release(release.save(tmp_path / "now"))
    for each in (release, again):
        assert each.private
        assert each.central == release.central
        assert f"epsilon {shown_epsilon(pooled[0].plan.epsilon)}" in each.guarantee
        assert "those of the earlier release" in each.readers
        assert [w.message for w in each.warnings if w.code == "weak-protection"] == weak


def test_an_earlier_release_whose_noise_can_be_replayed_makes_the_new_one_not_private(
    tmp_path: Path,
) -> None:
    made = private_release(1.0, 51)
    replayable = replace(
        made, call=replace(made.call, seed=7), content=replace(made.content, central=None)
    )
    folder = replayable.save(tmp_path / "earlier")
    assert not json.loads((folder / "release.json").read_text())["private"]
    release = private_release(1.0, 1).with_prior(folder)
    page = (release.save(tmp_path / "now") / "report.html").read_text()
    manifest = json.loads((tmp_path / "now" / "release.json").read_text())
    assert manifest["private"] is False
    assert manifest["central"] is None
    assert "can be drawn again" in manifest["noise"]
    [warning] = [w["message"] for w in manifest["warnings"] if w["code"] == "replayable-noise"]
    assert str(folder) in warning
    assert "NOT PRIVATE with the seed of the earlier release" in page
    again = dither.load_release(tmp_path / "now")
    assert not again.private
    assert "Nothing is promised" in again.readers
    # A third release that uses this one does not become private again.
    assert not private_release(1.0, 2).with_prior(tmp_path / "now").private


def test_the_tallies_of_an_earlier_release_that_was_left_out_are_not_stored(tmp_path: Path) -> None:
    folder = private_release(16.0, 51, OTHERS).save(tmp_path / "earlier")
    alone = private_release(1.0, 1, people=8_000)
    release = alone.with_prior(folder)
    assert release.notes["prior"]["left_out"] == "people have changed since"
    assert earlier_tallies(release) == []
    # What was found out by comparing is in the notes, so the claims still cover its participants.
    assert release.central is not None
    assert alone.central is not None
    assert release.central.known.epsilon > alone.central.known.epsilon
    assert "weak-protection" in [w.code for w in release.warnings]
    again = dither.load_release(release.save(tmp_path / "now"))
    names = NETWORK.schema.names[:2]
    assert np.array_equal(again.marginal(names).frequencies, release.marginal(names).frequencies)
    found = dither.bootstrap(again, [names], replicates=5)[0]
    assert (found.low <= found.high).all()


def test_what_an_earlier_version_stated_with_an_earlier_release_is_not_repeated(
    tmp_path: Path,
) -> None:
    """Folders of earlier versions do not record how the earlier participants are protected."""
    folder = private_release(3.0, 51).save(tmp_path / "earlier")
    private_release(1.0, 1).with_prior(folder).save(tmp_path / "now")
    path = tmp_path / "now" / "release.json"
    manifest = json.loads(path.read_text())
    for key in ("epsilon", "private", "resampled"):
        del manifest["notes"]["prior"][key]
    path.write_text(json.dumps(manifest))
    again = dither.load_release(tmp_path / "now")
    assert again.central is None
    assert not again.private
    (folder / "release.json").unlink()
    with pytest.raises(InputError, match="does not say how its participants are protected"):
        private_release(1.0, 1).with_prior(folder)
