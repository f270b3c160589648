"""One person takes part: look at the plan, check it, answer once, send until it is acknowledged. Standard library only."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Literal

from dither.client.announcement import Announcement, read_announcement
from dither.client.device import Device, Waiting
from dither.client.record import encode_record
from dither.client.transport import Answer, Transport, Unreachable, http_transport
from dither.errors import PrivacyError, ReportError
from dither.mechanisms import ByteSource
from dither.reports import Envelope, Plan, Report, encode, limits
from dither.reports.assignment import is_asked, pick

Result = Literal["acknowledged", "waiting", "refused", "not-asked", "not-open"]
_LATER = (408, 425, 429, 500, 502, 503, 504, 507)


@dataclass(frozen=True)
class Taken:
    """What came of taking part: the result, the epsilon spent on the campaign so far, and the collector's reason, if any."""

    result: Result
    spent: float
    reason: str = ""


class Participant:
    """A device's part in one campaign.

    Guarantees: no more than `cap` epsilon is spent on the campaign; the answer to a question is drawn once, with `source`,
    and sent with identical bytes until the collector has acknowledged it; a repeated question gets the earlier answer; with
    `allowed`, no question about any other attribute is answered.
    """

    def __init__(
        self,
        device: Device,
        url: str,
        campaign: str,
        *,
        cap: float,
        token: str | bytes | None = None,
        allowed: Collection[str] | None = None,
        transport: Transport = http_transport,
        source: ByteSource = secrets.token_bytes,
        sleep: Callable[[float], None] = time.sleep,
        tries: int = 5,
    ) -> None:
        self.device = device
        self.campaign = campaign
        self._address = f"{url.rstrip('/')}/v1/campaigns/{campaign}"
        self._cap = cap
        self._token = bytes.fromhex(token) if isinstance(token, str) else token
        if self._token is not None and len(self._token) != limits.TOKEN_BYTES:
            raise PrivacyError(f"a token has {limits.TOKEN_BYTES} bytes", where="token")
        self._allowed = None if allowed is None else frozenset(allowed)
        self._transport = transport
        self._source = source
        self._sleep = sleep
        self._tries = tries

    def take_part(self, record: Mapping[str, object]) -> Taken:
        """Answer the open round if it asks this participant and has not been answered, then send what waits."""
        announcement = self.look()
        if announcement.plan is None:
            return self.send() or self._taken("not-open", announcement.state)
        token = self.device.join(announcement, self._cap, self._token)
        answered = self.device.answered(self.campaign, announcement.plan.round)
        if answered is None:
            if not is_asked(token, announcement.campaign, announcement.start, announcement.plan.population):
                return self.send() or self._taken("not-asked", "another round asks this participant")
            self._answer(announcement, announcement.plan, token, encode_record(announcement.schema, record))
        elif answered != announcement.plan_digest:
            raise PrivacyError(
                f"round {announcement.plan.round} of campaign {self.campaign} was answered, and its plan has changed since",
                where="plan",
            )
        return self.send() or self._taken("acknowledged")

    def look(self) -> Announcement:
        """Fetch and check what the collector announces."""
        answer = self._persist(lambda: self._transport("GET", self._address, None))
        if answer is None or answer.status != 200:
            raise Unreachable(
                "the collector does not answer"
                if answer is None
                else f"the collector says {answer.status}: {_cause(answer)}"
            )
        announcement = read_announcement(answer.body)
        if announcement.campaign.hex() != self.campaign:
            raise ReportError(f"the collector announces campaign {announcement.campaign.hex()}, not {self.campaign}")
        return announcement

    def send(self) -> Taken | None:
        """Send what waits in the outbox of this campaign, the same bytes at every try; None if nothing does."""
        last: Taken | None = None
        for waiting in self.device.outbox(self.campaign):
            if waiting.state == "waiting":
                last = self._send(waiting)
            elif waiting.state == "refused":
                last = self._taken("refused")
        return last

    def _answer(self, announcement: Announcement, plan: Plan, token: bytes, codes: list[int]) -> None:
        """Randomise, then enter answer, spending and outgoing bytes into the books in one transaction."""
        picked = pick(token, announcement.campaign, plan)
        questions = plan.questions if picked == -1 else (plan.questions[picked],)
        private = set() if self._allowed is None else {n for q in questions for n in q.attributes} - self._allowed
        if private:
            raise PrivacyError(
                f"campaign {self.campaign} asks about {', '.join(sorted(private))}, which this participant does not allow",
                where="question",
                value=sorted(private),
            )
        with self.device.transaction():
            earlier = [self.device.recall(self.campaign, q) for q in questions]
            epsilon = 0.0 if all(e is not None for e in earlier) else plan.epsilon
            self.device.check_spending(self.campaign, epsilon)
            parts = []
            for question, known in zip(questions, earlier, strict=True):
                if known is None:
                    known = question.mechanism.randomise(question.cell(announcement.schema, codes), self._source)  # noqa: PLW2901
                    self.device.remember(self.campaign, question, known)
                parts.append(known)
            report = Report(token, picked, b"".join(parts))
            self.device.enter(announcement, epsilon, encode(Envelope(announcement.campaign, plan.round, (report,))))

    def _send(self, waiting: Waiting) -> Taken:
        answer = self._persist(lambda: self._transport("POST", self._address + "/reports", waiting.body))
        if answer is None or answer.status in _LATER:
            return self._taken("waiting", "" if answer is None else _cause(answer))
        state: Result = "acknowledged" if answer.status in (200, 201) else "refused"
        self.device.settle(waiting, state)
        return self._taken(state, "" if state == "acknowledged" else _cause(answer))

    def _persist(self, request: Callable[[], Answer]) -> Answer | None:
        """Try again after failures that pass, waiting longer each time, with jitter; None if no answer ever came."""
        answer: Answer | None = None
        for attempt in range(self._tries):
            try:
                answer = request()
                if answer.status not in _LATER:
                    return answer
            except Unreachable:
                answer = None
            if attempt + 1 < self._tries:
                pause = 0.5 * 2**attempt
                asked = 0.0 if answer is None or answer.retry_after is None else min(answer.retry_after, 300.0)
                # Jitter, so that a fleet that failed together does not come back together.
                self._sleep(max(asked, pause * (0.5 + secrets.randbelow(1000) / 1000)))
        return answer

    def _taken(self, result: Result, reason: str = "") -> Taken:
        return Taken(result, self.device.spent(self.campaign), reason)


def _cause(answer: Answer) -> str:
    try:
        body = json.loads(answer.body)
        return str(body.get("detail") or body.get("title") or "")[:200]
    except (ValueError, AttributeError, RecursionError):
        return ""
