"""Determine the special ids around windows: the tokenizer's template, or the begin and end tokens of documents.

For fill-in-the-middle, determine the sentinels: special tokens before the prefix, the middle and the suffix of a text.
"""

from typing import NamedTuple

from gristmill.config.settings import NO_END_TOKEN, WindowConfig
from gristmill.core.errors import ConfigError
from gristmill.tokenizers.definition import Definition
from gristmill.tokenizers.sentinels import fim_family, fim_ids


class WindowFrame(NamedTuple):
    """Special ids around a window."""

    prefix: tuple[int, ...]
    """Ids before each window."""
    suffix: tuple[int, ...]
    """Ids after each window."""
    closing: tuple[int, ...]
    """Ids after the last window of a document."""
    end_id: int | None
    """Id that ends a document in a stream of tokens. None if no token ends documents."""


def window_frame(window: WindowConfig, definition: Definition) -> WindowFrame:
    """Return the special ids of windows. Raise ConfigError if the tokenizer does not have the configured end token."""
    end_id = _end_id(window.end_token, definition)
    if window.special_tokens != "documents":
        return WindowFrame(*definition.template, (), end_id)
    return WindowFrame(definition.begin_ids, (), () if end_id is None else (end_id,), end_id)


class FimFrame(NamedTuple):
    """Special ids of a window that is rearranged for fill-in-the-middle."""

    prefix: int
    """Id of the sentinel before the prefix."""
    middle: int
    """Id of the sentinel before the middle."""
    suffix: int
    """Id of the sentinel before the suffix."""
    end: int | None
    """Id of the end token after the middle. None if no end token is inside the window."""
    closes: bool
    """True if the ids that end a document follow the window."""
    spm_share: float
    """Share of windows in SPM order (suffix, prefix, middle) in the training of the model family."""

    @property
    def ids(self) -> tuple[int, ...]:
        """All control ids inside the window."""
        return self.prefix, self.middle, self.suffix, *(() if self.end is None else (self.end,))


def fim_frame(window: WindowConfig, definition: Definition, *, has_documents: bool = False) -> FimFrame:
    """Return the special ids of fill-in-the-middle windows. Raise ConfigError if the tokenizer has no sentinels.

    With `has_documents`, rows are texts instead of ids. The trainer adds the usual end token, so `end` is set only if
    the model family has a separate end token for fill-in-the-middle.
    """
    sentinels, family, frame = fim_ids(definition), fim_family(definition), window_frame(window, definition)
    assert family is not None, "fim_ids raises ConfigError if there is no family"
    end = frame.end_id if family.end is None else definition.id_of(family.end)
    if has_documents:
        return FimFrame(*sentinels, None if family.end is None else end, closes=False, spm_share=family.spm_share)
    is_alone = window.pack != "repo"
    closes = is_alone and end is not None and frame.closing == (end,)
    has_end = closes or (is_alone and end is not None and frame.suffix[:1] == (end,))
    return FimFrame(*sentinels, None if has_end else end, closes, family.spm_share)


def _end_id(name: str | None, definition: Definition) -> int | None:
    if name is None:
        return definition.end_id
    if name == NO_END_TOKEN:
        return None
    found = definition.id_of(name)
    if found is None or found not in definition.control_ids:
        problem = "no such token" if found is None else "this token only as ordinary text, which may occur in sources"
        special_names = ", ".join(token.content for token in definition.special_tokens[:8])
        raise ConfigError(
            f"--end-token {name!r}: the tokenizer {definition.name!r} has {problem}. Try --end-token none"
            + (f", or one of its special tokens: {special_names}." if special_names else ".")
        )
    return found
