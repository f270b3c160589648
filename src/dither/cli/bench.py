"""dither bench: rerun a paper's tables, or a comparison with other libraries, from a clone of the repository."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

import dither
from dither.errors import InputError, ParameterError

ROOT = Path(dither.__file__).resolve().parents[2]


def names() -> list[str]:
    """The benchmarks that stand in the repository's folder `benchmarks`."""
    folder = ROOT / "benchmarks"
    if not (folder / "__init__.py").is_file():
        raise InputError("the benchmarks live in the repository, not in the installed package; run this from a clone")
    return sorted(p.stem for p in folder.glob("*.py") if "def run(" in p.read_text(encoding="utf-8"))


def bench(
    name: Annotated[str, typer.Argument(help="which one; 'dither bench list' names them")],
    quick: Annotated[bool, typer.Option("--quick", help="a small size, about a minute")] = False,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="folder [default: bench-out/NAME]")] = None,
    data: Annotated[
        Path | None, typer.Option(help="folder of the benchmark tables [default: beside the clone]")
    ] = None,
) -> None:
    """Rerun a benchmark and write its figures as JSON (and a page with charts where it has one).

    Example: dither bench mechanisms --quick
    """
    known = names()
    if name == "list":
        print("\n".join(known))
        return
    if name not in known:
        raise ParameterError(f"no benchmark {name!r}; there are {', '.join(known)}", where="name", value=name)
    if str(ROOT) not in sys.path:
        sys.path.insert(0, str(ROOT))
    folder = output or Path("bench-out") / name
    import_module(f"benchmarks.{name}").run(quick=quick, out=folder, data_dir=data)
    print(f"written to {folder}")
