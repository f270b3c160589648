"""The error of a release against the true table, and empirical audits of mechanisms."""

from dither.evaluation.compare import Evaluation, evaluate
from dither.evaluation.metrics import ColumnDistances, WaySummary, evaluate_codes

__all__ = ["ColumnDistances", "Evaluation", "WaySummary", "evaluate", "evaluate_codes"]
