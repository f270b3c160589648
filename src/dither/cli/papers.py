"""dither papers: the parts of the papers, with their code, tests, commands and figures."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import typer

from dither.cli.options import AsJson
from dither.lab.papers import HEADINGS, find_paper
from dither.lab.papers import papers as every_paper


def papers(
    name: Annotated[
        str | None,
        typer.Argument(help="lopub, bayesnet, privincr, csm or chp [default: all]"),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the parts of the implemented papers.

    Each part has its code, its test, the command that runs it, the paper's figure, ours with the
    paper's parameters (--as-published) and our best.

    Example: dither papers privincr
    """
    chosen = every_paper() if name is None else (find_paper(name),)
    if as_json:
        print(json.dumps([asdict(paper) for paper in chosen]))
        return
    for paper in chosen:
        print(f"{paper.name}: {paper.title}\n")
        for part in paper.parts:
            print(f"  {part.part}")
            for heading, text in zip(HEADINGS[1:], part.cells[1:], strict=True):
                if text:
                    print(f"    {heading:18}  {text}")
        print()
