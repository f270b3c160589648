"""Plug-ins: methods, mechanisms, stores, datasets, benchmarks and peers of other packages.

A package declares a plug-in by an entry point, for a method
`[project.entry-points."dither.methods"]` with `name = "module:object"`. A plug-in is
imported only when its name is used or all plug-ins of its kind are listed, so a broken one
affects nothing else. Built-in names take precedence; a name claimed by two packages is
rejected when it is used. Standard library only, because devices use plug-ins too.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Literal, TypeVar

from dither.errors import InputError

Kind = Literal["methods", "mechanisms", "stores", "datasets", "benchmarks", "peers"]
T = TypeVar("T")


@dataclass(frozen=True)
class Plugin:
    """An entry point of another package."""

    kind: Kind
    name: str
    package: str
    version: str
    point: EntryPoint

    def __str__(self) -> str:
        return f"plug-in {self.name!r} of {self.package} {self.version} (dither.{self.kind})"

    def load(self) -> object:
        """Import the object of the entry point.

        Raises:
            InputError: The import fails, for any reason.
        """
        try:
            return self.point.load()
        except (
            Exception,
            SystemExit,
        ) as error:
            # A plug-in may raise anything, even exit the process.
            raise self.fault(f"cannot be loaded: {type(error).__name__}: {error}") from error

    def fault(self, words: str) -> InputError:
        """An error that names this plug-in."""
        return InputError(f"{self} {' '.join(words.split())}; fix or uninstall it", where=self.name)


def plugins(kind: Kind) -> list[Plugin]:
    """The installed plug-ins of a kind, sorted by name; names may repeat."""
    by_key = {
        (point.name, point.value, point.dist.name if point.dist else "?"): Plugin(
            kind,
            point.name,
            point.dist.name if point.dist else "?",
            point.dist.version if point.dist else "?",
            point,
        )
        for point in entry_points(group=f"dither.{kind}")
    }
    return [by_key[key] for key in sorted(by_key)]


def plugin(kind: Kind, name: str) -> Plugin | None:
    """The plug-in with this name, or None.

    Raises:
        InputError: Two packages claim the name.
    """
    claims = [each for each in plugins(kind) if each.name == name]
    if len(claims) > 1:
        packages = " and ".join(f"{each.package} {each.version}" for each in claims)
        raise InputError(
            f"{packages} both bring dither.{kind} {name!r}; uninstall one of them", where=name
        )
    return claims[0] if claims else None


def usable(
    kind: Kind, built_in: Collection[str], read: Callable[[Plugin], T]
) -> tuple[dict[str, T], list[str]]:
    """The usable plug-ins of a kind by name, and one line about each unusable one."""
    good: dict[str, T] = {}
    faults: list[str] = []
    every = plugins(kind)
    for each in every:
        rivals = [other for other in every if other.name == each.name]
        if each.name in built_in:
            faults.append(f"{each} is left out: Dither has {each.name!r} itself")
        elif len(rivals) > 1:
            faults.append(
                f"{each} is left out: {len(rivals)} packages bring {each.name!r}; uninstall all but one"
            )
        else:
            try:
                good[each.name] = read(each)
            except InputError as error:
                faults.append(str(error))
    return good, faults
