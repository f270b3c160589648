"""A demonstration: a collector with three open campaigns and two releases to compare.

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
GERMAN: JsonObject = {
    "attributes": [
        {
            "name": "where",
            "kind": "categorical",
            "question": {
                "de": "Wo kaufen Sie am häufigsten Lebensmittel ein?",
                "ar": "من أين تشتري الطعام غالبًا؟",
            },
            "help": {"de": "In den letzten vier Wochen.", "ar": "في الأسابيع الأربعة الماضية."},
            "values": ["market", "corner", "super", "discount", "online"],
            "labels": {
                "de": [
                    "Auf dem Markt",
                    "Im Laden um die Ecke",
                    "Im Supermarkt",
                    "Beim Discounter",
                    "Im Internet",
                ],
                "ar": [
                    "من السوق",
                    "من بقالة الحي",
                    "من السوبرماركت",
                    "من متجر مخفض",
                    "من الإنترنت",
                ],
            },
        },
        {
            "name": "often",
            "kind": "ordinal",
            "question": {
                "de": "Wie oft in der Woche kaufen Sie ein?",
                "ar": "كم مرة تتسوق في الأسبوع؟",
            },
            "values": ["0-1", "2-3", "4+"],
            "labels": {
                "de": ["Höchstens einmal", "Zwei- bis dreimal", "Viermal oder öfter"],
                "ar": ["مرة واحدة على الأكثر", "مرتين إلى ثلاث", "أربع مرات أو أكثر"],
            },
        },
    ]
}
GERMAN_WORDS: JsonObject = {
    "language": "de",
    "title": {"de": "Wo wir einkaufen", "ar": "أين نتسوق"},
    "purpose": {
        "de": "Die Stadt will wissen, welche Stadtteile einen Markt brauchen.",
        "ar": "تريد المدينة أن تعرف أي الأحياء تحتاج إلى سوق.",
    },
    "contact": "Stadt Musterstadt, markt@stadt.example",
}
CONSUMERS = [
    {"name": "Traffic office", "edges": [0, 15, 30, 60, 180]},
    {"name": "Bus company", "edges": [0, 30, 45, 60, 90, 180]},
]
PURPOSE = (
    "The town plans its bus lines and cycle paths for the next ten years, and would like to know how people get to work today.\n"
    "The figures are published; nobody, not even the town, ever holds a single true answer."
)


@dataclass(frozen=True)
class Demo:
    """A running collector: its open campaigns, and two published ones a year apart."""

    url: str
    key_file: Path
    taking: str
    number: str
    german: str
    published: str
    earlier: str


def people(count: int, seed: int, cycling: float = 0.0) -> pa.Table:
    """Simulated people: those far away go by car or train and are less satisfied; the young cycle.

    `cycling` makes more people cycle, as after a year with new paths.
    """
    draw = np.random.default_rng([seed, 0x7765])
    age = np.clip(draw.normal(42, 13, count), 16, 99).astype(int)
    minutes = np.clip(draw.gamma(2.2, 13, count), 0, 179).astype(int)
    near, young = minutes < 20, age < 35
    weights = np.stack(
        [
            0.5 * near + 0.02,
            0.3 * young + 0.5 * near + 0.05 + cycling,
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


def shoppers(count: int, seed: int) -> pa.Table:
    """Simulated people who shop."""
    draw = np.random.default_rng([seed, 0x6D61])
    often = draw.choice(3, count, p=[0.3, 0.5, 0.2])
    where = np.where(draw.random(count) < 0.15 * often, 0, draw.choice(5, count))
    places, times = (np.array(GERMAN["attributes"][i]["values"]) for i in (0, 1))
    return pa.table({"where": places[where], "often": times[often]})


def _fill(folder: Path, url: str, key_file: Path) -> Demo:
    operator = Operator(url, key_file)

    def campaign(
        table: pa.Table, participants: int, *more: str, seed: int = SEED, **body: object
    ) -> str:
        whole = {"epsilon": 4.0, "participants": participants, "seed": seed, "listed": True, **body}
        made = str(operator.call("POST", "", whole)["campaign"])
        file = folder / f"{made}.csv"
        pa.csv.write_csv(table, file)
        call = ["submit", str(file), "--campaign", made, "--url", url, "--seed", str(seed), *more]
        with redirect_stdout(StringIO()), redirect_stderr(StringIO()) as said:
            status = run(call)
        if status:
            raise SystemExit(f"the example's answers could not be sent: {said.getvalue()}")
        return made

    commuting: JsonObject = {
        "schema": SCHEMA,
        "purpose": PURPOSE,
        "contact": "planning@town.example",
        "holdout": 0.05,
    }
    released = []
    whole = ("--all-rounds", "--key-file", str(key_file))
    for year, cycling, seed in ((2025, 0.0, SEED), (2026, 0.12, SEED + 2)):
        table, title = people(8_000, seed, cycling), f"How we got to work in {year}"
        done = campaign(table, 8_000, *whole, seed=seed, title=title, **commuting)
        operator.call("POST", f"/{done}/finalise", {})
        operator.call("POST", f"/{done}/publish-release", {})
        released.append(done)
    taking = campaign(
        people(3_500, SEED + 1), 6_000, seed=SEED + 1, title="How we get to work", **commuting
    )
    number = campaign(
        people(2_000, SEED + 3).select(["minutes"]),
        5_000,
        schema={"attributes": [_minutes()]},
        method="chp",
        consumers=CONSUMERS,
        epsilon=1.0,
        title="How long we are on the way",
        purpose="The town and its bus company want to know how long people travel to work.",
        contact="planning@town.example",
    )
    german = campaign(shoppers(1_500, SEED), 4_000, schema=GERMAN, epsilon=2.0, **GERMAN_WORDS)
    return Demo(url, key_file, taking, number, german, released[1], released[0])


def _minutes() -> JsonObject:
    """The number that the consumers' campaign asks: all their edges are cells."""
    edges = sorted({edge for consumer in CONSUMERS for edge in consumer["edges"]})  # type: ignore[attr-defined]
    asked = {"question": "How long does your way to work take, in minutes?"}
    return {"name": "minutes", "kind": "numeric", "edges": edges, "clip": True, **asked}


def main() -> None:
    """Start the demonstration, print the links and serve until Ctrl-C."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--port", type=int, default=8700)
    options.add_argument("--json", action="store_true", help="print the links as one JSON object")
    asked = options.parse_args()
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        print(
            "Making five campaigns with simulated answers; this takes a minute or two.",
            file=sys.stderr,
            flush=True,
        )
        with demo(asked.port) as running:
            key = running.key_file.read_text(encoding="ascii").strip()
            links = {
                "participant": f"{running.url}/c/{running.taking}",
                "number": f"{running.url}/c/{running.number}",
                "german": f"{running.url}/c/{running.german}",
                "arabic": f"{running.url}/c/{running.german}?language=ar",
                "console": f"{running.url}/console",
                "release": f"{running.url}/releases/{running.published}",
                "earlier": f"{running.url}/releases/{running.earlier}",
                "key": key,
            }
            print(json.dumps(links) if asked.json else _told(links), flush=True)
            signal.pause()
    except KeyboardInterrupt:
        print("Stopped; nothing is left of it.", file=sys.stderr)


def _told(links: dict[str, str]) -> str:
    return (
        f"Take part:   {links['participant']}   (a table)\n"
        f"             {links['number']}   (one number)\n"
        f"             {links['german']}   (German and Arabic)\n"
        f"Console:     {links['console']}   (sign in with the key {links['key']})\n"
        f"A release:   {links['release']}\n"
        f"Last year's: {links['earlier']}\n"
        "Everything is simulated with a fixed seed. Ctrl-C ends it and leaves nothing behind."
    )


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    main()
