"""8. Models: a joint distribution with `marginal()` and `sample()`."""

from __future__ import annotations

from importlib import import_module

from dither.errors import ReportError
from dither.models.model import Independent, Model
from dither.tally.archive import decoding, unpack

# A model's kind -> module in this package and class in it; a module is imported when its kind is read.
KINDS: dict[str, str] = {
    "bayes_net": "bayes_net:BayesNet",
    "independent": "model:Independent",
    "junction_tree": "junction_tree:JunctionTree",
    "mixture": "mixture:Mixture",
    "ruled": "ruled:Ruled",
}

__all__ = ["KINDS", "Independent", "Model", "model_from_bytes"]


def model_from_bytes(data: bytes) -> Model:
    """Rebuild any model from what its `to_bytes` gave.

    Raises:
        ReportError: the bytes are not a model of a known kind.
    """
    kind = unpack(data)[0].get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        raise ReportError(
            f"a model of kind {kind!r} is not known; this version reads {', '.join(sorted(KINDS))}",
            value=kind,
        )
    module, name = KINDS[kind].split(":")
    with decoding("model"):
        model: Model = getattr(import_module(f"dither.models.{module}"), name).from_bytes(data)
    return model
