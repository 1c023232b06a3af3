"""Digests of known license texts, and the function that computes such digests.

The comparison is exact, not by similarity: a text with one additional condition has a different digest and is not
recognized. The digest ignores only differences between genuine copies of one license:

1. at the top: blank lines, copyright notices, and lines that contain only words from license titles (TITLE_WORDS);
2. everywhere: case, punctuation, line ends, list numbers, "licence" for "license", and http or https;
3. names that are filled in ("Neither the name of ... nor the names of its").

The appendix after "END OF TERMS AND CONDITIONS" has its own digest and may be missing.

To add a text, add the result of `compute_digests(text)` to the tables.
"""

import hashlib
import re
import unicodedata
from functools import cache
from typing import NamedTuple

# The longest known text, the GPL-3.0, has 35,149 characters.
MAX_CHARACTERS = 100_000
MAX_NOTICE_CHARACTERS = 200
MAX_NAME_WORDS = 12

WORD = re.compile(r"[^\W_]+")
SPACE = r"[^\S\n]"
LIST_NUMBER = re.compile(
    rf"\({SPACE}{{0,3}}[a-z0-9]{{1,3}}{SPACE}{{0,3}}\)|^{SPACE}*(?:\d{{1,2}}|[a-z])[.)](?=\s)", re.MULTILINE
)
END_OF_TERMS = "end of terms and conditions"

# A line that consists only of these words, in any order, is a title. None of them can add a condition.
TITLE_WORDS = frozenset(
    """
    the a of and or by no to
    license licence licenses style version v1 v2 v3 0 1 2 3 4 two three clause clauses
    mit expat x11 isc bsd new modified revised simplified zlib boost software apache mozilla eclipse public
    gnu general lesser library affero gpl lgpl agpl mpl epl bsl unlicense wtfpl
    creative commons attribution sharealike international zero universal cc cc0 sa legal code
    january february june august november december 17th 19 29 1991 1999 2003 2004 2007 2017
    http https www apache opensource org txt
    """.split()  # noqa: SIM905 - a table
)
NOTICE = re.compile(
    r"\W*(?:\d{4}[-, \d]*)?(?:(?:portions|parts|modifications|modified work|original work)\W+)?(?:copyright\b|\(c\)|©)"
    r"|\W*all rights? reserved\W*$"
    r"|\W*and (?:its |other |individual |the )*contributors\W*$"
)
# If a notice or name contains one of these words, it may be a condition, and the text is not recognized.
CONDITION = (
    r"\b(?:(?:licen[sc]|permi[ts]|prohibit|forbid|restrict|except|patent|agree|condition|commercial|redistribut"
    r"|confidential|proprietary|noncommercial|evaluat|educational|academic|internal)\w*|grant(?:s|ed|ing)"
    r"|must|shall|may|not|non|only|use|uses|used|using|usage|sell|terms?|secret|purposes?)\b"
)
NOTICE_CONDITION = re.compile(
    CONDITION + r"|\b(?:(?:exclu|distribut|student|militar)\w*|is|are|be|been|cannot|if|unless|others?|pay|paid"
    r"|free(?! software)|banned|crime|illegal)\b"
)

NAME = rf"(?!{CONDITION})[^\W_]+(?: (?!{CONDITION})[^\W_]+){{0,{MAX_NAME_WORDS - 1}}}?"
FSF_ADDRESS = (
    r"51 franklin (?:street|st) (?:fifth floor|suite 500) boston ma 02110 13(?:01|35)"
    r"|59 temple place suite 330 boston ma 02111 1307|675 mass ave cambridge ma 02139"
)
# Replacements, applied in this order to words separated by single spaces.
NORMALIZATIONS = (
    (r"\b(?:https?|www) ", ""),
    (r"\blicence", "license"),
    (rf"\b(?:{FSF_ADDRESS})(?: usa)? ", ""),
    (rf"\bneither the names? of {NAME} nor the names? of (?:its|any|other|the|their) contributors", "neither name"),
    (rf"\bthe names? of {NAME} may not be used to endorse", "the name may not be used to endorse"),
    (rf"\bprovided by {NAME} as is and any", "provided as is and any"),
    (rf"\bin no event shall {NAME} be liable for any", "in no event shall be liable for any"),
    (rf"\bas is and {NAME} disclaims? all warranties", "as is and disclaims all warranties"),
    (rf"\b(archives|{END_OF_TERMS}) copyright {NAME} licensed under the apache", r"\1 licensed under the apache"),
)

# Digests of the terms, keyed by SPDX id. The text of the GPL does not state "only" or "or later", so its id has no such
# suffix. SPDX has deprecated "GPL-3.0" because it is ambiguous, but `packaging` still accepts it.
# Python's LICENSE contains four licenses and is not in the table. The PSF-2.0 entry is only the first of the four.
TERMS_DIGESTS: dict[str, tuple[str, ...]] = {
    "MIT": (
        "970a18fea597db0b3acc4d40c788a5f3",
        "72b08e3093cb2e8d98ba82f9d27d2a31",  # with "(including the next paragraph)", which SPDX treats as the same
    ),
    "MIT-0": ("6f864bca13dc448cb3254576fa16e6d9",),
    "ISC": (
        "0cff2796014693e8691e94eccd6f9b92",  # copy, modify, and/or distribute
        "7d55c50110e28e6e3b9092fa97391308",  # copy, modify, and distribute
    ),
    "0BSD": ("5fa141e5408aece813b40b3a6c5604f1",),
    "BSD-2-Clause": (
        "777d41c293d5deb755163481b80a41b1",
        "09177a722ee49d67a4ec666fa695aa35",  # list numbers without a dot
    ),
    "BSD-3-Clause": (
        "11feb1bf5521104690eee42c6d165544",  # Neither the name of ...
        "bd4eb48705c445a2b3c97cd7acee8ab7",  # list numbers without a dot
        "6dc631bcf3e35560c196370a24cf0893",  # the letter o for bullets
        "6f4a32327ec49d7e66779325a96da67e",  # The name of ... may not be used
        "b4b1c8f6cd38f0ad36de1f9abcfe7a62",  # the same, list numbers without a dot
        "ca83ccd5f01147888b2dbf5e19052e1e",  # nor those of its contributors
        "fa703183f1e04ec3da12e4590a233930",  # Software License Agreement (BSD License)
    ),
    "Apache-2.0": (
        "34c0c18ae97e65fc1a1a6e89fd33fb00",
        "2bda8e2388be06744a54cefe893a7e3b",  # only the notice, which names the license and adds nothing
    ),
    "GPL-2.0": (
        "8f89b452b30e7d5c4a7493ba433fa58b",  # Lesser General Public License
        "e3b513599881c4e4cc2513384af6aefd",  # the same without one of the titles
        "210d34b3aa11efc3fd99e4255ebd28c4",  # Library General Public License
        "7b509978d004bed1c838641493c3ab0e",  # the same without one of the titles
    ),
    "GPL-3.0": (
        "0947feb288963901f52200ee2bb9c5c7",
        "d8e48c16f65f6d8d1269a1469100f20e",  # "7." is inside a line, so it is not ignored as a list number
    ),
    "LGPL-2.1": (
        "fb16227e4793fd17aa720c0e801c1590",
        "07e4b95391c09ff29d046ae42485cfde",  # without one of the titles
    ),
    "LGPL-3.0": ("7c01f10b85efc8b7871f466125d147d5",),
    "AGPL-3.0": (
        "727c67d517bf34b417ac756b08d0e626",
        "d158f42f5f029e60d1a34d363b8c9266",  # "7." is inside a line, so it is not ignored as a list number
    ),
    "MPL-2.0": ("a6b8851cf5091c15d57bc5f7ec7088c9",),
    "EPL-2.0": (
        "43e8b36428de4022bb50d01bbba41848",
        "c3928fac884d383987a67373d35fa84a",  # a different Exhibit A
    ),
    "Unlicense": ("dd79cea847d2cdfcdb1a9696d1754c19",),
    "CC0-1.0": (
        "7e35b4d4a5fb047cbcc69c125ef70d7d",
        "2f065a432175f0f340ac70c4843df4bb",  # without the introduction
        "d8192fa698846d3e01845f4a7a17d50c",
    ),
    "BSL-1.0": ("142fdde1ccecdef1679187e535d95087",),
    "Zlib": ("9936e724bcf4b8df7f811e8198471154",),
    "PSF-2.0": ("bacedaebb364e5ee33878f716acb63c3",),
    "WTFPL": (
        "9e12897a6d3ca7365104f22eb552f90b",
        "f89d42ba6c3ea81f20d80f8b6f15990f",  # a different address of the author
    ),
    "CC-BY-4.0": ("f5465d315649b2c184a572db94487168",),
    "CC-BY-SA-4.0": ("93e19de095e59f29ac1cc23a5552ff43",),
}
APPENDIX_DIGESTS = frozenset(
    {
        "3a69c13e414528de6bce7d48f5509e55",  # Apache-2.0
        "2bda8e2388be06744a54cefe893a7e3b",  # Apache-2.0, only the notice
        "10f03e94809c952714958604e5034f75",  # GPL-2.0
        "a4029534e59bde2da910dc83e32ffe22",  # GPL-2.0
        "0f1ea80bceacbce52f9a66404ba4c2f1",  # GPL-2.0, Library
        "deb1b1c9228829d124f3ffbdd95e8fbd",  # GPL-2.0, Library
        "81becd31d296b602a3029475f7890b52",  # GPL-2.0, Library, called an appendix
        "763212dc6a103d384f28eb85db406e25",  # GPL-3.0
        "e2fa5c05da9d89c30f80e2470c1a4915",  # GPL-3.0, an older address
        "e53369346206edcea8c10e26a066c65e",  # GPL-3.0, an older address
        "d032043d75ee39322fa32633986b8afe",  # LGPL-2.1
        "6bc832b896ecedf9d0b7e797513cb4bc",  # LGPL-2.1
        "cf63a6eef82d172abe064ea4b8711868",  # AGPL-3.0
    }
)


class Digests(NamedTuple):
    """Digests of the terms of a license and of its optional appendix."""

    terms: str
    appendix: str | None


def compute_digests(text: str) -> Digests | None:
    """Return the digests of a license text, or None if the text is too long or contains only titles and notices."""
    if len(text) > MAX_CHARACTERS:
        return None
    lines = unicodedata.normalize("NFKC", text).lower().splitlines()
    start = next((at for at, line in enumerate(lines) if not _is_title_or_notice(line)), len(lines))
    words = " ".join(WORD.findall(LIST_NUMBER.sub(" ", "\n".join(lines[start:]))))
    for pattern, replacement in _normalizations():
        words = pattern.sub(replacement, words)
    terms, _, appendix = words.partition(END_OF_TERMS)
    return Digests(_digest(terms), _digest(appendix) if appendix.strip() else None) if terms else None


@cache
def _normalizations() -> list[tuple[re.Pattern[str], str]]:
    """Compile NORMALIZATIONS on first use, because a build without license files does not need them."""
    return [(re.compile(pattern), replacement) for pattern, replacement in NORMALIZATIONS]


def _is_title_or_notice(line: str) -> bool:
    if TITLE_WORDS.issuperset(WORD.findall(line)):
        return True
    return len(line) <= MAX_NOTICE_CHARACTERS and bool(NOTICE.match(line)) and not NOTICE_CONDITION.search(line)


def _digest(words: str) -> str:
    """Return the hash of the words without spaces, so that "non-infringement" equals "noninfringement"."""
    return hashlib.sha256(words.replace(" ", "").encode("utf-8", "surrogatepass")).hexdigest()[:32]
