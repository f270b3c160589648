"""The methods by name, with their parameters and references; modules are loaded on use."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any

from dither.errors import ParameterError, PrivacyError
from dither.fit import Model
from dither.methods.diagnostics import Diagnostics
from dither.methods.machine import ProtocolMachine, describe_parameters
from dither.plugins import Plugin, plugin, usable
from dither.schema import Schema
from dither.types import Codes, JsonMapping, JsonObject


@dataclass(frozen=True)
class Method:
    """One method: its module, its class, and what a user should know before choosing it."""

    name: str
    module: str
    machine: str
    asks: str
    summary: str
    reference: str

    def load(self) -> type[ProtocolMachine[Any]]:
        """The machine's class."""
        loaded: type[ProtocolMachine[Any]] = getattr(import_module(self.module), self.machine)
        return loaded

    def parameters(self) -> type[Any]:
        """The dataclass of the method's parameters."""
        return self.load().parameters_class

    def defaults(self) -> JsonObject:
        """Parameter names with their defaults."""
        return describe_parameters(self.parameters())


METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        Method(
            "mixture",
            "dither.methods.mixture",
            "MixtureProtocol",
            "one attribute, pair or larger set per participant, full epsilon, four rounds that follow dependence",
            "The default: rounds that follow dependence, then a mixture of products, a junction tree and the product of "
            "the one-way marginals, averaged by estimated risk.",
            "Dither, docs/explanation/mixture.md",
        ),
        Method(
            "independent",
            "dither.methods.independent",
            "IndependentProtocol",
            "one attribute per participant, full epsilon, one round",
            "One-way marginals as well as they can be learnt, no dependence: the line every other method has to beat.",
            "Wang, Blocki, Li, Jha, USENIX Security 2017 (mechanisms)",
        ),
        Method(
            "lopub",
            "dither.methods.lopub",
            "LoPub",
            "every attribute of every participant, epsilon split over them, one round",
            "Joint distributions by EM, Lasso or both from whole randomised records, a dependency graph and a junction tree.",
            "Ren, Yu, Yu, Yang, Yang, McCann, Yu, IEEE TIFS 2018 (LoPub)",
        ),
        Method(
            "privincr",
            "dither.methods.privincr",
            "PrivIncr",
            "pairs in rounds, then cliques: one question per participant, full epsilon",
            "Prunes weak pairs round by round, then fits a junction tree to all answers.",
            "Liu, Tang, Hu, Jin, Guo, EDBT 2023",
        ),
        Method(
            "noincremental",
            "dither.methods.privincr",
            "NoIncremental",
            "all pairs in one round, then cliques: one question per participant, full epsilon",
            "PrivIncr without its rounds, for comparison.",
            "Liu, Tang, Hu, Jin, Guo, EDBT 2023, section 6.1",
        ),
        Method(
            "calm",
            "dither.methods.calm",
            "Calm",
            "one set of a cover of all pairs per participant, full epsilon, one round",
            "Consistent marginals of covering sets, and a tree fitted to them for rows.",
            "Zhang, Wang, Li, He, Chen, CCS 2018",
        ),
        Method(
            "fourier",
            "dither.methods.calm",
            "Fourier",
            "one Fourier coefficient of a pair per participant, full epsilon, one round",
            "Marginals from randomised Fourier coefficients of attributes written in bits.",
            "Cormode, Kulkarni, Srivastava, SIGMOD 2018",
        ),
        Method(
            "bayesnet",
            "dither.methods.bayesnet",
            "BayesNetwork",
            "one pair or family per participant at full epsilon, two rounds (plan=split: every attribute, epsilon split)",
            "A Bayes network of attribute-parent pairs, sampled from the root down.",
            "Ju, Gu, Wu, Zhang, Sensors 2020",
        ),
    )
}
_CHP = "Zheng, Yan, Duan, Tang, Tian, 2021"
HISTOGRAMS: dict[str, Method] = {
    name: Method(name, f"dither.methods.histogram.{module}", machine, asks, summary, reference)
    for name, module, machine, asks, summary, reference in (
        (
            "chp",
            "machine",
            "Chp",
            "one number, the cell of the union of all consumers' edges, full epsilon, one round",
            "Histograms of a number for many consumers from one report.",
            f"{_CHP}, section 4.2 (CHP)",
        ),
        (
            "shp",
            "machine",
            "Shp",
            "one number, the bin of one consumer, full epsilon, one round",
            "The histogram of a number for one consumer.",
            f"{_CHP}, section 4.1 (SHP)",
        ),
        (
            "split",
            "machine",
            "Split",
            "one number, every consumer's bin of it, epsilon split over them, one round",
            "Histograms of a number by a report per consumer, for comparison.",
            f"{_CHP}, section 5",
        ),
        (
            "sampled",
            "machine",
            "SampledChp",
            "one number of a share of the people, as in chp",
            "CHP with a sample of the people, for comparison.",
            f"{_CHP}, section 5",
        ),
        (
            "smart",
            "machine",
            "Smart",
            "one number, through a report made for the consumers' bins, full epsilon, one round",
            "Histograms of a number with a mechanism designed for the bins that are read off, never worse than chp.",
            "Dither, docs/explanation/histograms.md",
        ),
        (
            "ranges",
            "ranges",
            "Ranges",
            "one number, through a report made for all ranges of fine cells, full epsilon, one round",
            "Ranges, quantiles, means and histograms that nobody named before, with a density as smooth as the reports call for.",
            "Dither, docs/explanation/histograms.md",
        ),
        (
            "square-wave",
            "ranges",
            "Wave",
            "one number, by a report near it on fine cells, full epsilon, one round",
            "A smooth density of a number, its quantiles and histograms.",
            "Li, Wang, Lopuhaa-Zwakenberg, Li, Skoric, SIGMOD 2020",
        ),
    )
}
MEANS: dict[str, Method] = {
    "mean": Method(
        "mean",
        "dither.methods.mean",
        "Mean",
        "one number, rounded at random to a level, full epsilon, one round",
        "The mean of a number by Duchi's mechanism, the piecewise one or the hybrid of both.",
        "Wang, Xiao, Yang, Zhao, Hui, Shin, Shin, Yu, ICDE 2019; Duchi, Jordan, Wainwright, JASA 2018",
    )
}
DEFAULT = "mixture"


@dataclass(frozen=True)
class NonprivateFit:
    """A model of the true records, its parameters and what a release states about it."""

    model: Model
    parameters: JsonObject
    diagnostics: Diagnostics


@dataclass(frozen=True)
class _NonprivateMethod:
    """A method that reads the true records, for comparison; loaded on use."""

    name: str
    module: str
    function: str
    summary: str
    reference: str

    def require_switch(self, no_privacy: bool) -> None:
        """Raise `PrivacyError` unless the caller set `no_privacy`."""
        if not no_privacy:
            raise PrivacyError(
                f"method {self.name!r} reads the true records without protection; "
                "it needs no_privacy",
                where="no_privacy",
            )

    def fit(
        self, codes: Codes, schema: Schema, parameters: JsonMapping, *, no_privacy: bool = False
    ) -> NonprivateFit:
        """Fit the true records. NOT private: epsilon is infinite.

        Raises:
            PrivacyError: `no_privacy` is not set.
            ParameterError: There are no records, or a parameter is unknown or out of range.
        """
        self.require_switch(no_privacy)
        fitted: NonprivateFit = getattr(import_module(self.module), self.function)(
            codes, schema, parameters
        )
        return fitted


NONPRIVATE = _NonprivateMethod(
    "jtree-nonprivate",
    "dither.lab.jtree_nonprivate",
    "fit",
    "NOT private: a junction tree of the true records, to tell a model's own error from that of the noise.",
    "Liu, Tang, Hu, Jin, Guo, EDBT 2023, section 6.1 (NoPrivJTree); Chen, Xiao, Zhang, Xu, KDD 2015",
)


def method(name: str) -> Method:
    """A method by name, plug-ins included.

    Raises:
        ParameterError: The name is unknown, or the plug-in cannot be used.
    """
    builtin = METHODS | HISTOGRAMS | MEANS
    if name in builtin:
        return builtin[name]
    added = plugin("methods", name)
    if added is None:
        there = ", ".join([*methods(), *HISTOGRAMS, *MEANS])
        raise ParameterError(f"no method {name!r}; there are {there}", where="method", value=name)
    return _read(added)


def methods() -> dict[str, Method]:
    """Every method that publishes tables, usable plug-ins last."""
    return METHODS | usable("methods", METHODS | HISTOGRAMS | MEANS, _read)[0]


def plugin_faults() -> list[str]:
    """One line for each plug-in method that cannot be used."""
    return usable("methods", METHODS | HISTOGRAMS | MEANS, _read)[1]


def _read(added: Plugin) -> Method:
    """A plug-in's entry, from the class's docstring and its optional `asks` and `reference`."""
    cls = added.load()
    if not (isinstance(cls, type) and issubclass(cls, ProtocolMachine)):
        raise added.fault("is not a subclass of dither.methods.ProtocolMachine")
    if getattr(cls, "method", None) != added.name:
        raise added.fault(
            f"calls itself {getattr(cls, 'method', None)!r} in `method`; both names must be the same"
        )
    if not isinstance(getattr(cls, "parameters_class", None), type):
        raise added.fault("has no `parameters_class`")
    summary = (cls.__doc__ or "").strip().partition("\n")[0]
    asks, reference = (str(getattr(cls, name, "")) for name in ("asks", "reference"))
    source = f"{added.package} {added.version}"
    return Method(
        added.name,
        cls.__module__,
        cls.__qualname__,
        asks or "see its documentation",
        summary,
        reference or source,
    )
