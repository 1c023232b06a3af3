"""Convert a Jupyter notebook to text: its code and markdown cells in the percent format of jupytext.

    # %% [markdown]
    # # Title

    # %%
    print(1)

Code, including magics, is kept as it is, without line feeds at its edges. Outputs, attachments, raw cells and empty
cells are left out.
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
MAX_HEADING_LEVEL = 6
# Matches a surrogate pair, a lone surrogate (the group), or any other escape. So `\\ud800`, an escaped backslash before
# `ud800`, is not taken for a surrogate.
SURROGATES = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(\\u[dD][89a-fA-F][0-9a-fA-F]{2})|\\.", re.DOTALL
)


class _Cell(msgspec.Struct):
    """Fields of a cell that are used. The decoder skips all other fields, in particular outputs and their images."""

    cell_type: str = ""
    source: str | list[str] = ""
    input: str | list[str] = ""
    """Code, in nbformat 3."""
    language: str = ""
    """Language of the code, in nbformat 3."""
    level: int = 1
    """Level of a heading, in nbformat 3."""


class _Worksheet(msgspec.Struct):
    cells: list[_Cell] = []


class _Notebook(msgspec.Struct):
    cells: list[_Cell] | None = None
    worksheets: list[_Worksheet] | None = None
    metadata: msgspec.Raw = msgspec.Raw(b"{}")


def convert_notebook(text: bytes) -> bytes | str:
    """Return the code and markdown cells as UTF-8 text, or a description of the error as a `str`.

    A lone surrogate becomes U+FFFD, because UTF-8 cannot represent it.
    """
    try:
        notebook = _decoder().decode(_without_lone_surrogates(text))
    except RecursionError:
        return "nested too deeply"
    except UnicodeDecodeError:
        return "not UTF-8"
    except msgspec.ValidationError as error:
        return _type_error_text(str(error))
    except msgspec.DecodeError as error:
        location = re.search(r"\(byte \d+\)", str(error))
        return f"not JSON {location[0]}" if location else f"not JSON (ends at byte {len(text)})"
    cells = _cells(notebook)
    if cells is None:
        return "has no cells"
    comment_prefix = "//" if _language(notebook, cells) in SLASH_LANGUAGES else "#"
    converted = "\n".join(_percent_cells(cells, comment_prefix))
    return "contains NUL characters" if "\0" in converted else converted.encode("utf-8")


@cache
def _decoder() -> msgspec.json.Decoder[_Notebook]:
    return msgspec.json.Decoder(_Notebook)


def _without_lone_surrogates(text: bytes) -> bytes:
    if rb"\ud" not in text and rb"\uD" not in text:
        return text
    return SURROGATES.sub(lambda match: rb"\ufffd" if match[1] else match[0], text)


def _type_error_text(message: str) -> str:
    """Rewrite msgspec's message: Expected `array`, got `int` - at `$.cells` -> cells: expected array, got int."""
    problem, _, location = message.replace("`", "").partition(" - at ")
    return f"{location.removeprefix('$.') or 'notebook'}: {problem[:1].lower()}{problem[1:]}"


def _cells(notebook: _Notebook) -> list[_Cell] | None:
    if notebook.cells is not None:
        return notebook.cells
    if notebook.worksheets is not None:
        return [cell for worksheet in notebook.worksheets for cell in worksheet.cells]
    return None


def _language(notebook: _Notebook, cells: list[_Cell]) -> str:
    """Return the language in lowercase without its version (`c++` for C++17), or "". Malformed metadata is ignored."""
    try:
        metadata = msgspec.json.decode(notebook.metadata)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        metadata = None
    names = (
        _lookup_text(metadata, "kernelspec", "language"),
        _lookup_text(metadata, "language_info", "name"),
        *(cell.language for cell in cells),
    )
    return next((name.lower().rstrip("0123456789") for name in names if name), "")


def _lookup_text(value: Any, *keys: str) -> str:
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, str) else ""


def _percent_cells(cells: list[_Cell], comment_prefix: str) -> Iterator[str]:
    """Yield each cell as text that ends in a line feed. The caller joins the cells with empty lines between them."""
    for cell in cells:
        body = _join_source(cell.source) or _join_source(cell.input)
        if not body.strip():
            continue
        if cell.cell_type == "code":
            yield f"{comment_prefix} %%\n{body}\n"
        elif cell.cell_type in {"markdown", "heading"}:
            marks = "#" * max(1, min(cell.level, MAX_HEADING_LEVEL)) + " " if cell.cell_type == "heading" else ""
            lines = (marks + body).replace("\r\n", "\n").replace("\r", "\n").split("\n")
            yield "\n".join(
                (f"{comment_prefix} %% [markdown]", *(f"{comment_prefix} {line}".rstrip(" ") for line in lines), "")
            )


def _join_source(source: str | list[str]) -> str:
    return (source if isinstance(source, str) else "".join(source)).strip("\n")
