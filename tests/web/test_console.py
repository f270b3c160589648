"""The console by its forms: who may see and change what, and that nothing typed ever becomes a part of a page."""

from __future__ import annotations

import html
import json
import re
import socket
from typing import Any

import pytest
from collector_harness import (
    KEY,
    SCHEMA,
    Caller,
    ServerThread,
    envelope_of,
    plan_of,
    seeded_source,
    token_of,
    until,
)
from web_harness import Seen, Visitor

from dither.client import read_announcement
from dither.collector import Collector, add_pages, limits, make_app
from dither.collector.drafts import Draft
from dither.collector.pages.campaign_form import CampaignForm
from dither.collector.pages.progress import Rates, arrivals_chart
from dither.collector.pages.schema_form import read_cards, show_schema
from dither.reports import Envelope, Plan, Report, encode, pick, plan_from_json
from dither.schema import schema_from_json

HOSTILE = '"><script>alert(1)</script><img src=x onerror=alert(2)>{{7*7}}'
PAGES = ("/console", "/console/new", "/console/keys", "/console/audit", "/console/live")


@pytest.fixture(scope="module")
def curator(running: ServerThread) -> Visitor:
    return signed_in(running, KEY)


def signed_in(running: ServerThread, key: str) -> Visitor:
    visitor = Visitor(running.url)
    answer = visitor.post("/console/sign-in", {"key": key, "wanted": "/console"})
    assert answer.status == 303, answer.text
    assert answer.headers["location"] == "/console"
    return visitor


def token(visitor: Visitor) -> str:
    found = re.search(r'name="csrf" value="([0-9a-f]+)"', visitor.get("/console/keys").text)
    assert found is not None
    return found[1]


def send(visitor: Visitor, path: str, **fields: object) -> Seen:
    return visitor.post(path, {"csrf": token(visitor), **fields})


def cards(**more: object) -> dict[str, object]:
    return {
        "title": "Made in a form",
        "epsilon": "2",
        "participants": "1000",
        "method": "independent",
        "participation": "open",
        "a0-kind": "categorical",
        "a0-name": "colour",
        "a0-values": "red | Rot\nblue | Blau",
        "a1-kind": "numeric",
        "a1-name": "age",
        "a1-low": "0",
        "a1-high": "100",
        "a1-bins": "5",
        "a1-unit": "1",
        **more,
    }


def create(visitor: Visitor, do: str = "open", **more: object) -> str:
    answer = send(visitor, "/console/new", do=do, **cards(**more))
    assert answer.status == 303, html.unescape(answer.text)
    return answer.headers["location"].split("/")[-1].partition("?")[0]


def test_strangers_see_nothing_and_are_asked_for_a_key(running: ServerThread) -> None:
    stranger = Visitor(running.url)
    for path in (
        *PAGES,
        "/console/c/" + "0" * 32,
        "/console/c/x/ask/close-round",
        "/console/c/x/release.zip",
    ):
        answer = stranger.get(path)
        assert answer.status == 401
        assert "Sign in" in answer.text
        assert "Sign out" not in answer.text
    for path in (
        "/console/new",
        "/console/plan",
        "/console/keys",
        "/console/c/x/do/open",
        "/console/c/x/tokens",
    ):
        assert stranger.post(path, {"csrf": "0" * 64}).status == 401
    refused = stranger.post("/console/sign-in", {"key": "guess-" + "x" * 20, "wanted": "/console"})
    assert refused.status == 403
    assert "not a key" in refused.text
    assert not stranger.cookies


def test_signing_in_leads_to_the_console_and_nowhere_else(running: ServerThread) -> None:
    for wanted in (
        "https://evil.example/",
        "//evil.example/console",
        "/console/../../x",
        "/console\r\nx: y",
        "javascript:1",
    ):
        visitor = Visitor(running.url)
        answer = visitor.post("/console/sign-in", {"key": KEY, "wanted": wanted})
        assert answer.headers["location"] == "/console"
    visitor = signed_in(running, KEY)
    assert send(visitor, "/console/sign-out").status == 303
    assert visitor.get("/console").status == 401


def test_forms_of_other_sites_and_without_their_token_change_nothing(
    running: ServerThread, curator: Visitor
) -> None:
    before = running.collector.campaigns.ids()
    for csrf in ("", "0" * 64, token(signed_in(running, KEY))):
        assert curator.post("/console/new", {**cards(), "do": "open", "csrf": csrf}).status == 403
    good = {**cards(), "do": "open", "csrf": token(curator)}
    for headers in (
        {"origin": "https://evil.example"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"origin": "null"},
    ):
        assert curator.post("/console/new", good, headers=headers).status == 403
    assert running.collector.campaigns.ids() == before
    own = {"origin": running.url, "sec-fetch-site": "same-origin"}
    assert curator.post("/console/new", good, headers=own).status == 303


@pytest.mark.parametrize(
    ("host", "secure", "name"),
    [
        ("127.0.0.1:8700", False, "dither-session"),
        ("localhost", False, "dither-session"),
        ("[::1]:8700", False, "dither-session"),
        ("survey.example", True, "__Host-dither-session"),
        ("127.0.0.1.evil.example", True, "__Host-dither-session"),
        ("10.0.0.7", True, "__Host-dither-session"),
    ],
)
def test_a_cookie_is_out_of_reach_of_scripts_other_sites_and_listeners(
    running: ServerThread, host: str, secure: bool, name: str
) -> None:
    visitor = Visitor(running.url)
    answer = visitor.post("/console/sign-in", {"key": KEY}, {"host": host})
    cookie = answer.headers["set-cookie"].lower()
    assert cookie.startswith(f"{name}=".lower())
    parts = {part.strip() for part in cookie.split(";")}
    assert {"httponly", "samesite=strict", "path=/"} <= parts
    assert ("secure" in parts) is secure
    assert "domain" not in cookie
    left = visitor.post("/console/sign-out", {}, {"host": host})
    assert "max-age=0" in left.headers["set-cookie"].lower()


def test_no_form_is_taken_without_its_token(running: ServerThread, curator: Visitor) -> None:
    """Every address that takes a form, as the routers themselves list them."""
    taking: set[str] = set()

    def add_and_list(app: Any, collector: Collector) -> None:
        include = app.include_router

        def listing(router: Any) -> None:
            taking.update(route.path for route in router.routes if "POST" in route.methods)
            include(router)

        app.include_router = listing
        add_pages(app, collector)

    make_app(running.collector, KEY, add_and_list)
    assert len(taking) >= 9
    campaign = create(curator)
    for path in taking - {"/console/sign-in", "/console/sign-out"}:
        address = path.format(
            campaign=campaign, action="close-round", name="operator", draft="0" * 32
        )
        for csrf in ("", "0" * 64):
            refused = curator.post(
                address, {**cards(), "sure": "yes", "do": "open", "count": "1", "csrf": csrf}
            )
            assert refused.status == 403, path
    kept = signed_in(running, KEY)
    kept.post("/console/sign-out", {}, {"origin": "https://evil.example"})
    assert kept.get("/console").status == 200
    assert running.collector.campaigns.get(campaign).stored.state.value == "open"


def test_readers_see_everything_and_change_nothing(running: ServerThread, curator: Visitor) -> None:
    campaign = create(curator)
    made = send(curator, "/console/keys", name="eyes", role="reader")
    found = re.search(r'id="made">([\w-]+)<', made.text)
    assert found is not None
    reader = signed_in(running, found[1])
    for path in (*PAGES, f"/console/c/{campaign}", f"/console/c/{campaign}/live"):
        assert reader.get(path).status == 200
    page = reader.get(f"/console/c/{campaign}").text
    assert "may only read" in page
    assert "/ask/close-round" not in page
    for path in (
        "/console/new",
        "/console/keys",
        f"/console/c/{campaign}/do/close-round",
        "/console/keys/revoke/operator",
    ):
        answer = send(
            reader, path, do="open", sure="yes", round="0", name="mine", role="curator", **cards()
        )
        assert answer.status == 403
    assert reader.get(f"/console/c/{campaign}/ask/close-round").status == 404
    assert running.collector.campaigns.get(campaign).stored.state.value == "open"
    assert send(curator, "/console/keys/revoke/eyes").status == 303
    assert reader.get("/console").status == 401


def test_a_campaign_from_the_form_is_the_one_that_was_typed(
    running: ServerThread, curator: Visitor
) -> None:
    campaign = create(curator, do="draft", closes="2099-01-31", contact="ask@example.org")
    live = running.collector.campaigns.get(campaign)
    assert live.stored.state.value == "draft"
    assert live.spec.closes == "2099-01-31"
    assert live.spec.schema["colour"].captions == ("Rot", "Blau")
    assert live.spec.schema["age"].edges == (0, 20, 40, 60, 80, 100)
    assert live.spec.schema["age"].unit == 1
    entry = running.collector.store.audit.entries(campaign, None, 10)[-1]
    assert (entry.who, entry.what) == ("operator", "create")
    assert send(curator, f"/console/c/{campaign}/do/open").status == 303
    assert running.collector.campaigns.get(campaign).stored.state.value == "open"


def test_what_is_wrong_is_said_and_nothing_typed_is_lost(
    running: ServerThread, curator: Visitor
) -> None:
    before = running.collector.campaigns.ids()
    for more, said in (
        ({"a1-low": "ten"}, "is not a number"),
        ({"a0-values": "only one"}, "one possible value"),
        ({"epsilon": "-1"}, "epsilon"),
        ({"participants": "many"}, "participants"),
        ({"a0-name": ""}, "no short name"),
        ({"a0-kind": "json", "a0-json": "{]"}, "cannot be read"),
        ({"closes": "yesterday"}, "closes"),
    ):
        answer = send(curator, "/console/new", do="open", **cards(**more))
        assert answer.status == 422, more
        assert said in html.unescape(answer.text)
        assert "Made in a form" in answer.text
    assert running.collector.campaigns.ids() == before


@pytest.mark.parametrize("bins", ["inf", "nan", "1e400", "9" * 400, "4.7", "-1", "0", "many"])
def test_a_number_of_bins_that_is_none_is_said_to_be(curator: Visitor, bins: str) -> None:
    answer = send(curator, "/console/new", do="open", **cards(**{"a1-bins": bins}))
    assert answer.status == 422
    assert re.search(r'role="alert"><p>[^<]*&#39;age&#39;', answer.text)


def test_a_stranger_cannot_leave_a_form_half_sent(
    running: ServerThread, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    half = (
        b"POST /console/sign-in HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000\r\n"
        b"Content-Type: application/x-www-form-urlencoded\r\n\r\nkey=a"
    )
    address = ("127.0.0.1", int(running.url.rpartition(":")[2]))
    with socket.create_connection(address, timeout=30) as gone:
        gone.sendall(half)
        until(lambda: bool(running.server.server_state.tasks))
    until(lambda: not running.server.server_state.tasks)
    assert [record.getMessage() for record in caplog.records] == []
    monkeypatch.setattr(limits, "BODY_SECONDS", 0.2)
    with socket.create_connection(address, timeout=30) as slow:
        slow.sendall(half)
        assert slow.recv(100).startswith(b"HTTP/1.1 408")


def test_cards_are_added_and_removed_without_script(curator: Visitor) -> None:
    def names(do: str) -> list[str]:
        answer = send(curator, "/console/new", do=do, **cards())
        assert answer.status == 303
        page = curator.get(answer.headers["location"]).text.partition("<form method")[2]
        return re.findall(r'id="a\d-name" name="a\d-name" value="(\w*)"', page)

    assert names("add-a") == ["colour", "age", ""]
    assert names("up-a1") == names("down-a0") == ["age", "colour"]
    assert names("copy-a0") == ["colour", "colour", "age"]
    assert names("remove-a0") == ["age"]
    for odd in ("remove-a7", "remove-a²", "up-a0", "explode"):
        assert names(odd) == ["colour", "age"]


def drafts_of(running: ServerThread) -> dict[str, Draft]:
    table = running.collector.store.drafts
    found = [table.find(draft.id) for draft in table.all()]
    return {draft.id: draft for draft in found if draft is not None}


def save(visitor: Visitor, draft: str, version: int, **fields: object) -> dict[str, Any]:
    sent = {"csrf": token(visitor), "version": version, **fields}
    answer = visitor.post(f"/console/drafts/{draft}", sent, {"accept": "application/json"})
    assert answer.status == 200, answer.text
    saved: dict[str, Any] = json.loads(answer.body)
    return saved


def test_a_draft_is_kept_as_typed_and_nobody_overwrites_another(
    running: ServerThread, curator: Visitor
) -> None:
    draft = "ab" * 16
    lines = "Why we ask.\r\n\r\nWhat becomes of it."
    typed = cards(purpose=lines, **{"a1-low": "not a number yet"})
    assert save(curator, draft, 0, **typed) == {"draft": draft, "version": 1, "copied": False}
    page = html.unescape(curator.get(f"/console/drafts/{draft}").text)
    assert "Why we ask.\n\nWhat becomes of it." in page
    assert "not a number yet" in page
    other = signed_in(running, KEY)
    assert save(other, draft, 1, **cards(title="Theirs"))["version"] == 2
    mine = save(curator, draft, 1, **cards(title="Mine"))
    assert mine["copied"]
    titles = {each: kept.title for each, kept in drafts_of(running).items()}
    assert titles[draft] == "Theirs"
    assert titles[mine["draft"]] == "Mine"
    listed = curator.get("/console").text
    assert f"/console/drafts/{draft}" in listed
    assert send(curator, f"/console/drafts/{draft}/delete").status == 303
    assert draft not in drafts_of(running)
    again = save(curator, draft, 2, **cards(title="Late"))
    assert again["copied"], "what was typed into a deleted draft goes on as another one"


def test_a_draft_becomes_a_campaign_with_a_purpose_of_several_lines(
    running: ServerThread, curator: Visitor
) -> None:
    draft = "ac" * 16
    save(curator, draft, 0, **cards())
    answer = send(
        curator,
        f"/console/drafts/{draft}",
        version="1",
        do="open",
        **cards(purpose="One.\r\nTwo."),
    )
    assert answer.status == 303
    campaign = answer.headers["location"].split("/")[-1].partition("?")[0]
    assert running.collector.campaigns.get(campaign).spec.purpose == "One.\nTwo."
    assert draft not in drafts_of(running)
    page = curator.get(f"/c/{campaign}").text
    assert "One." in page
    assert "Two." in page


def test_a_campaign_and_a_draft_can_be_duplicated(running: ServerThread, curator: Visitor) -> None:
    campaign = create(curator, purpose="Why.\nHow.", contact="ask@example.org")
    made = send(curator, f"/console/c/{campaign}/copy").headers["location"].split("/")[-1]
    copy = drafts_of(running)[made]
    assert copy.title == "Copy of Made in a form"
    asked = CampaignForm.read(lambda name: copy.fields.get(name, "")).spec()
    spec = running.collector.campaigns.get(campaign).spec
    assert asked.schema == spec.schema
    assert (asked.purpose, asked.contact, asked.epsilon) == (spec.purpose, spec.contact, 2.0)
    twice = send(curator, f"/console/drafts/{made}/copy").headers["location"].split("/")[-1]
    assert drafts_of(running)[twice].fields["a0-values"] == "red | Rot\nblue | Blau"


def test_a_form_has_a_language_and_a_time_after_which_answers_go(
    running: ServerThread, curator: Visitor
) -> None:
    made = create(curator, language="de", delete_reports_after="30")
    spec = running.collector.campaigns.get(made).spec
    assert (spec.language, spec.delete_reports_after) == ("de", 30)
    page = Visitor(running.url).get(f"/c/{made}").text
    assert 'lang="de"' in page
    assert "Beginnen" in page
    copied = send(curator, f"/console/c/{made}/copy")
    fields = drafts_of(running)[copied.headers["location"].split("/")[-1]].fields
    assert (fields["language"], fields["delete_reports_after"]) == ("de", "30")
    form = curator.get(copied.headers["location"]).text
    assert '<option value="de" lang="de" selected>Deutsch</option>' in form
    for more in ({"language": "xx"}, {"delete_reports_after": "1.5"}):
        answer = send(curator, "/console/new", do="open", **cards(**more))
        assert answer.status == 422
        assert next(iter(more)) in answer.text


def sent_by(campaign: str, plan: Plan) -> bytes:
    """A valid report of the first question of a plan."""
    held, ticket = bytes.fromhex(campaign), token_of(1)
    number = pick(ticket, held, plan)
    payload = plan.questions[number].mechanism.randomise(0, seeded_source("preview"))
    return encode(Envelope(held, plan.round, (Report(ticket, number, payload),)))


def test_a_preview_is_for_operators_and_nothing_can_be_sent_to_it(
    running: ServerThread, curator: Visitor
) -> None:
    draft = "ad" * 16
    save(curator, draft, 0, **cards(participation="tokens"))
    page = curator.get(f"/console/drafts/{draft}/preview")
    assert page.status == 200
    assert "This is a preview" in page.text
    announced = curator.get(f"/console/drafts/{draft}/announcement")
    read_announcement(announced.body)
    for path in ("preview", "announcement"):
        assert Visitor(running.url).get(f"/console/drafts/{draft}/{path}").status == 401
    assert Visitor(running.url).get(f"/v1/campaigns/{draft}").status == 404
    caller = Caller(running.url)
    plan = plan_from_json(json.loads(announced.body)["plan"])
    refused = caller.upload(draft, sent_by(draft, plan))
    assert refused.status == 404
    link = create(curator, do="draft")
    shown = json.loads(curator.get(f"/console/c/{link}/announcement").body)
    plan = plan_from_json(shown["plan"])
    assert caller.upload(link, sent_by(link, plan)).status != 201
    assert running.collector.store.count(link, 0) == 0
    save(curator, "ae" * 16, 0, title="Nothing yet")
    assert "nothing to preview yet" in curator.get(f"/console/drafts/{'ae' * 16}/preview").text


def test_a_draft_outlives_the_session(running: ServerThread) -> None:
    draft = "af" * 16
    visitor = signed_in(running, KEY)
    fields = {"csrf": token(visitor), "version": 0, **cards()}
    assert send(visitor, "/console/sign-out").status == 303
    refused = visitor.post(f"/console/drafts/{draft}", fields)
    assert refused.status == 401
    assert f'name="wanted" value="/console/drafts/{draft}"' in refused.text
    back = visitor.post("/console/sign-in", {"key": KEY, "wanted": f"/console/drafts/{draft}"})
    assert back.headers["location"] == f"/console/drafts/{draft}"
    assert f'action="/console/drafts/{draft}"' in visitor.get(back.headers["location"]).text


NUMBER = {
    "title": "What we earn",
    "about": "number",
    "participants": "400",
    "epsilon": "2",
    "n-name": "pay",
    "n-question": "How much do you earn in a month?",
    "n-low": "0",
    "n-high": "6000",
    "n-unit": "1",
    "c0-name": "The town",
    "c0-bins": "3",
    "c1-name": "The union",
    "c1-edges": "0, 1000, 2000, 4000, 6000",
    "c1-epsilon": "1.5",
}


@pytest.mark.parametrize("figure", ["chp", "ranges", "mean"])
def test_a_campaign_about_one_number_is_made_in_the_form(
    running: ServerThread, curator: Visitor, figure: str
) -> None:
    answer = send(curator, "/console/new", do="open", figure=figure, **NUMBER)
    assert answer.status == 303, html.unescape(answer.text)
    campaign = answer.headers["location"].split("/")[-1].partition("?")[0]
    spec = running.collector.campaigns.get(campaign).spec
    (asked,) = spec.schema.attributes
    assert (spec.method, asked.name, asked.unit, asked.clip) == (figure, "pay", 1, True)
    assert (asked.edges[0], asked.edges[-1]) == (0, 6000)
    page = html.unescape(curator.get(f"/console/c/{campaign}").text)
    if figure != "mean":
        assert spec.consumers is not None
        assert [entry["name"] for entry in spec.consumers] == ["The town", "The union"]  # type: ignore[index]
        assert spec.consumers[1]["epsilon"] == 1.5  # type: ignore[index]
        assert "The union: 4 bins from 0 to 6,000" in page
    made = send(curator, f"/console/c/{campaign}/copy").headers["location"].split("/")[-1]
    fields = drafts_of(running)[made].fields
    copy = CampaignForm.read(lambda name: fields.get(name, "")).spec()
    assert (copy.schema, copy.method) == (spec.schema, spec.method)
    wrong = send(curator, "/console/new", do="open", figure=figure, **NUMBER | {"n-high": "-1"})
    assert wrong.status == 422
    assert "not below" in wrong.text


def test_danger_asks_twice_and_says_what_is_lost(running: ServerThread, curator: Visitor) -> None:
    campaign = create(curator)
    asked = send(curator, f"/console/c/{campaign}/do/close-round", round="0")
    assert asked.headers["location"] == f"/console/c/{campaign}/ask/close-round"
    page = curator.get(asked.headers["location"]).text
    assert "cannot be opened again" in page
    assert running.collector.campaigns.get(campaign).stored.state.value == "open"
    refused = send(curator, f"/console/c/{campaign}/do/close-round", round="0", sure="yes")
    assert refused.status == 409  # nobody has answered, so the method refuses and the page says why
    assert "answer" in refused.text
    assert send(curator, f"/console/c/{campaign}/do/explode", sure="yes").status == 404


def test_far_more_reports_than_expected_are_pointed_out(
    running: ServerThread, curator: Visitor
) -> None:
    caller = Caller(running.url)
    campaign = caller.create(participants=10, assignment="arrival")
    plan = plan_of(caller.announcement(campaign))
    sent = envelope_of(campaign, plan, [token_of(i, "excess") for i in range(60)])
    assert caller.upload(campaign, sent).status == 201
    until(lambda: "60 reports; 10 were expected" in curator.get(f"/console/c/{campaign}").text)


def test_tickets_are_downloaded_once_as_links(running: ServerThread, curator: Visitor) -> None:
    campaign = create(curator, participation="tokens")
    answer = send(curator, f"/console/c/{campaign}/tokens", count="3", **{"as": "links"})
    assert answer.headers["content-disposition"].startswith("attachment")
    lines = answer.text.split()
    assert len(set(lines)) == 3
    assert all(re.fullmatch(rf"{running.url}/c/{campaign}#[0-9a-f]{{64}}", line) for line in lines)
    assert send(curator, f"/console/c/{campaign}/tokens", count="0").status == 409


def test_nothing_typed_becomes_a_part_of_a_page(running: ServerThread, curator: Visitor) -> None:
    campaign = create(
        curator,
        **{
            "title": HOSTILE,
            "purpose": HOSTILE,
            "epsilon": "9",
            "weak": "yes",
            "epsilon_reason": HOSTILE,
            "contact": HOSTILE,
            "listed": "yes",
            "a0-name": HOSTILE,
            "a0-question": HOSTILE,
            "a0-help": HOSTILE,
            "a0-values": f"{HOSTILE} | {HOSTILE}\nother",
        },
    )
    wrong = send(
        curator,
        "/console/new",
        do="open",
        **cards(**{"a0-name": HOSTILE, "a1-low": HOSTILE, "title": HOSTILE}),
    )
    pages = [wrong] + [
        curator.get(path)
        for path in (
            *PAGES,
            "/",
            f"/c/{campaign}",
            f"/console/c/{campaign}",
            f"/console/c/{campaign}/ask/close-round",
        )
    ]
    for page in pages:
        assert "<script>alert" not in page.text
        assert "<img" not in page.text
        assert "{{7*7}}" in html.unescape(page.text) or HOSTILE not in html.unescape(page.text)
    words = re.search(
        r'<script type="application/json" id="words">(.*?)</script>', pages[7].text, re.S
    )
    assert words is not None
    assert json.loads(words[1])[HOSTILE]["question"] == HOSTILE


def test_weak_protection_is_said_and_above_8_participants_read_why(
    running: ServerThread, curator: Visitor
) -> None:
    weak, none_given = "is weak protection", "give no reason why it is no stronger"
    for epsilon, warned in (("4", False), ("5", True), ("8", True)):
        campaign = create(curator, epsilon=epsilon, weak="yes" if warned else "")
        assert (weak in curator.get(f"/console/c/{campaign}").text) == warned
        page = curator.get(f"/c/{campaign}").text
        assert ("Weak protection:" in page) == warned
        assert none_given not in page
    before = set(running.collector.campaigns.ids())
    for reason in ("", "   ", "\n"):
        for step in ("draft", "open"):
            refused = send(
                curator,
                "/console/new",
                do=step,
                **cards(epsilon="8.5", weak="yes", epsilon_reason=reason),
            )
            assert refused.status == 422
            assert "needs a reason that participants read" in refused.text
            assert 'value="8.5"' in refused.text, "what was typed is kept"
    assert (
        send(
            curator,
            "/console/new",
            do="open",
            **cards(epsilon="9", weak="yes", epsilon_reason="r" * 4001),
        ).status
        == 422
    )
    assert set(running.collector.campaigns.ids()) == before
    unconfirmed = send(curator, "/console/new", do="open", **cards(epsilon="4.5"))
    assert unconfirmed.status == 422
    assert "Confirm it among the terms" in unconfirmed.text
    assert set(running.collector.campaigns.ids()) == before
    campaign = create(
        curator, epsilon="9", weak="yes", epsilon_reason="Only forty people work here."
    )
    assert "Only forty people work here." in curator.get(f"/console/c/{campaign}").text
    page = curator.get(f"/c/{campaign}").text
    assert "Only forty people work here." in page
    assert "99.99 %" in html.unescape(page).replace("\u00a0", " ")
    unsaid = Caller(running.url).create(epsilon=9.0)  # the API leaves it to its caller
    assert none_given in curator.get(f"/c/{unsaid}").text


def test_a_listed_campaign_stands_on_the_first_page_while_it_is_open(
    running: ServerThread, curator: Visitor
) -> None:
    campaign = create(curator, title="Everybody may know of this", listed="yes")
    create(curator, title="Nobody may know of this")
    page = Visitor(running.url).get("/").text
    assert "Everybody may know of this" in page
    assert f"/c/{campaign}" in page
    assert "Nobody may know of this" not in page


def test_the_planner_says_whether_it_will_do(curator: Visitor) -> None:
    answer = send(curator, "/console/plan", **cards(participants="10000"))
    assert answer.status == 200
    assert "<html" not in answer.text
    assert "Enough: expect the share of one answer within ±" in answer.text
    few = send(curator, "/console/plan", **cards(participants="40")).text
    assert "Not enough: the share of one answer would be known only within ±" in few
    assert "<strong>Enough" not in few
    assert "will also show how answers go together" not in few
    wished = html.unescape(
        send(curator, "/console/plan", **cards(participants="10000", target="3")).text
    )
    found = re.search(r'data-set="epsilon=([\d.]+)"', wished)
    assert found is not None
    then = send(curator, "/console/plan", **cards(participants="10000", epsilon=found[1])).text
    width = re.search(r"within ± ([\d.]+) points", then)
    assert width is not None
    assert float(width[1]) <= 3.6, "what was worked out keeps its promise, within a fifth"
    assert "no short name" in send(curator, "/console/plan", **cards(**{"a0-name": ""})).text


@pytest.mark.slow
def test_the_way_to_a_release_goes_on_behind_the_page(
    running: ServerThread, curator: Visitor
) -> None:
    campaign = create(curator, participants="200")
    from collector_harness import asked_tokens, plan_of

    caller = Caller(running.url)
    plan = plan_of(caller.announcement(campaign))
    schema = running.collector.campaigns.get(campaign).spec.schema
    _answer_everybody(caller, campaign, plan, schema, asked_tokens(campaign, 0.0, plan, 200))
    live = curator.get(f"/console/c/{campaign}/live").text
    assert "200" in live
    assert "Error of the release" in live
    assert (
        send(curator, f"/console/c/{campaign}/do/close-round", round="0", sure="yes").status == 303
    )
    assert send(curator, f"/console/c/{campaign}/do/finalise", sure="yes", rows="50").status == 303
    until(
        lambda: running.collector.campaigns.current(campaign).stored.state.value == "finalised", 60
    )
    assert curator.get(f"/console/c/{campaign}/release.zip").body[:2] == b"PK"
    assert send(curator, f"/console/c/{campaign}/do/publish", sure="yes").status == 303
    until(lambda: running.collector.publications.is_public(campaign), 120)
    assert f"/releases/{campaign}" not in Visitor(running.url).get("/").text, "it was not listed"
    assert Visitor(running.url).get(f"/releases/{campaign}").status == 200
    assert (
        send(curator, f"/console/c/{campaign}/do/publish", sure="yes", listed="yes").status == 303
    )
    until(lambda: f"/releases/{campaign}" in Visitor(running.url).get("/").text)
    assert send(curator, f"/console/c/{campaign}/do/unpublish", sure="yes").status == 303
    assert not running.collector.publications.is_public(campaign)


def _answer_everybody(
    caller: Caller, campaign: str, plan: object, schema: object, tokens: list[bytes]
) -> None:
    from collector_harness import seeded_source

    from dither.reports import Envelope, Plan, Report, encode, pick
    from dither.schema import Schema

    assert isinstance(plan, Plan)
    assert isinstance(schema, Schema)
    held = bytes.fromhex(campaign)
    reports = []
    for each in tokens:
        number = pick(each, held, plan)
        question = plan.questions[number]
        cell = question.cell(schema, [0] * len(schema))
        reports.append(
            Report(each, number, question.mechanism.randomise(cell, seeded_source(each.hex())))
        )
    assert caller.upload(campaign, encode(Envelope(held, plan.round, tuple(reports)))).status == 201


def test_cards_say_every_schema_and_read_it_back() -> None:
    rich = schema_from_json(
        {
            "attributes": [
                {
                    "name": "a",
                    "kind": "categorical",
                    "values": ["x", "y | z", "w"],
                    "labels": ["X", "", "W"],
                },
                {"name": "b", "kind": "ordinal", "values": [1, 2, 3]},
                {"name": "c", "kind": "boolean", "missing": True, "question": "Really?"},
                {"name": "d", "kind": "numeric", "edges": [0, 1.5, 7], "atoms": [0], "unit": 0.5},
                {"name": "e", "kind": "numeric", "edges": [0, 10, 20], "unit": 1},
                {
                    "name": "f",
                    "kind": "date",
                    "min": "2020-01-01",
                    "max": "2021-12-31",
                    "by": ["month", "weekday"],
                },
                {
                    "name": "g",
                    "kind": "categorical",
                    "values": ["p", "q", "r"],
                    "groups": ["1", "1", "2"],
                },
            ],
            "dropped": {"id": "an identifier"},
        }
    )
    for schema in (rich, SCHEMA):
        shown = show_schema(schema)
        assert shown.schema() == schema
    fields = shown.fields()
    assert read_cards(lambda name: fields.get(name, "")) == shown


def test_arrivals_are_drawn_from_what_was_seen() -> None:
    now = 1_800_000_000.0
    rates = Rates(lambda: now)
    assert arrivals_chart(rates.arrivals("c"), 100) is None
    for i in range(2_000):
        rates.update("c", i)
        now += 60.0
    points = rates.arrivals("c")
    assert len(points) <= 400
    assert points[0] == (1_800_000_000.0, 0)
    assert points[-1][1] == 1_999
    assert points == sorted(points)
    assert "1,999 at" in str(arrivals_chart(points, 2_000))


def test_rates_are_of_the_last_hour() -> None:
    now = 0.0
    rates = Rates(lambda: now)
    assert rates.update("c", 0) is None
    now = 60.0
    assert rates.update("c", 120) == pytest.approx(120.0)
    now = 3650.0
    assert rates.update("c", 120) == pytest.approx(0.0)


@pytest.mark.slow
def test_a_schema_file_is_taken_as_it_is_and_a_table_gives_a_draft_with_a_warning(
    curator: Visitor,
) -> None:
    csrf = {"csrf": token(curator)}
    told = curator.upload(
        "/console/new/file", csrf, "s.json", json.dumps(SCHEMA.to_json()).encode()
    )
    assert told.status == 200
    assert 'value="colour"' in told.text
    assert "red\ngreen\nblue" in told.text
    assert "Read with care" not in told.text
    drafted = curator.upload(
        "/console/new/file", csrf, "t.csv", b"way,age\n" + b"foot,31\nbus,44\n" * 30
    )
    assert drafted.status == 200
    assert "Read with care" in drafted.text
    assert 'value="way"' in drafted.text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("s.json", b"{]"),
        ("s.json", b"[" * 100_000),
        ("t.csv", b""),
        ("t.csv", b"\xff\xfe\x00" * 50),
        ("t.parquet", b"PAR1" + b"x" * 100 + b"PAR1"),
        ("t.exe", b"MZ"),
        ("../../etc/passwd", b"root"),
    ],
)
def test_files_that_are_neither_are_refused_in_one_line(
    curator: Visitor, name: str, data: bytes
) -> None:
    answer = curator.upload("/console/new/file", {"csrf": token(curator)}, name, data)
    assert answer.status == 422
    fault = re.search(r'role="alert"><p>(.*?)</p>', answer.text)
    assert fault is not None
    assert "/tmp" not in fault[1]
    assert len(fault[1]) < 400
