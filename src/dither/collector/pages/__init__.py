"""The pages of a collector: templates, static files and routes, without formulas. `add_pages` gives them to an application."""

from __future__ import annotations

from dither.collector.pages.routes import add_pages

__all__ = ["add_pages"]
