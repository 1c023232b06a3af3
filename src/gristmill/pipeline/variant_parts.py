"""Make the variants of documents and write these variants to parts. Each variant is made and checked separately.

A part is a file in the work folder that stores documents between the steps of a build.
"""

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from gristmill.cleaning.control_spellings import has_spelling
from gristmill.cleaning.secrets import find_secrets
from gristmill.core.plain_files import read_plain
from gristmill.core.records import (
    Draw,
    NoVariant,
    PlacedDocument,
    Variant,
    VariantKind,
    WhyNoVariant,
)
from gristmill.dedup.signatures import NO_BANDS, concatenate_ids
from gristmill.pipeline.context import Context
from gristmill.pipeline.document_rows import num_natural_windows, with_sizes
from gristmill.pipeline.keys import grammar_versions, key_of
from gristmill.pipeline.parts import (
    SUFFIX,
    Block,
    FileKeys,
    Part,
    PartReader,
    block_bytes,
    block_text,
    is_intact,
    read_blocks,
    write_part,
)
from gristmill.splits.shared_spans import find_anchors
from gristmill.variants.kinds import IndependentWindow, Original, VariantContext, make_variant
from gristmill.windows.cut import WindowShape, cut


class Chosen(NamedTuple):
    """A document and the variants to make of it."""

    document: PlacedDocument
    kinds: tuple[tuple[VariantKind, int], ...]
    """Kinds of variants, each with its seed."""
    answer: Path | None = None
    """File with the answer of a language model."""
    why_no_answer: WhyNoVariant = WhyNoVariant.NO_ANSWER
    """Reason why there is no answer, if `answer` is None."""


class MadeVariant(NamedTuple):
    block: Block
    variant: Variant
    content: bytes
    """Bytes that are equal for duplicate variants."""


def make_variants(
    context: Context, chosen: Chosen, block: Block
) -> Iterator[tuple[VariantKind, MadeVariant | WhyNoVariant]]:
    """Yield each chosen variant of a document, or the reason why it cannot be made."""
    document = chosen.document
    text = block_text(block, document.text_sha256, context.tokenizer)
    if text is None:
        yield from ((kind, WhyNoVariant.TEXT_NOT_GIVEN_BACK) for kind, _ in chosen.kinds)
        return
    config = context.config
    variant_context = VariantContext(config.variants, context.tokenizer, context.window_shape)
    original = Original(
        text=text,
        ids=block.ids,
        language=document.language,
        answer=chosen.answer,
        why_no_answer=chosen.why_no_answer,
    )
    for kind, seed in chosen.kinds:
        variant, made = Variant(kind, seed), make_variant(kind, original, variant_context, seed)
        if isinstance(made, WhyNoVariant):
            yield kind, made
        elif isinstance(made, bytes):
            yield kind, _text_variant(context, block, variant, made)
        else:
            yield kind, _windows_variant(block, variant, made)


def _text_variant(context: Context, original: Block, variant: Variant, text: bytes) -> MadeVariant | WhyNoVariant:
    """Tokenize the text of a variant. If the variant cannot be used, return the reason."""
    secrets = context.config.secrets
    if secrets.action != "keep" and find_secrets(text, emails=secrets.emails):
        return WhyNoVariant.HOLDS_SECRET
    if context.spellings is not None and has_spelling(text, context.spellings):
        return WhyNoVariant.CONTROL_TOKEN
    encoded = context.tokenizer.encode(text, with_starts=context.keeps_text)
    if not len(encoded.ids) or encoded.control_id is not None:
        return WhyNoVariant.CONTROL_TOKEN
    block = Block.of(encoded, text, context.tokenizer.vocab_size)
    unchanged = _unchanged_windows(original.ids, block.ids, context.window_shape)
    if unchanged is None:
        return WhyNoVariant.NOTHING_TO_VARY
    return MadeVariant(block, msgspec.structs.replace(variant, own_windows=unchanged), text)


def _unchanged_windows(file_ids: npt.NDArray[Any], ids: npt.NDArray[Any], shape: WindowShape) -> tuple[int, ...] | None:
    """Return the indices of the variant's windows that are the same in the file, or None if all are the same."""
    windows, file_windows = cut(len(ids), shape), cut(len(file_ids), shape)
    file_ends = dict(zip(file_windows.starts.tolist(), file_windows.ends.tolist(), strict=True))
    ranges = list(zip(windows.starts.tolist(), windows.ends.tolist(), strict=True))
    unchanged = tuple(
        index
        for index, (start, end) in enumerate(ranges)
        if file_ends.get(start) == end and np.array_equal(ids[start:end], file_ids[start:end])
    )
    return unchanged if len(unchanged) < len(ranges) else None


def _windows_variant(original: Block, variant: Variant, windows: Sequence[IndependentWindow]) -> MadeVariant:
    """Join the windows of a variant, each made on its own, into one variant. Record the file range of each window."""
    ids = np.concatenate([one.ids for one in windows]).astype(original.ids.dtype)
    edges = np.cumsum([0, *(len(one.ids) for one in windows)]).tolist()
    variant = msgspec.structs.replace(
        variant,
        edges=tuple(edges),
        file_ranges=tuple(one.file_range for one in windows),
        num_file_tokens=len(original.ids),
    )
    block = Block(ids, original.newline_tokens, original.text, original.ids)
    return MadeVariant(block, variant, variant.kind.encode() + ids.tobytes())


# Groups of documents are read from their parts and varied. The variants are written to separate parts.


class VariedPart(NamedTuple):
    part: str
    num_documents: int


def vary(context: Context, chosen: Sequence[Chosen]) -> VariedPart:
    """Write a part with the variants of these documents to the work folder, unless the part exists."""
    part = key_of(_settings_key(context), [_document_key(one) for one in chosen])[:40] + SUFFIX
    if not is_intact(context.prepared / part):
        write_part(context.prepared / part, _make_part(context, part, chosen))
    return VariedPart(part, len(chosen))


def variants_in(context: Context, part: str) -> tuple[list[PlacedDocument], list[NoVariant]]:
    reader = PartReader(context.prepared, part)
    return reader.variants(), reader.no_variants()


def _settings_key(context: Context) -> tuple[object, ...]:
    """Return the settings that determine variants. Rates are excluded, because they affect only the choice of files."""
    variants = msgspec.structs.asdict(context.config.variants)
    del variants["rates"]
    return "variants", context.rows_key, variants, grammar_versions(context.config)


def _document_key(chosen: Chosen) -> tuple[object, ...]:
    """Return everything that determines the variants of one document."""
    document, answer = chosen.document, chosen.answer
    digest = hashlib.sha256(read_plain(answer)).hexdigest() if answer is not None else None
    rewritten = digest, chosen.why_no_answer
    return (
        document.repo,
        document.path,
        document.language,
        document.text_sha256,
        document.draw,
        document.weight,
        chosen.kinds,
        rewritten,
    )


def _make_part(context: Context, name: str, chosen: Sequence[Chosen]) -> Part:
    made: list[tuple[PlacedDocument, Block]] = []
    failed: list[NoVariant] = []
    files = [one.document.before_rewriting() for one in chosen]
    blocks = read_blocks(context.prepared, files, context.tokenizer.vocab_size)
    for one, (_, block) in zip(chosen, blocks, strict=True):
        document = one.document
        for kind, result in make_variants(context, one, block):
            if isinstance(result, WhyNoVariant):
                failed.append(NoVariant(document.repo, document.path, kind, result))
            else:
                made.append((_variant_document(context, document, result), result.block))
    contents = [block_bytes(block) for _, block in made]
    offsets = np.cumsum([0, *map(len, contents)]).tolist()
    documents = [
        msgspec.structs.replace(document, part=name, part_row=row, part_offset=offset, part_bytes=len(content))
        for row, ((document, _), offset, content) in enumerate(zip(made, offsets, contents, strict=False))
    ]
    return Part(
        blocks=contents,
        bands=NO_BANDS,
        anchors=find_anchors(*concatenate_ids([block.ids for _, block in made])),
        documents=documents,
        facts=(),
        drops=(),
        renamed=(),
        keys=FileKeys(),
        no_variants=failed,
    )


def _variant_document(context: Context, parent: PlacedDocument, made: MadeVariant) -> PlacedDocument:
    """Return the variant as a document with the split, group, license and weight of its file."""
    block = made.block
    document = msgspec.structs.replace(
        parent,
        variant=made.variant,
        fim=None,
        num_tokens=len(block.ids),
        num_newlines=len(block.newline_tokens),
        text_sha256=hashlib.sha256(made.content).hexdigest(),
        draw=None,
    )
    schema, shape = context.window_schema, context.window_shape
    (document,) = with_sizes([document], [block], schema, shape)
    if parent.draw is None or parent.draw.passes:
        return document
    share = parent.draw.extra / num_natural_windows(parent, shape)
    draw = Draw(0, max(1, round(share * document.num_windows)), parent.draw.seed)
    (document,) = with_sizes([msgspec.structs.replace(document, draw=draw)], [block], schema, shape)
    return document
