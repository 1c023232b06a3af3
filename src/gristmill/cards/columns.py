"""What each column of a row is: for the Hub's card, and for Croissant."""

from typing import Any

from gristmill.core.columns import IDS, KINDS, MASK, Kind

TEXTS = {
    IDS: "the window's ids, special tokens included",
    "path": "the file, relative to its source",
    "repo": "the source it is from",
    "language": "the programming language, by the file's name or first line",
    "lines": "the lines, from 1, on which the window's first and last token begin",
    "start": "which of the file's tokens the window's first content token is, from 0",
    "fresh": "how many of the window's tokens no earlier window of the file has shown",
    MASK: "1 for ids, 0 for padding",
    "labels": "the clean window, padded with -100",
    "repeat": "how often the window has been shown before, from 0",
    "weight": "how often the row should be drawn",
    "variant": "which kind of variant of the file it is; empty for the file itself",
    "variant_seed": "with it and the file's text the same variant comes out again",
    "text": "the window's text",
    "segments": "the windows that are packed into the row",
    "segment_ids": "which of the packed windows each id is of",
    "position_ids": "the place of each id in its own window",
}


def kind_of(column: str) -> Kind | None:
    """None: it is not known here."""
    return Kind.NUMBERS if column == IDS else KINDS.get(column)


def features(columns: list[str]) -> list[dict[str, Any]] | None:
    """As `datasets` writes them; None where it had better find out by itself."""
    found = [_feature(column) for column in columns]
    return None if None in found else [one for one in found if one is not None]


def _feature(column: str) -> dict[str, Any] | None:
    """Ids take half the room of the int64 that a reader of JSON assumes."""
    match kind_of(column):
        case Kind.TEXT:
            return {"name": column, "dtype": "string"}
        case Kind.NUMBER:
            return {"name": column, "dtype": "int64"}
        case Kind.FRACTION:
            return {"name": column, "dtype": "float64"}
        case Kind.NUMBERS:
            return {"name": column, "list": {MASK: "int8", "lines": "int64"}.get(column, "int32")}
        case _:
            return None


def croissant_type(column: str) -> tuple[str, bool] | None:
    """The type of a value, and whether there are several in a row; None where a row has more than plain values."""
    match kind_of(column):
        case Kind.TEXT:
            return "sc:Text", False
        case Kind.NUMBER:
            return "sc:Integer", False
        case Kind.FRACTION:
            return "sc:Float", False
        case Kind.NUMBERS:
            return "sc:Integer", True
        case _:
            return None
