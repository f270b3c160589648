"""The central mechanisms by name: one signature, a reference, the largest domain."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dither.central import csm, dppro, fourier, hierarchical, laplace, privbayes, privelet
from dither.central.domain import MOST_CELLS
from dither.central.strategy import HistogramRelease
from dither.errors import ParameterError


@dataclass(frozen=True)
class Entry:
    """A mechanism: `release(counts, epsilon, source, rng=, neighbours=, shape=, **parameters)` -> HistogramRelease.

    `source` is the secret noise, `rng` public randomness (matrices, the first node of a network).
    """

    name: str
    title: str
    release: Callable[..., HistogramRelease]
    reference: str
    parameters: tuple[str, ...] = ()
    most_cells: int = MOST_CELLS


CENTRAL: dict[str, Entry] = {
    entry.name: entry
    for entry in (
        Entry(
            "csm", "compressed sensing, histogram form", csm.release, "Zheng et al. 2020",
            ("tau", "measurement", "dictionary", "sparsity", "total", "records"),
        ),
        Entry("laplace", "noise on every cell (LM)", laplace.release, "Dwork et al. 2006"),
        Entry("privelet", "weighted Haar wavelet", privelet.release, "Xiao et al. 2011"),
        Entry("hierarchical", "tree of counts (HM)", hierarchical.release, "Hay et al. 2010", ("branching",)),
        Entry("fourier", "privately chosen low frequencies (FM)", fourier.release, "Acs et al. 2012", ("frequencies",)),
        Entry("privbayes", "Bayesian network", privbayes.release, "Zhang et al. 2017", ("degree", "theta")),
        Entry(
            "dppro", "random projection, decoded linearly", dppro.release, "Xu et al. 2017",
            ("tau", "measurement", "decode"),
        ),
    )
}  # fmt: skip


def central_mechanism(name: str) -> Entry:
    """The mechanism of this name; an error lists the ones there are."""
    try:
        return CENTRAL[name]
    except KeyError:
        raise ParameterError(
            f"central mechanism {name!r} is not known; use one of {', '.join(CENTRAL)}", where="mechanism", value=name
        ) from None
