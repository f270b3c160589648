"""`dither.panel`: simulate a panel with the rows of a table as its participants' answers.

Devices, browsers and campaigns cannot run panels yet.
"""

from __future__ import annotations

import math
import time as timing
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dither.checks import check_whole_or_none
from dither.datasets import open_table
from dither.datasets.bundled import named_schema, read_named
from dither.errors import ParameterError, TableError
from dither.mechanisms import check_epsilon
from dither.mechanisms.grr import respond
from dither.mechanisms.local_hash import LocalHash
from dither.mechanisms.loloha import MAX_WAVES, Loloha
from dither.notice import Notice
from dither.randomness import check_seed, generator
from dither.release import Release
from dither.release.call import recorded, recorded_call
from dither.release.panel import ABSENT, PanelContent, Wave, wave_value
from dither.schema import Schema, load_schema
from dither.schema.table import column_names, encode, read_columns, select_columns, to_arrow
from dither.types import Codes, Indices, NativeTable

_SUMMARY = "LOLOHA: permanent and instantaneous randomised response over hash values"
_REFERENCE = (
    "Arcolezi, Pinzon, Palamidessi, Gambs, Frequency estimation of evolving data under local "
    "differential privacy, EDBT 2023"
)
# A column of a panel's attributes is numbered in one byte.
_MAX_COLUMNS = 100


def panel(
    table: NativeTable | str | Path,
    *,
    person: str,
    time: str,
    columns: Sequence[str],
    epsilon_lifetime: float,
    epsilon_first: float | None = None,
    waves: int | None = None,
    schema: Schema | str | Path | None = None,
    seed: int | None = None,
    clock: Callable[[], float] = timing.perf_counter,
) -> Release:
    """Simulate a panel: the same people answer in every wave, under one lifetime guarantee.

    Each row of the table is a participant's value in one wave. Participants may miss waves, join
    late and leave; whether they answer must not depend on their value. Of several columns each
    participant answers about one, drawn when they join, for the panel's life.

    Args:
        table: A pandas, polars or PyArrow table, a file, or a bundled dataset's name.
        person: The column that identifies participants.
        time: The column of the waves, which are put in its order.
        columns: The columns to ask about.
        epsilon_lifetime: The guarantee of everything that a participant sends, whatever the
            history of their values.
        epsilon_first: A tighter guarantee of the first report by itself; none if omitted.
        waves: The number of waves that the guarantee covers; as many as the table has if
            omitted. It has to be fixed before the first wave.
        schema: The public domain; inferred from the rows, which leaks them, if omitted.
        seed: The seed of the simulated noise; None for noise of the operating system.
        clock: Measures seconds.

    Returns:
        A release that answers `query(where, wave=t)`, `table(..., wave=t)`, `change(a, b, where)`
        and `trend(where)`; its `epsilon` is the lifetime epsilon.

    Raises:
        TableError: A column is missing, or a person has two rows in a wave.
        PrivacyError: An epsilon is out of range.

    >>> import dither
    >>> rows = [(person, week) for week in (1, 2, 3) for person in range(2000)]
    >>> table = {"id": [p for p, _ in rows], "week": [w for _, w in rows],
    ...          "mood": ["good" if p % 10 < 3 + w else "bad" for p, w in rows]}
    >>> release = dither.panel(table, person="id", time="week", columns=["mood"], epsilon_lifetime=4.0, seed=1)
    >>> release.epsilon <= 4.0
    True
    >>> better = release.change(1, 3, "mood == 'good'")
    >>> better.low < 0.2 < better.high
    True
    """
    columns, seed = list(columns), check_seed(seed)
    record = recorded(panel, locals())
    check_epsilon(epsilon_lifetime)
    check_whole_or_none("waves", waves, 1, MAX_WAVES)
    begun = clock()
    native, domain, notices = _opened(table, person, time, columns, schema)
    people, places, labels = _rows_of(native, person, time)
    planned = len(labels) if waves is None else waves
    if len(labels) > planned or planned > MAX_WAVES:
        remedy = f"at most {MAX_WAVES} are possible" if planned > MAX_WAVES else "raise waves"
        raise ParameterError(
            f"the table has {len(labels)} waves, and {min(planned, MAX_WAVES)} are covered; {remedy}",
            where="waves",
            value=len(labels),
        )
    codes = encode(select_columns(native, domain.names), domain).codes
    mechanisms = tuple(
        Loloha.for_epsilon(attribute.cardinality, epsilon_lifetime, planned, epsilon_first)
        for attribute in domain
    )
    read = clock()
    content = simulate_panel(
        codes, (people, places), mechanisms, (person, time), labels, generator(seed, 0)
    )
    call = recorded_call(
        record,
        epsilon=float(epsilon_lifetime),
        method="loloha",
        seed=seed,
        parameters={"waves": planned, "buckets": [one.buckets for one in mechanisms]},
    )
    return Release(
        call=call,
        content=content,
        schema=domain,
        epsilon_achieved=max(one.epsilon for one in mechanisms),
        participants=len(content.chosen),
        rounds=len(labels),
        rows=0,
        seconds={"read": round(read - begun, 4), "simulate": round(clock() - read, 4)},
        warnings=(*notices, *_cost(mechanisms, epsilon_lifetime)),
        description=_SUMMARY,
        reference=_REFERENCE,
    )


def simulate_panel(
    codes: Codes,
    rows: tuple[Indices, Indices],
    mechanisms: Sequence[Loloha],
    names: tuple[str, str],
    labels: Sequence[Wave],
    rng: np.random.Generator,
) -> PanelContent:
    """Play all participants of a panel.

    Args:
        codes: The values of each row, a column for each attribute.
        rows: The participant and the wave of each row.
        mechanisms: One for each attribute.
        names: The columns of participants and of waves.
        labels: The waves.
        rng: The generator of hash functions and noise.
    """
    people, places = rows
    count = int(people.max()) + 1
    chosen = rng.integers(0, len(mechanisms), count).astype(np.uint8)
    words = rng.integers(0, 1 << 32, (count, 2)).astype(np.uint32)
    reports = np.full((count, len(labels)), ABSENT, np.uint8)
    for attribute, mechanism in enumerate(mechanisms):
        limit, buckets = 1 << mechanism.threshold_bits, mechanism.buckets
        permanent = respond(
            rng.integers(0, limit, (count, buckets)),
            np.broadcast_to(np.arange(buckets), (count, buckets)),
            mechanism.permanent_keep,
            mechanism.permanent_other,
        )
        asked = np.flatnonzero(chosen[people] == attribute)
        who = people[asked]
        true = _bucket_of(mechanism, words[who], codes[asked, attribute])
        draws = rng.integers(0, limit, len(asked))
        answers = respond(draws, permanent[who, true], mechanism.wave_keep, mechanism.wave_other)
        reports[who, places[asked]] = answers
    return PanelContent(
        person=names[0],
        time=names[1],
        waves=tuple(labels),
        mechanisms=tuple(mechanisms),
        chosen=chosen,
        words=words,
        reports=reports,
    )


def _bucket_of(mechanism: Loloha, words: Any, values: Any) -> Indices:
    """The bucket of each row's value under its participant's hash function."""
    spread = (words[:, 0] * values.astype(np.uint32) + words[:, 1]) >> np.uint32(16)
    buckets: Indices = ((spread * np.uint32(mechanism.buckets)) >> np.uint32(16)).astype(np.intp)
    return buckets


def _opened(
    table: NativeTable | str | Path,
    person: str,
    time: str,
    columns: list[str],
    schema: Schema | str | Path | None,
) -> tuple[NativeTable, Schema, list[Notice]]:
    """The columns of a panel, the schema of those that are asked, and notices."""
    if not columns or len(columns) > _MAX_COLUMNS or len(set(columns)) < len(columns):
        raise ParameterError(
            f"name from 1 to {_MAX_COLUMNS} columns to ask about, each once", where="columns"
        )
    named = [person, time, *columns]
    if len(set(named)) < len(named):
        raise ParameterError(
            f"person {person!r}, time {time!r} and the columns to ask about must be different columns",
            where="columns",
        )
    domain: Schema | None = None
    notices: list[Notice] = []
    if isinstance(schema, (str, Path)):
        domain = load_schema(schema)
    elif schema is not None:
        domain = schema
    elif isinstance(table, (str, Path)):
        domain, notices = named_schema(table)
    native = read_named(table, domain) if isinstance(table, (str, Path)) else table
    present = column_names(native)
    for name in named:
        if name not in present:
            raise TableError(
                f"the table has no column {name!r}; its columns are {', '.join(present[:20])}",
                where=name,
            )
    if domain is not None:
        domain = Schema(tuple(domain[name] for name in columns))
    else:
        _, domain, notices = open_table(select_columns(native, columns))
    left = [name for name in columns if name not in domain.names]
    if left:
        raise TableError(f"column {left[0]!r} has one value or none: nothing to ask", where=left[0])
    return to_arrow(select_columns(native, named)), domain, notices


def _rows_of(native: pa.Table, person: str, time: str) -> tuple[Indices, Indices, list[Wave]]:
    """The participant and the wave of each row, by number, and the waves in order.

    Raises:
        TableError: A person or a time is missing, or a person has two rows in a wave.
    """
    layout, arrays = read_columns(native)
    found = dict(zip(layout.names, arrays, strict=True))
    for name in (person, time):
        if found[name].null_count:
            row = int(pc.index(pc.is_null(found[name]), pa.scalar(True)).as_py()) + 1
            raise TableError(f"column {name!r} has no value in row {row:,}", where=name)
    people = _numbered(found[person])[0]
    places, values = _numbered(found[time])
    order = sorted(range(len(values)), key=lambda i: values[i])
    labels = [wave_value(values[i]) for i in order]
    if any(isinstance(label, float) and not math.isfinite(label) for label in labels):
        raise TableError(f"column {time!r} has a number that is not finite", where=time)
    rank = np.empty(len(order), np.intp)
    rank[order] = np.arange(len(order))
    places = rank[places]
    cells, times = np.unique(people * len(labels) + places, return_counts=True)
    if (times > 1).any():
        twice = int(cells[times > 1][0])
        who = found[person][int(np.flatnonzero(people == twice // len(labels))[0])].as_py()
        raise TableError(
            f"{person} {who!r} has more than one row in {time} {labels[twice % len(labels)]}; "
            "keep one row for each person and wave",
            where=person,
            value=who,
        )
    return people, places, labels


def _numbered(array: pa.ChunkedArray) -> tuple[Indices, list[Any]]:
    """Values as numbers of distinct values, and these."""
    if pa.types.is_dictionary(array.type):
        array = array.cast(array.type.value_type)
    coded = array.combine_chunks().dictionary_encode()
    if isinstance(coded, pa.ChunkedArray):
        coded = coded.combine_chunks()
    numbers: Indices = coded.indices.to_numpy(zero_copy_only=False).astype(np.intp)
    return numbers, coded.dictionary.to_pylist()


def _cost(mechanisms: Sequence[Loloha], epsilon: float) -> list[Notice]:
    """What a panel costs or gains against asking different people in each wave."""
    waves = mechanisms[0].waves
    fresh = LocalHash.for_epsilon(mechanisms[0].cells, epsilon).variance(0.0, 1) * waves
    times = math.sqrt(mechanisms[0].variance(0.0, 1) / fresh)
    if times <= 1:
        return []
    return [
        Notice(
            "waves-cost",
            f"the lifetime epsilon covers when a value changes as well, over {waves} waves: the noise of a wave "
            f"is {times:.1f} times that of asking a different group of people in each wave at epsilon {epsilon:g}",
        )
    ]
