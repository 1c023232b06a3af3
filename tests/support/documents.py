"""PreparedDocuments for tests that need no files."""

import hashlib

from gristmill.core.records import PreparedDocument


def document(path, *, repo="repo", text=None, tokens=100, row_bytes=1000, **more):
    digest = hashlib.sha256((text if text is not None else f"{repo}/{path}").encode()).hexdigest()
    facts = {
        "repo": repo,
        "path": path,
        "language": "python",
        "size": 4 * tokens,
        "text_sha256": digest,
        "num_tokens": tokens,
        "num_windows": 1,
        "num_emitted_tokens": tokens + 2,
        "num_shown_tokens": tokens,
        "num_tail_tokens_dropped": 0,
        "num_row_bytes": row_bytes,
        "part": "0.part",
        "part_offset": 0,
        "part_bytes": 0,
        "part_row": 0,
        "num_newlines": 0,
    }
    return PreparedDocument(**{**facts, **more})
