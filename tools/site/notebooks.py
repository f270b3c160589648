"""Tutorials that are notebooks: Markdown with a Jupytext header, whose Python cells are run in order when the site is built.

    python -m tools.site.notebooks docs/tutorial/in-a-notebook.md     # run one and print it with its outputs

Whoever wants to work in one opens it with Jupyter and Jupytext. What the cells give is not kept beside the text, so it
cannot be stale.
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
    """Whether a page's header says that it is a notebook."""
    return re.match(r"---\n(?:.*\n)*?jupytext:\n", text) is not None


def run(path: Path) -> str:
    """The page with what each cell gave below it. An error in a cell ends it, with the cell and its traceback."""
    notebook = jupytext.read(path)
    with tempfile.TemporaryDirectory() as folder:
        # Files of this user alone carry what goes to the kernel and back, not a port that others could reach.
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
    """As a browser shows it: HTML if there is any, text otherwise."""
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
