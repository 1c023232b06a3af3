"""Verify the files of a new tokenizer: both engines must produce the same ids, and decoding must return the text.

gigatoken encodes all text, and the tokens are counted. `tokenizers` encodes a sample of each split, with and without
the special tokens around a text.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from gristmill.core.errors import TokenizerError
from gristmill.core.records import Split
from gristmill.lab.vocabulary.corpus import Corpus, strip_partial_characters
from gristmill.lab.vocabulary.learn import import_tokenizers, split_pieces
from gristmill.lab.vocabulary.tokenizer_files import SPECIAL_TOKENS
from gristmill.lab.vocabulary.vocabulary import Compression
from gristmill.tokenizers.definition import Definition
from gristmill.tokenizers.gigatoken import FastTokenizer
from gristmill.tokenizers.huggingface import ReferenceTokenizer

FILES_COMPARED = 100
"""Approximate number of files per split to compare, evenly spaced."""
BYTES_COMPARED = 1 << 14
"""Maximum number of bytes to compare in each file."""


class Verification(NamedTuple):
    """Result of a successful verification."""

    splits: dict[Split, Compression]
    bytes_compared: int
    engines: tuple[str, str]


def verify(definition: Definition, corpus: Corpus, advance: Callable[[int], None]) -> Verification:
    """Encode all texts of a corpus, and call `advance` after each file. Raises if the engines disagree."""
    engines = _Engines(definition)
    splits = {}
    for split in Split:
        step = 1 + corpus.num_files[split] // FILES_COMPARED
        num_bytes = num_tokens = num_tokens_before = 0
        for number, text in enumerate(corpus.texts(split)):
            for span in text.spans:
                num_bytes += len(span)
                num_tokens += len(engines.fast.encode(span).ids)
            num_tokens_before += text.num_tokens
            if number % step == 0 and text.spans:
                engines.compare(next(split_pieces(text.spans[0], BYTES_COMPARED), b""), text.name)
            advance(1)
        splits[split] = Compression(
            files=corpus.num_files[split], bytes=num_bytes, tokens=num_tokens, tokens_before=num_tokens_before
        )
    return Verification(splits, engines.bytes_compared, (engines.fast.engine, engines.reference.engine))


class _Engines:
    """The new tokenizer, loaded by gigatoken and by `tokenizers`."""

    def __init__(self, definition: Definition) -> None:
        fast = FastTokenizer.load(definition)
        if fast is None:
            raise self._error("gigatoken does not support it")
        self.fast, self.reference = fast, ReferenceTokenizer(definition)
        self._complete_tokenizer: Any = import_tokenizers().Tokenizer.from_str(definition.json.decode())
        self._template = definition.template
        self.bytes_compared = 0

    def compare(self, text: bytes, name: str) -> None:
        """Raise TokenizerError if the engines disagree on a text. `name` is the name of the file."""
        ids = self.fast.encode(text).ids
        if not np.array_equal(ids, self.reference.encode(text).ids):
            raise self._error(f"gigatoken and the tokenizers library give different ids for {name}")
        if self.fast.decode(ids) != text:
            raise self._error(f"decoding does not return the text of {name}")
        if not any(token.encode() in text for token in SPECIAL_TOKENS):  # a build treats special tokens as text
            expected_ids = [*self._template.prefix, *ids.tolist(), *self._template.suffix]
            if self._complete_tokenizer.encode(strip_partial_characters(text).decode()).ids != expected_ids:
                raise self._error(f"with special tokens, the tokenizers library gives different ids for {name}")
        self.bytes_compared += len(text)

    @staticmethod
    def _error(problem: str) -> TokenizerError:
        return TokenizerError(f"the trained tokenizer is faulty and was not written: {problem}. Please report this.")
