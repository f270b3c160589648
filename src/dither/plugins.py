"""What other packages add: methods, mechanisms, stores, datasets, benchmarks and peers, found by their entry points.

A package names its part in its own metadata, for a method `[project.entry-points."dither.methods"]` with `name = "module:object"`.
Nothing of a plug-in is imported before its name is used or all of its kind are listed, so that a broken one breaks itself alone.
What is built in keeps its name; a name that two packages claim is refused when it is used. Standard library only, since a device
asks too.
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
    """One part of another package."""

    kind: Kind
    name: str
    package: str
    version: str
    point: EntryPoint

    def __str__(self) -> str:
        return f"plug-in {self.name!r} of {self.package} {self.version} (dither.{self.kind})"

    def load(self) -> object:
        """The object that the entry point names; whatever goes wrong inside is one line."""
        try:
            return self.point.load()
        except (
            Exception,
            SystemExit,
        ) as error:  # another package's code may raise anything, and may want to end it all
            raise self.fault(f"cannot be loaded: {type(error).__name__}: {error}") from error

    def fault(self, words: str) -> InputError:
        """An error that names this plug-in."""
        return InputError(
            f"{self} {' '.join(words.split())}; mend or uninstall it", where=self.name
        )


def plugins(kind: Kind) -> list[Plugin]:
    """The plug-ins of a kind that are installed, in the order of their names; two may have the same."""
    found = {
        (point.name, point.value, point.dist.name if point.dist else "?"): Plugin(
            kind,
            point.name,
            point.dist.name if point.dist else "?",
            point.dist.version if point.dist else "?",
            point,
        )
        for point in entry_points(group=f"dither.{kind}")
    }
    return [found[key] for key in sorted(found)]


def plugin(kind: Kind, name: str) -> Plugin | None:
    """The plug-in of a name, None if there is none; an error where two packages claim it."""
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
    """Every plug-in of a kind that can be used, by name, and a line for each that cannot."""
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
