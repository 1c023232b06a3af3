"""Learn a byte-level BPE vocabulary with `tokenizers`. The result does not depend on threads or the order of texts.

The library counts words, and repeatedly merges the most frequent pair of tokens. If several pairs are equally
frequent, the pair with the lowest ids is merged (test_train_tokenizer.py checks this with several threads and hash
seeds). The library counts pairs with 32 bits, so the amount of text is limited to keep every count below 2^31.
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

MAX_BYTES = 2_000_000_000
"""Maximum amount of text. It is below 2^31 bytes, and is more than enough to find the order of merges. If train is
larger, only a sample of its files is used."""
PIECE_BYTES = 1 << 18
"""Maximum size of a piece of text. `tokenizers` takes 256 pieces at a time, and needs many times their size in
memory."""
MIN_FREQUENCY = 2
"""Minimum number of times that a merged pair occurs. Merging a pair that occurs once would shorten only one file, and
would copy text of this file into the vocabulary."""
MAX_TOKEN_BYTES = 64
"""Maximum length of a token. It is enough for deep indentation, but prevents long lines of dashes from using up
tokens."""


class LearnedVocabulary(NamedTuple):
    """Tokens and merges of a new vocabulary."""

    vocab: dict[str, int]
    merges: list[list[str]]
    num_bytes: int
    """Size of the text that the vocabulary was learned from."""


def import_tokenizers() -> Any:
    """Import `tokenizers`, or raise with the install command if it is missing."""
    try:
        import tokenizers  # noqa: PLC0415 - slow to import, and an extra
    except ImportError:
        raise MissingExtraError(
            "training a tokenizer needs the tokenizers package: pip install 'gristmill[tokenizers]'."
        ) from None
    return tokenizers


def learn(corpus: Corpus, size: int, pattern: PatternName, advance: Callable[[int], None]) -> LearnedVocabulary:
    """Learn a vocabulary from the texts in train. `advance` is called after each file."""
    tokenizers = import_tokenizers()
    empty = msgspec.json.encode(tokenizer_tree({}, [], pattern, "none") | {"added_tokens": []})
    tokenizer = tokenizers.Tokenizer.from_str(empty.decode())
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=size,
        min_frequency=MIN_FREQUENCY,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        max_token_length=MAX_TOKEN_BYTES + 1,  # the library keeps tokens shorter than this
        show_progress=False,
    )
    reader = _PieceReader(advance)
    tokenizer.train_from_iterator(reader.pieces(_sampled_texts(corpus)), trainer)
    model = msgspec.json.decode(tokenizer.to_str())["model"]
    vocab = dict(sorted(model["vocab"].items(), key=operator.itemgetter(1)))
    return LearnedVocabulary(vocab, model["merges"], reader.num_bytes)


class _PieceReader:
    """Splits texts into pieces, and counts the bytes."""

    def __init__(self, advance: Callable[[int], None]) -> None:
        self._advance, self.num_bytes = advance, 0

    def pieces(self, texts: Iterable[Text]) -> Iterator[str]:
        for text in texts:
            for span in text.spans:
                for piece in split_pieces(span[: MAX_BYTES - self.num_bytes]):
                    self.num_bytes += len(piece)
                    yield piece.decode("utf-8", "ignore")
            self._advance(1)


def _sampled_texts(corpus: Corpus) -> Iterator[Text]:
    """Yield the texts of train. If train is larger than MAX_BYTES, files are sampled by a hash of their names."""
    num_bytes = corpus.num_bytes[Split.TRAIN]
    for text in corpus.texts(Split.TRAIN):
        if num_bytes <= MAX_BYTES or _hash_fraction(text.name) < MAX_BYTES / num_bytes:
            yield text


def _hash_fraction(name: str) -> float:
    """Hash a name to a number from 0 to 1."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big") / (1 << 32)


def split_pieces(text: bytes, limit: int = PIECE_BYTES) -> Iterator[bytes]:
    """Split text into pieces of at most `limit` bytes.

    A piece ends at the end of a line, or at the end of a character if a line is too long.
    """
    at = 0
    while len(text) - at > limit:
        end = text.rfind(b"\n", at, at + limit) + 1
        if end <= at:
            end = at + limit
            while end > at + 1 and text[end] & 0xC0 == 0x80:  # noqa: PLR2004 - inside a character
                end -= 1
        yield text[at:end]
        at = end
    if at < len(text):
        yield text[at:]
