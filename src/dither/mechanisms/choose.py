"""Which mechanism answers a question of so many cells with the least error. Standard library only."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from dither.errors import ParameterError, PrivacyError, ReportError
from dither.mechanisms.bloom import BloomRappor, bloom_size
from dither.mechanisms.grr import GRR
from dither.mechanisms.hadamard import Hadamard
from dither.mechanisms.local_hash import LocalHash
from dither.mechanisms.mechanism import Mechanism, check_cells, total_variance
from dither.mechanisms.subset import SubsetSelection
from dither.mechanisms.unary import Unary, oue, sue

UNARY_CELLS = 4096  # beyond this a unary report would exceed 512 bytes and local hashing is as accurate in ten
SUBSET_GAIN = 0.95  # subset selection is simulated person by person, so it has to earn its keep

NAMES = ("grr", "sue", "oue", "olh", "subset", "bloom", "best")


def best(cells: int, epsilon: float) -> Mechanism:
    """The mechanism with the least total variance over its cells; local hashing instead of unary beyond 4,096 cells."""
    check_cells(cells)
    wide: Mechanism = LocalHash.for_epsilon(cells, epsilon) if cells > UNARY_CELLS else oue(cells, epsilon)
    candidates: list[Mechanism] = [wide]
    try:
        candidates.append(GRR.for_epsilon(cells, epsilon))
    except PrivacyError:  # so many cells at so small an epsilon that 32-bit draws cannot express it
        return wide
    chosen = min(candidates, key=_error)
    if cells <= UNARY_CELLS:
        try:
            subset = SubsetSelection.for_epsilon(cells, epsilon)
        except PrivacyError:  # so small an epsilon that whole draws cannot tell covering arcs from missing ones
            return chosen
        if subset.size > 1 and _error(subset) <= SUBSET_GAIN * _error(chosen):
            return subset
    return chosen


def _error(mechanism: Mechanism) -> float:
    return total_variance(mechanism.p, mechanism.q, mechanism.cells)


def mechanism(name: str, cells: int, epsilon: float) -> Mechanism:
    """A mechanism by name at an epsilon; Bloom filters get LoPub's size for a false-positive rate of 2.2 %."""
    if name == "best":
        return best(cells, epsilon)
    if name == "grr":
        return GRR.for_epsilon(cells, epsilon)
    if name == "sue":
        return sue(cells, epsilon)
    if name == "oue":
        return oue(cells, epsilon)
    if name == "olh":
        return LocalHash.for_epsilon(cells, epsilon)
    if name == "subset":
        return SubsetSelection.for_epsilon(cells, epsilon)
    if name == "bloom":
        bits, hashes = bloom_size(cells, 0.022)
        return BloomRappor.for_epsilon(cells, epsilon, bits, hashes)
    raise ParameterError(f"no mechanism {name!r}; there are {', '.join(NAMES)}", where="mechanism", value=name)


_CLASSES: dict[str, type[Any]] = {
    "grr": GRR,
    "sue": Unary,
    "oue": Unary,
    "olh": LocalHash,
    "subset": SubsetSelection,
    "bloom": BloomRappor,
    "hadamard": Hadamard,
}


def mechanism_from_json(data: object) -> Mechanism:
    """Rebuild a mechanism from its integers; its epsilon is computed anew from them, never taken on trust."""
    if not isinstance(data, dict) or data.get("name") not in _CLASSES:
        raise ReportError("not a mechanism this version knows", value=data)
    cls = _CLASSES[data["name"]]
    names = {f.name for f in fields(cls)}
    given = {k: v for k, v in data.items() if k != "name" or k in names}
    if set(given) != names or any(
        isinstance(v, bool) or not isinstance(v, int) for k, v in given.items() if k != "name"
    ):
        raise ReportError(f"a {data['name']} mechanism needs the whole numbers {', '.join(sorted(names))}", value=data)
    built: Mechanism = cls(**given)
    return built
