"""12. How good a release is: distances of marginals, with the truth; and what a mechanism gives away, measured."""

from dither.evaluation.compare import Evaluation, evaluate
from dither.evaluation.metrics import WaySummary, evaluate_codes
from dither.evaluation.own_scale import OwnScale

__all__ = ["Evaluation", "OwnScale", "WaySummary", "evaluate", "evaluate_codes"]
