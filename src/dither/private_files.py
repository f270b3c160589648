"""Files that only their owner can read, for any umask: databases, keys, tokens, raw reports.

Standard library only.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from dither.errors import InputError

_OTHERS = 0o077


def make_private(path: str | Path) -> bool:
    """Create an empty file for its owner only, or restrict an existing file to its owner.

    An existing file is not opened: closing it would drop the locks that SQLite holds on it in
    this process. Folders and devices are rejected: a typing error must not lock other users out
    of `/dev/null` or a shared folder.

    Returns:
        True if the file was created.

    Raises:
        InputError: The path is not a regular file.
    """
    # Resolve a dangling link, whose target SQLite would create readable for all users.
    path = os.path.realpath(path)
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        tighten(path)
        return False
    return True


def tighten(path: str | Path) -> None:
    """Remove the rights of group and others from an existing file.

    Raises:
        InputError: The path is not a regular file.
    """
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISREG(mode):
        raise InputError(f"{path} is not a file; give another path", where=str(path))
    if mode & _OTHERS and os.name == "posix":  # elsewhere a file has no such rights
        os.chmod(path, mode & 0o700)
