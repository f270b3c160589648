"""Every mechanism by name: built for cells at an epsilon, rebuilt from JSON, or chosen for the least error.

A new mechanism is a module beside this one, its batch code in `kernels`, one line here and its vectors. Standard library only.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from dither.checks import check_choice
from dither.errors import InputError, PrivacyError, ReportError
from dither.mechanisms.base import DeviceWork, Mechanism, check_cells
from dither.mechanisms.bloom import BloomRappor
from dither.mechanisms.duchi_vector import DuchiVector
from dither.mechanisms.grr import GRR
from dither.mechanisms.hadamard import Hadamard
from dither.mechanisms.local_hash import LocalHash
from dither.mechanisms.means import Duchi, Hybrid, MeanMechanism, Piecewise
from dither.mechanisms.probability import check_epsilon
from dither.mechanisms.set_strategy import SetStrategy
from dither.mechanisms.several_means import MultiMean
from dither.mechanisms.square_wave import SquareWave
from dither.mechanisms.subset import SubsetSelection
from dither.mechanisms.unary import Unary, oue, sue
from dither.plugins import plugin

if TYPE_CHECKING:
    from dither.types import JsonObject

UNARY_CELLS = 4096  # beyond this a unary report would exceed 512 bytes and local hashing is as accurate in ten
SUBSET_GAIN = 0.95  # subset selection is simulated person by person, so it has to earn its keep


@dataclass(frozen=True)
class Kind:
    """A class of mechanisms and, if it is chosen by name, what builds one for cells at an epsilon."""

    cls: type[Mechanism]
    build: Callable[..., Mechanism] | None = None


MECHANISMS = {
    "grr": Kind(GRR, GRR.for_epsilon),
    "sue": Kind(Unary, sue),
    "oue": Kind(Unary, oue),
    "olh": Kind(LocalHash, LocalHash.for_epsilon),
    "subset": Kind(SubsetSelection, SubsetSelection.for_epsilon),
    "bloom": Kind(BloomRappor, BloomRappor.for_cells),
    "hadamard": Kind(Hadamard, Hadamard.for_one),
    "square-wave": Kind(SquareWave),
    "strategy": Kind(SetStrategy),
}
MEANS: dict[str, type[MeanMechanism]] = {
    "duchi": Duchi,
    "piecewise": Piecewise,
    "hybrid": Hybrid,
    "duchi-vector": DuchiVector,
    "several-means": MultiMean,
}
NAMES = (*(name for name, kind in MECHANISMS.items() if kind.build), "best")
# What answers about several attributes may be given through: marginals are read off them with exact errors.
POOLED_NAMES = (
    *(name for name, kind in MECHANISMS.items() if kind.build and kind.cls.exact_groups),
    "best",
)


def mechanism(name: str, cells: int, epsilon: float) -> Mechanism:
    """A mechanism for frequencies by name, at an epsilon, another package's included; asked again, the same one."""
    if name not in NAMES and ((kind := added_kind(name)) is None or kind.build is None):
        check_choice("mechanism", name, NAMES)
    return _built(name, check_cells(cells), check_epsilon(epsilon))


def added_kind(name: str) -> Kind | None:
    """The mechanism that another package installed here brings under this name, if any. What is built in keeps its name."""
    added = None if name in MECHANISMS or name in MEANS else plugin("mechanisms", name)
    if added is None:
        return None
    cls = added.load()
    if not (isinstance(cls, type) and issubclass(cls, Mechanism)):
        raise added.fault("is no class of dither.mechanisms.Mechanism")
    if getattr(cls, "name", None) != name:
        raise added.fault(
            f"calls itself {getattr(cls, 'name', None)!r} in `name`; both names must be the same"
        )
    return Kind(cls, getattr(cls, "for_epsilon", None))


@lru_cache(maxsize=4096, typed=True)
def _built(name: str, cells: int, epsilon: float) -> Mechanism:
    # Rational arithmetic takes its time, and a plan asks many questions of equally many cells.
    kind = None if name == "best" else MECHANISMS.get(name) or added_kind(name)
    build = best if kind is None else kind.build
    assert build is not None
    made = build(cells, epsilon)
    if made.epsilon > epsilon:
        raise PrivacyError(
            f"mechanism {name!r} spends epsilon {made.epsilon}, more than the {epsilon} asked for"
        )
    return made


def best(cells: int, epsilon: float) -> Mechanism:
    """The mechanism with the least total variance over its cells; local hashing instead of unary beyond 4,096 cells."""
    check_cells(cells)
    wide: Mechanism = (
        LocalHash.for_epsilon(cells, epsilon) if cells > UNARY_CELLS else oue(cells, epsilon)
    )
    try:
        chosen = min(wide, GRR.for_epsilon(cells, epsilon), key=_error)
    except PrivacyError:  # so many cells at so small an epsilon that 32-bit draws cannot express it
        return wide
    if cells <= UNARY_CELLS:
        try:
            subset = SubsetSelection.for_epsilon(cells, epsilon)
        except (
            PrivacyError
        ):  # so small an epsilon that whole draws cannot tell covering arcs from missing ones
            return chosen
        if subset.size > 1 and _error(subset) <= SUBSET_GAIN * _error(chosen):
            return subset
    return chosen


def _error(mechanism: Mechanism) -> float:
    return mechanism.total_variance


def mechanism_from_json(data: object) -> Mechanism:
    """Rebuild a mechanism of cells from its integers; its epsilon is computed anew from them, never taken on trust."""
    kind, fields = _kind(data)
    return kind.cls.from_json(fields)


def lists_of(data: object) -> Collection[str]:
    """Which numbers of a mechanism of cells are lists."""
    name, _ = _named(data, MECHANISMS)
    return MECHANISMS[name].cls.lists


def device_work(data: object) -> DeviceWork:
    """What it would cost a device to rebuild a mechanism of cells."""
    kind, numbers = _kind(data)
    return kind.cls.device_work(numbers)


def _kind(data: object) -> tuple[Kind, JsonObject]:
    """The kind that JSON names: built in, or installed on this very machine; nothing is ever fetched for a name."""
    name = data.get("name") if isinstance(data, dict) else None
    if isinstance(data, dict) and isinstance(name, str) and name not in MECHANISMS:
        try:
            added = added_kind(name)
        except InputError as error:
            raise ReportError(str(error), value=data) from None
        if added is not None:
            return added, data
    known, fields = _named(data, MECHANISMS)
    return MECHANISMS[known], fields


def mean_from_json(data: object) -> MeanMechanism:
    """Rebuild a mechanism for means likewise."""
    name, fields = _named(data, MEANS)
    return MEANS[name].from_json(fields)


def _named(data: object, known: Collection[str]) -> tuple[str, JsonObject]:
    name = data.get("name") if isinstance(data, dict) else None
    if not isinstance(data, dict) or not isinstance(name, str) or name not in known:
        raise ReportError("not a mechanism this version knows", value=data)
    return name, data
