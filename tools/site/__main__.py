"""Builds the documentation site: python -m tools.site [FOLDER], without network; FOLDER is site/ unless named.

A broken link, an unknown anchor, a page in no menu or a failing notebook ends the build with
status 1 and leaves an earlier site unchanged.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

from zensical import build

from tools.site.pages import ROOT, BrokenSite, gather


def main(folder: Path, root: Path = ROOT) -> int:
    """Gather the pages, build them next to `folder`, and move the result there."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".site-") as scratch:
        try:
            configuration = gather(Path(scratch), root)
            build(str(configuration), {"clean": True, "strict": True})
        except (BrokenSite, RuntimeError) as error:  # the generator has said what is broken by then
            print(f"tools.site: {error}", file=sys.stderr)
            return 1
        shutil.rmtree(folder, ignore_errors=True)
        os.replace(Path(scratch) / "site", folder)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1]) if sys.argv[1:] else ROOT / "site"))
