"""Commands and options that other people's scripts rely on: they may gain companions, never go."""

from __future__ import annotations

import pytest
from tools.command_line import commands

CONTRACT = {
    "publish": "--epsilon --method --schema --population --rows --seed --set --replicates --columns --drop"
    " --missing --format --overwrite -o",
    "query": "--given --by --mean --json --wave",
    "plan": "--schema --participants --epsilon --dependence --method --json",
    "evaluate": "--json",
    "schema infer": "-o",
    "methods": "",
    "compare": "--epsilon --methods",
    "histogram": "--column --bins --epsilon --method --low --high --range --quantiles --seed --json -o",
    "central": "--method --columns --epsilon --seed -o",
    "panel": "--person --time --columns --epsilon-lifetime --epsilon-first --seed --json --overwrite -o",
    "audit": "--mechanism --json",
    "bench": "--quick",
    "tally": "--plan --engine -o --json",
    "serve": "",
    "campaign create": "--closes",
    "submit": "",
    "key create": "",
}


@pytest.mark.parametrize("name", CONTRACT)
def test_commands_keep_the_options_they_had(name: str) -> None:
    found = {path.removeprefix("dither "): command for path, command in commands()}
    assert name in found
    options = {flag for option in found[name].params for flag in option.opts}
    assert not set(CONTRACT[name].split()) - options
