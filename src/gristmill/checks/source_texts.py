"""`source`: the files are read again, and what the windows spell is what stands there, but for what is recorded."""

import hashlib
import json
import os
import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from gristmill.checks.documents import wrong_texts_in_source
from gristmill.checks.file_rows import KeptFile
from gristmill.checks.runs import END, FIRST_LINE, LAST_LINE, START, Run
from gristmill.checks.spelling import Spelling
from gristmill.cleaning.notebooks import SLASH_LANGUAGES
from gristmill.cleaning.secrets import NO_ANGLE_LANGUAGES
from gristmill.core.errors import InputError
from gristmill.core.layout import FILES
from gristmill.core.names import path_text
from gristmill.core.plain_files import open_plain

NOTEBOOK = "jupyter"
UTF16_MARKS = {b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}
NUM_MARK_BYTES = {"utf-8-sig": 3, "utf-16-le": 2, "utf-16-be": 2}
WINDOWS_ONLY = bytes(range(0x80, 0xA0))
SURROGATE = re.compile("[\ud800-\udfff]")
MAX_DIGITS_READ = 18
DEEPEST_HEADING = 6


def folders_by_repo(names: Sequence[str]) -> dict[str, str]:
    """Named as `gristmill build` names them: whole folders first, then those of single files; `src`, then `src~2`."""
    for name in names:
        if not os.path.exists(os.path.expanduser(name)):
            raise InputError(f"there is no source {name!r}. Check the path.")
    paths = [os.path.realpath(os.path.expanduser(name)) for name in names]
    whole = [path for path in paths if os.path.isdir(path)]
    single = [os.path.dirname(path) for path in paths if not os.path.isdir(path)]
    folders: dict[str, str] = {}
    for folder in (*whole, *dict.fromkeys(single)):
        name = path_text(os.path.basename(folder)) or "root"
        number = 1
        while (repo := name if number == 1 else f"{name}~{number}") in folders:
            number += 1
        folders[repo] = folder
    return folders


def location_of(folder: str, path: str) -> str | None:
    r"""Where a file of this source lies; None for a path that leads out of it. `\xNN` is a byte, `\\` a backslash."""
    raw = re.sub(
        rb"\\(?:x([0-9a-f]{2})|\\)",
        lambda match: bytes.fromhex(match[1].decode()) if match[1] else b"\\",
        path.encode(),
    )
    location = os.path.realpath(os.path.join(folder, os.fsdecode(raw.replace(b"\0", b""))))
    return location if location.startswith(folder.rstrip("/") + "/") else None


def differences(file: KeptFile, run: Run, location: str, spelling: Spelling, *, notebooks: str) -> Iterator[str]:
    """What in this file is not as in its source."""
    if not os.path.isfile(location):
        yield "it is not in the source"
        return
    try:
        with open_plain(location) as stream:
            raw = stream.read()
        encoding = _encoding_of(raw)
        text = raw[NUM_MARK_BYTES.get(encoding, 0) :].decode(encoding.removesuffix("-sig")).encode()
        if file.language == NOTEBOOK and notebooks == "cells":
            text = _cells(json.loads(text, parse_int=_whole_number))
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        yield f"its source cannot be read again: {type(error).__name__}"
        return
    redacted = _respelled(_redacted(text, file), file)
    sha256 = None if file.redactions else hashlib.sha256(raw).hexdigest()
    if (sha256, hashlib.sha256(redacted).hexdigest()) != (file.sha256, file.text_sha256):
        yield "its sha256 is not that of the source"
        return
    said_and_found: Sequence[tuple[str, Any, Any]] = (
        ("bytes", file.bytes, len(raw)),
        ("lines", file.lines, text.count(b"\n") + (not text.endswith(b"\n"))),
        ("encoding", file.encoding, encoding),
        ("lines of redactions", [one.line for one in file.redactions], _redacted_lines(text, file)),
    )
    for name, said, found in said_and_found:
        if said != found:
            yield f"{FILES} has {name} {said}, the source {found}"
    if any(stretch.text is not None for stretch in run.stretches):
        yield from wrong_texts_in_source(run, redacted, spelling)
    elif spelling.is_exact:
        yield from _wrong_places(run, redacted, spelling)


def _encoding_of(raw: bytes) -> str:
    """The one that a build takes for text that it has kept."""
    if raw[:2] in UTF16_MARKS:
        return UTF16_MARKS[raw[:2]]
    try:
        return "utf-8-sig" if raw.decode().startswith("\ufeff") else "utf-8"
    except UnicodeDecodeError:
        return "latin-1" if len(raw.translate(None, WINDOWS_ONLY)) == len(raw) else "cp1252"


def _redacted_lines(text: bytes, file: KeptFile) -> list[int]:
    return [1 + text.count(b"\n", 0, one.start) for one in file.redactions]


def _redacted(text: bytes, file: KeptFile) -> bytes:
    pieces: list[bytes] = []
    done = 0
    for one in file.redactions:
        sign = f"__SECRET:{one.kind}__" if file.language in NO_ANGLE_LANGUAGES else f"<SECRET:{one.kind}>"
        pieces += [text[done : one.start], sign.encode(), b"\n" * text[one.start : one.end].count(b"\n")]
        done = one.end
    return b"".join((*pieces, text[done:]))


def _respelled(text: bytes, file: KeptFile) -> bytes:
    content = bytearray(text)
    for one in reversed(file.respellings):
        content[one.at : one.at] = b" "
    return bytes(content)


def _wrong_places(run: Run, text: bytes, spelling: Spelling) -> Iterator[str]:
    """Each stretch is found where its first window's line says, after the one before; so are all its windows."""
    line_feeds = np.flatnonzero(np.frombuffer(text, np.uint8) == ord("\n"))
    searched_until = 0
    for stretch in run.stretches:
        spelled = spelling.tokenizer.decode(stretch.ids)
        is_inside = (run.windows[:, START] >= stretch.start) & (run.windows[:, END] <= stretch.end)
        windows = run.windows[is_inside]
        place = text.find(spelled, searched_until) if stretch.start else 0
        while stretch.start and place >= 0 and np.searchsorted(line_feeds, place) + 1 < windows[0, FIRST_LINE]:
            place = text.find(spelled, place + 1)
        if place < 0 or not text.startswith(spelled, place):
            yield f"what its windows spell from token {stretch.start} is not in the source there"
            return
        searched_until = place + len(spelled)
        num_bytes = spelling.num_bytes(stretch.ids)
        lines = 1 + np.searchsorted(line_feeds, place + num_bytes.cumsum() - num_bytes)
        for start, end, first, last in windows[:, [START, END, FIRST_LINE, LAST_LINE]].tolist():
            found = lines[start - stretch.start], lines[end - 1 - stretch.start]
            if found != (first, last):
                yield f"the window at {start} says lines {first} to {last}, the source {found[0]} to {found[1]}"
                return


def _cells(notebook: Any) -> bytes:
    """Code and markdown of a notebook in the percent format."""
    cells = notebook.get("cells")
    if cells is None:
        cells = [cell for sheet in notebook["worksheets"] for cell in sheet.get("cells", [])]
    sign = "//" if _language(notebook, cells) in SLASH_LANGUAGES else "#"
    pages: list[str] = []
    for cell in cells:
        kind = cell.get("cell_type")
        body = _joined(cell.get("source", "")) or _joined(cell.get("input", ""))
        if not body.strip():
            continue
        if kind == "code":
            pages.append(f"{sign} %%\n{body}\n")
        elif kind in {"markdown", "heading"}:
            level = max(1, min(cell.get("level", 1), DEEPEST_HEADING))
            body = f"{'#' * level} {body}" if kind == "heading" else body
            lines = body.replace("\r\n", "\n").replace("\r", "\n").split("\n")
            pages.append("\n".join([f"{sign} %% [markdown]", *(f"{sign} {line}".rstrip(" ") for line in lines)]) + "\n")
    return "\n".join(pages).encode()


def _joined(source: Any) -> str:
    """Half of a surrogate pair is no text, and two halves in two strings are no pair."""
    strings = [source] if isinstance(source, str) else source
    return "".join(SURROGATE.sub("\ufffd", string) for string in strings).strip("\n")


def _whole_number(digits: str) -> int:
    """Only levels of headings matter; thousands of digits, in an output, Python would refuse."""
    return int(digits) if len(digits) <= MAX_DIGITS_READ else 0


def _language(notebook: Any, cells: Any) -> str:
    metadata = _as_dict(notebook.get("metadata"))
    kernel, info = _as_dict(metadata.get("kernelspec")), _as_dict(metadata.get("language_info"))
    named = [kernel.get("language"), info.get("name"), *(cell.get("language") for cell in cells)]
    return next((name.lower().rstrip("0123456789") for name in named if name and isinstance(name, str)), "")


def _as_dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
