"""A BPE model's vocabulary and merges, as the arrays that the kernels look words up in.

A merge is found by its two ids in one open-addressed table: `left << 43 | right << 22 | rank`. It is at most half full,
and a search ends at EMPTY. On the card each entry has the product beside it (engine.merge_entries).
"""

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any, Literal, NamedTuple, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from gristmill.core.errors import TokenizerError
from gristmill.tokenizers.cuda.patterns import refusal
from gristmill.tokenizers.cuda.structs import EXCEPTION, SHORT_FROM
from gristmill.tokenizers.definition import Definition

Ids = npt.NDArray[np.uint32]
Entries = npt.NDArray[np.uint64]
Kind = TypeVar("Kind")

NO_ID = 0xFFFFFFFF
EMPTY = 2**64 - 1
ID_BITS = 21
RANK_BITS = 22
LARGEST_VOCABULARY = 1 << ID_BITS
MOST_MERGES = (1 << RANK_BITS) - 1
"""The last rank is left out: with the last two ids it would read as EMPTY."""
MULTIPLIER = 0x9E3779B97F4A7C15
"""2**64 over the golden ratio: ids that are near each other land far apart."""
SMALLEST_TABLE_BITS = 4


class Exceptional(NamedTuple):
    """A token that its own bytes do not merge into."""

    spelled: bytes
    id: int


class MergeTables(NamedTuple):
    byte_ids: Ids
    """By byte."""
    pair_ids: Ids
    """By `a | b << 8`: the one token that the two-byte word ab is, or NO_ID where it stays two."""
    table: Entries
    table_bits: int
    products: Ids
    """By rank: the token that the merge makes."""
    is_in_order: bool
    """Each merge that uses a token ranks after all that make it. Ranks then only rise while a word is merged, and all
    occurrences of its earliest pair may be merged at once; else only the leftmost."""
    id_bits: Literal[16, 32]
    """What is enough for every id that text can become."""
    exceptions: tuple[Exceptional, ...]
    """With ignore_merges: words that are one token though merges do not say so."""

    @classmethod
    def of(cls, definition: Definition) -> "MergeTables":
        vocabulary = _vocabulary_of(definition)
        merges = _Merges.of(definition, vocabulary)
        byte_ids = _byte_ids(definition, vocabulary)
        exceptions = tuple(_exceptions(vocabulary, merges, byte_ids)) if definition.model.ignore_merges else ()
        table_bits = max(SMALLEST_TABLE_BITS, (2 * len(merges.keys) - 1).bit_length())
        emitted = [*byte_ids.tolist(), *merges.products.tolist(), *(token.id for token in exceptions)]
        return cls(
            byte_ids=byte_ids,
            pair_ids=_pair_ids(merges, byte_ids, exceptions),
            table=_table(merges.keys, table_bits),
            table_bits=table_bits,
            products=merges.products,
            is_in_order=_is_in_order(merges),
            id_bits=16 if max(emitted) < 1 << 16 else 32,
            exceptions=exceptions,
        )


class _Merges(NamedTuple):
    """By rank."""

    keys: Entries
    """`left << 21 | right`"""
    products: Ids

    @classmethod
    def of(cls, definition: Definition, vocabulary: dict[str, int]) -> "_Merges":
        pairs = _pairs_of(definition)
        if len(pairs) > MOST_MERGES:
            raise refusal(definition, f"it has {len(pairs)} merges, and {MOST_MERGES} is the most")
        try:
            ids = np.array([(vocabulary[a], vocabulary[b], vocabulary[a + b]) for a, b in pairs], np.uint64)
        except KeyError as error:
            raise refusal(definition, f"its merges name {error.args[0]!r}, which is not in its vocabulary") from None
        left, right, products = ids.reshape(-1, 3).T
        keys = left << np.uint64(ID_BITS) | right
        _check_each_is_there_once(definition, keys, pairs)
        return cls(keys, products.astype(np.uint32))

    @property
    def left(self) -> Ids:
        return (self.keys >> np.uint64(ID_BITS)).astype(np.uint32)

    @property
    def right(self) -> Ids:
        return (self.keys & np.uint64(LARGEST_VOCABULARY - 1)).astype(np.uint32)


def byte_characters() -> str:
    """GPT-2's alphabet: by byte, the character that stands for it in a vocabulary. Visible ones are themselves."""
    visible = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    hidden = (byte for byte in range(256) if byte not in visible)
    stand_ins = {byte: chr(256 + place) for place, byte in enumerate(hidden)}
    return "".join(stand_ins.get(byte, chr(byte)) for byte in range(256))


# What stands for no byte but would pass for one goes beyond Latin-1.
BYTES_BY_CHARACTER = dict.fromkeys(range(256), 256) | {
    ord(character): byte for byte, character in enumerate(byte_characters())
}


def slots_of(keys: Entries, table_bits: int) -> npt.NDArray[np.int64]:
    """Where the search for `left << 21 | right` begins."""
    return (keys * np.uint64(MULTIPLIER) >> np.uint64(64 - table_bits)).astype(np.int64)


def bpe(ids: list[int], ranks: dict[int, int], products: list[int]) -> list[int]:
    """Merges the earliest pair, the leftmost of equals, until none is left. Quadratic: for a token's own bytes."""
    none = len(products)
    found = [ranks.get(left << ID_BITS | right, none) for left, right in pairwise(ids)]
    while found and (rank := min(found)) != none:
        at = found.index(rank)
        ids[at : at + 2] = [products[rank]]
        del found[at]
        for pair in range(max(at - 1, 0), min(at + 1, len(found))):
            found[pair] = ranks.get(ids[pair] << ID_BITS | ids[pair + 1], none)
    return ids


def _vocabulary_of(definition: Definition) -> dict[str, int]:
    if definition.vocab_size > LARGEST_VOCABULARY:
        raise refusal(definition, f"its vocabulary has {definition.vocab_size} ids, over {LARGEST_VOCABULARY}")
    vocabulary = _decode(definition, definition.model.vocab, dict[str, int])
    if len(set(vocabulary.values())) < len(vocabulary):
        raise refusal(definition, "two tokens of its vocabulary have the same id")
    return vocabulary


def _pairs_of(definition: Definition) -> list[tuple[str, str]]:
    """Spelled `"a b"` or `["a", "b"]`."""
    spelled: list[str | tuple[str, str]] = _decode(definition, definition.model.merges, list[str | tuple[str, str]])
    pairs = [tuple(merge.split(" ")) if isinstance(merge, str) else merge for merge in spelled]
    odd = next((merge for merge in pairs if len(merge) != 2), None)  # noqa: PLR2004 - a pair
    if odd is not None:
        raise refusal(definition, f"its merge {' '.join(odd)!r} is not of two parts")
    return [(merge[0], merge[1]) for merge in pairs]


def _decode(definition: Definition, content: msgspec.Raw, kind: type[Kind]) -> Kind:
    try:
        return msgspec.json.decode(content, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise TokenizerError(f"the tokenizer {definition.name!r} is damaged: {error}. Fetch it again.") from None


def _check_each_is_there_once(definition: Definition, keys: Entries, pairs: list[tuple[str, str]]) -> None:
    _, first_ranks = np.unique(keys, return_index=True)
    if len(first_ranks) < len(keys):
        again = int(np.setdiff1d(np.arange(len(keys)), first_ranks)[0])
        raise refusal(definition, f"its merge {' '.join(pairs[again])!r} is listed twice")


def _byte_ids(definition: Definition, vocabulary: dict[str, int]) -> Ids:
    ids = [vocabulary.get(character) for character in byte_characters()]
    missing = [byte for byte, index in enumerate(ids) if index is None]
    if missing:
        raise refusal(definition, f"its vocabulary lacks {len(missing)} of the 256 bytes, the first 0x{missing[0]:02X}")
    return np.array(ids, np.uint32)


def _pair_ids(merges: _Merges, byte_ids: Ids, exceptions: Iterable[Exceptional]) -> Ids:
    pair_ids = np.full(1 << 16, NO_ID, np.uint32)
    bytes_by_id = np.full(LARGEST_VOCABULARY, -1, np.int64)
    bytes_by_id[byte_ids] = np.arange(256)
    left, right = bytes_by_id[merges.left], bytes_by_id[merges.right]
    is_of_bytes = (left >= 0) & (right >= 0)
    pair_ids[(left | right << 8)[is_of_bytes]] = merges.products[is_of_bytes]
    for spelled, index in exceptions:
        if len(spelled) == 2:  # noqa: PLR2004 - a pair
            pair_ids[spelled[0] | spelled[1] << 8] = index
    return pair_ids


def _table(keys: Entries, table_bits: int) -> Entries:
    """Linear probing without a loop: sorted by slot, each goes to its own or behind the one before it."""
    entries = keys << np.uint64(RANK_BITS) | np.arange(len(keys), dtype=np.uint64)
    slots = slots_of(keys, table_bits)
    order, places = np.argsort(slots, kind="stable"), np.arange(len(keys))
    taken = np.maximum.accumulate(slots[order] - places) + places
    table = np.full(1 << table_bits, EMPTY, np.uint64)
    is_inside = taken < len(table)
    table[taken[is_inside]] = entries[order[is_inside]]
    # What runs over the end goes on from the start: a handful.
    for entry in entries[order[~is_inside]]:
        table[int(np.argmax(table == np.uint64(EMPTY)))] = entry
    return table


def _is_in_order(merges: _Merges) -> bool:
    made_last = np.full(LARGEST_VOCABULARY, -1, np.int64)
    ranks = np.arange(len(merges.keys))
    np.maximum.at(made_last, merges.products, ranks)
    return bool(np.all((made_last[merges.left] < ranks) & (made_last[merges.right] < ranks)))


def _exceptions(vocabulary: dict[str, int], merges: _Merges, byte_ids: Ids) -> Iterator[Exceptional]:
    ranks = {key: rank for rank, key in enumerate(merges.keys.tolist())}
    products, ids_by_byte = merges.products.tolist(), byte_ids.tolist()
    made = frozenset(products)
    for token, index in vocabulary.items():
        spelled = _bytes_of(token)
        # A single byte is itself.
        if spelled is None or len(spelled) == 1:
            continue
        if index not in made or bpe([ids_by_byte[byte] for byte in spelled], ranks, products) != [index]:
            yield Exceptional(spelled, index)


def _bytes_of(token: str) -> bytes | None:
    """None for one that no text spells, as it holds a character that stands for no byte."""
    try:
        return token.translate(BYTES_BY_CHARACTER).encode("latin-1")
    except UnicodeEncodeError:
        return None


# Words that are one token though merges do not make it, as a table that kernels look new words up in.

EIGHT = 8
HASH_BITS = 64
SECOND_MULTIPLIER = 0xFF51AFD7ED558CCD


class ExceptionTable(NamedTuple):
    entries: npt.NDArray[Any]
    """Open addressing, at most half full; a length of 0 ends a search."""
    content: npt.NDArray[np.uint8]
    """Each word's bytes from a multiple of eight on, with zeros behind them."""
    longest: int
    """Bytes; 0 where there are none."""

    @classmethod
    def of(cls, exceptions: Iterable[Exceptional]) -> "ExceptionTable":
        kept = [token for token in exceptions if len(token.spelled) >= SHORT_FROM]
        padded = [_padded(token.spelled) for token in kept]
        content = np.frombuffer(b"".join(padded) or bytes(EIGHT), np.uint8)
        begins = np.cumsum([0, *map(len, padded)]).tolist()
        longest = max((len(token.spelled) for token in kept), default=0)
        return cls(_entries(kept, begins), content, longest)


def hash_of(word: bytes) -> int:
    """What `hashed` in kernels/word_table.cuh computes."""
    value = len(word)
    for at in range(0, len(word), EIGHT):
        eight = int.from_bytes(word[at : at + EIGHT], "little")
        value = _low_64(_mixed(value, eight) * MULTIPLIER)
    return value


def _mixed(first: int, second: int) -> int:
    value = _low_64((first ^ _low_64(second * MULTIPLIER)) * SECOND_MULTIPLIER)
    return value ^ value >> HASH_BITS // 2


def _low_64(value: int) -> int:
    return value & (1 << HASH_BITS) - 1


def _padded(word: bytes) -> bytes:
    return word.ljust(-(-len(word) // EIGHT) * EIGHT, b"\0")


def _entries(exceptions: list[Exceptional], begins: list[int]) -> npt.NDArray[Any]:
    entries = np.zeros(1 << (2 * len(exceptions)).bit_length(), EXCEPTION)
    for (spelled, index), begin in zip(exceptions, begins, strict=False):
        value = hash_of(spelled)
        slot = (value >> HASH_BITS // 2) % len(entries)
        while entries["num_bytes"][slot]:
            slot = (slot + 1) % len(entries)
        entries[slot] = (value & 0xFFFFFFFF, begin, len(spelled), index)
    return entries
