"""Alert rules and dashboard use metrics that a collector has; logs are JSON if asked for."""

from __future__ import annotations

import json
import logging
import re
import shutil
import subprocess
from datetime import datetime
from pathlib import Path

import pytest
import yaml
from collector_harness import Caller, ServerThread, envelope_of, plan_of, token_of

from dither.collector import JsonFormatter, Metrics, SqliteStore, StoreUnavailable

DEPLOY = Path(__file__).parents[2] / "deploy"
RULES = DEPLOY / "alerts.yaml"
PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "operate-a-collector.md").read_text(
    encoding="utf-8"
)
NAME = re.compile(r"\b(?:dither|process)_[a-z_]+")


def exposed(text: str) -> set[str]:
    return {line.split("{")[0].split(" ")[0] for line in text.splitlines() if line[:1] != "#"}


def test_rules_and_dashboard_name_metrics_that_exist(tmp_path: Path) -> None:
    server = ServerThread(SqliteStore(tmp_path / "c.db"))
    caller = Caller(server.url)
    campaign = caller.create()
    body = envelope_of(campaign, plan_of(caller.announcement(campaign)), [token_of(1)])
    assert caller.upload(campaign, body).status == 201
    text = caller.connection.request("GET", "/metrics", None).body.decode()
    caller.connection.close()
    server.stop()
    rules = [
        rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]
    ]
    dashboard = json.loads((DEPLOY / "grafana-dashboard.json").read_text())
    expressions = [rule["expr"] for rule in rules]
    for panel in dashboard["panels"]:
        expressions += [target["expr"] for target in panel["targets"]]
    named = {name for expression in expressions for name in NAME.findall(expression)}
    assert len(named) > 12
    assert named <= exposed(text)
    assert all({"alert", "expr", "labels", "annotations"} <= set(rule) for rule in rules)
    assert len({rule["alert"] for rule in rules}) == len(rules)
    for name in sorted(exposed(text)):
        if name.startswith("dither_"):
            assert re.sub(r"_(bucket|sum|count)$", "", name) in PAGE, name


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
def test_promtool_accepts_the_rules() -> None:
    command = ["promtool", "check", "rules", str(RULES)]
    ran = subprocess.run(command, check=False, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_metrics_show_the_state_of_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SqliteStore(tmp_path / "c.db")
    server = ServerThread(store)
    caller = Caller(server.url)

    def scrape() -> str:
        return caller.connection.request("GET", "/metrics", None).body.decode()

    assert "dither_store_ready 1.0" in scrape()
    assert "dither_last_report_age_seconds NaN" in scrape()
    campaign = caller.create()
    body = envelope_of(campaign, plan_of(caller.announcement(campaign)), [token_of(1)])
    assert caller.upload(campaign, body).status == 201
    text = scrape()
    assert "dither_last_report_age_seconds 60.0" in text
    assert 'dither_upload_seconds_bucket{le="10.0"} 1.0' in text
    assert re.search(r"^process_resident_memory_bytes \d", text, re.MULTILINE)

    def away() -> None:
        raise StoreUnavailable("away")

    monkeypatch.setattr(store, "check", away)
    assert "dither_store_ready 0.0" in scrape()
    caller.connection.close()
    server.stop()


def test_workers_show_the_worst_of_what_is_no_amount(tmp_path: Path) -> None:
    first, second = Metrics(folder=tmp_path), Metrics(folder=tmp_path)
    for one, ready, skew in ((first, 1, 0.5), (second, 0, -70.0)):
        one.store_ready.set(ready)
        one.clock_skew.set(skew)
    second.share()
    (tmp_path / next(tmp_path.iterdir()).name).rename(tmp_path / "1.live")
    text = first.text()
    assert "dither_store_ready 0.0" in text
    assert "dither_clock_skew_seconds -70.0" in text
    assert re.search(r'dither_build_info\{version="[^"]+"\} 1\.0', text)


def test_json_lines_have_a_time_unless_it_would_be_that_of_a_report() -> None:
    record = logging.makeLogRecord(
        {"name": "dither.collector", "levelname": "WARNING", "msg": "%d rounds", "args": (3,)}
    )
    line = json.loads(JsonFormatter().format(record))
    assert (line["level"], line["logger"], line["message"]) == (
        "warning",
        "dither.collector",
        "3 rounds",
    )
    assert datetime.fromisoformat(line["time"]).tzinfo is not None
    record.day_only = True
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", json.loads(JsonFormatter().format(record))["time"])
