"""Part of step 2: rewrite some documents of train for fill-in-the-middle.

choose ─► rewrite (parse · cut · encode) ─► replace the documents

A rewritten document replaces the original document. The concatenated ids of its windows are stored in a part, a file in
the work folder, apart from the ids of the original document.
"""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import msgspec
import numpy as np

from gristmill.config.settings import FimConfig
from gristmill.core.partition import stable_groups
from gristmill.core.progress import Progress
from gristmill.core.records import FileKey, Fim, NotRewritten, PlacedDocument, Split, WhyNotRewritten
from gristmill.core.seeded_random import SeededRandom, random_fraction, stable_hash
from gristmill.dedup.signatures import NO_BANDS
from gristmill.formats.document_columns import DocumentText
from gristmill.pipeline.context import Context
from gristmill.pipeline.decision import Decision
from gristmill.pipeline.document_rows import with_sizes
from gristmill.pipeline.keys import grammar_versions, key_of
from gristmill.pipeline.map_documents import map_documents
from gristmill.pipeline.pack import RepoMarkers
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
from gristmill.runners.runner import Runner
from gristmill.splits.shared_spans import NO_ANCHORS
from gristmill.tokenizers.sentinels import require_fim_as_text
from gristmill.tokenizers.tokenizer import tokenizer_for
from gristmill.tokenizers.window_frame import fim_frame
from gristmill.variants.grammars import is_parsable, require_grammars
from gristmill.variants.infill import MIN_PIECE_TOKENS, Infiller, InfillText, Sentinel
from gristmill.variants.middles import Shares, nodes_of

TOKENS_PER_TASK = 1 << 18
"""Approximate number of tokens in the documents of one task."""
SEED_BITS = 31
NUM_TRAINER_TOKENS = 2
"""Number of special tokens that a trainer adds to a text: a begin and an end token."""


def require_fim(context: Context) -> None:
    """Raise, before any work is done, if the tokenizer does not support fill-in-the-middle or a grammar is missing."""
    config, definition = context.config, context.tokenizer.definition
    frame = fim_frame(config.window, definition, has_documents=config.has_documents)
    if config.fim.needs_grammar:
        require_grammars()
    if config.needs_text:
        option = "--rows documents" if config.has_documents else "--with-text"
        require_fim_as_text(definition, frame.ids, option)


class Chosen(NamedTuple):
    document: PlacedDocument
    seed: int


def choose(documents: Sequence[PlacedDocument], config: FimConfig) -> tuple[list[Chosen], list[NotRewritten]]:
    """Choose documents of train by name and seed.

    Return the documents to rewrite, and a NotRewritten for each other chosen document, which was cut or is too short.
    """
    chosen: list[Chosen] = []
    missing: list[NotRewritten] = []
    for document in documents:
        if document.split is not Split.TRAIN or random_fraction(config.seed, "fim", *document.key) > (config.rate or 0):
            continue
        if document.cuts:
            missing.append(NotRewritten(*document.key, WhyNotRewritten.FILE_WAS_CUT))
        elif document.num_tokens < MIN_PIECE_TOKENS:
            missing.append(NotRewritten(*document.key, WhyNotRewritten.NO_MIDDLE))
        else:
            chosen.append(Chosen(document, stable_hash(config.seed, "middle", *document.key) >> (64 - SEED_BITS)))
    return chosen, missing


def with_fim(context: Context, decision: Decision, runner: Runner, progress: Progress) -> Decision:
    """Return the decision with some documents of train replaced by rewritten documents."""
    chosen, missing = choose(decision.kept, context.config.fim)
    by_key = {one.document.key: one.document for one in chosen}
    with progress.phase("fim", total=len(chosen)) as step:
        tasks = list(
            stable_groups(chosen, lambda one: one.document.path, lambda one: one.document.num_tokens, TOKENS_PER_TASK)
        )
        parts, failed = map_documents(
            context,
            partial(rewrite, context),
            tasks,
            runner,
            step,
            failure="could not be rewritten for fill-in-the-middle",
            skip="leave the file unchanged",
        )
    missing += [NotRewritten(*key, WhyNotRewritten.FAILED) for key in failed]
    rewritten: dict[FileKey, PlacedDocument] = {}
    for part in parts:
        reader = PartReader(context.prepared, part)
        missing += reader.not_rewritten()
        for made in reader.variants():
            rewritten[made.key] = _with_rewritten_ids(made, by_key[made.key])
    kept = [rewritten.get(document.key, document) for document in decision.kept]
    return msgspec.structs.replace(decision, kept=kept, not_rewritten=missing, fim_parts=parts)


def _with_rewritten_ids(made: PlacedDocument, document: PlacedDocument) -> PlacedDocument:
    """Return `document` with the ids and sizes of the rewritten document `made`, which may be from an earlier build."""
    assert made.fim is not None, "the part has only rewritten documents"
    fim = msgspec.structs.replace(
        made.fim,
        file_part=document.part,
        file_part_offset=document.part_offset,
        file_part_bytes=document.part_bytes,
    )
    sizes = ("num_windows", "num_emitted_tokens", "num_window_tokens", "num_tail_tokens_dropped", "num_row_bytes")
    locations = ("num_tokens", "part", "part_offset", "part_bytes")
    return msgspec.structs.replace(document, fim=fim, **{name: getattr(made, name) for name in (*sizes, *locations)})


# Groups of documents are read from their parts, rewritten, and written to separate parts.


class RewrittenPart(NamedTuple):
    part: str
    num_documents: int


def rewrite(context: Context, chosen: Sequence[Chosen]) -> RewrittenPart:
    """Write a part with the rewritten documents to the work folder, unless the part exists."""
    settings = msgspec.structs.replace(context.config.fim, rate=None, seed=0)
    documents = [
        (one.document.repo, one.document.path, one.document.language, one.document.text_sha256, one.seed)
        for one in chosen
    ]
    part = key_of("fim", context.rows_key, settings, grammar_versions(context.config), documents)[:40] + SUFFIX
    if not is_intact(context.prepared / part):
        write_part(context.prepared / part, _make_part(context, part, chosen))
    return RewrittenPart(part, len(chosen))


def _make_part(context: Context, name: str, chosen: Sequence[Chosen]) -> Part:
    rewriter = _FimRewriter(context)
    made: list[tuple[PlacedDocument, bytes]] = []
    missing: list[NotRewritten] = []
    blocks = read_blocks(context.prepared, [one.document for one in chosen], context.tokenizer.vocab_size)
    offset = 0
    for one, (document, block) in zip(chosen, blocks, strict=True):
        result = rewriter.rewrite(one, block)
        if isinstance(result, WhyNotRewritten):
            missing.append(NotRewritten(*document.key, result))
            continue
        fim, rewritten_block = result
        content = block_bytes(rewritten_block)
        rewritten = msgspec.structs.replace(
            document,
            fim=fim,
            num_tokens=len(rewritten_block.ids),
            part=name,
            part_row=len(made),
            part_offset=offset,
            part_bytes=len(content),
        )
        made.append(
            (with_sizes([rewritten], [rewritten_block], context.window_schema, context.window_shape)[0], content)
        )
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


class _FimRewriter:
    """Rewriter of documents for fill-in-the-middle, with the settings of one build."""

    def __init__(self, context: Context) -> None:
        config, tokenizer = context.config, context.tokenizer
        definition = tokenizer.definition
        frame = fim_frame(config.window, definition, has_documents=config.has_documents)
        continuing = definition.without_prefix_space
        continuing_tokenizer = tokenizer if continuing is definition else tokenizer_for(continuing)
        token_texts = {index: text.encode() for index, text in definition.added_texts.items()}
        num_content = context.window_shape.num_content
        if config.has_documents:  # a row and the tokens that a trainer adds must fit into a window
            num_content = config.window.length - NUM_TRAINER_TOKENS
        max_middle_tokens = config.fim.max_middle or max(1, num_content // 2)
        self._context, self._frame = context, frame
        self._markers = RepoMarkers(context) if config.window.pack == "repo" else None
        self._control_texts = [spelling.encode() for spelling in definition.control_spellings]
        self._infiller = Infiller(
            encode=lambda part: continuing_tokenizer.encode(part).ids,
            decode=continuing_tokenizer.decode,
            decode_first=tokenizer.decode,
            prefix=Sentinel(frame.prefix, token_texts.get(frame.prefix, b"")),
            middle=Sentinel(frame.middle, token_texts.get(frame.middle, b"")),
            suffix=Sentinel(frame.suffix, token_texts.get(frame.suffix, b"")),
            num_content=num_content,
            shares=Shares(**config.fim.middles),
            spm_share=frame.spm_share if config.fim.spm is None else config.fim.spm,
            max_middle_tokens=max_middle_tokens,
            end=None if frame.end is None else Sentinel(frame.end, token_texts.get(frame.end, b"")),
            with_text=config.needs_text,
        )

    def rewrite(self, chosen: Chosen, block: Block) -> tuple[Fim, Block] | WhyNotRewritten:
        """Rewrite a document, or return the reason why it remains unchanged."""
        context, document = self._context, chosen.document
        text = block_text(block, document.text_sha256, context.tokenizer)
        if text is None:
            return WhyNotRewritten.TEXT_NOT_GIVEN_BACK
        if context.config.needs_text and any(spelling in text for spelling in self._control_texts):
            return WhyNotRewritten.SPELLS_CONTROL_TOKEN
        infiller = self._infiller
        if self._markers is not None:  # names before the window also take space in the row
            num_name_ids = len(self._markers.repo(document)) + len(self._markers.file(document))
            infiller = infiller._replace(num_content=context.config.window.length - num_name_ids)
            if infiller.num_content < 2 * MIN_PIECE_TOKENS:
                return WhyNotRewritten.NO_MIDDLE
        starts = context.tokenizer.encode(text, with_starts=True).starts
        assert starts is not None, "starts were requested"
        nodes = None
        if context.config.fim.needs_grammar and is_parsable(document.language):
            nodes = nodes_of(text, document.language)
        made = infiller.infill(InfillText(text, block.ids, starts, nodes), SeededRandom(chosen.seed))
        if isinstance(made, WhyNotRewritten):
            return made
        fim = Fim(
            seed=chosen.seed,
            windows=tuple(one.window for one in made),
            adds_closing_ids=self._frame.closes,
            num_file_tokens=document.num_tokens,
            file_part=document.part,
            file_part_offset=document.part_offset,
            file_part_bytes=document.part_bytes,
        )
        ids = np.concatenate([one.ids for one in made]).astype(block.ids.dtype)
        texts = _text_of_rows([one.text for one in made], fim) if context.config.needs_text else None
        return fim, Block(ids, block.newline_tokens, texts)


def _text_of_rows(texts: Sequence[bytes], fim: Fim) -> DocumentText:
    """Join the texts of rows. Each token gets the start offset of its row, because no window starts inside a row."""
    ends = np.cumsum([0, *map(len, texts)])
    counts = [one.num_ids for one in fim.windows]
    return DocumentText(b"".join(texts), np.append(np.repeat(ends[:-1], counts), ends[-1]))
