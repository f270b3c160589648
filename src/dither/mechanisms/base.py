"""The base classes of all mechanisms, and the types that devices and servers exchange.

- `Randomiser`: reports of a fixed length, an exact law, epsilon, a JSON form.
- `Mechanism`: a randomiser of cells. Its reports are summed in a tally of counters.
- `PureMechanism`: a mechanism whose reports support a set of cells, with p and q.

Mechanisms of numbers, for means, are in `means.py`. A device needs the standard library
only. Batches of reports are the task of `dither.mechanisms.kernels`, which imports the
mechanisms and is never imported by them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self, TypeVar

from dither.checks import check_whole
from dither.errors import ParameterError, PrivacyError, ReportError
from dither.mechanisms.probability import DRAW_WIDTHS, check_whole_numbers, log_up

if TYPE_CHECKING:
    from collections.abc import Collection

    from dither.types import Bytes, Floats, Integers, JsonMapping, JsonObject

# Returns the requested number of random bytes: `secrets.token_bytes` on a device, a
# seeded stream in simulation only.
ByteSource = Callable[[int], bytes]
# An integer or an array of integers, for formulas shared by devices and batches.
Whole = TypeVar("Whole", int, "Integers")

# A law with more reports is not enumerated.
MAX_REPORTS = 1 << 16
# `epsilon_of` raises the exact ratio to this power at most.
MAX_TOGETHER = 1 << 10
# Device, browser and server can all index this many cells; memory runs out far earlier.
MAX_CELLS = 2**31


@dataclass(frozen=True)
class PackedReports:
    """Reports of one question: one row of `report_bytes` bytes for each participant."""

    rows: Bytes

    def __len__(self) -> int:
        return int(self.rows.shape[0])


class DeviceWork(NamedTuple):
    """The cost of building a mechanism on a device.

    Attributes:
        digests: SHA-256 digests to compute.
        pairs: Comparisons of two filters, or of a cell with a set.
        table_bytes: Bytes of tables to hold.
    """

    digests: int
    pairs: int
    table_bytes: int


@dataclass(frozen=True)
class Estimate:
    """Unbiased frequencies with standard errors, before any projection.

    Frequencies may be negative and need not sum to one. The standard errors cover the
    noise of the mechanism given the participants, not the sampling of the participants
    from a larger population.
    """

    frequencies: Floats
    standard_errors: Floats
    n: int


def load_numpy() -> Any:
    """Import NumPy for the matrices that only a server needs."""
    # A device builds and uses every mechanism without NumPy installed.
    import numpy

    return numpy


@dataclass(frozen=True)
class Randomiser(ABC):
    """Turns a participant's input into a report: an integer in little-endian bytes.

    Guarantee: `epsilon` is the logarithm, rounded up, of the largest ratio of one report's
    probabilities under two inputs, for every set of parameters that can be built. The
    length of a report and the number of random bytes do not depend on the input. All
    parameters are fields of a frozen dataclass.
    """

    draw_widths: ClassVar[Collection[int]] = DRAW_WIDTHS

    # Fields or properties of subclasses. A property defined here at run time would become
    # the default value of a subclass's field.
    if TYPE_CHECKING:

        @property
        def name(self) -> str: ...
        @property
        def threshold_bits(self) -> int: ...

    def __post_init__(self) -> None:
        check_whole_numbers(self, self.draw_widths)

    def require(self, drawable: bool) -> None:
        """Reject parameters that give no guarantee or no information.

        Raises:
            PrivacyError: `drawable` is false.
        """
        if not drawable:
            raise PrivacyError(
                f"this {self.name} mechanism cannot be drawn from 2^{self.threshold_bits} "
                "numbers at this epsilon; choose a less extreme epsilon or ask fewer cells",
                where="epsilon",
                value=self.to_json(),
            )

    @property
    @abstractmethod
    def ratio(self) -> Fraction:
        """The largest ratio of one report's probabilities under two inputs, or a bound."""

    @cached_property
    def epsilon(self) -> float:
        """The guarantee that the integer thresholds give, rounded up."""
        return log_up(self.ratio)

    @property
    def in_common(self) -> Fraction:
        """A lower bound for the overlap of one input's law with those of two others.

        It is a c such that under every input each report has at least c times the sum of
        its probabilities under any two other inputs. Each of those two is at most `ratio`
        times the first, so 1/(2 ratio) always holds; mechanisms override it with better
        bounds.
        """
        return 1 / (2 * self.ratio)

    def epsilon_of(self, reports: int) -> float:
        """The joint epsilon of several reports of one participant, rounded up once."""
        return log_up(self.ratio ** check_whole("reports", reports, 1, MAX_TOGETHER))

    @property
    def draw_bytes(self) -> int:
        """The number of random bytes that one report takes, for every input."""
        return self.threshold_bits // 8

    @property
    def report_limit(self) -> int | None:
        """Reports are numbers below this limit; None if all `report_bits` bits are valid."""
        return None

    @property
    def report_bits(self) -> int:
        """The number of significant bits of a report."""
        if self.report_limit is None:
            raise NotImplementedError(f"{self.name} defines neither report_limit nor report_bits")
        return (self.report_limit - 1).bit_length()

    @cached_property
    def report_bytes(self) -> int:
        """The fixed length of a report in bytes."""
        return (self.report_bits + 7) // 8

    def check_report(self, report: bytes) -> None:
        """Check that some input can produce these bytes.

        Raises:
            ReportError: No input produces this report.
        """
        if len(report) != self.report_bytes:
            raise ReportError(
                f"a report of {self.report_bytes} bytes was expected, not {len(report)}",
                value=len(report),
            )
        number = int.from_bytes(report, "little")
        limit = self.report_limit
        if limit is None:
            limit = 1 << self.report_bits
        if number >= limit:
            raise ReportError(
                f"no input of this {self.name} mechanism produces such a report",
                value=report[:64],
            )

    def to_json(self) -> JsonObject:
        """The name and the integers from which `from_json` rebuilds the same mechanism."""
        return {"name": self.name} | {
            field.name: getattr(self, field.name) for field in fields(self)
        }

    @classmethod
    def from_json(cls, data: JsonMapping) -> Self:
        """Rebuild a mechanism from its integers; epsilon is recomputed, never trusted.

        Raises:
            ReportError: The integers are not exactly the mechanism's fields.
        """
        names = {field.name for field in fields(cls)}
        given = {key: value for key, value in data.items() if key != "name" or key in names}
        whole = all(key == "name" or type(value) is int for key, value in given.items())
        if set(given) != names or not whole:
            raise ReportError(
                f"a {data['name']} mechanism needs the whole numbers {', '.join(sorted(names))}",
                value=data,
            )
        return cls(**given)


@dataclass(frozen=True)
class Mechanism(Randomiser):
    """A randomiser of one of `cells` cells.

    A server sums its reports in a tally of `counters` counters.
    """

    max_cells: ClassVar[int] = MAX_CELLS
    # Parameters that are lists, of integers or of sets in base 16.
    list_fields: ClassVar[Collection[str]] = ()
    # False if `group_variance` neglects correlations between cells.
    exact_groups: ClassVar[bool] = True

    if TYPE_CHECKING:

        @property
        def cells(self) -> int: ...

    def __post_init__(self) -> None:
        super().__post_init__()
        check_cells(self.cells, self.max_cells)

    @property
    def counters(self) -> int:
        """The length of a tally: one counter per cell, Bloom filter bit or output."""
        return self.cells

    # On the device.

    @classmethod
    def device_work(cls, numbers: JsonMapping) -> DeviceWork:
        """The cost of building the mechanism with these parameters, before it is built."""
        return DeviceWork(0, 0, 0)

    @abstractmethod
    def report(self, value: int, data: bytes) -> int:
        """The report for a cell in range, from exactly `draw_bytes` random bytes."""

    @abstractmethod
    def probabilities(self, value: int) -> dict[int, Fraction]:
        """The exact probability of every report for a cell in range, by report number."""

    def randomise(self, value: int, source: ByteSource) -> bytes:
        """Draw the report of one participant.

        Args:
            value: The participant's cell, from 0 to `cells - 1`.
            source: Called once, with `draw_bytes`.

        Returns:
            `report_bytes` bytes.

        Raises:
            ParameterError: The cell is out of range.
        """
        number = self.report(_check_value(value, self.cells), source(self.draw_bytes))
        return number.to_bytes(self.report_bytes, "little")

    def law(self, value: int) -> dict[bytes, Fraction]:
        """The exact probability of every report for this cell.

        Raises:
            ParameterError: The law has too many reports to enumerate.
        """
        probabilities = self.probabilities(_check_value(value, self.cells))
        return {
            number.to_bytes(self.report_bytes, "little"): probability
            for number, probability in probabilities.items()
        }

    # Accuracy: the variance of the estimates, from the mechanism's noise only.

    def variance(self, frequency: float, n: int) -> float:
        """The variance of the estimate of one cell with this true frequency, from n reports."""
        return self.group_variance(1, frequency, n)

    @abstractmethod
    def group_variance(self, size: int, frequency: float, n: int) -> float:
        """The variance of the sum of the estimates of `size` cells, from n reports.

        Args:
            size: The number of cells in the group.
            frequency: The true total frequency of the group.
            n: The number of reports.

        Returns:
            The variance; its mean over all groups of this size if cells differ.
        """

    @property
    def total_variance(self) -> float:
        """The sum of the variances of all cells, for one report."""
        return self.cells * self.variance(1 / self.cells, 1)

    @abstractmethod
    def weighted_variance(self, weights: Floats, frequencies: Floats, n: int) -> float:
        """The variance of the weighted sum of all cells' estimates.

        Args:
            weights: One weight per cell.
            frequencies: The true frequencies of the n participants.
            n: The number of reports.
        """

    # Attacks by a participant or by the server.

    @abstractmethod
    def forged_range(self, targeted: int | Sequence[int]) -> tuple[float, float]:
        """The least and the most that one forged report adds to the estimated count of cells.

        Args:
            targeted: The cells, or their number; the bounds are then those of the worst set
                of that size.
        """

    @abstractmethod
    def distinguishing_event(self, first: int, second: int) -> Callable[[bytes], bool]:
        """Whether a report has the largest likelihood ratio of the first cell to the second."""

    @property
    def most_distinct_cells(self) -> tuple[int, int]:
        """Two cells whose laws differ as much as those of any two cells."""
        return 0, self.cells - 1


class PureMechanism(Mechanism):
    """Reports support a set of cells: the true cell with probability p, any other with q.

    A mechanism computes both from its thresholds; encoder, estimator and audit read them
    from there. (For a `BitMechanism` they are the probabilities of a bit, which are the
    same where every cell has one bit.)

    By default supports of different cells are uncorrelated given the value, and a report
    can support any set of cells.

    Reference: Wang, Blocki, Li, Jha, "Locally differentially private protocols for
    frequency estimation", USENIX Security 2017 (pure protocols, eq. 1 to 3).
    """

    @property
    @abstractmethod
    def p(self) -> Fraction:
        """The probability that a report supports its participant's true cell."""

    @property
    @abstractmethod
    def q(self) -> Fraction:
        """The probability that a report supports another given cell."""

    def supports(self, report: bytes, cell: int) -> bool:
        """Whether a report supports a cell; by default, whether the cell's bit is set."""
        return bool(report[cell >> 3] >> (cell & 7) & 1)

    def support_range(self, size: int) -> tuple[int, int]:
        """The fewest and the most of `size` cells that one report can support."""
        return 0, size

    @property
    def pair_probabilities(self) -> tuple[float, float] | None:
        """The probabilities of supporting two cells at once; None if uncorrelated.

        The first is for the true cell and a given other one, the second for two given
        other cells.
        """
        return None

    def variance(self, frequency: float, n: int) -> float:
        return self._uncorrelated(1, frequency, n)

    def group_variance(self, size: int, frequency: float, n: int) -> float:
        return self._uncorrelated(size, frequency, n)

    def _uncorrelated(self, size: int, frequency: float, n: int) -> float:
        p, q = float(self.p), float(self.q)
        return (frequency * p * (1 - p) + (size - frequency) * q * (1 - q)) / (n * (p - q) ** 2)

    @property
    def total_variance(self) -> float:
        # Frequencies sum to one, so the total does not depend on them.
        p, q = float(self.p), float(self.q)
        return (p * (1 - p) + (self.cells - 1) * q * (1 - q)) / (p - q) ** 2

    def weighted_variance(self, weights: Floats, frequencies: Floats, n: int) -> float:
        p, q = float(self.p), float(self.q)
        squares, first = float(weights @ weights), float(weights.sum())
        true_sum, true_squares = float(frequencies @ weights), float(frequencies @ weights**2)
        if self.pair_probabilities is None:
            spread = p * (1 - p) * true_squares + q * (1 - q) * (squares - true_squares)
        else:
            # Second moments of the support minus the square of its mean:
            # Cov = E[s s'] - sum over participants of E[s] E[s]'.
            with_true, both_others = self.pair_probabilities
            all_pairs, true_pairs = first**2 - squares, 2 * (first * true_sum - true_squares)
            moment = p * true_squares + q * (squares - true_squares)
            moment += both_others * (all_pairs - true_pairs) + with_true * true_pairs
            mean = (
                q**2 * first**2 + 2 * q * (p - q) * first * true_sum + (p - q) ** 2 * true_squares
            )
            spread = moment - mean
        return max(spread, 0.0) / (n * (p - q) ** 2)

    def forged_range(self, targeted: int | Sequence[int]) -> tuple[float, float]:
        size = targeted if isinstance(targeted, int) else len(targeted)
        p, q = float(self.p), float(self.q)
        fewest, most = self.support_range(size)
        return (fewest - size * q) / (p - q), (most - size * q) / (p - q)

    def distinguishing_event(self, first: int, second: int) -> Callable[[bytes], bool]:
        return lambda report: self.supports(report, first) and not self.supports(report, second)


def check_cells(cells: int, largest: int = MAX_CELLS) -> int:
    """Check a number of cells: a whole number from 2 to `largest`."""
    if isinstance(cells, bool) or not isinstance(cells, int) or cells < 2:
        raise ParameterError(
            f"a mechanism needs at least 2 cells, not {cells!r}", where="cells", value=cells
        )
    if cells > largest:
        raise ParameterError(
            f"{cells:,} cells are more than the {largest:,} that this mechanism covers; ask "
            "fewer attributes together or use coarser bins",
            where="cells",
            value=cells,
        )
    return cells


def check_enumerable(reports: int) -> None:
    """Reject laws that are too long to enumerate."""
    if reports > MAX_REPORTS:
        raise ParameterError(f"a law of more than {MAX_REPORTS:,} reports is too long to enumerate")


def _check_value(value: int, cells: int) -> int:
    if not 0 <= value < cells:
        raise ParameterError(
            f"value {value!r} is outside 0..{cells - 1}", where="value", value=value
        )
    return int(value)
