"""The methods with the parameters of their papers: one preset each, for `as_published`.

Dither's defaults depart from every paper where a measurement or an erratum (docs/errata.md)
calls for it. A preset sets the encoding, threshold, weights, stopping rule and sample that the
authors used. Epsilon is stated as always, for the whole record, whatever the paper counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from dither.errors import ParameterError
from dither.types import JsonMapping, JsonObject

# A method's name with this suffix is the method as published.
SUFFIX = "@published"
_NONE: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True)
class Preset:
    """The parameters of one paper.

    Attributes:
        source: The paper and the place where it states the parameters.
        parameters: For every table.
        binary: Those that differ on a table of yes-or-no attributes.
        remark: What the preset cannot take over from the paper.
    """

    source: str
    parameters: Mapping[str, Any]
    binary: Mapping[str, Any] = field(default_factory=lambda: _NONE)
    remark: str = ""


_LOPUB = Preset(
    "Ren et al. 2018, sections 5 and 6",
    {
        "encoding": "bloom",
        "bits": 128,
        "hashes": 4,
        "estimator": "em",
        "lasso_features": "paper",
        "em": "printed",
        "tolerance": 1e-3,
        "threshold": "paper",
        "phi": 0.4,
        "pruning": "paper",
        "fit": "cliques",
        "sample": 0.1,
    },
    {"bits": 32, "phi": 0.25, "sample": 0.5},
    "cliques stay within max_clique_cells, since EM visits every cell for every report",
)
_BAYESNET = Preset(
    "Ju et al. 2020, algorithms 1 to 4, section 6.1",
    {
        "plan": "split",
        "root": "entropy",
        "candidates": "cached",
        "degree": 2,
        "em": "printed",
        "tolerance": 1e-3,
    },
    remark="the paper's Adult has about 2^26 cells; `benchmarks/bayesnet.py` cuts it likewise",
)
_PRIVINCR: Mapping[str, Any] = {
    "omega": 0.5,
    "threshold": "plain",
    "unit": "bits",
    "phi": 0.3,
    "weights": "paper",
    "mechanism": "oue",
    "shares": "cells",
    "singles": 0.0,
    "fit": "paper",
    "max_clique_cells": 100_000,
}
_CAP = (
    "the paper has no cap on cliques; with 100,000 cells each, tables still fit in memory. "
    "Eq. 15 in nats is unit=nats, eq. 18 threshold=paper"
)
_HISTOGRAM = Preset("Zheng et al. 2021, sections 4 and 5", {"mechanism": "sue"})
_CSM: Mapping[str, Any] = {"tau": 0.4, "measurement": "gaussian", "dictionary": "dct"}
PUBLISHED: Mapping[str, Preset] = MappingProxyType(
    {
        "lopub": _LOPUB,
        "bayesnet": _BAYESNET,
        "privincr": Preset(
            "Liu et al. 2023, algorithms 1 to 3, section 6.1",
            {"rounds": 6, **_PRIVINCR},
            remark=_CAP,
        ),
        "noincremental": Preset("Liu et al. 2023, section 6.1", _PRIVINCR, remark=_CAP),
        "csm": Preset(
            "Zheng et al. 2020, sections IV and V-E",
            {**_CSM, "total": False},
            remark="noise follows the exact sensitivity, not definition 5 (erratum 13)",
        ),
        "csm-records": Preset(
            "Zheng et al. 2020, algorithm 1 on the d x n matrix",
            {**_CSM, "form": "paper"},
            remark="noise follows the exact sensitivity, not definition 5 (erratum 13)",
        ),
        "chp": _HISTOGRAM,
        "shp": _HISTOGRAM,
        "split": _HISTOGRAM,
        "sampled": _HISTOGRAM,
    }
)


def check_published(method: str) -> Preset:
    """The preset of a method.

    Raises:
        ParameterError: The method has none.
    """
    if method not in PUBLISHED:
        names = ", ".join(PUBLISHED)
        raise ParameterError(
            f"method {method!r} has no published parameters; those of {names} are known",
            where="as_published",
            value=method,
        )
    return PUBLISHED[method]


def published_parameters(
    method: str, given: JsonMapping | None = None, cardinalities: Sequence[int] = ()
) -> JsonObject:
    """The parameters of a method's paper; those `given` take precedence.

    Args:
        method: Name of the method.
        given: The caller's own parameters by name.
        cardinalities: Of the attributes, if they are known. The papers use other parameters if
            all are 2.

    Raises:
        ParameterError: The method has no published parameters.

    >>> published_parameters("chp")
    {'mechanism': 'sue'}
    """
    preset = check_published(method)
    binary = preset.binary if cardinalities and max(cardinalities) == 2 else _NONE
    own = {key.replace("-", "_"): value for key, value in (given or {}).items()}
    return {**preset.parameters, **binary, **own}
