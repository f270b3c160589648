"""Envelopes of reports: one encoding each, and whatever is not one is refused without a traceback."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dither.errors import ReportError
from dither.reports import Envelope, Report, decode, encode, limits

REPORTS = st.builds(
    Report,
    st.binary(min_size=32, max_size=32),
    st.integers(-1, 65534),
    st.binary(min_size=1, max_size=40),
)
ENVELOPES = st.builds(
    Envelope,
    st.binary(min_size=16, max_size=16),
    st.integers(0, limits.MAX_ROUNDS - 1),
    st.lists(REPORTS, min_size=1, max_size=6).map(tuple),
)
ONE = Envelope(bytes(16), 3, (Report(bytes(32), 0, b"abc"),))


@given(ENVELOPES)
@settings(deadline=None)
def test_what_was_encoded_is_decoded(envelope: Envelope) -> None:
    assert decode(encode(envelope)) == envelope


@given(st.binary(max_size=200))
@example(b"DTR1")
@example(encode(ONE)[:27])
@settings(deadline=None)
def test_any_bytes_are_an_envelope_or_refused(data: bytes) -> None:
    try:
        envelope = decode(data)
    except ReportError as error:
        said = str(error)
    else:
        said = ""
        assert encode(envelope) == data
    assert "\n" not in said


@given(ENVELOPES, st.data())
@settings(deadline=None)
def test_a_damaged_envelope_is_refused_or_is_another_envelope(
    envelope: Envelope, data: st.DataObject
) -> None:
    whole = bytearray(encode(envelope))
    kind = data.draw(st.sampled_from(["cut", "grow", "flip"]))
    if kind == "cut":
        damaged = bytes(whole[: data.draw(st.integers(0, len(whole) - 1))])
    elif kind == "grow":
        damaged = bytes(whole) + data.draw(st.binary(min_size=1, max_size=50))
    else:
        whole[data.draw(st.integers(0, len(whole) - 1))] ^= data.draw(st.integers(1, 255))
        damaged = bytes(whole)
    try:
        found = decode(damaged)
    except ReportError:
        return
    assert kind == "flip", "a cut or longer envelope is never an envelope"
    assert found != envelope
    assert encode(found) == damaged


def test_the_limits_hold_at_the_limit_and_one_beyond() -> None:
    token, payload = bytes(32), b"x"
    full = Envelope(
        bytes(16),
        0,
        tuple(Report(i.to_bytes(32, "big"), 0, payload) for i in range(limits.REQUEST_REPORTS)),
    )
    assert decode(encode(full)) == full
    with pytest.raises(ReportError, match="1001"):
        encode(Envelope(full.campaign, 0, (*full.reports, Report(token, 0, payload))))
    longest = Report(token, 0, b"x" * limits.REPORT_BYTES)
    assert decode(encode(Envelope(bytes(16), 0, (longest,)))).reports[0] == longest
    with pytest.raises(ReportError, match="16384"):
        encode(Envelope(bytes(16), 0, (Report(token, 0, b"x" * (limits.REPORT_BYTES + 1)),)))
    with pytest.raises(ReportError, match="fewer reports"):
        encode(Envelope(bytes(16), 0, (longest,) * 64))
    with pytest.raises(ReportError, match="exceeds"):
        decode(bytes(limits.BODY_BYTES + 1))


@pytest.mark.parametrize(
    "change",
    [
        {"campaign": bytes(15)},
        {"round": -1},
        {"round": limits.MAX_ROUNDS},
        {"reports": ()},
        {"reports": (Report(bytes(31), 0, b"x"),)},
        {"reports": (Report(bytes(32), 65535, b"x"),)},
        {"reports": (Report(bytes(32), -2, b"x"),)},
        {"reports": (Report(bytes(32), 0, b""),)},
    ],
)
def test_what_does_not_fit_is_not_encoded(change: dict[str, object]) -> None:
    with pytest.raises(ReportError):
        encode(
            Envelope(**({"campaign": ONE.campaign, "round": 0, "reports": ONE.reports} | change))
        )  # type: ignore[arg-type]
