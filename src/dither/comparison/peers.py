"""Synthesisers of other libraries behind one small interface; each is loaded only when it is named and installed.

All of these work for a curator who holds every record, which at the same epsilon is a far weaker promise than local privacy and a
far easier problem: their lines are a yardstick. No tuning: each runs as its documentation shows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np

from dither.errors import ParameterError
from dither.plugins import Plugin, plugin, usable
from dither.types import Codes

Draw = Callable[[int], Codes]
Fit = Callable[[Codes, Mapping[str, int], float, int], Draw]
DELTA = 1e-9
CENTRAL = "central"


@dataclass(frozen=True)
class Peer:
    """A synthesiser from elsewhere.

    `fit` takes whole numbers (one row per person, a column per attribute), the number of values of each attribute by name, epsilon
    and a seed, and gives a function that draws so many rows of such numbers. `needs` is the module that must be installed, `trust`
    says what epsilon promises: "local" if nobody holds a record, "central" if a curator does.
    """

    name: str
    needs: str
    fit: Fit
    trust: str = CENTRAL

    @property
    def installed(self) -> bool:
        """Whether its library is there."""
        try:
            return find_spec(self.needs) is not None
        except ModuleNotFoundError:  # a part of a package that is not there
            return False


def _dpmm(model: str, codes: Codes, domain: Mapping[str, int], epsilon: float, seed: int) -> Draw:
    pandas: Any = import_module("pandas")
    made: Any = getattr(import_module(f"dpmm.models.{model.lower()}"), f"{model}GM")
    synthesiser = made(epsilon=epsilon, delta=DELTA, n_jobs=1)
    synthesiser.set_domain(dict(domain))
    synthesiser.set_random_state(np.random.RandomState(seed))
    synthesiser.fit(pandas.DataFrame(codes, columns=list(domain)))
    return lambda rows: synthesiser.generate(n_records=rows)[list(domain)].to_numpy(dtype=np.int32)


def _smartnoise(model: str, codes: Codes, domain: Mapping[str, int], epsilon: float, seed: int) -> Draw:
    pandas: Any = import_module("pandas")
    made: Any = getattr(import_module(f"snsynth.{model.lower()}"), f"{model}Synthesizer")
    np.random.seed(seed)  # noqa: NPY002  (it draws from the global state, beside noise that has no seed)
    synthesiser = made(epsilon=epsilon, delta=DELTA)
    synthesiser.fit(pandas.DataFrame(codes, columns=list(domain)), categorical_columns=list(domain))
    return lambda rows: np.asarray(synthesiser.sample(rows), dtype=np.int32)


PEERS: dict[str, Peer] = {
    peer.name: peer
    for peer in (
        Peer("dpmm-mst", "dpmm", partial(_dpmm, "MST")),
        Peer("dpmm-aim", "dpmm", partial(_dpmm, "AIM")),
        Peer("smartnoise-mst", "snsynth", partial(_smartnoise, "MST")),
        Peer("smartnoise-aim", "snsynth", partial(_smartnoise, "AIM")),
    )
}


def peers() -> dict[str, Peer]:
    """Every peer there is an adapter for, other packages' included; a broken plug-in is left out."""
    return PEERS | usable("peers", PEERS, _read)[0]


def find_peer(name: str) -> Peer | None:
    """A peer by name, None if there is none; an error in one line where its library is not installed."""
    found = PEERS.get(name)
    if found is None and (added := plugin("peers", name)) is not None:
        found = _read(added)
    if found is not None and not found.installed:
        raise ParameterError(f"{name} needs the library {found.needs}, which is not installed here", where="methods")
    return found


def _read(added: Plugin) -> Peer:
    loaded = added.load()
    if not isinstance(loaded, Peer) or loaded.name != added.name:
        raise added.fault("is no dither.comparison.Peer of that name")
    return loaded
