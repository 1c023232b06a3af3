"""The types of columns in the Hub's card and in Croissant."""

from typing import Any

from gristmill.core.columns import COLUMNS, Kind

DTYPES = {Kind.TEXT: "string", Kind.NUMBER: "int64", Kind.FRACTION: "float64"}
CROISSANT_TYPES = {
    Kind.TEXT: "sc:Text",
    Kind.NUMBER: "sc:Integer",
    Kind.FRACTION: "sc:Float",
    Kind.NUMBERS: "sc:Integer",
}


def text_of(name: str) -> str:
    """What a column is; nothing if it is not known."""
    return COLUMNS[name].text if name in COLUMNS else ""


def features(names: list[str]) -> list[dict[str, Any]] | None:
    """Columns as `datasets` writes them; None where it had better find out by itself."""
    found = [_feature(name) for name in names]
    return None if None in found else [one for one in found if one is not None]


def _feature(name: str) -> dict[str, Any] | None:
    """Ids take half the room of the int64 that a reader of JSON assumes."""
    column = COLUMNS.get(name)
    if column is None or column.kind is Kind.OBJECTS:
        return None
    if column.kind is Kind.NUMBERS:
        return {"name": name, "list": column.hub_dtype or column.dtype}
    return {"name": name, "dtype": DTYPES[column.kind]}


def croissant_type(name: str) -> tuple[str, bool] | None:
    """The type of a value, and whether there are several in a row; None where a row has more than plain values."""
    column = COLUMNS.get(name)
    if column is None or column.kind is Kind.OBJECTS:
        return None
    return CROISSANT_TYPES[column.kind], column.kind is Kind.NUMBERS
