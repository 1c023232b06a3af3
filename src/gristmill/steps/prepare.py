"""Step 1, over batches of files: read · decode · clean · tokenize · sign -> a shard of ids, and facts per document."""

import hashlib
import os
from collections.abc import Iterator, Sequence
from typing import BinaryIO

import msgspec

from gristmill.cleaning.licenses import header_license, named_license
from gristmill.cleaning.rules import Limits
from gristmill.config import RunConfig
from gristmill.grouping.signatures import Ids, band_keys
from gristmill.intake.reading import read_document
from gristmill.records import Document, Drop, DropReason, PreparedDocument, SourceFile
from gristmill.steps.clean import clean
from gristmill.steps.context import Context
from gristmill.steps.neighbours import neighbours
from gristmill.steps.rows import measured
from gristmill.steps.shards import Block, bands_file, to_bytes


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    index: int
    files: list[SourceFile]

    @property
    def shard(self) -> str:
        return f"{self.index:06d}.ids"


class PreparedBatch(msgspec.Struct, frozen=True, kw_only=True):
    documents: list[PreparedDocument]
    drops: list[Drop]


def batches(files: Sequence[SourceFile], config: RunConfig) -> Iterator[Batch]:
    """Neighbours in path order, up to so many bytes or files; a larger file is a batch of its own."""
    gathered = neighbours(files, lambda file: file.size, config.batch_bytes, config.batch_files)
    return (Batch(index=index, files=batch) for index, batch in enumerate(gathered))


def prepare(context: Context, batch: Batch) -> PreparedBatch:
    config = context.config
    limits = Limits(config.rules)
    documents: list[PreparedDocument] = []
    drops: list[Drop] = []
    ids: list[Ids] = []
    with (context.prepared / batch.shard).open("wb") as shard:
        for file in batch.files:
            read = read_document(file, config.scan)
            cleaned = read if isinstance(read, Drop) else clean(read, config, limits)
            prepared = (
                cleaned if isinstance(cleaned, Drop) else _prepare_document(context, cleaned, shard, len(documents))
            )
            if isinstance(prepared, Drop):
                drops.append(prepared)
            else:
                document, block = prepared
                documents.append(document)
                ids.append(block.ids)
    if config.duplicates.near != "keep":
        (context.prepared / bands_file(batch.shard)).write_bytes(band_keys(ids).tobytes())
    return PreparedBatch(documents=documents, drops=drops)


def _prepare_document(
    context: Context, document: Document, shard: BinaryIO, shard_row: int
) -> tuple[PreparedDocument, Block] | Drop:
    tokenizer, text = context.tokenizer, document.text
    encoded = tokenizer.encode(text, with_starts=context.row_format.with_text)
    facts = {"language": document.language, "sha256": document.sha256, "measures": document.measures}
    if not len(encoded.ids):
        return Drop.of(document.file, DropReason.NO_TOKENS, f"{len(text)} bytes give no token", **facts)
    if encoded.control_id is not None:
        return Drop.of(document.file, DropReason.CONTROL_TOKEN, f"its text became id {encoded.control_id}", **facts)
    block = Block.of(encoded, text, tokenizer.vocab_size)
    content = to_bytes(block)
    prepared = PreparedDocument(
        repo=document.file.repo,
        path=document.file.path,
        language=document.language,
        size=document.size,
        sha256=document.sha256,
        text_sha256=(document.is_as_read and document.sha256) or hashlib.sha256(text).hexdigest(),
        encoding=document.encoding,
        num_lines=text.count(b"\n") + (not text.endswith(b"\n")),
        num_tokens=len(encoded.ids),
        num_windows=0,
        num_emitted_tokens=0,
        num_tail_tokens_dropped=0,
        num_row_bytes=0,
        shard=os.path.basename(shard.name),
        shard_offset=shard.tell(),
        shard_bytes=len(content),
        shard_row=shard_row,
        num_newlines=len(encoded.newline_tokens),
        measures=document.measures,
        redactions=document.redactions,
        header_license=header_license(text),
        named_license=named_license(text),
    )
    shard.write(content)
    return measured(context, prepared, block), block
