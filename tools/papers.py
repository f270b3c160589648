"""Write docs/papers.md from src/dither/lab/papers.txt.

python -m tools.papers
"""

from __future__ import annotations

from pathlib import Path

from dither.lab.papers import markdown

PAGE = Path(__file__).resolve().parents[1] / "docs" / "papers.md"

if __name__ == "__main__":
    PAGE.write_text(markdown(), encoding="utf-8")
