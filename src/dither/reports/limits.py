"""The sizes that device and server agree on; a server refuses what exceeds them before it reads on. Standard library only."""

from __future__ import annotations

BODY_BYTES = 1 << 20  # one upload request
REPORT_BYTES = 16 << 10  # one report, all questions of a split plan together
REQUEST_REPORTS = 1000  # reports in one request
TOKEN_BYTES = 32
CAMPAIGN_BYTES = 16
REPORT_ID_BYTES = 32  # SHA-256
MAX_ROUNDS = 1 << 16
MAX_QUESTIONS = 1 << 16  # one number of sixteen bits is taken for whole split reports
PLAN_BYTES = 8 << 20  # the public description of a campaign, as a device reads it
DRAW_BYTES = 1 << 20  # randomness that one report may ask of a device
MAX_NUMBER = 1 << 53  # any number of a plan lies below
MAX_MECHANISMS = (
    1 << 14
)  # different ones in a plan: the epsilon of each is worked out on the device
MAX_TITLE, MAX_PURPOSE, MAX_CONTACT = (
    200,
    4000,
    500,
)  # characters of what a campaign says of itself
BLOOM_DIGESTS = 1 << 18  # SHA-256 of a device for all Bloom filters of a plan
BLOOM_BYTES = 1 << 25  # of all those filters together
MAX_EDGES = 1 << 18  # of all consumers that an announcement names
MAX_PAIRS = (
    1 << 21
)  # pairs that it compares: of filters for their distance, of cells and the sets of a strategy
