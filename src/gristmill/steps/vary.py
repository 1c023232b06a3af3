"""Variants of some documents, over runs of them: read back · vary · judge · tokenize · sign -> a part of their own."""

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from gristmill.grouping.leakage import anchors_of
from gristmill.grouping.signatures import band_keys
from gristmill.plainfile import read_plain
from gristmill.records import Draw, NoVariant, PreparedDocument, WhyNoVariant
from gristmill.steps.blocks import Block, read_blocks, to_bytes
from gristmill.steps.context import Context
from gristmill.steps.keys import grammar_versions, key_of
from gristmill.steps.make_variants import Chosen, Made, made_of
from gristmill.steps.parts import SUFFIX, FileKeys, Part, PartReader, is_whole, write_part
from gristmill.steps.rows import measured, windows_of


class Varied(NamedTuple):
    part: str
    num_documents: int


def vary(context: Context, chosen: Sequence[Chosen]) -> Varied:
    """Leaves the part in the work folder, or finds it there."""
    part = key_of(_settings(context), [_told(one) for one in chosen])[:40] + SUFFIX
    if not is_whole(context.prepared / part):
        write_part(context.prepared / part, _part(context, chosen))
    return Varied(part, len(chosen))


def variants_in(context: Context, part: str) -> tuple[list[PreparedDocument], list[NoVariant]]:
    reader = PartReader(context.prepared, part)
    return reader.documents(), reader.no_variants()


def _settings(context: Context) -> tuple[object, ...]:
    """All that variants go by, but for the documents; how many there are to be is said for each."""
    variants = msgspec.structs.asdict(context.config.variants)
    rates = variants.pop("rates")
    return "variants", context.rows_key, variants, grammar_versions(rates)


def _told(chosen: Chosen) -> tuple[object, ...]:
    """All that its variants are made of."""
    one, answer = chosen.document, chosen.answer
    digest = hashlib.sha256(read_plain(answer)).hexdigest() if answer is not None else None
    rewritten = digest, chosen.why_no_answer
    return one.repo, one.path, one.language, one.text_sha256, one.draw, one.weight, chosen.kinds, rewritten


def _part(context: Context, chosen: Sequence[Chosen]) -> Part:
    made: list[tuple[PreparedDocument, Block]] = []
    failed: list[NoVariant] = []
    blocks = read_blocks(context.prepared, [one.document for one in chosen], context.tokenizer.vocab_size)
    for one, (document, block) in zip(chosen, blocks, strict=True):
        for kind, result in made_of(context, one, block):
            if isinstance(result, WhyNoVariant):
                failed.append(NoVariant(document.repo, document.path, kind, result))
            else:
                made.append((_document(context, document, result), result.block))
    contents = [to_bytes(block) for _, block in made]
    offsets = np.cumsum([0, *map(len, contents)]).tolist()
    documents = [
        msgspec.structs.replace(document, part_row=row, part_offset=offset, part_bytes=len(content))
        for row, ((document, _), offset, content) in enumerate(zip(made, offsets, contents, strict=False))
    ]
    return Part(
        blocks=contents,
        bands=band_keys([]),
        anchors=anchors_of([block.ids for _, block in made]),
        documents=documents,
        facts=(),
        drops=(),
        renamed=(),
        keys=FileKeys(),
        no_variants=failed,
    )


def _document(context: Context, parent: PreparedDocument, made: Made) -> PreparedDocument:
    """In the split and group of its file, with its licence and weight."""
    block = made.block
    document = msgspec.structs.replace(
        parent,
        variant=made.variant,
        num_tokens=len(block.ids),
        num_newlines=len(block.newline_tokens),
        text_sha256=hashlib.sha256(made.content).hexdigest(),
        draw=None,
    )
    row_format, shape = context.row_format, context.window_shape
    document = measured(document, block, row_format, shape)
    if parent.draw is None or parent.draw.passes:
        return document
    share = parent.draw.extra / len(windows_of(msgspec.structs.replace(parent, draw=None), shape))
    draw = Draw(0, max(1, round(share * document.num_windows)), parent.draw.seed)
    return measured(msgspec.structs.replace(document, draw=draw), block, row_format, shape)
