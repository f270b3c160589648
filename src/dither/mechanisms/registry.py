"""All mechanisms by name: built for an epsilon, rebuilt from JSON, or chosen for accuracy.

A new mechanism is a module in this package, its batch code in `kernels`, one line here and
its test vectors.
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
from dither.mechanisms.grr import GRR
from dither.mechanisms.hadamard import Hadamard
from dither.mechanisms.local_hash import LocalHash
from dither.mechanisms.means import Duchi, Hybrid, MeanMechanism, Piecewise
from dither.mechanisms.probability import check_epsilon
from dither.mechanisms.set_strategy import SetStrategy
from dither.mechanisms.several_means import DuchiVector, MultiMean
from dither.mechanisms.square_wave import SquareWave
from dither.mechanisms.subset import SubsetSelection
from dither.mechanisms.unary import Unary, oue, sue
from dither.plugins import plugin

if TYPE_CHECKING:
    from dither.types import JsonObject


@dataclass(frozen=True)
class BestSettings:
    """Tuned constants of the mechanism "best"."""

    # Beyond this a unary report exceeds 512 bytes; local hashing is as accurate in ten.
    unary_cells: int = 4096
    # Subset selection is simulated participant by participant, which is slow: it is chosen
    # only if it reduces the variance at least by this factor.
    subset_gain: float = 0.95


SETTINGS = BestSettings()


@dataclass(frozen=True)
class Kind:
    """A mechanism class and its builder `build(cells, epsilon)`, if it can be built by name."""

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
# Mechanisms for questions about several attributes: marginals have exact errors.
POOLED_NAMES = (
    *(name for name, kind in MECHANISMS.items() if kind.build and kind.cls.exact_groups),
    "best",
)


def mechanism(name: str, cells: int, epsilon: float) -> Mechanism:
    """Build a mechanism for frequencies by name; results are cached.

    Args:
        name: One of `NAMES`, or the name of an installed plug-in.
        cells: The number of cells.
        epsilon: The largest epsilon of one report.

    Raises:
        ParameterError: The name or the number of cells is not supported.
        PrivacyError: The mechanism cannot be drawn at this epsilon, or a plug-in exceeds it.
    """
    if name not in NAMES:
        kind = plugin_kind(name)
        if kind is None or kind.build is None:
            check_choice("mechanism", name, NAMES)
    return _built(name, check_cells(cells), check_epsilon(epsilon))


def plugin_kind(name: str) -> Kind | None:
    """The plug-in mechanism of this name, if one is installed; built-in names take precedence."""
    if name in MECHANISMS or name in MEANS:
        return None
    added = plugin("mechanisms", name)
    if added is None:
        return None
    cls = added.load()
    if not (isinstance(cls, type) and issubclass(cls, Mechanism)):
        raise added.fault("is not a subclass of dither.mechanisms.Mechanism")
    if getattr(cls, "name", None) != name:
        raise added.fault(
            f"calls itself {getattr(cls, 'name', None)!r} in `name`; both names must be the same"
        )
    return Kind(cls, getattr(cls, "for_epsilon", None))


@lru_cache(maxsize=4096, typed=True)
def _built(name: str, cells: int, epsilon: float) -> Mechanism:
    # Cached: rational arithmetic is slow, and a plan has many questions of equal size.
    build: Callable[..., Mechanism] | None = best
    if name != "best":
        kind = MECHANISMS.get(name) or plugin_kind(name)
        assert kind is not None
        build = kind.build
    assert build is not None
    made = build(cells, epsilon)
    if made.epsilon > epsilon:
        raise PrivacyError(
            f"mechanism {name!r} spends epsilon {made.epsilon}, more than the {epsilon} asked for"
        )
    return made


def best(cells: int, epsilon: float) -> Mechanism:
    """The mechanism with the least total variance over its cells.

    Beyond 4,096 cells local hashing replaces unary encodings.
    """
    check_cells(cells)
    wide: Mechanism = (
        oue(cells, epsilon)
        if cells <= SETTINGS.unary_cells
        else LocalHash.for_epsilon(cells, epsilon)
    )
    try:
        chosen = min(wide, GRR.for_epsilon(cells, epsilon), key=_error)
    except PrivacyError:
        # 32-bit draws cannot express this epsilon for that many cells.
        return wide
    if cells <= SETTINGS.unary_cells:
        try:
            subset = SubsetSelection.for_epsilon(cells, epsilon)
        except PrivacyError:
            # Epsilon is so small that covering and missing arcs round to the same draws.
            return chosen
        if subset.size > 1 and _error(subset) <= SETTINGS.subset_gain * _error(chosen):
            return subset
    return chosen


def _error(mechanism: Mechanism) -> float:
    return mechanism.total_variance


def mechanism_from_json(data: object) -> Mechanism:
    """Rebuild a mechanism of cells from its integers; epsilon is recomputed, never trusted.

    Raises:
        ReportError: The JSON does not describe a mechanism.
    """
    kind, fields = _kind(data)
    return kind.cls.from_json(fields)


def list_fields(data: object) -> Collection[str]:
    """The parameters of a mechanism of cells that are lists."""
    name, _ = _named(data, MECHANISMS)
    return MECHANISMS[name].cls.list_fields


def device_work(data: object) -> DeviceWork:
    """The cost of rebuilding a mechanism of cells on a device."""
    kind, numbers = _kind(data)
    return kind.cls.device_work(numbers)


def _kind(data: object) -> tuple[Kind, JsonObject]:
    """The kind that JSON names, built in or an installed plug-in; nothing is downloaded."""
    name = data.get("name") if isinstance(data, dict) else None
    if isinstance(data, dict) and isinstance(name, str) and name not in MECHANISMS:
        try:
            added = plugin_kind(name)
        except InputError as error:
            raise ReportError(str(error), value=data) from None
        if added is not None:
            return added, data
    builtin, fields = _named(data, MECHANISMS)
    return MECHANISMS[builtin], fields


def mean_from_json(data: object) -> MeanMechanism:
    """Rebuild a mechanism for means from its integers."""
    name, fields = _named(data, MEANS)
    return MEANS[name].from_json(fields)


def _named(data: object, names: Collection[str]) -> tuple[str, JsonObject]:
    name = data.get("name") if isinstance(data, dict) else None
    if not isinstance(data, dict) or not isinstance(name, str) or name not in names:
        raise ReportError("not a mechanism that this version supports", value=data)
    return name, data
