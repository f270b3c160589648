"""Dither: learn from people's records without ever holding them.

    import dither
    release = dither.publish(df, epsilon=4.0)
    release.synthetic            # a table like df
    release.marginal(["age"])    # frequencies with standard errors
    release.save("out")          # synthetic.parquet, release.json, report.html

Names load when first used, so that `import dither` is quick.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from dither import histogram as histogram
    from dither.datasets import load_dataset as load_dataset
    from dither.errors import DitherError as DitherError
    from dither.evaluate import evaluate as evaluate
    from dither.evaluate.bootstrap import bootstrap as bootstrap
    from dither.planner import plan as plan
    from dither.publish import publish as publish
    from dither.release import Release as Release
    from dither.release import load_release as load_release
    from dither.schema import Attribute as Attribute
    from dither.schema import Schema as Schema
    from dither.schema import load_schema as load_schema
    from dither.schema.infer import infer_schema as infer_schema

_HOMES = {
    "Attribute": "dither.schema",
    "bootstrap": "dither.evaluate.bootstrap",
    "DitherError": "dither.errors",
    "Release": "dither.release",
    "Schema": "dither.schema",
    "infer_schema": "dither.schema.infer",
    "load_dataset": "dither.datasets",
    "load_release": "dither.release",
    "load_schema": "dither.schema",
    "plan": "dither.planner",
}

# Packages that are called like functions: dither.histogram(values, ...), and dither.histogram.Consumer.
_CALLABLE = ("evaluate", "histogram", "publish")

__all__ = ["__version__", *sorted({*_HOMES, *_CALLABLE})]  # noqa: PLE0604 (names are strings, gathered from the table above)


def __getattr__(name: str) -> Any:
    if name in _CALLABLE:
        return import_module(f"dither.{name}")
    if name in _HOMES:
        value = getattr(import_module(_HOMES[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'dither' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
