"""Operators' pages about campaigns: the list, the progress of one, and its transitions."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import segno
from fastapi import APIRouter, Depends, Request
from markupsafe import Markup
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from dither.collector.audit import acting
from dither.collector.campaigns import Live
from dither.collector.keys import Session
from dither.collector.live import Progress as Counted
from dither.collector.pages.answers import SECURITY, origin_for_operators
from dither.collector.pages.console import Console, Form, go
from dither.collector.pages.outlook import Planner, Width
from dither.collector.pages.progress import Rates, progress_of, question_of, title_of
from dither.collector.pages.progress import answers as spoken_answers
from dither.collector.problems import Problem
from dither.collector.store import State
from dither.errors import DitherError, StateError
from dither.languages import LANGUAGES
from dither.notice import weak_protection


@dataclass(frozen=True)
class _Danger:
    """A step that needs a confirmation."""

    title: str
    lost: tuple[str, ...]
    button: str


_DANGERS = {
    "close-round": _Danger(
        "Close the round?",
        (
            "This round takes no more answers, and it cannot be opened again.",
            "Answers on their way that have not been acknowledged are not counted.",
            "Its tally goes to the method, which may open the next round at once.",
        ),
        "Close it",
    ),
    "finalise": _Danger(
        "Make the release?",
        (
            "The model is fitted to the tallies and a release is made. It is kept as it is: it cannot be made a second time.",
            "The campaign ends. The release stays private until you publish it.",
        ),
        "Make the release",
    ),
    "publish": _Danger(
        "Publish the release?",
        (
            "Anyone with the address can read and download it, ask it questions, and keep a copy.",
            "You can hide it later. Copies that others have made stay with them.",
        ),
        "Publish it",
    ),
    "delete": _Danger(
        "Delete the campaign?",
        (
            "Its link stops working, and its tickets too. It was never open, so there are no answers.",
            "It cannot be brought back. Duplicate it first if you want to change the questions.",
        ),
        "Delete it",
    ),
    "unpublish": _Danger(
        "Hide the release?",
        (
            "Its address answers as if there had never been a release. Links to it break.",
            "Copies that others have made stay with them.",
        ),
        "Hide it",
    ),
}

_STATES = {
    "draft": "not open yet",
    "open": "open",
    "closing": "closing",
    "closed": "closed",
    "collected": "all answers in",
    "finalised": "release made",
}

_SAID = {
    "open": "The campaign is open and takes answers.",
    "reopen": "The closing is taken back; the round takes answers again.",
    "close-round": "The round is closed.",
    "finalising": "The release is being made. This page shows when it is done.",
    "publishing": "The release is being published. This page shows when it is done.",
    "unpublish": "The release is hidden.",
    "created": "The campaign is made.",
}


log = logging.getLogger("dither.collector.pages")
LONG = {"finalise": "finalising", "publish": "publishing"}  # steps that run in the background


@dataclass
class _Fit:
    """The making or publishing of a release, in progress or failed."""

    step: str
    begun: float
    fault: str = ""
    done: bool = False

    @property
    def seconds(self) -> int:
        """Seconds since it began."""
        return int(time.monotonic() - self.begun)


class _Fits:
    """Background jobs of this process: fitting a model takes longer than a browser waits."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._under_way: dict[str, _Fit] = {}

    def begin(self, campaign: str, step: str, work: Callable[[], object]) -> None:
        """Start a job in a new thread, unless one of the campaign is in progress."""
        with self._guard:
            known = self._under_way.get(campaign)
            if known is not None and not known.done:
                return
            fit = self._under_way[campaign] = _Fit(step, time.monotonic())

        def run() -> None:
            try:
                work()
            except DitherError as error:
                fit.fault = str(error)
            except Exception:  # no caller waits for this thread, so log it
                fit.fault = "it failed; see the collector's log"
                log.exception("the step %s of campaign %s failed", step, campaign)
            finally:
                fit.done = True

        threading.Thread(target=run, name="dither-fit", daemon=True).start()

    def find(self, campaign: str) -> _Fit | None:
        """Return the job in progress, or the last one if it failed."""
        with self._guard:
            known = self._under_way.get(campaign)
            return known if known is not None and (not known.done or known.fault) else None


class _CampaignPages:
    """The content of the routes below."""

    def __init__(self, console: Console, planner: Planner) -> None:
        self.console, self.planner = console, planner
        self.collector = console.collector
        self.rates, self.fits = Rates(), _Fits()

    async def listed(self) -> dict[str, Any]:
        """Return all campaigns, open ones first, and the published ones."""
        if self.collector.store.shared:
            await self.collector.refresh_and_wait()
        counted = [
            await self.collector.live.now(campaign) for campaign in self.collector.campaigns.ids()
        ]
        return await run_in_threadpool(self._listed, counted)

    def _listed(self, counted: list[Counted]) -> dict[str, Any]:
        find = self.collector.campaigns.get
        shown = [progress_of(find(each.campaign), each, self.rates) for each in counted]
        order = ["open", "closing", "draft", "collected", "finalised"]
        shown.sort(key=lambda p: (order.index(p.state.value), p.title.lower()))
        return {
            "campaigns": shown,
            "published": set(self.collector.publications.public()),
            "drafts": self.collector.store.drafts.all(),
            "names": _STATES,
        }

    async def one(self, campaign: str) -> dict[str, Any]:
        """Return the current state of a campaign."""
        await self.collector.find(campaign)
        counted = await self.collector.live.now(campaign)
        return await run_in_threadpool(self._one, counted)

    def _one(self, counted: Counted) -> dict[str, Any]:
        campaign = counted.campaign
        live = self.collector.campaigns.current(campaign)
        progress = progress_of(live, counted, self.rates)
        forecast: dict[str, Width | str | None] = {"now": None, "aimed": None}
        if live.stored.state in (State.DRAFT, State.OPEN, State.CLOSING):
            later = self.planner.width_later
            forecast["aimed"] = later(live.spec, live.spec.participants)
            people = progress.reports or live.spec.participants
            forecast["now"] = later(live.spec, people)
        return {
            "live": live,
            "progress": progress,
            "names": _STATES,
            **forecast,
            "published": self.collector.publications.is_public(campaign),
            "fit": self.fits.find(campaign),
        }

    async def show(
        self, request: Request, session: Session, campaign: str, fault: str = ""
    ) -> Response:
        """Render the page of a campaign."""
        found = await self.one(campaign)
        live: Live = found["live"]
        link = _participant_link(request, self.collector.public_url, campaign)
        response = self.console.page(
            "campaign.html",
            session,
            "",
            title=title_of(live),
            **found,
            spec=live.spec,
            weak=weak_protection(live.spec.epsilon),
            link=link,
            code=_qr_code(link),
            recipients=_recipients(live),
            languages=[LANGUAGES[code] for code in live.spec.languages],
            questions=[
                (question_of(a), a.help, spoken_answers(a)[:12], a.cardinality)
                for a in live.spec.schema
            ],
            fault=fault,
            said=_SAID.get(request.query_params.get("said", ""), ""),
        )
        response.status_code = 409 if fault else 200
        return response

    async def act(self, request: Request, form: Form, campaign: str, action: str) -> Response:
        """Run one step of a campaign."""
        work = self._work(form, campaign, action)
        if action in LONG:
            self.fits.begin(campaign, action, work)
            return go(f"/console/c/{campaign}?said={LONG[action]}")
        if action == "delete":
            await run_in_threadpool(work)
            return go("/console")
        try:
            await run_in_threadpool(work)
        except Problem:
            raise
        except DitherError as error:
            return await self.show(request, form.session, campaign, str(error))
        return go(f"/console/c/{campaign}?said={action}")

    def _delete_unopened(self, campaign: str) -> None:
        """Delete a campaign that was never open; others are deleted on the command line."""
        if self.collector.campaigns.current(campaign).stored.state is not State.DRAFT:
            raise StateError(f"campaign {campaign} was open; 'dither campaign delete' deletes it")
        self.collector.campaigns.delete(campaign)

    def _work(self, form: Form, campaign: str, action: str) -> Callable[[], object]:
        campaigns, who = self.collector.campaigns, form.session.principal.name
        number = _whole(form.text("round"), 0)
        rows = _whole(form.text("rows"), None)
        listed = form.text("listed") == "yes"
        publications = self.collector.publications
        steps: dict[str, tuple[str, Callable[[], object]]] = {
            "open": ("open", lambda: campaigns.open(campaign)),
            "reopen": ("open", lambda: campaigns.open(campaign)),
            "close-round": ("close-round", lambda: campaigns.close_round(campaign, number or 0)),
            "finalise": ("finalise", lambda: campaigns.finalise(campaign, rows)),
            "publish": ("publish-release", lambda: publications.publish(campaign, listed)),
            "unpublish": ("unpublish-release", lambda: publications.unpublish(campaign)),
            "delete": ("delete", lambda: self._delete_unopened(campaign)),
        }
        if action not in steps:
            raise Problem("not-found", "there is no such step")
        noted, step = steps[action]

        def work() -> object:
            with acting(who, noted):
                return step()

        return work


def _recipients(live: Live) -> list[tuple[str, str]]:
    """Return who receives a histogram of a number, and its bins in words."""
    out = []
    for entry in live.spec.consumers or []:
        assert isinstance(entry, dict)  # as `begin` completed them
        edges = entry["edges"]
        words = f"{len(edges) - 1} bins from {edges[0]:,.15g} to {edges[-1]:,.15g}"
        out.append((entry["name"], words))
    return out


def campaign_routes(console: Console, planner: Planner) -> APIRouter:
    """Return the routes of the list, a campaign's page and its steps."""
    routes = APIRouter(include_in_schema=False)
    pages = _CampaignPages(console, planner)
    signed_in, sent = Depends(console.session), Depends(console.form)

    @routes.get("/console")
    async def listed(session: Session = signed_in) -> Response:
        shown = await pages.listed()
        return console.page("campaigns.html", session, "/console", title="Campaigns", **shown)

    @routes.get("/console/live")
    async def listed_live(session: Session = signed_in) -> Response:
        shown = await pages.listed()
        return console.page("campaigns_live.html", session, "", title="Campaigns", **shown)

    @routes.get("/console/c/{campaign}")
    async def campaign_page(
        request: Request, campaign: str, session: Session = signed_in
    ) -> Response:
        return await pages.show(request, session, campaign)

    @routes.get("/console/c/{campaign}/live")
    async def campaign_live(campaign: str, session: Session = signed_in) -> Response:
        found = await pages.one(campaign)
        return console.page("campaign_live.html", session, "", title="Progress", **found)

    @routes.get("/console/c/{campaign}/ask/{action}")
    async def ask(campaign: str, action: str, session: Session = signed_in) -> Response:
        danger = _DANGERS.get(action)
        if danger is None or not session.principal.may_change:
            raise Problem("not-found", "there is no such step")
        found = await pages.one(campaign)
        return console.page(
            "confirm.html", session, "", title=danger.title, danger=danger, action=action, **found
        )

    @routes.post("/console/c/{campaign}/do/{action}")
    async def act(request: Request, campaign: str, action: str, form: Form = sent) -> Response:
        if action in _DANGERS and form.text("sure") != "yes":
            return go(f"/console/c/{campaign}/ask/{action}")
        return await pages.act(request, form, campaign, action)

    _add_files(routes, pages)
    return routes


def _add_files(routes: APIRouter, pages: _CampaignPages) -> None:
    """Add what an operator downloads: tickets and the release."""
    signed_in, sent = Depends(pages.console.session), Depends(pages.console.form)

    @routes.post("/console/c/{campaign}/tokens")
    async def tokens(request: Request, campaign: str, form: Form = sent) -> Response:
        count = _whole(form.text("count"), 0) or 0
        try:
            issue = pages.collector.campaigns.issue_tokens
            issued = await pages.console.change(
                form, "issue-tokens", lambda: issue(campaign, count)
            )
        except DitherError as error:
            return await pages.show(request, form.session, campaign, str(error))
        link = _participant_link(request, pages.collector.public_url, campaign)
        lines = "".join(
            f"{link}#{token}\r\n" if form.text("as") == "links" else f"{token}\r\n"
            for token in issued
        )
        return _file(lines, f"tickets-{campaign[:8]}.txt", "text/plain; charset=ascii")

    @routes.get("/console/c/{campaign}/release.zip")
    async def release(campaign: str, session: Session = signed_in) -> Response:
        data = await run_in_threadpool(pages.collector.campaigns.release, campaign)
        return _file(data, f"release-{campaign[:8]}.zip", "application/zip")


def _file(content: str | bytes, name: str, media_type: str) -> Response:
    headers = {**SECURITY, "content-disposition": f'attachment; filename="{name}"'}
    return Response(content, media_type=media_type, headers=headers)


def _participant_link(request: Request, public_url: str | None, campaign: str) -> str:
    """Return the address for participants."""
    return f"{origin_for_operators(request, public_url)}/c/{campaign}"


def _qr_code(link: str) -> Markup:
    """Return the link as a QR code."""
    drawn = segno.make(link, error="m").svg_inline(
        scale=4, border=3, dark="#000", light="#fff", omitsize=True
    )
    return Markup(
        drawn.replace(
            "<svg ", '<svg role="img" aria-label="QR code of the link for participants" ', 1
        )
    )


def _whole(text: str, default: int | None) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 12 else default
