"""Step 1: turn each batch of files into a part, a file with the token ids and facts of the documents.

read · decode · clean · tokenize · compute signatures
"""

import hashlib
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

import msgspec
import numpy as np

from gristmill.cleaning.clean import clean_all, redact_drop, redact_name
from gristmill.cleaning.licenses import HeaderLicense, header_licenses
from gristmill.cleaning.rules import Limits
from gristmill.config.settings import RunConfig
from gristmill.core.errors import InputError, OutputError
from gristmill.core.names import printable
from gristmill.core.partition import stable_groups
from gristmill.core.plain_files import FolderReader, read_plain
from gristmill.core.progress import Progress, Step
from gristmill.core.records import Document, DocumentFacts, Drop, DropReason, SourceFile, TokenizedDocument
from gristmill.dedup.signatures import NO_BANDS, band_keys
from gristmill.formats.document_columns import DocumentText, Rows, Tokens
from gristmill.pipeline.cache import NOT_READ, PreparedFile, StampLog, earlier_files, hash_stamps, known_stamps
from gristmill.pipeline.context import Context, is_large
from gristmill.pipeline.document_rows import Sizes, sizes_of
from gristmill.pipeline.keys import key_of
from gristmill.pipeline.parts import SUFFIX, Block, FileKeys, Part, block_bytes, is_intact, write_part
from gristmill.runners.runner import Runner, TaskFailed, track_tasks
from gristmill.sources.addresses import Source
from gristmill.sources.documents import ReadError, document_of, read_bytes
from gristmill.splits.shared_spans import NO_ANCHORS, Anchors, find_anchors
from gristmill.tokenizers.cuda.serving import NO_SERVER, GpuServer
from gristmill.tokenizers.tokenizer import EncodedTexts
from gristmill.windows.cut import cut_all

RESUME_HINT = "Completed work is kept: run the same command again to resume"
ALL_FILES = (1 << 64) - 1
"""Value that CurrentFile records, instead of a file index, while all files of the batch are processed together."""
SLOW_BYTES_PER_SECOND = 1 << 16
"""Speed that is assumed for the timeout of a batch. Every supported tokenizer is far faster."""


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """Files that one task prepares."""

    index: int
    files: list[SourceFile]
    failed_files: Mapping[int, str] = {}
    """Reason for each file that is dropped without being read, keyed by its index in `files`."""

    @property
    def num_bytes(self) -> int:
        return sum(file.size for file in self.files)


class PreparedBatch(NamedTuple):
    """Result of preparing one batch."""

    part: str
    num_files: int
    has_vanished: bool
    """True if a file of the batch was deleted after the scan."""
    stamps: bytes
    """Concatenated hashes of the files' names and stamps (see cache.hash_stamps)."""
    keys: bytes
    """Concatenated content keys of the files, with NOT_READ for each file that was dropped instead of read."""


class _ReadFile(NamedTuple):
    file: SourceFile
    raw: bytes
    sha256: str


class CurrentFile:
    """Record, on disk, of the file that a worker is processing. It identifies the file that caused a crash."""

    def __init__(self, scratch: Path, batch_index: int) -> None:
        self._path = scratch / f"{batch_index:08d}.at"
        self._descriptor: int | None = None

        self.is_retry = False
        """True if a worker died on this batch.

        A retry processes files one by one, to find the file that killed the worker.
        """

    def __enter__(self) -> Self:
        self.is_retry = self.read() is not None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
        if error is None:
            self._path.unlink(missing_ok=True)

    def record_if_retry(self, index: int) -> int:
        """Record the index of the next file if this is a retry. Return the index."""
        return self.record(index) if self.is_retry else index

    def record(self, index: int) -> int:
        """Record the index of the file that is processed next. Return the index."""
        if self._descriptor is None:
            self._descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        os.pwrite(self._descriptor, index.to_bytes(8, "little"), 0)
        return index

    def read(self) -> int | None:
        try:
            return int.from_bytes(read_plain(self._path), "little")
        except OSError:
            return None


def make_batches(files: Iterable[SourceFile], config: RunConfig) -> Iterator[Batch]:
    """Group files into batches in path order, up to the configured number of bytes and files.

    A file larger than the limit forms its own batch. A new or deleted file changes only the batches next to it, so the
    parts of other batches can be reused.
    """
    gathered = stable_groups(
        files, lambda file: file.path, lambda file: file.size, config.batch_bytes, config.batch_files
    )
    return (Batch(index=index, files=batch) for index, batch in enumerate(gathered))


def prepare_all(
    context: Context,
    sources: Sequence[Source],
    tasks: Iterable[Batch],
    runner: Runner,
    progress: Progress,
    *,
    server: GpuServer = NO_SERVER,
    on_part: Callable[[str], None] = lambda _: None,
    background_steps: Iterable[object] = (),
) -> dict[int, str]:
    """Run step 1 and stop the GPU server. Return the names of the parts, keyed by batch index.

    `on_part` is called with the name of each finished part, while other parts are still being prepared. This process
    gathers the batches, then runs `background_steps`, if possible while workers are busy.
    """
    served = context.with_server(server.address)
    parts = _prepare_all(served, sources, tasks, runner, progress, on_part=on_part, background_steps=background_steps)
    gpu = server.end()
    if gpu is not None and gpu.trouble is not None:
        progress.note(printable(f"the CPU tokenized some or all documents, with the same ids: {gpu.trouble}."))
    return parts


def _prepare_all(
    context: Context,
    sources: Sequence[Source],
    tasks: Iterable[Batch],
    runner: Runner,
    progress: Progress,
    *,
    on_part: Callable[[str], None],
    background_steps: Iterable[object],
) -> dict[int, str]:
    roots = SourceRoots(sources)
    stamps = StampLog()
    parts: dict[int, str] = {}
    with progress.phase("prepare") as step:
        queue = _BatchQueue(tasks, step)
        runner.run_while_waiting(chain(queue.gather(), background_steps))
        pending: Iterable[Batch] = queue
        while pending:
            running: dict[int, Batch] = {}
            failed: list[Batch] = []
            for index, result in runner.as_completed(
                partial(prepare, context),
                track_tasks(pending, running),
                timeout_for=partial(_timeout_for, context),
                is_isolated=_is_large,
            ):
                batch = running.pop(index)
                if isinstance(result, TaskFailed):
                    failed.append(_with_failed_file(context, batch, result.reason))
                    continue
                if result.has_vanished:
                    roots.require_unchanged()
                parts[batch.index] = result.part
                stamps.add(result.stamps, result.keys)
                on_part(result.part)
                step.advance(result.num_files)
            pending = failed
    stamps.write(context)
    return parts


class _BatchQueue:
    """Queue of batches, filled ahead of the workers, so that the number of files is known early."""

    def __init__(self, batches: Iterable[Batch], step: Step) -> None:
        self._batches, self._step = iter(batches), step
        self._queue: deque[Batch] = deque()
        self._num_files = 0

    def gather(self) -> Iterator[None]:
        """Add one batch to the queue per step."""
        for batch in self._batches:
            self._queue.append(batch)
            self._num_files += len(batch.files)
            yield
        self._step.set_total(self._num_files, "files")

    def __iter__(self) -> Iterator[Batch]:
        steps = self.gather()
        while self._queue or next(steps, "done") is None:
            yield self._queue.popleft()


def _timeout_for(context: Context, batch: Batch) -> float:
    return context.config.run.task_seconds + batch.num_bytes / SLOW_BYTES_PER_SECOND


def _is_large(batch: Batch) -> bool:
    return is_large(batch.num_bytes)


def sort_parts(parts: Mapping[int, str]) -> list[str]:
    return [part for _, part in sorted(parts.items())]


def _with_failed_file(context: Context, batch: Batch, reason: str) -> Batch:
    """Return the batch, with a reason in `failed_files` for the file at which its worker died or hung.

    Raise OutputError if --skip-failed is not set, or if the file cannot be identified.
    """
    index = CurrentFile(context.scratch, batch.index).read()
    if index is None or index in batch.failed_files or index >= len(batch.files):
        raise OutputError(
            f"batch {batch.index} of the source files could not be prepared: {reason}. {RESUME_HINT}, or try fewer "
            "--workers."
        )
    file = batch.files[index]
    if not context.config.run.skip_failed:
        name = redact_name(f"{file.repo}/{file.path}", context.config.secrets)
        raise OutputError(
            f"{name} (batch {batch.index}) could not be prepared: {reason}. {RESUME_HINT}, try fewer --workers, or use "
            "--skip-failed to drop the file."
        )
    return msgspec.structs.replace(batch, failed_files={**batch.failed_files, index: reason})


def prepare(context: Context, batch: Batch) -> PreparedBatch:
    """Write the part of a batch to the work folder, unless the part exists. The part's name is a digest of the files.

    A file that has not been modified since the last build is read only if its content is needed.
    """
    with CurrentFile(context.scratch, batch.index) as current:
        stamps = hash_stamps(batch.files)
        known = known_stamps(context).find_keys(stamps)
        for index in batch.failed_files:
            known[index] = None
        prepared = _prepare_with_known(context, batch, current, stamps, known) if any(known) else None
        prepared = prepared or _prepare_with_known(context, batch, current, stamps, [None] * len(batch.files))
        assert prepared is not None, "a batch can always be prepared by reading all its files"
        return prepared


def _prepare_with_known(
    context: Context, batch: Batch, current: CurrentFile, stamps: bytes, known: Sequence[bytes | None]
) -> PreparedBatch | None:
    """Prepare a batch without reading its unmodified files.

    `known` has the content key of each unmodified file, and None for each other file. Return None if an unmodified file
    must be read.
    """
    current.record(ALL_FILES)
    with FolderReader() as folder:
        read = [
            _read(context, batch, current.record_if_retry(index), folder) if key is None else None
            for index, key in enumerate(known)
        ]
    keys = [key or _file_key(context, file, one) for file, key, one in zip(batch.files, known, read, strict=True)]
    name = key_of(keys)[:40] + SUFFIX
    if not is_intact(context.prepared / name):
        part = _make_part(context, batch, read, keys, current)
        if part is None:
            return None
        write_part(context.prepared / name, part)
    has_vanished = any(isinstance(one, Drop) and one.reason is DropReason.VANISHED for one in read)
    contents = (NOT_READ if isinstance(one, Drop) else key for key, one in zip(keys, read, strict=True))
    return PreparedBatch(name, len(batch.files), has_vanished, stamps, b"".join(contents))


def _read(context: Context, batch: Batch, index: int, folder: FolderReader) -> _ReadFile | Drop:
    file = batch.files[index]
    if index in batch.failed_files:
        return Drop.of(file, DropReason.FAILED, batch.failed_files[index])
    try:
        raw = read_bytes(file, context.config.scan.max_file_bytes, folder)
    except ReadError as error:
        if context.config.run.skip_failed:
            return Drop.of(file, DropReason.FAILED, str(error))
        raise InputError(
            f"{error} (batch {batch.index}). Completed work is kept: run the same command again, and add --skip-failed "
            "to drop the file."
        ) from None
    return raw if isinstance(raw, Drop) else _ReadFile(file, raw, hashlib.sha256(raw).hexdigest())


def _file_key(context: Context, file: SourceFile, read: _ReadFile | Drop | None) -> bytes:
    assert read is not None
    content = read.sha256 if isinstance(read, _ReadFile) else (read.reason, read.detail)
    encoded = msgspec.msgpack.encode(
        (context.prepare_key, file.repo, file.path, file.license, file.may_be_translation, content)
    )
    return hashlib.sha256(encoded).digest()[:16]


def _make_part(
    context: Context, batch: Batch, read: Sequence[_ReadFile | Drop | None], keys: Sequence[bytes], current: CurrentFile
) -> Part | None:
    results: list[PreparedFile | Drop | None] = [
        redact_drop(one, context.config.secrets) if isinstance(one, Drop) else None for one in read
    ]
    earlier = earlier_files(context)
    new: dict[int, _ReadFile] = {}
    for index, one in enumerate(read):
        if results[index] is None:
            results[index] = earlier.find(keys[index])
        if results[index] is None:
            if not isinstance(one, _ReadFile):
                return None
            new[index] = one
    runs = [[index] for index in new] if current.is_retry else [list(new)]
    for indices in runs:
        current.record_if_retry(indices[0] if indices else 0)
        for index, result in zip(indices, _clean_and_tokenize(context, [new[index] for index in indices]), strict=True):
            results[index] = result
    return _assemble_part(context, batch, keys, [one for one in results if one is not None])


def _assemble_part(
    context: Context, batch: Batch, keys: Sequence[bytes], results: Sequence[PreparedFile | Drop]
) -> Part:
    documents = [(key, one) for key, one in zip(keys, results, strict=True) if isinstance(one, PreparedFile)]
    is_renamed = [
        isinstance(one, Drop) and (one.repo, one.path) != (file.repo, file.path)
        for one, file in zip(results, batch.files, strict=True)
    ]
    drops = [
        (key, one, renamed)
        for key, one, renamed in zip(keys, results, is_renamed, strict=True)
        if isinstance(one, Drop)
    ]
    return Part(
        blocks=[one.block for _, one in documents],
        bands=np.concatenate([NO_BANDS, *(one.bands for _, one in documents)]),
        anchors=Anchors(
            np.array([len(one.keys) for _, one in documents if context.config.finds_shared_spans], np.int64),
            np.concatenate([np.zeros(0, np.uint32), *(one.positions for _, one in documents)]),
            np.concatenate([np.zeros(0, np.uint32), *(one.keys for _, one in documents)]),
        ),
        documents=[one.document for _, one in documents],
        facts=[one.facts for _, one in documents],
        drops=[drop for _, drop, renamed in drops if not renamed],
        renamed=[drop for _, drop, renamed in drops if renamed],
        keys=FileKeys([key for key, _ in documents], [key for key, _, renamed in drops if not renamed]),
    )


def _clean_and_tokenize(context: Context, read: Sequence[_ReadFile]) -> Iterator[PreparedFile | Drop]:
    """Clean and tokenize files and compute their signatures. Yield a drop for a file that cannot be used.

    Each stage processes all files together.
    """
    config = context.config
    found = [document_of(one.file, one.raw, one.sha256, config.scan) for one in read]
    documents = [one for one in found if isinstance(one, Document)]
    cleaned = iter(clean_all(documents, config, Limits(config.rules), context.spellings))
    clean = [next(cleaned) if isinstance(one, Document) else one for one in found]
    documents = [one for one in clean if isinstance(one, Document)]
    encoded = context.tokenizer.encode_all([one.text for one in documents], with_starts=context.keeps_text)
    tokenized = iter(_tokenize(context, documents, encoded))
    for one in clean:
        result = next(tokenized) if isinstance(one, Document) else one
        yield redact_drop(result, config.secrets) if isinstance(result, Drop) else result


def _tokenize(context: Context, documents: Sequence[Document], encoded: EncodedTexts) -> Iterator[PreparedFile | Drop]:
    config, schema = context.config, context.step_1_schema
    ids = encoded.ids.astype(schema.id_type)
    texts = [DocumentText(one.text, starts) for one, starts in zip(documents, encoded.starts, strict=False)]
    tokens = Tokens(ids, encoded.edges, encoded.newline_tokens, encoded.newline_edges, texts)
    bands = band_keys(ids, encoded.edges) if config.duplicates.near != "keep" else NO_BANDS
    anchors = find_anchors(ids, encoded.edges) if config.finds_shared_spans else NO_ANCHORS
    counts, windows, tails = cut_all(np.diff(encoded.edges), context.window_shape)
    document_indices = np.repeat(np.arange(len(documents)), counts)
    sizes = sizes_of(Rows(documents, tokens, document_indices, windows, num_tail_tokens_dropped=tails), schema)
    licenses = header_licenses([one.text for one in documents])
    id_edges, newline_edges = encoded.edges.tolist(), encoded.newline_edges.tolist()
    anchor_edges = np.concatenate(([0], np.cumsum(anchors.counts))).tolist()
    for index, document in enumerate(documents):
        drop = _drop_if_no_tokens(document, id_edges[index + 1] - id_edges[index], encoded.control_ids.get(index))
        if drop is not None:
            yield drop
            continue
        block = Block(
            ids[id_edges[index] : id_edges[index + 1]],
            encoded.newline_tokens[newline_edges[index] : newline_edges[index + 1]],
            texts[index] if texts else None,
        )
        anchor_slice = slice(*anchor_edges[index : index + 2]) if len(anchors.counts) else slice(0)
        content = block_bytes(block)
        yield PreparedFile(
            _tokenized_document(document, block, len(content), sizes[index], licenses[index]),
            _facts(document),
            content,
            bands[index : index + 1],
            anchors.positions[anchor_slice],
            anchors.keys[anchor_slice],
        )


def _drop_if_no_tokens(document: Document, num_tokens: int, control_id: int | None) -> Drop | None:
    """Return a drop if the tokenizer produces no token from the text, or produces a control token."""
    if not num_tokens:
        is_one = len(document.text) == 1
        reason = DropReason.NO_TOKENS
        detail = f"{len(document.text)} {'byte gives' if is_one else 'bytes give'} no token"
    elif control_id is not None:
        reason, detail = DropReason.CONTROL_TOKEN, f"part of the text became the control token with id {control_id}"
    else:
        return None
    facts = {"language": document.language, "sha256": document.sha256, "measures": document.measures}
    return Drop.of(document.file, reason, detail, **facts)


def _tokenized_document(
    document: Document, block: Block, num_bytes: int, sizes: Sizes, license_in_header: HeaderLicense
) -> TokenizedDocument:
    return TokenizedDocument(
        repo=document.file.repo,
        path=document.file.path,
        language=document.language,
        size=document.size,
        text_sha256=(document.is_unmodified and document.sha256) or hashlib.sha256(document.text).hexdigest(),
        num_tokens=len(block.ids),
        num_newlines=len(block.newline_tokens),
        part_bytes=num_bytes,
        num_windows=sizes.num_windows,
        num_emitted_tokens=sizes.num_emitted_tokens,
        num_window_tokens=sizes.num_window_tokens,
        num_tail_tokens_dropped=sizes.num_tail_tokens_dropped,
        num_row_bytes=sizes.num_row_bytes,
        header_license=license_in_header.tagged,
        named_license=license_in_header.named,
        declared_license=document.file.license,
    )


def _facts(document: Document) -> DocumentFacts:
    text = document.text
    return DocumentFacts(
        sha256=document.sha256,
        encoding=document.encoding,
        num_lines=text.count(b"\n") + (not text.endswith(b"\n")),
        measures=document.measures,
        redactions=document.redactions,
        respellings=document.respellings,
    )


class SourceRoots:
    """Device and inode of each source folder at the start of a build, to detect an unmounted source."""

    def __init__(self, sources: Sequence[Source]) -> None:
        self._identities = {source.root: _identity(source.root) for source in sources}

    def require_unchanged(self) -> None:
        for root, identity in self._identities.items():
            if identity is None or _identity(root) != identity:
                raise InputError(
                    f"the source {root!r} was deleted, replaced or unmounted during the build. Restore the source. "
                    f"{RESUME_HINT}."
                )


def _identity(root: str) -> tuple[int, int] | None:
    try:
        status = os.stat(root)
    except OSError:
        return None
    return status.st_dev, status.st_ino
