"""Pages as answers: rendered with every value escaped, and sent with headers that let a browser load from this origin only.

Guarantee: no page runs a script or style that stands inside it, is shown in a frame, tells where its reader came from or loads
anything from elsewhere (Content Security Policy, https://www.w3.org/TR/CSP3/).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import HTMLResponse

import dither
from dither.collector.access import on_loopback
from dither.release.pages import render_page
from dither.web.assets import asset

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

_DEFAULTS: dict[str, Any] = {"bar": (), "session": None, "said": ""}


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
    """A whole page; `scripts` names modules to load beside the one that every page has."""
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
    return HTMLResponse(body, status, {**SECURITY, **(headers or {})})


def origin_of(request: Request) -> str:
    """This collector's own address, as the reader reached it; elsewhere than on this machine over TLS, which a proxy ends."""
    host = request.headers.get("host", request.url.netloc)
    return f"{'http' if on_loopback(request) else 'https'}://{host}"


def missing() -> HTMLResponse:
    """For an address that there is not, and for one that this reader may not see: the same page."""
    return page("missing.html", title="There is nothing here", status=404)


def failed(status: int = 500) -> HTMLResponse:
    """For a defect or a store that is away: what strangers may know of it, which is nothing."""
    return page("failed.html", title="This did not work", status=status)
