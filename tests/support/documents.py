"""Document records for tests that need no files."""

import hashlib

import msgspec

from gristmill.core.records import PlacedDocument, PreparedDocument, Split
from gristmill.pipeline.parts import PartReader


def document(path, *, repo="repo", text=None, tokens=100, row_bytes=1000, **more):
    digest = hashlib.sha256((text if text is not None else f"{repo}/{path}").encode()).hexdigest()
    numbers = {field.name: 0 for field in msgspec.structs.fields(PreparedDocument) if field.type is int}
    facts = {
        **numbers,
        "repo": repo,
        "path": path,
        "language": "python",
        "size": 4 * tokens,
        "text_sha256": digest,
        "num_tokens": tokens,
        "num_windows": 1,
        "num_emitted_tokens": tokens + 2,
        "num_window_tokens": tokens,
        "num_row_bytes": row_bytes,
        "part": "0.part",
        "license": "NOASSERTION",
        "license_from": None,
    }
    return PreparedDocument(**{**facts, **more})


def placed(document, split):
    facts = msgspec.structs.asdict(document)
    return PlacedDocument(**facts, group=document.name, split=split, moved_from=None)


def documents_in(folder, part):
    """Return all documents that step 1 of a build wrote to the file `part`, each placed in the split train."""
    offset, documents = 0, []
    for row, one in enumerate(PartReader(folder, part).documents()):
        facts = msgspec.structs.asdict(one)
        fields = {name: facts[name] for name in PreparedDocument.__struct_fields__ if name in facts}
        location = {"part": part, "part_offset": offset, "part_row": row, "license": "", "license_from": None}
        documents.append(placed(PreparedDocument(**fields, **location), Split.TRAIN))
        offset += one.part_bytes
    return documents
