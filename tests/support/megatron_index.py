"""Reader of Megatron's index files."""

import struct

import numpy as np


def parsed_idx(content):
    """Return (data type, lengths, pointers, documents) of an index, read as Megatron-Core describes the layout."""
    assert content[:9] == b"MMIDIDX\x00\x00"
    assert struct.unpack_from("<Q", content, 9) == (1,)
    (code,) = struct.unpack_from("<B", content, 17)
    num_sequences, num_documents = struct.unpack_from("<QQ", content, 18)
    lengths = struct.unpack_from(f"<{num_sequences}i", content, 34)
    pointers = struct.unpack_from(f"<{num_sequences}q", content, 34 + 4 * num_sequences)
    documents = struct.unpack_from(f"<{num_documents}q", content, 34 + 12 * num_sequences)
    assert len(content) == 34 + 12 * num_sequences + 8 * num_documents
    return {8: np.uint16, 4: np.int32}[code], lengths, pointers, documents
