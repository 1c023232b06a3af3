"""Convert the vocabulary and merges of a BPE model to the lookup tables of the kernels.

Merges are in one hash table with open addressing, keyed by the ids of the two tokens to merge. An entry is
`left << 43 | right << 22 | rank`. The table is at most half full, and a search ends at an EMPTY entry. On the GPU, each
entry also holds the product, the id of the merged token (engine.merge_entries).
"""

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any, Literal, NamedTuple, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from gristmill.core.errors import TokenizerError
from gristmill.tokenizers.cuda.patterns import refusal
from gristmill.tokenizers.cuda.structs import EXCEPTION, MIN_ENTRY_BYTES
from gristmill.tokenizers.definition import REPAIR, Definition

Ids = npt.NDArray[np.uint32]
Entries = npt.NDArray[np.uint64]
T = TypeVar("T")

NO_ID = 0xFFFFFFFF
EMPTY = 2**64 - 1
ID_BITS = 21
RANK_BITS = 22
LARGEST_VOCABULARY = 1 << ID_BITS
MAX_MERGES = (1 << RANK_BITS) - 1
"""The last rank is not used, because an entry with this rank and the two largest ids would equal EMPTY."""
MULTIPLIER = 0x9E3779B97F4A7C15
"""2**64 divided by the golden ratio. This factor spreads similar keys over the table."""
SMALLEST_TABLE_BITS = 4


class UnmergedToken(NamedTuple):
    """A token that the merges do not produce from its own bytes."""

    content: bytes
    id: int


class MergeTables(NamedTuple):
    """Lookup tables of a BPE model."""

    byte_ids: Ids
    """Id of each byte."""
    pair_ids: Ids
    """Id of the two-byte word ab, indexed by `a | b << 8`. NO_ID if the word is two tokens."""
    table: Entries
    """Hash table of merges."""
    table_bits: int
    """Binary logarithm of the table's size."""
    products: Ids
    """Id of the token that a merge produces, indexed by rank."""
    is_in_order: bool
    """True if each merge that uses a token ranks after all merges that produce the token.

    If so, ranks only rise while a word is merged, and all occurrences of the pair with the lowest rank can be merged at
    once. If not, only the leftmost occurrence can be merged.
    """
    id_bits: Literal[16, 32]
    """Number of bits into which every id of a text fits."""
    exceptions: tuple[UnmergedToken, ...]
    """Words that are one token although no merges produce the token. Only a model with ignore_merges has such words."""

    @classmethod
    def of(cls, definition: Definition) -> "MergeTables":
        vocabulary = _vocabulary_of(definition)
        merges = _Merges.of(definition, vocabulary)
        byte_ids = _byte_ids(definition, vocabulary)
        exceptions = tuple(_find_exceptions(vocabulary, merges, byte_ids)) if definition.model.ignore_merges else ()
        table_bits = max(SMALLEST_TABLE_BITS, (2 * len(merges.keys) - 1).bit_length())
        possible_ids = [*byte_ids.tolist(), *merges.products.tolist(), *(token.id for token in exceptions)]
        return cls(
            byte_ids=byte_ids,
            pair_ids=_pair_ids(merges, byte_ids, exceptions),
            table=_build_table(merges.keys, table_bits),
            table_bits=table_bits,
            products=merges.products,
            is_in_order=_is_in_order(merges),
            id_bits=16 if max(possible_ids) < 1 << 16 else 32,
            exceptions=exceptions,
        )


class _Merges(NamedTuple):
    """Merges in the order of their ranks."""

    keys: Entries
    """Ids of the two tokens, as `left << 21 | right`."""
    products: Ids

    @classmethod
    def of(cls, definition: Definition, vocabulary: dict[str, int]) -> "_Merges":
        pairs = _pairs_of(definition)
        if len(pairs) > MAX_MERGES:
            raise refusal(definition, f"it has {len(pairs)} merges (maximum: {MAX_MERGES})")
        try:
            ids = np.array([(vocabulary[a], vocabulary[b], vocabulary[a + b]) for a, b in pairs], np.uint64)
        except KeyError as error:
            raise refusal(definition, f"its merges contain {error.args[0]!r}, which is not in its vocabulary") from None
        left, right, products = ids.reshape(-1, 3).T
        keys = left << np.uint64(ID_BITS) | right
        _check_unique(definition, keys, pairs)
        return cls(keys, products.astype(np.uint32))

    @property
    def left(self) -> Ids:
        return (self.keys >> np.uint64(ID_BITS)).astype(np.uint32)

    @property
    def right(self) -> Ids:
        return (self.keys & np.uint64(LARGEST_VOCABULARY - 1)).astype(np.uint32)


def byte_characters() -> str:
    """Return GPT-2's alphabet: for each byte, the character that represents it in a vocabulary.

    A visible Latin-1 character represents the byte that is its code point.
    """
    visible = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    hidden = (byte for byte in range(256) if byte not in visible)
    substitutes = {byte: chr(256 + index) for index, byte in enumerate(hidden)}
    return "".join(substitutes.get(byte, chr(byte)) for byte in range(256))


BYTES_BY_CHARACTER = dict.fromkeys(range(256), 256) | {
    ord(character): byte for byte, character in enumerate(byte_characters())
}
"""Table for str.translate. Latin-1 characters that represent no byte map to 256, so that encoding to Latin-1 fails."""


def first_slots(keys: Entries, table_bits: int) -> npt.NDArray[np.int64]:
    """Return the slot at which the search for each key `left << 21 | right` starts."""
    return (keys * np.uint64(MULTIPLIER) >> np.uint64(64 - table_bits)).astype(np.int64)


def bpe(ids: list[int], ranks: dict[int, int], products: list[int]) -> list[int]:
    """Merge the pair with the lowest rank, leftmost first, until no pair can be merged.

    This takes quadratic time, which is fast enough for the bytes of one token.
    """
    no_rank = len(products)
    pair_ranks = [ranks.get(left << ID_BITS | right, no_rank) for left, right in pairwise(ids)]
    while pair_ranks and (rank := min(pair_ranks)) != no_rank:
        at = pair_ranks.index(rank)
        ids[at : at + 2] = [products[rank]]
        del pair_ranks[at]
        for pair in range(max(at - 1, 0), min(at + 1, len(pair_ranks))):
            pair_ranks[pair] = ranks.get(ids[pair] << ID_BITS | ids[pair + 1], no_rank)
    return ids


def _vocabulary_of(definition: Definition) -> dict[str, int]:
    if definition.vocab_size > LARGEST_VOCABULARY:
        raise refusal(definition, f"its vocabulary has {definition.vocab_size} ids (maximum: {LARGEST_VOCABULARY})")
    vocabulary = _decode(definition, definition.model.vocab, dict[str, int])
    if len(set(vocabulary.values())) < len(vocabulary):
        raise refusal(definition, "two tokens of its vocabulary have the same id")
    return vocabulary


def _pairs_of(definition: Definition) -> list[tuple[str, str]]:
    """Return the merges as pairs. In the file, a merge is `"a b"` or `["a", "b"]`."""
    merges: list[str | tuple[str, str]] = _decode(definition, definition.model.merges, list[str | tuple[str, str]])
    pairs = [tuple(merge.split(" ")) if isinstance(merge, str) else merge for merge in merges]
    malformed = next((merge for merge in pairs if len(merge) != 2), None)  # noqa: PLR2004 - a pair
    if malformed is not None:
        raise refusal(definition, f"its merge {' '.join(malformed)!r} does not have two parts")
    return [(merge[0], merge[1]) for merge in pairs]


def _decode(definition: Definition, content: msgspec.Raw, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(content, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise TokenizerError(f"the tokenizer {definition.name!r} is damaged: {error}. {REPAIR}") from None


def _check_unique(definition: Definition, keys: Entries, pairs: list[tuple[str, str]]) -> None:
    _, first_ranks = np.unique(keys, return_index=True)
    if len(first_ranks) < len(keys):
        repeated = int(np.setdiff1d(np.arange(len(keys)), first_ranks)[0])
        raise refusal(definition, f"its merge {' '.join(pairs[repeated])!r} is listed twice")


def _byte_ids(definition: Definition, vocabulary: dict[str, int]) -> Ids:
    ids = [vocabulary.get(character) for character in byte_characters()]
    missing = [byte for byte, index in enumerate(ids) if index is None]
    if missing:
        raise refusal(definition, f"its vocabulary lacks {len(missing)} of the 256 bytes, such as 0x{missing[0]:02X}")
    return np.array(ids, np.uint32)


def _pair_ids(merges: _Merges, byte_ids: Ids, exceptions: Iterable[UnmergedToken]) -> Ids:
    pair_ids = np.full(1 << 16, NO_ID, np.uint32)
    bytes_by_id = np.full(LARGEST_VOCABULARY, -1, np.int64)
    bytes_by_id[byte_ids] = np.arange(256)
    left, right = bytes_by_id[merges.left], bytes_by_id[merges.right]
    are_single_bytes = (left >= 0) & (right >= 0)
    pair_ids[(left | right << 8)[are_single_bytes]] = merges.products[are_single_bytes]
    for content, index in exceptions:
        if len(content) == 2:  # noqa: PLR2004 - a pair
            pair_ids[content[0] | content[1] << 8] = index
    return pair_ids


def _build_table(keys: Entries, table_bits: int) -> Entries:
    """Fill the hash table by vectorized linear probing: in order of first slot, each entry takes the next free slot."""
    entries = keys << np.uint64(RANK_BITS) | np.arange(len(keys), dtype=np.uint64)
    slots = first_slots(keys, table_bits)
    order, positions = np.argsort(slots, kind="stable"), np.arange(len(keys))
    final_slots = np.maximum.accumulate(slots[order] - positions) + positions
    table = np.full(1 << table_bits, EMPTY, np.uint64)
    is_inside = final_slots < len(table)
    table[final_slots[is_inside]] = entries[order[is_inside]]
    # The few entries beyond the end wrap around to the start.
    for entry in entries[order[~is_inside]]:
        table[int(np.argmax(table == np.uint64(EMPTY)))] = entry
    return table


def _is_in_order(merges: _Merges) -> bool:
    last_rank_by_product = np.full(LARGEST_VOCABULARY, -1, np.int64)
    ranks = np.arange(len(merges.keys))
    np.maximum.at(last_rank_by_product, merges.products, ranks)
    return bool(np.all((last_rank_by_product[merges.left] < ranks) & (last_rank_by_product[merges.right] < ranks)))


def _find_exceptions(vocabulary: dict[str, int], merges: _Merges, byte_ids: Ids) -> Iterator[UnmergedToken]:
    ranks = {key: rank for rank, key in enumerate(merges.keys.tolist())}
    products, ids_by_byte = merges.products.tolist(), byte_ids.tolist()
    mergeable = frozenset(products)
    for token, index in vocabulary.items():
        content = _token_bytes(token)
        # A single byte is always its own token.
        if content is None or len(content) == 1:
            continue
        if index not in mergeable or bpe([ids_by_byte[byte] for byte in content], ranks, products) != [index]:
            yield UnmergedToken(content, index)


def _token_bytes(token: str) -> bytes | None:
    """Return the bytes of a token, or None if the token contains a character that represents no byte."""
    try:
        return token.translate(BYTES_BY_CHARACTER).encode("latin-1")
    except UnicodeEncodeError:
        return None


WORD_BYTES = 8
HASH_BITS = 64
SECOND_MULTIPLIER = 0xFF51AFD7ED558CCD


class ExceptionTable(NamedTuple):
    """Hash table of the words that are one token although no merges produce the token.

    Words of two bytes are not in the table, because `pair_ids` contains their ids.
    """

    entries: npt.NDArray[Any]
    """Table with open addressing, at most half full. A search ends at an entry with `num_bytes` 0."""
    content: npt.NDArray[np.uint8]
    """Bytes of all words, each padded with zeros to a multiple of eight bytes."""
    longest: int
    """Number of bytes in the longest word. 0 if the table is empty."""

    @classmethod
    def of(cls, exceptions: Iterable[UnmergedToken]) -> "ExceptionTable":
        kept = [token for token in exceptions if len(token.content) >= MIN_ENTRY_BYTES]
        padded = [_pad(token.content) for token in kept]
        content = np.frombuffer(b"".join(padded) or bytes(WORD_BYTES), np.uint8)
        begins = np.cumsum([0, *map(len, padded)]).tolist()
        longest = max((len(token.content) for token in kept), default=0)
        return cls(_build_entries(kept, begins), content, longest)


def hash_word(word: bytes) -> int:
    """Return the hash that `hashed` in kernels/word_table.cuh computes."""
    value = len(word)
    for at in range(0, len(word), WORD_BYTES):
        eight = int.from_bytes(word[at : at + WORD_BYTES], "little")
        value = _low_64(_mix(value, eight) * MULTIPLIER)
    return value


def _mix(first: int, second: int) -> int:
    value = _low_64((first ^ _low_64(second * MULTIPLIER)) * SECOND_MULTIPLIER)
    return value ^ value >> HASH_BITS // 2


def _low_64(value: int) -> int:
    return value & (1 << HASH_BITS) - 1


def _pad(word: bytes) -> bytes:
    return word.ljust(-(-len(word) // WORD_BYTES) * WORD_BYTES, b"\0")


def _build_entries(exceptions: list[UnmergedToken], begins: list[int]) -> npt.NDArray[Any]:
    entries = np.zeros(1 << (2 * len(exceptions)).bit_length(), EXCEPTION)
    for (content, index), begin in zip(exceptions, begins, strict=False):
        value = hash_word(content)
        slot = (value >> HASH_BITS // 2) % len(entries)
        while entries["num_bytes"][slot]:
            slot = (slot + 1) % len(entries)
        entries[slot] = (value & 0xFFFFFFFF, begin, len(content), index)
    return entries
