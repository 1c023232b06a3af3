"""One document -> its variants, each made and judged by itself, or why there is none."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from gristmill.cleaning.secrets import find_secrets
from gristmill.core.plain_files import read_plain
from gristmill.core.records import (
    VARIANTS,
    Draw,
    NoVariant,
    PlacedDocument,
    Range,
    Variant,
    VariantKind,
    WhyNoVariant,
)
from gristmill.core.seeded_random import Dice
from gristmill.dedup.signatures import band_keys
from gristmill.formats.jsonl_rows import DocumentText
from gristmill.pipeline.context import Context
from gristmill.pipeline.document_rows import measured, natural_windows
from gristmill.pipeline.keys import grammar_versions, key_of
from gristmill.pipeline.parts import (
    SUFFIX,
    Block,
    FileKeys,
    Part,
    PartReader,
    is_whole,
    read_blocks,
    to_bytes,
    write_part,
)
from gristmill.splits.shared_spans import anchors_of
from gristmill.tokenizers.definition import AddedToken, Definition
from gristmill.tokenizers.sentinels import fim_ids, mask_id
from gristmill.tokenizers.tokenizer import tokenizer_for
from gristmill.variants.answers import why_refused
from gristmill.variants.code_layout import lay_out_again
from gristmill.variants.comments import vary_comments
from gristmill.variants.grammars import Parsed, is_hard_to_query, parse
from gristmill.variants.infill import Infiller, Sentinel
from gristmill.variants.noise import Noise
from gristmill.variants.rename import rename
from gristmill.windows.cut import WindowShape, cut

BY_GRAMMAR: dict[VariantKind, Callable[[Parsed, Dice], bytes | None]] = {
    VariantKind.RENAME: rename,
    VariantKind.COMMENTS: vary_comments,
    VariantKind.FORMAT: lay_out_again,
}


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


class _Source(NamedTuple):
    """What a variant is made of."""

    context: Context
    block: Block
    text: bytes


def made_of(context: Context, chosen: Chosen, block: Block) -> Iterator[tuple[VariantKind, Made | WhyNoVariant]]:
    document = chosen.document
    text = text_of(context, document, block)
    if text is None:
        yield from ((kind, WhyNoVariant.TEXT_NOT_GIVEN_BACK) for kind, _ in chosen.kinds)
        return
    source = _Source(context, block, text)
    parsed: Parsed | None = None
    for kind, seed in chosen.kinds:
        match kind:
            case VariantKind.NOISE:
                yield kind, _noise(source, seed)
            case VariantKind.FIM:
                yield kind, _infilled(source, seed)
            case _:
                parsed = parsed or parse(text, document.language)
                is_hard = is_hard_to_query(parsed)
                other = WhyNoVariant.SYNTAX_ERRORS if is_hard else _other_text(kind, parsed, seed, chosen)
                yield kind, _encoded(source, Variant(kind, seed), other) if isinstance(other, bytes) else other


def text_of(context: Context, document: PlacedDocument, block: Block) -> bytes | None:
    """What was tokenized; None where the tokenizer does not give it back."""
    text = block.text.utf8 if block.text is not None else context.tokenizer.decode(block.ids)
    return text if hashlib.sha256(text).hexdigest() == document.text_sha256 else None


def _other_text(kind: VariantKind, parsed: Parsed, seed: int, chosen: Chosen) -> bytes | WhyNoVariant:
    if kind is VariantKind.REWRITE:
        if chosen.answer is None:
            return chosen.why_no_answer
        text = read_plain(chosen.answer)
        return text if why_refused(parsed, text) is None else WhyNoVariant.ANSWER_REFUSED
    other = BY_GRAMMAR[kind](parsed, Dice(seed))
    if other is None or other == parsed.text:
        has_errors = parsed.tree.root_node.has_error
        return WhyNoVariant.SYNTAX_ERRORS if has_errors else WhyNoVariant.NOTHING_TO_VARY
    # To parse once more would double the cost; tests/variants/test_rename.py proves that the tree is the same.
    if "tree" not in VARIANTS[kind].keeps and parse(other, parsed.language).num_errors > parsed.num_errors:
        return WhyNoVariant.MORE_ERRORS
    return other


def _encoded(source: _Source, variant: Variant, text: bytes) -> Made | WhyNoVariant:
    context, secrets = source.context, source.context.config.secrets
    if secrets.action != "keep" and find_secrets(text, emails=secrets.emails):
        return WhyNoVariant.HOLDS_SECRET
    encoded = context.tokenizer.encode(text, with_starts=context.keeps_text)
    if not len(encoded.ids) or encoded.control_id is not None:
        return WhyNoVariant.CONTROL_TOKEN
    block = Block.of(encoded, text, context.tokenizer.vocab_size)
    own = _own_windows(source.block.ids, block.ids, context.window_shape)
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


def _noise(source: _Source, seed: int) -> Made | WhyNoVariant:
    context, ids, dice = source.context, source.block.ids, Dice(seed)
    config = context.config.variants
    noise = Noise(mask_id(context.tokenizer.definition), config.noise_mask, config.noise_span, config.noise_delete)
    windows = cut(len(ids), context.window_shape)
    made = [
        (noise.corrupt(ids[start:end], dice), (start, end))
        for start, end in zip(windows.starts.tolist(), windows.ends.tolist(), strict=True)
    ]
    return _by_themselves(source, VariantKind.NOISE, seed, [(own, place) for own, place in made if own is not None])


def _infilled(source: _Source, seed: int) -> Made | WhyNoVariant:
    context, tokenizer = source.context, source.context.tokenizer
    definition = tokenizer.definition
    with_text = context.config.output.with_text
    if with_text and any(token.content.encode() in source.text for token in _found_in_texts(definition)):
        return WhyNoVariant.CONTROL_TOKEN  # a trainer that tokenizes the row's text would make one of it
    goes_on = definition.continuing
    parts = tokenizer if goes_on is definition else tokenizer_for(goes_on)
    spelled = {token.id: token.content.encode() for token in definition.added_tokens}
    prefix, middle, suffix = (Sentinel(index, spelled.get(index, b"")) for index in fim_ids(definition))
    infiller = Infiller(
        encode=lambda part: parts.encode(part).ids,
        decode=parts.decode,
        prefix=prefix,
        middle=middle,
        suffix=suffix,
        num_content=context.window_shape.num_content,
        with_text=with_text,
    )
    starts = tokenizer.encode(source.text, with_starts=True).starts
    assert starts is not None, "they were asked for"
    made = infiller.infill(source.text, starts, Dice(seed))
    if made is None:
        return WhyNoVariant.TEXT_NOT_GIVEN_BACK
    texts = [one.text for one in made] if with_text else None
    return _by_themselves(source, VariantKind.FIM, seed, [(one.ids, one.place) for one in made], texts)


def _found_in_texts(definition: Definition) -> list[AddedToken]:
    """Tokens that other programs find in a text that spells them."""
    return [token for token in definition.added_tokens if token.special or token.id in definition.control_ids]


def _by_themselves(
    source: _Source,
    kind: VariantKind,
    seed: int,
    pieces: Sequence[tuple[npt.NDArray[Any], Range]],
    texts: Sequence[bytes] | None = None,
) -> Made | WhyNoVariant:
    """Windows, where in the file's tokens each is from, and what each spells; None: the file's own text there."""
    if not pieces:
        return WhyNoVariant.NOTHING_TO_VARY
    block = source.block
    ids = np.concatenate([own for own, _ in pieces]).astype(block.ids.dtype)
    edges = np.cumsum([0, *(len(own) for own, _ in pieces)]).tolist()
    variant = Variant(kind, seed, tuple(edges), tuple(place for _, place in pieces), len(block.ids))
    clean = block.ids if variant.has_labels else None
    text = block.text if variant.has_labels else _text_of_rows(texts, edges)
    return Made(Block(ids, block.newline_tokens, text, clean), variant, kind.encode() + ids.tobytes())


def _text_of_rows(texts: Sequence[bytes] | None, edges: Sequence[int]) -> DocumentText | None:
    """A row's tokens all begin where its text does: no window begins within a row."""
    if texts is None:
        return None
    ends = np.cumsum([0, *map(len, texts)])
    return DocumentText(b"".join(texts), np.append(np.repeat(ends[:-1], np.diff(edges)), ends[-1]))


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
    return "variants", context.rows_key, variants, grammar_versions(context.config.variants)


def _told(chosen: Chosen) -> tuple[object, ...]:
    """All that its variants are made of."""
    one, answer = chosen.document, chosen.answer
    digest = hashlib.sha256(read_plain(answer)).hexdigest() if answer is not None else None
    rewritten = digest, chosen.why_no_answer
    return one.repo, one.path, one.language, one.text_sha256, one.draw, one.weight, chosen.kinds, rewritten


def _part(context: Context, name: str, chosen: Sequence[Chosen]) -> Part:
    made: list[tuple[PlacedDocument, Block]] = []
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
        msgspec.structs.replace(document, part=name, part_row=row, part_offset=offset, part_bytes=len(content))
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


def _document(context: Context, parent: PlacedDocument, made: Made) -> PlacedDocument:
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
    share = parent.draw.extra / len(natural_windows(msgspec.structs.replace(parent, draw=None), shape))
    draw = Draw(0, max(1, round(share * document.num_windows)), parent.draw.seed)
    return measured(msgspec.structs.replace(document, draw=draw), block, row_format, shape)
