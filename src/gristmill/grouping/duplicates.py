"""Exact duplicates: the first in path order stays, the others are dropped with its name."""

from collections.abc import Iterable

from gristmill.records import Drop, DropReason, PreparedDocument


def drop_exact_duplicates(documents: Iterable[PreparedDocument]) -> tuple[list[PreparedDocument], list[Drop]]:
    """`documents` in path order."""
    first: dict[str, PreparedDocument] = {}
    drops: list[Drop] = []
    for document in documents:
        twin = first.setdefault(document.text_sha256, document)
        if twin is not document:
            detail = f"same text as {twin.name}"
            drops.append(Drop.of(document, DropReason.EXACT_DUPLICATE, detail, twin=twin.name, similarity=1.0))
    return list(first.values()), drops
