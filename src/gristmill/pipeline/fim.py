"""Still step 2: some documents of train are rewritten for fill in the middle, over a runner.

choose ─► rewrite (parse · cut · encode) -> a part of its own ─► the document, rewritten in its place

A rewritten document takes the place of the file. Its part has the ids of its windows, end to end.
"""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import msgspec
import numpy as np

from gristmill.config.settings import FimConfig
from gristmill.core.partition import steady_neighbours
from gristmill.core.progress import Progress
from gristmill.core.records import FileKey, Fim, NotRewritten, PlacedDocument, Split, WhyPlain
from gristmill.core.seeded_random import Dice, luck, number_of
from gristmill.dedup.signatures import NO_BANDS
from gristmill.formats.document_columns import DocumentText
from gristmill.pipeline.context import Context
from gristmill.pipeline.decision import Decision
from gristmill.pipeline.document_rows import measured
from gristmill.pipeline.keys import grammar_versions, key_of
from gristmill.pipeline.over_documents import over_documents
from gristmill.pipeline.pack import RepoMarkers
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
from gristmill.runners.runner import Runner
from gristmill.splits.shared_spans import NO_ANCHORS
from gristmill.tokenizers.sentinels import require_spelled_fim
from gristmill.tokenizers.tokenizer import tokenizer_for
from gristmill.tokenizers.window_frame import fim_frame
from gristmill.variants.grammars import is_parsable, require_grammars
from gristmill.variants.infill import MIN_PIECE_TOKENS, Infiller, InfillText, Sentinel
from gristmill.variants.middles import Shares, nodes_of

DOCUMENT_TOKENS = 1 << 18
"""Tokens of the documents that one task rewrites."""
SEED_BITS = 31
NUM_AROUND = 2
"""A begin and an end token."""


def require_fim(context: Context) -> None:
    """Raise, before any work is done, if the tokenizer or a grammar that fill in the middle needs is missing."""
    config, definition = context.config, context.tokenizer.definition
    frame = fim_frame(config.window, definition, has_documents=config.has_documents)
    if config.fim.needs_grammar:
        require_grammars()
    if config.needs_text:
        option = "--rows documents" if config.has_documents else "--with-text"
        require_spelled_fim(definition, frame.ids, option)


class Chosen(NamedTuple):
    document: PlacedDocument
    seed: int


def choose(documents: Sequence[PlacedDocument], config: FimConfig) -> tuple[list[Chosen], list[NotRewritten]]:
    """Choose documents of train by their names and the seed. Return also those that cannot be rewritten."""
    chosen: list[Chosen] = []
    missing: list[NotRewritten] = []
    for document in documents:
        if document.split is not Split.TRAIN or luck(config.seed, "fim", *document.key) > (config.rate or 0):
            continue
        if document.cuts:
            missing.append(NotRewritten(*document.key, WhyPlain.FILE_WAS_CUT))
        elif document.num_tokens < MIN_PIECE_TOKENS:
            missing.append(NotRewritten(*document.key, WhyPlain.NO_MIDDLE))
        else:
            chosen.append(Chosen(document, number_of(config.seed, "middle", *document.key) >> (64 - SEED_BITS)))
    return chosen, missing


def with_fim(context: Context, decision: Decision, runner: Runner, progress: Progress) -> Decision:
    """Return the decision with some documents of train rewritten in their place."""
    chosen, missing = choose(decision.kept, context.config.fim)
    by_key = {one.document.key: one.document for one in chosen}
    with progress.phase("fim", total=len(chosen)) as step:
        tasks = list(
            steady_neighbours(
                chosen, lambda one: one.document.path, lambda one: one.document.num_tokens, DOCUMENT_TOKENS
            )
        )
        parts, failed = over_documents(context, partial(rewrite, context), tasks, runner, step)
    missing += [NotRewritten(*key, WhyPlain.FAILED) for key in failed]
    rewritten: dict[FileKey, PlacedDocument] = {}
    for part in parts:
        reader = PartReader(context.prepared, part)
        missing += reader.not_rewritten()
        for made in reader.variants():
            rewritten[made.key] = _in_place(made, by_key[made.key])
    kept = [rewritten.get(document.key, document) for document in decision.kept]
    return msgspec.structs.replace(decision, kept=kept, not_rewritten=missing, fim_parts=parts)


def _in_place(made: PlacedDocument, document: PlacedDocument) -> PlacedDocument:
    """The document as it is in this build, with the ids of the rewritten one. Its part may be an earlier build's."""
    assert made.fim is not None, "it was rewritten"
    fim = msgspec.structs.replace(
        made.fim,
        file_part=document.part,
        file_part_offset=document.part_offset,
        file_part_bytes=document.part_bytes,
    )
    sizes = ("num_windows", "num_emitted_tokens", "num_shown_tokens", "num_tail_tokens_dropped", "num_row_bytes")
    places = ("num_tokens", "part", "part_offset", "part_bytes")
    return msgspec.structs.replace(document, fim=fim, **{name: getattr(made, name) for name in (*sizes, *places)})


# Runs of documents: read back · parse · cut · encode -> a part.


class Rewritten(NamedTuple):
    part: str
    num_documents: int


def rewrite(context: Context, chosen: Sequence[Chosen]) -> Rewritten:
    """Leave the part in the work folder, or find it there."""
    settings = msgspec.structs.replace(context.config.fim, rate=None, seed=0)
    known = [
        (one.document.repo, one.document.path, one.document.language, one.document.text_sha256, one.seed)
        for one in chosen
    ]
    part = key_of("fim", context.rows_key, settings, grammar_versions(context.config), known)[:40] + SUFFIX
    if not is_whole(context.prepared / part):
        write_part(context.prepared / part, _part(context, part, chosen))
    return Rewritten(part, len(chosen))


def _part(context: Context, name: str, chosen: Sequence[Chosen]) -> Part:
    infilling = _Infilling(context)
    made: list[tuple[PlacedDocument, bytes]] = []
    missing: list[NotRewritten] = []
    blocks = read_blocks(context.prepared, [one.document for one in chosen], context.tokenizer.vocab_size)
    offset = 0
    for one, (document, block) in zip(chosen, blocks, strict=True):
        result = infilling.rewritten(one, block)
        if isinstance(result, WhyPlain):
            missing.append(NotRewritten(*document.key, result))
            continue
        fim, own = result
        content = to_bytes(own)
        rewritten = msgspec.structs.replace(
            document,
            fim=fim,
            num_tokens=len(own.ids),
            part=name,
            part_row=len(made),
            part_offset=offset,
            part_bytes=len(content),
        )
        made.append((measured([rewritten], [own], context.window_schema, context.window_shape)[0], content))
        offset += len(content)
    return Part(
        blocks=[content for _, content in made],
        bands=NO_BANDS,
        anchors=NO_ANCHORS,
        documents=[document for document, _ in made],
        facts=(),
        drops=(),
        renamed=(),
        keys=FileKeys(),
        not_rewritten=missing,
    )


class _Infilling:
    """Rewrites documents of one build."""

    def __init__(self, context: Context) -> None:
        config, tokenizer = context.config, context.tokenizer
        definition = tokenizer.definition
        frame = fim_frame(config.window, definition, has_documents=config.has_documents)
        continuing = definition.continuing
        parts = tokenizer if continuing is definition else tokenizer_for(continuing)
        spelled = {index: text.encode() for index, text in definition.added_texts.items()}
        num_content = context.window_shape.num_content
        if config.has_documents:  # as long as a window, with room for what a trainer puts around a text
            num_content = config.window.length - NUM_AROUND
        most = config.fim.max_middle or max(1, num_content // 2)
        self._context, self._frame = context, frame
        self._markers = RepoMarkers(context) if config.window.pack == "repo" else None
        self._control = [spelling.encode() for spelling in definition.control_spellings]
        self._infiller = Infiller(
            encode=lambda part: parts.encode(part).ids,
            decode=parts.decode,
            decode_first=tokenizer.decode,
            prefix=Sentinel(frame.prefix, spelled.get(frame.prefix, b"")),
            middle=Sentinel(frame.middle, spelled.get(frame.middle, b"")),
            suffix=Sentinel(frame.suffix, spelled.get(frame.suffix, b"")),
            num_content=num_content,
            shares=Shares(**config.fim.middles),
            spm_share=frame.spm_share if config.fim.spm is None else config.fim.spm,
            max_middle_tokens=most,
            end=None if frame.end is None else Sentinel(frame.end, spelled.get(frame.end, b"")),
            with_text=config.needs_text,
        )

    def rewritten(self, chosen: Chosen, block: Block) -> tuple[Fim, Block] | WhyPlain:
        """Rewrite a document, or say why it stays as it is."""
        context, document = self._context, chosen.document
        text = text_of(block, document.text_sha256, context.tokenizer)
        if text is None:
            return WhyPlain.TEXT_NOT_GIVEN_BACK
        if context.config.needs_text and any(spelling in text for spelling in self._control):
            return WhyPlain.SPELLS_CONTROL_TOKEN
        infiller = self._infiller
        if self._markers is not None:  # a row also has room for the names before the window
            num_names = len(self._markers.repo(document)) + len(self._markers.file(document))
            infiller = infiller._replace(num_content=context.config.window.length - num_names)
            if infiller.num_content < 2 * MIN_PIECE_TOKENS:
                return WhyPlain.NO_MIDDLE
        starts = context.tokenizer.encode(text, with_starts=True).starts
        assert starts is not None, "they were asked for"
        nodes = None
        if context.config.fim.needs_grammar and is_parsable(document.language):
            nodes = nodes_of(text, document.language)
        made = infiller.infill(InfillText(text, block.ids, starts, nodes), Dice(chosen.seed))
        if isinstance(made, WhyPlain):
            return made
        fim = Fim(
            seed=chosen.seed,
            windows=tuple(one.window for one in made),
            closes=self._frame.closes,
            num_file_tokens=document.num_tokens,
            file_part=document.part,
            file_part_offset=document.part_offset,
            file_part_bytes=document.part_bytes,
        )
        ids = np.concatenate([one.ids for one in made]).astype(block.ids.dtype)
        texts = _text_of_rows([one.text for one in made], fim) if context.config.needs_text else None
        return fim, Block(ids, block.newline_tokens, texts)


def _text_of_rows(texts: Sequence[bytes], fim: Fim) -> DocumentText:
    """All tokens of a row begin where its text does, as no window begins within a row."""
    ends = np.cumsum([0, *map(len, texts)])
    counts = [one.num_ids for one in fim.windows]
    return DocumentText(b"".join(texts), np.append(np.repeat(ends[:-1], counts), ends[-1]))
