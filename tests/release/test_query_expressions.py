"""Questions as text and mappings: read like Python, answered like a count over every single person, and never run."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from itertools import product

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.release.conftest import Dense

from dither.errors import ParameterError
from dither.fit import Independent, Model
from dither.notice import Notice
from dither.release import Call, Release, TableContent
from dither.schema import Attribute, Schema

SIZES = ("small", "medium", "large")
SCHEMA = Schema(
    (
        Attribute("colour", "categorical", values=("red", "green", "it's blue"), missing=True),
        Attribute("member", "boolean", values=(False, True)),
        Attribute("size", "ordinal", values=SIZES),
        Attribute("grade", "ordinal", values=(1, 2, 5)),
        Attribute("age", "numeric", edges=(0.0, 4.0, 5.0, 9.5, 12.0), missing=True),
        Attribute("odd-weight", "numeric", edges=(0.0, 0.5, 2.0)),
        Attribute("gain", "numeric", edges=(0.0, 3.0, 6.0), atoms=(0.0, 4.0, 9.0)),
        Attribute("pay", "numeric", edges=(0.0, 0.3, 0.9), atoms=(0.0, 0.9), unit=0.1),
        Attribute(
            "when", "date", edges=(19782.0, 19784.0, 19789.0), cycles=("weekday",)
        ),  # from 2024-02-29, a Thursday
    )
)
# Characters and levels of nesting that a question may have (docs/how-to/ask-a-release.md).
LONGEST, DEEPEST = 4_000, 60
JOINT = (
    np.random.default_rng(3)
    .dirichlet(np.full(int(np.prod(SCHEMA.cardinalities)), 0.3))
    .reshape(SCHEMA.cardinalities)
)


def release_of(model: Model, whole: Sequence[str] = ()) -> Release:
    """A release of a model without replicates; its table has whole numbers in some columns."""
    row = {
        attribute.name: pa.array([1], pa.int64() if attribute.name in whole else pa.float64())
        for attribute in model.schema
    }
    return Release(
        call=Call(epsilon=1.0, method="independent", parameters={}),
        content=TableContent(model, pa.table(row)),
        schema=model.schema,
        epsilon_achieved=1.0,
        participants=1000,
        rounds=1,
        rows=1,
    )


RELEASE = release_of(Dense(SCHEMA, JOINT), whole=["age"])


# The numbers in each bin and atom, and the days (whatever their weekday, which a question does not ask for).
INSIDE: dict[str, dict[tuple[float, float], list[object]]] = {
    "gain": {
        (0.0, 0.0): [0.0],
        (0.0, 3.0): [(i + 0.5) / 8 for i in range(24)],
        (3.0, 4.0): [3 + (i + 0.5) / 8 for i in range(8)],
        (4.0, 4.0): [4.0],
        (4.0, 6.0): [4 + (i + 0.5) / 8 for i in range(16)],
        (9.0, 9.0): [9.0],
    },
    "pay": {
        (0.0, 0.0): [0.0],
        (0.0, 0.3): [0.1, 0.2],
        (0.3, 0.9): [0.3, 0.4, 0.5, 0.6, 0.7, 0.8],
        (0.9, 0.9): [0.9],
    },
    "when": {
        (19782.0, 19784.0): ["2024-02-29", "2024-03-01"],
        (19784.0, 19789.0): [f"2024-03-0{day}" for day in range(2, 7)],
    },
}


class Missing:
    """A missing answer as the questions mean it: equal to None alone, in no order with anything."""

    def __eq__(self, other: object) -> bool:
        return other is None

    def __hash__(self) -> int:
        return 0

    def _never(self, other: object) -> bool:
        return False

    __lt__ = __le__ = __gt__ = __ge__ = _never


class Size(str):
    """A label with its place in the schema."""

    def _at(self) -> int:
        return SIZES.index(str(self))

    def __lt__(self, other: str) -> bool:
        return self._at() < SIZES.index(str(other))

    def __le__(self, other: str) -> bool:
        return self._at() <= SIZES.index(str(other))

    def __gt__(self, other: str) -> bool:
        return self._at() > SIZES.index(str(other))

    def __ge__(self, other: str) -> bool:
        return self._at() >= SIZES.index(str(other))


def people_of(attribute: Attribute) -> list[tuple[int, float, object]]:
    """Each code's people: the code, the share of them, their value. Ages are whole; weights lie in the middles of sixteenths."""
    out: list[tuple[int, float, object]] = []
    for code in range(attribute.answers):
        values: list[object]
        if attribute.name in ("gain", "pay", "when"):
            ends = attribute.line.ends[code // attribute.turns]
            values = list(INSIDE[attribute.name][ends])
            out += [(code, 1 / len(values), value) for value in values]
            continue
        if attribute.name == "age":
            last = code == attribute.answers - 1
            values = [
                k
                for k in range(20)
                if attribute.edges[code] <= k < attribute.edges[code + 1] + (0.1 if last else 0)
            ]
        elif attribute.kind == "numeric":
            low, high = attribute.edges[code : code + 2]
            values = [low + (high - low) * (i + 0.5) / 24 for i in range(24)]
        else:
            value = attribute.values[code]
            values = [Size(value) if attribute.name == "size" else value]
        out += [(code, 1 / len(values), value) for value in values]
    return [*out, (attribute.answers, 1.0, Missing())] if attribute.missing else out


def counted(text: str) -> float:
    """The share of people for whom Python itself finds the text true."""
    used = [a for a in SCHEMA if a.name in text]
    rest = tuple(i for i, a in enumerate(SCHEMA) if a not in used)
    joint, code, share = JOINT.sum(axis=rest), compile(text, "question", "eval"), 0.0
    calls = {"between": lambda x, low, high: operator.ge(x, low) and operator.le(x, high)}
    for person in product(*(people_of(a) for a in used)):
        values = {a.name: value for a, (_, _, value) in zip(used, person, strict=True)}
        if eval(code, {"__builtins__": {}, "attr": values, **calls, **values}):
            share += joint[tuple(c for c, _, _ in person)] * float(
                np.prod([s for _, s, _ in person])
            )
    return share


def asked(where: object, release: Release = RELEASE) -> float:
    """The share that a release answers."""
    return release.query(where).estimate  # type: ignore[arg-type]


def notes_of(text: str) -> list[Notice]:
    """What an answer says about the question; there are no replicates for an interval."""
    return [note for note in RELEASE.query(text).warnings if note.code != "no-interval"]


SIGNS = st.sampled_from(["<", "<=", ">", ">=", "==", "!="])
ATOMS = st.one_of(
    st.builds(
        "colour {} {!r}".format,
        st.sampled_from(["==", "!="]),
        st.sampled_from(["red", "it's blue", None]),
    ),
    st.builds("colour {} ['red', None]".format, st.sampled_from(["in", "not in"])),
    st.sampled_from(["member", "not member", "member == False", "True", "False"]),
    st.builds("size {} {!r}".format, SIGNS, st.sampled_from(SIZES)),
    st.builds(
        "{} {} grade".format,
        st.sampled_from([1, 2, 5, 3.5, -1]),
        SIGNS.filter(lambda s: s not in ("==", "!=")),
    ),
    st.builds("grade {} {}".format, SIGNS, st.sampled_from([1, 2, 5])),
    st.builds("age {} {}".format, SIGNS, st.integers(-1, 13)),
    st.builds("{} <= age < {}".format, st.integers(0, 7), st.sampled_from([3, 7.5, 9, 12])),
    st.builds("between(age, {}, {})".format, st.integers(0, 7), st.integers(4, 12)),
    st.builds("age in [{}, 11, None]".format, st.integers(0, 12)),
    st.builds("gain {} {}".format, SIGNS, st.sampled_from([0, 4, 9])),
    st.builds(
        "{} < gain <= {}".format, st.sampled_from([0, 1, 4]), st.sampled_from([2, 3.5, 4, 9])
    ),
    st.builds("pay {} {}".format, SIGNS, st.sampled_from([0, 0.1, 0.2, 0.3, 0.7, 0.9])),
    st.builds(
        "when {} '2024-0{}'".format,
        SIGNS,
        st.sampled_from(["2-29", "3-01", "3-02", "3-04", "3-06"]),
    ),
    st.builds(
        "{} < attr['odd-weight'] <= {}".format,
        st.sampled_from([0, 0.25, 0.5]),
        st.sampled_from([0.375, 1, 1.5, 7]),
    ),
)
TEXTS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.builds("({}) and ({})".format, inner, inner),
        st.builds("({}) or ({})".format, inner, inner),
        st.builds("not ({})".format, inner),
    ),
    max_leaves=4,
)


@given(TEXTS)
@settings(max_examples=150, deadline=None, derandomize=True, database=None)
def test_a_question_counts_whom_python_would_count(text: str) -> None:
    assert asked(text) == pytest.approx(counted(text), abs=1e-9)


def test_the_count_tells_wrong_readings_apart() -> None:
    assert abs(asked("age <= 4") - counted("age < 4")) > 0.01
    assert (
        abs(asked("age < 7") - asked("age < 7", release_of(Dense(SCHEMA, JOINT)))) > 0.001
    )  # whole numbers are not spread evenly


@pytest.mark.parametrize(
    ("mapping", "text"),
    [
        ({}, "True"),
        ({"colour": "red", "member": True}, "colour == 'red' and member"),
        (
            {"colour": ["red", None], "size": {"large"}},
            "colour in ['red', None] and size == 'large'",
        ),
        ({"age": (4, 9)}, "4 <= age < 9"),
        ({"age": (None, 7), "odd-weight": (0.25, None)}, "age < 7 and attr['odd-weight'] >= 0.25"),
        ({"age": 4, "grade": np.int64(5)}, "age == 4 and grade == 5"),
        ({"age": "[0, 4)"}, "age < 4"),
        ({"age": "(missing)"}, "age == None"),
    ],
)
def test_a_mapping_is_the_same_question(mapping: dict[str, object], text: str) -> None:
    assert asked(mapping) == pytest.approx(asked(text), abs=1e-12)


def test_other_ways_to_say_it() -> None:
    assert asked("age is None") == asked("age == None") == asked("age == '(missing)'")
    assert asked("3 < age") == asked("age > 3") == asked("age >= 4")
    assert asked("colour in {'red'}") == asked("colour in ('red',)") == asked("'red' == colour")
    assert asked("member\n and age < 4 ") == asked("member and age < 4")


def test_many_attributes_stay_small_and_too_many_are_refused() -> None:
    """Codes that a question treats alike are one group: 15 attributes of 99 values take 2^15 cells."""
    schema = Schema(
        tuple(Attribute(f"a{i}", "numeric", edges=tuple(range(100))) for i in range(24))
    )
    release = release_of(Independent(schema, (np.full(99, 1 / 99),) * 24))
    share = release.query(" and ".join(f"a{i} >= 50" for i in range(15))).estimate
    assert share == pytest.approx((49 / 99) ** 15)
    with pytest.raises(ParameterError, match="16,777,216 combinations of a0, "):
        release.query(" and ".join(f"a{i} >= 50" for i in range(24)))


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        ("age >= 7", "inside-a-bin", "7 divides [5, 9.5), whose people are taken as evenly spread"),
        ("age <= 7", "inside-a-bin", "the bin's ends would be exact"),
        ("attr['odd-weight'] > 0.25", "inside-a-bin", "0.25 divides [0, 0.5)"),
        (
            "age > 90",
            "outside-the-domain",
            "age is compared with 90, outside its range from 0 to 12",
        ),
        ("age == 3.5", "outside-the-domain", "only multiples of 1 are known"),
    ],
)
def test_what_is_not_exact_is_said(text: str, code: str, words: str) -> None:
    (note,) = notes_of(text)
    assert note.code == code
    assert words in note.message


@pytest.mark.parametrize(
    "text",
    ["age >= 5", "age <= 4", "age < 4.5", "age < 9.5", "attr['odd-weight'] >= 0.5", "age == 4"],
)
def test_an_edge_is_exact(text: str) -> None:
    assert notes_of(text) == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("agee > 3", "no attribute 'agee'; did you mean 'age'?"),
        ("zzz > 3", "no attribute 'zzz'; there are colour, member"),
        ("colour == 'Red'", "colour has no value 'Red'; did you mean 'red'?"),
        ("colour == 7", "colour has no value 7; there are red, green"),
        ("colour == red", "no attribute 'red'; if it is a value, write it in quotes: 'red'"),
        ("colour in [red]", "red stands where a value should; write it in quotes: 'red'"),
        ("colour < 'red'", "colour is categorical and has no order"),
        ("member > False", "member is boolean and has no order"),
        ("size > 'tiny'", "size has no value 'tiny'"),
        ("size == None", "size has no missing answers"),
        ("age < None", "a missing answer (None) has no order"),
        ("age == 'old'", "age is a number and cannot be compared with 'old'"),
        ("age > True", "cannot be compared with True"),
        (
            "attr['odd-weight'] == 1",
            "is known by bins, which tell no single number apart; ask for a range or for a bin",
        ),
        ("age", "age stands alone; compare it with something, as in age >= 5"),
        ("age > grade", "age and grade are both attributes"),
        ("3 > 2", "compares no attribute"),
        (
            "odd-weight > 1",
            "'odd-weight' is not understood: a question does no arithmetic; a name that is no Python name",
        ),
        ("age + 1 > 3", "'age + 1' is not understood"),
        ("age > 3 + 1", "does no arithmetic"),
        ("(age > 3) & member", "write and, or, not instead of &, |, ~"),
        ("age = 3", "cannot read 'age = 3'"),
        ("age >", "cannot read 'age >'"),
        ("", "an empty question"),
        (" \n ", "an empty question"),
        ("'red' in colour", "'in' stands between an attribute and a list"),
        ("colour in 'red'", "'in' stands between an attribute and a list"),
        ("attr[age] > 3", "with the name in quotes"),
        ("between(3, age, 4)", "begins with an attribute"),
        ("between(age, 3)", "the only call that a question may make"),
        ("age > -'x'", "is not understood"),
        ("age > 3j", "is not understood"),
        ("colour == b'red'", "is not understood"),
        ("colour == ...", "is not understood"),
    ],
)
def test_what_cannot_be_meant_is_one_clear_line(text: str, words: str) -> None:
    with pytest.raises(ParameterError) as caught:
        asked(text)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


HOSTILE = [
    "__import__('os').system('touch owned')",
    "().__class__.__bases__[0].__subclasses__()",
    "(lambda: member)()",
    "[member for _ in range(9)]",
    "member if True else member",
    "(x := member)",
    "f'{member}'",
    "age.real > 3",
    "member; member",
    "age > 9**9**9",
    "age > 1e999",
    "age > -1e999",
    "age > " + "9" * (LONGEST - 10),
    "colour == 'a\x00b'\x00",
    "colour == '\ud800'",
    "not " * (DEEPEST + 2) + "member",
    "not " * (LONGEST // 4 - 2) + "member",
    "-" * (LONGEST - 10) + "1 > age",
    "(" * 1000 + "member" + ")" * 1000,
    "[" * 1900 + "]" * 1900,
    "age" + "[0]" * 1000 + " > 1",
    "age > " + "1+" * 1500 + "1",
    "colour in [" + "'a'," * 990 + "]",
    "member and " * 1000 + "member",
    "member or " * 350 + "membr",
    "await member",
    "*member",
    "yield",
    "member\\",
    "'" * 3,
]


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_text_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(ParameterError) as caught:
        asked(text)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(
    ("mapping", "words"),
    [
        ({"ages": 3}, "did you mean 'age'?"),
        ({3: "x"}, "no attribute '3'"),
        ({"colour": ("red", "green")}, "a range (low, high) is for numbers"),
        ({"age": (1, 2, 3)}, "a range is (low, high)"),
        ({"age": {"low": 3}}, "not dict"),
        ({"age": np.arange(3)}, "not ndarray"),
        ({"colour": [["red"]]}, "not list"),
        ({"age": [{"low": 3}]}, "not dict"),
        ({"age": float("nan")}, "cannot be compared with nan"),
        ({"age": 10**400}, "cannot be compared with"),
        ({"age": 10**9000}, "cannot be compared with a number that long"),
    ],
)
def test_mappings_are_checked(mapping: dict[object, object], words: str) -> None:
    with pytest.raises(ParameterError) as caught:
        asked(mapping)
    assert words in str(caught.value)


def test_a_question_is_text_or_a_mapping() -> None:
    with pytest.raises(ParameterError, match="text or a mapping, not int"):
        RELEASE.query(3)  # type: ignore[arg-type]


def test_names_in_compatibility_form_are_found() -> None:
    name = "\N{LATIN SMALL LIGATURE FI}t"
    schema = Schema((Attribute(name, "boolean", values=(False, True)),))
    release = release_of(Independent(schema, (np.array([0.3, 0.7]),)))
    assert asked(name, release) == asked(f"attr['{name}']", release) == pytest.approx(0.7)
