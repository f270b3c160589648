"""Files of their owner alone, whatever the umask: databases, keys, tokens, raw reports. Standard library only."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from dither.errors import InputError

_OTHERS = 0o077


def make_private(path: str | Path) -> bool:
    """Make an empty file that only its owner reads and writes, or take such rights on an existing one from everybody else.

    True if it was made. An existing file is not opened: closing it would drop the locks that SQLite holds on it in this process.
    Folders, devices and the like are refused as they are: a slip must not take `/dev/null` or a shared folder from everybody.
    """
    path = os.path.realpath(
        path
    )  # a link that leads nowhere yet: the file is made where SQLite would make it, for everybody
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        tighten(path)
        return False
    return True


def tighten(path: str | Path) -> None:
    """Take the rights of group and others on a file, if it exists and they have any; anything but a file is refused."""
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISREG(mode):
        raise InputError(f"{path} is not a file; give another path", where=str(path))
    if mode & _OTHERS and os.name == "posix":  # elsewhere a file has no such rights
        os.chmod(path, mode & 0o700)
