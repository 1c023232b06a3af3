"""What every task of a build knows: the configuration and the folders. Small, picklable, the same in every process."""

from pathlib import Path

import msgspec

from gristmill.config import Config
from gristmill.formats.jsonl import RowFormat
from gristmill.shaping.windows import WindowShape
from gristmill.tokenizing.definition import Definition
from gristmill.tokenizing.tokenizer import Tokenizer, tokenizer_for, tokenizer_in


class Context(msgspec.Struct, frozen=True, kw_only=True):
    config: Config
    prepared: Path
    """Shards of ids, between step 1 and step 3."""
    dataset: Path
    """The dataset as it grows, beside its final place; the tokenizer lies there first."""
    tokenizer_key: str

    @classmethod
    def of(cls, config: Config, definition: Definition, *, prepared: Path, dataset: Path) -> "Context":
        """Puts the tokenizer into its place; a setting that it rules out is refused here."""
        tokenizer_for(definition)
        definition.write(dataset)
        context = cls(config=config, prepared=prepared, dataset=dataset, tokenizer_key=definition.key)
        _ = context.row_format, context.window_shape
        return context

    @property
    def tokenizer(self) -> Tokenizer:
        return tokenizer_in(self.dataset, self.tokenizer_key)

    @property
    def row_format(self) -> RowFormat:
        return RowFormat.of(self.config, self.tokenizer.definition)

    @property
    def window_shape(self) -> WindowShape:
        return WindowShape.of(self.config.window, self.tokenizer.definition.template.num_special)
