"""The method that docs/how-to/add-a-method.md builds works, driven as every other one is."""

from __future__ import annotations

import re
import sys
import types
from pathlib import Path

import numpy as np
import pytest

from dither.protocols import METHODS, restore, start
from dither.protocols.registry import Method
from dither.schema import Attribute, Schema
from dither.simulate import simulate

PAGE = Path(__file__).resolve().parents[1] / "docs" / "how-to" / "add-a-method.md"
SCHEMA = Schema((Attribute("a", "categorical", ("x", "y", "z")), Attribute("b", "boolean", (False, True))))


def test_the_page_s_method_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    code = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.S)
    module = types.ModuleType("documented_method")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec("\n".join(code), module.__dict__)
    monkeypatch.setitem(METHODS, "plain", Method("plain", module.__name__, "Plain", "one attribute", "singles", "none"))
    codes = np.random.default_rng(1).choice(2, (20_000, 2), p=[0.7, 0.3]).astype(np.int32)
    machine = start("plain", SCHEMA, 2.0, len(codes), {"share": "0.5"}, seed=1)
    simulate(machine, codes, np.random.default_rng(2))
    assert sum(tally.participants for tally in machine.closed) == 10_000
    again = restore(machine.state())
    assert again.plan() is None
    assert again.model().marginal(["a"]) == pytest.approx(machine.model().marginal(["a"]))
    errors = again.measured()[0].standard_errors
    assert errors is not None
    assert np.abs(again.model().marginal(["a"]) - [0.7, 0.3, 0]).max() < 5 * errors.max() + 0.01
