"""SPDX expressions: in a file's header, by a licence text, and on the list of those that are allowed.

Unknown is NOASSERTION, never guessed. Which of several licence files counts for a path: folder_licenses.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from functools import cache, lru_cache
from string import ascii_lowercase
from typing import NamedTuple

import numpy as np
from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression

from gristmill.cleaning.license_texts import APPENDIXES, TERMS, digests_of
from gristmill.cleaning.pages import Texts
from gristmill.cleaning.secret_checks import compiled
from gristmill.core.errors import ConfigError
from gristmill.core.names import did_you_mean

NOASSERTION = "NOASSERTION"

HEADER_BYTES = 4096
HEADER_LINES = 30
TAG = re.compile(rb"SPDX-License-Identifier[ \t]{0,4}:", re.IGNORECASE)
FAMILIES = {
    b"commons clause": "proprietary",
    b"gnu affero general public license": "AGPL",
    b"gnu lesser general public license": "LGPL",
    b"gnu library general public license": "LGPL",
    b"gnu general public license": "GPL",
    b"apache license": "Apache",
    b"mozilla public license": "MPL",
    b"eclipse public license": "EPL",
    b"confidential and proprietary": "proprietary",
    b"proprietary and confidential": "proprietary",
}
"""What a header may name in words, and how the ids of that family begin."""
FAMILY_WORDS = r"(?:public|apache)[^a-z\0]+license|commons[^a-z\0]+clause|(?:confidential|proprietary)[^a-z\0]+and"
"""One of these is in each of these names, with blanks and comment signs between the words."""
TAG_WORD = b"spdx-"
SMALL_LETTERS_ALONE = bytes(byte if chr(byte) in "\0" + ascii_lowercase else ord(" ") for byte in range(256))
"""And the NUL between two texts."""
APACHE_OR_MIT = re.compile(
    rb"\bapache license (?:[a-z]+ ){0,16}?or (?:under )?(?:the )?mit\b"
    rb"|\bmit (?:[a-z]+ ){0,16}?or (?:under )?(?:the )?apache license\b"
)
# Before the tag, no quote may come after a letter: in `print("# SPDX-...` and `HEAD = 'SPDX-...` the tag is data, while
# a docstring, a Vim comment and troff's `.\"` begin with a quote.
BEFORE_TAG = re.compile(rb"[^A-Za-z]*+[^\"'`]*+")
COMMENT_END = re.compile(r"\*/|-->|--%>|\*\)|-\}|#\}|\}\}|%>|\?>|\]\]|\|#|=#|\"\"\"|'''")
TRAILING = " \t\f\v.,;:!\"'`*#/\\|-"
MAX_EXPRESSION_CHARACTERS = 1000

FILE_STEM = re.compile(r"(?:un)?licen[sc]e\d?|copying\d?")
# Besides the stem, a licence file's name has only these: so LICENSE-MIT and COPYING.LESSER, but not license.py,
# license-header.txt or LICENSE.third-party, which is about other code.
FILE_QUALIFIERS = frozenset(
    """
    txt text md markdown rst adoc
    mit x11 isc bsd zlib apache apache2 mozilla mpl mpl2 epl boost bsl unlicense wtfpl psf python cc by sa cc0
    gnu gpl gpl2 gpl3 gplv2 gplv3 lgpl lgpl2 lgpl3 lgplv2 lgplv3 agpl agpl3 agplv3 lesser lib clause
    code docs commercial proprietary enterprise ee
    """.split()  # noqa: SIM905 - a table
)
TEXT_SUFFIXES = frozenset({"txt", "text", "md", "markdown", "rst", "adoc", "html", "htm", "rtf"})
LAYOUTS = frozenset({"txt", "text", "md", "markdown", "rst", "adoc"})
OTHER_TERMS = frozenset(
    {*("commercial", "proprietary", "enterprise", "ee"), *("gnu", "gpl", "lgpl", "agpl", "lesser", "lib")}
)
"""In the name of a file beside LICENSE: not all of the folder is under that."""
VERSION = re.compile(r"v?\d")

TOKEN = re.compile(r"[()]|[^\s()]+(?: WITH [^\s()]+)?")


class HeaderLicense(NamedTuple):
    """The licence that a file's first lines name."""

    tagged: str | None
    """By an SPDX tag."""
    named: str | None
    """A family of licences, in words."""


NO_HEADER_LICENSE = HeaderLicense(None, None)


def header_licenses(texts: Sequence[bytes]) -> list[HeaderLicense]:
    """Only texts with a word of licences in their head are looked at one by one."""
    heads = [text[:HEADER_BYTES].lower() for text in texts]
    together = Texts.of(heads)
    tagged, named = together.with_any([TAG_WORD]), sorted(set(together.with_match(_position_of_family)))
    families = dict(zip(named, _families_in([heads[number] for number in named]), strict=True))
    return [
        HeaderLicense(header_license(text) if number in tagged else None, families.get(number))
        if number in tagged or number in families
        else NO_HEADER_LICENSE
        for number, text in enumerate(texts)
    ]


def named_license(text: bytes) -> str | None:
    """The family that a file's first lines name in words, as ids of it begin; `proprietary` for none that is free.

    `Apache OR MIT` where they offer both, as files of Rust projects do.
    """
    return header_licenses([text[:HEADER_BYTES].replace(b"\0", b" ")])[0].named


def _position_of_family(text: bytes, start: int) -> int:
    found = compiled(FAMILY_WORDS).search(text, start)
    return int(found.start()) if found else -1


def _families_in(heads: Sequence[bytes]) -> list[str | None]:
    """Heads become words with one blank between them, all in one go: to split each takes five times as long."""
    octets = np.frombuffer(b"\0".join(heads).translate(SMALL_LETTERS_ALONE), np.uint8)
    is_blank = octets == ord(" ")
    is_blank[1:] &= is_blank[:-1]
    is_blank[:1] = False
    words_of_each = octets[~is_blank].tobytes().split(b"\0") if heads else []
    return list(map(_family_in, words_of_each))


def _family_in(words: bytes) -> str | None:
    family = next((family for words_of_it, family in FAMILIES.items() if words_of_it in words), None)
    return "Apache OR MIT" if family == "Apache" and APACHE_OR_MIT.search(words) else family


def header_license(text: bytes) -> str | None:
    """The canonical expression; NOASSERTION for a tag that is not SPDX; None where there is no tag.

    Several tags in one file all apply, as REUSE has it: `MIT`, `Apache-2.0 OR ISC` -> `MIT AND (Apache-2.0 OR ISC)`.
    One of them not being SPDX leaves the whole unknown.
    """
    if TAG_WORD not in text[:HEADER_BYTES].lower():
        return None
    lines = text[:HEADER_BYTES].splitlines()
    if len(text) > HEADER_BYTES:
        lines.pop()  # cut off anywhere, GPL-2.0-or-later would be GPL-2.0
    found_tags = [(line, TAG.search(line)) for line in lines[:HEADER_LINES]]
    tags = [
        line[tag.end() :].decode("utf-8", "replace")
        for line, tag in found_tags
        if tag is not None and BEFORE_TAG.fullmatch(line[: tag.start()])
    ]
    found = [canonical_expression(_without_comment_end(tag)) for tag in tags]
    expressions = [expression for expression in dict.fromkeys(found) if expression is not None]
    if not found:
        return None
    if None in found:
        return NOASSERTION
    if len(expressions) == 1:
        return expressions[0]
    return " AND ".join(f"({expression})" if " OR " in expression else expression for expression in expressions)


def _without_comment_end(tag: str) -> str:
    return COMMENT_END.split(tag, maxsplit=1)[0].strip().rstrip(TRAILING)


@lru_cache(maxsize=4096)
def canonical_expression(expression: str) -> str | None:
    """In SPDX's own spelling; None where it is none. `mit or apache-2.0` -> `MIT OR Apache-2.0`"""
    if len(expression) > MAX_EXPRESSION_CHARACTERS:
        return None
    try:
        return str(canonicalize_license_expression(expression))
    except InvalidLicenseExpression:
        return None


def is_satisfied(expression: str, holds: Callable[[str], bool]) -> bool:
    """True if `holds` is true for all ids of one alternative: any side of an OR, both sides of an AND."""
    # Per open parenthesis: whether an alternative before the last OR holds, and whether all since then does.
    any_before, all_since = [False], [True]
    for token in TOKEN.findall(f"({expression})"):
        if token == "(":
            any_before.append(False)
            all_since.append(True)
        elif token == ")":
            before, since = any_before.pop(), all_since.pop()
            all_since[-1] &= before or since
        elif token == "OR":
            any_before[-1] |= all_since[-1]
            all_since[-1] = True
        elif token != "AND":
            all_since[-1] &= holds(token)
    return all_since[0]


def ids_in(expression: str) -> list[str]:
    """`MIT OR (ISC AND GPL-2.0 WITH x)` -> `MIT`, `ISC`, `GPL-2.0 WITH x`"""
    return [token for token in TOKEN.findall(expression) if token not in {"(", ")", "AND", "OR"}]


def identify_license(text: str) -> str | None:
    """The id of a licence file's text, if it says exactly what that licence says (see license_texts)."""
    digests = digests_of(text)
    if digests is None or (digests.appendix is not None and digests.appendix not in APPENDIXES):
        return None
    return _id_by_digest().get(digests.terms)


@cache
def _id_by_digest() -> dict[str, str]:
    return {digest: spdx for spdx, digests in TERMS.items() for digest in digests}


def is_license_name(name: str) -> bool:
    if not FILE_STEM.search(name.lower()):
        return False
    words, others = _words_of(name)
    if len(others) == len(words):
        return False
    if all(word in FILE_QUALIFIERS or VERSION.fullmatch(word) for word in others):
        return True
    # Somebody's own: LICENSE-ACME.txt. It is not known, and that is worth knowing.
    return name.startswith(("LICENSE", "LICENCE", "COPYING")) and (name.isupper() or words[-1] in TEXT_SUFFIXES)


def name_qualifiers(name: str) -> frozenset[str]:
    """`LICENSE-MIT.txt` -> mit, txt"""
    return frozenset(_words_of(name)[1])


def _words_of(name: str) -> tuple[list[str], list[str]]:
    """All, and those besides the stem: `LICENSE-MIT.txt` -> mit, txt"""
    words = re.split(r"[-_. ]+", name.lower().strip("-_. "))
    return words, [word for word in words if not FILE_STEM.fullmatch(word)]


class AllowList:
    """The licences that `--license-allow` names.

    | listed | allows | not |
    | --- | --- | --- |
    | `GPL-2.0`, `GPL-2.0-only` | both, and `GPL-2.0-or-later`, `GPL-2.0+`, which offer that version | `GPL-3.0` |
    | `GPL-2.0-or-later`, `GPL-2.0+` | both | `GPL-2.0`, which may be that version only |
    | `GPL-2.0` | also `WITH` any exception: those only add permissions | |
    | `GPL-2.0 WITH Classpath-exception-2.0` | that | `GPL-2.0` |
    | `NOASSERTION` | files whose licence is unknown | |
    """

    def __init__(self, ids: Iterable[str]) -> None:
        self._allowed = frozenset(key_of_id(spdx) for spdx in ids)

    @classmethod
    def of(cls, ids: Sequence[str]) -> "AllowList":
        """ConfigError for what is no id. An item may itself be a list: `MIT,Apache-2.0`."""
        items = [item.strip() for listed in ids for item in listed.split(",")]
        return cls(_listed_id(item) for item in items if item)

    def allows(self, spdx: str) -> bool:
        """`A OR B` needs one of them allowed, `A AND B` both."""
        if spdx == NOASSERTION:
            return NOASSERTION in self._allowed
        expression = canonical_expression(spdx)
        return expression is not None and is_satisfied(expression, self._allows_one)

    def _allows_one(self, spdx: str) -> bool:
        bare, _, exception = key_of_id(spdx).partition(" with ")
        choices = [bare, bare.removesuffix("+")]
        return any(
            choice in self._allowed or (exception and f"{choice} with {exception}" in self._allowed)
            for choice in choices
        )


def key_of_id(spdx: str) -> str:
    """One spelling per meaning: `GPL-2.0-or-later` -> `gpl-2.0+`, `GPL-2.0-only` -> `gpl-2.0`."""
    if spdx == NOASSERTION:
        return spdx
    bare, with_, exception = spdx.lower().partition(" with ")
    if bare.endswith("-or-later"):
        bare = bare.removesuffix("-or-later") + "+"
    return bare.removesuffix("-only") + with_ + exception


def _listed_id(item: str) -> str:
    if item.upper() == NOASSERTION:
        return NOASSERTION
    spdx = canonical_expression(item)
    if spdx is None:
        raise ConfigError(f"--license-allow {item!r} is no SPDX id. {_advice(item)}")
    if len(TOKEN.findall(spdx)) > 1:
        raise ConfigError(f"--license-allow takes ids, got the expression {item!r}. Try each of its ids, with commas.")
    return spdx


def _advice(item: str) -> str:
    known = (*TERMS, NOASSERTION)
    bare = "".join(filter(str.isalnum, item.lower()))
    longer = [spdx for spdx in known if bare and "".join(filter(str.isalnum, spdx.lower())).startswith(bare)]
    if longer:
        return f"Try {' or '.join(longer)}."
    return did_you_mean(item, known, "They are listed at https://spdx.org/licenses/, like MIT or Apache-2.0.")
