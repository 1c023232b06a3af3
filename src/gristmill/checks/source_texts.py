"""Check `source`: the text of the windows equals the source files, except for recorded redactions and respellings.

A redaction replaces a secret with a placeholder. A respelling inserts a space into the text of a control token.
"""

import hashlib
import json
import os
import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from gristmill.checks.decoder import Decoder
from gristmill.checks.documents import find_source_text_faults
from gristmill.checks.file_rows import KeptFile
from gristmill.checks.findings import value_text
from gristmill.checks.runs import END, FIRST_LINE, LAST_LINE, START, Run
from gristmill.cleaning.notebooks import SLASH_LANGUAGES
from gristmill.cleaning.secrets import NO_ANGLE_LANGUAGES
from gristmill.core.errors import InputError
from gristmill.core.layout import FILES
from gristmill.core.names import path_text
from gristmill.core.plain_files import open_plain

NOTEBOOK = "jupyter"
UTF16_MARKS = {b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}
NUM_MARK_BYTES = {"utf-8-sig": 3, "utf-16-le": 2, "utf-16-be": 2}
CP1252_ONLY = bytes(range(0x80, 0xA0))
SURROGATE = re.compile("[\ud800-\udfff]")
MAX_DIGITS_READ = 18
MAX_HEADING_LEVEL = 6


def folders_by_repo(names: Sequence[str]) -> dict[str, str]:
    """Return the folders of the sources, keyed by the repository name that `gristmill build` gives them.

    Folders given as sources are named first, then the parent folders of files given as sources. If a name is already in
    use, the folder gets a suffix, as in `src~2`.
    Raises InputError if a source does not exist.
    """
    for name in names:
        if not os.path.exists(os.path.expanduser(name)):
            raise InputError(f"source {name!r} does not exist. Check the path.")
    paths = [os.path.realpath(os.path.expanduser(name)) for name in names]
    given_folders = [path for path in paths if os.path.isdir(path)]
    file_folders = [os.path.dirname(path) for path in paths if not os.path.isdir(path)]
    folders: dict[str, str] = {}
    for folder in (*given_folders, *dict.fromkeys(file_folders)):
        name = path_text(os.path.basename(folder)) or "root"
        number = 1
        while (repo := name if number == 1 else f"{name}~{number}") in folders:
            number += 1
        folders[repo] = folder
    return folders


def locate_file(folder: str, path: str) -> str | None:
    r"""Return the location of a file in a source folder, or None if the path leads out of the folder.

    In the path, `\xNN` stands for a byte and `\\` for a backslash.
    """
    raw = re.sub(
        rb"\\(?:x([0-9a-f]{2})|\\)",
        lambda match: bytes.fromhex(match[1].decode()) if match[1] else b"\\",
        path.encode(),
    )
    location = os.path.realpath(os.path.join(folder, os.fsdecode(raw.replace(b"\0", b""))))
    return location if location.startswith(folder.rstrip("/") + "/") else None


def find_source_faults(file: KeptFile, run: Run, location: str, decoder: Decoder, *, notebooks: str) -> Iterator[str]:
    """Yield each difference between a file in the dataset and its source."""
    if not os.path.isfile(location):
        yield "the file is not in the source"
        return
    try:
        with open_plain(location) as stream:
            raw = stream.read()
        encoding = _detect_encoding(raw)
        text = raw[NUM_MARK_BYTES.get(encoding, 0) :].decode(encoding.removesuffix("-sig")).encode()
        if file.language == NOTEBOOK and notebooks == "cells":
            text = _percent_text(json.loads(text, parse_int=_parse_int))
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        yield f"the source file cannot be read: {_reason(error)}"
        return
    redacted = _respell(_redact(text, file), file)
    sha256 = None if file.redactions else hashlib.sha256(raw).hexdigest()
    if (sha256, hashlib.sha256(redacted).hexdigest()) != (file.sha256, file.text_sha256):
        yield f"sha256 or text_sha256 in {FILES} differs from the source"
        return
    comparisons: Sequence[tuple[str, Any, Any]] = (
        ("bytes", file.bytes, len(raw)),
        ("lines", file.lines, text.count(b"\n") + (not text.endswith(b"\n"))),
        ("encoding", file.encoding, encoding),
        ("the list of redacted lines", [one.line for one in file.redactions], _redacted_lines(text, file)),
    )
    for name, recorded, found in comparisons:
        if recorded != found:
            yield f"{name} is {value_text(recorded)} in {FILES}, but {value_text(found)} in the source"
    if any(span.text is not None for span in run.spans):
        yield from find_source_text_faults(run, redacted, decoder)
    elif decoder.is_exact and (normalized := decoder.normalize(redacted)) is not None:
        yield from _find_text_faults(run, normalized, decoder)


def _reason(error: Exception) -> str:
    if isinstance(error, OSError):
        return error.strerror or str(error)
    return "its text has invalid bytes" if isinstance(error, UnicodeError) else "it is not a valid notebook"


def _detect_encoding(raw: bytes) -> str:
    """Return the encoding that a build detects for a kept file."""
    if raw[:2] in UTF16_MARKS:
        return UTF16_MARKS[raw[:2]]
    try:
        return "utf-8-sig" if raw.decode().startswith("\ufeff") else "utf-8"
    except UnicodeDecodeError:
        return "latin-1" if len(raw.translate(None, CP1252_ONLY)) == len(raw) else "cp1252"


def _redacted_lines(text: bytes, file: KeptFile) -> list[int]:
    return [1 + text.count(b"\n", 0, one.start) for one in file.redactions]


def _redact(text: bytes, file: KeptFile) -> bytes:
    """Replace the recorded secrets with placeholders."""
    pieces: list[bytes] = []
    copied_until = 0
    for one in file.redactions:
        placeholder = f"__SECRET:{one.kind}__" if file.language in NO_ANGLE_LANGUAGES else f"<SECRET:{one.kind}>"
        pieces += [text[copied_until : one.start], placeholder.encode(), b"\n" * text[one.start : one.end].count(b"\n")]
        copied_until = one.end
    return b"".join((*pieces, text[copied_until:]))


def _respell(text: bytes, file: KeptFile) -> bytes:
    """Insert a space at each recorded respelling of a control token."""
    content = bytearray(text)
    for one in reversed(file.respellings):
        content[one.at : one.at] = b" "
    return bytes(content)


def _find_text_faults(run: Run, text: bytes, decoder: Decoder) -> Iterator[str]:
    """Yield a fault if a span or the lines of a window are wrong.

    The source must contain the text of each span, starting on or after the recorded first line of the span.
    """
    line_feeds = np.flatnonzero(np.frombuffer(text, np.uint8) == ord("\n"))
    searched_until = 0
    for span in run.spans:
        decoded = decoder.tokenizer.decode(span.ids)
        is_inside = (run.windows[:, START] >= span.start) & (run.windows[:, END] <= span.end)
        windows = run.windows[is_inside]
        offset = text.find(decoded, searched_until) if span.start else 0
        while span.start and offset >= 0 and np.searchsorted(line_feeds, offset) + 1 < windows[0, FIRST_LINE]:
            offset = text.find(decoded, offset + 1)
        if offset < 0 or not text.startswith(decoded, offset):
            yield f"the text from token {span.start} on differs from the source"
            return
        searched_until = offset + len(decoded)
        num_bytes = decoder.num_bytes(span.ids)
        lines = 1 + np.searchsorted(line_feeds, offset + num_bytes.cumsum() - num_bytes)
        for start, end, first, last in windows[:, [START, END, FIRST_LINE, LAST_LINE]].tolist():
            found = lines[start - span.start], lines[end - 1 - span.start]
            if found != (first, last):
                yield (
                    f"the window at token {start} records lines {first} to {last}, "
                    f"but its text is on lines {found[0]} to {found[1]} of the source"
                )
                return


def _percent_text(notebook: Any) -> bytes:
    """Convert the code and markdown cells of a notebook to the percent format."""
    cells = notebook.get("cells")
    if cells is None:
        cells = [cell for sheet in notebook["worksheets"] for cell in sheet.get("cells", [])]
    comment = "//" if _notebook_language(notebook, cells) in SLASH_LANGUAGES else "#"
    pages: list[str] = []
    for cell in cells:
        kind = cell.get("cell_type")
        body = _join_source(cell.get("source", "")) or _join_source(cell.get("input", ""))
        if not body.strip():
            continue
        if kind == "code":
            pages.append(f"{comment} %%\n{body}\n")
        elif kind in {"markdown", "heading"}:
            level = max(1, min(cell.get("level", 1), MAX_HEADING_LEVEL))
            body = f"{'#' * level} {body}" if kind == "heading" else body
            lines = body.replace("\r\n", "\n").replace("\r", "\n").split("\n")
            pages.append(
                "\n".join([f"{comment} %% [markdown]", *(f"{comment} {line}".rstrip(" ") for line in lines)]) + "\n"
            )
    return "\n".join(pages).encode()


def _join_source(source: Any) -> str:
    """Join the lines of a cell. Surrogates are replaced in each line, so no pair is formed from two lines."""
    strings = [source] if isinstance(source, str) else source
    return "".join(SURROGATE.sub("\ufffd", string) for string in strings).strip("\n")


def _parse_int(digits: str) -> int:
    """Parse an integer, or return 0 if it has more than MAX_DIGITS_READ digits.

    Python rejects integers with thousands of digits, and only heading levels are used.
    """
    return int(digits) if len(digits) <= MAX_DIGITS_READ else 0


def _notebook_language(notebook: Any, cells: Any) -> str:
    metadata = _as_dict(notebook.get("metadata"))
    kernel, info = _as_dict(metadata.get("kernelspec")), _as_dict(metadata.get("language_info"))
    names = [kernel.get("language"), info.get("name"), *(cell.get("language") for cell in cells)]
    return next((name.lower().rstrip("0123456789") for name in names if name and isinstance(name, str)), "")


def _as_dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
