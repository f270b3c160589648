"""Checks pages of `make demo-web` with the Nu validator and Lighthouse, which npm installs.

python -m tools.pages_check        # or: make pages-check

Needs npm, Java and Chromium. Exit status 1 if a page is not valid HTML, or if Lighthouse's
performance is below 95.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from urllib.request import Request, urlopen

from tools.demo_web import demo

FOLDER = Path(__file__).parents[1] / "build" / "pages-check"
MIN_PERFORMANCE = 95


def _install() -> Path:
    """Install both programs into a folder of their own, once."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    programs = FOLDER / "node_modules"
    if not (programs / "lighthouse").is_dir():
        command = ["npm", "install", "--silent", "--no-fund", "--no-audit", "vnu-jar", "lighthouse"]
        subprocess.run(command, cwd=FOLDER, check=True)
    return programs


def _validate(programs: Path, pages: list[str]) -> bool:
    files = []
    for i, address in enumerate(pages):
        with urlopen(Request(address, headers={"accept": "text/html"}), timeout=60) as answer:
            file = FOLDER / f"page-{i}.html"
            file.write_bytes(answer.read())
            files.append(str(file))
    jar = programs / "vnu-jar" / "build" / "dist" / "vnu.jar"
    done = subprocess.run(["java", "-jar", str(jar), "--errors-only", *files], check=False)
    print(f"Nu: {len(files)} pages, {'valid' if done.returncode == 0 else 'not valid'}")
    return done.returncode == 0


def _performance(programs: Path, chromium: str, address: str) -> int:
    report = FOLDER / "lighthouse.json"
    command = [str(programs / ".bin" / "lighthouse"), address, "--quiet", "--output=json"]
    flags = "--chrome-flags=--headless=new --no-sandbox --disable-gpu"
    environment = {**os.environ, "CHROME_PATH": chromium}
    subprocess.run(
        [*command, f"--output-path={report}", flags], env=environment, check=True, timeout=300
    )
    categories = json.loads(report.read_text(encoding="utf-8"))["categories"]
    scores = {name: round(100 * part["score"]) for name, part in categories.items()}
    print(f"Lighthouse: {address} {scores}")
    return scores["performance"]


def main() -> None:
    """Check the first page, the participants' in three languages, and a release."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None or shutil.which("java") is None or shutil.which("npm") is None:
        raise SystemExit("npm, java and chromium are needed")
    programs = _install()
    with demo() as running:
        taking = f"{running.url}/c/{running.taking}"
        german = f"{running.url}/c/{running.german}"
        release = f"{running.url}/releases/{running.published}"
        pages = [f"{running.url}/", taking, german, f"{german}?language=ar", release]
        valid = _validate(programs, pages)
        scores = [_performance(programs, chromium, page) for page in (taking, german, release)]
    sys.exit(0 if valid and min(scores) >= MIN_PERFORMANCE else 1)


if __name__ == "__main__":
    main()
