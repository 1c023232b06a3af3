"""A document -> one variant of it: the function that makes each kind, and what that needs.

core/records.py has the table VARIANTS, which says what each kind is. pipeline/ decides whether a variant counts: it
holds no secret, is nobody's duplicate, and shows nothing of what is held out.
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
from gristmill.core.seeded_random import Dice
from gristmill.tokenizers.definition import Definition
from gristmill.tokenizers.sentinels import mask_id
from gristmill.tokenizers.tokenizer import Tokenizer
from gristmill.variants.answers import why_refused
from gristmill.variants.code_layout import lay_out_again
from gristmill.variants.comments import vary_comments
from gristmill.variants.endpoint import Endpoint
from gristmill.variants.grammars import Parsed, is_hard_to_query, parse, require_grammars
from gristmill.variants.noise import Noise
from gristmill.variants.rename import rename
from gristmill.windows.cut import WindowShape, cut

Ids = npt.NDArray[Any]


class Original(msgspec.Struct, frozen=True, dict=True, kw_only=True):
    """A document that is varied; what several kinds ask of it is computed once."""

    text: bytes
    ids: Ids
    language: str
    answer: Path | None = None
    """A file with what a language model has made of it."""
    why_no_answer: WhyNoVariant = WhyNoVariant.NO_ANSWER
    """If there is none."""

    @cached_property
    def parsed(self) -> Parsed:
        return parse(self.text, self.language)


class Means(NamedTuple):
    """What the variants of a build are made with."""

    config: VariantsConfig
    tokenizer: Tokenizer
    window_shape: WindowShape


class LoneWindow(NamedTuple):
    """A window that is by itself."""

    ids: Ids
    place: Range
    """The tokens of the file that it is made from."""


Content = bytes | Sequence[LoneWindow]
"""Another text or windows, as VARIANTS says of the kind."""
Maker = Callable[[Original, Means, Dice], Content | WhyNoVariant]


def make_variant(kind: VariantKind, original: Original, means: Means, seed: int) -> Content | WhyNoVariant:
    """Make a variant. One that needs a grammar has no more syntax errors than its file."""
    traits = VARIANTS[kind]
    if traits.needs_grammar and is_hard_to_query(original.parsed):
        return WhyNoVariant.SYNTAX_ERRORS
    made = MAKERS[kind](original, means, Dice(seed))
    if isinstance(made, WhyNoVariant) or traits.makes == "windows":
        return made or WhyNoVariant.NOTHING_TO_VARY
    assert isinstance(made, bytes), f"{kind} makes text"
    # To parse once more would double the cost; tests/variants/test_rename.py proves that the tree is the same.
    may_differ = traits.needs_grammar and "tree" not in traits.keeps
    if may_differ and _has_more_errors(made, original.parsed):
        return WhyNoVariant.MORE_ERRORS
    return made


def require_means(config: Config, definition: Definition) -> None:
    """Before any work is done: the grammars, the tokens and the endpoint that the variants need."""
    kinds = config.variants.rates
    if config.variants.need_grammar:
        require_grammars()
    if any(VARIANTS[kind].needs_mask for kind in kinds):
        mask_id(definition)
    if config.variants.ask_model:
        Endpoint.of(config.rewrite)


def _has_more_errors(text: bytes, original: Parsed) -> bool:
    return parse(text, original.language).num_errors > original.num_errors


def _by_grammar(change: Callable[[Parsed, Dice], bytes | None]) -> Maker:
    def make(original: Original, _: Means, dice: Dice) -> Content | WhyNoVariant:
        parsed = original.parsed
        text = change(parsed, dice)
        if text is None or text == parsed.text:
            has_errors = parsed.tree.root_node.has_error
            return WhyNoVariant.SYNTAX_ERRORS if has_errors else WhyNoVariant.NOTHING_TO_VARY
        return text

    return make


def _rewritten(original: Original, _means: Means, _dice: Dice) -> Content | WhyNoVariant:
    """The answer that the model has given (variants/rewrite.py): it was asked before."""
    if original.answer is None:
        return original.why_no_answer
    text = read_plain(original.answer)
    return text if why_refused(original.parsed, text) is None else WhyNoVariant.ANSWER_REFUSED


def _noisy(original: Original, means: Means, dice: Dice) -> Content | WhyNoVariant:
    config, ids = means.config, original.ids
    mask = mask_id(means.tokenizer.definition)
    noise = Noise(mask, config.noise_mask, config.noise_span, config.noise_delete)
    windows = cut(len(ids), means.window_shape)
    made = [
        (noise.corrupt(ids[start:end], dice), (start, end))
        for start, end in zip(windows.starts.tolist(), windows.ends.tolist(), strict=True)
    ]
    return [LoneWindow(own, place) for own, place in made if own is not None]


MAKERS: dict[VariantKind, Maker] = {
    VariantKind.RENAME: _by_grammar(rename),
    VariantKind.COMMENTS: _by_grammar(vary_comments),
    VariantKind.FORMAT: _by_grammar(lay_out_again),
    VariantKind.REWRITE: _rewritten,
    VariantKind.NOISE: _noisy,
}
