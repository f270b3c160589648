"""dither methods: the table of methods."""

from __future__ import annotations

import json
from typing import Annotated

import typer


def methods(
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON document")] = False,
) -> None:
    """List the methods: what each asks of a participant, its parameters (for --set KEY=VALUE) and its reference."""
    from dither.protocols import DEFAULT, METHODS, jtree_nonprivate

    if as_json:
        table = [
            {
                "name": m.name,
                "default": m.name == DEFAULT,
                "asks": m.asks,
                "summary": m.summary,
                "reference": m.reference,
                "parameters": m.defaults(),
            }
            for m in METHODS.values()
        ]
        print(json.dumps(table, indent=1))
        return
    for m in METHODS.values():
        print(f"{m.name}{'  (default)' if m.name == DEFAULT else ''}")
        print(f"  asks        {m.asks}")
        print(f"  gives       {m.summary}")
        print(f"  parameters  {', '.join(f'{k}={_shown(v)}' for k, v in m.defaults().items()) or 'none'}")
        print(f"  reference   {m.reference}\n")
    print(f"{jtree_nonprivate.METHOD}  (needs --no-privacy)")
    print(f"  gives       {jtree_nonprivate.SUMMARY}")
    print(f"  reference   {jtree_nonprivate.REFERENCE}")


def _shown(value: object) -> str:
    return "auto" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
