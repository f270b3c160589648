"""The error of a release against the true table, and empirical audits of mechanisms."""

from dither.evaluation.auditing import LOCAL_NAMES, Audit, audit, audited_mechanism, log_ratio_limit
from dither.evaluation.compare import Evaluation, SDMetricsScores, evaluate, sdmetrics_metadata
from dither.evaluation.metrics import (
    ColumnDistances,
    WaySummary,
    attribute_sets,
    evaluate_codes,
    marginal,
    tvd,
)

__all__ = [
    "LOCAL_NAMES",
    "Audit",
    "ColumnDistances",
    "Evaluation",
    "SDMetricsScores",
    "WaySummary",
    "attribute_sets",
    "audit",
    "audited_mechanism",
    "evaluate",
    "evaluate_codes",
    "log_ratio_limit",
    "marginal",
    "sdmetrics_metadata",
    "tvd",
]
