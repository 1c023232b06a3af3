"""tools/check_sentences.py reports every pattern in its tables, and accepts plain sentences."""

import subprocess
import sys

import pytest

from support.source_trees import ROOT


def findings(folder, name, text):
    (folder / name).write_text(text)
    command = [sys.executable, ROOT / "tools/check_sentences.py", name]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == bool(done.stdout), done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize(
    ("name", "line", "text"),
    [
        ("opening.py", 1, '"""Of a file."""\n'),  # sentence: data
        ("field.py", 3, 'class Row:\n    path: str\n    """None: no path."""\n'),
        ("comment.py", 1, "x = 1  # the manifest tells\n"),  # sentence: data
        ("message.py", 1, "raise ValueError(f'{1} lies in {2}')\n"),  # sentence: data
        ("function.py", 1, "def tell_line(): ...\n"),
        ("variable.py", 1, "is_there = 1\n"),
        ("parameter.py", 1, "def read(told): ...\n"),  # sentence: data
        ("script.js", 2, "const x = 1\n// nobody calls this\n"),  # sentence: data
    ],
)
def test_pattern_is_reported_with_its_line(tmp_path, name, line, text):
    (finding,) = findings(tmp_path, name, text)
    assert finding.startswith(f"{name}:{line}: ")


@pytest.mark.parametrize(
    "text",
    [
        '"""Read the rows of one shard."""\n',
        "x = {'tells': 1}\n",  # sentence: data
        "x = 'what a manifest tells'  # sentence: data\n",
        "def teller(): ...\n",
    ],
)
def test_plain_sentences_keys_and_marked_data_pass(tmp_path, text):
    assert findings(tmp_path, "plain.py", text) == []
