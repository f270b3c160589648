"""The collector's limits of time, size and number, with the reason for each.

`docs/how-to/operate-a-collector.md` lists those that senders and operators can notice, and a
test compares the page with this module. Limits of the protocol that devices know as well are in
`dither.reports.limits`.
"""

from __future__ import annotations

from dataclasses import dataclass

# The longest waits for the database, by the kind of work.
ANSWER_SECONDS = 5.0  # an upload, a health check, a read for a page
WORK_SECONDS = 60.0  # one step of an operator: a move, a count, a page of reports
TIDY_SECONDS = 900.0  # rewriting a round
LAYOUT_SECONDS = 3600.0  # migrating a store of an earlier layout
READER_SECONDS = 3.0  # how long tidying waits for other sessions that read

# Uploads and lookups.
UPLOAD_SECONDS = 10.0  # how long an upload waits for its commit
READY_SECONDS = 5.0  # how long a health check or a refresh waits for the store
MAX_DELETIONS = 50  # of single reports that may wait; each holds a thread
MAX_LOOKUPS = 1_000  # devices that may wait to learn whether a report is stored
TOKEN_BLOCK = 2_000  # tokens stored in one transaction; uploads wait for at most one block

# Bodies of requests.
BODIES_BYTES = 256 << 20  # of all bodies in memory together
UPLOAD_BYTES = 64 << 20  # of a schema or table that a curator uploads
TALLY_BYTES = 128 << 20  # of a tally counted elsewhere, read after the key is checked
BODY_SECONDS = 30.0  # for a whole body

# Connections.
MAX_CONNECTIONS = 4_000
BACKLOG = 256  # asyncio may accept this many before it reports the first
RESERVE = 128  # file descriptors for the database, exports and others
MIN_WRITE_BYTES = 32 << 10  # bytes that a client must read in `write_seconds`

# Keys and sessions.
KNOWN_SECONDS = 1.0  # after which keys are read again from a shared store, for revocations
UNKNOWN_SECONDS = 0.1  # between two reads of a shared store for unknown keys
SESSION_SECONDS = 8 * 3600
MAX_SESSIONS = 50  # of one key; one more sign-in ends the session that expires first
FAILURES_SECONDS = 60  # the span in which failed sign-ins are counted
MAX_FAILURES = 20  # in one span, of all users

# Progress of campaigns as operators follow it.
PROGRESS_SECONDS = 1.0  # between two looks at a campaign that is followed
EVENTS_PER_SECOND = 100  # of all streams of this process together
COUNT_SHARE = 0.005  # of the database's time, for counting one campaign
KEEPALIVE_SECONDS = 20.0  # without an event, after which a comment line tests the connection
KEY_CHECK_SECONDS = 2.0  # between two checks of keys and sessions, one query for all streams
CLOSING_RETRY_SECONDS = 30.0  # after an automatic closing that failed

# Time.
MAX_SKEW_SECONDS = 60.0  # between a machine's clock and the database's; NTP keeps it below one
CLOCK_SECONDS = 10.0  # between two readings of the database's time
# After a round was closed by its date, how long an operator can open it again before its
# tally is taken.
UNDO_SECONDS = 600.0
DELETION_SECONDS = 60.0  # between two looks for reports to delete

# Running tallies.
TALLY_PAGE = 1 << 14  # reports read at a time while a running tally is counted
PUBLISH_WAIT_SECONDS = 2.0  # for other collectors to publish their counts

# Questions about releases, and files from outside, in bounded processes.
QUESTION_SECONDS = 20.0
REPORT_SECONDS = 120.0  # making the content of a report, which is cached
REPLICATES_SECONDS = 3600.0
FILE_SECONDS = 60.0  # reading an outside file
LOAD_SECONDS = 60.0  # reading a release, once; readers have no influence on this time
PROCESS_START_SECONDS = 60.0
MAX_WAITING = 8  # questions or files in the queue
WAIT_SECONDS = 30.0  # in the queue
MEMORY_BYTES = 4 << 30  # of a bounded process
HELD_BYTES = 256 << 20  # unpacked releases in its memory
# Of all releases together, in each collector process. A download converts or copies a whole
# table in one of the framework's 40 threads and keeps it on disk until it is sent.
MAX_DOWNLOADS = 8

# Start and shutdown. A shutdown takes less than ten seconds.
GRACE_SECONDS = 6  # for requests in progress
STOP_SECONDS = 2.0  # for queued reports to be written
THREAD_SECONDS = 0.5  # for threads that are about to end
WORKERS_START_SECONDS = 60.0  # until all workers listen


@dataclass(frozen=True)
class ConnectionLimits:
    """The limits of connections. The defaults are documented; tests use smaller ones.

    Attributes:
        most: Open connections.
        header_bytes: Request line and headers together.
        header_lines: Headers.
        pipelined: Requests that may wait behind the current one.
        head_seconds: From the first byte of a request, or the connection, to the end of its
            headers.
        idle_seconds: Between requests.
        drain_seconds: To send the rest of an answered request, or to read a refusal.
        write_seconds: To read `MIN_WRITE_BYTES` of a response, or all of it.
    """

    most: int = MAX_CONNECTIONS
    header_bytes: int = 16 << 10
    header_lines: int = 100
    pipelined: int = 8
    head_seconds: float = 10.0
    idle_seconds: float = 30.0
    drain_seconds: float = 2.0
    write_seconds: float = 30.0
