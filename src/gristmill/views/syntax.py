"""Syntax highlighting with Pygments: split a text into runs, each with one kind, such as keyword, string or comment.

The joined runs always equal the input text. Text in which a lexer changes or loses characters is not highlighted.
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
"""Syntax kinds. All other text has the kind ""."""
MAX_TEXT_LENGTH = 200_000
"""Maximum number of characters. Longer texts are not highlighted."""
# Pygments lexers are backtracking regular expressions. For some texts, the running time of many lexers grows with the
# square or the cube of the length, for example that of the C lexer for thousands of line feeds. Therefore each block of
# a text is lexed separately. Blocks with a long line, with many symbols or spaces in a row, or with much repetition are
# not highlighted.
MAX_BLOCK_LENGTH = 5_000
UNLIKE_CODE = re.compile(r"\W{200}|.{1000}")
MAX_COMPRESSION_RATIO = 12
"""A block with a higher compression ratio is too repetitive to highlight. The ratio of code is far lower."""
BLOCK_START = re.compile(r"\n\n(?=\S)")
MAX_CACHED_LEXERS = 64
# `handlecodeblocks` would let a Markdown text choose any lexer for its code blocks.
LEXER_OPTIONS = {"stripnl": False, "ensurenl": False, "handlecodeblocks": False}

# Pygments names of languages that have a different name in Pygments, or for which Pygments only has a similar language.
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
# Syntax kinds, keyed by Pygments token type. The longest matching prefix applies.
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


def highlight(text: str, language: str, path: str) -> Runs:
    """Return runs of (kind, text). The lexer is chosen by language, or by file name if the language has no lexer."""
    lexer_class = _lexer_class(language, path.rpartition("/")[2]) if 0 < len(text) <= MAX_TEXT_LENGTH else None
    if lexer_class is None:
        return [("", text)] if text else []
    lexer = lexer_class(**LEXER_OPTIONS)
    return _merge_runs(run for block in _blocks(text) for run in _block_runs(block, lexer))


def _blocks(text: str) -> Iterator[str]:
    """Split the text into blocks of at most MAX_BLOCK_LENGTH characters.

    A block ends before an unindented line after a blank line if possible, otherwise after any line. Only a line longer
    than half a block is split.
    """
    start = 0
    while len(text) - start > MAX_BLOCK_LENGTH:
        min_end, max_end = start + MAX_BLOCK_LENGTH // 2, start + MAX_BLOCK_LENGTH
        ends = [found.end() for found in BLOCK_START.finditer(text, min_end, max_end)]
        end = ends[-1] if ends else text.rfind("\n", min_end, max_end) + 1 or max_end
        yield text[start:end]
        start = end
    yield text[start:]


def _block_runs(text: str, lexer: Any) -> Runs:
    plain = [("", text)]
    utf8 = text.encode(errors="replace")
    if UNLIKE_CODE.search(text) or len(utf8) > MAX_COMPRESSION_RATIO * len(zlib.compress(utf8, 1)):
        return plain
    try:
        # get_tokens() would convert every line end to \n.
        runs = [(_syntax_kind(token_type), part) for _, token_type, part in lexer.get_tokens_unprocessed(text)]
    except Exception:  # noqa: BLE001 - any of hundreds of lexers may fail on any text
        return plain
    return runs if "".join(part for _, part in runs) == text else plain


def _merge_runs(parts: Iterable[tuple[str, str]]) -> Runs:
    """Merge adjacent runs of the same kind and remove empty runs."""
    runs = ((kind, "".join(part for _, part in group)) for kind, group in groupby(parts, key=itemgetter(0)))
    return [(kind, text) for kind, text in runs if text]


@lru_cache(MAX_CACHED_LEXERS)
def _lexer_class(language: str, name: str) -> Any:
    """Return the Pygments lexer class for a language or file name, or None if Pygments has none."""
    from pygments import lexers  # type: ignore[import-untyped]  # noqa: PLC0415 - only needed to display a row

    alias = PYGMENTS_NAMES.get(language, language)
    by_language = lexers.find_lexer_class_by_name(alias) if alias in _aliases() else None
    return by_language or (lexers.find_lexer_class_for_filename(name) if name else None)


@cache
def _aliases() -> frozenset[str]:
    """Return the names of all built-in Pygments lexers except plain text."""
    from pygments import lexers  # noqa: PLC0415 - see _lexer_class

    all_lexers = lexers.get_all_lexers(plugins=False)
    return frozenset(alias for _, aliases, _, _ in all_lexers for alias in aliases) - {UNKNOWN, ""}


@cache
def _syntax_kind(token_type: Any) -> str:
    names = list(token_type)
    ends = range(len(names), 0, -1)
    return next((KINDS_BY_TYPE[name] for end in ends if (name := ".".join(names[:end])) in KINDS_BY_TYPE), "")
