"""Exact duplicates, by what is tokenized: the first in path order stays, the others are its copies."""

from collections.abc import Iterable

from gristmill.records import FileKey, PreparedDocument

Copies = dict[FileKey, list[PreparedDocument]]
"""By the document that stays."""


def exact_duplicates(documents: Iterable[PreparedDocument]) -> tuple[list[PreparedDocument], Copies]:
    """Those that stay, and those that go; `documents` in path order."""
    first: dict[str, PreparedDocument] = {}
    copies: Copies = {}
    for document in documents:
        stays = first.setdefault(document.text_sha256, document)
        if stays is not document:
            copies.setdefault(stays.key, []).append(document)
    return list(first.values()), copies
