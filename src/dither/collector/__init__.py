"""The server: campaigns, rounds, tokens, stores (SQLite, PostgreSQL) and the HTTP API.

Needs the extra `server`. Names load when they are first used, so that the bounded process and
the command line import only their part.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dither.collector.answering import Question as Question
    from dither.collector.answering import Releases as Releases
    from dither.collector.app import make_app as make_app
    from dither.collector.audit import acting as acting
    from dither.collector.backup import StoreContents as StoreContents
    from dither.collector.backup import back_up as back_up
    from dither.collector.backup import check_store as check_store
    from dither.collector.backup import restore_store as restore_store
    from dither.collector.campaigns import Campaigns as Campaigns
    from dither.collector.campaigns import NoCampaign as NoCampaign
    from dither.collector.campaigns import read_counted as read_counted
    from dither.collector.clock import ClockSkew as ClockSkew
    from dither.collector.closer import Closer as Closer
    from dither.collector.collector import Collector as Collector
    from dither.collector.connections import room_for_connections as room_for_connections
    from dither.collector.finished import make_release as make_release
    from dither.collector.keys import Credential as Credential
    from dither.collector.keys import Keys as Keys
    from dither.collector.keys import Principal as Principal
    from dither.collector.keys import Sessions as Sessions
    from dither.collector.live import LiveProgress as LiveProgress
    from dither.collector.metrics import Metrics as Metrics
    from dither.collector.pages import add_pages as add_pages
    from dither.collector.postgres import PostgresStore as PostgresStore
    from dither.collector.problems import PROBLEMS as PROBLEMS
    from dither.collector.problems import Problem as Problem
    from dither.collector.problems import RateLimitFilter as RateLimitFilter
    from dither.collector.problems import RetrySpread as RetrySpread
    from dither.collector.publications import Publications as Publications
    from dither.collector.questions import Questions as Questions
    from dither.collector.serving import CollectorServer as CollectorServer
    from dither.collector.serving import JsonFormatter as JsonFormatter
    from dither.collector.serving import admin_key as admin_key
    from dither.collector.serving import listen as listen
    from dither.collector.serving import open_store as open_store
    from dither.collector.serving import serve as serve
    from dither.collector.serving import serve_workers as serve_workers
    from dither.collector.spec import CampaignSpec as CampaignSpec
    from dither.collector.spec import NewCampaign as NewCampaign
    from dither.collector.sql_store import SqlStore as SqlStore
    from dither.collector.sqlite import SqliteStore as SqliteStore
    from dither.collector.store import Batch as Batch
    from dither.collector.store import Move as Move
    from dither.collector.store import Outcome as Outcome
    from dither.collector.store import Row as Row
    from dither.collector.store import State as State
    from dither.collector.store import Store as Store
    from dither.collector.store import StoreBusy as StoreBusy
    from dither.collector.store import StoredCampaign as StoredCampaign
    from dither.collector.store import StoredRound as StoredRound
    from dither.collector.store import StoreFailure as StoreFailure
    from dither.collector.store import StoreFull as StoreFull
    from dither.collector.store import StoreUnavailable as StoreUnavailable
    from dither.collector.store import StoreUntidy as StoreUntidy
    from dither.collector.tallies import Epochs as Epochs
    from dither.collector.tallies import LocalTallies as LocalTallies
    from dither.collector.tallies import RebuiltTallies as RebuiltTallies
    from dither.collector.tallies import rebuild as rebuild
    from dither.collector.writer import QueueFull as QueueFull
    from dither.collector.writer import Writer as Writer
    from dither.collector.writer import WriteResult as WriteResult

_HOMES = {
    "Batch": "store",
    "CampaignSpec": "spec",
    "Campaigns": "campaigns",
    "ClockSkew": "clock",
    "Closer": "closer",
    "Collector": "collector",
    "CollectorServer": "serving",
    "Credential": "keys",
    "Epochs": "tallies",
    "JsonFormatter": "serving",
    "Keys": "keys",
    "LiveProgress": "live",
    "LocalTallies": "tallies",
    "Metrics": "metrics",
    "Move": "store",
    "NewCampaign": "spec",
    "NoCampaign": "campaigns",
    "Outcome": "store",
    "PROBLEMS": "problems",
    "PostgresStore": "postgres",
    "Principal": "keys",
    "Problem": "problems",
    "Publications": "publications",
    "Question": "answering",
    "Questions": "questions",
    "QueueFull": "writer",
    "RateLimitFilter": "problems",
    "RebuiltTallies": "tallies",
    "Releases": "answering",
    "RetrySpread": "problems",
    "Row": "store",
    "Sessions": "keys",
    "SqlStore": "sql_store",
    "SqliteStore": "sqlite",
    "State": "store",
    "Store": "store",
    "StoreBusy": "store",
    "StoreContents": "backup",
    "StoreFailure": "store",
    "StoreFull": "store",
    "StoreUnavailable": "store",
    "StoreUntidy": "store",
    "StoredCampaign": "store",
    "StoredRound": "store",
    "WriteResult": "writer",
    "Writer": "writer",
    "acting": "audit",
    "add_pages": "pages",
    "admin_key": "serving",
    "listen": "serving",
    "back_up": "backup",
    "check_store": "backup",
    "make_app": "app",
    "make_release": "finished",
    "open_store": "serving",
    "read_counted": "campaigns",
    "rebuild": "tallies",
    "restore_store": "backup",
    "room_for_connections": "connections",
    "serve": "serving",
    "serve_workers": "serving",
}

__all__ = sorted(_HOMES)  # noqa: PLE0605 (names of the table above)


if not TYPE_CHECKING:  # a type checker reads the imports above, and finds names that do not exist

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module 'dither.collector' has no attribute {name!r}")
        module = import_module(f"dither.collector.{_HOMES[name]}")
        value = globals()[name] = getattr(module, name)
        return value
