"""deploy/nginx.conf in front of real collectors: faults of one part stay with that part, and nothing names a client."""

from __future__ import annotations

import http.client
import json
import random
import socket
import ssl
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import psycopg
import pytest
from collector_harness import (
    KEY,
    Caller,
    Cluster,
    ServerProcess,
    envelope_of,
    free_port,
    plan_of,
    token_of,
    until,
)
from proxy_harness import REPORTS_TYPE, Proxy, upload, write_certificate

from dither.reports import Plan

pytestmark = pytest.mark.slow


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as held:
        yield held


def open_proxy(stack: ExitStack, folder: Path, ports: tuple[int, int]) -> Proxy:
    proxy = Proxy(folder, ports)
    stack.callback(proxy.stop)
    return proxy


@pytest.fixture
def alone(stack: ExitStack, tmp_path: Path) -> tuple[Proxy, Caller]:
    """A proxy before one collector on SQLite, and an operator's connection to the collector."""
    server = stack.enter_context(ServerProcess(tmp_path / "collector.db"))
    port = int(server.url.rpartition(":")[2])
    return open_proxy(stack, tmp_path, (port, port)), Caller(server.url)


def hold(cluster_url: str, campaign: str) -> None:
    """Leave a campaign in the middle of a closing, as a collector does that was stopped there."""
    with psycopg.connect(cluster_url, autocommit=True) as connection:
        connection.execute("UPDATE campaigns SET state = 'closing' WHERE id = %s", [campaign])
        connection.execute("UPDATE rounds SET state = 'closing' WHERE campaign = %s", [campaign])


def test_a_held_campaign_does_not_affect_another(
    stack: ExitStack, cluster: Cluster, tmp_path: Path
) -> None:
    store = cluster.fresh()
    servers = [stack.enter_context(ServerProcess(store)) for _ in range(2)]
    ports = [int(server.url.rpartition(":")[2]) for server in servers]
    proxy, operator = open_proxy(stack, tmp_path, (ports[0], ports[1])), Caller(servers[0].url)
    held, other = operator.create(), operator.create()
    plans = {campaign: plan_of(operator.announcement(campaign)) for campaign in (held, other)}
    for server in servers:
        second = Caller(server.url)
        until(lambda caller=second: caller.announcement(other).get("plan") is not None)  # type: ignore[misc]
    hold(store, held)
    connections = [stack.enter_context(closing(proxy.connect())) for _ in range(4)]
    statuses: dict[str, Counter[int]] = {held: Counter(), other: Counter()}
    for number in range(60):
        for campaign in (held, other):
            body = envelope_of(campaign, plans[campaign], [token_of(number)])
            status, headers, answer = upload(connections[number % 4], campaign, body)
            statuses[campaign][status] += 1
            if campaign == held:
                assert json.loads(answer)["type"] == "urn:dither:problem:round-closing"
                assert int(headers["retry-after"]) >= 5
    assert statuses == {held: {503: 60}, other: {201: 60}}


class Uploader(threading.Thread):
    """A device after the other over one connection; each sends the same bytes until they are acknowledged."""

    def __init__(self, proxy: Proxy, campaign: str, plan: Plan, number: int) -> None:
        super().__init__(daemon=True)
        self.acknowledged = 0
        self.statuses: Counter[int] = Counter()
        self.cut = 0  # connections that ended without an answer
        self.ending = threading.Event()
        self._connection = proxy.connect(f"127.0.0.{number}")
        self._make: Callable[[int], bytes] = lambda i: envelope_of(
            campaign, plan, [token_of(i, f"device-{number}-")]
        )
        self._campaign = campaign

    def run(self) -> None:
        with closing(self._connection):
            while not self.ending.is_set():
                body = self._make(self.acknowledged)
                while not self._sent(body):
                    time.sleep(0.05)
                self.acknowledged += 1

    def _sent(self, body: bytes) -> bool:
        try:
            status, _, _ = upload(self._connection, self._campaign, body)
        except (OSError, http.client.HTTPException):
            self.cut += 1
            self._connection.close()
            return False
        self.statuses[status] += 1
        return status in (200, 201)


def test_a_rolling_restart_loses_nothing_and_shows_no_gateway_error(
    stack: ExitStack, cluster: Cluster, tmp_path: Path
) -> None:
    store, ports = cluster.fresh(), (free_port(), free_port())
    servers = [stack.enter_context(ServerProcess(store, port=port)) for port in ports]
    proxy, operator = open_proxy(stack, tmp_path, ports), Caller(servers[0].url)
    campaign = operator.create()
    plan = plan_of(operator.announcement(campaign))
    uploaders = [Uploader(proxy, campaign, plan, number) for number in range(1, 5)]
    for uploader in uploaders:
        uploader.start()
    for _ in range(2):  # one after the other, twice, at once after a collector is back
        for place, port in enumerate(ports):
            before = sum(uploader.acknowledged for uploader in uploaders)
            status, errors = servers[place].terminate()
            assert status == 0, errors
            servers[place] = stack.enter_context(ServerProcess(store, port=port))
            until(lambda: sum(u.acknowledged for u in uploaders) > before + 20)  # noqa: B023
    for uploader in uploaders:
        uploader.ending.set()
    for uploader in uploaders:
        uploader.join(20)
        assert not uploader.is_alive()
    statuses = sum((uploader.statuses for uploader in uploaders), Counter())
    # A fast machine meets the limit of requests; devices try again after it, too.
    assert set(statuses) <= {200, 201, 429, 503}, statuses
    assert sum(uploader.cut for uploader in uploaders) == 0
    acknowledged = sum(uploader.acknowledged for uploader in uploaders)
    assert Caller(servers[0].url).status(campaign)["rounds"][0]["reports"] == acknowledged > 100


def client_hello(context: ssl.SSLContext) -> bytes:
    """The first bytes of a TLS client."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


def test_damaged_connections_write_no_address(
    alone: tuple[Proxy, Caller], stack: ExitStack
) -> None:
    proxy, _ = alone
    randomness = random.Random(5)  # noqa: S311 - damage, not noise
    hello = client_hello(proxy.context)
    for number in range(400):
        damaged = bytearray(hello)
        for _ in range(1 + number % 3):
            damaged[randomness.randrange(len(damaged))] = randomness.randrange(256)
        sent = (bytes(damaged), bytes(damaged[: 5 + number]), b"GET / HTTP/1.0\r\n\r\n")[number % 3]
        with socket.create_connection(("127.0.0.1", proxy.port), 5) as connection:
            connection.sendall(sent)
            if number % 2:
                connection.shutdown(socket.SHUT_WR)
                connection.settimeout(0.2)
                try:
                    connection.recv(4096)
                except OSError:
                    continue  # reset, or nothing is said to half a hello
    connection = stack.enter_context(closing(proxy.connect()))
    connection.request("GET", "/v1/campaigns/" + 40 * "x", headers={"cookie": "a" * 30_000})
    assert connection.getresponse().status == 400
    connection = stack.enter_context(closing(proxy.connect()))
    connection.request("GET", "/v1/campaigns/" + 32 * "0")
    assert connection.getresponse().status == 404, "it still serves"
    assert proxy.messages() == ""


def test_a_quiet_event_stream_stays_open_beyond_its_heartbeat(
    alone: tuple[Proxy, Caller], stack: ExitStack
) -> None:
    proxy, operator = alone
    campaign = operator.create()
    connection = stack.enter_context(closing(proxy.connect()))
    connection.request(
        "GET", f"/v1/campaigns/{campaign}/events", headers={"authorization": f"Bearer {KEY}"}
    )
    answer = connection.getresponse()
    assert answer.status == 200
    begun, lines = time.monotonic(), []
    while time.monotonic() < begun + 60:
        lines.append(answer.fp.readline())
        assert lines[-1], f"the stream was cut after {time.monotonic() - begun:.0f} s: {lines}"
        if lines[-1].startswith(b":"):
            break
    assert time.monotonic() - begun > 15, "a quiet stream was to be tested"
    body = envelope_of(campaign, plan_of(operator.announcement(campaign)), [token_of(1)])
    assert operator.upload(campaign, body).status == 201
    while b'"reports":1' not in (line := answer.fp.readline()).replace(b" ", b""):
        assert line, "the stream was cut before the event"


def refused(proxy: Proxy, count: int, source: str) -> list[tuple[int, dict[str, str], bytes]]:
    """The answers to many requests from one address that are not 404."""
    out = []
    with closing(proxy.connect(source)) as connection:
        for _ in range(count):
            connection.request("GET", "/v1/campaigns/" + 32 * "0")
            answer = connection.getresponse()
            headers = {name.lower(): value for name, value in answer.getheaders()}
            body = answer.read()
            if answer.status != 404:
                out.append((answer.status, headers, body))
    return out


def test_one_address_cannot_take_all_requests(alone: tuple[Proxy, Caller]) -> None:
    proxy, _ = alone
    answers = refused(proxy, 1200, "127.0.0.1")
    assert {status for status, _, _ in answers} == {429}
    assert len(answers) > 50, "50 a second and 500 at once pass"
    for _, headers, body in answers:
        assert headers["retry-after"] == "5"
        assert headers["content-type"] == "application/problem+json"
        assert headers["access-control-allow-origin"] == "*"
        assert "strict-transport-security" in headers
        assert json.loads(body)["type"] == "urn:dither:problem:overloaded"
    assert refused(proxy, 20, "127.0.0.2") == []
    assert proxy.messages() == ""


def test_one_address_cannot_take_all_connections(
    alone: tuple[Proxy, Caller], stack: ExitStack
) -> None:
    proxy, _ = alone
    head = b"POST /v1/campaigns/%s/reports HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n" % (
        32 * b"0"
    )
    waiting: list[ssl.SSLSocket] = []
    for _ in range(203):
        plain = socket.create_connection(("127.0.0.1", proxy.port), 5)
        connection = stack.enter_context(
            proxy.context.wrap_socket(plain, server_hostname="127.0.0.1")
        )
        connection.sendall(head)
        waiting.append(connection)
    answered: list[bytes] = []

    def look() -> int:
        for connection in tuple(waiting):
            connection.setblocking(False)
            try:
                answered.append(connection.recv(64).split(b" ")[1])
            except ssl.SSLWantReadError:
                continue
            waiting.remove(connection)
        return len(answered)

    until(lambda: look() >= 3)
    time.sleep(0.2)
    look()
    assert answered == 3 * [b"429"]
    assert refused(proxy, 5, "127.0.0.2") == []


def test_a_new_certificate_is_served_after_a_reload(
    alone: tuple[Proxy, Caller], stack: ExitStack
) -> None:
    proxy, operator = alone
    campaign = operator.create()
    body = envelope_of(campaign, plan_of(operator.announcement(campaign)), [token_of(1)])
    begun = stack.enter_context(closing(proxy.connect()))
    begun.putrequest("POST", f"/v1/campaigns/{campaign}/reports")
    begun.putheader("content-type", REPORTS_TYPE)
    begun.putheader("content-length", str(len(body)))
    begun.endheaders(body[:9])
    serial = write_certificate(proxy.folder)  # in place, as the page says
    proxy.reload()
    context = proxy.trusting()

    def serves_new() -> bool:
        with socket.create_connection(("127.0.0.1", proxy.port), 5) as plain:
            try:
                with context.wrap_socket(plain, server_hostname="127.0.0.1") as connection:
                    certificate = connection.getpeercert()
            except ssl.SSLCertVerificationError:
                return False
        assert certificate is not None
        return int(certificate["serialNumber"], 16) == serial  # type: ignore[arg-type]

    until(serves_new)
    assert serial != proxy.serial
    begun.send(body[9:])
    assert begun.getresponse().status == 201, "what had begun goes on"
