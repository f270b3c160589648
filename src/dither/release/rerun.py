"""How to cite a release and make it or one like it again: from the same table, or with the same questions to others."""

from __future__ import annotations

from dither.release.call import campaign_command, command, python_code
from dither.release.release import Release
from dither.release.words import shown_epsilon


def rerun_command(release: Release) -> str:
    """The command line that makes the same release from the same table, if a seed was given, else one like it with noise of its
    own; after a collection, that asks the same again."""
    return command(release.call) if release.simulated else campaign_command(release.call, release.participants)


def rerun_python(release: Release) -> str:
    """The same in Python; after a collection, how to read the release and its intervals."""
    if release.simulated:
        return python_code(release.call)
    names = list(release.schema.names[:2])
    return f'import dither\n\nrelease = dither.load_release("out")\nintervals = dither.bootstrap(release, [{names!r}])'


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
