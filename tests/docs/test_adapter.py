"""docs/adapter.md: its commands run, one after the other, and print what the page shows, but for the digits."""

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
"""Folders of the made-up library."""


def run(command):
    program, *words = shlex.split(command)
    if program == "gristmill":
        done = called(*words)
        assert done.returncode == 0, done.stderr
        return done.stderr + done.stdout
    (script,) = words
    with contextlib.redirect_stdout(io.StringIO()) as out:
        runpy.run_path(script)
    return out.getvalue()


def shapes(text):
    """Its lines, without what differs between two machines: digits, the blanks that align them, the device."""
    lines = [" ".join(line.split()) for line in text.splitlines() if line.strip()]
    lines = [re.sub(r"\b(device|on) (CPU|NVIDIA).*", r"\1", line) for line in lines]
    return ["def read_" if line.startswith("def read_") else re.sub(r"[\d,.]*\d", "#", line) for line in lines]


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")  # peft's call
def test_the_commands_of_the_page_print_what_it_shows(tmp_path, monkeypatch):
    library = made_library()
    for name, package in REPOSITORIES.items():
        write_tree(tmp_path / name, {path: text for path, text in library.items() if path.startswith(package)})
    monkeypatch.chdir(tmp_path)
    for name, script in re.findall(r"```python\n# (\S+)\n(.*?)```", PAGE, re.DOTALL):
        (tmp_path / name).write_text(script)
    commands = re.findall(r"^\$ (.+)\n((?:(?!\$ |```).*\n)*)", PAGE, re.MULTILINE)
    assert len(commands) == PAGE.count("\n$ ") == 8
    for command, shown in commands:
        printed = iter(shapes(run(command)))
        for line in shapes(shown):
            assert line == "…" or line in printed, (command, line)
    files = {path.name for path in (tmp_path / "run/model").iterdir()}
    assert {"adapter_model.safetensors", "adapter_config.json", "tokenizer.json"} <= files
