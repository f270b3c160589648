"""Discovery: frequent texts that no schema lists, by extending prefixes over rounds.

Each round asks people who were not asked before which of the open prefixes their text
begins with, at full epsilon, by local hashing. Prefixes that noise alone would hardly
reach are kept and extended by all bytes that may follow in UTF-8. When every prefix has
ended, one more group confirms the texts: a text is found if its count exceeds that of a
text held by no one at the level alpha/m, for m texts tested (Bonferroni). Its threshold
is the exact quantile of the binomial law of such a count, so the chance of any false
discovery is at most alpha, and so is the false-discovery rate.

Frequencies are not read off these rounds, which select by noise among other things, but
asked of further people afterwards (`dither.discover`).

Reference: Wang, Li, Jha, "Locally differentially private heavy hitter identification",
IEEE TDSC 2021 (PEM: disjoint groups, ever longer prefixes, local hashing).
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr
from scipy.stats import binom, norm

from dither.checks import check_between, check_whole
from dither.errors import ParameterError
from dither.mechanisms import LocalHash, PureMechanism, mechanism
from dither.methods.machine import Campaign, check_close
from dither.reports import Plan, Question
from dither.schema import Attribute, Schema
from dither.tally import CountTally, RoundTally
from dither.types import Integers

Texts = npt.NDArray[np.bytes_]
MAX_TEXT_BYTES = 255
MAX_TOP = 1000


@dataclass(frozen=True)
class DiscoverSettings:
    """Tuned constants of the search.

    Attributes:
        race: Share of the people who are asked for prefixes; the others give frequencies.
        max_cells: Prefixes that one round asks about. More make longer steps and so fewer,
            larger groups, and take time in proportion.
        kept_per_top: Prefixes kept after a round, for each text wanted.
        false_kept: Expected number of prefixes kept in a round that no one has. A higher
            threshold loses frequent texts, a lower one makes steps shorter.
        power: The chance with which a text of the stated findable share is found.
    """

    race: float = 0.75
    max_cells: int = 1 << 16
    kept_per_top: int = 2
    false_kept: float = 20.0
    power: float = 0.8


SETTINGS = DiscoverSettings()


@dataclass(frozen=True)
class DiscoverParameters:
    """What is searched for.

    Attributes:
        top: The largest number of texts to find.
        max_bytes: The length in UTF-8 of the longest text that can be found. Longer ones
            count as "other".
        alphabet: The characters that a text may consist of; empty for all. A text with
            another character counts as "other".
        false_discovery_rate: The level of the test, for all texts together.
    """

    top: int = 20
    max_bytes: int = 16
    alphabet: str = ""
    false_discovery_rate: float = 0.05

    def __post_init__(self) -> None:
        check_whole("top", self.top, 1, MAX_TOP)
        check_whole("max_bytes", self.max_bytes, 1, MAX_TEXT_BYTES)
        check_between("false_discovery_rate", self.false_discovery_rate, 0, 1, ends="()")
        if not isinstance(self.alphabet, str):
            raise ParameterError("alphabet must be a text of its characters", where="alphabet")
        if "\0" in self.alphabet or not _encodable(self.alphabet):
            raise ParameterError(
                "alphabet has a NUL or an unpaired surrogate, which no text has", where="alphabet"
            )

    @property
    def letters(self) -> str:
        """The alphabet's characters in order, each once."""
        return "".join(sorted(set(unicodedata.normalize("NFC", self.alphabet))))


# Texts.


def normalise(text: str, *, casefold: bool = False) -> str:
    """The form in which texts are compared: Unicode NFC, without spaces at the ends."""
    composed = unicodedata.normalize("NFC", text).strip()
    return unicodedata.normalize("NFC", composed.casefold()) if casefold else composed


def encode_text(text: str, parameters: DiscoverParameters) -> bytes | None:
    """The UTF-8 bytes of a normalised text; None if it counts as "other"."""
    if "\0" in text or not _encodable(text):
        return None
    encoded = text.encode()
    if len(encoded) > parameters.max_bytes:
        return None
    if parameters.alphabet and not set(text) <= set(parameters.letters):
        return None
    return encoded


def _encodable(text: str) -> bool:
    return not any("\ud800" <= letter <= "\udfff" for letter in text)


# Bytes after the first of a character, where they are not 80 to BF (RFC 3629).
_SECOND = {0xE0: (0xA0, 0xBF), 0xED: (0x80, 0x9F), 0xF0: (0x90, 0xBF), 0xF4: (0x80, 0x8F)}


def _tail(prefix: bytes) -> bytes:
    """The bytes of the unfinished character at the end of a prefix."""
    for back in range(1, min(3, len(prefix)) + 1):
        lead = prefix[-back]
        if lead >= 0xC0:
            length = 2 + (lead >= 0xE0) + (lead >= 0xF0)
            return prefix[-back:] if back < length else b""
        if lead < 0x80:
            return b""
    return b""


@lru_cache(maxsize=4096)
def _next_bytes(tail: bytes, letters: str) -> tuple[int, ...]:
    """The bytes that may follow an unfinished character, or begin one."""
    if letters:
        encoded = {letter.encode() for letter in letters}
        return tuple(
            sorted({e[len(tail)] for e in encoded if len(e) > len(tail) and e.startswith(tail)})
        )
    if not tail:
        return (*range(1, 0x80), *range(0xC2, 0xF5))
    low, high = _SECOND.get(tail[0], (0x80, 0xBF)) if len(tail) == 1 else (0x80, 0xBF)
    return tuple(range(low, high + 1))


@lru_cache(maxsize=4096)
def _suffixes(tail: bytes, step: int, letters: str) -> tuple[bytes, ...]:
    """What may follow a prefix: `step` bytes, or fewer if the text ends."""
    if step == 0:
        return (b"",)
    ended = () if tail else (b"",)
    longer = (
        bytes([byte]) + rest
        for byte in _next_bytes(tail, letters)
        for rest in _suffixes(_tail(tail + bytes([byte])), step - 1, letters)
    )
    return (*ended, *longer)


@lru_cache(maxsize=4096)
def _count_suffixes(tail: bytes, step: int, letters: str) -> int:
    """The length of `_suffixes`, without listing them."""
    if step == 0:
        return 1
    return (not tail) + sum(
        _count_suffixes(_tail(tail + bytes([byte])), step - 1, letters)
        for byte in _next_bytes(tail, letters)
    )


def unlisted(attribute: str, found: Sequence[str] = ()) -> Schema:
    """The schema of one text: the values found, the rest of the texts, and no answer."""
    rest = "other"
    while rest in found:
        rest = f"({rest})"
    return Schema((Attribute(attribute, "categorical", values=(*found, rest), missing=True),))


# The search.


@dataclass(frozen=True)
class RoundFacts:
    """What one round decided.

    Attributes:
        length: Bytes of the prefixes, an end of the text included.
        tested: Prefixes tested.
        people: Reports counted.
        needed: The smallest count that was kept.
        forged: Forged reports that a prefix held by no one needs to be kept.
    """

    length: int
    tested: int
    people: int
    needed: int
    forged: int


class PrefixSearch:
    """The rounds before frequencies are asked: a pure state machine of plans and tallies.

    `plan` and `close` are those of `ProtocolMachine`; closing the same tallies gives the
    same state.

    Args:
        attribute: The name of the text's attribute.
        epsilon: The guarantee of one participant, who answers in one round.
        participants: All participants, those who give frequencies included.
        parameters: What is searched for.
        settings: Tuned constants.

    >>> search = PrefixSearch("word", 4.0, 100_000, DiscoverParameters(max_bytes=6))
    >>> search.plan().questions[0].mechanism.name, search.plan().epsilon <= 4.0
    ('olh', True)
    """

    def __init__(
        self,
        attribute: str,
        epsilon: float,
        participants: int,
        parameters: DiscoverParameters,
        settings: DiscoverSettings = SETTINGS,
    ) -> None:
        self.attribute = attribute
        self.campaign = Campaign(unlisted(attribute), epsilon, participants)
        self.parameters = parameters
        self.settings = settings
        self.design = search_design(participants, epsilon, parameters, settings)
        self.rounds: list[RoundFacts] = []
        self._closed: list[CountTally] = []
        self._spent = 0.0
        self._length = 0
        self._confirming = False
        self._found: tuple[bytes, ...] | None = None
        self._cells: Texts = np.array([b""])
        if self.design.findable is None:
            self._found = ()
        else:
            self._extend([b""])

    @property
    def closed(self) -> tuple[RoundTally, ...]:
        """The tallies of the closed rounds."""
        return tuple(self._closed)

    @property
    def candidates(self) -> tuple[bytes, ...]:
        """The prefixes of the open round, or of the last one, in the order of its cells."""
        return tuple(bytes(text) for text in self._cells)

    @property
    def found(self) -> tuple[bytes, ...]:
        """The texts found, most frequent first; empty while the search goes on."""
        return self._found or ()

    @property
    def forged_reports(self) -> int:
        """Forged reports that plant a text nobody holds, by people who choose their rounds."""
        return sum(facts.forged for facts in self.rounds)

    @property
    def forging_share(self) -> float:
        """The share of all participants needed where no one can choose the round."""
        return max((facts.forged / facts.people for facts in self.rounds), default=1.0)

    def plan(self) -> Plan | None:
        """The open round; None when the search has ended."""
        if self._found is not None:
            return None
        cells = len(self._cells) + 1
        name = "best" if self._confirming else "olh"
        asked = mechanism(name, cells, self.campaign.epsilon)
        rounds = 1 if self._confirming else 1 + self._rounds_left(self._length)
        share = (self.settings.race - self._spent) / rounds
        if self._confirming:
            share = min(share, self.settings.race / self.design.groups)
        question = Question((self.attribute,), asked)
        return Plan(len(self._closed), (question,), (1.0,), population=share)

    def cells_of(self, texts: Texts) -> Integers:
        """The cell of each text in the open round; the last cell is "none of these"."""
        prefixes = texts.astype(self._cells.dtype)
        place = np.minimum(np.searchsorted(self._cells, prefixes), len(self._cells) - 1)
        known = self._cells[place] == prefixes
        return np.where(known, place, len(self._cells)).astype(np.int64)

    def close(self, tally: RoundTally) -> None:
        """Close the open round with its tally and open the next.

        Raises:
            StateError: No round is open, or the tally is of another plan.
            TooFewAnswers: The tally has no reports.
        """
        plan = self.plan()
        check_close(plan, tally)
        assert plan is not None
        assert isinstance(tally, CountTally)
        self._closed.append(tally)
        self._spent += plan.population
        asked, n = plan.questions[0].mechanism, int(tally.n[0])
        assert isinstance(asked, PureMechanism)
        counts, q = tally.counts[0][:-1], float(asked.q)
        tested = len(counts)
        level = self.settings.false_kept / tested
        most = self.design.kept
        if self._confirming:
            level, most = self.parameters.false_discovery_rate / tested, self.parameters.top
        threshold = int(binom.isf(min(level, 0.5), n, q)) + 1
        order = np.argsort(-counts, kind="stable")
        chosen = order[:most][counts[order[:most]] >= threshold]
        needed = threshold if len(chosen) < most else max(threshold, int(counts[chosen[-1]]))
        forged = min(n, max(1, math.ceil((needed - n * q) / (1 - q))))
        self.rounds.append(RoundFacts(self._length, tested, n, needed, forged))
        self._next([bytes(self._cells[i]) for i in chosen])

    def _next(self, kept: Sequence[bytes]) -> None:
        """Decide what follows a round: the end, the confirmation or longer prefixes."""
        if self._confirming or not kept:
            self._found = tuple(kept) if self._confirming else ()
        elif all(len(prefix) < self._length for prefix in kept):
            self._confirming = True
            self._cells = _sorted(kept, self._length)
        else:
            self._extend(kept)

    def _extend(self, kept: Sequence[bytes]) -> None:
        """Open the round of all prefixes that continue these by one step."""
        end = self.parameters.max_bytes + 1
        step = self._step(kept)
        longer = list(self._continued(kept, step))
        self._length += step
        if self._length == end:
            longer = [text for text in longer if len(text) < end]
        if longer:
            self._cells = _sorted(longer, self._length)
        else:
            self._found = ()

    def _continued(self, kept: Sequence[bytes], step: int) -> Iterator[bytes]:
        for prefix in kept:
            if len(prefix) < self._length:
                yield prefix
                continue
            for suffix in _suffixes(_tail(prefix), step, self.parameters.letters):
                if prefix or suffix:
                    yield prefix + suffix

    def _step(self, kept: Sequence[bytes]) -> int:
        """The most bytes whose prefixes fit into one round."""
        open_tails = [_tail(prefix) for prefix in kept if len(prefix) == self._length]
        letters, step = self.parameters.letters, 1
        while self._length + step < self.parameters.max_bytes + 1:
            cells = sum(_count_suffixes(tail, step + 1, letters) for tail in open_tails)
            if cells > self.settings.max_cells:
                break
            step += 1
        return step

    def _rounds_left(self, length: int) -> int:
        """The open round and those that may follow it, confirmation apart."""
        left = [end for end in self.design.ends if end > length]
        return 1 + len(left)


def _sorted(texts: Iterable[bytes], length: int) -> Texts:
    return np.sort(np.array(list(texts), dtype=f"S{length}"))


# What can be found.


@dataclass(frozen=True)
class SearchDesign:
    """What a search of so many people looks like beforehand.

    Attributes:
        ends: Length of the prefixes after each round, as planned with `kept` prefixes.
        kept: Prefixes kept after a round.
        people: Participants of one round.
        findable: The smallest share of the people that a text needs to be found with the
            stated power; None if no text can be found.
    """

    ends: tuple[int, ...]
    kept: int
    people: int
    findable: float | None

    @property
    def groups(self) -> int:
        """Rounds with the confirmation."""
        return len(self.ends) + 1


def search_design(
    participants: int,
    epsilon: float,
    parameters: DiscoverParameters,
    settings: DiscoverSettings = SETTINGS,
) -> SearchDesign:
    """The rounds of a search and the share of people that a text needs.

    Args:
        participants: All participants.
        epsilon: The guarantee of one participant.
        parameters: What is searched for.
        settings: Tuned constants.

    >>> design = search_design(100_000, 4.0, DiscoverParameters(max_bytes=8))
    >>> design.groups > 3 and 0.001 < design.findable < 0.05
    True
    """
    letters = parameters.letters
    most = max(1, settings.max_cells // _count_suffixes(b"", 1, letters))
    kept = min(settings.kept_per_top * parameters.top, most)
    design = _design(participants, epsilon, parameters, settings, kept)
    if design.findable is not None:
        # So many texts of that share are more than there can be.
        fewer = max(1, min(kept, math.ceil(2 / design.findable)))
        design = _design(participants, epsilon, parameters, settings, fewer)
    return design


def _design(
    participants: int,
    epsilon: float,
    parameters: DiscoverParameters,
    settings: DiscoverSettings,
    kept: int,
) -> SearchDesign:
    ends = _planned_ends(parameters, settings, kept)
    people = int(settings.race * participants / (len(ends) + 1))
    findable = None
    if people > 0:
        findable = _findable(people, epsilon, len(ends), kept, parameters, settings)
    return SearchDesign(ends, kept, people, findable)


def _planned_ends(
    parameters: DiscoverParameters, settings: DiscoverSettings, kept: int
) -> tuple[int, ...]:
    end, letters = parameters.max_bytes + 1, parameters.letters
    ends: list[int] = []
    length = 0
    while length < end:
        prefixes = kept if length else 1
        step = 1
        while (
            length + step < end
            and prefixes * _count_suffixes(b"", step + 1, letters) <= settings.max_cells
        ):
            step += 1
        length += step
        ends.append(length)
    return tuple(ends)


def _findable(
    people: int,
    epsilon: float,
    rounds: int,
    kept: int,
    parameters: DiscoverParameters,
    settings: DiscoverSettings,
) -> float | None:
    """The share with which a text passes all rounds with the stated power, by bisection."""
    hashed = LocalHash.for_epsilon(2, epsilon)
    p, q = float(hashed.p), float(hashed.q)
    race = norm.isf(min(0.5, settings.false_kept / settings.max_cells))
    confirmed = norm.isf(parameters.false_discovery_rate / kept)

    def power(share: float) -> float:
        support = share * p + (1 - share) * q
        error = math.sqrt(people * support * (1 - support))
        gain = people * share * (p - q)
        noise = math.sqrt(people * q * (1 - q))
        passes = ndtr((gain - race * noise) / error)
        return float(passes**rounds * ndtr((gain - confirmed * noise) / error))

    if power(1.0) < settings.power:
        return None
    low, high = 0.0, 1.0
    while high - low > 1e-3 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if power(middle) >= settings.power else (middle, high)
    return high
