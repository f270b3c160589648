"""An average of models, with shares chosen by estimated risk.

An average of distributions is a distribution: its marginals are the averages of the marginals,
and a row is drawn from one of the models, chosen with its share.

Candidates fitted to the same data are averaged with the shares of least estimated risk. The risk
of an average sum a_k P_k is a' G a + 2 a' df up to a constant (Stein), with G_kl = sum w (P_k - y)
(P_l - y) over all cells y and df_k the degrees of freedom of candidate k. Shares are at least zero
and add up to one, so a candidate that the data contradict gets none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dither.errors import ReportError
from dither.fit.mixture.fit import Weights
from dither.fit.mixture.model import Mixture
from dither.fit.mixture.targets import PairTargets
from dither.fit.model import Model, model_from_bytes
from dither.fit.ruled import grouped_marginal
from dither.schema import Schema, schema_from_json
from dither.tally.archive import pack, unpack
from dither.types import AnyArray, Codes, Floats, Indices

# A smaller share is not worth its model.
MIN_SHARE = 1e-3
_MAX_MODELS = 16


@dataclass(frozen=True)
class Average:
    """Models over one schema, averaged with `shares`, which add up to one."""

    schema: Schema
    shares: Floats
    models: tuple[Model, ...]
    kind = "average"

    def __post_init__(self) -> None:
        if (
            self.shares.shape != (len(self.models),)
            or not (self.shares >= 0).all()
            or not np.isclose(self.shares.sum(), 1)
        ):
            raise ValueError("the shares of an average are not a distribution over its models")
        if any(model.schema.to_json() != self.schema.to_json() for model in self.models):
            raise ValueError("the models of an average are over different attributes")

    def marginal(self, attributes: Sequence[str]) -> Floats:
        parts = [model.marginal(attributes) for model in self.models]
        return np.asarray(np.tensordot(self.shares, parts, 1))

    def grouped(self, attributes: Sequence[str], groups: Sequence[Indices]) -> Floats:
        """See `grouped_marginal`."""
        parts = [grouped_marginal(model, attributes, groups) for model in self.models]
        return np.asarray(np.tensordot(self.shares, parts, 1))

    def sample(self, rows: int, rng: np.random.Generator) -> Codes:
        counts = rng.multinomial(rows, self.shares / self.shares.sum())
        parts = [m.sample(int(n), rng) for m, n in zip(self.models, counts, strict=True) if n]
        codes = np.concatenate(parts) if parts else self.models[0].sample(0, rng)
        return np.asfortranarray(codes[rng.permutation(rows)])

    def to_bytes(self) -> bytes:
        arrays: dict[str, AnyArray] = {"shares": self.shares}
        for number, model in enumerate(self.models):
            arrays[f"model {number}"] = np.frombuffer(model.to_bytes(), np.uint8)
        meta = {"kind": self.kind, "schema": self.schema.to_json(), "models": len(self.models)}
        return pack(meta, arrays)

    @classmethod
    def from_bytes(cls, data: bytes) -> Average:
        meta, arrays = unpack(data)
        count = meta["models"]
        if type(count) is not int or not 1 <= count <= _MAX_MODELS:
            raise ReportError(f"an average of {count!r} models")
        models = tuple(model_from_bytes(arrays[f"model {i}"].tobytes()) for i in range(count))
        if any(isinstance(model, Average) for model in models):
            raise ReportError("an average of averages")
        return cls(schema_from_json(meta["schema"]), arrays["shares"], models)


@dataclass(frozen=True)
class Candidate:
    """A model with all its pair and one-way marginals, and what its fit cost.

    Attributes:
        df: Degrees of freedom.
        penalty: Factor of the degrees of freedom, above one where their estimate misses some.
    """

    name: str
    model: Model
    pairs: Floats
    one: Floats
    df: float
    penalty: float = 1.0


def gram(targets: PairTargets, weights: Weights, candidates: Sequence[Candidate]) -> Floats:
    """G: weighted products of the candidates' residuals."""
    off = [c.pairs - targets.pairs for c in candidates]
    off1 = [c.one - targets.singles for c in candidates]
    out = np.empty((len(candidates), len(candidates)))
    for k in range(len(candidates)):
        pull, pull1 = weights.pairs * off[k], weights.singles * off1[k]
        for other in range(k + 1):
            out[k, other] = 0.5 * float(np.vdot(pull, off[other])) + float(pull1 @ off1[other])
            out[other, k] = out[k, other]
    return out


def best_shares(products: Floats, df: Floats) -> Floats:
    """The shares that minimise a' G a + 2 a' df on the simplex: exact, by its active set.

    On a set of candidates the least is where G a + df is the same for all of them. Candidates
    with a negative share leave the set, and those with a lower slope than the set's enter it.
    """
    count = len(df)
    slope = np.diag(products) + 2.0 * df
    inside = [int(np.argmin(slope))]
    shares = np.zeros(count)
    shares[inside[0]] = 1.0
    for _ in range(10 * count + 10):
        gradient = products @ shares + df
        level = float(shares @ gradient)
        entering = int(np.argmin(gradient))
        if gradient[entering] >= level - 1e-9 * max(1.0, abs(level)) or entering in inside:
            return shares
        inside.append(entering)
        while True:
            found = _level_point(products, df, inside)
            if (found >= -1e-12).all():
                break
            # Step towards it while all stay positive, and drop those that become zero.
            here = shares[inside]
            falling = (found < here) & (found < 0)
            reach = float(np.min(here[falling] / (here - found)[falling]))
            moved = here + reach * (found - here)
            shares[:] = 0.0
            shares[inside] = np.maximum(moved, 0.0)
            zero = int(np.argmin(np.where(found < 0, moved, np.inf)))
            shares[inside[zero]] = 0.0
            inside.pop(zero)
        shares[:] = 0.0
        shares[inside] = np.maximum(found, 0.0)
        shares /= shares.sum()
        inside = [k for k in inside if shares[k] > 0.0]
    return shares


def _level_point(products: Floats, df: Floats, inside: Sequence[int]) -> Floats:
    """Where G a + df is level on some candidates and a adds up to one."""
    m = len(inside)
    system = np.zeros((m + 1, m + 1))
    system[:m, :m] = products[np.ix_(inside, inside)]
    system[:m, m], system[m, :m] = -1.0, 1.0
    return np.asarray(np.linalg.lstsq(system, np.append(-df[list(inside)], 1.0), rcond=None)[0][:m])


def averaged(candidates: Sequence[Candidate], shares: Floats) -> Model:
    """The average of the candidates' models; mixtures become one mixture."""
    kept = [(c.model, float(s)) for c, s in zip(candidates, shares, strict=True) if s > MIN_SHARE]
    total = sum(share for _, share in kept)
    mixtures = [(m, s / total) for m, s in kept if isinstance(m, Mixture)]
    others = [(m, s / total) for m, s in kept if not isinstance(m, Mixture)]
    if mixtures:
        part = sum(share for _, share in mixtures)
        joined = Mixture(
            mixtures[0][0].schema,
            np.concatenate([share / part * m.weights for m, share in mixtures]),
            tuple(
                np.concatenate(tables)
                for tables in zip(*(m.components for m, _ in mixtures), strict=True)
            ),
        )
        others.append((joined, part))
    if len(others) == 1:
        return others[0][0]
    models = tuple(model for model, _ in others)
    return Average(models[0].schema, np.array([share for _, share in others]), models)
