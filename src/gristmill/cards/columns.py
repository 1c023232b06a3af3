"""Types and descriptions of columns, for the dataset card on the Hub and for Croissant."""

from typing import Any

from gristmill.core.columns import COLUMNS, Kind

DTYPES = {Kind.TEXT: "string", Kind.NUMBER: "int64", Kind.FRACTION: "float64"}
CROISSANT_TYPES = {
    Kind.TEXT: "sc:Text",
    Kind.NUMBER: "sc:Integer",
    Kind.FRACTION: "sc:Float",
    Kind.NUMBERS: "sc:Integer",
}


def describe_column(name: str) -> str:
    """Return the description of a column, or an empty string for an unknown column."""
    return COLUMNS[name].description if name in COLUMNS else ""


def features(names: list[str]) -> list[dict[str, Any]] | None:
    """Return the features of columns in the syntax of `datasets`, or None if `datasets` has to infer the features."""
    found = [_feature(name) for name in names]
    return None if None in found else [one for one in found if one is not None]


def _feature(name: str) -> dict[str, Any] | None:
    """Return the feature of a column, or None for an unknown column or a column of objects.

    Without features, JSON readers load ids as int64, which takes twice the space.
    """
    column = COLUMNS.get(name)
    if column is None or column.kind is Kind.OBJECTS:
        return None
    if column.kind is Kind.NUMBERS:
        return {"name": name, "list": column.hub_dtype or column.dtype}
    return {"name": name, "dtype": DTYPES[column.kind]}


def croissant_type(name: str) -> tuple[str, bool] | None:
    """Return the Croissant type of the values of a column, and whether each row has a list of values.

    Return None for an unknown column or a column of objects.
    """
    column = COLUMNS.get(name)
    if column is None or column.kind is Kind.OBJECTS:
        return None
    return CROISSANT_TYPES[column.kind], column.kind is Kind.NUMBERS
