"""Size limits shared by device and server; a server rejects larger input before reading it.

Standard library only.
"""

from __future__ import annotations

BODY_BYTES = 1 << 20  # one upload request
REPORT_BYTES = 16 << 10  # one report, all questions of a split plan together
REQUEST_REPORTS = 1000  # reports in one request
TOKEN_BYTES = 32
CAMPAIGN_BYTES = 16
REPORT_ID_BYTES = 32  # SHA-256
MAX_ROUNDS = 1 << 16
# One 16-bit number is reserved for whole split reports.
MAX_QUESTIONS = 1 << 16
PLAN_BYTES = 8 << 20  # the public description of a campaign, as a device reads it
DRAW_BYTES = 1 << 20  # random bytes for one report
MAX_NUMBER = 1 << 53  # exclusive limit of all numbers of a plan
# Distinct mechanisms of a plan; the device computes the epsilon of each.
MAX_MECHANISMS = 1 << 14
MAX_EPOCH = 64  # characters of the name of a collector's restore
# Characters of a campaign's texts.
MAX_TITLE, MAX_PURPOSE, MAX_CONTACT = (
    200,
    4000,
    500,
)
BLOOM_DIGESTS = 1 << 18  # SHA-256 of a device for all Bloom filters of a plan
BLOOM_BYTES = 1 << 25  # of all those filters together
MAX_EDGES = 1 << 18  # of all consumers that an announcement names
# Comparisons on a device: of Bloom filters, or of cells with the sets of a strategy.
MAX_PAIRS = 1 << 21
