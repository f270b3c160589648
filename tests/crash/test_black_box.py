"""Three collectors and their database under faults, seen from outside.

Collectors are processes of `dither serve`; they, their database and the links between them are killed,
stopped and cut. Reports and their ids are made from docs/reference/protocol.md alone: nothing of Dither
is imported here. What is checked is what participants and operators were told.
"""

from __future__ import annotations

import hashlib
import http.client
import io
import json
import os
import random
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from collector_harness import Cluster, free_port, until

SOAK = os.environ.get("DITHER_SOAK") == "1"
EVENTS = 60 if SOAK else 4
COLLECTORS, SENDERS = 3, 3
TYPE = "application/vnd.dither.reports"
SCHEMA = {
    "format": "dither-schema-1",
    "attributes": [{"name": "answer", "kind": "categorical", "values": ["yes", "no", "perhaps"]}],
}

# --- a device, from the protocol page ------------------------------------------------------


def derive(purpose: str, token: bytes, campaign: bytes, number: int) -> bytes:
    text = b"dither-1:" + purpose.encode() + b"\0"
    return hashlib.sha256(text + token + campaign + number.to_bytes(4, "little")).digest()


def report_of(mechanism: dict[str, Any], cell: int) -> bytes:
    """A report by `grr` or `oue`."""
    cells, width = mechanism["cells"], mechanism["threshold_bits"] // 8

    def draw() -> int:
        return int.from_bytes(secrets.token_bytes(width), "little")

    if mechanism["name"] == "grr":
        other = mechanism["other"]
        keep = 256**width - (cells - 1) * other
        drawn = draw()
        answer = cell if drawn < keep else (drawn - keep) // other
        answer += drawn >= keep and answer >= cell
        return answer.to_bytes(((cells - 1).bit_length() + 7) // 8, "little")
    assert mechanism["name"] == "oue", mechanism
    limits = (mechanism["other_set"], mechanism["true_set"])
    found = sum((draw() < limits[i == cell]) << i for i in range(cells))
    return found.to_bytes((cells + 7) // 8, "little")


def envelope_of(campaign: bytes, plan: dict[str, Any], token: bytes) -> tuple[bytes, bytes]:
    """The only question's answer in an envelope; the payload and the envelope."""
    (question,) = plan["questions"]
    payload = report_of(question["mechanism"], token[0] % 3)
    number = 65535 if plan["split"] else 0
    head = b"DTR1" + campaign + plan["round"].to_bytes(4, "little") + (1).to_bytes(4, "little")
    report = token + number.to_bytes(2, "little") + len(payload).to_bytes(2, "little") + payload
    return payload, head + report


# --- what is broken ------------------------------------------------------------------------


class Link:
    """A relay between one collector and the database that can be cut or stopped."""

    def __init__(self, target: int) -> None:
        self._target, self._open = target, True
        self._flows = threading.Event()
        self._flows.set()
        self._sockets: set[socket.socket] = set()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listening.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listening.accept()
                if not self._open:
                    near.close()
                    continue
                try:
                    far = socket.create_connection(("127.0.0.1", self._target), 5)
                except OSError:
                    near.close()
                    continue
                far.settimeout(None)
                self._sockets |= {near, far}
                for ends in ((near, far), (far, near)):
                    threading.Thread(target=self._relay, args=ends, daemon=True).start()

    def _relay(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                self._flows.wait()
                target.sendall(data)
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def cut(self, seconds: float) -> None:
        """End all connections, in the middle of what they carry, and refuse new ones."""
        self._open = False
        for each in list(self._sockets):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        time.sleep(seconds)
        self._open = True

    def stop(self, seconds: float) -> None:
        """Carry nothing, and say nothing."""
        self._flows.clear()
        time.sleep(seconds)
        self._flows.set()

    def close(self) -> None:
        self._listening.close()
        self.cut(0.0)


class Collector:
    """A process of `dither serve`, reached through its port and its signals."""

    def __init__(self, folder: Path, cluster: Cluster, store: str) -> None:
        self.link, self.port = Link(cluster.port), free_port()
        self._store = store.replace(f":{cluster.port}/", f":{self.link.port}/")
        self._folder = folder
        self.start()

    def start(self) -> None:
        code = "from dither.cli import main; main()"
        command = [sys.executable, "-c", code, "serve", "--store", self._store]
        command += ["--port", str(self.port), "--key-file", str(self._folder / "key")]
        with (self._folder / f"log-{self.port}").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def pause(self, seconds: float) -> None:
        self._process.send_signal(signal.SIGSTOP)
        time.sleep(seconds)
        self._process.send_signal(signal.SIGCONT)

    def is_ready(self) -> bool:
        # A collector that starts while its database is away ends; the shipped unit starts it again.
        if self._process.poll() is not None:
            self.start()
        with suppress(OSError, http.client.HTTPException):
            return request(self.port, "GET", "/ready")[0] == 200
        return False


def request(
    port: int, method: str, path: str, body: bytes | None = None, **headers: str
) -> tuple[int, bytes]:
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=15)) as connection:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, body, named)
        answer = connection.getresponse()
        return answer.status, answer.read()


# --- who takes part, and what they were told -----------------------------------------------


@dataclass
class Told:
    """Payloads by report id: sent, acknowledged, and refused with certainty."""

    sent: dict[bytes, bytes] = field(default_factory=dict)
    acknowledged: list[bytes] = field(default_factory=list)
    refused: list[bytes] = field(default_factory=list)
    strange: list[object] = field(default_factory=list)


def faults(told: Told, stored: list[tuple[bytes, bytes]]) -> list[str]:
    """Compare what was told with what is stored; one line for each broken promise."""
    held = dict(stored)
    found = [f"strange answers: {told.strange[:3]}"] if told.strange else []
    if len(held) != len(stored):
        found.append("a report is stored twice")
    if any(each not in held for each in told.acknowledged):
        found.append("an acknowledged report is lost")
    if any(told.sent.get(each) != payload for each, payload in held.items()):
        found.append("a stored report is not the one that was sent")
    if any(each in held for each in told.refused):
        found.append("a refused report is stored")
    return found


class Senders:
    """Threads in which one new participant after the other sends the same bytes until it is answered."""

    def __init__(self, ports: list[int], campaign: str, plan: dict[str, Any]) -> None:
        self.told = Told()
        self._ports, self._campaign, self._plan = ports, campaign, plan
        self._ending = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(seed,), daemon=True) for seed in range(SENDERS)
        ]
        for thread in self._threads:
            thread.start()

    def _run(self, seed: int) -> None:
        rng = random.Random(seed)  # noqa: S311 - which collector, not noise
        while not self._ending.is_set():
            token = secrets.token_bytes(32)
            payload, body = envelope_of(bytes.fromhex(self._campaign), self._plan, token)
            receipt = derive("report", token, bytes.fromhex(self._campaign), 0xFFFFFFFF)
            self.told.sent[receipt] = payload
            if not self._send(rng, receipt, body):
                return

    def _send(self, rng: random.Random, receipt: bytes, body: bytes) -> bool:
        """Send until answered; return whether the round still takes reports."""
        path, uncertain = f"/v1/campaigns/{self._campaign}/reports", False
        while True:
            try:
                port = rng.choice(self._ports)
                status, answer = request(port, "POST", path, body, content_type=TYPE)
            except (OSError, http.client.HTTPException):
                uncertain = True
                time.sleep(0.02)
                continue
            if status in (200, 201):
                if json.loads(answer)["results"] not in (["stored"], ["duplicate"]):
                    self.told.strange.append(answer)
                self.told.acknowledged.append(receipt)
                return True
            if status == 409 and b"round-closed" in answer:
                if not uncertain:
                    self.told.refused.append(receipt)
                return False
            if status not in (429, 503):
                self.told.strange.append((status, answer))
                return False
            uncertain |= b"round-closing" not in answer
            time.sleep(0.02)

    def wait_for(self, more: int) -> None:
        seen = len(self.told.acknowledged)
        until(lambda: len(self.told.acknowledged) >= seen + more or bool(self.told.strange), 90)

    def join(self) -> None:
        for thread in self._threads:
            thread.join(90)
            assert not thread.is_alive()


@pytest.fixture
def collectors(own_cluster: Cluster, tmp_path: Path) -> Iterator[list[Collector]]:
    (tmp_path / "key").write_text("k" * 40 + "\n")
    (tmp_path / "key").chmod(0o600)
    store = own_cluster.fresh()
    made = [Collector(tmp_path, own_cluster, store) for _ in range(COLLECTORS)]
    (tmp_path / "store").write_text(store)
    yield made
    for collector in made:
        collector.kill()
        collector.link.close()


def break_things(
    senders: Senders, collectors: list[Collector], cluster: Cluster, rng: random.Random
) -> int:
    """Let every kind of fault happen under load; return their number."""
    first = ["kill", "cut", "crash", "pause"]
    others = rng.choices(["kill", "cut", "stop", "crash", "pause"], k=EVENTS - len(first))
    events = [*first, *others]
    for event in events:
        senders.wait_for(15)
        collector = rng.choice(collectors)
        if event == "kill":
            collector.kill()
            collector.start()
        elif event == "crash":
            cluster.kill()
            cluster.start()
        else:
            faulty = collector if event == "pause" else collector.link
            getattr(faulty, event)(rng.uniform(0.1, 0.6))
    return len(events)


@pytest.mark.slow
def test_what_was_told_holds_after_kills_cuts_and_crashes(
    own_cluster: Cluster, collectors: list[Collector], tmp_path: Path
) -> None:
    for collector in collectors:
        until(collector.is_ready, 90)
    ports = [collector.port for collector in collectors]
    key = {"authorization": f"Bearer {'k' * 40}", "content_type": "application/json"}
    wanted = {"schema": SCHEMA, "epsilon": 2.0, "participants": 10**6, "method": "independent"}
    wanted |= {"assignment": "arrival", "holdout": 0}
    body = json.dumps(wanted).encode()
    status, answer = request(ports[0], "POST", "/v1/admin/campaigns", body, **key)
    assert status == 201, answer
    campaign = json.loads(answer)["campaign"]
    announced = json.loads(request(ports[0], "GET", f"/v1/campaigns/{campaign}")[1])
    senders = Senders(ports, campaign, announced["plan"])
    rng = random.Random(7)  # noqa: S311 - faults, not noise
    events = break_things(senders, collectors, own_cluster, rng)
    senders.wait_for(15)
    close = f"/v1/admin/campaigns/{campaign}/close-round"
    closed = 0
    until_closed = time.monotonic() + 90
    while closed != 200 and time.monotonic() < until_closed:
        with suppress(OSError, http.client.HTTPException):
            closed = request(rng.choice(ports), "POST", close, b'{"round": 0}', **key)[0]
    assert closed == 200
    senders.join()
    for collector in collectors:
        until(collector.is_ready, 90)

    told = senders.told
    export = f"/v1/admin/campaigns/{campaign}/rounds/0/reports"
    status, answer = request(ports[1], "GET", export, **key)
    assert status == 200
    table = pq.read_table(io.BytesIO(answer))
    stored = list(
        zip(*(table.column(c).to_pylist() for c in ("report_id", "payload")), strict=True)
    )
    assert faults(told, stored) == []
    assert len(told.acknowledged) >= 15 * (events + 1)
    for port, receipt in zip(ports, told.acknowledged, strict=False):
        lookup = request(port, "POST", f"/v1/campaigns/{campaign}/lookup", receipt)
        assert lookup == (200, b'{"stored":true}')
    store = (tmp_path / "store").read_text()
    code = "from dither.cli import main; main()"
    command = [sys.executable, "-c", code, "store", "check", "--store", store]
    checked = subprocess.run(command, capture_output=True, text=True, check=False, timeout=90)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_every_broken_promise_is_noticed() -> None:
    ids = [bytes([i]) * 32 for i in range(4)]
    told = Told(dict.fromkeys(ids, b"p"), ids[:2], ids[3:])
    sound = [(ids[0], b"p"), (ids[1], b"p"), (ids[2], b"p")]
    assert faults(told, sound) == []
    broken = {
        "twice": [*sound, sound[0]],
        "lost": sound[1:],
        "not the one that was sent": [sound[0], (ids[1], b"q")],
        "refused": [*sound, (ids[3], b"p")],
    }
    for word, stored in broken.items():
        (found,) = faults(told, stored)
        assert word in found
    told.strange.append((500, b""))
    assert "strange" in faults(told, sound)[0]
