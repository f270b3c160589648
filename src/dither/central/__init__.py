"""Trusted-curator methods: a curator holds the whole table and releases part of it.

The trust model is central: in the rest of the package only the participant holds a
record. The record form of `csm` is the exception: it adds noise to each record, so it
is local.

This module lists the methods by name, with their parameters and references.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dither.central import csm, dawa, fourier, grid, linear, privbayes, projection, records
from dither.central.linear import Axis, Cells, Each, Product
from dither.central.measurement import (
    CuratorTask,
    LinearMeasurement,
    Neighbours,
    NoisyHistogram,
    check_neighbours,
    domain_size,
    observe,
)
from dither.central.noise import (
    ByteSource,
    achieved_epsilon,
    bernoulli_exp,
    calibrate,
    choose,
    discrete_laplace,
    exponents,
    noise_variance,
    seeded_source,
    uniform_below,
)
from dither.checks import check_choice

__all__ = [
    "CENTRAL",
    "RECORDS",
    "Axis",
    "ByteSource",
    "Cells",
    "CentralMethod",
    "CuratorTask",
    "Each",
    "LinearMeasurement",
    "Neighbours",
    "NoisyHistogram",
    "Product",
    "achieved_epsilon",
    "bernoulli_exp",
    "calibrate",
    "central_method",
    "check_neighbours",
    "choose",
    "discrete_laplace",
    "domain_size",
    "exponents",
    "noise_variance",
    "observe",
    "seeded_source",
    "uniform_below",
]

RECORDS = "csm-records"


@dataclass(frozen=True)
class CentralMethod:
    """A method with the class of its parameters.

    `release` is None for the record form, which returns rows. `partial` means that the
    method omits what it does not measure or model.
    """

    name: str
    title: str
    reference: str
    parameters: type
    release: Callable[[CuratorTask, Any], NoisyHistogram] | None
    partial: bool = False


_METHODS = (
    CentralMethod(
        "csm", "compressed sensing, histogram form", "Zheng et al. 2020", csm.CsmParameters, csm.release, partial=True
    ),
    CentralMethod("laplace", "noise on every cell (LM)", "Dwork et al. 2006", linear.NoParameters, linear.laplace),
    CentralMethod(
        "threshold", "noise on every cell, small ones dropped", "Cormode et al. 2012", linear.NoParameters, linear.threshold,
        partial=True,
    ),
    CentralMethod(
        "privelet", "weighted Haar wavelets, axis by axis", "Xiao et al. 2011", linear.PriveletParameters, linear.privelet
    ),
    CentralMethod(
        "hierarchical", "trees of counts, fan-out chosen (HB)", "Qardaji et al. 2013, Hay et al. 2010",
        linear.HierarchicalParameters, linear.hierarchical,
    ),
    CentralMethod(
        "dawa", "buckets of like cells, then a tree", "Li et al. 2014", dawa.DawaParameters, dawa.release, partial=True
    ),
    CentralMethod(
        "agrid", "adaptive grids of two columns", "Qardaji et al. 2013", grid.GridParameters, grid.release, partial=True
    ),
    CentralMethod(
        "fourier", "privately chosen low frequencies (FM)", "Acs et al. 2012", fourier.LowFrequencyParameters,
        fourier.release, partial=True,
    ),
    CentralMethod(
        "privbayes", "Bayesian network", "Zhang et al. 2017", privbayes.PrivBayesParameters, privbayes.release, partial=True
    ),
    CentralMethod(
        "projection", "random projection, decoded linearly", "after Xu et al. 2017", projection.ProjectionParameters,
        projection.release, partial=True,
    ),
    CentralMethod(RECORDS, "compressed sensing, record form", "Zheng et al. 2020", records.RecordParameters, None),
)  # fmt: skip
CENTRAL: dict[str, CentralMethod] = {method.name: method for method in _METHODS}


def central_method(name: str) -> CentralMethod:
    """The method of this name; an error lists the known ones."""
    return CENTRAL[check_choice("method", name, CENTRAL)]
