"""Step 1, over batches of files: read · decode · tokenize · measure -> a shard of ids, and facts per document."""

import hashlib
from collections.abc import Iterator, Sequence

import msgspec

from gristmill.config import RunConfig
from gristmill.formats.jsonl import DocumentRows
from gristmill.intake.reading import read_document
from gristmill.records import Document, Drop, DropReason, PreparedDocument, SourceFile
from gristmill.shaping.windows import cut
from gristmill.steps.context import Context
from gristmill.steps.shards import Block, to_bytes


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
    index, gathered, size = 0, list[SourceFile](), 0
    for file in files:
        is_full = size + file.size > config.batch_bytes or len(gathered) == config.batch_files
        if gathered and is_full:
            yield Batch(index=index, files=gathered)
            index, gathered, size = index + 1, [], 0
        gathered.append(file)
        size += file.size
    if gathered:
        yield Batch(index=index, files=gathered)


def prepare(context: Context, batch: Batch) -> PreparedBatch:
    documents: list[PreparedDocument] = []
    drops: list[Drop] = []
    with (context.prepared / batch.shard).open("wb") as shard:
        for file in batch.files:
            read = read_document(file, context.config.scan)
            prepared = read if isinstance(read, Drop) else _prepare_document(context, read, batch.shard, shard.tell())
            if isinstance(prepared, Drop):
                drops.append(prepared)
            else:
                document, block = prepared
                shard.write(block)
                documents.append(document)
    return PreparedBatch(documents=documents, drops=drops)


def _prepare_document(
    context: Context, document: Document, shard: str, shard_offset: int
) -> tuple[PreparedDocument, bytes] | Drop:
    tokenizer, row_format = context.tokenizer, context.row_format
    encoded = tokenizer.encode(document.text, with_starts=row_format.with_text)
    if not len(encoded.ids):
        return Drop.of(document.file, DropReason.NO_TOKENS, f"{len(document.text)} bytes give no token")
    if encoded.control_id is not None:
        return Drop.of(document.file, DropReason.CONTROL_TOKEN, f"its text became id {encoded.control_id}")
    block = Block.of(encoded, document.text, tokenizer.vocab_size)
    windows = cut(len(encoded.ids), context.window_shape)
    rows = DocumentRows(
        repo=document.file.repo,
        path=document.file.path,
        language=document.language,
        ids=block.ids,
        newline_tokens=block.newline_tokens,
        windows=windows,
        text=block.text,
    )
    content = to_bytes(block)
    is_as_read = document.encoding == "utf-8"
    return PreparedDocument(
        repo=document.file.repo,
        path=document.file.path,
        language=document.language,
        size=document.size,
        sha256=document.sha256,
        text_sha256=document.sha256 if is_as_read else hashlib.sha256(document.text).hexdigest(),
        encoding=document.encoding,
        num_lines=document.text.count(b"\n") + (not document.text.endswith(b"\n")),
        num_tokens=len(encoded.ids),
        num_windows=len(windows),
        num_emitted_tokens=row_format.num_emitted(windows),
        num_tail_tokens_dropped=windows.num_tail_tokens_dropped,
        num_row_bytes=row_format.num_row_bytes(rows),
        shard=shard,
        shard_offset=shard_offset,
        shard_bytes=len(content),
        num_newlines=len(encoded.newline_tokens),
    ), content
