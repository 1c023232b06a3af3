"""A Jupyter notebook -> its code and markdown as one text in the percent format, as jupytext writes it.

    # %% [markdown]
    # # Title

    # %%
    print(1)

Code stays as it is written, magics too. Outputs, attachments, raw cells and cells without text are left out.
"""

import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import msgspec

SLASH_LANGUAGES = frozenset(
    {
        *("c", "c#", "c++", "cpp", "csharp", "go", "java", "javascript", "kotlin", "rust", "scala", "swift"),
        "typescript",
    }
)
DEEPEST_HEADING = 6
# A pair of surrogates, one alone (the group), or any other escape: `\\ud800` is a backslash and a word.
SURROGATES = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(\\u[dD][89a-fA-F][0-9a-fA-F]{2})|\\.", re.DOTALL
)


class _Cell(msgspec.Struct):
    """Only what is wanted: the decoder skips the rest, outputs with their images above all."""

    cell_type: str = ""
    source: str | list[str] = ""
    input: str | list[str] = ""
    """The code, in nbformat 3."""
    language: str = ""
    """Of the code, in nbformat 3."""
    level: int = 1
    """Of a heading, in nbformat 3."""


class _Worksheet(msgspec.Struct):
    cells: list[_Cell] = []


class _Notebook(msgspec.Struct):
    cells: list[_Cell] | None = None
    worksheets: list[_Worksheet] | None = None
    metadata: msgspec.Raw = msgspec.Raw(b"{}")


def cells_of(text: bytes) -> bytes | str:
    """The notebook's code and markdown cells as one UTF-8 text, or what is wrong with it.

    Half of a surrogate pair, which no text can hold, becomes U+FFFD.
    """
    try:
        notebook = _decoder().decode(_without_lone_surrogates(text))
    except RecursionError:
        return "nested too deeply"
    except UnicodeDecodeError:
        return "not UTF-8"
    except msgspec.ValidationError as error:
        return _wrong_type(str(error))
    except msgspec.DecodeError as error:
        place = re.search(r"\(byte \d+\)", str(error))
        return f"not JSON {place[0]}" if place else f"not JSON (ends at byte {len(text)})"
    cells = _cells(notebook)
    if cells is None:
        return "has no cells"
    sign = "//" if _language(notebook, cells) in SLASH_LANGUAGES else "#"
    joined = "\n".join(_percent(cells, sign))
    return "holds NUL characters" if "\0" in joined else joined.encode("utf-8")


@cache
def _decoder() -> msgspec.json.Decoder[_Notebook]:
    return msgspec.json.Decoder(_Notebook)


def _without_lone_surrogates(text: bytes) -> bytes:
    if rb"\ud" not in text and rb"\uD" not in text:
        return text
    return SURROGATES.sub(lambda match: rb"\ufffd" if match[1] else match[0], text)


def _wrong_type(message: str) -> str:
    """Expected `array`, got `int` - at `$.cells` -> cells: expected array, got int"""
    what, _, place = message.replace("`", "").partition(" - at ")
    return f"{place.removeprefix('$.') or 'notebook'}: {what[:1].lower()}{what[1:]}"


def _cells(notebook: _Notebook) -> list[_Cell] | None:
    if notebook.cells is not None:
        return notebook.cells
    if notebook.worksheets is not None:
        return [cell for worksheet in notebook.worksheets for cell in worksheet.cells]
    return None


def _language(notebook: _Notebook, cells: list[_Cell]) -> str:
    """`c++` for a C++17 kernel; whatever in the metadata has another shape says nothing."""
    try:
        metadata = msgspec.json.decode(notebook.metadata)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        metadata = None
    named = (
        _text_at(metadata, "kernelspec", "language"),
        _text_at(metadata, "language_info", "name"),
        *(cell.language for cell in cells),
    )
    return next((name.lower().rstrip("0123456789") for name in named if name), "")


def _text_at(tree: Any, *names: str) -> str:
    for name in names:
        tree = tree.get(name) if isinstance(tree, dict) else None
    return tree if isinstance(tree, str) else ""


def _percent(cells: list[_Cell], sign: str) -> Iterator[str]:
    """A line feed between two cells leaves an empty line between them."""
    for cell in cells:
        body = _text(cell.source) or _text(cell.input)
        if not body.strip():
            continue
        if cell.cell_type == "code":
            yield f"{sign} %%\n{body}\n"
        elif cell.cell_type in {"markdown", "heading"}:
            marks = "#" * max(1, min(cell.level, DEEPEST_HEADING)) + " " if cell.cell_type == "heading" else ""
            lines = (marks + body).replace("\r\n", "\n").replace("\r", "\n").split("\n")
            yield "\n".join((f"{sign} %% [markdown]", *(f"{sign} {line}".rstrip(" ") for line in lines), ""))


def _text(source: str | list[str]) -> str:
    return (source if isinstance(source, str) else "".join(source)).strip("\n")
