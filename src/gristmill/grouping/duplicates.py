"""Exact duplicates, by what is tokenized: the first in path order stays, the others go with its name."""

from collections.abc import Iterable

from gristmill.records import PreparedDocument

Twins = list[tuple[PreparedDocument, PreparedDocument]]
"""One that goes, and the one that stays for it."""


def exact_duplicates(documents: Iterable[PreparedDocument]) -> tuple[list[PreparedDocument], Twins]:
    """Those that stay, and those that go; `documents` in path order."""
    first: dict[str, PreparedDocument] = {}
    twins: Twins = []
    for document in documents:
        twin = first.setdefault(document.text_sha256, document)
        if twin is not document:
            twins.append((document, twin))
    return list(first.values()), twins
