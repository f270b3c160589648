"""Deleting a campaign: nothing of it is left but what operators did, others are untouched, and an open one is refused."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from collector_harness import KEY, SCHEMA, ServerThread, describe, token_of

from dither import cli
from dither.collector import (
    Batch,
    Campaigns,
    Move,
    NoCampaign,
    Outcome,
    Problem,
    Publications,
    Questions,
    Row,
    SqliteStore,
    State,
    Store,
)
from dither.errors import StateError

Opening = Callable[[], Store]
SECRET = b"\xd1th\xe9r-to-be-forgotten"


def archive_of(manifest: str) -> bytes:
    """A release's folder as a zip file, as far as these tests read it."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("release.json", manifest)
    return out.getvalue()


def filled(store: Store, count: int = 40) -> tuple[Campaigns, str, str]:
    """Two campaigns with tokens and reports; of the first no report is taken any more."""
    campaigns = Campaigns(store)
    gone, kept = (campaigns.create(describe(participation="tokens")).stored.id for _ in range(2))
    for campaign in (gone, kept):
        hashes = [token_of(i, campaign) for i in range(count)]
        store.add_tokens(campaign, hashes)
        rows = [Row(token_of(i, "id" + campaign), 0, SECRET) for i in range(count)]
        assert store.add_reports([Batch(campaign, 0, rows, hashes)]) == [[Outcome.STORED] * count]
    campaigns.close_round(gone, 0, hold=True)
    return campaigns, gone, kept


def test_nothing_is_left_but_the_audit_log_and_the_other_campaign(open_store: Opening) -> None:
    store = open_store()
    campaigns, gone, kept = filled(store)
    before = store.campaign(kept), store.rounds(kept), store.count(kept, 0)
    campaigns.delete(gone)
    assert campaigns.ids() == [kept]
    for look in (campaigns.get, campaigns.current, campaigns.delete):
        with pytest.raises(NoCampaign):
            look(gone)
    assert (store.campaign(gone), store.rounds(gone)) == (None, [])
    assert (store.campaign(kept), store.rounds(kept), store.count(kept, 0)) == before
    late = Batch(gone, 0, [Row(token_of(99), 0, SECRET)], [token_of(0, gone)])
    assert store.add_reports([late]) == [[Outcome.ROUND_CLOSED]]
    assert next((entry.what, entry.campaign) for entry in store.audit.entries(campaign=gone)) == (
        "delete",
        gone,
    )
    with pytest.raises(StateError, match="was deleted"):  # while more tokens were being issued
        store.add_tokens(gone, [token_of(7)])
    again = campaigns.create(
        describe()
    ).stored.id  # also where the database gives its number out again
    assert store.count(again, 0) == 0
    assert open_store().campaign(gone) is None


def test_an_open_campaign_and_one_that_was_moved_are_left_alone(open_store: Opening) -> None:
    store = open_store()
    campaigns, gone, kept = filled(store)
    with pytest.raises(StateError, match=r"is open and takes reports; hold it first"):
        campaigns.delete(kept)
    stored = store.campaign(gone)
    assert stored is not None
    assert not store.delete(gone, stored.moves - 1)
    assert not store.delete("00" * 16, 0)
    assert store.count(gone, 0) == store.count(kept, 0) == 40


def test_another_collector_forgets_it(open_store: Opening) -> None:
    store = open_store()
    campaigns, gone, kept = filled(store)
    other = Campaigns(store)
    assert other.ids() == sorted([gone, kept])
    campaigns.delete(gone)
    other.refresh_all()
    assert other.ids() == [kept]


def test_a_deleted_release_is_not_read_from_memory(open_store: Opening) -> None:
    store = open_store()
    campaigns, gone, _ = filled(store)
    reading = Publications(store.publications, Questions())
    assert not store.publications.is_finalised(gone)
    closing = store.campaign(gone)
    assert closing is not None
    assert store.move(Move(gone, closing.state, 0, State.FINALISED, 0, release=archive_of("first")))
    found = reading.find(gone, everything=True)
    assert reading.manifest(found) == b"first"  # kept from here on
    campaigns.refresh(gone)
    campaigns.delete(gone)
    with pytest.raises(Problem, match="no such release"):
        reading.find(gone, everything=True)


class Meanwhile(Questions):
    """Makes replicates while somebody else does something."""

    def __init__(self, meanwhile: Callable[[], object]) -> None:
        super().__init__()
        self.meanwhile = meanwhile

    def with_replicates(self, digest: str, data: bytes) -> bytes:
        self.meanwhile()
        return data + b"with replicates"


def test_a_release_that_was_published_or_deleted_meanwhile_is_left_so(open_store: Opening) -> None:
    store = open_store()
    campaigns, gone, _ = filled(store)
    closing = store.campaign(gone)
    assert closing is not None
    assert store.move(Move(gone, closing.state, 0, State.FINALISED, 0, release=archive_of("first")))
    campaigns.refresh(gone)
    first = Publications(
        store.publications, Meanwhile(lambda: store.publications.publish(gone, "5e1f", b"other"))
    )
    assert first.publish(gone).digest == "5e1f"
    assert store.publications.release(gone) == b"other"
    with store._write(5) as connection:  # type: ignore[attr-defined]
        connection.execute(sa.text("DELETE FROM publications"))
    late = Publications(store.publications, Meanwhile(lambda: campaigns.delete(gone)))
    with pytest.raises(StateError, match="was deleted"):
        late.publish(gone)
    assert store.publications.find(gone) is None


def test_the_file_holds_none_of_its_reports(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "collector.db")
    campaigns = Campaigns(store)
    campaign = campaigns.create(describe()).stored.id
    store.add_reports([Batch(campaign, 0, [Row(token_of(i), 0, SECRET) for i in range(500)], None)])
    campaigns.close_round(campaign, 0, hold=True)
    held = lambda: sum(path.read_bytes().count(SECRET) for path in tmp_path.iterdir())  # noqa: E731
    assert held() >= 500
    campaigns.delete(campaign)
    assert held() == 0
    store.close()


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "schema.json").write_text(json.dumps(SCHEMA.to_json()))
    (tmp_path / "dither-admin.key").write_text(KEY + "\n")
    running = ServerThread(SqliteStore(tmp_path / "collector.db"))
    monkeypatch.setenv("DITHER_URL", running.url)
    yield tmp_path
    running.stop()


def say(capsys: pytest.CaptureFixture[str], *words: str, status: int = 0) -> str:
    assert cli.run(["campaign", *words]) == status, capsys.readouterr()
    shown = capsys.readouterr()
    return (shown.err if status else shown.out).strip()


NEW = (
    "create",
    "--schema",
    "schema.json",
    "--epsilon",
    "2",
    "--participants",
    "9",
    "--method",
    "independent",
)


def test_delete_asks_first(
    shell: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    campaign = say(capsys, *NEW, "--name", "mine", "--draft")
    assert "use --yes" in say(capsys, "delete", campaign, status=2)
    answers = iter("ny")
    asked: list[str] = []
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr(
        "typer.confirm", lambda question, err: asked.append(question) or next(answers) == "y"
    )
    assert "nothing was deleted" in say(capsys, "delete", campaign, status=1)
    assert campaign in say(capsys, "status")
    assert say(capsys, "delete", campaign) == f"{campaign} is deleted"
    assert asked == [f"Delete {campaign} 'mine' (draft, 0 reports) for good?"] * 2
    assert "there is no campaign" in say(capsys, "delete", campaign, "--yes", status=2)


def test_an_open_campaign_is_held_before_it_is_deleted(
    shell: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    campaign = say(capsys, *NEW)
    assert "close-round --hold" in say(capsys, "delete", campaign, "--yes", status=2)
    say(capsys, "close-round", campaign, "--hold")
    assert say(capsys, "delete", campaign, "--yes") == f"{campaign} is deleted"
    assert say(capsys, "status") == ""


def test_further_tokens_go_to_a_new_file(shell: Path, capsys: pytest.CaptureFixture[str]) -> None:
    campaign = say(capsys, *NEW, "--tokens", "3", "--tokens-file", "first.txt")
    say(capsys, "tokens", campaign, "--count", "5", "-o", "second.txt")
    first, second = ((shell / name).read_text().split() for name in ("first.txt", "second.txt"))
    assert (len(first), len(second), len({*first, *second})) == (3, 5, 8)
    assert (shell / "second.txt").stat().st_mode & 0o777 == 0o600
    assert "name another file" in say(
        capsys, "tokens", campaign, "--count", "5", "-o", "second.txt", status=2
    )
    assert (shell / "second.txt").read_text().split() == second
    everybody = say(capsys, *NEW)
    assert "needs no tokens" in say(
        capsys, "tokens", everybody, "--count", "5", "-o", "third.txt", status=2
    )
    assert not (shell / "third.txt").exists()
    assert State.OPEN in say(capsys, "status", campaign)
