"""Parts of other packages: found by entry points, refused in one line when broken, never in the way of anything else."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

import dither
from dither.cli import run
from dither.datasets import Dataset
from dither.errors import InputError, ReportError
from dither.mechanisms import GRR, mechanism, mechanism_from_json
from dither.methods import method as find_method
from dither.methods import methods, plugin_faults
from dither.methods.independent import IndependentProtocol
from dither.plugins import plugin, plugins
from dither.schema import Attribute, Schema

CODE = '''
from dataclasses import dataclass
import pyarrow as pa
from dither.datasets import Dataset
from dither.lab.harness import Bench, Chart, Study
from dither.mechanisms import GRR
from dither.methods.independent import IndependentProtocol
from dither.schema import Attribute, Schema

class Mine(IndependentProtocol):
    """One attribute of each, as a plug-in."""
    method = "mine"
    asks = "one thing"
    reference = "nobody, never"

@dataclass(frozen=True)
class Ring(GRR):
    name = "ring"

class Greedy(GRR):
    name = "greedy"
    @classmethod
    def for_epsilon(cls, cells, epsilon, **more):
        return GRR.for_epsilon(cells, 2 * epsilon)

def coins():
    schema = Schema((Attribute("side", "categorical", ("head", "tail")),))
    return Dataset("coins", pa.table({"side": ["head", "tail"] * 50}), schema, "Thrown.", "A table.")

def wrong():
    return 7

def shelf(address):
    return ["a store at", address]

def bench(size="full", data_dir=None):
    study = Study("sums", "Sums", {"a": (1, 2)}, lambda a: {"twice": 2 * a}, charts=(Chart("a", "twice"),))
    return Bench("added", "Added", "Sums.", (study,), size)
'''
POINTS = """
[dither.methods]
mine = elsewhere:Mine
independent = elsewhere:Mine
broken = nowhere_at_all:Thing
renamed = elsewhere:Mine
number = elsewhere:coins

[dither.mechanisms]
ring = elsewhere:Ring
greedy = elsewhere:Greedy
odd = elsewhere:coins

[dither.datasets]
coins = elsewhere:coins
wrong = elsewhere:wrong

[dither.benchmarks]
added = elsewhere

[dither.stores]
shelf = elsewhere:shelf
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package that brings a part of every kind, right ones and wrong ones."""
    _install(tmp_path, "elsewhere", CODE, POINTS)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def _install(site: Path, name: str, code: str, points: str) -> None:
    (site / f"{name}.py").write_text(code, encoding="utf-8")
    info = site / f"{name}-1.5.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.5\n", encoding="utf-8"
    )
    (info / "entry_points.txt").write_text(points, encoding="utf-8")


def test_a_method_is_found_listed_and_runs(installed: Path) -> None:
    assert find_method("mine").reference == "nobody, never"
    assert "mine" in methods()
    table = pa.table({"side": ["head", "tail", "tail"] * 100})
    schema = Schema((Attribute("side", "categorical", ("head", "tail")),))
    release = dither.publish(table, epsilon=4.0, method="mine", schema=schema)
    assert release.method == "mine"
    assert abs(release.marginal(["side"]).frequencies[0] - 1 / 3) < 0.2


def test_broken_ones_are_named_and_break_nothing_else(
    installed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    faults = plugin_faults()
    assert len(faults) == 4
    assert all("\n" not in fault and "elsewhere 1.5" in fault for fault in faults)
    assert any("'independent'" in fault and "Dither has" in fault for fault in faults)
    assert find_method("independent").load() is IndependentProtocol
    for name, words in (
        ("broken", "No module named"),
        ("renamed", "both names must be the same"),
        ("number", "is not a subclass"),
    ):
        with pytest.raises(InputError, match=words):
            find_method(name)
    assert run(["methods", "--json"]) == 0
    told = capsys.readouterr()
    assert {"mine", "mixture"} <= {m["name"] for m in json.loads(told.out)}
    assert told.err.count("dither: warning: plug-in") == 4
    assert (
        run(
            [
                "publish",
                "adult",
                "--epsilon",
                "1",
                "--method",
                "broken",
                "-o",
                str(installed / "out"),
            ]
        )
        == 2
    )
    assert "cannot be loaded" in capsys.readouterr().err


def test_two_packages_with_one_name_are_refused_when_it_is_used(installed: Path) -> None:
    _install(
        installed,
        "another",
        "from elsewhere import Mine\n",
        "[dither.methods]\nmine = another:Mine\n",
    )
    with pytest.raises(InputError, match=r"another 1\.5 and elsewhere 1\.5 both bring"):
        find_method("mine")
    assert "mine" not in methods()
    assert find_method("mixture").name == "mixture"


def test_a_mechanism_is_built_and_rebuilt_where_it_is_installed_and_nowhere_else(
    installed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ring = mechanism("ring", 4, 1.0)
    assert ring.epsilon <= 1.0
    assert mechanism_from_json(ring.to_json()) == ring
    with pytest.raises(InputError, match="spends epsilon"):
        mechanism("greedy", 4, 1.0)
    with pytest.raises(ReportError, match="not a subclass"):
        mechanism_from_json({"name": "odd"})
    said = ring.to_json()
    monkeypatch.setattr("sys.path", [p for p in __import__("sys").path if p != str(installed)])
    with pytest.raises(ReportError, match="not a mechanism that this version supports"):
        mechanism_from_json(said)


def test_what_is_built_in_is_never_replaced(installed: Path) -> None:
    assert type(mechanism("grr", 4, 1.0)) is GRR
    assert plugin("methods", "nothing") is None
    assert [p.name for p in plugins("datasets")] == ["coins", "wrong"]


def test_a_dataset_is_a_table_by_its_name(
    installed: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert isinstance(dither.load_dataset("coins"), Dataset)
    release = dither.publish("coins", epsilon=4.0, method="independent", rows=10)
    assert release.synthetic.column_names == ["side"]
    assert dither.forecast("coins", 1000, 1.0, repeats=1).recommendation
    with pytest.raises(InputError, match="gives a int, not a"):
        dither.publish("wrong", epsilon=4.0)
    with pytest.raises(InputError, match="file not found"):
        dither.publish("notes", epsilon=4.0)


def test_benchmarks_of_a_package_and_of_a_file(
    installed: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["bench", "added", "-q"]) == 0
    assert (tmp_path / "bench-out" / "added" / "index.html").is_file()
    mine = tmp_path / "mine.py"
    mine.write_text("from elsewhere import bench\n", encoding="utf-8")
    assert run(["bench", "./mine.py"]) == 0
    assert "2 figures" in capsys.readouterr().out
    assert (tmp_path / "bench-out" / "mine" / "summary.parquet").is_file()
    wrong = {
        "x = 1\n": "no function bench",
        "1/0\n": "ZeroDivisionError",
        "import sys\nsys.exit(5)\n": "SystemExit: 5 (mine.py, line 2)",
        "def bench(s, d): return 3\n": "returned a int",
        "def bench(): return 3\n": "TypeError",
        "def bench(s, d):\n    raise OSError('two\\nlines')\n": "OSError: two lines (mine.py, line 2)",
    }
    for text, words in wrong.items():
        mine.write_text(text, encoding="utf-8")
        assert run(["bench", "./mine.py"]) == 2
        told = capsys.readouterr().err
        assert words in told
        assert told.count("\n") == 1
    assert run(["bench", "./gone.py"]) == 2
    assert "file not found" in capsys.readouterr().err
    assert run(["bench", "nothing"]) == 2
    assert "added" in capsys.readouterr().err


def test_a_store_is_opened_by_the_kind_of_its_address(installed: Path) -> None:
    serving = pytest.importorskip("dither.collector.serving")
    assert serving.open_store("shelf://user:secret@host") == [
        "a store at",
        "shelf://user:secret@host",
    ]
    with pytest.raises(InputError, match="a store of kind other://") as caught:
        serving.open_store("other://user:secret@host")
    assert "secret" not in str(caught.value)


def test_what_ends_the_program_or_raises_at_a_look_is_named_too(
    installed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _install(
        installed, "ending", "raise SystemExit(3)\n", "[dither.methods]\nending = ending:Machine\n"
    )
    code = "class Touchy:\n    def __getattr__(self, name): raise RuntimeError('hands off')\n\ntouchy = Touchy()\n"
    _install(installed, "touching", code, "[dither.benchmarks]\ntouchy = touching:touchy\n")
    assert any("ending 1.5" in fault and "SystemExit: 3" in fault for fault in plugin_faults())
    assert run(["bench", "touchy"]) == 2
    assert "hands off" in capsys.readouterr().err
    assert run(["bench", "list"]) == 0
    assert "hands off" in capsys.readouterr().err


def test_a_store_that_cannot_be_opened_is_one_line_without_its_address(installed: Path) -> None:
    serving = pytest.importorskip("dither.collector.serving")
    code = "def open_it(address):\n    raise ConnectionError(f'no way to {address}')\n"
    _install(installed, "leaking", code, "[dither.stores]\nleak = leaking:open_it\n")
    with pytest.raises(
        InputError, match=r"'leak' of leaking 1\.5 .* cannot open the store: ConnectionError"
    ) as caught:
        serving.open_store("leak://user:secret@host")
    assert "secret" not in str(caught.value)
