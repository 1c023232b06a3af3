"""Comments that are comments only in form: compilers, checkers, test harnesses and lawyers read them.

One pattern for each family of languages, searched for in the comments' text. What a pattern finds is kept where it is:
to keep one comment too many costs nothing.
"""

import re
from functools import cache
from typing import Any

import re2

_LICENSE = rb"(?i:copyright|SPDX-|licen[cs]ed? under|\(c\) ?[12]\d\d\d|\xc2\xa9)"

_PYTHON = (
    rb"^#!|^#.*coding[:=]|^# (?:///|%%|-\*-)|^#%%|#:?\s*(?i:type:|noqa|nosec|nopep8|pragma|pylint|pyright|pytype|pyre-|"
    rb"mypy|ruff|flake8|fmt:|yapf|isort|black:|autopep8|doctest|cython:|distutils:|vim?:|noinspection|nosonar|skipcq)"
)
_SLASHES = (
    rb"(?i:nolint|nosonar|noinspection|coverity|lcov_excl|gcov|clang-format|\bformat(?:ter)?:? ?off|"
    rb"-\*-|\bvim?:|@generated|code generated|expected-(?:error|warning|note|no-))|\bRUN:|\bCHECK[-:]"
)
_SCRIPT = (
    rb"^//[#@]|^///\s*<|^/\*[!:#@]|(?i:webpack|eslint|jshint|jslint|tslint|prettier|biome-|istanbul|[cv]8 ignore|"
    rb"^/\*\s*globals? |^/\*\s*exported |sourcemapping|sourceurl)|"
    rb"@(?:ts-|jsx|flow|noflow|format|babel|jest|vitest|license|preserve|cc_on|vite-|deno-|__|swc|refresh)|__PURE__"
)
_GO = rb"^//(?:[a-z0-9]+:\S|line |export |extern |sys|nolint)|^/\*line |^//\s*\+build|#cgo"
_RUST = rb"^//[/!@~]|^/\*[*!]|rustfmt|clippy|ignore-tidy"
_JAVA = rb"\\u|@deprecated|@formatter|CHECKSTYLE|PMD|\$NON-NLS|\$FALL|(?i:fall.?thr)"
_C = rb"\\[ \t\r]*(?:\n|$)|\?\?/|(?i:fall.?thr)|^/[/*][@$]|IWYU|dg-|\bNOT ?REACHED|@suppress|splint"

_FAMILIES = {
    "python": (_LICENSE, _PYTHON),
    "rust": (_LICENSE, _SLASHES, _RUST),
    "go": (_LICENSE, _SLASHES, _GO),
    "java": (_LICENSE, _SLASHES, _JAVA),
    **dict.fromkeys(("javascript", "jsx", "typescript", "tsx"), (_LICENSE, _SLASHES, _SCRIPT)),
    **dict.fromkeys(("c", "c++"), (_LICENSE, _SLASHES, _C)),
}

LICENSE = re.compile(_LICENSE)

OF_A_RUN = {"python": b"# /// ", "go": b"utput:"}
"""Read together with the comments around it: a script's requirements (PEP 723), and what an example has to print."""

ALL_OF_A_FILE = {"go": b'"C"'}
"""Where this is imported, comments are C."""


@cache
def directives_of(language: str) -> Any:
    """RE2, over all comments at once, one to a line: Python's own engine takes 10 us for each."""
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1  # bytes in, byte offsets out
    return re2.compile(rb"(?m)" + rb"|".join(_FAMILIES[language]), options)
