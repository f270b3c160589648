"""What the participant's page says that a report fits is what the mechanism's own law says."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

from collector_harness import seeded_source
from tests.programs import require

from dither.mechanisms import PureMechanism, mechanism

STATIC = Path(__file__).parents[2] / "src" / "dither" / "collector" / "pages" / "static"
SIZES = {"grr": 300, "sue": 9, "oue": 17, "olh": 40, "subset": 12, "hadamard": 12}
CODE = """
import { fitting } from %s;
const given = JSON.parse(await new Response(process.stdin).text());
const bytes = (hex) => Uint8Array.from(hex.match(/../g), (pair) => parseInt(pair, 16));
console.log(JSON.stringify(given.map(({ mechanism, report, cells }) => {
  const fits = fitting(mechanism);
  return Array.from({ length: cells }, (_, cell) => fits(bytes(report), cell));
})));
"""


def test_reports_fit_what_they_support() -> None:
    node = require(shutil.which("node"), "Node.js")
    cases: list[tuple[PureMechanism, bytes]] = []
    for name, cells in SIZES.items():
        made = mechanism(name, cells, 1.5)
        assert isinstance(made, PureMechanism)
        source = seeded_source(name)
        cases += [(made, made.randomise(i % cells, source)) for i in range(20)]
    given = [
        {"mechanism": m.to_json(), "report": report.hex(), "cells": m.cells} for m, report in cases
    ]
    code = CODE % json.dumps((STATIC / "fits.js").as_uri())
    done = subprocess.run(
        [str(node), "--input-type=module", "-e", code],
        input=json.dumps(given),
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    found = json.loads(done.stdout)
    expected = [[m.supports(report, cell) for cell in range(m.cells)] for m, report in cases]
    assert found == expected
    assert any(any(row) and not all(row) for row in expected)


READ = """
import { recordOf } from './form.js';
import { practise } from './dither.js';
const names = JSON.parse(await new Response(process.stdin).text());
const record = recordOf(names.map((name) => ({ name, read: () => ({ value: true }) })));
const schema = { attributes: names.map((name) => ({ name, kind: 'boolean' })) };
const questions = names.map((name) => ({ attributes: [name], mechanism: { name: 'grr', cells: 2, other: 1, threshold_bits: 32 } }));
const { outside } = await practise({ schema }, questions, record);
console.log(JSON.stringify(outside));
"""


def test_what_is_typed_counts_whatever_an_attribute_is_called(tmp_path: Path) -> None:
    node = require(shutil.which("node"), "Node.js")
    for file in (STATIC / "form.js", STATIC / "words.js", STATIC.parents[4] / "js" / "dither.js"):
        shutil.copy(file, tmp_path)
    (tmp_path / "package.json").write_text('{"type": "module"}')
    (tmp_path / "read.js").write_text(READ)
    names = json.dumps(["colour", "__proto__", "constructor", "toString"])
    done = subprocess.run(
        [str(node), str(tmp_path / "read.js")],
        input=names,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout == "[]\n"
