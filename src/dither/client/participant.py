"""One person takes part: look at the plan, check it, answer once, send until it is acknowledged. Standard library only."""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from numbers import Real
from typing import Literal

from dither.client.announcement import Announcement, read_announcement
from dither.client.device import Device, WaitingReport
from dither.client.transport import Answer, Transport, Unreachable, http_transport
from dither.errors import ParameterError, PrivacyError, ReportError
from dither.mechanisms import ByteSource
from dither.reports import Envelope, Plan, Question, Report, encode, limits
from dither.reports.codec import document, is_unknown_campaign, verdict
from dither.reports.plan import LEVEL_BITS, level_of, pick
from dither.schema import Attribute, Schema

Result = Literal[
    "acknowledged", "answered", "used-elsewhere", "waiting", "refused", "not-asked", "not-open"
]
MAX_SLEEP = 300.0  # seconds between tries, in all of one visit
# A collector that has deleted a campaign cannot be told from one with the wrong database, so "no such campaign" ends a
# report only when the collector has said nothing else for this many days (decision 0017).
UNKNOWN_CAMPAIGN_DAYS = 30
_LATER = (408, 425, 429, 500, 502, 503, 504, 507)


@dataclass(frozen=True)
class TakePartResult:
    """What came of taking part: the result, the epsilon spent on the campaign so far, and the collector's reason, if any.

    "answered" is the collector's word that this participant's answer in another round is the one that counts.
    "used-elsewhere" is its word that a report with this device's ticket is stored that this device did not make; then
    nothing was drawn, spent or sent here. A "refused" report was sent. `receipt` is the id of this device's report, in
    base 16, if it has made one. If a later round asks this participant, the reason says so and `come_back` is the time
    when the open round closes at the latest, in seconds since 1970, if that is known.
    `outside` names the attributes just answered whose value the announced domain lacks (see `encode_answer`). It is for
    the application on the device; nothing of it is sent.
    """

    result: Result
    spent: float
    reason: str = ""
    outside: tuple[str, ...] = ()
    receipt: str = ""
    come_back: float | None = None


class Participant:
    """A device's part in one campaign.

    Guarantees: no more than `cap` epsilon is spent on the campaign; the answer to a question is drawn once, with `source`,
    and sent with identical bytes until the collector has acknowledged it; a repeated question gets the earlier answer; where
    whoever arrives is asked, one round of the campaign is answered and no other; with
    `allowed`, no question about any other attribute is answered; with `schema_fingerprint`, no campaign of another schema.
    Token and reports go to the server of the first visit only, unless the application says that it has `moved`.
    With a `token` from outside (a ticket), which another device may hold too, the device draws only after the collector has
    said that no report with that ticket is stored. Two devices can both hear that, if neither's report is stored yet; then
    both draw, one report is refused, and a collector that keeps both learns up to twice epsilon (decision 0076).
    Whether and with how many bytes the device answers never depends on the record.
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
        schema_fingerprint: str | None = None,
        moved: bool = False,
        transport: Transport = http_transport,
        source: ByteSource = secrets.token_bytes,
        sleep: Callable[[float], None] = time.sleep,
        tries: int = 5,
    ) -> None:
        self.device = device
        self.campaign = campaign
        self._server = url.rstrip("/")
        self._address = f"{self._server}/v1/campaigns/{campaign}"
        self._moved = moved
        self._slept = 0.0
        self._cap = cap
        self._token = bytes.fromhex(token) if isinstance(token, str) else token
        if self._token is not None and len(self._token) != limits.TOKEN_BYTES:
            raise PrivacyError(f"a token has {limits.TOKEN_BYTES} bytes", where="token")
        self._allowed = None if allowed is None else frozenset(allowed)
        self._fingerprint = schema_fingerprint
        self._transport = transport
        self._source = source
        self._sleep = sleep
        self._tries = tries

    def take_part(self, record: Mapping[str, object]) -> TakePartResult:
        """Answer the open round if it asks this participant and has not been answered, then send what waits."""
        if not isinstance(record, Mapping):
            raise ParameterError(
                "a record is a mapping from attributes' names to values", where="record"
            )
        self._slept = 0.0
        announcement = self.look()
        token = self.device.join(announcement, self._cap, self._token, self._server, self._moved)
        came = self._come(announcement, token, record)
        rounds = self.device.answered_rounds(self.campaign)
        return replace(came, receipt=announcement.receipt(token, rounds[-1]) if rounds else "")

    def _come(
        self, announcement: Announcement, token: bytes, record: Mapping[str, object]
    ) -> TakePartResult:
        """Answer if there is something to answer, and send."""
        plan, rounds = announcement.plan, self.device.answered_rounds(self.campaign)
        once = announcement.assignment == "arrival"
        if once and rounds and (plan is None or plan.round not in rounds):
            return self._send_waiting() or self._taken("acknowledged")
        if plan is None:
            return self._send_waiting() or self._taken("not-open", announcement.state)
        outside: tuple[str, ...] = ()
        if plan.round not in rounds:
            if not announcement.asks(token):
                return self._send_waiting() or self._not_asked(announcement, token)
            if self._used_elsewhere(announcement, plan, token):
                reason = (
                    "another device has answered with this ticket; nothing was drawn or sent here"
                )
                return self._send_waiting() or self._taken("used-elsewhere", reason)
            outside = self._answer(announcement, plan, token, record)
        elif self.device.answers_of(self.campaign, plan.round) != announcement.plan_digest:
            raise PrivacyError(
                f"round {plan.round} of campaign {self.campaign} was answered, and its plan has changed since",
                where="plan",
            )
        return replace(self._send_waiting() or self._taken("acknowledged"), outside=outside)

    def _used_elsewhere(self, announcement: Announcement, plan: Plan, token: bytes) -> bool:
        """Return whether a report with this ticket is stored, which this device has not made.

        Asked before anything is drawn, of the collector alone; the record plays no part. A token that this device drew
        itself is on no other device, and nothing is asked.

        Raises:
            Unreachable: The collector does not say. A device that does not know must not draw.
        """
        if self._token is None and self.device.drew_token(self.campaign):
            return False
        wanted = bytes.fromhex(announcement.receipt(token, plan.round))
        answer = self._persist(lambda: self._transport("POST", self._address + "/lookup", wanted))
        stored = (
            None if answer is None or answer.status != 200 else document(answer.body).get("stored")
        )
        if isinstance(stored, bool):
            return stored
        self._send_waiting()  # what earlier rounds left
        status = "" if answer is None else f" (status {answer.status})"
        raise Unreachable(
            f"the collector does not say whether this ticket has been used{status}; nothing was drawn or sent, "
            "try again later"
        )

    def _not_asked(self, announcement: Announcement, token: bytes) -> TakePartResult:
        later = announcement.asks_later(token)
        reason = (
            "a later round asks this participant; come back"
            if later
            else "an earlier round asked this participant"
        )
        return replace(
            self._taken("not-asked", reason), come_back=announcement.round_closes if later else None
        )

    def look(self) -> Announcement:
        """Fetch and check what the collector announces."""
        answer = self._persist(lambda: self._transport("GET", self._address, None))
        if answer is not None:
            self._note_unknown(answer)
        if answer is None or answer.status != 200:
            said = "does not answer" if answer is None else f"says {answer.status}: {answer.reason}"
            raise Unreachable(f"the collector {said}")
        announcement = read_announcement(answer.body)
        if announcement.campaign.hex() != self.campaign:
            raise ReportError(
                f"the collector announces campaign {announcement.campaign.hex()}, not {self.campaign}"
            )
        self.device.note_known(self.campaign, True)
        if self._fingerprint is not None and announcement.schema.fingerprint != self._fingerprint:
            raise PrivacyError(
                f"campaign {self.campaign} has the schema {announcement.schema.fingerprint}, not the one agreed on",
                where="schema_fingerprint",
                value=announcement.schema.fingerprint,
            )
        return announcement

    def send(self) -> TakePartResult | None:
        """Send what waits in the outbox of this campaign, the same bytes at every try; None if nothing does."""
        self._slept = 0.0
        self.device.check_address(self.campaign, self._server, self._moved)
        return self._send_waiting()

    def _send_waiting(self) -> TakePartResult | None:
        """Send what waits; the result is that of the latest round, None if its report was acknowledged before."""
        last: TakePartResult | None = None
        for waiting in self.device.outbox(self.campaign):
            if waiting.state == "waiting":
                last = self._send(waiting)
            elif waiting.state == "acknowledged":
                last = None
            else:
                last = self._taken("answered" if waiting.state == "answered" else "refused")
        return last

    def _answer(
        self, announcement: Announcement, plan: Plan, token: bytes, record: Mapping[str, object]
    ) -> tuple[str, ...]:
        """Randomise, then enter answer, spending and outgoing bytes into the books in one transaction.

        No refusal here depends on the record. Gives the names of the attributes whose value is outside the domain.
        """
        picked = pick(token, announcement.campaign, plan)
        questions = plan.questions if picked == -1 else (plan.questions[picked],)
        private = (
            set()
            if self._allowed is None
            else {n for q in questions for n in q.attributes} - self._allowed
        )
        if private:
            raise PrivacyError(
                f"campaign {self.campaign} asks about {', '.join(sorted(private))}, which this participant does not allow",
                where="question",
                value=sorted(private),
            )
        with self.device.transaction():
            rounds = self.device.answered_rounds(self.campaign)
            if plan.round in rounds or (rounds and announcement.assignment == "arrival"):
                return ()  # another process of this device was faster; its answer is the one that is sent
            earlier = [self.device.recall(self.campaign, q) for q in questions]
            epsilon = 0.0 if all(e is not None for e in earlier) else plan.epsilon
            self.device.check_spending(self.campaign, epsilon)
            parts = []
            outside: dict[str, None] = {}
            for question, known in zip(questions, earlier, strict=True):
                if known is not None:
                    parts.append(known)
                    continue
                answer = encode_answer(announcement.schema, question, record, self._source)
                outside |= dict.fromkeys(answer.outside)
                payload = question.mechanism.randomise(answer.cell, self._source)
                self.device.remember(self.campaign, question, payload)
                parts.append(payload)
            report = Report(token, picked, b"".join(parts))
            self.device.enter(
                announcement,
                epsilon,
                encode(Envelope(announcement.campaign, plan.round, (report,))),
            )
        return tuple(outside)

    def _send(self, waiting: WaitingReport) -> TakePartResult:
        answer = self._persist(
            lambda: self._transport("POST", self._address + "/reports", waiting.body)
        )
        if answer is None:
            return self._taken("waiting")
        state = verdict(answer.status, answer.content_type, answer.body)
        if self._note_unknown(answer):
            return self._taken("refused", answer.reason)
        if state != "waiting":
            self.device.settle(waiting, state)
        return self._taken(state, "" if state == "acknowledged" else answer.reason)

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
                asked = 0.0 if answer is None or answer.retry_after is None else answer.retry_after
                pause = retry_pause(asked, 0.5 * 2**attempt)
                if self._slept + pause > MAX_SLEEP:
                    return answer  # what waits is sent at the next visit; no server holds the application up for longer
                self._slept += pause
                self._sleep(pause)
        return answer

    def _note_unknown(self, answer: Answer) -> bool:
        """End the reports of a campaign that its collector has not known for a long time; return whether it did."""
        if not is_unknown_campaign(answer.status, answer.content_type, answer.body):
            return False
        self.device.check_address(self.campaign, self._server, self._moved)
        if self.device.note_known(self.campaign, False) < UNKNOWN_CAMPAIGN_DAYS * 86_400:
            return False
        for waiting in self.device.outbox(self.campaign):
            if waiting.state == "waiting":
                self.device.settle(waiting, "refused")
        return True

    def _taken(self, result: Result, reason: str = "") -> TakePartResult:
        return TakePartResult(result, self.device.spent(self.campaign), reason)


def retry_pause(asked: float, backoff: float) -> float:
    """Seconds until the next try: what the server asks for plus a random part of the longer of it and `backoff`.

    The random part comes on top of what the server asks. Otherwise all devices that were refused together would
    return together.
    """
    return asked + max(asked, backoff) * secrets.randbelow(1 << 32) / (1 << 32)


@dataclass(frozen=True)
class EncodedAnswer:
    """The cell with which a record answers one question, and the attributes whose value is outside the domain."""

    cell: int
    outside: tuple[str, ...]


def encode_answer(
    schema: Schema, question: Question, record: Mapping[str, object], source: ByteSource
) -> EncodedAnswer:
    """The cell of a record for one question. It never raises and depends on no other question of the plan.

    A collector chooses the domains and the questions it announces. If a device kept silent about a value that it
    cannot encode, silence would be an answer without noise. So such a value is answered as missing where the schema
    has that answer, otherwise by an answer drawn uniformly; either goes through the mechanism (decision 0016).

    The random bytes taken do not depend on the record: an answer is drawn for every attribute without a missing
    answer, whether or not it is used. Only the question's attributes are read from the record.

    Args:
        schema: The announced schema.
        question: A question that fits the schema, as `read_announcement` checks.
        record: Values by attribute name; any mapping, however it behaves.
        source: Random bytes for the answers drawn instead, and for rounding.
    """
    cell = 0
    outside = []
    for name in question.attributes:
        attribute = schema[name]
        width = question.width(schema, name)
        instead = width - 1 if attribute.missing else draw_below(width, source)
        draw = int.from_bytes(source(LEVEL_BITS // 8), "little") if question.rounded else 0
        value = _value(record, name)
        if question.rounded:
            answer = rounded_code(attribute, value, width, draw)
        else:
            code = code_of(attribute, value)
            answer = None if code is None else question.answer(schema, name, code)
        if answer is None or not 0 <= answer < width:
            outside.append(name)
            answer = instead
        cell = cell * width + answer
    return EncodedAnswer(cell, tuple(outside))


def code_of(attribute: Attribute, value: object) -> int | None:
    """The value's code, None where it is outside the domain. None and NaN are missing answers.

    Agrees with the codes of a whole table (`dither.schema.table.encode`). A value that cannot be compared is outside.
    """
    try:
        if value is None or (isinstance(value, float) and math.isnan(value)):
            return attribute.answers if attribute.missing else None
        return _place(attribute, value) if attribute.on_line else _label(attribute, value)
    except (
        Exception
    ):  # whatever an object does when it is compared, the device answers all the same
        return None


def rounded_code(attribute: Attribute, value: object, levels: int, draw: int) -> int | None:
    """The level to which a draw rounds a value, None where it is no number of the domain."""
    try:
        number = _number(attribute, value)
        return None if number is None else level_of(attribute, number, levels, draw)
    except Exception:  # as above
        return None


def draw_below(count: int, source: ByteSource) -> int:
    """A number in 0..count-1, each exactly as likely: draws beyond the last one are drawn again."""
    bits = (count - 1).bit_length()
    while True:
        drawn = int.from_bytes(source((bits + 7) // 8), "little") & ((1 << bits) - 1)
        if drawn < count:
            return drawn


def _value(record: Mapping[str, object], name: str) -> object:
    try:
        return record.get(name)
    except Exception:  # a mapping that fails has no answer
        return None


def _place(attribute: Attribute, value: object) -> int | None:
    number = _number(attribute, value)
    return None if number is None else attribute.line_code(number)


def _number(attribute: Attribute, value: object) -> float | None:
    """Where a value lies on its attribute's line, None where it is none."""
    if attribute.kind != "numeric":
        return attribute.number(value)
    if isinstance(value, bool) or not isinstance(value, (int, float, Real)):
        return None
    return value if type(value) is int else float(value)  # plain, so that it compares as numbers do


def _label(attribute: Attribute, value: object) -> int | None:
    code = attribute.codes.get(value)  # type: ignore[call-overload]
    if code is None or isinstance(value, str) != isinstance(attribute.values[code], str):
        return None
    return int(code)
