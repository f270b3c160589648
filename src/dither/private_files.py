"""Files of their owner alone, whatever the umask: databases, keys, tokens, raw reports. Standard library only."""

from __future__ import annotations

import os
from pathlib import Path

_OTHERS = 0o077


def make_private(path: str | Path) -> bool:
    """Make an empty file that only its owner reads and writes, or take such rights on an existing one from everybody else.

    True if it was made. An existing file is not opened: closing it would drop the locks that SQLite holds on it in this process.
    """
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        tighten(path)
        return False
    return True


def tighten(path: str | Path) -> None:
    """Take the rights of group and others on a file, if it exists and they have any."""
    if os.name != "posix":  # elsewhere a file has no such rights
        return
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        return
    if mode & _OTHERS:
        os.chmod(path, mode & 0o700)
