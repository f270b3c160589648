"""Count the functions and files of `dither` that run in everyday journeys.

    python -m tools.journeys [--json] [--where]

- publish: one `dither publish` of a small CSV file with a schema file;
- report: one answer, from the device to the collector's store, over HTTP;
- question: one `release.query(...)` on a loaded release that was saved with replicates;
- first question: the same on a release without, which makes them.

A function counts once, however often it runs. Functions that run only while a module is
imported do not count, nor do comprehensions, class bodies and generated methods. The release
is published with `SEED`: which branches a fit takes depends on the noise, and without a seed
the count varied by a fifth.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from types import CodeType, FrameType

import pyarrow.csv

import dither
from dither.cli import run

SOURCE = Path(dither.__file__).resolve().parent
ROWS = 2000
COLUMNS = ("age", "education", "sex", "income")
SEED = 1
# Targets of the design: at most so many functions and files.
TARGETS = {"publish": (250, 30), "question": (120, 22)}
_UNNAMED = ("<module>", "<listcomp>", "<dictcomp>", "<setcomp>", "<genexpr>")
_CHILD_FILE = "DITHER_JOURNEY_FILE"

Function = tuple[str, str]  # file below `SOURCE`, qualified name


class Recorder:
    """Notes each function of `dither` that is called while `active`, in every thread."""

    def __init__(self) -> None:
        self.active = False
        self.codes: set[CodeType] = set()
        self._importing = threading.local()

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        """The profile function of one thread."""
        if event not in ("call", "return"):
            return
        code = frame.f_code
        if code.co_name == "<module>":
            depth = getattr(self._importing, "depth", 0)
            self._importing.depth = depth + (1 if event == "call" else -1)
        elif event == "call" and self.active and not getattr(self._importing, "depth", 0):
            self.codes.add(code)

    def install(self) -> None:
        """Follow this thread and every thread that starts later."""
        threading.setprofile(self)
        sys.setprofile(self)

    def functions(self) -> set[Function]:
        """The functions noted so far."""
        prefix = f"{SOURCE}{os.sep}"
        return {
            (code.co_filename.removeprefix(prefix), code.co_qualname)
            for code in tuple(self.codes)
            if code.co_filename.startswith(prefix)
            and code.co_filename.endswith(".py")
            and _is_function(code)
        }


def _is_function(code: CodeType) -> bool:
    # A class body has no arguments and is not optimised (CO_OPTIMIZED, 0x1).
    return code.co_name not in _UNNAMED and bool(code.co_flags & 0x1)


@contextmanager
def recording() -> Iterator[Recorder]:
    """A recorder that is active inside the block."""
    recorder = Recorder()
    recorder.install()
    recorder.active = True
    try:
        yield recorder
    finally:
        recorder.active = False
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]


def publish_journey(folder: Path) -> set[Function]:
    """One `dither publish` with the default method; writes the release to `folder`/out."""
    bundled = dither.load_dataset("adult")
    table, schema = folder / "people.csv", folder / "people.json"
    pyarrow.csv.write_csv(bundled.table.select(COLUMNS).slice(0, ROWS), table)
    chosen = dither.Schema(tuple(bundled.schema[name] for name in COLUMNS))
    schema.write_text(json.dumps(chosen.file_json()), encoding="utf-8")
    words = ["publish", str(table), "--schema", str(schema), "--epsilon", "4"]
    words += ["--seed", str(SEED)]
    with redirect_stdout(StringIO()), redirect_stderr(StringIO()) as errors, recording() as found:
        status = run([*words, "-o", str(folder / "out")])
    if status:
        raise SystemExit(f"dither publish failed: {errors.getvalue()}")
    return found.functions()


def question_journey(folder: Path, replicates: int = 5) -> set[Function]:
    """One question about the release of `publish_journey`, with or without stored replicates."""
    release = dither.load_release(folder / "out")
    if replicates:
        release.with_replicates(replicates).save(folder / "replicated")
        release = dither.load_release(folder / "replicated")
    with recording() as found:
        release.query("30 <= age < 50", given="sex == 'Female'")
    return found.functions()


def report_journey(folder: Path) -> set[Function]:
    """One participant's answer: announcement, noise, ledger, upload, and the collector's side."""
    from dither.cli.options import Operator
    from dither.client import Device, Participant

    notes, key = folder / "collector.json", folder / "admin.key"
    words = ["serve", "--port", "0", "--store", str(folder / "collector.db")]
    server = subprocess.Popen(
        [sys.executable, "-m", "tools.journeys", "--child", *words, "--key-file", str(key)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=os.environ | {_CHILD_FILE: str(notes)},
    )
    try:
        assert server.stdout is not None
        url = server.stdout.readline().removeprefix("listening on ").strip()
        bundled = dither.load_dataset("adult")
        schema = dither.Schema(tuple(bundled.schema[name] for name in COLUMNS))
        body = {"schema": schema.to_json(), "epsilon": 4.0, "participants": 1000}
        campaign = str(Operator(url, key).call("POST", "", body)["campaign"])
        record = bundled.table.select(COLUMNS).slice(0, 1).to_pylist()[0]
        server.send_signal(signal.SIGUSR1)
        time.sleep(0.2)
        with recording() as found:
            device = Device(str(folder / "device.db"))
            taken = Participant(device, url, campaign, cap=4.0).take_part(record)
            device.close()
        server.send_signal(signal.SIGUSR1)
        time.sleep(0.2)
    finally:
        server.send_signal(signal.SIGTERM)
        server.communicate(timeout=30)
    if taken.result != "acknowledged":
        raise SystemExit(f"the report was not stored: {taken}")
    collector = {(file, name) for file, name in json.loads(notes.read_text(encoding="utf-8"))}
    return found.functions() | collector


def _serve(words: list[str]) -> int:
    """Run the collector; SIGUSR1 starts the recording and stops it."""
    recorder = Recorder()
    recorder.install()

    def toggle(number: int, frame: FrameType | None) -> None:
        recorder.active = not recorder.active

    signal.signal(signal.SIGUSR1, toggle)
    status = run(words)
    sys.setprofile(None)
    notes = sorted(recorder.functions())
    Path(os.environ[_CHILD_FILE]).write_text(json.dumps(notes), encoding="utf-8")
    return status


def journeys() -> dict[str, set[Function]]:
    """Every journey by its name, with the functions that ran."""
    with tempfile.TemporaryDirectory(prefix="dither-journeys-") as place:
        folder = Path(place)
        return {
            "publish": publish_journey(folder),
            "report": report_journey(folder),
            "question": question_journey(folder),
            "first question": question_journey(folder, replicates=0),
        }


def main() -> int:
    """Print the counts."""
    if sys.argv[1:2] == ["--child"]:
        return _serve(sys.argv[2:])
    options = argparse.ArgumentParser(description="Count functions and files of three journeys.")
    options.add_argument("--json", action="store_true", help="print one JSON object")
    options.add_argument("--where", action="store_true", help="also the functions in each file")
    asked = options.parse_args()
    found = journeys()
    files = {name: Counter(file for file, _ in functions) for name, functions in found.items()}
    if asked.json:
        counts = {
            name: {"functions": len(functions), "files": len(files[name])}
            for name, functions in found.items()
        }
        print(json.dumps(counts))
        return 0
    print(f"{'journey':14} {'functions':>9} {'files':>6}  target")
    for name, functions in found.items():
        target = "{} in {}".format(*TARGETS[name]) if name in TARGETS else ""
        print(f"{name:14} {len(functions):9} {len(files[name]):6}  {target}")
    for name in found if asked.where else ():
        print(f"\n{name}")
        for file, count in files[name].most_common():
            called = sorted(function for path, function in found[name] if path == file)
            print(f"  {count:3} {file}: {', '.join(called)}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
