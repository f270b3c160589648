"""Predicts the error of a collection before anybody is asked, from the schema, the participants and epsilon alone."""

from dither.planner.advise import Forecast, plan
from dither.planner.predict import DEPENDENCE, Prediction, assumed_dependence, predict, reference_population

__all__ = [
    "DEPENDENCE",
    "Forecast",
    "Prediction",
    "assumed_dependence",
    "plan",
    "predict",
    "reference_population",
]
