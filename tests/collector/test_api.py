"""The HTTP interface: every answer has its status and its named cause, at and on both sides of each limit."""

from __future__ import annotations

import http.client
import io
import json
import threading
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from collector_harness import (
    KEY,
    Caller,
    ServerThread,
    asked_tokens,
    describe,
    envelope_of,
    plan_of,
    stored_tally,
    token_of,
    until,
)
from fastapi import FastAPI

from dither.client import Answer
from dither.collector import Collector, SqliteStore, StoreFull, StoreUnavailable
from dither.reports import Envelope, Report, decode, encode, limits, token_hash

OPENAPI = Path(__file__).parents[1] / "golden" / "openapi.json"


def cause(answer: Answer) -> tuple[int, str]:
    body = json.loads(answer.body)
    assert body["status"] == answer.status
    assert body["title"]
    return answer.status, body["type"].removeprefix("urn:dither:problem:")


@pytest.fixture
def campaign(caller: Caller) -> str:
    return caller.create()


@pytest.fixture
def body(caller: Caller, campaign: str) -> bytes:
    return envelope_of(campaign, plan_of(caller.announcement(campaign)), [token_of(1)])


def changed(body: bytes, **parts: Any) -> bytes:
    """An envelope with something about it or its only report replaced."""
    envelope = decode(body)
    report = envelope.reports[0]
    fields = {"token": report.token, "question": report.question, "payload": report.payload}
    fields |= {k: v for k, v in parts.items() if k in fields}
    campaign = parts.get("campaign", envelope.campaign)
    return encode(Envelope(campaign, parts.get("round", envelope.round), (Report(**fields),)))


def test_stored_201_same_bytes_200_other_bytes_409(
    caller: Caller, campaign: str, body: bytes
) -> None:
    first = caller.upload(campaign, body)
    assert (first.status, json.loads(first.body)) == (201, {"results": ["stored"]})
    again = caller.upload(campaign, body)
    assert (again.status, json.loads(again.body)) == (200, {"results": ["duplicate"]})
    plan = plan_of(caller.announcement(campaign))
    others = {envelope_of(campaign, plan, [token_of(1)], noise=str(i)) for i in range(30)} - {body}
    assert cause(caller.upload(campaign, others.pop())) == (409, "conflict")
    assert caller.status(campaign)["rounds"][0]["reports"] == 1


def test_a_batch_is_judged_report_by_report(caller: Caller, campaign: str, body: bytes) -> None:
    caller.upload(campaign, body)
    good = decode(body).reports[0]
    batch = envelope_of(
        campaign, plan_of(caller.announcement(campaign)), [token_of(2), token_of(3)]
    )
    fresh, other = decode(batch).reports
    bad = Report(other.token, (other.question + 1) % 3, other.payload)
    mixed = encode(Envelope(bytes.fromhex(campaign), 0, (good, bad, fresh)))
    answer = caller.upload(campaign, mixed)
    results = json.loads(answer.body)["results"]
    assert answer.status == 422
    assert results[0] == "duplicate"
    assert results[1] == "wrong-question"
    assert results[2] == "stored"
    assert caller.status(campaign)["rounds"][0]["reports"] == 2


def test_each_refusal_has_its_own_name(caller: Caller, campaign: str, body: bytes) -> None:
    question = decode(body).reports[0].question
    assert cause(caller.upload(campaign, changed(body, question=(question + 1) % 3))) == (
        422,
        "wrong-question",
    )
    assert cause(caller.upload(campaign, changed(body, question=-1))) == (422, "wrong-question")
    assert cause(caller.upload(campaign, changed(body, payload=b"\0" * 50))) == (422, "malformed")
    assert cause(caller.upload(campaign, changed(body, campaign=b"\1" * 16))) == (
        422,
        "wrong-campaign",
    )
    assert cause(caller.upload("00" * 16, body)) == (404, "no-campaign")
    assert cause(caller.upload(campaign, body[:-1])) == (400, "bad-envelope")
    assert cause(caller.upload(campaign, b"")) == (400, "bad-envelope")
    wrong_type = caller.connection.request(
        "POST", f"/v1/campaigns/{campaign}/reports", body, {"content-type": "text/plain"}
    )
    assert cause(wrong_type) == (415, "wrong-media-type")
    assert cause(caller.connection.request("GET", "/nothing", None)) == (404, "not-found")
    assert cause(caller.connection.request("DELETE", f"/v1/campaigns/{campaign}", None)) == (
        405,
        "method-not-allowed",
    )
    assert caller.status(campaign)["rounds"][0]["reports"] == 0


def test_a_round_before_the_open_one_is_late_and_one_after_it_is_early(caller: Caller) -> None:
    campaign = caller.create(method="synthetic")
    plan, start = plan_of(caller.announcement(campaign)), caller.announcement(campaign)["start"]
    *known, unknown = asked_tokens(campaign, start, plan, 41)
    early, late = envelope_of(campaign, plan, known), envelope_of(campaign, plan, [unknown])
    other = envelope_of(campaign, plan, known, noise="other")
    assert caller.upload(campaign, early).status == 201
    assert caller.admin("POST", f"/{campaign}/close-round", {"round": 0}).status == 200
    second = caller.announcement(campaign)
    plan = plan_of(second)
    tokens = asked_tokens(campaign, second["start"], plan, 4)
    now = envelope_of(campaign, plan, tokens)
    assert caller.upload(campaign, early).status == 200, "its acknowledgement was lost, perhaps"
    assert cause(caller.upload(campaign, other)) == (409, "conflict")
    assert cause(caller.upload(campaign, late)) == (409, "round-closed")
    assert caller.upload(campaign, now).status == 201
    assert cause(
        caller.upload(campaign, changed(envelope_of(campaign, plan, tokens[:1]), round=2))
    ) == (
        409,
        "round-not-open",
    )
    others = asked_tokens(campaign, start, plan, 3)
    assert cause(caller.upload(campaign, envelope_of(campaign, plan, others))) == (
        403,
        "not-this-round",
    )


def test_a_draft_is_early_and_a_finished_campaign_late(caller: Caller) -> None:
    campaign = caller.create(draft=True)
    announced = caller.announcement(campaign)
    assert (announced["state"], announced["plan"]) == ("draft", None)
    envelope = encode(Envelope(bytes.fromhex(campaign), 0, (Report(token_of(0), 0, b"\0"),)))
    assert cause(caller.upload(campaign, envelope)) == (409, "round-not-open")
    caller.admin("POST", f"/{campaign}/open", {})
    plan = plan_of(caller.announcement(campaign))
    assert (
        caller.upload(
            campaign, envelope_of(campaign, plan, [token_of(i) for i in range(50)])
        ).status
        == 201
    )
    assert caller.admin("POST", f"/{campaign}/close-round", {"round": 0}).status == 200
    assert caller.announcement(campaign)["state"] == "collected"
    late = envelope_of(campaign, plan, [token_of(50)])
    for number in (0, 1):
        assert cause(caller.upload(campaign, changed(late, round=number))) == (409, "round-closed")


def test_tokens_are_issued_once_and_kept_as_hashes(
    caller: Caller, server: ServerThread, tmp_path: Path
) -> None:
    campaign = caller.create(participation="tokens")
    issued = json.loads(caller.admin("POST", f"/{campaign}/tokens", {"count": 3}).body)["tokens"]
    assert len(set(issued)) == 3
    plan = plan_of(caller.announcement(campaign))
    assert cause(caller.upload(campaign, envelope_of(campaign, plan, [token_of(0)]))) == (
        403,
        "unknown-token",
    )
    assert (
        caller.upload(
            campaign, envelope_of(campaign, plan, [bytes.fromhex(t) for t in issued])
        ).status
        == 201
    )
    held = b"".join(p.read_bytes() for p in tmp_path.iterdir() if p.name.startswith("collector.db"))
    assert all(token_hash(bytes.fromhex(t)) in held for t in issued)
    assert not any(bytes.fromhex(t) in held or t.encode() in held for t in issued)
    open_to_all = caller.create()
    assert cause(caller.admin("POST", f"/{open_to_all}/tokens", {"count": 1})) == (
        409,
        "wrong-state",
    )


def test_size_limits_hold_at_the_limit_and_fail_one_beyond(caller: Caller, campaign: str) -> None:
    plan = plan_of(caller.announcement(campaign))
    assert (
        caller.upload(
            campaign, envelope_of(campaign, plan, [token_of(i) for i in range(1000)])
        ).status
        == 201
    )
    many = bytearray(envelope_of(campaign, plan, [token_of(i) for i in range(1000)]))
    many[24:28] = (1001).to_bytes(4, "little")
    assert cause(caller.upload(campaign, bytes(many) + bytes(many[28:65]))) == (400, "bad-envelope")
    for length, expected in (
        (limits.REPORT_BYTES, (422, "malformed")),
        (limits.REPORT_BYTES + 1, (400, "bad-envelope")),
    ):
        raw = bytearray(envelope_of(campaign, plan, [token_of(0)])[:62])
        raw += length.to_bytes(2, "little") + b"\0" * length
        assert cause(caller.upload(campaign, bytes(raw))) == expected
    assert cause(caller.upload(campaign, b"x" * limits.BODY_BYTES)) == (400, "bad-envelope")
    assert cause(caller.upload(campaign, b"x" * (limits.BODY_BYTES + 1))) == (413, "too-large")
    assert cause(caller.connection.request("GET", "/live", None, {"x-long": "y" * 20_000})) == (
        431,
        "headers-too-large",
    )


def test_a_body_of_unknown_length_is_refused(server: ServerThread, campaign: str) -> None:
    connection = http.client.HTTPConnection(server.url.removeprefix("http://"), timeout=10)
    connection.request(
        "POST", f"/v1/campaigns/{campaign}/reports", iter([b"abc"]), encode_chunked=True
    )
    assert connection.getresponse().status == 411
    connection.close()


@pytest.mark.parametrize(
    "header", [None, "Bearer", "Bearer wrong", f"Basic {KEY}", f"Bearer {KEY}x", "Bearer \xff\xfe"]
)
def test_the_operators_addresses_need_the_key(
    caller: Caller, campaign: str, header: str | None
) -> None:
    headers = {} if header is None else {"authorization": header}
    for method, path in (
        ("GET", ""),
        ("POST", ""),
        ("GET", f"/{campaign}"),
        ("POST", f"/{campaign}/close-round"),
        ("POST", f"/{campaign}/finalise"),
        ("GET", f"/{campaign}/rounds/0/reports"),
    ):
        body = b"{}" if method == "POST" else None
        answer = caller.connection.request(method, f"/v1/admin/campaigns{path}", body, headers)
        assert cause(answer) == (401, "unauthorised")
    assert caller.status(campaign)["state"] == "open"


def test_the_key_is_compared_in_constant_time() -> None:
    import inspect

    from dither.collector import Keys

    source = inspect.getsource(Keys.match)
    assert "hmac.compare_digest(" in source
    assert "==" not in source
    assert "break" not in source, "how many keys there are before the right one shows in no time"
    assert source.count("return") == 1


def test_other_origins_may_reach_the_participants_addresses_only(
    caller: Caller, campaign: str, server: ServerThread
) -> None:
    connection = http.client.HTTPConnection(server.url.removeprefix("http://"), timeout=10)
    for method, path, allowed in (
        ("OPTIONS", f"/v1/campaigns/{campaign}/reports", True),
        ("GET", f"/v1/campaigns/{campaign}", True),
        ("POST", f"/v1/campaigns/{campaign}/reports", True),
        ("OPTIONS", "/v1/admin/campaigns", False),
        ("GET", "/v1/admin/campaigns", False),
        ("GET", "/metrics", False),
        ("GET", "/live", False),
    ):
        connection.request(
            method, path, b"" if method == "POST" else None, {"origin": "https://elsewhere.example"}
        )
        response = connection.getresponse()
        response.read()
        assert (response.getheader("access-control-allow-origin") == "*") is allowed, path
        assert response.getheader("access-control-allow-credentials") is None
    connection.close()


def test_questions_of_browsers_are_counted_and_hear_each_header_once(
    caller: Caller, server: ServerThread
) -> None:
    connection = http.client.HTTPConnection(server.url.removeprefix("http://"), timeout=10)
    connection.request(
        "OPTIONS", "/v1/campaigns/x/reports", None, {"origin": "https://elsewhere.example"}
    )
    response = connection.getresponse()
    response.read()
    names = [name.lower() for name, _ in response.getheaders()]
    assert response.status == 204
    assert len(names) == len(set(names)), names
    assert {"access-control-allow-origin", "access-control-allow-methods", "cache-control"} <= set(
        names
    )
    assert 'dither_responses_total{status="204"} 1' in server.collector.metrics.text()
    connection.close()


@pytest.mark.parametrize(
    "path", ["/live/", "/v1/admin/campaigns/", "/v1/campaigns/x/", "/v1/campaigns/x/reports/"]
)
def test_no_answer_repeats_the_name_the_server_was_called_by(caller: Caller, path: str) -> None:
    answer = caller.connection.request("GET", path, None, {"host": "elsewhere.example"})
    assert cause(answer) in ((404, "not-found"), (404, "no-campaign"), (405, "method-not-allowed"))
    assert "elsewhere" not in repr(answer)


def test_a_full_queue_is_said_with_429_and_when_to_come_back(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "c.db")
    running = ServerThread(store, queue=5)
    caller = Caller(running.url)
    campaign = caller.create()
    plan = plan_of(caller.announcement(campaign))
    gate, entered, original = threading.Event(), threading.Event(), store.add_reports

    def slow(batches: Any) -> Any:
        entered.set()
        gate.wait(20)
        return original(batches)

    store.add_reports = slow  # type: ignore[method-assign]
    answers: list[int] = []

    def send(start: int) -> None:
        own = Caller(running.url)
        answers.append(
            own.upload(
                campaign, envelope_of(campaign, plan, [token_of(start + i) for i in range(4)])
            ).status
        )
        own.connection.close()

    threads = [threading.Thread(target=send, args=(100 * i,)) for i in range(2)]
    threads[0].start()
    until(entered.is_set)
    threads[1].start()
    until(lambda: running.collector.writer.waiting == 4)
    refused = caller.upload(campaign, envelope_of(campaign, plan, [token_of(900), token_of(901)]))
    assert cause(refused) == (429, "overloaded")
    assert refused.retry_after == 1.0
    gate.set()
    for thread in threads:
        thread.join()
    assert answers == [201, 201]
    assert caller.upload(campaign, envelope_of(campaign, plan, [token_of(900)])).status == 201
    caller.connection.close()
    running.stop()


@pytest.mark.parametrize(
    ("error", "expected"),
    [(StoreUnavailable("gone"), (503, "store-away")), (StoreFull("full"), (507, "disk-full"))],
)
def test_a_store_that_fails_is_said_and_live_stays_up(
    caller: Caller,
    campaign: str,
    body: bytes,
    server: ServerThread,
    error: Exception,
    expected: tuple[int, str],
) -> None:
    store = server.collector.store
    originals = store.add_reports, store.check

    def fail(*arguments: object) -> Any:
        raise error

    store.add_reports = store.check = fail  # type: ignore[method-assign]
    answer = caller.upload(campaign, body)
    assert cause(answer) == expected
    assert answer.retry_after is not None
    assert cause(caller.connection.request("GET", "/ready", None)) == expected
    assert caller.connection.request("GET", "/live", None).status == 200
    store.add_reports, store.check = originals  # type: ignore[method-assign]
    assert caller.connection.request("GET", "/ready", None).status == 200
    assert caller.upload(campaign, body).status == 201


def test_a_really_full_database_gives_507_and_goes_on_when_there_is_room(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "c.db")
    running = ServerThread(store)
    caller = Caller(running.url)
    campaign = caller.create(
        parameters={"mechanism": "oue"},
        schema={"a": {"kind": "ordinal", "values": list(range(4000))}},
    )
    plan = plan_of(caller.announcement(campaign))
    engine = store._engine
    with engine.connect() as connection:
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar()
        driver = connection.connection.driver_connection
        driver.execute(f"PRAGMA max_page_count={pages + 20}")
        held = bytes.fromhex(campaign)
        bodies = [
            encode(
                Envelope(
                    held,
                    0,
                    tuple(Report(token_of(100 * j + i), 0, b"\1" * 500) for i in range(100)),
                )
            )
            for j in range(4)
        ]
        connection.rollback()
    statuses = [caller.upload(campaign, b).status for b in bodies]
    assert statuses[-1] == 507
    stored = caller.status(campaign)["rounds"][0]["reports"]
    assert stored == 100 * statuses.count(201), "a batch that did not fit left nothing behind"
    with engine.connect() as connection:
        connection.connection.driver_connection.execute("PRAGMA max_page_count=1000000")
    assert [caller.upload(campaign, b).status for b in bodies] == [
        200 if s == 201 else 201 for s in statuses
    ]
    assert caller.status(campaign)["rounds"][0]["reports"] == 400
    assert plan.questions[0].mechanism.cells == 4000
    caller.connection.close()
    running.stop()


def test_metrics_count_outcomes_and_name_nobody(caller: Caller, campaign: str, body: bytes) -> None:
    caller.upload(campaign, body)
    caller.upload(campaign, body)
    text = caller.connection.request("GET", "/metrics", None).body.decode()
    assert 'dither_reports_total{outcome="stored"} 1' in text
    assert 'dither_reports_total{outcome="duplicate"} 1' in text
    assert 'dither_responses_total{status="201"}' in text
    assert "dither_upload_seconds_count 2" in text
    assert "dither_tally_mismatches_total 0" in text
    assert campaign not in text
    assert "127.0.0.1" not in text


def test_the_running_tally_is_shown_and_checked_at_the_closing(
    caller: Caller, campaign: str, server: ServerThread
) -> None:
    plan = plan_of(caller.announcement(campaign))
    caller.upload(campaign, envelope_of(campaign, plan, [token_of(i) for i in range(20)]))
    shown = json.loads(caller.admin("GET", f"/{campaign}/tally").body)
    assert shown["participants"] == 20 == sum(shown["answers"])
    caller.upload(campaign, envelope_of(campaign, plan, [token_of(i) for i in range(10, 60)]))
    assert json.loads(caller.admin("GET", f"/{campaign}/tally").body)["participants"] == 60
    assert (
        server.collector.running_tally(campaign).to_bytes()
        == stored_tally(server.collector, campaign).to_bytes()
    )
    assert caller.admin("POST", f"/{campaign}/close-round", {"round": 0}).status == 200
    assert "dither_tally_mismatches_total 0" in server.collector.metrics.text()
    assert cause(caller.admin("GET", f"/{campaign}/tally")) == (409, "wrong-state")


def test_a_wrong_running_tally_would_be_noticed(
    caller: Caller, campaign: str, server: ServerThread
) -> None:
    plan = plan_of(caller.announcement(campaign))
    caller.upload(campaign, envelope_of(campaign, plan, [token_of(i) for i in range(40)]))
    server.collector.running_tally(campaign)
    server.collector.tallies._running[(campaign, 0)].tally.n[0] += 1  # type: ignore[union-attr,index]
    assert caller.admin("POST", f"/{campaign}/close-round", {"round": 0}).status == 200
    assert "dither_tally_mismatches_total 1" in server.collector.metrics.text()


def test_the_interface_is_the_one_that_programs_were_written_for(caller: Caller) -> None:
    """`tests/golden/openapi.json` changes only with the interface, and then the changelog says how."""
    described = json.loads(caller.connection.request("GET", "/openapi.json", None).body)
    assert described == json.loads(OPENAPI.read_text(encoding="utf-8"))


def test_the_interface_describes_itself_without_reaching_out(caller: Caller) -> None:
    described = json.loads(caller.connection.request("GET", "/openapi.json", None).body)
    assert {
        "/v1/campaigns/{campaign}",
        "/v1/campaigns/{campaign}/reports",
        "/v1/admin/campaigns",
        "/ready",
    } <= set(described["paths"])
    page = caller.connection.request("GET", "/docs", None).body.decode().replace("<wbr>", "")
    assert "/v1/campaigns/{campaign}/reports" in page
    assert "//" not in page
    assert "<script" not in page


def test_the_page_of_addresses_escapes_what_it_shows(tmp_path: Path) -> None:
    def add_hostile(app: FastAPI, collector: Collector) -> None:
        app.title, app.description = "<i>", "&"
        app.add_api_route(
            "/<x>", lambda: None, tags=["health"], description="<b>bold</b>\nmore details"
        )

    running = ServerThread(SqliteStore(tmp_path / "c.db"), pages=add_hostile)
    caller = Caller(running.url)
    page = caller.connection.request("GET", "/docs", None).body.decode().replace("<wbr>", "")
    caller.connection.close()
    running.stop()
    assert "&lt;b&gt;bold&lt;/b&gt;" in page
    assert "more details" not in page
    assert "/&lt;x&gt;" in page
    assert "<title>&lt;i&gt;</title>" in page
    assert "<i>" not in page


def test_the_export_holds_every_report_in_the_order_of_ids(
    server: ServerThread, caller: Caller
) -> None:
    campaign = caller.create()
    plan = plan_of(caller.announcement(campaign))
    body = envelope_of(campaign, plan, [token_of(i) for i in range(30)])
    assert caller.upload(campaign, body).status == 201
    exported = caller.admin("GET", f"/{campaign}/rounds/0/reports")
    table = pq.read_table(io.BytesIO(exported.body))
    held = [tuple(row) for page in server.collector.store.reports(campaign, 0) for row in page]
    assert len(held) == 30
    assert list(zip(*(table.column(i).to_pylist() for i in range(3)), strict=True)) == held
    assert table.schema.metadata[b"dither_campaign"].decode() == campaign


def test_answers_are_described_as_they_are_sent(caller: Caller) -> None:
    described = json.loads(caller.connection.request("GET", "/openapi.json", None).body)

    def content(path: str, answer: Answer, method: str = "get") -> dict[str, Any]:
        """What is said about the answers of this address and status; it must be of the type that was sent, and no other."""
        said = described["paths"][path][method]["responses"][str(answer.status)]["content"]
        assert list(said) == [answer.content_type]
        return dict(said[answer.content_type]["schema"])

    def named(path: str, answer: Answer, method: str = "get") -> dict[str, Any]:
        schema = described["components"]["schemas"][
            content(path, answer, method)["$ref"].rpartition("/")[2]
        ]
        assert set(schema["properties"]) == set(schema["required"]) == set(json.loads(answer.body))
        return dict(schema["properties"])

    campaign = caller.create(participation="tokens")
    look = caller.connection.request("GET", f"/v1/campaigns/{campaign}", None)
    assert "open" in json.dumps(named("/v1/campaigns/{campaign}", look)["participation"])
    tokens = caller.admin("POST", f"/{campaign}/tokens", {"count": 40})
    assert (
        named("/v1/admin/campaigns/{campaign}/tokens", tokens, "post")["tokens"]["type"] == "array"
    )
    people = [bytes.fromhex(token) for token in json.loads(tokens.body)["tokens"]]
    body = envelope_of(campaign, plan_of(json.loads(look.body)), people)
    for status in (201, 200):
        answer = caller.upload(campaign, body)
        assert answer.status == status
        results = named("/v1/campaigns/{campaign}/reports", answer, "post")["results"]
        assert results["items"]["enum"] == ["stored", "duplicate"]
    exported = caller.admin("GET", f"/{campaign}/rounds/0/reports")
    assert (
        content("/v1/admin/campaigns/{campaign}/rounds/{number}/reports", exported)["format"]
        == "binary"
    )
    assert caller.admin("POST", f"/{campaign}/close-round", {"round": 0}).status == 200
    assert caller.admin("POST", f"/{campaign}/finalise").status == 200, (
        "an empty body will do, as is said"
    )
    bodies = {
        path.rpartition("/")[2]: entry["post"]["requestBody"]["required"]
        for path, entry in described["paths"].items()
        if "requestBody" in entry.get("post", {})
    }
    answer = caller.connection.request("POST", f"/v1/campaigns/{campaign}/lookup", bytes(32))
    assert named("/v1/campaigns/{campaign}/lookup", answer, "post")["stored"]["type"] == "boolean"
    answer = caller.connection.request("POST", f"/v1/campaigns/{campaign}/delete", bytes(32))
    assert named("/v1/campaigns/{campaign}/delete", answer, "post")["deleted"]["type"] == "boolean"
    needed = dict.fromkeys(
        ("reports", "lookup", "delete", "campaigns", "close-round", "tokens", "tally", "keys"), True
    )
    assert bodies == {**needed, "finalise": False}
    assert content(
        "/v1/admin/campaigns/{campaign}/release", caller.admin("GET", f"/{campaign}/release")
    )


def described_body(described: dict[str, Any], path: str) -> dict[str, Any]:
    content = described["paths"][f"/v1/admin/campaigns{path}"]["post"]["requestBody"]["content"]
    return dict(content["application/json"]["schema"])


def test_what_an_operator_may_send_is_described_as_it_is_read(caller: Caller) -> None:
    described = json.loads(caller.connection.request("GET", "/openapi.json", None).body)
    campaign = caller.create(participation="tokens")
    more = (
        "title",
        "purpose",
        "epsilon_reason",
        "contact",
        "closes",
        "closes_at_reports",
        "delete_reports_after",
        "assignment",
        "listed",
        "consumers",
        "language",
        "translations",
    )
    wanted = {
        "": {
            *describe(draft=True, name="", parameters={}, holdout=0.0, participation="open"),
            *more,
        }
    }
    wanted["/{campaign}/close-round"] = {"round", "hold"}
    wanted |= {"/{campaign}/finalise": {"rows"}, "/{campaign}/tokens": {"count"}}
    for path, keys in wanted.items():
        schema = described_body(described, path)
        assert set(schema["properties"]) == keys
        assert schema["additionalProperties"] is False
        required = {
            k: v for k, v in describe(round=0, count=1).items() if k in schema.get("required", [])
        }
        for key in required:
            left = {k: v for k, v in required.items() if k != key}
            refused = caller.admin("POST", path.format(campaign=campaign), left)
            assert (cause(refused), key in json.loads(refused.body)["detail"]) == (
                (422, "invalid"),
                True,
            )
        refused = caller.admin("POST", path.format(campaign=campaign), required | {"colour": 1})
        assert cause(refused) == (422, "invalid")
        assert "colour" in json.loads(refused.body)["detail"]
    answers = described["paths"]["/v1/admin/campaigns/{campaign}"]["get"]["responses"]["200"][
        "content"
    ]
    named = answers["application/json"]["schema"]["$ref"].rpartition("/")[2]
    assert set(described["components"]["schemas"][named]["properties"]) == set(
        caller.status(campaign)
    )


@pytest.mark.parametrize("value", [-1, True, 1.0, "1", None, [1], 2**63, 10**400])
@pytest.mark.parametrize(
    ("path", "key"), [("close-round", "round"), ("finalise", "rows"), ("tokens", "count")]
)
def test_an_operators_numbers_are_whole_and_bounded(
    caller: Caller, campaign: str, path: str, key: str, value: object
) -> None:
    answer = caller.admin("POST", f"/{campaign}/{path}", {key: value})
    if path == "finalise" and value is None:
        assert cause(answer) == (409, "wrong-state")
        return
    assert cause(answer) == (422, "invalid")
    assert key in json.loads(answer.body)["detail"]
    assert len(answer.body) < 400


def test_a_round_that_is_not_there_has_no_reports(caller: Caller, campaign: str) -> None:
    assert caller.admin("GET", f"/{campaign}/rounds/0/reports").status == 200
    for number in ("1", "-1", "x", "0.0", "+0", "%200", "0%0A", "9" * 19, "9" * 5000, "%00"):
        assert cause(caller.admin("GET", f"/{campaign}/rounds/{number}/reports")) == (
            404,
            "not-found",
        )


def test_counters_are_the_collectors_own_and_tell_no_time(
    caller: Caller, campaign: str, body: bytes
) -> None:
    caller.upload(campaign, body)
    text = caller.connection.request("GET", "/metrics", None).body.decode()
    names = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")}
    assert names == {
        *(
            "dither_reports_total",
            "dither_reports_deleted_total",
            "dither_responses_total",
            "dither_upload_seconds",
            "dither_queue_reports",
        ),
        *(
            "dither_tally_mismatches_total",
            "dither_connections_open",
            "dither_connections_refused_total",
        ),
        *(
            "dither_build_info",
            "dither_closing_seconds",
            "dither_clock_skew_seconds",
            "dither_last_report_age_seconds",
            "dither_store_ready",
            "dither_untidied_rounds",
        ),
        *(
            "process_cpu_seconds_total",
            "process_max_fds",
            "process_open_fds",
            "process_resident_memory_bytes",
            "process_start_time_seconds",
            "process_virtual_memory_bytes",
        ),
    }
    assert "_created" not in text, "the birth of a counter is the time of a first report"


def test_the_framework_traces_no_requests(
    server: ServerThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FASTAPI_OTEL_AUTO_CONFIGURE", "true")
    from dither.collector import make_app

    settings = getattr(make_app(server.collector, KEY)._app, "_telemetry", {})
    assert not any(
        settings.get(name)
        for name in ("tracing", "metrics", "logs", "operation_spans", "auto_configure")
    )
