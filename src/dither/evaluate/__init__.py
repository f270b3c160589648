"""12. How good a release is: distances of marginals, with the truth; and what a mechanism gives away, measured."""

from dither.callable_module import make_callable
from dither.evaluate.compare import Evaluation, evaluate
from dither.evaluate.metrics import WaySummary, evaluate_codes, evaluate_model

__all__ = ["Evaluation", "WaySummary", "evaluate", "evaluate_codes", "evaluate_model"]

make_callable(__name__)  # so that dither.evaluate(...) works though the package has been imported
