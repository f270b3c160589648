"""Dither: learn from people's records without ever holding them.

Each participant's device adds noise to its own record; the server sees noise only; out comes a synthetic table, histograms and
marginals with honest error bars. `epsilon` is always the guarantee of one participant's whole record: what anyone can learn about
a person changes by at most a factor e^epsilon, for every record. Around 1 is strong, 8 is weak.

Publish a table, each row one simulated participant (a pandas, polars or PyArrow table, a file, or a bundled name):

    >>> import dither
    >>> release = dither.publish("adult", epsilon=4.0, columns=["sex", "education", "income"], rows=1000)
    >>> release.synthetic.num_rows           # a table like the one given
    1000
    >>> release.marginal(["sex"]).labels     # and its frequencies, with standard errors
    (('Female', 'Male'),)

    release.query("income == '>50K'", given="sex == 'Female'")    a share with its interval
    release.save("out")                      synthetic.parquet, release.json, report.html; dither.load_release reads them

What to use when:

    dither.forecast(schema, participants, epsilon)     will it work? before anybody is asked
    dither.compare(table, epsilons=[1, 2, 4])          which method suits this table?
    dither.publish(table, epsilon=4.0)                 a synthetic table, and answers with intervals
    dither.Synthesiser(epsilon=4.0).fit(df).sample()   the same as a scikit-learn estimator
    dither.histogram(values, consumers=[3, 5, 7], ...) histograms of one number; dither.several_values for lists of numbers
    dither.panel(table, person="id", time="week", ...)  answers that change over time, simulated
    dither.discover(texts, epsilon=4.0, top=20)        frequent words, addresses, products that no schema lists
    dither.evaluate(real, synthetic)                   how far a synthetic table is from a real one
    dither.central_release(table, epsilon=1.0)         another trust model: a curator holds the whole table
    dither.mechanism("oue", cells=16, epsilon=1.0)     one randomiser with its estimator, for a protocol of your own

A collection from real participants runs by `dither serve` and `dither campaign`; see `dither --help`. Schemas (`dither.Schema`,
`dither.load_schema`) state the public domain of a record: one inferred from private rows leaks them. Errors are
`dither.DitherError`, one clear line each. Names load when first used, so that `import dither` is quick.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.2.0"

if TYPE_CHECKING:
    from dither._discover import discover as discover
    from dither._histogram import histogram as histogram
    from dither._histogram import several_values as several_values
    from dither._mechanism import LocalMechanism as LocalMechanism
    from dither._mechanism import mechanism as mechanism
    from dither._panel import panel as panel
    from dither._publish import publish as publish
    from dither._synthesiser import Synthesiser as Synthesiser
    from dither.central.curator import central_release as central_release
    from dither.datasets import load_dataset as load_dataset
    from dither.errors import DitherError as DitherError
    from dither.errors import DitherWarning as DitherWarning
    from dither.evaluation import evaluate as evaluate
    from dither.lab.comparison import Comparison as Comparison
    from dither.lab.comparison import compare as compare
    from dither.methods.histogram.consumer import Consumer as Consumer
    from dither.planner import Forecast as Forecast
    from dither.planner import forecast as forecast
    from dither.release import Release as Release
    from dither.release import combine as combine
    from dither.release import load_release as load_release
    from dither.release.replicates import bootstrap as bootstrap
    from dither.schema import Attribute as Attribute
    from dither.schema import Schema as Schema
    from dither.schema import load_schema as load_schema
    from dither.schema.infer import infer_schema as infer_schema

_HOMES = {
    "Attribute": "dither.schema",
    "Comparison": "dither.lab.comparison",
    "Consumer": "dither.methods.histogram.consumer",
    "DitherError": "dither.errors",
    "DitherWarning": "dither.errors",
    "Forecast": "dither.planner",
    "LocalMechanism": "dither._mechanism",
    "Release": "dither.release",
    "Schema": "dither.schema",
    "Synthesiser": "dither._synthesiser",
    "bootstrap": "dither.release.replicates",
    "central_release": "dither.central.curator",
    "combine": "dither.release",
    "compare": "dither.lab.comparison",
    "discover": "dither._discover",
    "evaluate": "dither.evaluation",
    "forecast": "dither.planner",
    "histogram": "dither._histogram",
    "infer_schema": "dither.schema.infer",
    "load_dataset": "dither.datasets",
    "load_release": "dither.release",
    "load_schema": "dither.schema",
    "mechanism": "dither._mechanism",
    "panel": "dither._panel",
    "publish": "dither._publish",
    "several_values": "dither._histogram",
}

__all__ = ["__version__", *sorted(_HOMES)]  # noqa: PLE0604 (names are strings, gathered from the table above)


if not TYPE_CHECKING:  # a type checker reads the imports above, and finds names that do not exist

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module 'dither' has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(_HOMES[name]), name)
        return value


def __dir__() -> list[str]:
    return __all__
