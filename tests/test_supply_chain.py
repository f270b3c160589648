"""What is installed is what was locked: hashes for every package, and a list of components that is complete."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import subprocess
import sys
import tomllib
import venv
import zipfile
from collections.abc import Iterable
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
LOCKS = {
    path.stem: path.read_text(encoding="utf-8")
    for path in sorted((ROOT / "requirements").glob("*.txt"))
}
# Which files are installed for an extra; see the Makefile and deploy/Containerfile.
RUNTIME = ("core", "server")
INSTALLED_FOR = {
    "": ("core",),
    "server": RUNTIME,
    **dict.fromkeys(
        ("dev", "docs", "spark", "sdmetrics", "notebook", "stats"), ("build", *RUNTIME, "dev")
    ),
    "bench": tuple(LOCKS),
}


def entries(text: str) -> list[tuple[Requirement, list[str]]]:
    """The requirements of a lock file, each with the options behind it."""
    lines = text.replace("\\\n", " ").splitlines()
    found = []
    for line in lines:
        requirement, *options = re.split(r"\s+(?=--)", line.strip())
        found.append((Requirement(requirement), options))
    return found


def locked(names: Iterable[str]) -> dict[str, set[str]]:
    """The versions that some lock files pin for this system and Python, by package."""
    versions: dict[str, set[str]] = {}
    for name in names:
        for requirement, _ in entries(LOCKS[name]):
            if requirement.marker is None or requirement.marker.evaluate():
                (pin,) = requirement.specifier
                versions.setdefault(canonicalize_name(requirement.name), set()).add(pin.version)
    return versions


def asked(extra: str) -> list[Requirement]:
    project = PYPROJECT["project"]
    listed = project["optional-dependencies"][extra] if extra else project["dependencies"]
    return [Requirement(text) for text in listed]


def closure(wanted: Iterable[Requirement]) -> dict[str, Distribution]:
    """The installed packages that these requirements need here, directly or through others."""
    found: dict[str, Distribution] = {}
    waiting = [(requirement, "") for requirement in wanted]
    seen = set()
    while waiting:
        requirement, extra = waiting.pop()
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": extra}):
            continue
        name = canonicalize_name(requirement.name)
        found[name] = distribution(name)
        for inner in ("", *requirement.extras):
            if (name, inner) not in seen:
                seen.add((name, inner))
                waiting += [(Requirement(text), inner) for text in found[name].requires or []]
    return found


@pytest.mark.parametrize("name", sorted(LOCKS))
def test_every_locked_package_has_one_version_and_hashes_and_names_no_host(name: str) -> None:
    text = LOCKS[name]
    for requirement, options in entries(text):
        assert [pin.operator for pin in requirement.specifier] == ["=="], requirement
        assert requirement.url is None
        assert options, f"{requirement} has no hash"
        assert [o for o in options if not re.fullmatch(r"--hash=sha256:[0-9a-f]{64}", o)] == []
        assert len(set(options)) == len(options)
    assert "://" not in text
    assert "#" not in text, "a comment could name a host"


def test_the_lock_files_are_those_that_the_makefile_makes() -> None:
    assert set(LOCKS) == {"build", "core", "server", "dev", "bench"}
    assert set(INSTALLED_FOR) == {"", *PYPROJECT["project"]["optional-dependencies"]}


@pytest.mark.parametrize("extra", sorted(INSTALLED_FOR))
def test_the_lock_covers_what_the_project_asks_for(extra: str) -> None:
    versions = locked(INSTALLED_FOR[extra])
    for requirement in asked(extra):
        if requirement.marker is None or requirement.marker.evaluate():
            (version,) = versions.get(canonicalize_name(requirement.name), {None})
            assert version is not None, f"{requirement} is not in requirements/; run make lock"
            assert requirement.specifier.contains(version), (
                f"{requirement}, but {version} is locked; run make lock"
            )


@pytest.mark.parametrize(
    "extra", sorted({*INSTALLED_FOR} - {"bench"})
)  # make setup does not install it
def test_the_lock_covers_what_the_packages_need_in_turn(extra: str) -> None:
    versions = locked(INSTALLED_FOR[extra])
    for name, installed in closure([*asked(""), *asked(extra)]).items():
        assert versions.get(name) == {installed.version}, (
            f"{name} {installed.version} is installed; run make lock"
        )


def test_what_builds_the_wheel_is_locked() -> None:
    versions = locked(["build"])
    for text in PYPROJECT["build-system"]["requires"]:
        requirement = Requirement(text)
        (version,) = versions[canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(version)


def test_actions_are_pinned_to_commits() -> None:
    for path in (ROOT / ".github" / "workflows").glob("*.yml"):
        used = re.findall(r"uses: (.*)", path.read_text(encoding="utf-8"))
        assert used
        for action in used:
            assert re.fullmatch(r"[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", action), (
                f"{path.name}: {action}"
            )


def wheel(folder: Path, name: str, requires: str = "") -> str:
    """Write a small wheel and return the hash of its file."""
    path = folder / f"{name}-1.0-py3-none-any.whl"
    info = f"{name}-1.0.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n"
    if requires:
        metadata += f"Requires-Dist: {requires}\n"
    files = {
        f"{name}.py": "",
        f"{info}/METADATA": metadata,
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = ""
    with zipfile.ZipFile(path, "w") as archive:
        for file, text in files.items():
            digest = (
                base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest())
                .rstrip(b"=")
                .decode()
            )
            record += f"{file},sha256={digest},{len(text)}\n"
            archive.writestr(file, text)
        archive.writestr(f"{info}/RECORD", f"{record}{info}/RECORD,,\n")
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.slow
def test_setup_refuses_a_package_with_another_hash_or_without_one(tmp_path: Path) -> None:
    """The Makefile's own command, on a lock of two small packages and without a network."""
    (tmp_path / "Makefile").write_bytes((ROOT / "Makefile").read_bytes())
    for name in ("requirements", "tools", "wheels"):
        (tmp_path / name).mkdir()
    (tmp_path / "tools" / "system_packages.sh").touch()
    (tmp_path / "pyproject.toml").touch()
    for name in LOCKS:
        (tmp_path / "requirements" / f"{name}.txt").touch()
    outer = wheel(tmp_path / "wheels", "outer", requires="inner")
    inner = wheel(tmp_path / "wheels", "inner")
    environment = os.environ | {"PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "1"}
    environment["PIP_FIND_LINKS"] = str(tmp_path / "wheels")
    venv.create(tmp_path / ".venv", with_pip=True)

    def set_up(lock: str) -> tuple[str, set[str]]:
        """What set-up says with this lock, and which of the packages it installed."""
        (tmp_path / "requirements" / "core.txt").write_text(lock)
        command = ["make", ".venv/.core", "PYTHON=true"]  # the environment is there already
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode != 0  # at the latest because the folder holds no project
        (site,) = (tmp_path / ".venv").glob("lib/python*/site-packages")
        return done.stderr, {path.stem for path in site.glob("*er.py")}

    def pinned(name: str, digest: str) -> str:
        return f"{name}==1.0 --hash=sha256:{digest}\n"

    altered = inner[:-1] + ("0" if inner[-1] != "0" else "1")
    refused, installed = set_up(pinned("outer", outer) + pinned("inner", altered))
    assert "DO NOT MATCH THE HASHES" in refused
    assert installed == set()
    refused, installed = set_up(pinned("outer", outer))
    assert "In --require-hashes mode, all requirements must have their versions pinned" in refused
    assert installed == set()
    refused, installed = set_up(pinned("outer", outer) + "inner==1.0\n")
    assert "Hashes are required in --require-hashes mode" in refused
    assert installed == set()
    accepted, installed = set_up(pinned("outer", outer) + pinned("inner", inner))
    assert "hash" not in accepted.lower()
    assert installed == {"outer", "inner"}


def sbom_arguments() -> list[str]:
    """The arguments of `make sbom` before the output and the environment."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    command = re.search(
        r"^\t\$\(BIN\)/cyclonedx-py (.*) -o build/sbom\.json build/runtime$", makefile, re.MULTILINE
    )
    assert command is not None
    return command[1].split()


@pytest.mark.slow
def test_the_sbom_is_valid_and_lists_what_a_collector_needs(tmp_path: Path) -> None:
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    needed = closure([*asked(""), *asked("server")])
    venv.create(tmp_path / "runtime")
    (site,) = (tmp_path / "runtime").glob("lib/python*/site-packages")
    for installed in (*needed.values(), distribution("dither")):
        (metadata,) = {
            Path(file).parts[0] for file in installed.files or [] if file.name == "METADATA"
        }
        (site / metadata).symlink_to(Path(str(installed.locate_file(metadata))))
    output = tmp_path / "sbom.json"
    command = [
        sys.executable,
        "-m",
        "cyclonedx_py",
        *sbom_arguments(),
        "-o",
        str(output),
        str(tmp_path / "runtime"),
    ]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)

    text = output.read_text(encoding="utf-8")
    bom = json.loads(text)
    assert bom["bomFormat"] == "CycloneDX"
    assert (
        JsonStrictValidator(SchemaVersion.from_version(bom["specVersion"])).validate_str(text)
        is None
    )
    assert bom["metadata"]["component"]["name"] == "dither"
    assert bom["metadata"]["component"]["version"] == PYPROJECT["project"]["version"]
    listed = {canonicalize_name(c["name"]): c["version"] for c in bom["components"]}
    assert listed == {name: installed.version for name, installed in needed.items()}
    assert {"numpy", "cryptography", "fastapi", "psycopg-binary"} <= set(listed)
    assert all(c["purl"].startswith("pkg:pypi/") for c in bom["components"])
    (root,) = (
        d for d in bom["dependencies"] if d["ref"] == bom["metadata"]["component"]["bom-ref"]
    )
    direct = {canonicalize_name(r.name) for r in [*asked(""), *asked("server")]}
    assert {canonicalize_name(ref.partition("==")[0]) for ref in root["dependsOn"]} == direct
