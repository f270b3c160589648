"""`make demo-web`: three links that work, and nothing left after Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from urllib.request import Request, urlopen

import pytest


@pytest.mark.slow
def test_all_links_work_and_nothing_stays(tmp_path: Path) -> None:
    started = subprocess.Popen(
        [sys.executable, "-m", "tools.demo_web", "--port", "0", "--json"],
        cwd=Path(__file__).parents[1],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert started.stdout is not None
        line = started.stdout.readline()
        assert line, started.communicate()[1]
        links = json.loads(line)
        assert list(tmp_path.iterdir())
        for name, words in (
            ("participant", "How we get to work"),
            ("number", "Bus company"),
            ("german", "Wo wir einkaufen"),
            ("arabic", "أين نتسوق"),
            ("release", "How we got to work in 2026"),
            ("earlier", "How we got to work in 2025"),
        ):
            with urlopen(
                Request(links[name], headers={"accept": "text/html"}), timeout=60
            ) as answer:
                assert words in answer.read().decode()
        counted = Request(
            f"{links['console'].removesuffix('/console')}/v1/admin/campaigns/{links['participant'].split('/')[-1]}",
            headers={"authorization": f"Bearer {links['key']}"},
        )
        with urlopen(counted, timeout=60) as answer:
            status = json.load(answer)
        assert status["state"] == "open"
        assert sum(entry["reports"] for entry in status["rounds"]) >= 3000
    finally:
        started.send_signal(signal.SIGINT)
        _, errors = started.communicate(timeout=60)
    assert started.returncode == 0, errors
    assert list(tmp_path.iterdir()) == []
