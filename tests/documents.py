"""PreparedDocuments for tests that need no files."""

import hashlib

from gristmill.records import PreparedDocument


def document(path, *, repo="repo", text=None, tokens=100, row_bytes=1000, **more):
    digest = hashlib.sha256((text if text is not None else f"{repo}/{path}").encode()).hexdigest()
    facts = {
        "repo": repo,
        "path": path,
        "language": "python",
        "size": 4 * tokens,
        "sha256": digest,
        "text_sha256": digest,
        "encoding": "utf-8",
        "num_lines": 1,
        "num_tokens": tokens,
        "num_windows": 1,
        "num_emitted_tokens": tokens + 2,
        "num_tail_tokens_dropped": 0,
        "num_row_bytes": row_bytes,
        "shard": "000000.ids",
        "shard_offset": 0,
        "shard_bytes": 0,
        "shard_row": 0,
        "num_newlines": 0,
    }
    return PreparedDocument(**{**facts, **more})
