"""The files in deploy/ are what they say: linted where a linter is at hand, and their very commands serve a campaign together."""

from __future__ import annotations

import codecs
import os
import re
import shlex
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import psycopg
import pytest

sys.path.insert(0, str(Path(__file__).parent / "collector"))

import collector_harness
from collector_harness import Caller, Cluster, envelope_of, free_port, plan_of, token_of

from dither.collector import admin_key, limits
from dither.errors import InputError

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "deploy"
UNIT = DEPLOY / "systemd" / "dither-collector@.service"
UNPRIVILEGED = 65534  # the user and group `nobody`


def compose_command() -> list[str]:
    """What the collectors of the compose file run."""
    text = (DEPLOY / "compose.yaml").read_text(encoding="utf-8")
    listed = re.search(r"collector-1:.*?\n    command:\n((?:      - [^\n]*\n)+)", text, re.DOTALL)
    assert listed is not None
    return [line.strip().removeprefix("- ").strip('"') for line in listed[1].splitlines()]


def unit_command(port: int) -> list[str]:
    """What systemd runs for a port, after the program's name."""
    settings = dict(
        line.split("=", 1)
        for line in (DEPLOY / "systemd" / "collector.env").read_text(encoding="utf-8").splitlines()
        if line and not line.startswith("#")
    )
    line = re.search(r"^ExecStart=(.*)$", UNIT.read_text(encoding="utf-8"), re.MULTILINE)
    assert line is not None
    words = re.sub(r"\$\{(\w+)\}", lambda m: settings[m[1]], line[1]).replace("%i", str(port))
    program, *arguments = shlex.split(words)
    assert program == "/opt/dither/bin/dither"
    return arguments


def image_command() -> list[str]:
    line = re.search(
        r"^CMD \[(.*)\]$", (DEPLOY / "Containerfile").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert line is not None
    return re.findall(r'"([^"]*)"', line[1])


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that other users may look into, unlike pytest's own."""
    with TemporaryDirectory(prefix="dither-deploy-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


def replaced(arguments: list[str], **values: str) -> list[str]:
    """The same command with other values for some of its options, which it must have."""
    out = list(arguments)
    for name, value in values.items():
        out[out.index(f"--{name.replace('_', '-')}") + 1] = value
    return out


def test_systemd_finds_nothing_wrong_with_the_unit(tmp_path: Path) -> None:
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("systemd-analyze is not installed")
    copy = tmp_path / UNIT.name.replace("@", "@8700")
    copy.write_text(UNIT.read_text(encoding="utf-8").replace("/opt/dither/bin/dither", "/bin/true"))
    done = subprocess.run(
        [program, "verify", str(copy)], capture_output=True, text=True, check=False, timeout=60
    )
    assert [line for line in done.stderr.splitlines() if copy.name in line] == []


def test_the_unit_can_change_nothing_in_its_configuration() -> None:
    lines = [
        line for line in UNIT.read_text(encoding="utf-8").splitlines() if not line.startswith("#")
    ]
    assert "ProtectSystem=strict" in lines, "or the whole of /etc is writable"
    assert "LoadCredential=admin.key:/etc/dither/admin.key" in lines
    writable = ("ReadWritePaths", "ConfigurationDirectory", "BindPaths", "PermissionsStartOnly")
    assert [line for line in lines if line.startswith(writable)] == []
    assert [line for line in lines if line.startswith("ExecStart") and "/etc/" in line] == []


@pytest.mark.skipif(
    os.name != "posix" or os.geteuid() != 0, reason="only root can give a file to another user"
)
@pytest.mark.parametrize("mode", [0o440, 0o444])
def test_a_collector_takes_a_key_that_it_may_read_and_not_change(
    open_folder: Path, mode: int
) -> None:
    """systemd and container engines hand over keys that another user owns."""
    key = open_folder / "admin.key"
    key.write_text("a key of more than sixteen characters\n")
    key.chmod(mode)
    os.chown(key, 0, UNPRIVILEGED)
    codecs.lookup("ascii")  # loaded while this process may still read the library
    os.setegid(UNPRIVILEGED)
    os.seteuid(UNPRIVILEGED)
    try:
        if mode & stat.S_IROTH:
            with pytest.raises(
                InputError, match=f"every user may read the admin key in {key}; chmod o-r {key}"
            ):
                admin_key(key)
        else:
            assert admin_key(key) == "a key of more than sixteen characters"
    finally:
        os.seteuid(0)
        os.setegid(0)
    assert stat.S_IMODE(key.stat().st_mode) == mode


def gibibytes(text: str) -> float:
    """A size as systemd and compose files write it."""
    number, unit = re.fullmatch(r"(\d+)([gGmM])", text).groups()  # type: ignore[union-attr]
    return int(number) / (1 if unit in "gG" else 1024)


def test_the_memory_limits_leave_room_for_the_bounded_process() -> None:
    bounded = limits.MEMORY_BYTES / (1 << 30)
    unit = UNIT.read_text(encoding="utf-8")
    settings = dict(line.split("=", 1) for line in unit.splitlines() if re.match(r"\w+=", line))
    collector_env = (DEPLOY / "systemd" / "collector.env").read_text(encoding="utf-8")
    workers = int(re.search(r"^DITHER_WORKERS=(\d+)$", collector_env, re.MULTILINE)[1])  # type: ignore[index]
    assert (
        workers + bounded
        < gibibytes(settings["MemoryHigh"])
        < gibibytes(settings["MemoryMax"])
        <= 16
    )
    assert settings["OOMPolicy"] == "continue", (
        "systemd would end the collector with the bounded process"
    )
    compose = (DEPLOY / "compose.yaml").read_text(encoding="utf-8")
    services = compose.partition("\nservices:\n")[2].partition("\nnetworks:\n")[0]
    parts = re.split(r"^  ([\w-]+):", services, flags=re.MULTILINE)[1:]
    memory = {}
    for name, text in zip(parts[::2], parts[1::2], strict=True):
        found = re.search(r"^    mem_limit: (\w+)$", text, re.MULTILINE)
        assert found is not None or "<<: *collector" in text, f"{name} has no memory limit"
        if found is not None:
            memory[name] = gibibytes(found[1])
    assert set(memory) == {"database", "collector-1", "proxy"}
    scratch = gibibytes(re.search(r"/tmp:size=(\w+)", compose)[1])  # type: ignore[index]
    processes = int(compose_command()[compose_command().index("--workers") + 1])
    assert processes + bounded + scratch <= memory["collector-1"] <= 16


def test_the_image_runs_as_nobody_special_and_fetches_nothing_when_it_runs() -> None:
    lines = (DEPLOY / "Containerfile").read_text(encoding="utf-8").splitlines()
    final = lines[max(i for i, line in enumerate(lines) if line.startswith("FROM")) :]
    assert any(re.fullmatch(r"USER [1-9]\d+:[1-9]\d+", line) for line in final)
    assert not any("pip install" in line or line.startswith("ADD") for line in final)
    known = {
        "FROM",
        "COPY",
        "RUN",
        "USER",
        "WORKDIR",
        "ENV",
        "EXPOSE",
        "STOPSIGNAL",
        "HEALTHCHECK",
        "ENTRYPOINT",
        "CMD",
    }
    assert {line.split()[0] for line in lines if line[:1].isupper()} <= known
    for source in re.findall(r"^COPY ((?!--from).*) \S+$", "\n".join(lines), re.MULTILINE):
        assert all((ROOT / name).exists() for name in source.split())


def test_the_proxy_keeps_no_log_and_passes_public_addresses_only() -> None:
    text = (DEPLOY / "nginx.conf").read_text(encoding="utf-8")
    assert "access_log off;" in text
    assert re.findall(r"location (\S+)", text) == ["/v1/campaigns/", "~", "~", "/", "@limited"]
    stream, pattern = re.findall(r"location ~ (\S+) \{", text)
    assert re.search(stream, f"/v1/campaigns/{'0a' * 16}/events")
    assert not re.search(stream, f"/v1/campaigns/{'0a' * 16}/reports")
    for path in (
        "/",
        "/c/ab",
        "/releases/ab/ask",
        "/static/ab/dither.css",
        "/dither.js",
        "/v1/releases/ab/query",
    ):
        assert re.search(pattern, path), path
    for path in (
        "/console",
        "/console/keys",
        "/v1/admin/campaigns",
        "/v1/audit",
        "/metrics",
        "/ready",
        "/docs",
        "/cc/",
    ):
        assert not re.search(pattern, path), path
    assert "X-Forwarded-For" not in text
    assert "$remote_addr" not in text
    # Addresses serve as keys of the limits, in memory, and for nothing else.
    assert re.findall(r"(\S+) \$binary_remote_addr", text) == ["limit_req_zone", "limit_conn_zone"]
    assert text.count("{") == text.count("}")
    compose = (DEPLOY / "compose.yaml").read_text(encoding="utf-8")
    assert set(re.findall(r"server (collector-\d):8700", text)) == set(
        re.findall(r"^  (collector-\d):", compose, re.MULTILINE)
    )
    assert re.findall(r"ports: \[(.*)\]", compose) == ['"443:8443"'], (
        "nothing but the proxy has a port outside"
    )


def test_nothing_is_installed_in_the_image_without_a_hash() -> None:
    text = re.sub(r"\\\n\s*", "", (DEPLOY / "Containerfile").read_text(encoding="utf-8"))
    installs = re.findall(r"\S*pip install ([^&\n]*)", text)
    assert len(installs) == 3
    for arguments in installs:
        assert "--require-hashes" in arguments or {"--no-deps", "--no-index"} <= set(
            arguments.split()
        )
    assert "--no-build-isolation" in text, "or the tools that build the wheel are fetched unchecked"


def test_the_collectors_role_owns_its_database_and_nothing_else(
    cluster: Cluster, open_folder: Path
) -> None:
    with psycopg.connect(cluster.superuser(cluster.url("postgres")), autocommit=True) as superuser:
        rights = superuser.execute(
            "SELECT rolcanlogin, rolsuper, rolcreatedb, rolcreaterole, rolreplication, rolbypassrls "
            "FROM pg_roles WHERE rolname = 'dither'"
        ).fetchone()
        assert rights == (True, False, False, False, False, False)
        owned = superuser.execute(
            "SELECT datname FROM pg_database JOIN pg_roles r ON r.oid = datdba WHERE rolname = 'dither'"
        )
        assert owned.fetchall() == [("dither",)]
        assert superuser.execute(
            "SELECT pg_has_role('dither', 'pg_read_server_files', 'member')"
        ).fetchone() == (False,)
        superuser.execute("CREATE ROLE stranger LOGIN")
        with pytest.raises(psycopg.OperationalError, match="permission denied for database"):
            psycopg.connect(cluster.url(role="stranger"))
        with psycopg.connect(cluster.url(), autocommit=True) as role:
            for refused in (
                "CREATE ROLE other",
                "CREATE DATABASE other",
                "COPY (SELECT 1) TO '/tmp/dither-refused'",
            ):
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    role.execute(refused)

        # With a password, as the containers have it.
        superuser.execute(
            "ALTER DATABASE dither RENAME TO first; ALTER ROLE dither RENAME TO first"
        )
        empty, password = open_folder / "empty", open_folder / "password"
        empty.touch()
        password.write_text("it's secret\n", encoding="utf-8")
        refused_empty = cluster.create_database(DATABASE_PASSWORD_FILE=str(empty))
        assert refused_empty.returncode == 1
        assert refused_empty.stderr == f"{empty} is empty; write the role's password into it\n"
        assert cluster.create_database(DATABASE_PASSWORD_FILE="/nonexistent").returncode != 0
        query = "SELECT rolpassword FROM pg_authid WHERE rolname = 'dither'"
        assert superuser.execute(query).fetchone() is None, (
            "a role without the password that was asked for"
        )
        created = cluster.create_database(DATABASE_PASSWORD_FILE=str(password))
        assert (created.returncode, created.stderr) == (0, "")
        (stored,) = superuser.execute(query).fetchone() or ("",)
        assert stored.startswith("SCRAM-SHA-256$")
        again = cluster.create_database()
        assert again.returncode != 0
        assert 'role "dither" already exists' in again.stderr


def test_the_compose_file_gives_collectors_no_superuser() -> None:
    text = (DEPLOY / "compose.yaml").read_text(encoding="utf-8")
    (superuser,) = re.findall(r"POSTGRES_USER: (\S+)", text)
    address = compose_command()[compose_command().index("--store") + 1]
    assert superuser == "postgres"
    assert address.startswith("postgresql://dither@database/dither?")
    assert "./create_database.sh:/docker-entrypoint-initdb.d/" in text
    mounted = re.search(r"collector-1:.*?secrets: \[(.*?)\]", text, re.DOTALL)
    assert mounted is not None
    assert mounted[1] == "database_passfile, dither_admin_key"
    used = {
        name for listed in re.findall(r"secrets: \[(.*?)\]", text) for name in listed.split(", ")
    }
    declared = set(re.findall(r"^    file: \./secrets/(\S+)$", text, re.MULTILINE))
    page = (ROOT / "docs" / "how-to" / "deploy.md").read_text(encoding="utf-8")
    assert used == declared
    assert [name for name in sorted(declared) if name not in page] == []


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    running = Cluster()
    yield running
    running.remove()


@pytest.mark.slow
def test_the_commands_of_compose_file_and_unit_serve_one_campaign_together(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, key, ports = cluster.fresh(), tmp_path / "admin.key", [free_port(), free_port()]
    assert image_command()[:3] == [*compose_command()[:2], "postgresql://dither@database/dither"]
    here = {
        "store": store,
        "key_file": str(key),
        "workers": "1",
    }  # with more they are tested elsewhere
    commands = [
        [*replaced(compose_command(), host="127.0.0.1", **here), "--port", str(ports[0])],
        replaced(unit_command(ports[1]), **here),
    ]
    with ExitStack() as stack:
        started = []
        said = stack.enter_context((tmp_path / "said").open("w"))
        for command in commands:
            process = subprocess.Popen(
                [sys.executable, "-c", "from dither.cli import main; main()", *command],
                stdout=subprocess.PIPE,
                stderr=said,
                text=True,
            )
            stack.callback(process.wait)
            stack.callback(process.kill)
            assert process.stdout is not None
            stack.callback(process.stdout.close)
            assert process.stdout.readline().startswith("listening on "), (
                tmp_path / "said"
            ).read_text()
            started.append(process)
        monkeypatch.setattr(collector_harness, "KEY", key.read_text().strip())
        first, second = (Caller(f"http://127.0.0.1:{port}") for port in ports)
        campaign = first.create()
        plan = plan_of(second.announcement(campaign))
        for number, caller in enumerate((first, second)):
            people = [token_of(i) for i in range(20 * number, 20 * number + 20)]
            assert caller.upload(campaign, envelope_of(campaign, plan, people)).status == 201
        assert second.admin("POST", f"/{campaign}/close-round", {"round": 0}).status == 200
        assert first.status(campaign)["rounds"][0]["reports"] == 40
        assert first.upload(campaign, envelope_of(campaign, plan, [token_of(99)])).status == 409
        for caller in (first, second):
            caller.connection.close()
        for process in started:
            process.send_signal(signal.SIGTERM)
            assert process.wait(20) == 0
