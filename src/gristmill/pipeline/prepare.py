"""Step 1, over batches of files: read · decode · clean · tokenize · sign -> a part: ids, and facts per document."""

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

from gristmill.cleaning.clean import clean_all, without_secret, without_secrets
from gristmill.cleaning.licenses import HeaderLicense, header_licenses
from gristmill.cleaning.rules import Limits
from gristmill.config.settings import RunConfig
from gristmill.core.errors import InputError, OutputError
from gristmill.core.names import printable
from gristmill.core.partition import steady_neighbours
from gristmill.core.plain_files import PlainFolder, read_plain
from gristmill.core.progress import Progress, Step
from gristmill.core.records import Document, DocumentFacts, Drop, DropReason, SourceFile, TokenizedDocument
from gristmill.dedup.signatures import NO_BANDS, band_keys
from gristmill.formats.document_columns import DocumentText, Rows, Tokens
from gristmill.pipeline.cache import NOT_READ, Ready, StampLog, earlier_files, known_stamps, stamp_leads
from gristmill.pipeline.context import Context, is_large
from gristmill.pipeline.document_rows import Sizes, sizes_of
from gristmill.pipeline.keys import key_of
from gristmill.pipeline.parts import SUFFIX, Block, FileKeys, Part, is_whole, to_bytes, write_part
from gristmill.runners.runner import Runner, TaskFailed, noting
from gristmill.sources.addresses import Source
from gristmill.sources.documents import ReadError, document_of, read_bytes
from gristmill.splits.shared_spans import NO_ANCHORS, Anchors, anchors_of
from gristmill.tokenizers.cuda.serving import NO_SERVER, GpuServer
from gristmill.tokenizers.tokenizer import EncodedTexts
from gristmill.windows.cut import cut_all

GO_ON = "What is done is kept: the same command goes on from there"
EVERYWHERE = (1 << 64) - 1
"""In place of a file's number: all files of the batch are being prepared at once."""


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

    def again(self, number: int) -> int:
        """Which file it is at, where files are taken one by one."""
        return self(number) if self.is_tried_again else number

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


def batches(files: Iterable[SourceFile], config: RunConfig) -> Iterator[Batch]:
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
    server: GpuServer = NO_SERVER,
    arrived: Callable[[str], None] = lambda _: None,
    beside: Iterable[object] = (),
) -> dict[int, str]:
    """Step 1: the part of each batch, by its index. The server is of no use afterwards, and ends here.

    `arrived` is called with the name of each part, while others are still being prepared. `beside`: steps that this
    process takes while workers are busy, once all batches are known.
    """
    served = context.served_by(server.address)
    parts = _prepare_all(served, sources, tasks, runner, progress, arrived=arrived, beside=beside)
    gpu = server.end()
    if gpu is not None and gpu.trouble is not None:
        progress.note(printable(f"the CPU tokenized for the GPU, to the same ids: {gpu.trouble}."))
    return parts


def _prepare_all(
    context: Context,
    sources: Sequence[Source],
    tasks: Iterable[Batch],
    runner: Runner,
    progress: Progress,
    *,
    arrived: Callable[[str], None],
    beside: Iterable[object],
) -> dict[int, str]:
    roots = SourceRoots(sources)
    stamps = StampLog()
    parts: dict[int, str] = {}
    with progress.phase("prepare") as step:
        ahead = _Ahead(tasks, step)
        runner.meanwhile(chain(ahead.gather(), beside))
        waiting: Iterable[Batch] = ahead
        while waiting:
            under_way: dict[int, Batch] = {}
            failed: list[Batch] = []
            for number, answer in runner.as_done(
                partial(prepare, context),
                noting(waiting, under_way),
                seconds_for=partial(_seconds_for, context),
                is_alone=_is_large,
            ):
                batch = under_way.pop(number)
                if isinstance(answer, TaskFailed):
                    failed.append(_without_failed(context, batch, answer.reason))
                    continue
                if answer.has_vanished:
                    roots.refuse_vanished()
                parts[batch.index] = answer.part
                stamps.add(answer.stamps, answer.keys)
                arrived(answer.part)
                step.advance(answer.num_files)
            waiting = failed
    stamps.write(context)
    return parts


class _Ahead:
    """Batches, gathered ahead of the workers that take them: how many files there are is known soon."""

    def __init__(self, batches: Iterable[Batch], step: Step) -> None:
        self._batches, self._step = iter(batches), step
        self._gathered: deque[Batch] = deque()
        self._num_files = 0

    def gather(self) -> Iterator[None]:
        """One in each step."""
        for batch in self._batches:
            self._gathered.append(batch)
            self._num_files += len(batch.files)
            yield
        self._step.expect(self._num_files, "files")

    def __iter__(self) -> Iterator[Batch]:
        steps = self.gather()
        while self._gathered or next(steps, "all are") is None:
            yield self._gathered.popleft()


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
    at(EVERYWHERE)
    with PlainFolder() as folder:
        read = [
            _read(context, batch, at.again(number), folder) if key is None else None for number, key in enumerate(known)
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


def _read(context: Context, batch: Batch, number: int, folder: PlainFolder) -> _Read | Drop:
    file = batch.files[number]
    if number in batch.given_up:
        return Drop.of(file, DropReason.FAILED, batch.given_up[number])
    try:
        raw = read_bytes(file, context.config.scan.max_file_bytes, folder)
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
    answers: list[Ready | Drop | None] = [
        without_secrets(one, context.config.secrets) if isinstance(one, Drop) else None for one in read
    ]
    earlier = earlier_files(context)
    new: dict[int, _Read] = {}
    for number, one in enumerate(read):
        if answers[number] is None:
            answers[number] = earlier.find(keys[number])
        if answers[number] is None:
            if not isinstance(one, _Read):
                return None
            new[number] = one
    runs = [[number] for number in new] if at.is_tried_again else [list(new)]
    for numbers in runs:
        at.again(numbers[0] if numbers else 0)
        for number, answer in zip(numbers, _made(context, [new[number] for number in numbers]), strict=True):
            answers[number] = answer
    return _gathered(context, batch, keys, [one for one in answers if one is not None])


def _gathered(context: Context, batch: Batch, keys: Sequence[bytes], answers: Sequence[Ready | Drop]) -> Part:
    documents = [(key, one) for key, one in zip(keys, answers, strict=True) if isinstance(one, Ready)]
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
        bands=np.concatenate([NO_BANDS, *(one.bands for _, one in documents)]),
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


def _made(context: Context, read: Sequence[_Read]) -> Iterator[Ready | Drop]:
    """Each file cleaned, tokenized and signed, or why not. What looks at all of them does so at once."""
    config = context.config
    found = [document_of(one.file, one.raw, one.sha256, config.scan) for one in read]
    documents = [one for one in found if isinstance(one, Document)]
    cleaned = iter(clean_all(documents, config, Limits(config.rules), context.spellings))
    clean = [next(cleaned) if isinstance(one, Document) else one for one in found]
    documents = [one for one in clean if isinstance(one, Document)]
    encoded = context.tokenizer.encode_all([one.text for one in documents], with_starts=context.keeps_text)
    tokenized = iter(_tokenized(context, documents, encoded))
    for one in clean:
        answer = next(tokenized) if isinstance(one, Document) else one
        yield without_secrets(answer, config.secrets) if isinstance(answer, Drop) else answer


def _tokenized(context: Context, documents: Sequence[Document], encoded: EncodedTexts) -> Iterator[Ready | Drop]:
    config, schema = context.config, context.plain_schema
    ids = encoded.ids.astype(schema.id_type)
    texts = [DocumentText(one.text, starts) for one, starts in zip(documents, encoded.starts, strict=False)]
    tokens = Tokens(ids, encoded.edges, encoded.newline_tokens, encoded.newline_edges, texts)
    bands = band_keys(ids, encoded.edges) if config.duplicates.near != "keep" else NO_BANDS
    anchors = anchors_of(ids, encoded.edges) if config.looks_for_spans else NO_ANCHORS
    counts, windows, tails = cut_all(np.diff(encoded.edges), context.window_shape)
    of = np.repeat(np.arange(len(documents)), counts)
    sizes = sizes_of(Rows(documents, tokens, of, windows, num_tail_tokens_dropped=tails), schema)
    licenses = header_licenses([one.text for one in documents])
    id_edges, newline_edges = encoded.edges.tolist(), encoded.newline_edges.tolist()
    anchor_edges = np.concatenate(([0], np.cumsum(anchors.counts))).tolist()
    for number, document in enumerate(documents):
        drop = _no_tokens(document, id_edges[number + 1] - id_edges[number], encoded.control_ids.get(number))
        if drop is not None:
            yield drop
            continue
        block = Block(
            ids[id_edges[number] : id_edges[number + 1]],
            encoded.newline_tokens[newline_edges[number] : newline_edges[number + 1]],
            texts[number] if texts else None,
        )
        own = slice(*anchor_edges[number : number + 2]) if len(anchors.counts) else slice(0)
        content = to_bytes(block)
        yield Ready(
            _document(document, block, len(content), sizes[number], licenses[number]),
            _facts(document),
            content,
            bands[number : number + 1],
            anchors.positions[own],
            anchors.keys[own],
        )


def _no_tokens(document: Document, num_tokens: int, control_id: int | None) -> Drop | None:
    """Why the text is of no use as the tokenizer sees it."""
    if not num_tokens:
        is_one = len(document.text) == 1
        reason = DropReason.NO_TOKENS
        detail = f"{len(document.text)} {'byte gives' if is_one else 'bytes give'} no token"
    elif control_id is not None:
        reason, detail = DropReason.CONTROL_TOKEN, f"its text became id {control_id}"
    else:
        return None
    facts = {"language": document.language, "sha256": document.sha256, "measures": document.measures}
    return Drop.of(document.file, reason, detail, **facts)


def _document(
    document: Document, block: Block, num_bytes: int, sizes: Sizes, license_in_header: HeaderLicense
) -> TokenizedDocument:
    return TokenizedDocument(
        repo=document.file.repo,
        path=document.file.path,
        language=document.language,
        size=document.size,
        text_sha256=(document.is_as_read and document.sha256) or hashlib.sha256(document.text).hexdigest(),
        num_tokens=len(block.ids),
        num_newlines=len(block.newline_tokens),
        part_bytes=num_bytes,
        num_windows=sizes.num_windows,
        num_emitted_tokens=sizes.num_emitted_tokens,
        num_shown_tokens=sizes.num_shown_tokens,
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
