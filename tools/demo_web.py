"""A demonstration: a collector with an open campaign and a published one.

    python -m tools.demo_web [--port 8700]

All data are simulated with a seed, in a temporary folder that Ctrl-C deletes.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from types import FrameType

import numpy as np
import pyarrow as pa
import pyarrow.csv

from dither.cli import run
from dither.cli.options import Operator
from dither.types import JsonObject

SEED = 7
SCHEMA: JsonObject = {
    "attributes": [
        {
            "name": "way",
            "kind": "categorical",
            "question": "How do you get to work on most days?",
            "help": "If you change on the way, name what takes longest.",
            "values": ["foot", "bicycle", "public", "car", "home"],
            "labels": [
                "On foot",
                "By bicycle",
                "By bus, tram or train",
                "By car",
                "I work at home",
            ],
        },
        {
            "name": "minutes",
            "kind": "numeric",
            "question": "How long does it take, in minutes?",
            "help": "From door to door.",
            "edges": [0, 15, 30, 45, 60, 180],
            "unit": 1,
        },
        {
            "name": "age",
            "kind": "numeric",
            "question": "How old are you?",
            "edges": [16, 25, 35, 45, 55, 65, 100],
            "unit": 1,
        },
        {
            "name": "satisfied",
            "kind": "ordinal",
            "question": "How satisfied are you with your way to work?",
            "values": ["not", "rather not", "rather", "very"],
            "labels": ["Not at all", "Rather not", "Rather satisfied", "Very satisfied"],
        },
    ]
}
PURPOSE = (
    "The town plans its bus lines and cycle paths for the next ten years, and would like to know how people get to work today.\n"
    "The figures are published; nobody, not even the town, ever holds a single true answer."
)


@dataclass(frozen=True)
class Demo:
    """A running collector and its two campaigns."""

    url: str
    key_file: Path
    taking: str
    published: str


def people(count: int, seed: int) -> pa.Table:
    """Simulated people: those far away go by car or train and are less satisfied; the young cycle."""
    draw = np.random.default_rng([seed, 0x7765])
    age = np.clip(draw.normal(42, 13, count), 16, 99).astype(int)
    minutes = np.clip(draw.gamma(2.2, 13, count), 0, 179).astype(int)
    near, young = minutes < 20, age < 35
    weights = np.stack(
        [
            0.5 * near + 0.02,
            0.3 * young + 0.5 * near + 0.05,
            0.4 - 0.2 * near,
            0.8 - 0.5 * near,
            0.12 + 0 * age,
        ]
    )
    chances = (weights / weights.sum(axis=0)).cumsum(axis=0)
    way = (draw.random(count) > chances).sum(axis=0).clip(0, 4)
    mood = np.clip(
        np.round(2.6 - minutes / 40 + 0.4 * (way < 2) + draw.normal(0, 0.8, count)), 0, 3
    ).astype(int)
    ways, moods = (np.array(SCHEMA["attributes"][i]["values"]) for i in (0, 3))
    return pa.table({"way": ways[way], "minutes": minutes, "age": age, "satisfied": moods[mood]})


@contextmanager
def demo(port: int = 0) -> Iterator[Demo]:
    """Start the demonstration; delete its folder at the end."""
    with tempfile.TemporaryDirectory(prefix="dither-demo-") as scratch:
        folder, key_file = Path(scratch), Path(scratch) / "admin.key"
        command = [
            sys.executable,
            "-c",
            "from dither.cli import main; main()",
            "serve",
            "--port",
            str(port),
        ]
        command += ["--store", str(folder / "collector.db"), "--key-file", str(key_file)]
        server = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            assert server.stdout is not None
            line = server.stdout.readline()
            if not line.startswith("listening on "):
                raise SystemExit(f"the collector did not start: {server.communicate()[1].strip()}")
            url = line.removeprefix("listening on ").strip()
            yield _fill(folder, url, key_file)
        finally:
            server.send_signal(signal.SIGTERM)
            server.communicate(timeout=30)


def _fill(folder: Path, url: str, key_file: Path) -> Demo:
    operator = Operator(url, key_file)

    def campaign(title: str, participants: int, answering: int, seed: int, *more: str) -> str:
        body = {
            "schema": SCHEMA,
            "epsilon": 4.0,
            "participants": participants,
            "seed": seed,
            "holdout": 0.05,
        }
        words = {
            "title": title,
            "purpose": PURPOSE,
            "contact": "planning@town.example",
            "listed": True,
        }
        made = str(operator.call("POST", "", {**body, **words})["campaign"])
        table = folder / f"{made}.csv"
        pa.csv.write_csv(people(answering, seed), table)
        call = ["submit", str(table), "--campaign", made, "--url", url, "--seed", str(seed), *more]
        with redirect_stdout(StringIO()), redirect_stderr(StringIO()) as said:
            status = run(call)
        if status:
            raise SystemExit(f"the example's answers could not be sent: {said.getvalue()}")
        return made

    done = campaign(
        "How we got to work last year",
        8_000,
        8_000,
        SEED,
        "--all-rounds",
        "--key-file",
        str(key_file),
    )
    operator.call("POST", f"/{done}/finalise", {})
    operator.call("POST", f"/{done}/publish-release", {})
    taking = campaign("How we get to work", 6_000, 3_500, SEED + 1)
    return Demo(url, key_file, taking, done)


def main() -> None:
    """Start the demonstration, print three links and serve until Ctrl-C."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--port", type=int, default=8700)
    options.add_argument("--json", action="store_true", help="print the links as one JSON object")
    asked = options.parse_args()
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        print(
            "Making two campaigns with simulated answers; this takes a minute.",
            file=sys.stderr,
            flush=True,
        )
        with demo(asked.port) as running:
            key = running.key_file.read_text(encoding="ascii").strip()
            links = {
                "participant": f"{running.url}/c/{running.taking}",
                "console": f"{running.url}/console",
                "release": f"{running.url}/releases/{running.published}",
                "key": key,
            }
            print(json.dumps(links) if asked.json else _told(links), flush=True)
            signal.pause()
    except KeyboardInterrupt:
        print("Stopped; nothing is left of it.", file=sys.stderr)


def _told(links: dict[str, str]) -> str:
    return (
        f"Take part:   {links['participant']}\n"
        f"Console:     {links['console']}   (sign in with the key {links['key']})\n"
        f"A release:   {links['release']}\n"
        "Everything is simulated with a fixed seed. Ctrl-C ends it and leaves nothing behind."
    )


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    main()
