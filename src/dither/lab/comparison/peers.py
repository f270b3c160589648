"""Synthesisers of other libraries behind one interface. Each runs only if named and installed.

All of them serve a curator who holds every record. At the same epsilon that is a weaker
promise than local privacy and an easier problem, so their figures are a yardstick.

Their libraries need versions that Dither cannot run with (dpmm: NumPy 1). They therefore
run in an environment `venv-LIBRARY` of the folder that the variable DITHER_PEERS names, or
in this one if it has the library.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from dither.errors import ParameterError
from dither.lab.comparison import peer_worker
from dither.plugins import Plugin, plugin, usable
from dither.types import Codes

Draw = Callable[[int], Codes]
Fit = Callable[[Codes, Mapping[str, int], float, int], Draw]
DELTA = 1e-9
CENTRAL = "central"
FOLDER = "DITHER_PEERS"
_ONE_THREAD = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")


@dataclass(frozen=True)
class Peer:
    """A synthesiser of another library.

    Attributes:
        name: Name of the peer in `compare`.
        needs: Module that must be installed.
        fit: A function of codes (a row per person, a column per attribute), the number of
            values of each attribute by name, epsilon and a seed. It returns a function that
            draws a given number of rows of codes.
        trust: "local" if no party holds a record, "central" if a curator does.
    """

    name: str
    needs: str
    fit: Fit
    trust: str = CENTRAL

    @property
    def installed(self) -> bool:
        """Whether its library is installed."""
        return _has(self.needs)


@dataclass(frozen=True)
class _SeparatePeer(Peer):
    """A peer whose library may have an environment, `venv-ENVIRONMENT`, to itself."""

    environment: str = ""

    @property
    def python(self) -> str | None:
        """The interpreter of its environment, this one if it has the library, or None."""
        if FOLDER in os.environ:
            folder = Path(os.environ[FOLDER], f"venv-{self.environment}")
            for path in (folder / "bin" / "python", folder / "Scripts" / "python.exe"):
                if path.is_file():
                    return str(path)
        return sys.executable if _has(self.needs) else None

    @property
    def installed(self) -> bool:
        """Whether an interpreter has its library."""
        return self.python is not None


class Drawn:
    """Rows of a library that runs in another process, and the resources it took.

    Args:
        python: Interpreter that has the library.
        library: Name of the library in `peer_worker.LIBRARIES`.
        model: Name of the model in that library.
        codes: Rows to fit.
        options: Arguments of the fit in JSON values.
    """

    def __init__(
        self, python: str, library: str, model: str, codes: Codes, options: Mapping[str, Any]
    ) -> None:
        self._call = (python, "-W", "ignore", peer_worker.__file__, library, model)
        self._codes = codes
        self._options = options
        self.cpu_seconds = self.peak_megabytes = 0.0

    def __call__(self, rows: int) -> Codes:
        """Fit the library and draw rows.

        Raises:
            ParameterError: If the library fails, with the last line of its output.
        """
        # A temporary folder is private to this user.
        with tempfile.TemporaryDirectory(prefix="dither-peer-") as place:
            folder = Path(place)
            np.save(folder / "codes.npy", self._codes)
            (folder / "asked.json").write_text(
                json.dumps({**self._options, "rows": rows}), encoding="utf-8"
            )
            self._run(place)
            resources = json.loads((folder / "told.json").read_text(encoding="utf-8"))
            self.cpu_seconds = resources["cpu_seconds"]
            self.peak_megabytes = resources["peak_megabytes"]
            return np.asarray(np.load(folder / "rows.npy"), dtype=np.int32)

    def _run(self, place: str) -> None:
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        with subprocess.Popen(
            [*self._call, place],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env=environment | _ONE_THREAD | {"JAX_PLATFORMS": "cpu"},
        ) as child:
            assert child.stderr is not None
            # The child ends when its input is closed, so that stays open until the end.
            errors = child.stderr.read()
        if child.returncode:
            lines = errors.strip().splitlines() or ["killed by the system, perhaps out of memory"]
            raise ParameterError(lines[-1], where="methods")


def _has(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        # The package of a submodule is missing.
        return False


def _separate(environment: str, library: str, model: str) -> _SeparatePeer:
    def fit(codes: Codes, domain: Mapping[str, int], epsilon: float, seed: int) -> Draw:
        python = peer.python
        assert python is not None
        options = {"domain": dict(domain), "epsilon": epsilon, "delta": DELTA, "seed": seed}
        return Drawn(python, library, model, codes, options)

    peer = _SeparatePeer(f"{environment}-{model.lower()}", library, fit, environment=environment)
    return peer


PEERS: dict[str, Peer] = {
    peer.name: peer
    for peer in (
        _separate("dpmm", "dpmm", "MST"),
        _separate("dpmm", "dpmm", "AIM"),
        _separate("smartnoise", "snsynth", "MST"),
        _separate("smartnoise", "snsynth", "AIM"),
    )
}


def peers() -> dict[str, Peer]:
    """All peers by name, including those of plug-ins; broken plug-ins are left out."""
    return PEERS | usable("peers", PEERS, _read)[0]


def find_peer(name: str) -> Peer | None:
    """A peer by name, or None.

    Raises:
        ParameterError: If its library is not installed.
    """
    peer = PEERS.get(name)
    if peer is None and (added := plugin("peers", name)) is not None:
        peer = _read(added)
    if peer is not None and not peer.installed:
        raise ParameterError(
            f"{name} needs the library {peer.needs}, which is not installed; "
            "see 'Compare methods on your own table'",
            where="methods",
        )
    return peer


def _read(added: Plugin) -> Peer:
    loaded = added.load()
    if not isinstance(loaded, Peer) or loaded.name != added.name:
        raise added.fault("is not a dither.lab.comparison.Peer of that name")
    return loaded
