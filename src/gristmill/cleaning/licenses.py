"""Read SPDX expressions from file headers, recognize license texts, and check licenses against an allow list.

An unknown license is recorded as NOASSERTION and never guessed. Module folder_licenses decides which of several license
files applies to a path.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from functools import cache, lru_cache
from string import ascii_lowercase
from typing import NamedTuple

import numpy as np
from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression

from gristmill.cleaning.license_texts import APPENDIX_DIGESTS, TERMS_DIGESTS, compute_digests
from gristmill.cleaning.pages import Texts
from gristmill.cleaning.secret_checks import compile_pattern
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
"""License families, keyed by a phrase in headers. A family is the prefix of its SPDX ids, or `proprietary`."""
FAMILY_WORDS = r"(?:public|apache)[^a-z\0]+license|commons[^a-z\0]+clause|(?:confidential|proprietary)[^a-z\0]+and"
"""Regular expression that matches in each phrase of FAMILIES, even if comment signs separate the words."""
TAG_WORD = b"spdx-"
KEEP_LOWERCASE = bytes(byte if chr(byte) in "\0" + ascii_lowercase else ord(" ") for byte in range(256))
"""Translation that keeps lowercase letters, and the NUL that separates two texts. Other bytes become spaces."""
APACHE_OR_MIT = re.compile(
    rb"\bapache license (?:[a-z]+ ){0,16}?or (?:under )?(?:the )?mit\b"
    rb"|\bmit (?:[a-z]+ ){0,16}?or (?:under )?(?:the )?apache license\b"
)
# Before the tag, no quote may come after a letter. In `print("# SPDX-...` and `HEAD = 'SPDX-...` the tag is data. But
# docstrings, Vim comments and troff's `.\"` begin with a quote.
BEFORE_TAG = re.compile(rb"[^A-Za-z]*+[^\"'`]*+")
COMMENT_END = re.compile(r"\*/|-->|--%>|\*\)|-\}|#\}|\}\}|%>|\?>|\]\]|\|#|=#|\"\"\"|'''")
TRAILING = " \t\f\v.,;:!\"'`*#/\\|-"
MAX_EXPRESSION_CHARACTERS = 1000

FILE_STEM = re.compile(r"(?:un)?licen[sc]e\d?|copying\d?")
# Words that may accompany the stem in the name of a license file. LICENSE-MIT and COPYING.LESSER are license files.
# license.py and license-header.txt are not, nor is LICENSE.third-party, which is about other code.
FILE_QUALIFIERS = frozenset(
    """
    txt text md markdown rst adoc
    mit x11 isc bsd zlib apache apache2 mozilla mpl mpl2 epl boost bsl unlicense wtfpl psf python cc by sa cc0
    gnu gpl gpl2 gpl3 gplv2 gplv3 lgpl lgpl2 lgpl3 lgplv2 lgplv3 agpl agpl3 agplv3 lesser lib clause
    code docs commercial proprietary enterprise ee
    """.split()  # noqa: SIM905 - a table
)
TEXT_SUFFIXES = frozenset({"txt", "text", "md", "markdown", "rst", "adoc", "html", "htm", "rtf"})
TEXT_FORMATS = frozenset({"txt", "text", "md", "markdown", "rst", "adoc"})
WARNING_WORDS = frozenset(
    {*("commercial", "proprietary", "enterprise", "ee"), *("gnu", "gpl", "lgpl", "agpl", "lesser", "lib")}
)
"""Words in the name of a second license file. They show that LICENSE does not cover the complete folder."""
VERSION = re.compile(r"v?\d")

TOKEN = re.compile(r"[()]|[^\s()]+(?: WITH [^\s()]+)?")


class HeaderLicense(NamedTuple):
    """License stated in the first lines of a file."""

    tagged: str | None
    """SPDX expression of the tags, or NOASSERTION if a tag is invalid. None without a tag."""
    named: str | None
    """License family mentioned in words, or None."""


NO_HEADER_LICENSE = HeaderLicense(None, None)


def header_licenses(texts: Sequence[bytes]) -> list[HeaderLicense]:
    """Return the license in the header of each text. Only headers with a license word are examined further."""
    heads = [text[:HEADER_BYTES].lower() for text in texts]
    joined = Texts.of(heads)
    tagged, named = joined.indices_with_any([TAG_WORD]), sorted(set(joined.indices_with_match(_find_family_word)))
    families = dict(zip(named, _find_families([heads[index] for index in named]), strict=True))
    return [
        HeaderLicense(tagged_license(text) if index in tagged else None, families.get(index))
        if index in tagged or index in families
        else NO_HEADER_LICENSE
        for index, text in enumerate(texts)
    ]


def named_license(text: bytes) -> str | None:
    """Return the license family that a file header mentions in words, or None.

    The family is the prefix of its SPDX ids, or `proprietary`. It is `Apache OR MIT` if the header offers both, as in
    Rust projects.
    """
    return header_licenses([text[:HEADER_BYTES].replace(b"\0", b" ")])[0].named


def _find_family_word(text: bytes, start: int) -> int:
    found = compile_pattern(FAMILY_WORDS).search(text, start)
    return int(found.start()) if found else -1


def _find_families(heads: Sequence[bytes]) -> list[str | None]:
    """Return the family of each head. All heads are normalized at once: one by one takes five times as long."""
    octets = np.frombuffer(b"\0".join(heads).translate(KEEP_LOWERCASE), np.uint8)
    is_extra_space = octets == ord(" ")
    is_extra_space[1:] &= is_extra_space[:-1]
    is_extra_space[:1] = False
    texts = octets[~is_extra_space].tobytes().split(b"\0") if heads else []
    return list(map(_find_family, texts))


def _find_family(words: bytes) -> str | None:
    family = next((family for name, family in FAMILIES.items() if name in words), None)
    return "Apache OR MIT" if family == "Apache" and APACHE_OR_MIT.search(words) else family


def tagged_license(text: bytes) -> str | None:
    """Return the canonical expression of the SPDX tags in a header. NOASSERTION if a tag is invalid, None without tags.

    Several tags are joined with AND, as REUSE specifies: `MIT`, `Apache-2.0 OR ISC` -> `MIT AND (Apache-2.0 OR ISC)`.
    """
    if TAG_WORD not in text[:HEADER_BYTES].lower():
        return None
    lines = text[:HEADER_BYTES].splitlines()
    if len(text) > HEADER_BYTES:
        lines.pop()  # the last line may be cut off: GPL-2.0-or-later would become GPL-2.0
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
    """Return the expression as SPDX writes it, or None if it is invalid: `mit or apache-2.0` -> `MIT OR Apache-2.0`."""
    if len(expression) > MAX_EXPRESSION_CHARACTERS:
        return None
    try:
        return str(canonicalize_license_expression(expression))
    except InvalidLicenseExpression:
        return None


def is_satisfied(expression: str, holds: Callable[[str], bool]) -> bool:
    """Return the truth value of an expression, in which each id has the truth value `holds(id)`."""
    # Stacks with one flag per open parenthesis. any_before: an alternative before the last OR is true. all_since: all
    # operands after the last OR are true.
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
    """Return the ids in an expression: `MIT OR (ISC AND GPL-2.0 WITH x)` -> `MIT`, `ISC`, `GPL-2.0 WITH x`."""
    return [token for token in TOKEN.findall(expression) if token not in {"(", ")", "AND", "OR"}]


def identify_license(text: str) -> str | None:
    """Return the SPDX id of a license text, or None. Only exact copies are recognized (see license_texts)."""
    digests = compute_digests(text)
    if digests is None or (digests.appendix is not None and digests.appendix not in APPENDIX_DIGESTS):
        return None
    return _id_by_digest().get(digests.terms)


@cache
def _id_by_digest() -> dict[str, str]:
    return {digest: spdx for spdx, digests in TERMS_DIGESTS.items() for digest in digests}


def is_license_name(name: str) -> bool:
    """Return True for the name of a file that contains a license text."""
    if not FILE_STEM.search(name.lower()):
        return False
    words, qualifiers = _split_name(name)
    if len(qualifiers) == len(words):
        return False
    if all(word in FILE_QUALIFIERS or VERSION.fullmatch(word) for word in qualifiers):
        return True
    # A custom license such as LICENSE-ACME.txt. It makes the license of its folder unknown.
    return name.startswith(("LICENSE", "LICENCE", "COPYING")) and (name.isupper() or words[-1] in TEXT_SUFFIXES)


def name_qualifiers(name: str) -> frozenset[str]:
    """Return the words of a file name other than the stem: `LICENSE-MIT.txt` -> mit, txt."""
    return frozenset(_split_name(name)[1])


def _split_name(name: str) -> tuple[list[str], list[str]]:
    """Return all words of a file name, and the words other than the stem."""
    words = re.split(r"[-_. ]+", name.lower().strip("-_. "))
    return words, [word for word in words if not FILE_STEM.fullmatch(word)]


class AllowList:
    """Licenses that `--license-allow` lists.

    | listed | allows | does not allow |
    | --- | --- | --- |
    | `GPL-2.0`, `GPL-2.0-only` | both, and also `GPL-2.0-or-later` and `GPL-2.0+`, which include GPL-2.0 | `GPL-3.0` |
    | `GPL-2.0-or-later`, `GPL-2.0+` | both | `GPL-2.0`, which may mean only that version |
    | `GPL-2.0` | also `WITH` any exception, because exceptions only add permissions | |
    | `GPL-2.0 WITH Classpath-exception-2.0` | only this combination | `GPL-2.0` |
    | `NOASSERTION` | files with an unknown license | |
    """

    def __init__(self, ids: Iterable[str]) -> None:
        self._allowed = frozenset(normalize_id(spdx) for spdx in ids)

    @classmethod
    def of(cls, ids: Sequence[str]) -> "AllowList":
        """Parse ids, or comma-separated lists of ids such as `MIT,Apache-2.0`. Raise ConfigError for an invalid id."""
        items = [item.strip() for value in ids for item in value.split(",")]
        return cls(_parse_allowed_id(item) for item in items if item)

    def allows(self, spdx: str) -> bool:
        """Return True if an expression is allowed. In `A OR B`, one id must be allowed, in `A AND B` both."""
        if spdx == NOASSERTION:
            return NOASSERTION in self._allowed
        expression = canonical_expression(spdx)
        return expression is not None and is_satisfied(expression, self._allows_one)

    def _allows_one(self, spdx: str) -> bool:
        bare, _, exception = normalize_id(spdx).partition(" with ")
        candidates = [bare, bare.removesuffix("+")]
        return any(
            candidate in self._allowed or (exception and f"{candidate} with {exception}" in self._allowed)
            for candidate in candidates
        )


def normalize_id(spdx: str) -> str:
    """Map equivalent ids to one form: `GPL-2.0-or-later` -> `gpl-2.0+`, `GPL-2.0-only` -> `gpl-2.0`."""
    if spdx == NOASSERTION:
        return spdx
    bare, with_, exception = spdx.lower().partition(" with ")
    if bare.endswith("-or-later"):
        bare = bare.removesuffix("-or-later") + "+"
    return bare.removesuffix("-only") + with_ + exception


def _parse_allowed_id(item: str) -> str:
    if item.upper() == NOASSERTION:
        return NOASSERTION
    expression = canonical_expression(item)
    if expression is None:
        raise ConfigError(f"--license-allow {item!r} is not an SPDX id. {_suggestion(item)}")
    if len(TOKEN.findall(expression)) > 1:
        raise ConfigError(f"--license-allow takes ids, got the expression {item!r}. List its ids, separated by commas.")
    return expression


def _suggestion(item: str) -> str:
    known_ids = (*TERMS_DIGESTS, NOASSERTION)
    compact = "".join(filter(str.isalnum, item.lower()))
    completions = [
        spdx for spdx in known_ids if compact and "".join(filter(str.isalnum, spdx.lower())).startswith(compact)
    ]
    if completions:
        return f"Try {' or '.join(completions)}."
    return did_you_mean(item, known_ids, "Ids such as MIT or Apache-2.0 are listed at https://spdx.org/licenses/.")
