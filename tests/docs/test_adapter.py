"""The commands in docs/adapter.md, run from top to bottom, print the output on the page, except for digits."""

import contextlib
import io
import re
import runpy
import shlex

import pytest

from support.builds import called
from support.made_code import made_library
from support.source_trees import ROOT, write_tree

PAGE = (ROOT / "docs/adapter.md").read_text()
REPOSITORIES = {"my-repo": "json/", "other-repo": "concurrent/"}
"""Repositories that the page names, and the folder of the generated library that each repository contains."""


def run_command(command):
    program, *words = shlex.split(command)
    if program == "gristmill":
        done = called(*words)
        assert done.returncode == 0, done.stderr
        return done.stderr + done.stdout
    (script,) = words
    with contextlib.redirect_stdout(io.StringIO()) as out:
        runpy.run_path(script)
    return out.getvalue()


def comparable_lines(text):
    """Return the lines without digits, alignment spaces and the device, which differ between machines."""
    lines = [" ".join(line.split()) for line in text.splitlines() if line.strip()]
    lines = [re.sub(r"\b(device|on) (CPU|NVIDIA).*", r"\1", line) for line in lines]
    return ["def read_" if line.startswith("def read_") else re.sub(r"[\d,.]*\d", "#", line) for line in lines]


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")  # from peft
def test_commands_print_the_output_on_the_page(tmp_path, monkeypatch):
    library = made_library()
    for name, package in REPOSITORIES.items():
        write_tree(tmp_path / name, {path: text for path, text in library.items() if path.startswith(package)})
    monkeypatch.chdir(tmp_path)
    for name, script in re.findall(r"```python\n# (\S+)\n(.*?)```", PAGE, re.DOTALL):
        (tmp_path / name).write_text(script)
    commands = re.findall(r"^\$ (.+)\n((?:(?!\$ |```).*\n)*)", PAGE, re.MULTILINE)
    assert len(commands) == PAGE.count("\n$ ") == 8
    for command, expected in commands:
        printed = iter(comparable_lines(run_command(command)))
        for line in comparable_lines(expected):
            assert line == "…" or line in printed, (command, line)
    files = {path.name for path in (tmp_path / "run/model").iterdir()}
    assert {"adapter_model.safetensors", "adapter_config.json", "tokenizer.json"} <= files
