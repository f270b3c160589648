"""Predicts the error of a collection before anybody is asked, from the schema, the participants and epsilon alone."""

from dither.planner.advise import Forecast, plan
from dither.planner.predict import Prediction, predict
from dither.planner.reference import DEPENDENCE, assumed_dependence, reference_population

__all__ = [
    "DEPENDENCE",
    "Forecast",
    "Prediction",
    "assumed_dependence",
    "plan",
    "predict",
    "reference_population",
]
