"""Histograms and means of numeric values for many consumers, each with its own bins.

    import dither
    release = dither.histogram(values, consumers=[3, 5, 7], epsilon=3.0, low=0, high=100)
    release.consumers[0].estimates

The package itself can be called, as above; its names load when first used, so that a device that needs one mechanism
imports the standard library only.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from dither.callable_module import make_callable

if TYPE_CHECKING:
    from dither.histogram.api import histogram as histogram
    from dither.histogram.consumer import Consumer as Consumer
    from dither.histogram.duchi_vector import DuchiVector as DuchiVector
    from dither.histogram.late import LateAnswer as LateAnswer
    from dither.histogram.means import Duchi as Duchi
    from dither.histogram.means import Hybrid as Hybrid
    from dither.histogram.means import Piecewise as Piecewise
    from dither.histogram.means import mean_mechanism as mean_mechanism
    from dither.histogram.multi import MultiMean as MultiMean
    from dither.histogram.multi import multi_mean as multi_mean
    from dither.histogram.partition import Partition as Partition
    from dither.histogram.release import ConsumerHistogram as ConsumerHistogram
    from dither.histogram.release import HistogramRelease as HistogramRelease
    from dither.histogram.several import several_values as several_values
    from dither.histogram.square_wave import SquareWave as SquareWave
    from dither.histogram.strategy import Strategy as Strategy

_HOMES = {
    "Consumer": "consumer",
    "ConsumerHistogram": "release",
    "Duchi": "means",
    "DuchiVector": "duchi_vector",
    "HistogramRelease": "release",
    "Hybrid": "means",
    "LateAnswer": "late",
    "MultiMean": "multi",
    "Partition": "partition",
    "Piecewise": "means",
    "SquareWave": "square_wave",
    "Strategy": "strategy",
    "histogram": "api",
    "mean_mechanism": "means",
    "multi_mean": "multi",
    "several_values": "several",
}

__all__ = [*sorted(_HOMES)]  # noqa: PLE0604 (names are strings, gathered from the table above)


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        value = getattr(import_module(f"dither.histogram.{_HOMES[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'dither.histogram' has no attribute {name!r}")


make_callable(__name__)  # the package as the function of the same name
