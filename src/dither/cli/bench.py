"""dither bench: run a benchmark of the repository, of a plug-in or of a file."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

import typer

import dither
from dither.cli.options import Quiet, print_warnings
from dither.errors import DitherError, InputError, ParameterError
from dither.lab.harness import Bench, Outcome, execute, write_contents
from dither.plugins import Plugin, plugin, plugins, usable

ROOT = Path(dither.__file__).resolve().parents[2]


@dataclass(frozen=True)
class _RunOptions:
    """How a benchmark is run; no `studies` means all of them."""

    size: str
    fresh: bool
    data: Path | None
    store: bool
    studies: tuple[str, ...]
    quiet: bool


def _names() -> list[str]:
    """The benchmarks in the folder `benchmarks` of a clone; none in an installed package."""
    folder = ROOT / "benchmarks"
    if not (folder / "__init__.py").is_file():
        return []
    modules = {p.stem: p for p in folder.glob("*.py")} | {
        p.parent.name: p for p in folder.glob("*/__init__.py")
    }
    return sorted(
        name for name, path in modules.items() if "\ndef bench(" in path.read_text(encoding="utf-8")
    )


def bench(
    name: Annotated[
        str,
        typer.Argument(
            help="name of a benchmark, or a file such as ./mine.py; 'list' lists them, 'all' runs them all"
        ),
    ],
    quick: Annotated[bool, typer.Option("--quick", help="small size, under a minute")] = False,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="measure again what an earlier run had finished")
    ] = False,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="folder [default: bench-out/NAME]")
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(help="folder of the benchmark tables [default: next to the clone]"),
    ] = None,
    store: Annotated[
        bool,
        typer.Option(
            "--store", help="write the means to benchmarks/results.json and update RESULTS.md"
        ),
    ] = False,
    study: Annotated[
        list[str] | None,
        typer.Option("--study", help="only this study of the benchmark; repeatable"),
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Run a benchmark: each figure with mean and spread as Parquet, and a page with charts.

    An interrupted run resumes with the same command. A file has a function bench(size, data_dir)
    that returns a dither.lab.harness.Bench; a package adds one with the entry point
    dither.benchmarks.

    Examples: dither bench list; dither bench mixture --quick; dither bench ./mine.py
    """
    known = _names()
    if name == "list":
        _list(known)
        return
    if data is not None and not data.is_dir():
        raise ParameterError(f"--data {data} is not a folder", where="--data", value=str(data))
    if store and quick:
        raise ParameterError("--store is for full sizes; leave out --quick", where="--store")
    if store and name not in known and name != "all":
        raise ParameterError("--store is for benchmarks of the repository", where="--store")
    if study and name == "all":
        raise ParameterError("--study belongs to one benchmark, not to all", where="--study")
    options = _RunOptions(
        "quick" if quick else "full", fresh, data, store, tuple(study or ()), quiet
    )
    if name == "all" and known:
        base = output or Path("bench-out")
        done = {each: _run(each, _named(each, known), base / each, options) for each in known}
        print(f"contents: {write_contents(done, base)}")
        return
    short = Path(name).stem if name.endswith(".py") else name
    _run(short, _named(name, known), output or Path("bench-out") / short, options)


def _list(known: list[str]) -> None:
    added, faults = usable("benchmarks", known, _read)
    loaded = {each: _load(each) for each in known} | added
    for each, module in loaded.items():
        about = (module.__doc__ or "").strip()
        print(f"{each:18} {about.partition(chr(10))[0]}")
    print_warnings(faults)
    if not loaded:
        raise InputError(
            "no benchmark found: those of the repository are not in the installed package; "
            "run this from a clone, or name a file such as ./mine.py",
            where="name",
        )


def _named(name: str, known: list[str]) -> Any:
    """The module of a benchmark, or the object of a plug-in that has `bench`."""
    if name in known:
        return _load(name)
    if name.endswith(".py") or "/" in name:
        return _from_file(Path(name))
    added = plugin("benchmarks", name)
    if added is not None:
        return _read(added)
    more = [each.name for each in _plugins(known)]
    if not known and not more:
        raise InputError(
            f"no benchmark {name!r}: those of the repository are not in the installed package; "
            "run this from a clone, or name a file such as ./mine.py",
            where="name",
        )
    raise ParameterError(
        f"no benchmark {name!r}; there are {', '.join([*known, *more])}, all, or a file such as ./mine.py",
        where="name",
        value=name,
    )


def _plugins(known: list[str]) -> list[Plugin]:
    return [each for each in plugins("benchmarks") if each.name not in known]


def _read(added: Plugin) -> Any:
    module = added.load()
    try:
        offers = callable(getattr(module, "bench", None))
    except Exception as error:  # another package's code may raise anything
        raise added.fault(f"cannot be read: {type(error).__name__}: {error}") from error
    if not offers:
        raise added.fault("has no function bench(size, data_dir)")
    return module


def _from_file(path: Path) -> ModuleType:
    """The benchmark of a file, which can import modules of its folder."""
    if not path.is_file():
        raise ParameterError(f"file not found: {path}", where="name", value=str(path))
    spec = spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ParameterError(f"{path} is not a Python file", where="name", value=str(path))
    module = module_from_spec(spec)
    sys.modules[path.stem] = module
    sys.path.insert(0, str(path.resolve().parent))
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # the user's own code may raise anything
        raise InputError(f"{path} cannot be read: {_in_one_line(error)}", where="name") from error
    if not callable(getattr(module, "bench", None)):
        raise InputError(
            f"{path} has no function bench(size, data_dir) that returns a dither.lab.harness.Bench",
            where="name",
        )
    return module


def _run(name: str, module: Any, folder: Path, options: _RunOptions) -> Outcome:
    try:
        declared = module.bench(options.size, options.data)
    except DitherError:
        raise
    except (Exception, SystemExit) as error:  # the user's own code may raise anything
        raise InputError(
            f"{name}: bench({options.size!r}, {options.data}) failed: {_in_one_line(error)}",
            where="name",
        ) from error
    if not isinstance(declared, Bench):
        raise InputError(
            f"{name}: bench() returned a {type(declared).__name__}, not a dither.lab.harness.Bench",
            where="name",
        )
    if options.studies:
        declared = _only(declared, options.studies)
    outcome = execute(declared, folder, fresh=options.fresh, quiet=options.quiet)
    for note in outcome.notes:
        print(f"{name}: not measured: {note}", file=sys.stderr)
    if options.store:
        _load("results").keep(outcome, partly=bool(options.studies))
    if not options.quiet:
        print(
            f"{name}: {len(outcome.summary)} figures in {outcome.seconds:.0f} s; open {folder / 'index.html'}"
        )
    return outcome


def _only(declared: Bench, names: Sequence[str]) -> Bench:
    """The benchmark with the named studies only."""
    known = {study.name: study for study in declared.studies}
    for name in names:
        if name not in known:
            raise ParameterError(
                f"{declared.name} has no study {name!r}; it has {', '.join(known)}",
                where="--study",
                value=name,
            )
    return replace(declared, studies=tuple(s for s in declared.studies if s.name in names))


def _in_one_line(error: BaseException) -> str:
    """An error of foreign code in one line, with its place."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {' '.join(str(error).split())} ({Path(last.filename).name}, line {last.lineno})"


def _load(name: str) -> ModuleType:
    if str(ROOT) not in sys.path:
        sys.path.insert(0, str(ROOT))
    return import_module(f"benchmarks.{name}")
