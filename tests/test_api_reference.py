"""The page of the Python interface is what the code says."""

from __future__ import annotations

from tools.api_reference import PAGE, page

import dither


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run: python -m tools.api_reference"


def test_every_public_name_has_a_heading() -> None:
    written = page()
    assert [name for name in dither.__all__ if f"### `dither.{name}`" not in written] == [
        "__version__"
    ]
