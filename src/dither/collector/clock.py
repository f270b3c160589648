"""The time that decides dates: the database's, which all collectors share.

A collector's own clock decides nothing. It is compared with the database's time, because a
large difference means that one of the two is wrong, and a wrong date would end a campaign.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from dither.collector import limits
from dither.collector.store import Store, StoreUnavailable
from dither.errors import DitherError

log = logging.getLogger("dither.collector")


class ClockSkew(DitherError):
    """The machine's clock and the database's time differ too much; one of them is wrong."""


class DatabaseClock:
    """The database's time, read every `CLOCK_SECONDS` and extrapolated in between.

    Calling it returns seconds since 1970. It may be called in any thread.

    Args:
        store: The store that tells the time.
        clock: The machine's clock, seconds since 1970.
        monotonic: Seconds that only increase.
    """

    def __init__(
        self,
        store: Store,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store, self._clock, self._monotonic = store, clock, monotonic
        self._guard = threading.Lock()
        self._trusted_before = True
        self._next = 0.0  # when to read the database's time again
        self.measure()

    def __call__(self) -> float:
        if self._monotonic() >= self._next:
            try:
                self.measure()
            except StoreUnavailable:  # extrapolate until the database answers again
                self._next = self._monotonic() + limits.CLOCK_SECONDS
        with self._guard:
            return self._database + self._monotonic() - self._measured

    @property
    def trusted(self) -> bool:
        """Whether both clocks agreed at the last reading."""
        return abs(self.skew) <= limits.MAX_SKEW_SECONDS

    def measure(self) -> None:
        """Read the database's time; log when the clocks begin to differ or agree again."""
        begun = self._monotonic()
        database = self._store.now()
        ended = self._monotonic()
        with self._guard:
            self._database = database + (ended - begun) / 2
            self._measured = ended
            self._next = ended + limits.CLOCK_SECONDS
            self.skew = self._clock() - self._database
            changed = self.trusted != self._trusted_before
            self._trusted_before = self.trusted
        if changed and not self.trusted:
            log.error("%s; no round closes automatically until they agree", self._difference())
        elif changed:
            log.warning("the clock agrees with the database's time again")

    def check(self) -> None:
        """Read the database's time and compare.

        Raises:
            ClockSkew: The clocks differ by more than `MAX_SKEW_SECONDS`.
        """
        self.measure()
        if not self.trusted:
            raise ClockSkew(
                f"{self._difference()}; at most {limits.MAX_SKEW_SECONDS:g} s are allowed. "
                "Set both clocks (NTP), then start again"
            )

    def _difference(self) -> str:
        direction = "ahead of" if self.skew > 0 else "behind"
        return f"this machine's clock is {abs(self.skew):,.0f} s {direction} the database's time"
