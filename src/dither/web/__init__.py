"""The pages of a collector: templates, static files and routes, without formulas. `add_pages` gives them to an application."""

from __future__ import annotations

from dither.web.pages import add_pages

__all__ = ["add_pages"]
