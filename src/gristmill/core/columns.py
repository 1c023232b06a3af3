"""COLUMNS: the table of all columns that a row may have.

Formats, cards, checks and the reference read names, types and meanings from it. CONTRIBUTING.md says how to add one.
"""

from collections.abc import Collection
from enum import Enum, StrEnum, auto
from typing import NamedTuple

IDS = "input_ids"
TEXT = "text"
MASK = "attention_mask"
LABELS = "labels"
SEGMENT_IDS = "segment_ids"
POSITION_IDS = "position_ids"
SEGMENTS = "segments"
IGNORED_LABEL = -100
"""In the place of padding among labels: what loss functions leave out."""


class Kind(Enum):
    """What a column holds in each row, and as what a batch holds it."""

    TEXT = auto()
    """One text: list[str]."""
    NUMBER = auto()
    """One whole number: int64."""
    FRACTION = auto()
    """One number: float64."""
    NUMBERS = auto()
    """Several whole numbers: Ragged of int64."""
    OBJECTS = auto()
    """Several JSON objects: list[list[dict]]."""


class When(StrEnum):
    """The option with which rows have a column: `conditions_met` says which hold for a configuration."""

    ALWAYS = ""
    WINDOWS = "`--rows windows`, the default"
    DOCUMENTS = "`--rows documents`"
    PAD = "`--pad`"
    TEXT = "`--with-text` or `--rows documents`"
    DRAWN = "weights or `--target-windows`"
    NOISE = "`--variants noise`"
    WEIGHTS = "`--weights-only`"
    VARIANTS = "`--variants`"
    FIM = "`--fim`"
    PACK = "`--pack`"


DECIDED_LATER = frozenset({When.DRAWN, When.WEIGHTS, When.VARIANTS, When.FIM})
"""Step 2 fills these columns. Step 1 measures rows without them, so that its parts are good for any weights."""


class Column(NamedTuple):
    name: str
    kind: Kind
    when: When
    text: str
    """What it is, in a few words: for the cards of a dataset and the reference."""
    more: str = ""
    """What else the reference says of it."""
    dtype: str = "int32"
    """Of several numbers: the smallest type that holds each of them. The tokenizer decides for `input_ids`."""
    hub_dtype: str | None = None
    """The type in the card for the Hugging Face Hub, if it is another."""
    padding: int | None = None
    """What stands in the place of padding, if the column has a number for each id."""
    needs_text: bool = False
    """It is made from the text: step 1 keeps that beside the ids."""
    has_few_values: bool = False
    """Rows that follow each other mostly have the same text: a table stores it by a dictionary."""

    @property
    def is_of_window(self) -> bool:
        """It is about one window: with --pack, it is in `segments`, and not in the row."""
        return self.when is not When.PACK and self.name not in {IDS, MASK}


_COLUMNS = (
    Column(
        IDS,
        Kind.NUMBERS,
        When.WINDOWS,
        "the window's ids, special tokens included",
        "no padding unless asked for; with `--pack`, those of several windows, or of a repository that is cut anywhere",
    ),
    Column(
        SEGMENT_IDS,
        Kind.NUMBERS,
        When.PACK,
        "which of the packed windows each id is of",
        "from 1; or which repository, with `--pack repo`; 0 for padding",
        padding=0,
    ),
    Column(
        POSITION_IDS,
        Kind.NUMBERS,
        When.PACK,
        "the place of each id in its own window",
        "from 0; or in its repository",
        padding=0,
    ),
    Column(
        SEGMENTS,
        Kind.OBJECTS,
        When.PACK,
        "the windows that are packed into the row",
        "of each file's part, in order, what a row has without packing but its ids, and `at` and `length`: its tokens "
        "are `input_ids[at : at + length]`",
    ),
    Column(
        "path",
        Kind.TEXT,
        When.ALWAYS,
        "the file, relative to its source",
        "its parts with `/` between them; bytes that are not UTF-8 as `\\xNN`, a backslash as `\\\\`",
        has_few_values=True,
    ),
    Column(
        "repo",
        Kind.TEXT,
        When.ALWAYS,
        "the source it is from",
        "the name of its folder, or what a table says",
        has_few_values=True,
    ),
    Column(
        "language",
        Kind.TEXT,
        When.ALWAYS,
        "the programming language, by the file's name or first line",
        has_few_values=True,
    ),
    Column(
        "lines",
        Kind.NUMBERS,
        When.ALWAYS,
        "the lines, from 1, on which the window's first and last token begin",
        "of a variant that is another text, its own",
        hub_dtype="int64",
    ),
    Column(
        "start",
        Kind.NUMBER,
        When.ALWAYS,
        "which of the file's tokens the window's first content token is, from 0",
        "of a variant that is another text, which of its own",
    ),
    Column(
        "tokens",
        Kind.NUMBER,
        When.DOCUMENTS,
        "how many tokens the text has, by the dataset's tokenizer",
        "counted in the whole file: a piece between two cuts may have a few more or fewer if tokenized alone",
    ),
    Column(
        "fresh",
        Kind.NUMBER,
        When.WINDOWS,
        "how many of the window's tokens no earlier window of the file has shown",
        "they are its last ones; of a variant, no earlier window of that variant; all of them in `noise`; with fill in "
        "the middle, how many of the file's tokens are in the row",
    ),
    Column(MASK, Kind.NUMBERS, When.PAD, "1 for ids, 0 for padding", dtype="int8", padding=0),
    Column(
        TEXT,
        Kind.TEXT,
        When.TEXT,
        "the row's text",
        "the first column with `--rows documents`; with fill in the middle, sentinels included; a character that two "
        "windows would share is whole in the first",
        needs_text=True,
    ),
    Column("repeat", Kind.NUMBER, When.DRAWN, "how often the window has been shown before, from 0"),
    Column(
        LABELS,
        Kind.NUMBERS,
        When.NOISE,
        "the clean window, padded with -100",
        "of a noise row the one its ids were made from, else its ids themselves",
        padding=IGNORED_LABEL,
    ),
    Column(
        "weight",
        Kind.FRACTION,
        When.WEIGHTS,
        "how often the row should be drawn",
        "1 on average, unless --max-epochs forbids",
    ),
    Column(
        "variant",
        Kind.TEXT,
        When.VARIANTS,
        "which kind of variant of the file it is; empty for the file itself",
        "`path` and `repo` are the file's",
        has_few_values=True,
    ),
    Column(
        "variant_seed",
        Kind.NUMBER,
        When.VARIANTS,
        "with it and the file's text the same variant comes out again",
        "0 for the file itself",
    ),
    Column(
        "fim",
        Kind.TEXT,
        When.FIM,
        "order of the parts of a fill-in-the-middle row: `psm` or `spm`; empty for any other row",
        "`psm` is prefix, suffix, middle; `spm` is suffix, prefix, middle",
        has_few_values=True,
    ),
    Column(
        "middle",
        Kind.TEXT,
        When.FIM,
        "kind of the middle: a kind of syntax node, `lines` or `characters`",
        "statement, block, body, arguments, lines or characters; empty without one",
        has_few_values=True,
    ),
    Column(
        "middle_tokens",
        Kind.NUMBER,
        When.FIM,
        "how many of the row's last tokens are the middle",
        "an end token behind them does not count",
    ),
)
COLUMNS = {column.name: column for column in _COLUMNS}
"""By name, in the order in which rows have them.

Who fills them: those of a window `formats.document_columns.FILLERS`, `attention_mask` `formats.batch.stored`, those of
packed rows `formats.packed_rows`."""

PER_ID = {name: column.padding for name, column in COLUMNS.items() if column.padding is not None}
"""Columns with a number for each id, and what they have in the place of padding."""
SEGMENT_PLACE = ("at", "length")
"""What a segment has beside the columns of its window: where its tokens are in the row, without the special ones."""


def window_columns(met: Collection[When]) -> tuple[str, ...]:
    """Columns of a row that holds one window, or one document, under these conditions. Trainers take a first `text`."""
    names = tuple(name for name, one in COLUMNS.items() if one.when in met and one.when is not When.PACK)
    return (TEXT, *(name for name in names if name != TEXT)) if When.DOCUMENTS in met else names


def row_columns(met: Collection[When]) -> tuple[str, ...]:
    """Columns of a row under these conditions, with --pack or without."""
    if When.PACK not in met:
        return window_columns(met)
    return tuple(name for name, one in COLUMNS.items() if one.when in met and not one.is_of_window)
