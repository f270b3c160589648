"""HTML responses with escaped values and headers that allow resources of this origin only.

Guarantee: a page runs no inline script or style, is not shown in a frame, sends no
referrer and loads nothing from other origins (Content Security Policy,
https://www.w3.org/TR/CSP3/).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

import dither
from dither import languages
from dither.collector.access import on_loopback
from dither.collector.pages.assets import Asset, asset
from dither.languages import gettext as _
from dither.release.pages import render_page

TEMPLATES = Path(__file__).with_name("templates")
POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)
SECURITY = {
    "content-security-policy": POLICY,
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}

_DEFAULTS: dict[str, Any] = {"bar": (), "choices": (), "view": "", "session": None, "said": ""}


def page(
    template: str,
    *,
    title: str,
    heading: str | None = None,
    status: int = 200,
    scripts: tuple[str, ...] = (),
    headers: Mapping[str, str] | None = None,
    **values: Any,
) -> HTMLResponse:
    """Render a page; `scripts` are modules to load besides the common one."""
    body = render_page(
        template,
        title=title,
        heading=heading,
        version=dither.__version__,
        folder=TEMPLATES,
        sheet=asset("dither.css").address,
        icon=asset("icon.svg").address,
        modules=[asset(name).address for name in ("pages.js", *scripts)],
        **_DEFAULTS | values,
    )
    spoken = {"content-language": languages.language(), "vary": "accept-language"}
    return HTMLResponse(body, status, {**SECURITY, **spoken, **(headers or {})})


def served(request: Request, file: Asset, headers: Mapping[str, str]) -> Response:
    """A static file, compressed if the browser reads that."""
    all_headers = {**SECURITY, "etag": f'"{file.sha256}"', "vary": "accept-encoding", **headers}
    data = file.data
    if "gzip" in request.headers.get("accept-encoding", "").lower():
        data = file.gzipped
        all_headers |= {"content-encoding": "gzip", "etag": f'"{file.sha256}-gzip"'}
    return Response(data, media_type=file.media_type, headers=all_headers)


def language_of(request: Request, offered: Sequence[str] = tuple(languages.LANGUAGES)) -> str:
    """The language of a page: `?language=` of its address, else Accept-Language, else its own."""
    wanted = request.query_params.get("language")
    return languages.choose(offered, wanted, request.headers.get("accept-language"))


def language_choices(offered: Sequence[str]) -> list[tuple[str, str, bool]]:
    """The languages that a visitor can choose: code, name, and whether it is the current one."""
    if len(offered) == 1:
        return []
    current = languages.language()
    return [(code, languages.LANGUAGES[code], code == current) for code in offered]


def shown_origin(public_url: str | None) -> Markup:
    """The collector's configured address; without one the browser fills in its origin.

    A request's Host header is never repeated: a cache in front of the collector would
    show one visitor's header to the next.
    """
    return (
        Markup('<span data-origin="">https://ADDRESS</span>')
        if public_url is None
        else Markup.escape(public_url)
    )


def origin_for_operators(request: Request, public_url: str | None) -> str:
    """The configured address, or on pages with a session the address in the request."""
    if public_url is not None:
        return public_url
    host = request.headers.get("host", request.url.netloc)
    return f"{'http' if on_loopback(request) else 'https'}://{host}"


def missing() -> HTMLResponse:
    """The page for a missing address and for one that the reader may not see."""
    return page("missing.html", title=_("There is nothing here"), status=404)


def failed(status: int = 500) -> HTMLResponse:
    """The page for a defect or an unavailable store, without details."""
    return page("failed.html", title=_("This did not work"), status=status)
