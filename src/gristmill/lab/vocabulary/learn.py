"""Texts -> a byte-level BPE vocabulary, by `tokenizers`: the same for any number of threads and any order of texts.

It counts words and merges the most frequent pair of tokens again and again, of two as frequent the one with the lower
ids (test_train_tokenizer.py runs it with several threads and hash seeds). It counts pairs in 32 bits: so no more text
is read than keeps any count below that.
"""

import hashlib
import operator
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import msgspec

from gristmill.core.errors import MissingExtraError
from gristmill.core.records import Split
from gristmill.lab.vocabulary.corpus import Corpus, Text
from gristmill.lab.vocabulary.tokenizer_files import SPECIAL_TOKENS, PatternName, tokenizer_tree

MOST_BYTES = 2_000_000_000
"""Of text that is learnt from: below 2^31, and far more than the order of merges needs. Of more, a sample is read."""
PIECE_BYTES = 1 << 18
"""`tokenizers` takes 256 texts at a time, and for each many times its size."""
MIN_FREQUENCY = 2
"""A pair that is there once makes no other text shorter, and would spell out what is in one file only."""
LONGEST_TOKEN = 64
"""Bytes: enough for any indent, and no line of dashes takes a place."""


class Learnt(NamedTuple):
    vocab: dict[str, int]
    merges: list[list[str]]
    num_bytes: int
    """Of the text it was learnt from."""


def import_tokenizers() -> Any:
    try:
        import tokenizers  # noqa: PLC0415 - slow to import, and not always there
    except ImportError:
        raise MissingExtraError(
            "training a tokenizer needs the tokenizers package: pip install 'gristmill[tokenizers]'."
        ) from None
    return tokenizers


def learn(corpus: Corpus, size: int, pattern: PatternName, advance: Callable[[int], None]) -> Learnt:
    """From train alone; `advance` is told of each file."""
    tokenizers = import_tokenizers()
    empty = msgspec.json.encode(tokenizer_tree({}, [], pattern, "none") | {"added_tokens": []})
    tokenizer = tokenizers.Tokenizer.from_str(empty.decode())
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=size,
        min_frequency=MIN_FREQUENCY,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        max_token_length=LONGEST_TOKEN + 1,  # it stays below
        show_progress=False,
    )
    reading = _Reading(advance)
    tokenizer.train_from_iterator(reading.pieces(_drawn(corpus)), trainer)
    model = msgspec.json.decode(tokenizer.to_str())["model"]
    vocab = dict(sorted(model["vocab"].items(), key=operator.itemgetter(1)))
    return Learnt(vocab, model["merges"], reading.num_bytes)


class _Reading:
    def __init__(self, advance: Callable[[int], None]) -> None:
        self._advance, self.num_bytes = advance, 0

    def pieces(self, texts: Iterable[Text]) -> Iterator[str]:
        for text in texts:
            for stretch in text.stretches:
                for piece in pieces_of(stretch[: MOST_BYTES - self.num_bytes]):
                    self.num_bytes += len(piece)
                    yield piece.decode("utf-8", "ignore")
            self._advance(1)


def _drawn(corpus: Corpus) -> Iterator[Text]:
    """All of train; of more than is read, so many files as make about that, by their names."""
    num_bytes = corpus.num_bytes[Split.TRAIN]
    for text in corpus.texts(Split.TRAIN):
        if num_bytes <= MOST_BYTES or _chance(text.name) < MOST_BYTES / num_bytes:
            yield text


def _chance(name: str) -> float:
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big") / (1 << 32)


def pieces_of(text: bytes, limit: int = PIECE_BYTES) -> Iterator[bytes]:
    """The text in pieces that end with a line, or where there is none so far, with a character."""
    at = 0
    while len(text) - at > limit:
        end = text.rfind(b"\n", at, at + limit) + 1
        if end <= at:
            end = at + limit
            while end > at + 1 and text[end] & 0xC0 == 0x80:  # noqa: PLR2004 - in the middle of a character
                end -= 1
        yield text[at:end]
        at = end
    if at < len(text):
        yield text[at:]
