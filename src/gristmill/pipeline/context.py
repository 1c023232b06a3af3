"""What every task of a build knows: the configuration and the folders. Small, picklable, the same in every process."""

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from gristmill.cleaning.control_spellings import Spellings
from gristmill.config.config import Config
from gristmill.config.presets import with_preset
from gristmill.core.schema import Schema
from gristmill.formats.document_columns import window_schema
from gristmill.formats.format import format_named
from gristmill.pipeline.keys import key_of, prepare_key
from gristmill.pipeline.parts import PartStore
from gristmill.tokenizers.control_tokens import KNOWN_SPELLINGS, SPELLING_SHAPES
from gristmill.tokenizers.definition import Definition
from gristmill.tokenizers.sentinels import repo_ids
from gristmill.tokenizers.tokenizer import Tokenizer, tokenizer_for, tokenizer_in
from gristmill.windows.cut import WHOLE, WindowShape

if TYPE_CHECKING:
    from gristmill.tokenizers.cuda.exchange import Address

LARGE_BYTES = 64 << 20
"""A file, or the rows of one, from which on it gets a process of its own, whose memory goes back afterwards."""


def is_large(num_bytes: int) -> bool:
    return num_bytes > LARGE_BYTES


class Context(msgspec.Struct, frozen=True, kw_only=True):
    config: Config
    folder: Path
    """The work folder."""
    tokenizer_key: str
    prepare_key: str
    keeps_text: bool
    """Beside the ids: for a column, or if the tokenizer does not give back a text that is varied, rewritten or read
    for imports."""
    server: "Address | None" = None
    """Of the process that owns the card, where one does."""

    @classmethod
    def of(cls, config: Config, definition: Definition, folder: Path) -> "Context":
        """Decide what the preset decides, and put the tokenizer in its place. Refuse settings that it rules out."""
        config = with_preset(config, has_mask=definition.mask_id is not None)
        key, tokenizer = definition.key, tokenizer_for(definition)
        reads_text = bool(config.variants.rates) or config.fim.is_on or config.window.repo_order == "imports"
        keeps_text = config.needs_text or (reads_text and not tokenizer.gives_text_back)
        context = cls(
            config=config,
            folder=folder,
            tokenizer_key=key,
            prepare_key=prepare_key(config, key, keeps_text=keeps_text),
            keeps_text=keeps_text,
        )
        _ = context.window_schema, context.window_shape
        if config.window.pack == "repo":
            repo_ids(definition)
        for name in config.output.formats:
            format_named(name).require()
        for place in (context.prepared, context.scratch, context.dataset, context.tokenizer_folder):
            place.mkdir(exist_ok=True)
        definition.write(context.tokenizer_folder)
        return context

    @property
    def prepared(self) -> Path:
        """Parts: what batches became in step 1."""
        return self.folder / "prepared"

    @property
    def scratch(self) -> Path:
        """What is of no use once this build is over."""
        return self.folder / "scratch"

    @property
    def dataset(self) -> Path:
        """The dataset as it grows, beside its final place."""
        return self.folder / "dataset"

    @property
    def answers(self) -> Path:
        """What a language model has said: a build that is run again asks nothing twice."""
        return self.folder / "answers"

    @property
    def tokenizer_folder(self) -> Path:
        return self.folder / "tokenizer"

    @property
    def tokenizer(self) -> Tokenizer:
        tokenizer = tokenizer_in(self.tokenizer_folder, self.tokenizer_key)
        if self.server is None:
            return tokenizer
        from gristmill.tokenizers.cuda.client import served  # noqa: PLC0415 - most builds do without

        return served(tokenizer, self.server)

    def served_by(self, server: "Address | None") -> "Context":
        return msgspec.structs.replace(self, server=server)

    @property
    def store(self) -> PartStore:
        return PartStore(self.prepared, self.tokenizer.vocab_size)

    @property
    def is_packed(self) -> bool:
        return self.config.window.is_packed

    @property
    def spellings(self) -> Spellings | None:
        """Names of control tokens that no document may hold: those of the tokenizer and of all known families."""
        if not self.config.has_documents or self.config.output.control_spellings == "keep":
            return None
        own = self.tokenizer.definition.control_spellings
        return Spellings(tuple(sorted({*own, *KNOWN_SPELLINGS})), SPELLING_SHAPES)

    @property
    def schema(self) -> Schema:
        """Of the rows."""
        return self.window_schema.packed if self.is_packed else self.window_schema

    @property
    def window_schema(self) -> Schema:
        """Of rows with one window each."""
        tokenizer = self.tokenizer
        return window_schema(self.config, tokenizer.definition, tokenizer.vocab_size)

    @property
    def writes_pieces(self) -> bool:
        """Of JSONL, each at its place."""
        return "jsonl" in self.config.output.formats and not self.is_packed

    @property
    def other_formats(self) -> list[str]:
        return [name for name in self.config.output.formats if name != "jsonl"]

    @property
    def plain_schema(self) -> Schema:
        """By which step 1 measures: so that what it made is good for any weights."""
        return self.window_schema.plain

    @property
    def rows_key(self) -> str:
        """All that rows go by, but for the documents."""
        return key_of(self.prepare_key, self.window_schema.columns)

    @property
    def window_shape(self) -> WindowShape:
        if self.config.has_documents:
            return WHOLE
        return WindowShape.of(self.config.window, self.window_schema.num_special)
