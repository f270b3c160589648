"""Runs tutorials that are notebooks: Markdown with a Jupytext header.

    python -m tools.site.notebooks docs/tutorial/in-a-notebook.md     # prints it with its outputs

The cells run in order when the site is built. Outputs are not stored with the text, so they
cannot be stale. Open a notebook with Jupyter and Jupytext to work in it.
"""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import jupytext
from nbclient import NotebookClient
from traitlets.config import Config

SECONDS = 300  # for one cell, on a loaded machine


def is_notebook(text: str) -> bool:
    """Whether a page has a Jupytext header."""
    return re.match(r"---\n(?:.*\n)*?jupytext:\n", text) is not None


def run(path: Path) -> str:
    """Return the page with the output of each cell. An error in a cell is raised with its traceback."""
    notebook = jupytext.read(path)
    with tempfile.TemporaryDirectory() as folder:
        # Talk to the kernel through files of this user, not through a port that others could reach.
        config = Config({"KernelManager": {"transport": "ipc", "ip": f"{folder}/kernel"}})
        NotebookClient(
            notebook,
            kernel_name="python3",
            config=config,
            timeout=SECONDS,
            startup_timeout=SECONDS,
            resources={"metadata": {"path": folder}},
        ).execute()
    return "\n\n".join(_shown(cell) for cell in notebook.cells if cell.source.strip()) + "\n"


def _shown(cell: Any) -> str:
    if cell.cell_type != "code":
        return str(cell.source)
    parts = [f"```python\n{cell.source}\n```", *(_output(output) for output in cell.outputs)]
    return "\n\n".join(part for part in parts if part)


def _output(output: Any) -> str:
    """Return HTML if there is any, text otherwise."""
    if output.output_type == "stream":
        return f'```text {{ .output title="said" }}\n{output.text.rstrip()}\n```'
    data = output.get("data", {})
    if "text/html" in data:
        joined = "".join(data["text/html"]).strip()
        return f'<div class="output">\n{joined}\n</div>'
    plain = "".join(data.get("text/plain", "")).rstrip()
    return f"```text {{ .output }}\n{plain}\n```" if plain else ""


if __name__ == "__main__":
    for name in sys.argv[1:]:
        print(run(Path(name)))
