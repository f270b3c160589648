"""How to cite a release and make it or one like it again: from the same table, or with the same questions to others."""

from __future__ import annotations

import shlex
from typing import Any

from dither.release.release import Release
from dither.release.words import shown_epsilon


def rerun_command(release: Release) -> str:
    """The command line that makes the same release from the same table, if a seed was given, else one like it with noise of its
    own; after a collection, that asks the same again."""
    if not release.simulated:
        return _campaign_command(release)
    words = ["dither", "publish", release.source or "TABLE", "--epsilon", f"{release.epsilon_asked:.17g}"]
    words += ["--method", release.method]
    for option, value in (
        ("--schema", release.schema_file),
        ("--population", release.population),
        ("--rows", release.rows),
        ("--seed", release.seed),
    ):
        if value is not None:
            words += [option, str(value)]
    return shlex.join([*words, *_settings(release), "-o", "out"])


def rerun_python(release: Release) -> str:
    """The same in Python; after a collection, how to read the release and its intervals."""
    if not release.simulated:
        names = list(release.schema.names[:2])
        return (
            f'import dither\n\nrelease = dither.load_release("out")\nintervals = dither.bootstrap(release, [{names!r}])'
        )
    arguments = [
        repr(release.source or "TABLE"),
        f"epsilon={float(release.epsilon_asked)!r}",
        f"method={release.method!r}",
    ]
    if release.schema_file is not None:
        arguments.append(f"schema={release.schema_file!r}")
    if release.population is not None:
        arguments.append(f"population={release.population}")
    arguments.append(f"rows={release.rows}")
    if release.seed is not None:
        arguments.append(f"seed={release.seed}")
    if release.parameters:
        arguments.append(f"parameters={dict(release.parameters)!r}")
    inside = ",\n    ".join(arguments)
    return f'import dither\n\nrelease = dither.publish(\n    {inside},\n)\nrelease.save("out")'


def rerun_lead(release: Release) -> tuple[str, str]:
    """What the command and the Python code do, a sentence each."""
    if not release.simulated:
        return (
            "The same questions to other people, with a running collector and the schema of this folder:",
            "This release in Python, with the intervals of any figure:",
        )
    if release.seed is None and not release.no_privacy:
        return (
            "From the command line. The very same noise cannot be drawn again, so the figures come out anew, within their errors:",
            "The same in Python:",
        )
    return "The very same release from the same table, on the command line:", "In Python:"


def citation(release: Release) -> str:
    """One sentence that names what a reader needs to tell this release from others."""
    kind = "simulated release" if release.simulated else "release"
    if release.no_privacy:
        return (
            f"Dither {release.dither_version}, release WITHOUT privacy for comparison: method {release.method}, "
            f"{release.participants:,} records, schema {release.schema_fingerprint[:12]}."
        )
    seed = ""
    if release.simulated:
        seed = ", noise not replayable" if release.seed is None else f", seed {release.seed}"
    return (
        f"Dither {release.dither_version}, {kind} by local differential privacy: method {release.method}, epsilon "
        f"{shown_epsilon(release.epsilon_achieved)} per record, {release.participants:,} participants{seed}, "
        f"schema {release.schema_fingerprint[:12]}."
    )


def _campaign_command(release: Release) -> str:
    words = ["dither", "campaign", "create", "--schema", "schema.json", "--epsilon", f"{release.epsilon_asked:.17g}"]
    words += ["--participants", str(release.participants), "--method", release.method]
    return shlex.join([*words, *_settings(release)])


def _settings(release: Release) -> list[str]:
    given = ((key, value) for key, value in release.parameters.items() if value is not None)
    return [word for key, value in given for word in ("--set", f"{key}={_setting(value)}")]


def _setting(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (list, tuple)):
        return ",".join(str(item) for item in value)
    return str(value)
