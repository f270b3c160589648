"""Forecasts of a collection's accuracy from its schema, participants and epsilon."""

from dither.planner.forecasting import (
    BASELINE,
    Expectation,
    Forecast,
    Point,
    expect,
    forecast,
)
from dither.planner.prediction import (
    Prediction,
    assumed_dependence,
    population_of,
    predict,
    reference_population,
)

__all__ = [
    "BASELINE",
    "Expectation",
    "Forecast",
    "Point",
    "Prediction",
    "assumed_dependence",
    "expect",
    "forecast",
    "population_of",
    "predict",
    "reference_population",
]
