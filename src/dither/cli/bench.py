"""dither bench: rerun a paper's tables, or a comparison with other libraries, from a clone of the repository."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType
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
    modules = {p.stem: p for p in folder.glob("*.py")} | {p.parent.name: p for p in folder.glob("*/__init__.py")}
    return sorted(name for name, path in modules.items() if "\ndef bench(" in path.read_text(encoding="utf-8"))


def bench(
    name: Annotated[str, typer.Argument(help="which one; 'list' names them, 'all' runs every one")],
    quick: Annotated[bool, typer.Option("--quick", help="a small size, under a minute")] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="measure anew what an earlier run had finished")] = False,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="folder [default: bench-out/NAME]")] = None,
    data: Annotated[
        Path | None, typer.Option(help="folder of the benchmark tables [default: beside the clone]")
    ] = None,
    store: Annotated[
        bool, typer.Option("--store", help="put the means into benchmarks/results.json and rewrite RESULTS.md")
    ] = False,
) -> None:
    """Rerun a benchmark: every figure with mean and spread as Parquet, and a page with charts.

    An interrupted run goes on where it stopped when the same command is given again.

    Examples: dither bench list; dither bench mixture --quick; dither bench all --quick
    """
    known = names()
    if name == "list":
        _load("harness")
        for each in known:
            about = _load(each).__doc__ or ""
            print(f"{each:18} {about.splitlines()[0]}")
        return
    if name not in (*known, "all"):
        raise ParameterError(f"no benchmark {name!r}; there are {', '.join(known)}, all", where="name", value=name)
    if data is not None and not data.is_dir():
        raise ParameterError(f"--data {data} is not a folder", where="--data", value=str(data))
    if store and quick:
        raise ParameterError("--store keeps full sizes only; leave out --quick", where="--store")
    base = output or Path("bench-out") / ("" if name == "all" else name)
    size = "quick" if quick else "full"
    if name != "all":
        _run(name, base, size, fresh, data, store)
        return
    done = {each: _run(each, base / each, size, fresh, data, store) for each in known}
    print(f"contents: {_load('harness').write_contents(done, base)}")


def _run(name: str, folder: Path, size: str, fresh: bool, data: Path | None, store: bool) -> object:
    declared = _load(name).bench(size, data)
    outcome = _load("harness").execute(declared, folder, fresh=fresh)
    for note in outcome.notes:
        print(f"{name}: not measured: {note}", file=sys.stderr)
    if store:
        _load("results").keep(outcome)
    print(f"{name}: {len(outcome.summary)} figures in {outcome.seconds:.0f} s; open {folder / 'index.html'}")
    return outcome


def _load(name: str) -> ModuleType:
    if str(ROOT) not in sys.path:
        sys.path.insert(0, str(ROOT))
    return import_module(f"benchmarks.{name}")
