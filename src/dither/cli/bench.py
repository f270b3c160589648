"""dither bench: rerun a paper's tables or a comparison with other libraries from a clone, or a benchmark of your own."""

from __future__ import annotations

import sys
import traceback
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
from dither.plugins import Plugin, plugin, usable

ROOT = Path(dither.__file__).resolve().parents[2]


def names() -> list[str]:
    """The benchmarks that stand in the repository's folder `benchmarks`; none outside of a clone."""
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
            help="which one, or a file of yours such as ./mine.py; 'list' names them, 'all' runs every one"
        ),
    ],
    quick: Annotated[bool, typer.Option("--quick", help="a small size, under a minute")] = False,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="measure anew what an earlier run had finished")
    ] = False,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="folder [default: bench-out/NAME]")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="folder of the benchmark tables [default: beside the clone]")
    ] = None,
    store: Annotated[
        bool,
        typer.Option(
            "--store", help="put the means into benchmarks/results.json and rewrite RESULTS.md"
        ),
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Rerun a benchmark: every figure with mean and spread as Parquet, and a page with charts.

    An interrupted run goes on where it stopped when the same command is given again. A file of your own offers
    bench(size, data_dir), which gives a dither.lab.harness.Bench; another package brings one by the entry point dither.benchmarks.

    Examples: dither bench list; dither bench mixture --quick; dither bench ./mine.py
    """
    known = names()
    if name == "list":
        _list(known)
        return
    if data is not None and not data.is_dir():
        raise ParameterError(f"--data {data} is not a folder", where="--data", value=str(data))
    if store and quick:
        raise ParameterError("--store keeps full sizes only; leave out --quick", where="--store")
    if store and name not in known and name != "all":
        raise ParameterError(
            "--store keeps figures of the repository's own benchmarks only", where="--store"
        )
    size = "quick" if quick else "full"
    if name == "all" and known:
        base = output or Path("bench-out")
        done = {
            each: _run(each, _named(each, known), base / each, size, fresh, data, store, quiet)
            for each in known
        }
        print(f"contents: {write_contents(done, base)}")
        return
    short = Path(name).stem if name.endswith(".py") else name
    _run(
        short,
        _named(name, known),
        output or Path("bench-out") / short,
        size,
        fresh,
        data,
        store,
        quiet,
    )


def _list(known: list[str]) -> None:
    added, faults = usable("benchmarks", known, _read)
    loaded = {each: _load(each) for each in known} | added
    for each, module in loaded.items():
        about = (module.__doc__ or "").strip()
        print(f"{each:18} {about.partition(chr(10))[0]}")
    print_warnings(faults)
    if not loaded:
        print(
            "dither: there is none here: the repository's own are found in a clone; name a file of yours",
            file=sys.stderr,
        )


def _named(name: str, known: list[str]) -> Any:
    """The module, or what a plug-in gives instead of one: something with `bench`."""
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
            f"no benchmark {name!r}: the repository's own are not in the installed package; run this from a clone, or name a file "
            "such as ./mine.py",
            where="name",
        )
    raise ParameterError(
        f"no benchmark {name!r}; there are {', '.join([*known, *more])}, all, or a file such as ./mine.py",
        where="name",
        value=name,
    )


def _plugins(known: list[str]) -> list[Plugin]:
    from dither.plugins import plugins

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
    """A benchmark in a file, which finds its neighbours as a script does."""
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
        raise InputError(f"{path} cannot be read: {_said(error)}", where="name") from error
    if not callable(getattr(module, "bench", None)):
        raise InputError(
            f"{path} has no function bench(size, data_dir) that gives a dither.lab.harness.Bench",
            where="name",
        )
    return module


def _run(
    name: str,
    module: Any,
    folder: Path,
    size: str,
    fresh: bool,
    data: Path | None,
    store: bool,
    quiet: bool,
) -> Outcome:
    try:
        declared = module.bench(size, data)
    except DitherError:
        raise
    except (Exception, SystemExit) as error:  # the user's own code may raise anything
        raise InputError(
            f"{name}: bench({size!r}, {data}) failed: {_said(error)}", where="name"
        ) from error
    if not isinstance(declared, Bench):
        raise InputError(
            f"{name}: bench() gave a {type(declared).__name__}, not a dither.lab.harness.Bench",
            where="name",
        )
    outcome = execute(declared, folder, fresh=fresh, quiet=quiet)
    for note in outcome.notes:
        print(f"{name}: not measured: {note}", file=sys.stderr)
    if store:
        _load("results").keep(outcome)
    if not quiet:
        print(
            f"{name}: {len(outcome.summary)} figures in {outcome.seconds:.0f} s; open {folder / 'index.html'}"
        )
    return outcome


def _said(error: BaseException) -> str:
    """An error of somebody else's code in one line, with the place in it."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {' '.join(str(error).split())} ({Path(last.filename).name}, line {last.lineno})"


def _load(name: str) -> ModuleType:
    if str(ROOT) not in sys.path:
        sys.path.insert(0, str(ROOT))
    return import_module(f"benchmarks.{name}")
