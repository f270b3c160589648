"""The device kit: ledger, memo, outbox and upload. Standard library only.

>>> from dither.client import Device, Participant
>>> device = Device(":memory:")
>>> device.spent("00" * 16)
0.0
"""

from dither.client.announcement import Announcement, read_announcement
from dither.client.device import CAMPAIGN_BYTES, OUTBOX_BYTES, RESEND_DAYS, Device
from dither.client.participant import (
    MAX_SLEEP,
    Participant,
    TakePartResult,
    code_of,
    draw_below,
    encode_answer,
    retry_pause,
    rounded_code,
)
from dither.client.transport import Answer, Connection, Transport, Unreachable, http_transport

__all__ = [
    "CAMPAIGN_BYTES",
    "MAX_SLEEP",
    "OUTBOX_BYTES",
    "RESEND_DAYS",
    "Announcement",
    "Answer",
    "Connection",
    "Device",
    "Participant",
    "TakePartResult",
    "Transport",
    "Unreachable",
    "code_of",
    "draw_below",
    "encode_answer",
    "http_transport",
    "read_announcement",
    "retry_pause",
    "rounded_code",
]
