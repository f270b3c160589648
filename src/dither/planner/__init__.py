"""What a collection can be expected to give, before anybody is asked."""

from dither.planner.forecasting import BASELINE, Forecast, Point, forecast, least
from dither.planner.population import (
    assumed_dependence,
    population_of,
    reference_population,
    typical_dependence,
)
from dither.planner.predict import Prediction, predict

__all__ = [
    "BASELINE",
    "Forecast",
    "Point",
    "Prediction",
    "assumed_dependence",
    "forecast",
    "least",
    "population_of",
    "predict",
    "reference_population",
    "typical_dependence",
]
