"""Regression on a release, and the combination of figures from several synthetic tables.

A generalised linear model with its canonical link solves E[x (y - mu(x'b))] = 0. Fitted models
understate dependence, and coefficients read off them are too small. So the dependence of each pair
of attributes is taken from the reports about the pair, which are unbiased:

    E[u] = E_model[u] + sum over pairs (a, b) of <g_ab, reports_ab - model_ab>,    u = x (y - mu)

with g_ab the pair's part of u: its mean over the other attributes, as if these were independent,
less the effects of a and b alone. For a linear model without products of attributes u is a sum of
such parts, and the scores are unbiased. Else interactions of three attributes are the model's.

With C the covariance of the scores' errors and J their slope in b, the coefficients have the
covariance J^-1 C J^-1'. C has the devices' noise and sampling in the reports about pairs, known
from the mechanisms, and the scatter and bias of the model's part, from replicates.

References: McCullagh and Nelder, Generalized Linear Models, 1989; Raghunathan, Reiter and Rubin,
J. Official Statistics 19, 2003, and Reiter, ibid. 18, 2002 (degrees of freedom);
docs/explanation/uncertainty.md has the measured coverage.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from scipy.special import stdtrit

from dither.checks import check_between, check_choice
from dither.errors import InputError, ParameterError, QuestionError
from dither.fit.pool import AnswerCounts, precision
from dither.fit.ruled import grouped_marginal
from dither.mechanisms import kernels
from dither.methods import fitted_tallies
from dither.methods.reduction import with_groups
from dither.notice import Notice
from dither.release.intervals import Bootstrap, answer_covariance, interaction_weights
from dither.release.query.cells import MAX_CELLS, MAX_WEIGHTS, Grid, Side, build_grid
from dither.release.query.expression import Reader
from dither.schema import Schema
from dither.tally import CountTally
from dither.types import Flags, Floats, Indices, NativeTable

if TYPE_CHECKING:
    from dither.release.release import Release
    from dither.release.table import TableContent

Family = Literal["gaussian", "binomial", "poisson"]
# Newton's method: relative step of differences, convergence, length of a step, number of steps.
_STEP, _TOLERANCE, _LONGEST_STEP, _MAX_STEPS = 1e-5, 1e-9, 5.0, 60
# Names in formulas that are no attributes: patsy's own functions and the module of arrays.
_FORMULA_NAMES = frozenset(
    {"C", "I", "Q", "np", "Treatment", "Sum", "Poly", "Diff", "Helmert", "True", "False"}
)


@dataclass(frozen=True, eq=False)
class Regression:
    """A regression on a release.

    Attributes:
        formula: What was asked.
        family: The distribution of the response.
        coefficients: A pandas table: name, estimate, standard_error, low, high.
        covariance: The covariance of the coefficients' errors, noise and bias together.
        response: The event whose probability is modelled, or the response's name.
        level: The level of the intervals.
        warnings: What a reader has to know.
    """

    formula: str
    family: Family
    coefficients: NativeTable
    covariance: Floats
    response: str
    level: float
    warnings: tuple[Notice, ...] = ()

    def __repr__(self) -> str:
        head = f"Regression({self.formula!r}, family={self.family!r}, response {self.response})"
        notes = [f"warning: {notice.message}" for notice in self.warnings]
        return "\n".join([head, self.coefficients.to_string(index=False), *notes])


def regress(
    release: Release, content: TableContent, formula: str, family: Family, level: float
) -> Regression:
    """See `Release.regress`."""
    check_choice("family", family, ("gaussian", "binomial", "poisson"))
    check_between("level", level, 0, 1, ends="()")
    patsy, statsmodels, pandas = _libraries()
    left, names = _attributes_in(patsy, formula, release.schema)
    grid = build_grid(content.reader(release), [], names)
    cells = _cells(pandas, content.reader(release), grid)
    used = ~cells.isna().any(axis=1).to_numpy()
    y, x, response = _design(patsy, formula, cells[used], family)
    design = x.to_numpy(dtype=np.float64)
    if design.size > MAX_WEIGHTS:
        raise ParameterError(
            f"{design.shape[1]} coefficients over {len(design):,} combinations of "
            f"{', '.join(names)} are too many; regress on fewer attributes",
            where="formula",
        )
    replicates = release.bootstrap
    pairs, warnings = _asked_pairs(release, content, names, left)
    sums = _Sums(release.schema, tuple(names), replicates, pairs)
    chosen = getattr(statsmodels.families, family.capitalize())()
    weights = sums.table.ravel()[used]
    if np.linalg.matrix_rank(design[weights > 0]) < design.shape[1]:
        raise ParameterError(
            f"the coefficients of {formula!r} are not determined: some terms follow from others",
            where="formula",
        )
    start = statsmodels.GLM(y, design, family=chosen, freq_weights=weights * release.people).fit()
    scores = _Scores(sums, used, np.asarray(y), design, chosen)
    estimates = scores.root(np.asarray(start.params))
    slope = np.linalg.inv(scores.slope(estimates))
    reports, model = sums.covariances(scores.at(estimates))
    covariance = slope @ (reports + model) @ slope.T
    variances = np.diag(covariance)
    # Satterthwaite: only the model's part is estimated, from the replicates.
    share = np.diag(slope @ model @ slope.T) / variances
    freedom = (len(replicates.replicates) - 1) / np.maximum(share, 1e-3) ** 2
    reach = stdtrit(freedom, (1 + level) / 2) * np.sqrt(variances)
    table = pandas.DataFrame(
        {
            "name": list(x.columns),
            "estimate": estimates,
            "standard_error": np.sqrt(variances),
            "low": estimates - reach,
            "high": estimates + reach,
        }
    )
    return Regression(formula, family, table, covariance, response, level, tuple(warnings))


@dataclass(frozen=True)
class _PairAnswer:
    """One question about a pair of attributes, possibly among others or in groups of values.

    Attributes:
        question: Its number among all questions of the release.
        answer: The question and its counts.
        groups: For each attribute of the question, the cell of each code on its axis.
        weight: Its weight in the average over questions.
    """

    question: int
    answer: AnswerCounts
    groups: Mapping[str, Indices]
    weight: float


Pairs = Mapping[tuple[int, int], Sequence[_PairAnswer]]


def _asked_pairs(
    release: Release, content: TableContent, names: Sequence[str], response: Sequence[str]
) -> tuple[Pairs, list[Notice]]:
    """The reports about each pair of these attributes, and warnings about pairs without any.

    Raises:
        QuestionError: The release has no reports, or none about the response and a predictor.
    """
    tallies = [] if content.state is None else fitted_tallies(content.state)
    counted = [tally for tally in tallies if isinstance(tally, CountTally)]
    if not counted:
        raise QuestionError(
            "a regression needs the counts of the reports, which this release does not hold",
            where="formula",
        )
    schema, found = release.schema, {}
    asked = [
        AnswerCounts(question, tally.counts[i], int(tally.n[i]))
        for tally in counted
        for i, question in enumerate(tally.plan.questions)
        if tally.n[i] > 0
    ]
    warnings = []
    for i, j in combinations(range(len(names)), 2):
        pair = {names[i], names[j]}
        answers = []
        for number, answer in enumerate(asked):
            if pair <= set(answer.question.attributes):
                groups = _groups(schema, answer)
                cells = math.prod(int(groups[name].max()) + 1 for name in pair)
                weight = precision(answer.question.mechanism, cells, answer.n, poisson=True)
                answers.append(_PairAnswer(number, answer, groups, weight))
        total = sum(entry.weight for entry in answers)
        found[i, j] = [replace(entry, weight=entry.weight / total) for entry in answers]
        if not answers and pair & set(response):
            raise QuestionError(
                f"{names[i]} and {names[j]} were never asked together, so their dependence is not "
                "known; leave one out, or collect with a method that asks pairs",
                where="formula",
                value=[names[i], names[j]],
            )
        if not answers:
            warnings.append(
                Notice(
                    "regression-predictors",
                    f"{names[i]} and {names[j]} were never asked together: their dependence is "
                    "the model's",
                )
            )
    return found, warnings


def _groups(schema: Schema, answer: AnswerCounts) -> dict[str, Indices]:
    out = {}
    for name in answer.question.attributes:
        attribute = schema[name]
        codes = np.arange(attribute.cardinality)
        if name in answer.question.grouped:
            codes = np.asarray(with_groups(attribute).group_codes, dtype=np.intp)
        out[name] = codes
    return out


class _Sums:
    """Expectations over the cells of some attributes, from model and reports, with their errors."""

    def __init__(
        self, schema: Schema, names: tuple[str, ...], replicates: Bootstrap, pairs: Pairs
    ) -> None:
        self.schema, self.names, self.pairs, self._replicates = schema, names, pairs, replicates
        self.table = replicates.model.marginal(names)
        self._refits = [refit.marginal(names).ravel() for refit in replicates.replicates]
        self._ones = [self._sum(self.table, (axis,)) for axis in range(len(names))]
        # What the reports say of each pair beyond the model.
        self._gaps = {
            pair: self._reported(pair) - self._sum(self.table, pair)
            for pair, answers in pairs.items()
            if answers
        }

    def _sum(self, table: Floats, axes: Sequence[int]) -> Floats:
        """The marginal of some axes of a table."""
        others = tuple(axis for axis in range(table.ndim) if axis not in axes)
        return np.asarray(table.sum(axis=others))

    def _within(self, name: str, groups: Indices) -> Floats:
        """The share of each value in its group."""
        one = self._ones[self.names.index(name)]
        whole = np.bincount(groups, one)[groups]
        return np.divide(one, whole, out=np.zeros_like(one), where=whole > 0)

    def _reported(self, pair: tuple[int, int]) -> Floats:
        """The reports' unbiased table of a pair; values of a group depend alike."""
        out = np.zeros_like(self._sum(self.table, pair))
        names = [self.names[axis] for axis in pair]
        for entry in self.pairs[pair]:
            question = entry.answer.question
            sizes = [int(entry.groups[name].max()) + 1 for name in question.attributes]
            raw = kernels.estimate(question.mechanism, entry.answer.support, entry.answer.n)
            raw_table = raw.frequencies.reshape(sizes)
            axes = [question.attributes.index(name) for name in names]
            others = tuple(axis for axis in range(len(sizes)) if axis not in axes)
            summed = raw_table.sum(axis=others)
            summed = summed if axes == sorted(axes) else summed.T
            rows, columns = (entry.groups[name] for name in names)
            shares = [self._within(name, entry.groups[name]) for name in names]
            out += entry.weight * summed[np.ix_(rows, columns)] * np.outer(*shares)
        return out

    def parts(self, functions: Floats) -> dict[tuple[int, int], Floats]:
        """The part g_ab of each function of the cells, by pair that was asked.

        Args:
            functions: A row for each function, shaped like the table.
        """
        out = {}
        for pair in self._gaps:
            reduced = functions
            for axis in reversed(range(len(self.names))):
                if axis not in pair:
                    reduced = np.tensordot(reduced, self._ones[axis], (axis + 1, 0))
            out[pair] = interaction_weights(reduced)
        return out

    def expectations(self, functions: Floats) -> Floats:
        """The mean of each function over the people."""
        out: Floats = functions.reshape(len(functions), -1) @ self.table.ravel()
        for pair, part in self.parts(functions).items():
            out = out + part.reshape(len(part), -1) @ self._gaps[pair].ravel()
        return out

    def covariances(self, functions: Floats) -> tuple[Floats, Floats]:
        """The covariance of the expectations' errors: the reports' part and the model's part."""
        count = len(functions)
        rest = functions.copy()
        rows: dict[int, Floats] = {}
        answers: dict[int, _PairAnswer] = {}
        for pair, part in self.parts(functions).items():
            shape = [size if axis in pair else 1 for axis, size in enumerate(self.table.shape)]
            rest = rest - part.reshape(count, *shape)
            for entry in self.pairs[pair]:
                asked = entry.weight * self._over_question(part, pair, entry)
                rows[entry.question] = rows.get(entry.question, 0.0) + asked
                answers[entry.question] = entry
        reports = np.zeros((count, count))
        for number, weights in rows.items():
            entry = answers[number]
            question = entry.answer.question
            groups = [entry.groups[name] for name in question.attributes]
            model = grouped_marginal(self._replicates.model, question.attributes, groups)
            reports += answer_covariance(question.mechanism, weights, model.ravel(), entry.answer.n)
        flat = rest.reshape(count, -1)
        refits = np.stack([flat @ refit for refit in self._refits])
        shift = refits.mean(axis=0) - flat @ self.table.ravel()
        model_part = np.atleast_2d(np.cov(refits, rowvar=False)) + np.outer(shift, shift)
        return reports, model_part

    def _over_question(self, part: Floats, pair: tuple[int, int], entry: _PairAnswer) -> Floats:
        """Weights of a pair's cells as weights of a question's cells, a row for each function."""
        names = [self.names[axis] for axis in pair]
        reduced = part
        for axis, name in enumerate(names, start=1):
            groups = entry.groups[name]
            spread = np.zeros((len(groups), int(groups.max()) + 1))
            spread[np.arange(len(groups)), groups] = self._within(name, groups)
            reduced = np.moveaxis(np.tensordot(reduced, spread, (axis, 0)), -1, axis)
        asked = entry.answer.question.attributes
        if asked.index(names[0]) > asked.index(names[1]):
            reduced = np.swapaxes(reduced, 1, 2)
        sizes = [int(entry.groups[name].max()) + 1 for name in asked]
        shape = [size if name in names else 1 for name, size in zip(asked, sizes, strict=True)]
        wide = np.broadcast_to(reduced.reshape(len(part), *shape), (len(part), *sizes))
        return wide.reshape(len(part), -1)


@dataclass(frozen=True)
class _Scores:
    """The scores x (y - mu(x'b)) of a model's coefficients and their expectation."""

    sums: _Sums
    used: Flags
    y: Floats
    design: Floats
    family: Any

    def at(self, coefficients: Floats) -> Floats:
        """The score of each cell, a row for each coefficient, shaped like the table."""
        mean = self.family.link.inverse(self.design @ coefficients)
        out = np.zeros((self.design.shape[1], len(self.used)))
        out[:, self.used] = self.design.T * (self.y - mean)
        return out.reshape(-1, *self.sums.table.shape)

    def slope(self, coefficients: Floats) -> Floats:
        """The change of the expected scores with the coefficients, by differences, negative."""
        columns = []
        for k, step in enumerate(_STEP * np.maximum(1.0, np.abs(coefficients))):
            moved = np.zeros_like(coefficients)
            moved[k] = step
            up, down = (
                self.sums.expectations(self.at(coefficients + way * moved)) for way in (1, -1)
            )
            columns.append((down - up) / (2 * step))
        return np.stack(columns, axis=1)

    def root(self, start: Floats) -> Floats:
        """The coefficients whose expected scores are zero, by Newton's method."""
        at = start
        for _ in range(_MAX_STEPS):
            score = self.sums.expectations(self.at(at))
            try:
                move = np.linalg.solve(self.slope(at), score)
            except np.linalg.LinAlgError:
                break
            # Long steps are shortened, as the scores are far from linear there.
            move = move / max(1.0, float(np.abs(move).max()) / _LONGEST_STEP)
            at = at + move
            if np.abs(move).max() <= _TOLERANCE * max(1.0, float(np.abs(at).max())):
                return at
        raise QuestionError(
            "the reports are too noisy for this regression: its equations have no solution near "
            "the model; use fewer predictors, more participants or a larger epsilon",
            where="formula",
        )


def _libraries() -> tuple[ModuleType, ModuleType, ModuleType]:
    try:
        import pandas
        import patsy
        import statsmodels.api as statsmodels
    except ModuleNotFoundError as error:
        raise InputError(
            f"regress needs {error.name}, which is in the extra 'stats': pip install 'dither[stats]'"
        ) from None
    return patsy, statsmodels, pandas


def _attributes_in(patsy: Any, formula: str, schema: Schema) -> tuple[list[str], list[str]]:
    """The attributes of a formula: those of its response, and all in its order."""
    try:
        read = patsy.ModelDesc.from_formula(formula)
    except (patsy.PatsyError, TypeError) as error:
        text = str(error).splitlines()[0]
        raise ParameterError(
            f"the formula {formula!r:.80} cannot be read ({text}); it is 'response ~ predictor + "
            "predictor'",
            where="formula",
            value=formula,
        ) from None
    left, right = (
        [word for term in terms for factor in term.factors for word in _words(factor.code)]
        for terms in (read.lhs_termlist, read.rhs_termlist)
    )
    unknown = [name for name in [*left, *right] if name not in {*schema.names, *_FORMULA_NAMES}]
    if unknown:
        raise ParameterError(
            f"the formula names {unknown[0]!r}; the release has {', '.join(schema.names[:12])}",
            where="formula",
            value=unknown[0],
        )
    response = [name for name in left if name in schema.names]
    names = list(dict.fromkeys([*response, *(name for name in right if name in schema.names)]))
    if not response:
        raise ParameterError("the formula has no attribute on its left", where="formula")
    cells = math.prod(schema[name].cardinality for name in names)
    if cells > MAX_CELLS:
        raise ParameterError(
            f"{', '.join(names)} together have {cells:,} combinations, more than {MAX_CELLS:,}; "
            "regress on fewer attributes",
            where="formula",
        )
    return response, names


def _words(code: str) -> list[str]:
    """The names in a factor of a formula, bare or as Q("..."), without those of functions."""
    nodes = list(ast.walk(ast.parse(code, mode="eval")))
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    functions = {id(part) for call in calls for part in ast.walk(call.func)}
    words = [n.id for n in nodes if isinstance(n, ast.Name) and id(n) not in functions]
    for call in calls:
        if ast.unparse(call.func) == "Q":
            words += [str(entry.value) for entry in call.args if isinstance(entry, ast.Constant)]
    return words


def _values(reader: Reader, side: Side) -> list[Any]:
    """What each code stands for: a number, a label, or nothing for a missing answer."""
    attribute = side.attribute
    if attribute.kind in ("date", "datetime"):
        raise ParameterError(
            f"{attribute.name} is a {attribute.kind}; regress on numbers and categories",
            where=attribute.name,
        )
    scale = reader.scales.get(attribute.name)
    if scale is not None:
        return list(scale.numbers(side.parts.middles))
    return [*attribute.values, *([None] * attribute.missing)]


def _cells(pandas: Any, reader: Reader, grid: Grid) -> NativeTable:
    """A row for each cell of a grid, a column for each attribute."""
    values = [pandas.Series(_values(reader, side)) for side in grid.sides]
    places = np.indices([len(column) for column in values]).reshape(len(values), -1)
    return pandas.DataFrame(
        {
            name: column.take(place).reset_index(drop=True)
            for name, column, place in zip(grid.names, values, places, strict=True)
        }
    )


def _design(
    patsy: Any, formula: str, cells: NativeTable, family: Family
) -> tuple[Floats, NativeTable, str]:
    """The response of each cell, the design matrix, and the response in words."""
    try:
        y, x = patsy.dmatrices(formula, cells, return_type="dataframe")
    except (patsy.PatsyError, NameError, TypeError, ValueError) as error:
        text = str(error).splitlines()[0]
        raise ParameterError(f"the formula cannot be read: {text}", where="formula") from None
    values, name = y.to_numpy(dtype=np.float64), str(y.columns[-1])
    if values.shape[1] > 2 or (values.shape[1] == 2 and family != "binomial"):
        raise ParameterError(
            f"the response of family {family!r} must be a number; {formula.split('~', maxsplit=1)[0].strip()} "
            f"has {values.shape[1]} categories",
            where="formula",
        )
    response: Floats = values[:, -1]
    if family == "binomial" and not (0 <= response.min() <= response.max() <= 1):
        raise ParameterError(
            f"the response of family 'binomial' has two values or lies in [0, 1]; {name} goes from "
            f"{response.min():g} to {response.max():g}",
            where="formula",
        )
    if family == "poisson" and response.min() < 0:
        raise ParameterError(
            f"the response of family 'poisson' is a count; {name} goes down to {response.min():g}",
            where="formula",
        )
    return response, x, name


@dataclass(frozen=True)
class Combined:
    """A figure combined from several synthetic tables; see `combine`."""

    estimate: float
    standard_error: float
    low: float
    high: float
    freedom: float


def combine(
    estimates: Sequence[float], standard_errors: Sequence[float], *, level: float = 0.95
) -> Combined:
    """Combine one figure from several synthetic tables, as `Release.tables` draws them.

    The rule of Raghunathan, Reiter and Rubin for fully synthetic data: with B the variance between
    the tables' estimates and U the mean of their squared standard errors, the variance is
    (1 + 1/m) B - U. Where that is not above U, which happens with few tables, U stands in.

    Args:
        estimates: The figure computed on each table as if it were real.
        standard_errors: Its standard error on each table as if it were real.
        level: The level of the interval.

    Returns:
        The estimate with its standard error, interval and degrees of freedom.

    >>> import dither
    >>> found = dither.combine([1.0, 1.2, 0.9, 1.1], [0.02, 0.02, 0.02, 0.02])
    >>> round(found.estimate, 2), found.low < 1.05 < found.high
    (1.05, True)
    """
    check_between("level", level, 0, 1, ends="()")
    figures, errors = (np.asarray(v, dtype=np.float64) for v in (estimates, standard_errors))
    if figures.ndim != 1 or figures.shape != errors.shape or len(figures) < 2:
        raise ParameterError(
            "combine takes as many standard errors as estimates, at least two of each",
            where="estimates",
        )
    if not (np.isfinite(figures).all() and np.isfinite(errors).all() and (errors >= 0).all()):
        raise ParameterError("estimates and standard errors must be numbers", where="estimates")
    count = len(figures)
    between = (1 + 1 / count) * float(figures.var(ddof=1))
    within = float((errors**2).mean())
    variance = max(between - within, within)
    relative = between / within if within > 0 else math.inf
    freedom = max((count - 1) * (1 - 1 / relative) ** 2, 1.0) if relative > 1 else 1.0
    estimate, error = float(figures.mean()), math.sqrt(variance)
    reach = float(stdtrit(freedom, (1 + level) / 2)) * error
    return Combined(estimate, error, estimate - reach, estimate + reach, freedom)
