"""Context: the settings and folders of a build. A context is small and picklable, so every worker receives a copy."""

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from gristmill.cleaning.control_spellings import Spellings
from gristmill.config.config import Config
from gristmill.config.presets import with_preset
from gristmill.core.schema import Schema
from gristmill.formats.document_columns import window_schema
from gristmill.formats.format import get_format
from gristmill.pipeline.keys import key_of, prepare_key
from gristmill.pipeline.parts import PartStore
from gristmill.tokenizers.control_tokens import KNOWN_SPELLINGS, SPELLING_SHAPES
from gristmill.tokenizers.definition import Definition
from gristmill.tokenizers.sentinels import repo_ids
from gristmill.tokenizers.tokenizer import Tokenizer, tokenizer_for, tokenizer_in
from gristmill.windows.cut import WHOLE_DOCUMENT, WindowShape

if TYPE_CHECKING:
    from gristmill.tokenizers.cuda.exchange import Address

LARGE_BYTES = 64 << 20
"""Size above which files or rows are processed in a separate process, which frees its memory when it ends."""


def is_large(num_bytes: int) -> bool:
    return num_bytes > LARGE_BYTES


class Context(msgspec.Struct, frozen=True, kw_only=True):
    config: Config
    folder: Path
    """Path of the work folder."""
    tokenizer_key: str
    prepare_key: str
    keeps_text: bool
    """True if parts (the files with the results of step 1) store the text in addition to the ids.

    The text is stored if a column needs the text, or if variants, fill-in-the-middle or the import order need the text
    and the tokenizer cannot restore the text from the ids.
    """
    server: "Address | None" = None
    """Address of the process that owns the GPU, or None if there is no such process."""

    @classmethod
    def of(cls, config: Config, definition: Definition, folder: Path) -> "Context":
        """Resolve the preset and write the tokenizer to the work folder. Raise if the settings cannot be used."""
        config = with_preset(config, has_mask=definition.mask_id is not None)
        key, tokenizer = definition.key, tokenizer_for(definition)
        reads_text = bool(config.variants.rates) or config.fim.is_enabled or config.window.repo_order == "imports"
        keeps_text = config.needs_text or (reads_text and not tokenizer.decodes_exactly)
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
            get_format(name).require()
        for subfolder in (context.prepared, context.scratch, context.dataset, context.tokenizer_folder):
            subfolder.mkdir(exist_ok=True)
        definition.write(context.tokenizer_folder)
        return context

    @property
    def prepared(self) -> Path:
        """Folder of the parts, which hold the results of step 1."""
        return self.folder / "prepared"

    @property
    def scratch(self) -> Path:
        """Folder of files that are not needed after this build."""
        return self.folder / "scratch"

    @property
    def dataset(self) -> Path:
        """Folder of the dataset until it is complete."""
        return self.folder / "dataset"

    @property
    def answers(self) -> Path:
        """Folder of the language model's answers. They are kept, so that a later build does not ask again."""
        return self.folder / "answers"

    @property
    def tokenizer_folder(self) -> Path:
        return self.folder / "tokenizer"

    @property
    def tokenizer(self) -> Tokenizer:
        tokenizer = tokenizer_in(self.tokenizer_folder, self.tokenizer_key)
        if self.server is None:
            return tokenizer
        from gristmill.tokenizers.cuda.client import with_gpu_server  # noqa: PLC0415 - most builds do not need it

        return with_gpu_server(tokenizer, self.server)

    def with_server(self, server: "Address | None") -> "Context":
        return msgspec.structs.replace(self, server=server)

    @property
    def store(self) -> PartStore:
        return PartStore(self.prepared, self.tokenizer.vocab_size)

    @property
    def is_packed(self) -> bool:
        return self.config.window.is_packed

    @property
    def spellings(self) -> Spellings | None:
        """Literal texts of control tokens that no document may contain, or None if documents are not searched.

        The texts are those of the tokenizer and of all known model families.
        """
        if not self.config.has_documents or self.config.output.control_spellings == "keep":
            return None
        tokenizer_spellings = self.tokenizer.definition.control_spellings
        return Spellings(tuple(sorted({*tokenizer_spellings, *KNOWN_SPELLINGS})), SPELLING_SHAPES)

    @property
    def schema(self) -> Schema:
        """Schema of the rows."""
        return self.window_schema.packed if self.is_packed else self.window_schema

    @property
    def window_schema(self) -> Schema:
        """Schema of rows that hold one window each."""
        tokenizer = self.tokenizer
        return window_schema(self.config, tokenizer.definition, tokenizer.vocab_size)

    @property
    def writes_pieces(self) -> bool:
        """True if JSONL rows are written in pieces. Packed rows are never written in pieces."""
        return "jsonl" in self.config.output.formats and not self.is_packed

    @property
    def other_formats(self) -> list[str]:
        return [name for name in self.config.output.formats if name != "jsonl"]

    @property
    def step_1_schema(self) -> Schema:
        """Schema with which step 1 measures rows, without the columns that step 2 fills."""
        return self.window_schema.without_step_2_columns

    @property
    def rows_key(self) -> str:
        """Digest of everything that determines rows, except the documents."""
        return key_of(self.prepare_key, self.window_schema.columns)

    @property
    def window_shape(self) -> WindowShape:
        if self.config.has_documents:
            return WHOLE_DOCUMENT
        return WindowShape.of(self.config.window, self.window_schema.num_special)
