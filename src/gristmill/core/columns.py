"""COLUMNS: the table of all columns that a row can have.

Formats, cards, checks and the reference read names, types and descriptions from this table. CONTRIBUTING.md explains
how to add a column.
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
"""Label at padding positions. Loss functions ignore it."""


class Kind(Enum):
    """Type of a column's values in a row and in a batch."""

    TEXT = auto()
    """One string per row. A batch holds list[str]."""
    NUMBER = auto()
    """One integer per row. A batch holds an int64 array."""
    FRACTION = auto()
    """One float per row. A batch holds a float64 array."""
    NUMBERS = auto()
    """Several integers per row. A batch holds a Ragged of int64."""
    OBJECTS = auto()
    """Several JSON objects per row. A batch holds list[list[dict]]."""


class When(StrEnum):
    """Condition under which rows have a column. `conditions_met` returns all conditions that a configuration meets."""

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


STEP_2_CONDITIONS = frozenset({When.DRAWN, When.WEIGHTS, When.VARIANTS, When.FIM})
"""Conditions of the columns that step 2 of a build (splits, weights, variants) fills. Step 1 (cleaning, tokenizing)
measures rows without these columns, so that its results can be used with any settings of step 2."""


class Column(NamedTuple):
    name: str
    kind: Kind
    when: When
    description: str
    """Short description, for dataset cards and the reference."""
    details: str = ""
    """Further description, for the reference only."""
    dtype: str = "int32"
    """For Kind.NUMBERS, the smallest type that holds every value. The type of `input_ids` depends on the tokenizer."""
    hub_dtype: str | None = None
    """Type in the dataset card for the Hugging Face Hub. None if it is the same as `dtype`."""
    padding: int | None = None
    """Value at padding positions. None if the column does not have one number per id."""
    needs_text: bool = False
    """True if the column is computed from the text, so step 1 must store the text with the ids."""
    has_few_values: bool = False
    """True if consecutive rows mostly have the same value, so table formats store the column dictionary-encoded."""

    @property
    def is_per_window(self) -> bool:
        """True if the column describes one window. With --pack, it is in `segments` instead of the row."""
        return self.when is not When.PACK and self.name not in {IDS, MASK}


_COLUMNS = (
    Column(
        IDS,
        Kind.NUMBERS,
        When.WINDOWS,
        "the window's ids, special tokens included",
        "padded only with `--pad`; with `--pack best-fit`, the ids of several windows; with `--pack repo`, a slice of "
        "the concatenated files of a repository",
    ),
    Column(
        SEGMENT_IDS,
        Kind.NUMBERS,
        When.PACK,
        "for each id, the number of its window in the row, counted from 1",
        "with `--pack repo`, the number of its repository in the row; 0 for padding",
        padding=0,
    ),
    Column(
        POSITION_IDS,
        Kind.NUMBERS,
        When.PACK,
        "position of each id in its window, counted from 0",
        "with `--pack repo`, position in the part of its repository that is in the row; 0 for padding",
        padding=0,
    ),
    Column(
        SEGMENTS,
        Kind.OBJECTS,
        When.PACK,
        "the windows packed into the row",
        "one object per window, or per part of a file with `--pack repo`, in the order of the row; it has all columns "
        "of an unpacked row except `input_ids` and `attention_mask`, and also `at` and `length`: its tokens are "
        "`input_ids[at : at + length]`",
    ),
    Column(
        "path",
        Kind.TEXT,
        When.ALWAYS,
        "path of the file, relative to its source",
        "separated by `/`; a byte that is not UTF-8 is written as `\\xNN`, a backslash as `\\\\`",
        has_few_values=True,
    ),
    Column(
        "repo",
        Kind.TEXT,
        When.ALWAYS,
        "name of the source of the file",
        "name of the source folder, or the repository that a table row names",
        has_few_values=True,
    ),
    Column(
        "language",
        Kind.TEXT,
        When.ALWAYS,
        "programming language, detected from the file's name or first line",
        has_few_values=True,
    ),
    Column(
        "lines",
        Kind.NUMBERS,
        When.ALWAYS,
        "lines, counted from 1, on which the window's first and last token begin",
        "in a variant with a changed text, lines of the changed text",
        hub_dtype="int64",
    ),
    Column(
        "start",
        Kind.NUMBER,
        When.ALWAYS,
        "index of the window's first content token in the file's tokens, from 0",
        "in a variant with a changed text, index in the tokens of the changed text",
    ),
    Column(
        "tokens",
        Kind.NUMBER,
        When.DOCUMENTS,
        "number of tokens in the text, counted with the dataset's tokenizer",
        "the complete file is tokenized, so the text between two cuts may have a few more or fewer tokens if it is "
        "tokenized alone",
    ),
    Column(
        "fresh",
        Kind.NUMBER,
        When.WINDOWS,
        "number of the window's tokens that are in no earlier window of the file",
        "these tokens are at the end of the window; 0 if an earlier row has the same window; in a variant, tokens that "
        "are in no earlier window of the variant; in a `noise` or fill-in-the-middle window, all tokens from the file",
    ),
    Column(MASK, Kind.NUMBERS, When.PAD, "1 for ids, 0 for padding", dtype="int8", padding=0),
    Column(
        TEXT,
        Kind.TEXT,
        When.TEXT,
        "the row's text",
        "the first column with `--rows documents`; with fill-in-the-middle, its special tokens included; a "
        "character whose bytes are in two windows is in the text of the first window",
        needs_text=True,
    ),
    Column("repeat", Kind.NUMBER, When.DRAWN, "number of earlier rows with the same window; 0 for the first"),
    Column(
        LABELS,
        Kind.NUMBERS,
        When.NOISE,
        "the ids of the window without noise; -100 for padding",
        "a copy of `input_ids` in all rows except those of `noise`",
        padding=IGNORED_LABEL,
    ),
    Column(
        "weight",
        Kind.FRACTION,
        When.WEIGHTS,
        "relative frequency with which a trainer should draw the row",
        "1 on average over all rows, unless `--max-epochs` limits the weights",
    ),
    Column(
        "variant",
        Kind.TEXT,
        When.VARIANTS,
        "kind of variant; empty for the file itself",
        "`path` and `repo` are those of the original file",
        has_few_values=True,
    ),
    Column(
        "variant_seed",
        Kind.NUMBER,
        When.VARIANTS,
        "seed that reproduces the variant from the file's text",
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
        "statement, block, body, arguments, lines or characters; empty if the row has no middle",
        has_few_values=True,
    ),
    Column(
        "middle_tokens",
        Kind.NUMBER,
        When.FIM,
        "number of tokens at the end of the row that are the middle",
        "an end token after the middle is not counted",
    ),
)
COLUMNS = {column.name: column for column in _COLUMNS}
"""All columns, keyed by name, in the order of a row.

`formats.document_columns.FILLERS` fills the columns of a window, `formats.batch.add_padding` fills `attention_mask`,
and `formats.packed_rows` fills the columns of packed rows."""

PER_ID = {name: column.padding for name, column in COLUMNS.items() if column.padding is not None}
"""Columns with one number per id, each with its value at padding positions."""
SEGMENT_POSITION_KEYS = ("at", "length")
"""Keys of a segment that are not columns: the index in the row of its first token, and the number of its tokens.
Special tokens are not counted as tokens of the segment."""


def window_columns(conditions: Collection[When]) -> tuple[str, ...]:
    """Return the columns of a row with one window or document. Trainers expect `text` first in rows of documents."""
    names = tuple(name for name, one in COLUMNS.items() if one.when in conditions and one.when is not When.PACK)
    return (TEXT, *(name for name in names if name != TEXT)) if When.DOCUMENTS in conditions else names


def row_columns(conditions: Collection[When]) -> tuple[str, ...]:
    """Return the columns of a row, packed or not, if these conditions hold."""
    if When.PACK not in conditions:
        return window_columns(conditions)
    return tuple(name for name, one in COLUMNS.items() if one.when in conditions and not one.is_per_window)
