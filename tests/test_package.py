"""The package as a whole: public names, quick import, a device that needs no NumPy, and layers."""

from __future__ import annotations

import inspect
import pydoc
import re
import subprocess
import sys
from pathlib import Path

import pytest

import dither

SRC = Path(dither.__file__).parent


def run(code: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout


def test_public_names_are_all_there() -> None:
    for name in dither.__all__:
        assert getattr(dither, name) is not None
    assert sorted(dither.__all__) == sorted(set(dither.__all__))
    assert dir(dither) == sorted(dither.__all__)


@pytest.mark.parametrize(
    "name",
    [
        "publish",
        "histogram",
        "evaluate",
        "forecast",
        "bootstrap",
        "central_release",
        "infer_schema",
        "panel",
        "several_values",
    ],
)
def test_public_functions_show_their_real_signature(name: str) -> None:
    function = getattr(dither, name)
    assert inspect.isfunction(function)
    parameters = inspect.signature(function).parameters
    assert all(p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in parameters.values())
    shown = pydoc.render_doc(function, renderer=pydoc.plaintext)
    assert re.search(rf"^{name}\(", shown, re.M)
    assert all(re.search(rf"\b{parameter}: ", shown) for parameter in parameters), shown
    assert inspect.getdoc(function).splitlines()[0] in shown


def test_import_is_lazy() -> None:
    """What makes an import slow is what it pulls in: nothing heavy may come with `import dither`."""
    heavy = [
        "numpy",
        "pandas",
        "polars",
        "pyarrow",
        "scipy",
        "sklearn",
        "numba",
        "jinja2",
        "typer",
        "rich",
        "cryptography",
    ]
    loaded = run(f"import dither, sys; print([m for m in {heavy} if m in sys.modules])")
    assert loaded.strip() == "[]"


@pytest.mark.slow
def test_a_collector_starts_without_what_it_seldom_needs() -> None:
    """scipy.stats alone would be a third of the time until it listens, scikit-learn more."""
    heavy = ("scipy.stats", "sklearn", "pandas", "polars", "pyspark")
    code = f"import sys, dither.collector.app\nprint([name for name in {heavy} if name in sys.modules])"
    assert run(code).strip() == "[]"


def test_a_device_needs_the_standard_library_only() -> None:
    code = """
import sys
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.split('.')[0] in ('numpy', 'scipy', 'pyarrow', 'narwhals', 'numba', 'cryptography', 'pandas', 'polars'):
            raise ImportError(name)
sys.meta_path.insert(0, Block())
import secrets
from dither.mechanisms import mechanism, NAMES, mechanism_from_json
from dither.reports import Plan, plan_from_json, question
from dither.schema import Schema, Attribute
schema = Schema((Attribute('a', 'categorical', ('x', 'y', 'z')),))
for name in NAMES:
    built = mechanism_from_json(mechanism(name, 5, 1.0).to_json())
    built.check_report(built.randomise(3, secrets.token_bytes))
plan = Plan(0, (question(schema, ['a'], 1.0),), (1.0,))
print(plan_from_json(plan.to_json()) == plan)
"""
    assert run(code).strip() == "True"


def test_participants_noise_never_comes_from_a_statistical_generator() -> None:
    for folder in ("mechanisms", "reports", "client"):
        for path in (SRC / folder).glob("*.py"):
            text = path.read_text()
            code = [line for line in text.splitlines() if "np.random.Generator" not in line]
            assert not any("import random" in line or "np.random." in line for line in code), path


def test_version_matches_the_project_file() -> None:
    project = (SRC.parent.parent / "pyproject.toml").read_text()
    assert f'version = "{dither.__version__}"' in project
