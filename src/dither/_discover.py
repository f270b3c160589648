"""Discover a column's frequent texts: prefixes over rounds, then frequencies from fresh people."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import narwhals as nw
import numpy as np

from dither.checks import check_whole_or_none
from dither.errors import QuestionError, TableError
from dither.mechanisms.probability import check_epsilon
from dither.methods import Diagnostics, MethodRun, start
from dither.methods.discover import (
    DiscoverParameters,
    PrefixSearch,
    Texts,
    encode_text,
    normalise,
    unlisted,
)
from dither.notice import Notice
from dither.randomness import check_seed, generator, public_seed
from dither.release import Release
from dither.release.amplification import central_guarantee
from dither.release.call import MAX_PEOPLE, asked_in, check_replicates, recorded, recorded_call
from dither.release.query.answer import AnswerRow
from dither.release.table import TableContent
from dither.simulate import drive, simulate, text_people
from dither.types import Codes, Integers, JsonObject

SUMMARY = (
    "Frequent texts that no schema lists: prefixes over rounds by local hashing, then frequencies "
    "from people who were not asked before."
)
REFERENCE = "Wang, Li, Jha, IEEE TDSC 2021 (PEM)"


@dataclass(frozen=True, kw_only=True)
class DiscoverDiagnostics(Diagnostics):
    """What a discovery states about its search.

    Attributes:
        false_discovery_rate: The most that any text found is held by no one, as a chance.
        found: How many texts were found.
        tested: How many texts the confirming round tested (Bonferroni).
        findable_share: The share of people a text needed to be found with a chance of 80 %;
            None if no text could be found.
        people_asked_for_frequencies: Participants of the last round.
        forged_reports_to_plant: Dishonest participants who could have planted a text, if
            participants can choose their round.
        forging_share_to_plant: The same as a share of all, if they cannot.
    """

    false_discovery_rate: float
    found: int
    tested: int
    findable_share: float | None
    people_asked_for_frequencies: int
    forged_reports_to_plant: int
    forging_share_to_plant: float


def discover(
    values: Any,
    *,
    epsilon: float,
    top: int = 20,
    max_bytes: int = 16,
    alphabet: str = "",
    casefold: bool = False,
    false_discovery_rate: float = 0.05,
    population: int | None = None,
    replicates: int = 100,
    seed: int | None = None,
    attribute: str | None = None,
) -> Release:
    """Find the frequent values of a text that no list names, and their shares.

    Each value is one participant's, who answers once at full epsilon: in one of several
    rounds about ever longer prefixes, or in the last round about the values found. Shares
    come from the last round only, so they are not those that were selected for being high.

    Texts are compared in Unicode NFC without spaces at their ends. A text that is longer
    than `max_bytes`, or has a character outside the alphabet, counts as "other". Empty
    and absent texts are no answer and have a share of their own.

    Guarantee: everything one participant sends is epsilon-locally differentially private.
    The chance that any value is found that no one holds is at most `false_discovery_rate`.

    Args:
        values: The texts, one for each participant; None or an empty text is no answer.
        epsilon: The guarantee of one participant.
        top: The largest number of values to find.
        max_bytes: The longest value that can be found, in bytes of UTF-8. Fewer bytes make
            fewer rounds of more people.
        alphabet: The characters of a value, such as "abc..."; empty for all. A small one
            makes fewer rounds.
        casefold: Whether upper and lower case are the same.
        false_discovery_rate: See above.
        population: Draw this many participants from the values with replacement.
        replicates: Refits from which intervals follow.
        seed: Seed of the noise, for a reproducible simulation without privacy.
        attribute: The text's name in the release.

    Returns:
        A release of one attribute: the values found, "other", and no answer.

    Raises:
        TableError: There are no values, or one is not a text.

    >>> import dither
    >>> words = ["tea"] * 5000 + ["coffee"] * 4000 + [f"drink {i}" for i in range(1000)]
    >>> release = dither.discover(words, epsilon=4.0, max_bytes=8, seed=1)
    >>> release.schema["value"].values
    ('tea', 'coffee', 'other')
    """
    seed = check_seed(seed)
    record = recorded(discover, locals())
    check_epsilon(epsilon)
    check_replicates(replicates)
    population = check_whole_or_none("population", population, 1, MAX_PEOPLE)
    parameters = DiscoverParameters(top, max_bytes, alphabet, false_discovery_rate)
    name = attribute or _name_of(values)
    drawn, noise, rows, inside = (generator(seed, 15, i) for i in range(4))
    people = _read(values, parameters, casefold=casefold)
    order = drawn.permutation(len(people.numbers))
    if population is not None:
        order = drawn.integers(0, len(people.numbers), population)
    people = replace(people, numbers=people.numbers[order])
    numbers = people.numbers
    search = PrefixSearch(name, float(epsilon), len(numbers), parameters)
    drive(search, text_people(people.encoded[numbers], search.cells_of), noise, path="reports")
    found = [text.decode() for text in search.found]
    codes = people.codes(found)[sum(tally.participants for tally in search.closed) :]
    run = start(
        "independent", unlisted(name, found), float(epsilon), len(codes), seed=public_seed(seed)
    )
    simulate(run, codes, noise)
    call = recorded_call(
        record,
        epsilon=float(epsilon),
        method="discover",
        seed=seed,
        population=population,
    )
    release = Release.from_machine(run, call, len(numbers), (rows, inside))
    if replicates:
        release = release.with_replicates(replicates, seed=public_seed(seed))
    return _with_search(release, search, parameters, run)


def found_values(release: Release) -> JsonObject:
    """The values found with their shares and 95 % intervals, most frequent first.

    Args:
        release: A release of `discover`.

    Returns:
        `values`, and the shares of `other` and `missing` with their intervals.

    Raises:
        QuestionError: The release is of another method.
    """
    if release.method != "discover":
        raise QuestionError(
            f"this is a release of {release.method}, not of discover; it found no values",
            where="method",
        )
    (name,) = release.schema.names
    *rows, other, missing = release.table(name).rows
    rows.sort(key=lambda row: -row.estimate)
    found = [{"value": str(row.values[0]), **_share(row)} for row in rows]
    return {"values": found, "other": _share(other), "missing": _share(missing)}


def _share(row: AnswerRow) -> JsonObject:
    return {"estimate": row.estimate, "low": row.low, "high": row.high}


@dataclass(frozen=True)
class _People:
    """The participants' texts: each distinct one once, and every participant's number."""

    texts: Sequence[str]
    encoded: Texts
    numbers: Integers

    def codes(self, found: Sequence[str]) -> Codes:
        """Each participant's code in the last round: a value found, other, or no answer."""
        place = {text: i for i, text in enumerate(found)}
        other = len(found)
        by_text = [place.get(text, other) if text else other + 1 for text in self.texts]
        return np.array(by_text, dtype=np.int32)[self.numbers, None]


def _read(values: Any, parameters: DiscoverParameters, *, casefold: bool) -> _People:
    """Normalise and encode each distinct text once."""
    seen: dict[str, int] = {}
    known: dict[str, int] = {}
    numbers = []
    for row, value in enumerate(_listed(values)):
        given = _text(value, row)
        if given not in known:
            text = normalise(given, casefold=casefold)
            known[given] = seen.setdefault(text, len(seen))
        numbers.append(known[given])
    if not numbers:
        raise TableError("there are no values, so there is no one to ask", where="values")
    # No prefix is empty, so an empty text answers "none of these" in every round.
    encoded = [encode_text(text, parameters) or b"" for text in seen]
    texts = np.array(encoded, dtype=f"S{parameters.max_bytes}")
    return _People(list(seen), texts, np.array(numbers, dtype=np.int64))


def _listed(values: Any) -> Iterable[object]:
    if isinstance(values, (str, bytes)):
        raise TableError("values must be a list of texts, one for each participant", where="values")
    column = nw.from_native(values, series_only=True, pass_through=True)
    if isinstance(column, nw.Series):
        absent = column.is_null().to_list()
        return [None if no else v for v, no in zip(column.to_list(), absent, strict=True)]
    listed: Iterable[object] = values.tolist() if hasattr(values, "tolist") else values
    return listed


def _text(value: object, row: int) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if not isinstance(value, str):
        raise TableError(
            f"value {row + 1} is {value!r}, not a text; convert numbers to texts first, or use "
            "dither.histogram",
            where="values",
            value=value,
        )
    return value


def _name_of(values: Any) -> str:
    name = getattr(values, "name", None)
    return name if isinstance(name, str) and name else "value"


def _with_search(
    release: Release, search: PrefixSearch, parameters: DiscoverParameters, last: MethodRun
) -> Release:
    """The release of the last round with the facts of all rounds."""
    content = release.content
    assert isinstance(content, TableContent)
    tallies = [*search.closed, *last.tallies]
    plans = [*(tally.plan for tally in search.closed), *last.plans]
    people = [tally.participants / release.people for tally in tallies]
    rounds = [
        replace(asked, round=i, population=share)
        for i, (asked, share) in enumerate(zip(asked_in(plans), people, strict=True))
    ]
    central = content.central
    if central is not None:
        central = central_guarantee(tallies, release.people)
    facts = DiscoverDiagnostics(
        false_discovery_rate=parameters.false_discovery_rate,
        found=len(search.found),
        tested=search.rounds[-1].tested if search.rounds else 0,
        findable_share=search.design.findable,
        people_asked_for_frequencies=last.tallies[0].participants,
        forged_reports_to_plant=search.forged_reports,
        forging_share_to_plant=search.forging_share,
    )
    warnings = list(release.warnings)
    if not search.found:
        warnings.append(_nothing_found(search))
    return replace(
        release,
        call=replace(release.call, parameters=asdict(parameters)),
        content=replace(content, asked=tuple(rounds), central=central),
        epsilon_achieved=max(plan.epsilon for plan in plans),
        rounds=len(rounds),
        notes={**release.notes, **facts.to_json()},
        warnings=tuple(warnings),
        description=SUMMARY,
        reference=REFERENCE,
    )


def _nothing_found(search: PrefixSearch) -> Notice:
    share = search.design.findable
    reason = "so few people cannot show any value at this epsilon"
    if share is not None:
        reason = f"a value had to be held by about {share:.1%} of the people to be found"
    return Notice("nothing-found", f"no value was found: {reason}")
