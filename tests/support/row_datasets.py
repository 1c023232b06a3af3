"""Small datasets whose rows have neighbors, repeats, variants, several windows or hostile text."""

from functools import cache
from pathlib import Path

from gristmill import (
    Config,
    OutputConfig,
    SamplingConfig,
    SplitConfig,
    VariantsConfig,
    WindowConfig,
    build,
    open_dataset,
)
from gristmill.views.row import RowView, view_row
from support.codebert_with import MARKERS, codebert_with
from support.source_trees import write_tree

HOSTILE_NAME = "<img src=x onerror=alert(1)>.py"
HOSTILE_TEXT = (
    "# <script>alert(1)</script> &amp; </pre>\n"
    "title = '\x1b[31mred\x1b[0m \x1b]0;owned\x07 \u202egnorw\u202c \x9b2J'\n"
    "party = 'é🎉日本\u200b\ufeff'\r\n"
    "\tindented = '</style>'\n"
)


def code(name: str, count: int) -> str:
    """Return Python code in which all function names contain `name`, so that no two files are similar."""
    lines = (
        f"def {name}_{number}(first):\n    total = first * {number}\n    return total\n" for number in range(count)
    )
    return f'"""What {name} is for."""\n\n' + "\n\n".join(lines)


@cache
def row_views(folder: Path) -> list[RowView]:
    """Return a view of each row of the train split."""
    dataset = open_dataset(folder)
    tokenizer = dataset.tokenizer
    return [view_row(dataset, "train", number, tokenizer) for number in range(len(dataset["train"]))]


def make_plain(root: Path) -> Path:
    """Build a dataset of hostile and plain text, with windows of 48 tokens that overlap by 12."""
    files = {
        HOSTILE_NAME: HOSTILE_TEXT,
        "long.py": code("long", 12),
        "a.md": "# A\n\nJust words.\n",
        "b.md": "# Bee\n\nMore of them.\n",
    }
    source = write_tree(root / "plain", files)
    window, split = WindowConfig(length=48, overlap=12), SplitConfig(shares="100/0/0")
    build(Config(sources=[str(source)], out=str(root / "out"), window=window, split=split))
    return root / "out"


def make_varied(root: Path) -> Path:
    """Build a padded dataset with repeats, variants and texts, compressed with zstd."""
    counts = {"one": 9, "two": 9, "three": 9, "tiny": 1}
    source = write_tree(root / "varied", {f"{name}.py": code(name, count) for name, count in counts.items()})
    config = Config(
        sources=[str(source)],
        out=str(root / "out"),
        tokenizer=codebert_with(MARKERS, root / "tokenizer"),
        window=WindowConfig(length=64, overlap=20, tail="shift"),
        split=SplitConfig(shares="100/0/0"),
        variants=VariantsConfig(rates={"rename": 1.0, "noise": 1.0}),
        sampling=SamplingConfig(weights={"one.py": 3.0, "tiny.py": 3.0}),
        output=OutputConfig(with_text=True, pad=True, compress="zstd"),
    )
    build(config)
    return root / "out"


def make_packed(root: Path, pack: str) -> Path:
    """Build a dataset with several windows per row, only in Parquet."""
    counts = {"one": 2, "two": 2, "three": 2, "four": 9}
    source = write_tree(root / "packed", {f"{name}.py": code(name, count) for name, count in counts.items()})
    config = Config(
        sources=[str(source)],
        out=str(root / "out"),
        tokenizer=codebert_with(MARKERS, root / "tokenizer"),
        window=WindowConfig(length=128, overlap=0 if pack == "repo" else 20, pack=pack),
        split=SplitConfig(shares="100/0/0"),
        output=OutputConfig(formats=["parquet"]),
    )
    build(config)
    return root / "out"
