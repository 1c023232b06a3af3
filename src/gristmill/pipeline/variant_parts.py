"""One document -> its variants, each made and judged by itself, or why there is none."""

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

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
from gristmill.dedup.signatures import NO_BANDS, end_to_end
from gristmill.pipeline.context import Context
from gristmill.pipeline.document_rows import measured, num_natural_windows
from gristmill.pipeline.keys import grammar_versions, key_of
from gristmill.pipeline.parts import (
    SUFFIX,
    Block,
    FileKeys,
    Part,
    PartReader,
    is_whole,
    read_blocks,
    text_of,
    to_bytes,
    write_part,
)
from gristmill.splits.shared_spans import anchors_of
from gristmill.variants.kinds import LoneWindow, Means, Original, make_variant
from gristmill.windows.cut import WindowShape, cut


class Chosen(NamedTuple):
    """A document, and what is to be made of it."""

    document: PlacedDocument
    kinds: tuple[tuple[VariantKind, int], ...]
    """Each with its seed."""
    answer: Path | None = None
    """What a language model has made of it."""
    why_no_answer: WhyNoVariant = WhyNoVariant.NO_ANSWER
    """Where there is none."""


class Made(NamedTuple):
    block: Block
    variant: Variant
    content: bytes
    """By which a second one of the same is known."""


def made_of(context: Context, chosen: Chosen, block: Block) -> Iterator[tuple[VariantKind, Made | WhyNoVariant]]:
    document = chosen.document
    text = text_of(block, document.text_sha256, context.tokenizer)
    if text is None:
        yield from ((kind, WhyNoVariant.TEXT_NOT_GIVEN_BACK) for kind, _ in chosen.kinds)
        return
    config = context.config
    means = Means(config.variants, context.tokenizer, context.window_shape)
    original = Original(
        text=text,
        ids=block.ids,
        language=document.language,
        answer=chosen.answer,
        why_no_answer=chosen.why_no_answer,
    )
    for kind, seed in chosen.kinds:
        variant, made = Variant(kind, seed), make_variant(kind, original, means, seed)
        if isinstance(made, WhyNoVariant):
            yield kind, made
        elif isinstance(made, bytes):
            yield kind, _encoded(context, block, variant, made)
        else:
            yield kind, _by_themselves(block, variant, made)


def _encoded(context: Context, original: Block, variant: Variant, text: bytes) -> Made | WhyNoVariant:
    """Another text, tokenized as any file."""
    secrets = context.config.secrets
    if secrets.action != "keep" and find_secrets(text, emails=secrets.emails):
        return WhyNoVariant.HOLDS_SECRET
    encoded = context.tokenizer.encode(text, with_starts=context.keeps_text)
    if not len(encoded.ids) or encoded.control_id is not None:
        return WhyNoVariant.CONTROL_TOKEN
    block = Block.of(encoded, text, context.tokenizer.vocab_size)
    own = _own_windows(original.ids, block.ids, context.window_shape)
    if own is None:
        return WhyNoVariant.NOTHING_TO_VARY
    return Made(block, msgspec.structs.replace(variant, own=own), text)


def _own_windows(file_ids: npt.NDArray[Any], ids: npt.NDArray[Any], shape: WindowShape) -> tuple[int, ...] | None:
    """The windows that are the same in both; None where all are."""
    windows, theirs = cut(len(ids), shape), cut(len(file_ids), shape)
    end_at = dict(zip(theirs.starts.tolist(), theirs.ends.tolist(), strict=True))
    places = list(zip(windows.starts.tolist(), windows.ends.tolist(), strict=True))
    own = tuple(
        number
        for number, (start, end) in enumerate(places)
        if end_at.get(start) == end and np.array_equal(ids[start:end], file_ids[start:end])
    )
    return own if len(own) < len(places) else None


def _by_themselves(original: Block, variant: Variant, windows: Sequence[LoneWindow]) -> Made:
    """Windows one after the other, with where in the file's tokens each is from."""
    ids = np.concatenate([one.ids for one in windows]).astype(original.ids.dtype)
    edges = np.cumsum([0, *(len(one.ids) for one in windows)]).tolist()
    variant = msgspec.structs.replace(
        variant,
        edges=tuple(edges),
        places=tuple(one.place for one in windows),
        num_file_tokens=len(original.ids),
    )
    block = Block(ids, original.newline_tokens, original.text, original.ids)
    return Made(block, variant, variant.kind.encode() + ids.tobytes())


# Variants of some documents, over runs of them: read back · vary · judge · tokenize · sign -> a part of their own.


class Varied(NamedTuple):
    part: str
    num_documents: int


def vary(context: Context, chosen: Sequence[Chosen]) -> Varied:
    """Leaves the part in the work folder, or finds it there."""
    part = key_of(_settings(context), [_told(one) for one in chosen])[:40] + SUFFIX
    if not is_whole(context.prepared / part):
        write_part(context.prepared / part, _part(context, part, chosen))
    return Varied(part, len(chosen))


def variants_in(context: Context, part: str) -> tuple[list[PlacedDocument], list[NoVariant]]:
    reader = PartReader(context.prepared, part)
    return reader.variants(), reader.no_variants()


def _settings(context: Context) -> tuple[object, ...]:
    """All that variants go by, but for the documents; how many there are to be is said for each."""
    variants = msgspec.structs.asdict(context.config.variants)
    del variants["rates"]
    return "variants", context.rows_key, variants, grammar_versions(context.config)


def _told(chosen: Chosen) -> tuple[object, ...]:
    """All that its variants are made of."""
    one, answer = chosen.document, chosen.answer
    digest = hashlib.sha256(read_plain(answer)).hexdigest() if answer is not None else None
    rewritten = digest, chosen.why_no_answer
    return one.repo, one.path, one.language, one.text_sha256, one.draw, one.weight, chosen.kinds, rewritten


def _part(context: Context, name: str, chosen: Sequence[Chosen]) -> Part:
    made: list[tuple[PlacedDocument, Block]] = []
    failed: list[NoVariant] = []
    files = [one.document.as_file() for one in chosen]
    blocks = read_blocks(context.prepared, files, context.tokenizer.vocab_size)
    for one, (_, block) in zip(chosen, blocks, strict=True):
        document = one.document
        for kind, result in made_of(context, one, block):
            if isinstance(result, WhyNoVariant):
                failed.append(NoVariant(document.repo, document.path, kind, result))
            else:
                made.append((_document(context, document, result), result.block))
    contents = [to_bytes(block) for _, block in made]
    offsets = np.cumsum([0, *map(len, contents)]).tolist()
    documents = [
        msgspec.structs.replace(document, part=name, part_row=row, part_offset=offset, part_bytes=len(content))
        for row, ((document, _), offset, content) in enumerate(zip(made, offsets, contents, strict=False))
    ]
    return Part(
        blocks=contents,
        bands=NO_BANDS,
        anchors=anchors_of(*end_to_end([block.ids for _, block in made])),
        documents=documents,
        facts=(),
        drops=(),
        renamed=(),
        keys=FileKeys(),
        no_variants=failed,
    )


def _document(context: Context, parent: PlacedDocument, made: Made) -> PlacedDocument:
    """In the split and group of its file, with its licence and weight."""
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
    (document,) = measured([document], [block], schema, shape)
    if parent.draw is None or parent.draw.passes:
        return document
    share = parent.draw.extra / num_natural_windows(parent, shape)
    draw = Draw(0, max(1, round(share * document.num_windows)), parent.draw.seed)
    (document,) = measured([msgspec.structs.replace(document, draw=draw)], [block], schema, shape)
    return document
