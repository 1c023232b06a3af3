"""Make variants of a document, with one function for each kind of variant.

The table VARIANTS in core/records.py describes the kinds. The package gristmill.pipeline decides whether a variant is
used: a variant must not contain a secret or held-out text, and must not be a duplicate.
"""

from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy.typing as npt

from gristmill.config.config import Config
from gristmill.config.settings import VariantsConfig
from gristmill.core.plain_files import read_plain
from gristmill.core.records import VARIANTS, Range, VariantKind, WhyNoVariant
from gristmill.core.seeded_random import SeededRandom
from gristmill.tokenizers.definition import Definition
from gristmill.tokenizers.sentinels import mask_id
from gristmill.tokenizers.tokenizer import Tokenizer
from gristmill.variants.answers import find_refusal_reason
from gristmill.variants.code_layout import vary_layout
from gristmill.variants.comments import vary_comments
from gristmill.variants.endpoint import Endpoint
from gristmill.variants.grammars import Parsed, is_hard_to_query, parse, require_grammars
from gristmill.variants.noise import Noise
from gristmill.variants.rename import rename
from gristmill.windows.cut import WindowShape, cut

Ids = npt.NDArray[Any]


class Original(msgspec.Struct, frozen=True, dict=True, kw_only=True):
    """Document to make variants of. All kinds of variants share one syntax tree, so the text is parsed only once."""

    text: bytes
    ids: Ids
    language: str
    answer: Path | None = None
    """File with the text that a language model wrote for the document. None if no such file exists."""
    why_no_answer: WhyNoVariant = WhyNoVariant.NO_ANSWER
    """Reason why `answer` is None. Ignored if `answer` is a file."""

    @cached_property
    def parsed(self) -> Parsed:
        return parse(self.text, self.language)


class VariantContext(NamedTuple):
    """Settings, tokenizer and window shape for all variants of a build."""

    config: VariantsConfig
    tokenizer: Tokenizer
    window_shape: WindowShape


class IndependentWindow(NamedTuple):
    """Window that is made directly from tokens of a file, without a variant of the complete text."""

    ids: Ids
    file_range: Range
    """Range of the file's tokens from which the window is made."""


Content = bytes | Sequence[IndependentWindow]
"""Text or windows, depending on `VARIANTS[kind].makes`."""
Maker = Callable[[Original, VariantContext, SeededRandom], Content | WhyNoVariant]


def make_variant(kind: VariantKind, original: Original, context: VariantContext, seed: int) -> Content | WhyNoVariant:
    """Make a variant of a document, or return the reason why the document has none.

    If the kind needs a grammar, the variant has no more syntax errors than the document.
    """
    traits = VARIANTS[kind]
    if traits.needs_grammar and is_hard_to_query(original.parsed):
        return WhyNoVariant.SYNTAX_ERRORS
    made = MAKERS[kind](original, context, SeededRandom(seed))
    if isinstance(made, WhyNoVariant) or traits.makes == "windows":
        return made or WhyNoVariant.NOTHING_TO_VARY
    assert isinstance(made, bytes), f"{kind} must make text"
    # A kind that keeps the syntax tree adds no errors. Its variants are not parsed, because parsing would double the
    # cost. tests/variants/test_rename.py checks that the tree is kept.
    may_differ = traits.needs_grammar and "tree" not in traits.keeps
    if may_differ and _has_more_errors(made, original.parsed):
        return WhyNoVariant.MORE_ERRORS
    return made


def check_requirements(config: Config, definition: Definition) -> None:
    """Check the grammars, the mask token and the endpoint settings that the configured variants need.

    Raises MissingExtraError or ConfigError.
    """
    kinds = config.variants.rates
    if config.variants.needs_grammar:
        require_grammars()
    if any(VARIANTS[kind].needs_mask for kind in kinds):
        mask_id(definition)
    if config.variants.needs_model:
        Endpoint.from_config(config.rewrite)


def _has_more_errors(text: bytes, original: Parsed) -> bool:
    return parse(text, original.language).num_errors > original.num_errors


def _maker_by_grammar(change: Callable[[Parsed, SeededRandom], bytes | None]) -> Maker:
    def make(original: Original, _: VariantContext, rng: SeededRandom) -> Content | WhyNoVariant:
        parsed = original.parsed
        text = change(parsed, rng)
        if text is None or text == parsed.text:
            has_errors = parsed.tree.root_node.has_error
            return WhyNoVariant.SYNTAX_ERRORS if has_errors else WhyNoVariant.NOTHING_TO_VARY
        return text

    return make


def _make_rewrite(original: Original, _context: VariantContext, _rng: SeededRandom) -> Content | WhyNoVariant:
    """Return the text that the model wrote earlier (see variants/rewrite.py), or the reason why no text can be used."""
    if original.answer is None:
        return original.why_no_answer
    text = read_plain(original.answer)
    return text if find_refusal_reason(original.parsed, text) is None else WhyNoVariant.ANSWER_REFUSED


def _make_noise(original: Original, context: VariantContext, rng: SeededRandom) -> Content | WhyNoVariant:
    config, ids = context.config, original.ids
    mask = mask_id(context.tokenizer.definition)
    noise = Noise(mask, config.noise_mask, config.noise_span, config.noise_delete)
    windows = cut(len(ids), context.window_shape)
    made = [
        (noise.corrupt(ids[start:end], rng), (start, end))
        for start, end in zip(windows.starts.tolist(), windows.ends.tolist(), strict=True)
    ]
    return [IndependentWindow(noisy, file_range) for noisy, file_range in made if noisy is not None]


MAKERS: dict[VariantKind, Maker] = {
    VariantKind.RENAME: _maker_by_grammar(rename),
    VariantKind.COMMENTS: _maker_by_grammar(vary_comments),
    VariantKind.FORMAT: _maker_by_grammar(vary_layout),
    VariantKind.REWRITE: _make_rewrite,
    VariantKind.NOISE: _make_noise,
}
