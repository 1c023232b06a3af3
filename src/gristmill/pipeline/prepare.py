"""Step 1, over batches of files: read · decode · clean · tokenize · sign -> a part: ids, and facts per document."""

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

import msgspec
import numpy as np

from gristmill.cleaning.clean import clean, without_secret, without_secrets
from gristmill.cleaning.licenses import header_license, named_license
from gristmill.cleaning.rules import Limits
from gristmill.config.settings import RunConfig
from gristmill.core.errors import InputError, OutputError
from gristmill.core.names import printable
from gristmill.core.partition import steady_neighbours
from gristmill.core.plain_files import read_plain
from gristmill.core.progress import Progress
from gristmill.core.records import Document, DocumentFacts, Drop, DropReason, SourceFile, TokenizedDocument
from gristmill.dedup.signatures import NUM_BANDS, band_keys
from gristmill.pipeline.cache import NOT_READ, Ready, StampLog, earlier_files, known_stamps, stamp_leads
from gristmill.pipeline.context import Context, is_large
from gristmill.pipeline.document_rows import sizes_of, whole_rows
from gristmill.pipeline.keys import key_of
from gristmill.pipeline.parts import SUFFIX, Block, FileKeys, Part, is_whole, to_bytes, write_part
from gristmill.runners.runner import Runner, TaskFailed
from gristmill.sources.addresses import Source
from gristmill.sources.documents import ReadError, document_of, read_bytes
from gristmill.splits.shared_spans import Anchors, anchors_of
from gristmill.tokenizers.cuda.host import NO_SERVER, NoServer, Server
from gristmill.tokenizers.tokenizer import Encoded

GO_ON = "What is done is kept: the same command goes on from there"
EVERYWHERE = (1 << 64) - 1
"""In place of a file's number: all texts of the batch are being encoded at once."""


SLOW_BYTES_PER_SECOND = 1 << 16
"""Far below what any tokenizer here takes: a larger batch may take longer before it counts as hung."""


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    index: int
    files: list[SourceFile]
    given_up: Mapping[int, str] = {}
    """Files, by number, that are dropped unread, and why."""

    @property
    def num_bytes(self) -> int:
        return sum(file.size for file in self.files)


class Prepared(NamedTuple):
    part: str
    num_files: int
    has_vanished: bool
    """A file that was listed was not there."""
    stamps: bytes
    """Of its files, one after the other."""
    keys: bytes
    """Of what is in them; NOT_READ for one that was not read."""


class _Read(NamedTuple):
    file: SourceFile
    raw: bytes
    sha256: str


class Whereabouts:
    """Which file of its batch a worker is at, written down where it is found if the worker dies over it."""

    def __init__(self, scratch: Path, batch_index: int) -> None:
        self._path = scratch / f"{batch_index:08d}.at"
        self._descriptor: int | None = None

        self.is_tried_again = False
        """A worker died at this batch: files are now to be taken one by one, so that it is clear over which."""

    def __enter__(self) -> Self:
        self.is_tried_again = self.last() is not None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
        if error is None:
            self._path.unlink(missing_ok=True)

    def __call__(self, number: int) -> int:
        if self._descriptor is None:
            self._descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        os.pwrite(self._descriptor, number.to_bytes(8, "little"), 0)
        return number

    def last(self) -> int | None:
        try:
            return int.from_bytes(read_plain(self._path), "little")
        except OSError:
            return None


def batches(files: Sequence[SourceFile], config: RunConfig) -> Iterator[Batch]:
    """Neighbours in path order, up to so many bytes or files; a larger file is a batch of its own.

    One that is new or gone moves the edges of the batch it is in, so that the others are found prepared.
    """
    gathered = steady_neighbours(
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
    server: Server | NoServer = NO_SERVER,
) -> dict[int, str]:
    """Step 1: the part of each batch, by its index. The server is of no use afterwards, and ends here."""
    parts = _prepare_all(context.served_by(server.address), sources, tasks, runner, progress)
    gpu = server.end()
    if gpu is not None and gpu.trouble is not None:
        progress.note(printable(f"the CPU tokenized for the GPU, to the same ids: {gpu.trouble}."))
    return parts


def _prepare_all(
    context: Context, sources: Sequence[Source], tasks: Iterable[Batch], runner: Runner, progress: Progress
) -> dict[int, str]:
    waiting = list(tasks)
    roots = SourceRoots(sources)
    stamps = StampLog()
    parts: dict[int, str] = {}
    with progress.phase("prepare", total=sum(len(batch.files) for batch in waiting)) as step:
        while waiting:
            failed: list[Batch] = []
            for number, answer in runner.as_done(
                partial(prepare, context), waiting, seconds_for=partial(_seconds_for, context), is_alone=_is_large
            ):
                if isinstance(answer, TaskFailed):
                    failed.append(_without_failed(context, waiting[number], answer.reason))
                    continue
                if answer.has_vanished:
                    roots.refuse_vanished()
                parts[waiting[number].index] = answer.part
                stamps.add(answer.stamps, answer.keys)
                step.advance(answer.num_files)
            waiting = failed
    stamps.write(context)
    return parts


def _seconds_for(context: Context, batch: Batch) -> float:
    return context.config.run.task_seconds + batch.num_bytes / SLOW_BYTES_PER_SECOND


def _is_large(batch: Batch) -> bool:
    return is_large(batch.num_bytes)


def in_order(parts: Mapping[int, str]) -> list[str]:
    return [part for _, part in sorted(parts.items())]


def _without_failed(context: Context, batch: Batch, reason: str) -> Batch:
    """The batch without the file over which its worker died; where that is not wanted, an error that names it."""
    number = Whereabouts(context.scratch, batch.index).last()
    if number is None or number in batch.given_up or number >= len(batch.files):
        raise OutputError(f"batch {batch.index} could not be prepared: {reason}. {GO_ON}; try fewer --workers.")
    file = batch.files[number]
    if not context.config.run.skip_failed:
        name = without_secret(f"{file.repo}/{file.path}", context.config.secrets)
        raise OutputError(
            f"{name} (batch {batch.index}) could not be prepared: {reason}. {GO_ON}; try fewer --workers, or "
            "--skip-failed to leave the file out."
        )
    return msgspec.structs.replace(batch, given_up={**batch.given_up, number: reason})


def prepare(context: Context, batch: Batch) -> Prepared:
    """Leaves the part in the work folder, or finds it there: it goes by what is in the files.

    Files that have not been touched since the last build are not read, unless one of them turns out to be needed.
    """
    with Whereabouts(context.scratch, batch.index) as at:
        stamps = stamp_leads(batch.files)
        known = known_stamps(context).keys_of(stamps)
        for number in batch.given_up:
            known[number] = None
        prepared = _prepare(context, batch, at, stamps, known) if any(known) else None
        prepared = prepared or _prepare(context, batch, at, stamps, [None] * len(batch.files))
        assert prepared is not None, "all of it was read"
        return prepared


def _prepare(
    context: Context, batch: Batch, at: Whereabouts, stamps: bytes, known: Sequence[bytes | None]
) -> Prepared | None:
    """None where a file that is known by its stamp would have to be read."""
    read = [
        _read(context, batch, at(number), file) if key is None else None
        for number, (file, key) in enumerate(zip(batch.files, known, strict=True))
    ]
    keys = [key or _file_key(context, file, one) for file, key, one in zip(batch.files, known, read, strict=True)]
    name = key_of(keys)[:40] + SUFFIX
    if not is_whole(context.prepared / name):
        part = _part(context, batch, read, keys, at)
        if part is None:
            return None
        write_part(context.prepared / name, part)
    has_vanished = any(isinstance(one, Drop) and one.reason is DropReason.VANISHED for one in read)
    contents = (NOT_READ if isinstance(one, Drop) else key for key, one in zip(keys, read, strict=True))
    return Prepared(name, len(batch.files), has_vanished, stamps, b"".join(contents))


def _read(context: Context, batch: Batch, number: int, file: SourceFile) -> _Read | Drop:
    if number in batch.given_up:
        return Drop.of(file, DropReason.FAILED, batch.given_up[number])
    try:
        raw = read_bytes(file, context.config.scan.max_file_bytes)
    except ReadError as error:
        if context.config.run.skip_failed:
            return Drop.of(file, DropReason.FAILED, str(error))
        raise InputError(
            f"{error} (batch {batch.index}). What is done is kept: run the same command again, with --skip-failed to "
            "leave the file out."
        ) from None
    return raw if isinstance(raw, Drop) else _Read(file, raw, hashlib.sha256(raw).hexdigest())


def _file_key(context: Context, file: SourceFile, read: _Read | Drop | None) -> bytes:
    assert read is not None
    what = read.sha256 if isinstance(read, _Read) else (read.reason, read.detail)
    went_in = msgspec.msgpack.encode(
        (context.prepare_key, file.repo, file.path, file.license, file.may_be_translation, what)
    )
    return hashlib.sha256(went_in).digest()[:16]


def _part(
    context: Context, batch: Batch, read: Sequence[_Read | Drop | None], keys: Sequence[bytes], at: Whereabouts
) -> Part | None:
    limits = Limits(context.config.rules)
    earlier = earlier_files(context)
    found_or_clean: list[Drop | Ready | Document] = []
    for number, (one, key) in enumerate(zip(read, keys, strict=True)):
        at(number)
        found = earlier.find(key) if not isinstance(one, Drop) else without_secrets(one, context.config.secrets)
        if found is not None:
            found_or_clean.append(found)
        elif isinstance(one, _Read):
            found_or_clean.append(_cleaned(context, one, limits))
        else:
            return None
    answers = _tokenized(context, found_or_clean, at)
    made = iter(_signed(context, [one for one in answers if not isinstance(one, Drop | Ready)]))
    documents = [
        (key, one if isinstance(one, Ready) else next(made))
        for key, one in zip(keys, answers, strict=True)
        if not isinstance(one, Drop)
    ]
    is_renamed = [
        isinstance(one, Drop) and (one.repo, one.path) != (file.repo, file.path)
        for one, file in zip(answers, batch.files, strict=True)
    ]
    drops = [
        (key, one, renamed)
        for key, one, renamed in zip(keys, answers, is_renamed, strict=True)
        if isinstance(one, Drop)
    ]
    return Part(
        blocks=[one.block for _, one in documents],
        bands=np.concatenate([np.zeros((0, NUM_BANDS), np.uint64), *(one.bands for _, one in documents)]),
        anchors=Anchors(
            np.array([len(one.keys) for _, one in documents if context.config.looks_for_spans], np.int64),
            np.concatenate([np.zeros(0, np.uint32), *(one.positions for _, one in documents)]),
            np.concatenate([np.zeros(0, np.uint32), *(one.keys for _, one in documents)]),
        ),
        documents=[one.document for _, one in documents],
        facts=[one.facts for _, one in documents],
        drops=[drop for _, drop, renamed in drops if not renamed],
        renamed=[drop for _, drop, renamed in drops if renamed],
        keys=FileKeys([key for key, _ in documents], [key for key, _, renamed in drops if not renamed]),
    )


def _signed(context: Context, prepared: Sequence[tuple[Document, Block]]) -> Iterator[Ready]:
    """With what is found out over all of them at once."""
    config, ids = context.config, [block.ids for _, block in prepared]
    bands = band_keys(ids if config.duplicates.near != "keep" else [])
    anchors = anchors_of(ids if config.looks_for_spans else [])
    edges = np.concatenate(([0], np.cumsum(anchors.counts)))
    for number, (document, block) in enumerate(prepared):
        own = slice(edges[number], edges[number + 1]) if len(anchors.counts) else slice(0)
        content = to_bytes(block)
        yield Ready(
            _document(context, document, block, len(content)),
            _facts(document),
            content,
            bands[number : number + 1],
            anchors.positions[own],
            anchors.keys[own],
        )


def _cleaned(context: Context, read: _Read, limits: Limits) -> Document | Drop:
    found = document_of(read.file, read.raw, read.sha256, context.config.scan)
    document = found if isinstance(found, Drop) else clean(found, context.config, limits)
    return without_secrets(document, context.config.secrets) if isinstance(document, Drop) else document


def _tokenized(
    context: Context, found_or_clean: Sequence[Drop | Ready | Document], at: Whereabouts
) -> list[Drop | Ready | tuple[Document, Block]]:
    texts = {number: one.text for number, one in enumerate(found_or_clean) if isinstance(one, Document)}
    encoded = _encoded(context, texts, at)
    return [_judged(context, one, next(encoded)) if isinstance(one, Document) else one for one in found_or_clean]


def _encoded(context: Context, texts: Mapping[int, bytes], at: Whereabouts) -> Iterator[Encoded]:
    tokenizer, with_starts = context.tokenizer, context.keeps_text
    if texts and not at.is_tried_again and tokenizer.encodes_in_batches:
        at(EVERYWHERE)
        yield from tokenizer.encode_many(list(texts.values()), with_starts=with_starts)
        return
    for number, text in texts.items():
        at(number)
        yield tokenizer.encode(text, with_starts=with_starts)


def _judged(context: Context, document: Document, encoded: Encoded) -> tuple[Document, Block] | Drop:
    facts = {"language": document.language, "sha256": document.sha256, "measures": document.measures}
    if not len(encoded.ids):
        is_one = len(document.text) == 1
        reason = DropReason.NO_TOKENS
        detail = f"{len(document.text)} {'byte gives' if is_one else 'bytes give'} no token"
    elif encoded.control_id is not None:
        reason, detail = DropReason.CONTROL_TOKEN, f"its text became id {encoded.control_id}"
    else:
        return document, Block.of(encoded, document.text, context.tokenizer.vocab_size)
    return without_secrets(Drop.of(document.file, reason, detail, **facts), context.config.secrets)


def _document(context: Context, document: Document, block: Block, num_bytes: int) -> TokenizedDocument:
    text = document.text
    sizes = sizes_of(whole_rows(document, block, context.window_shape), context.plain_schema)
    return TokenizedDocument(
        repo=document.file.repo,
        path=document.file.path,
        language=document.language,
        size=document.size,
        text_sha256=(document.is_as_read and document.sha256) or hashlib.sha256(text).hexdigest(),
        num_tokens=len(block.ids),
        num_newlines=len(block.newline_tokens),
        part_bytes=num_bytes,
        **sizes._asdict(),
        header_license=header_license(text),
        named_license=named_license(text),
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
    )


class SourceRoots:
    """The sources as they were when the build began: one that is unmounted later must not look like an empty one."""

    def __init__(self, sources: Sequence[Source]) -> None:
        self._places = {source.root: _identity(source.root) for source in sources}

    def refuse_vanished(self) -> None:
        for root, identity in self._places.items():
            if identity is None or _identity(root) != identity:
                raise InputError(f"the source {root!r} is gone. Bring it back. {GO_ON}.")


def _identity(root: str) -> tuple[int, int] | None:
    try:
        status = os.stat(root)
    except OSError:
        return None
    return status.st_dev, status.st_ino
