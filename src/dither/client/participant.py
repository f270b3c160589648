"""One participant: fetch the plan, check it, answer once, send until acknowledged.

Standard library only.
"""

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
    "acknowledged",
    "answered",
    "used-elsewhere",
    "waiting",
    "refused",
    "not-asked",
    "not-open",
    "deleted",
]
# Seconds between attempts, in total per visit.
MAX_SLEEP = 300.0
# A collector that deleted a campaign looks like one with the wrong database, so "no such
# campaign" ends a report only after this many days without another answer (decision 0017).
UNKNOWN_CAMPAIGN_DAYS = 30
_ENDED: dict[str, Result] = {"answered": "answered", "deleted": "deleted"}
_LATER = (408, 425, 429, 500, 502, 503, 504, 507)


@dataclass(frozen=True)
class TakePartResult:
    """The result of taking part.

    Attributes:
        result: "answered" means that the collector counts this participant's answer in another
            round. "used-elsewhere" means that the collector stores a report with this ticket
            from another device; then nothing was drawn, spent or sent here. A "refused" report
            was sent. A "deleted" one was deleted by the participant.
        spent: The epsilon spent on the campaign so far.
        reason: The collector's reason, if any. If a later round asks this participant, it says
            so.
        outside: The answered attributes whose value is outside the announced domain (see
            `encode_answer`). It is for the application on the device and never sent.
        receipt: The id of this device's report in base 16, if it has made one.
        come_back: When the open round closes at the latest, in seconds since 1970, if a later
            round asks this participant and the time is known.
    """

    result: Result
    spent: float
    reason: str = ""
    outside: tuple[str, ...] = ()
    receipt: str = ""
    come_back: float | None = None


class Participant:
    """A device's part in one campaign.

    Guarantees:

    - At most `cap` epsilon is spent on the campaign.
    - The answer to a question is drawn once, with `source`, and sent with identical bytes until
      the collector has acknowledged it. A repeated question gets the earlier answer.
    - With the assignment "arrival" only one round of the campaign is answered.
    - With `allowed`, no question about any other attribute is answered; with
      `schema_fingerprint`, no campaign with another schema.
    - Token and reports go to the server of the first visit only, unless it has `moved`.
    - With a `token` from outside (a ticket), which another device may hold too, the device draws
      only after the collector has said that no report with that ticket is stored. Two devices
      can both get that answer before either report is stored. Then both draw, one report is
      refused, and a collector that keeps both learns up to twice epsilon (decision 0076).
    - Whether the device answers, and with how many bytes, never depends on the record.

    Args:
        device: The state of the device.
        url: The collector's address.
        campaign: The campaign's id in base 16.
        cap: The largest epsilon to spend on the campaign.
        token: A ticket, in bytes or base 16; drawn by default.
        allowed: The attributes that may be asked; all by default.
        schema_fingerprint: The expected fingerprint of the schema.
        moved: The collector has a new address.
        transport: Sends one request.
        source: The source of noise, by default the operating system's.
        sleep: Waits between attempts.
        tries: The number of attempts of one request.
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
        """Answer the open round if it asks this participant, then send waiting reports.

        Args:
            record: Values by attribute name.

        Raises:
            Unreachable: The collector does not answer.
            PrivacyError: The campaign asks for more than this device allows.
        """
        if not isinstance(record, Mapping):
            raise ParameterError(
                "a record is a mapping from attributes' names to values", where="record"
            )
        self._slept = 0.0
        announcement = self.fetch_announcement()
        token = self.device.join(announcement, self._cap, self._token, self._server, self._moved)
        self.device.note_epoch(announcement)
        came = self._come(announcement, token, record)
        rounds = self.device.answered_rounds(self.campaign)
        return replace(came, receipt=announcement.receipt(token, rounds[-1]) if rounds else "")

    def _come(
        self, announcement: Announcement, token: bytes, record: Mapping[str, object]
    ) -> TakePartResult:
        """Answer if the open round asks this participant, and send."""
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
        """Whether the collector stores a report with this ticket from another device.

        The question is asked before anything is drawn and does not depend on the record. A token
        that this device drew itself is on no other device, so nothing is asked.

        Raises:
            Unreachable: The collector does not answer. The device must not draw then.
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

    def fetch_announcement(self) -> Announcement:
        """Fetch and check the announcement.

        Raises:
            Unreachable: The collector does not answer.
            ReportError: The announcement is malformed or of another campaign.
            PrivacyError: The schema is not the expected one.
        """
        answer = self._persist(lambda: self._transport("GET", self._address, None))
        if answer is not None:
            self._note_unknown(answer)
        if answer is None or answer.status != 200:
            problem = (
                "does not answer" if answer is None else f"says {answer.status}: {answer.reason}"
            )
            raise Unreachable(f"the collector {problem}")
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
        """Send waiting reports of this campaign, with the same bytes at every attempt.

        Returns:
            The result; None if nothing was waiting.
        """
        self._slept = 0.0
        self.device.check_address(self.campaign, self._server, self._moved)
        return self._send_waiting()

    def _send_waiting(self) -> TakePartResult | None:
        """Send waiting reports.

        Returns:
            The result of the latest round; None if its report was acknowledged before.
        """
        last: TakePartResult | None = None
        for waiting in self.device.outbox(self.campaign):
            if waiting.state == "waiting":
                last = self._send(waiting)
            elif waiting.state == "acknowledged":
                last = None
            else:
                last = self._taken(_ENDED.get(waiting.state, "refused"))
        return last

    def delete(self) -> bool:
        """Delete this device's report of the open round at the collector, by its receipt.

        The report is not sent again, and nothing else is drawn: what was spent stays spent. A
        report whose round has closed is part of its tally and stays.

        Returns:
            Whether the collector has deleted it, or never stored it. False if there is none, or
            its round is closed.

        Raises:
            Unreachable: The collector does not say; try again later.
        """
        self._slept = 0.0
        announcement = self.fetch_announcement()
        token = self.device.join(announcement, self._cap, self._token, self._server, self._moved)
        open_round = None if announcement.plan is None else announcement.plan.round
        mine = [r for r in self.device.outbox(self.campaign) if r.round == open_round]
        if not mine:
            return False
        receipt = bytes.fromhex(announcement.receipt(token, mine[0].round))
        answer = self._persist(lambda: self._transport("POST", self._address + "/delete", receipt))
        deleted = None if answer is None else document(answer.body).get("deleted")
        if answer is not None and answer.status == 200 and isinstance(deleted, bool):
            self.device.settle(mine[0], "deleted")
            return True
        if answer is not None and answer.status == 409:
            return False
        status = "" if answer is None else f" (status {answer.status})"
        raise Unreachable(f"the collector does not say whether the report is deleted{status}")

    def _answer(
        self, announcement: Announcement, plan: Plan, token: bytes, record: Mapping[str, object]
    ) -> tuple[str, ...]:
        """Randomise, then store answer, spending and outgoing bytes in one transaction.

        No error raised here depends on the record.

        Returns:
            The attributes whose value is outside the domain.
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
                # Another process of this device was faster; its answer is sent.
                return ()
            earlier = [self.device.recall(self.campaign, q) for q in questions]
            epsilon = 0.0 if all(e is not None for e in earlier) else plan.epsilon
            self.device.check_spending(self.campaign, epsilon)
            parts = []
            outside: dict[str, None] = {}
            for question, repeated in zip(questions, earlier, strict=True):
                if repeated is not None:
                    parts.append(repeated)
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
        """Retry after temporary failures with increasing pauses; None if no answer came."""
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
                    # Waiting reports are sent at the next visit; no server blocks the
                    # application for longer.
                    return answer
                self._slept += pause
                self._sleep(pause)
        return answer

    def _note_unknown(self, answer: Answer) -> bool:
        """End the reports of a campaign that its collector has long denied; return whether it did."""
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
    """The seconds until the next attempt.

    It is what the server asks for plus a random part of the larger one of that and `backoff`.
    Without the random part, devices that were refused together would return together.
    """
    return asked + max(asked, backoff) * secrets.randbelow(1 << 32) / (1 << 32)


@dataclass(frozen=True)
class _EncodedAnswer:
    """The cell of a record for one question, and the attributes outside the domain."""

    cell: int
    outside: tuple[str, ...]


def encode_answer(
    schema: Schema, question: Question, record: Mapping[str, object], source: ByteSource
) -> _EncodedAnswer:
    """The cell of a record for one question. It never raises.

    A collector chooses the domains and questions that it announces. If a device stayed silent
    about a value that it cannot encode, silence would be an answer without noise. Such a value
    is therefore answered as missing if the schema has that answer, otherwise by a uniformly
    drawn answer; either goes through the mechanism (decision 0016).

    The number of random bytes does not depend on the record: an answer is drawn for every
    attribute without a missing answer, even if it is not used. Only the question's attributes
    are read from the record. Other questions of the plan have no effect.

    Args:
        schema: The announced schema.
        question: A question that fits the schema, as `read_announcement` checks.
        record: Values by attribute name.
        source: Random bytes for drawn answers and for rounding.
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
    return _EncodedAnswer(cell, tuple(outside))


def code_of(attribute: Attribute, value: object) -> int | None:
    """The code of a value; None if it is outside the domain. None and NaN are missing.

    It agrees with the codes of a whole table (`dither.schema.table.encode`). A value that cannot
    be compared is outside the domain.
    """
    try:
        if value is None or (isinstance(value, float) and math.isnan(value)):
            return attribute.answers if attribute.missing else None
        return _place(attribute, value) if attribute.on_line else _label(attribute, value)
    except Exception:
        # The device answers even if an object raises when it is compared.
        return None


def rounded_code(attribute: Attribute, value: object, levels: int, draw: int) -> int | None:
    """The level to which a draw rounds a value; None if it is not a number of the domain."""
    try:
        number = _number(attribute, value)
        return None if number is None else level_of(attribute, number, levels, draw)
    except Exception:  # as above
        return None


def draw_below(count: int, source: ByteSource) -> int:
    """A uniform number in 0..count-1, by rejection."""
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
    """The value on its attribute's line; None if it has none."""
    if attribute.kind != "numeric":
        return attribute.number(value)
    if isinstance(value, bool) or not isinstance(value, (int, float, Real)):
        return None
    # A plain number, so that comparisons cannot be overridden.
    return value if type(value) is int else float(value)


def _label(attribute: Attribute, value: object) -> int | None:
    code = attribute.codes.get(value)  # type: ignore[call-overload]
    if code is None or isinstance(value, str) != isinstance(attribute.values[code], str):
        return None
    return int(code)
