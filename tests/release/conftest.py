"""Small releases made by hand, so that every figure in them is known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dither.fit import Independent, Marginal
from dither.release import Call, Release, TableContent, asked_in, truth_from_codes
from dither.reports import Plan, question
from dither.schema import Attribute, Schema

NAUGHTY = "<b>x</b>"


@dataclass(frozen=True)
class Dense:
    """A model given by its whole joint distribution."""

    schema: Schema
    joint: np.ndarray
    kind = "dense"

    def marginal(self, attributes: Sequence[str]) -> np.ndarray:
        kept = [self.schema.index(name) for name in attributes]
        rest = tuple(i for i in range(len(self.schema)) if i not in kept)
        summed = self.joint.sum(axis=rest)
        order = sorted(kept)
        return np.transpose(summed, [order.index(i) for i in kept])

    def sample(self, rows: int, rng: np.random.Generator) -> np.ndarray:
        flat = rng.choice(self.joint.size, rows, p=self.joint.ravel())
        return np.stack(np.unravel_index(flat, self.joint.shape), axis=1).astype(np.int32)

    def to_bytes(self) -> bytes:
        return self.joint.tobytes()


@pytest.fixture
def schema() -> Schema:
    return Schema(
        (
            Attribute("colour", "categorical", values=("red", "green <&>", "blue")),
            Attribute(NAUGHTY, "boolean", values=(False, True)),
            Attribute("age", "numeric", edges=(0.0, 18.0, 65.0, 120.0), missing=True),
        )
    )


@pytest.fixture
def make_release(schema: Schema) -> Callable[..., Release]:
    def make(**changes: Any) -> Release:
        marginals = (
            np.array([0.2, 0.5, 0.3]),
            np.array([0.4, 0.6]),
            np.array([0.1, 0.6, 0.2, 0.1]),
        )
        model = Independent(schema, marginals)
        measured = [
            Marginal((name,), marginal + 0.001, np.full(marginal.shape, 0.01 * (i + 1)), 12345)
            for i, (name, marginal) in enumerate(zip(schema.names, marginals, strict=True))
        ]
        plan = Plan(
            0, tuple(question(schema, [n], 2.0, "oue") for n in schema.names), (0.5, 0.25, 0.25)
        )
        table = pa.table(
            {
                "colour": ["red", "blue"],
                NAUGHTY: [True, False],
                "age": pa.array([17, None], pa.int64()),
            }
        )
        values: dict[str, Any] = {
            "method": "independent",
            "parameters": {"mechanism": "oue", "shares": [0.5, 0.25, 0.25]},
            "schema": schema,
            "model": model,
            "synthetic": table,
            "measured": measured,
            "epsilon_asked": 2.0,
            "epsilon_achieved": plan.epsilon,
            "participants": 12345,
            "rounds": 1,
            "rows": 2,
            "asked": asked_in([plan]),
            "seed": 7,
            "seconds": {"read": 0.25, "fit": 1.5},
            "notes": {"kept": np.int64(3)},
            "source": "people.csv",
            "description": "Asks one attribute.",
            "reference": "Somebody 2020",
        }
        values |= changes
        names = {
            "method",
            "epsilon_asked",
            "source",
            "schema_file",
            "population",
            "seed",
            "parameters",
            "simulated",
        }
        call = {name: values.pop(name) for name in names & values.keys()}
        renamed = {"epsilon_asked": "epsilon", "source": "table", "schema_file": "schema"}
        parts = {"model", "synthetic", "measured", "asked", "central", "state", "replicates"}
        content = TableContent(**{name: values.pop(name) for name in parts & values.keys()})
        return Release(
            call=Call(**{renamed.get(name, name): value for name, value in call.items()}),
            content=content,
            **values,
        )

    return make


@pytest.fixture
def simulated(make_release: Callable[..., Release], schema: Schema) -> Release:
    """A dependent model of a simulation, with the truth."""
    rng = np.random.default_rng(5)
    joint = rng.dirichlet(np.full(24, 0.4)).reshape(3, 2, 4)
    codes = Dense(schema, joint).sample(4000, rng)
    return make_release(
        model=Dense(schema, joint), simulated=True, truth=truth_from_codes(schema, codes)
    )
