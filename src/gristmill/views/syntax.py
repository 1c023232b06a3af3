"""Text -> runs of keywords, strings, comments and so on, by the lexers of Pygments; only ever a hint for the eye.

Runs join to the very text: a lexer that changes or loses something is not heard.
"""

import re
import zlib
from collections.abc import Iterable, Iterator
from functools import cache, lru_cache
from itertools import groupby
from operator import itemgetter
from typing import Any

from gristmill.sources.languages import UNKNOWN

Runs = list[tuple[str, str]]

KINDS = ("keyword", "name", "builtin", "string", "comment", "number", "operator")
"""Beside "", for all else."""
LONGEST_TEXT = 200_000
"""Characters: longer texts have no colours."""
# The lexers are backtracking regular expressions. Over some texts many of them take a time that grows with the square
# of the length, or the cube: a few thousand line feeds keep the one for C busy. So they see a text in blocks, each by
# itself, and none that holds what code has no use for: long lines, stretches without a word, the same over and over.
LONGEST_BLOCK = 5_000
UNLIKE_CODE = re.compile(r"\W{200}|.{1000}")
MOST_ALIKE = 12
"""Times smaller when compressed: code never is, by far."""
NEW_START = re.compile(r"\n\n(?=\S)")
LEXERS_REMEMBERED = 64
# Blocks of other languages inside a text would be looked up one by one, by whatever name they give.
OPTIONS = {"stripnl": False, "ensurenl": False, "handlecodeblocks": False}

# Languages that Pygments calls otherwise, or whose syntax is near enough that of another.
PYGMENTS_NAMES = {
    **dict.fromkeys(("jupyter", "scons", "tiltfile"), "python"),
    **dict.fromkeys(("svg", "plist", "entitlements", "vdx", "xcodebuild"), "xml"),
    **dict.fromkeys(("svelte", "astro", "ejs", "zpt"), "html"),
    **dict.fromkeys(("mdx", "myst", "quarto", "ngdoc"), "markdown"),
    **dict.fromkeys(("editorconfig", "gitmodules"), "ini"),
    "avro-schema": "json",
    "c2hs": "haskell",
    "dotenv": "bash",
    "expect": "tcl",
    "java-properties": "properties",
    "lazarus": "pascal",
    "metal": "c++",
    "nimble": "nim",
    "pofile": "po",
    "robot": "robotframework",
    "system-verilog": "systemverilog",
    "textproto": "protobuf",
    "vb": "vb.net",
    "vtl": "velocity",
}
# By the names of Pygments' token types, the longest that fits.
KINDS_BY_TYPE = {
    "Keyword": "keyword",
    "Keyword.Type": "builtin",
    "Name.Attribute": "name",
    "Name.Builtin": "builtin",
    "Name.Class": "name",
    "Name.Decorator": "name",
    "Name.Exception": "builtin",
    "Name.Function": "name",
    "Name.Tag": "keyword",
    "Literal.Number": "number",
    "Literal": "string",
    "Operator": "operator",
    "Operator.Word": "keyword",
    "Punctuation": "operator",
    "Comment": "comment",
    "Comment.Preproc": "builtin",
    "Comment.PreprocFile": "string",
    "Generic.Deleted": "comment",
    "Generic.Heading": "keyword",
    "Generic.Inserted": "string",
    "Generic.Subheading": "keyword",
}


def syntax_of(text: str, language: str, path: str) -> Runs:
    """Each run with its kind, one of KINDS or ""; by the language, else by the file's name."""
    kind = _lexer_class(language, path.rpartition("/")[2]) if 0 < len(text) <= LONGEST_TEXT else None
    if kind is None:
        return [("", text)] if text else []
    lexer = kind(**OPTIONS)
    return _joined(run for block in _blocks(text) for run in _block_runs(block, lexer))


def _blocks(text: str) -> Iterator[str]:
    """Cut where something new is likely to begin, or at least a line."""
    start = 0
    while len(text) - start > LONGEST_BLOCK:
        least, most = start + LONGEST_BLOCK // 2, start + LONGEST_BLOCK
        ends = [found.end() for found in NEW_START.finditer(text, least, most)]
        end = ends[-1] if ends else text.rfind("\n", least, most) + 1 or most
        yield text[start:end]
        start = end
    yield text[start:]


def _block_runs(text: str, lexer: Any) -> Runs:
    plain = [("", text)]
    utf8 = text.encode(errors="replace")
    if UNLIKE_CODE.search(text) or len(utf8) > MOST_ALIKE * len(zlib.compress(utf8, 1)):
        return plain
    try:
        # get_tokens() would write every line end as \n.
        runs = [(_kind(kind), part) for _, kind, part in lexer.get_tokens_unprocessed(text)]
    except Exception:  # noqa: BLE001 - hundreds of lexers, and a text that may be anything: without colours, then
        return plain
    return runs if "".join(part for _, part in runs) == text else plain


def _joined(parts: Iterable[tuple[str, str]]) -> Runs:
    """Neighbours of one kind are one run; none is empty."""
    runs = ((kind, "".join(part for _, part in own)) for kind, own in groupby(parts, key=itemgetter(0)))
    return [(kind, text) for kind, text in runs if text]


@lru_cache(LEXERS_REMEMBERED)
def _lexer_class(language: str, name: str) -> Any:
    """None: nobody knows how to read it."""
    from pygments import lexers  # type: ignore[import-untyped]  # noqa: PLC0415 - only where a row is shown

    known = PYGMENTS_NAMES.get(language, language)
    by_language = lexers.find_lexer_class_by_name(known) if known in _aliases() else None
    return by_language or (lexers.find_lexer_class_for_filename(name) if name else None)


@cache
def _aliases() -> frozenset[str]:
    """Of the languages that Pygments knows by itself, but for the one of plain text."""
    from pygments import lexers  # noqa: PLC0415 - as above

    every = lexers.get_all_lexers(plugins=False)
    return frozenset(alias for _, aliases, _, _ in every for alias in aliases) - {UNKNOWN, ""}


@cache
def _kind(kind: Any) -> str:
    names = list(kind)
    ends = range(len(names), 0, -1)
    return next((KINDS_BY_TYPE[name] for end in ends if (name := ".".join(names[:end])) in KINDS_BY_TYPE), "")
