"""A collector with pages, and the browser that visits it."""

from tests.browser.conftest import browser, caller, closed_connections, running  # noqa: F401
