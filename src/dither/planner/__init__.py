"""Forecasts of a collection's accuracy from its schema, participants and epsilon."""

from dither.planner.forecasting import BASELINE, Forecast, Point, forecast
from dither.planner.prediction import (
    Prediction,
    assumed_dependence,
    population_of,
    predict,
    reference_population,
)

__all__ = [
    "BASELINE",
    "Forecast",
    "Point",
    "Prediction",
    "assumed_dependence",
    "forecast",
    "population_of",
    "predict",
    "reference_population",
]
