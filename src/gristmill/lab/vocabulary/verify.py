"""A tokenizer as it lies on disk, loaded by both engines: are its ids the same, and is its text given back?

All text is encoded by gigatoken, which counts the tokens; some of each split by `tokenizers` too, also with the special
tokens that it puts around a text.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from gristmill.core.errors import TokenizerError
from gristmill.core.records import Split
from gristmill.lab.vocabulary.corpus import Corpus, whole_characters
from gristmill.lab.vocabulary.learn import import_tokenizers, pieces_of
from gristmill.lab.vocabulary.tokenizer_files import SPECIAL_TOKENS
from gristmill.lab.vocabulary.vocabulary import Compression
from gristmill.tokenizers.definition import Definition
from gristmill.tokenizers.gigatoken import FastTokenizer
from gristmill.tokenizers.huggingface import ReferenceTokenizer

FILES_COMPARED = 100
"""Of each split, evenly taken."""
BYTES_COMPARED = 1 << 14
"""Of each of them, at most."""


class Proof(NamedTuple):
    splits: dict[Split, Compression]
    bytes_compared: int
    engines: tuple[str, str]


def prove(definition: Definition, corpus: Corpus, advance: Callable[[int], None]) -> Proof:
    engines = _Engines(definition)
    splits = {}
    for split in Split:
        step = 1 + corpus.num_files[split] // FILES_COMPARED
        num_bytes = num_tokens = num_before = 0
        for number, text in enumerate(corpus.texts(split)):
            for stretch in text.stretches:
                num_bytes += len(stretch)
                num_tokens += len(engines.fast.encode(stretch).ids)
            num_before += text.num_tokens
            if number % step == 0 and text.stretches:
                engines.compare(next(pieces_of(text.stretches[0], BYTES_COMPARED), b""), text.name)
            advance(1)
        splits[split] = Compression(
            files=corpus.num_files[split], bytes=num_bytes, tokens=num_tokens, tokens_before=num_before
        )
    return Proof(splits, engines.bytes_compared, (engines.fast.engine, engines.reference.engine))


class _Engines:
    def __init__(self, definition: Definition) -> None:
        fast = FastTokenizer.load(definition)
        if fast is None:
            raise self._fault("gigatoken does not take it")
        self.fast, self.reference = fast, ReferenceTokenizer(definition)
        self._whole: Any = import_tokenizers().Tokenizer.from_str(definition.json.decode())
        self._template = definition.template
        self.bytes_compared = 0

    def compare(self, text: bytes, name: str) -> None:
        ids = self.fast.encode(text).ids
        if not np.array_equal(ids, self.reference.encode(text).ids):
            raise self._fault(f"gigatoken and tokenizers make other ids of {name}")
        if self.fast.decode(ids) != text:
            raise self._fault(f"it does not give the text of {name} back")
        if not any(token.encode() in text for token in SPECIAL_TOKENS):  # there, they are text to a build
            around = [*self._template.prefix, *ids.tolist(), *self._template.suffix]
            if self._whole.encode(whole_characters(text).decode()).ids != around:
                raise self._fault(f"its tokenizer.json makes other ids of {name}")
        self.bytes_compared += len(text)

    @staticmethod
    def _fault(what: str) -> TokenizerError:
        return TokenizerError(
            f"the tokenizer that was trained is not sound, and was not kept: {what}. Please report it."
        )
