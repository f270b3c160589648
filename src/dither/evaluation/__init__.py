"""The error of a release against the true table, and empirical audits of mechanisms."""

from dither.evaluation.compare import Evaluation, evaluate
from dither.evaluation.metrics import WaySummary, evaluate_codes
from dither.evaluation.own_scale import OwnScale

__all__ = ["Evaluation", "OwnScale", "WaySummary", "evaluate", "evaluate_codes"]
