"""Static files: style sheet, scripts and the encoder, at addresses with a hash of them all.

Guarantee: an address with a hash always returns the same bytes, so browsers may cache them
without limit; a wrong hash returns 404. All files share one hash, so that modules can import
each other by relative addresses.
"""

from __future__ import annotations

import gzip
import hashlib
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

import dither.release.pages

_STATIC = Path(__file__).with_name("static")
_SHARED = Path(dither.release.pages.__file__).with_name("templates") / "style.css"
_TYPES = {
    ".css": "text/css",
    ".js": "text/javascript",
    ".ts": "text/plain",
    ".svg": "image/svg+xml",
}
_IN_ADDRESS = 16  # characters of the hash
# All that runs in a participant's page.
SCRIPTS = (
    "dither.js",
    "fits.js",
    "form.js",
    "pages.js",
    "participate.js",
    "survey.js",
    "words.js",
)
_HASH_CHARACTERS = 32  # of 64: 16 bytes fit a link and cannot be forged


@dataclass(frozen=True)
class Asset:
    """A file as it is served."""

    name: str
    data: bytes

    @property
    def sha256(self) -> str:
        """The hash as `sha256sum` prints it."""
        return hashlib.sha256(self.data).hexdigest()

    @cached_property
    def gzipped(self) -> bytes:
        """The content compressed, the same bytes each time."""
        return gzip.compress(self.data, 9, mtime=0)

    @property
    def address(self) -> str:
        """The path from which pages load it."""
        return f"/static/{_digest()}/{self.name}"

    @property
    def media_type(self) -> str:
        """The media type, by the file's suffix."""
        return f"{_TYPES[Path(self.name).suffix]}; charset=utf-8"


@cache
def assets() -> dict[str, Asset]:
    """Return all files by name."""
    parts = ("pages.css", "participant.css", "reader.css")
    sheets = (_SHARED, *(_STATIC / part for part in parts))
    sheet = b"".join(path.read_bytes() for path in sheets)
    own = {
        path.name: path.read_bytes()
        for path in sorted(_STATIC.iterdir())
        if path.suffix in (".js", ".svg")
    }
    found = {"dither.css": sheet, **own, **_encoder()}
    return {name: Asset(name, data) for name, data in found.items()}


@cache
def _digest() -> str:
    """Return the hash of all names and contents."""
    whole = "".join(f"{found.sha256}  {name}\n" for name, found in sorted(assets().items()))
    return hashlib.sha256(whole.encode()).hexdigest()[:_IN_ADDRESS]


def asset(name: str) -> Asset:
    """Return one file."""
    return assets()[name]


def scripts_listing() -> str:
    """Return the participant's scripts with their hashes, as `sha256sum` prints them."""
    return "".join(f"{asset(name).sha256}  {name}\n" for name in SCRIPTS)


def scripts_hash() -> str:
    """Return the first 16 bytes of the SHA-256 of `scripts_listing`, in base 16."""
    return hashlib.sha256(scripts_listing().encode()).hexdigest()[:_HASH_CHARACTERS]


def _encoder() -> dict[str, bytes]:
    """Return the browser client and its types, from the package or from the repository's `js/`."""
    for folder in (_STATIC / "encoder", Path(__file__).parents[4] / "js"):
        if (folder / "dither.js").is_file():
            return {
                path.name: path.read_bytes()
                for path in sorted(folder.glob("dither.*"))
                if path.suffix in _TYPES
            }
    raise FileNotFoundError("dither.js is not part of this installation; install dither again")
