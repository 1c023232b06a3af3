"""What was built, from what, by which versions, with which digests.

Everything but `run` is the same for the same input: two builds can be compared by their manifests.
"""

import hashlib
import importlib
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import msgspec

from gristmill.core.columns import IDS
from gristmill.core.errors import ConfigError, DatasetError
from gristmill.core.layout import MANIFEST, write_atomically
from gristmill.core.output_formats import FORMATS
from gristmill.core.plain_files import open_plain, read_plain
from gristmill.core.records import (
    LARGEST_VOCABULARY,
    LONGEST_WINDOW,
    NO_LIMIT,
    DropReason,
    FimForm,
    MiddleKind,
    Split,
    VariantKind,
    WhyNoVariant,
    WhyPlain,
)

Kind = TypeVar("Kind")

FORMAT = 4
BUILD = "gristmill build"
MOST_ROWS = 1 << 48
LARGEST_NUMBER = 1 << 63
MOST_TOLD = 1000
"""Of what there is a handful: phases, kinds of secrets."""


class TokenizerFacts(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    sha256: str
    """Of the tokenizer.json in the folder."""
    revision: str | None
    vocab_size: int
    engine: str
    """What did the encoding; every engine gives the same ids."""
    prefix: tuple[int, ...]
    suffix: tuple[int, ...]
    """Special ids around each window."""
    pad_id: int | None
    end_id: int | None
    """End of a document in a stream of tokens."""
    closing: tuple[int, ...] = ()
    """Special ids behind the last window of a document."""
    mask_id: int | None = None
    """The tokenizer's mask token; None if it has none."""
    end_token: str | None = None
    """The end token as the tokenizer spells it."""


class SourceFacts(msgspec.Struct, frozen=True, kw_only=True):
    repo: str
    commit: str | None
    found: int
    is_table: bool = False
    """Its rows are the files, and each may name a repository of its own: `found` counts all of them."""


class BenchmarkFacts(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    sha256: str
    texts: int
    texts_too_short: int
    """Of fewer than 50 tokens: no span of theirs can be found."""
    tokens_cut: int


class PreviousSplits(msgspec.Struct, frozen=True, kw_only=True):
    sha256: str
    num_files_kept_in_place: int
    num_files_moved: int
    """Into the split of the files they must be with; `moved_from` in files.jsonl says which."""


class NearDuplicates(msgspec.Struct, frozen=True, kw_only=True):
    clusters: int
    files: int
    """In all clusters."""
    dropped: int


class Decontamination(msgspec.Struct, frozen=True, kw_only=True):
    """Spans of 50 tokens and more that were in two splits, or in a benchmark and in train."""

    how: str
    files_cut: dict[Split, int]
    tokens_before: dict[Split, int]
    tokens_cut: dict[Split, int]
    against: list[BenchmarkFacts]


class WeightFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Of a group of train files that one weight holds for. Shares are of train's tokens, as its windows show them."""

    name: str
    weight: float
    files: int
    natural_windows: int
    natural_share: float
    requested_share: float
    realised_share: float
    """With its variants."""
    windows: int
    """Rows, repeats included and variants not."""
    epochs: float
    """How often each of its windows is shown, on average."""
    largest_repeat: int
    shadowed_files: int
    """Where it has no file: so many match it, and a later weight too."""


class SamplingFacts(msgspec.Struct, frozen=True, kw_only=True):
    natural_windows: dict[Split, int]
    wanted_windows: dict[Split, int]
    windows: dict[Split, int]
    """That came of it, variants apart."""
    groups: list[WeightFacts]
    """None where neither weights nor a size of train were asked for."""


class VariantFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Of one kind."""

    rate: float
    chosen: int
    """Files of train."""
    made: int
    windows: int
    tokens: int
    missing: dict[WhyNoVariant, int]
    """Chosen, and without one: why."""
    model: str | None = None
    """That has rewritten them."""


class FimFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Documents of train that are rewritten for fill in the middle."""

    rate: float
    chosen: int
    """Files of train."""
    rewritten: int
    forms: dict[FimForm, int]
    """Windows of rewritten files, each counted once."""
    middles: dict[MiddleKind, int]
    """The same windows by kind of middle."""
    plain: int
    """Windows of rewritten files that have no middle, as they are too short or blank."""
    missing: dict[WhyPlain, int]
    """Chosen files that are not rewritten."""


class EpochFacts(msgspec.Struct, frozen=True, kw_only=True):
    """How often train goes over its files' tokens, on average."""

    shown: float
    """As they are; 1 by nature."""
    varied: float
    """In variants."""
    effective: float
    """Both, a variant counted as `variant_worth` of a repetition."""
    variant_worth: float
    most: float
    """The same for the file that is shown most, and which that is."""
    most_in: str


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    found: int
    kept: int
    dropped: int
    dropped_by_reason: dict[DropReason, int]
    tail_tokens_dropped: int
    redactions: dict[str, int]
    """Secrets taken out, by kind."""
    respellings: dict[str, int] = {}
    """Blanks put into spellings of control tokens, by spelling; with rows of documents."""
    licenses: dict[str, int]
    """Kept files by SPDX id."""


class SplitFacts(msgspec.Struct, frozen=True, kw_only=True):
    files: int
    """That give at least one row, themselves or by a variant."""
    groups: int
    """Of these files."""
    windows: int
    """Rows: repeats and variants count."""
    tokens: int
    """Distinct content tokens: each file's tokens once, less what was cut."""
    emitted_tokens: int
    """Ids in all rows: overlaps, special tokens and padding count again."""
    share: float
    """Of all content tokens, as it came out; the settings have the one that was asked for."""


class OrderFacts(msgspec.Struct, frozen=True, kw_only=True):
    """With `--repo-order imports`: imports between files of one repository and split."""

    repos: int
    """Repositories with imports between their files."""
    imports: int
    """Pairs of files of which one imports the other."""
    broken: int
    """Imports in a cycle whose imported file comes after the importing file."""


class PackingFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Of a split whose rows hold windows of several files."""

    rows: int
    segments: int
    """Stretches of files in them."""
    ids: int
    """Without padding."""
    empty_share: float
    """Of all rows' room, what no id fills."""
    order: OrderFacts | None = None
    """None if files are not ordered by imports."""


class FileFacts(msgspec.Struct, frozen=True, kw_only=True):
    bytes: int
    sha256: str
    rows: int | None = None
    split: Split | None = None
    format: str | None = None
    """Of a file with rows, or that belongs to some: which of the manifest's formats."""


def facts_of(path: Path) -> FileFacts:
    with open_plain(path) as stream:
        digest = hashlib.file_digest(stream, "sha256")
        return FileFacts(bytes=stream.tell(), sha256=digest.hexdigest())


class GpuFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Of step 1 with `--device cuda`: what the GPU was given, and how long it was at it."""

    documents: int = 0
    documents_on_cpu: int = 0
    """Those of them that it handed to the CPU: NFC might change them, or the card has no room for their new words."""
    bytes: int = 0
    seconds_busy: float = 0.0
    seconds_ready: float = 0.0
    """From when it could take texts to the end of step 1; the CPU did what came before."""
    trouble: str | None = None
    """Why the CPU did what the GPU was to do; None: it did all it was given."""


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """What may differ between two builds of the same thing."""

    started_at: str
    seconds: dict[str, float]
    workers: int
    source_bytes: int
    python: str
    platform: str
    gpu: GpuFacts | None = None
    """None: with `--device cpu`."""


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    format: int
    gristmill: str
    fingerprint: str
    settings: dict[str, Any]
    versions: dict[str, str]
    tokenizer: TokenizerFacts
    sources: list[SourceFacts]
    previous_splits: PreviousSplits | None
    near_duplicates: NearDuplicates
    decontamination: Decontamination
    sampling: SamplingFacts | None
    """None: every window once."""
    fim: FimFacts | None
    """None: no document is rewritten."""
    variants: dict[VariantKind, VariantFacts]
    epochs: EpochFacts
    columns: list[str]
    segment_columns: list[str]
    """What a row's `segments` tell of each; none without --pack."""
    formats: list[str]
    """In which the rows are there, each all of them."""
    content_sha256: str
    """Of split, path, start and ids of every window: the same in every format."""
    shards: dict[Split, list[int]]
    """Rows in each of a split's files, in every format that has several."""
    counts: Counts
    splits: dict[Split, SplitFacts]
    packing: dict[Split, PackingFacts] | None
    """None: a row is a window of one file."""
    tokens_by_language: dict[str, dict[Split, int]]
    files: dict[str, FileFacts]
    warnings: list[str]
    made_by: str = BUILD
    """Rows that others made have ForeignRows in its place."""
    run: Run

    @property
    def num_files_shown(self) -> int:
        """Kept files that give a row. Sampling leaves some without one; rows of a bench may be in several splits."""
        return min(self.counts.kept, sum(facts.files for facts in self.splits.values()))

    @property
    def has_documents(self) -> bool:
        """A row is a document's text, without ids."""
        return IDS not in self.columns

    @property
    def row_unit(self) -> str:
        """The word for a row, in messages and tables."""
        return "document" if self.has_documents else "window"

    @property
    def preset(self) -> str:
        """Kind of models that the rows are for."""
        found = self.settings.get("preset")
        return found if isinstance(found, str) else ""

    @property
    def window_length(self) -> int:
        """Ids in a window, special tokens included; NO_LIMIT if a row is a document."""
        if self.has_documents:
            return NO_LIMIT
        found = self.settings.get("window")
        length = found.get("length") if isinstance(found, dict) else None
        if not isinstance(length, int) or not 1 <= length <= LONGEST_WINDOW:
            raise DatasetError(
                "the manifest is damaged: it does not say how long windows are. Build the dataset again."
            )
        return length

    def _repr_html_(self) -> str:
        """In a notebook: by name, as what draws it is made of manifests and stands above them."""
        return str(importlib.import_module("gristmill.views.notebook").manifest_html(self))


class RowCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Of a split that no build has made."""

    files: int
    windows: int
    """Rows."""
    tokens: int
    """Distinct content tokens, as far as rows say of which file they are."""
    emitted_tokens: int
    """Ids in all rows: overlaps, special tokens and padding count again."""


class ForeignRows(msgspec.Struct, frozen=True, kw_only=True):
    """Rows that no build has made, in the place of a manifest: enough to read, train on and compare them."""

    format: int
    gristmill: str
    made_by: str
    tokenizer: TokenizerFacts
    window_length: int
    """Ids in a row at most, special tokens included."""
    columns: list[str]
    splits: dict[Split, RowCounts]
    files: dict[str, FileFacts]

    @property
    def formats(self) -> list[str]:
        return ["jsonl"]

    @property
    def has_documents(self) -> bool:
        return False

    @property
    def packing(self) -> None:
        """A row is a window of one file."""
        return

    @property
    def fingerprint(self) -> str:
        """Of all files."""
        digests = sorted((name, facts.sha256) for name, facts in self.files.items())
        return hashlib.sha256(msgspec.json.encode(digests)).hexdigest()

    @property
    def content_sha256(self) -> str:
        return self.fingerprint


RowsRecord = Manifest | ForeignRows
"""What is known of rows, whoever made them."""


def require_manifest(record: RowsRecord, folder: Path) -> Manifest:
    """What a build made can be asked about, file by file."""
    if not isinstance(record, Manifest):
        raise _no_manifest(folder, record.made_by)
    return record


def require_ids(record: RowsRecord, folder: Path, what: str) -> None:
    """Raise ConfigError if rows are documents without ids."""
    if record.has_documents:
        raise ConfigError(
            f"{str(folder)!r} was built with --rows documents: its rows are texts without ids, which {what} needs. "
            "Build it with --rows windows for this."
        )


def require_windows(record: RowsRecord, folder: Path, what: str) -> None:
    """Rows that are windows of one file each."""
    require_ids(record, folder, what)
    if record.packing is not None:
        raise ConfigError(
            f"{str(folder)!r} was built with --pack: its rows hold several files, which {what} does not keep apart. "
            "Build it with --pack none for this."
        )


class Edition:
    """One build of a dataset, as a reader has opened it: another may take its place in the folder at any time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stamp = self._stamp_now()  # before it is read: of two builds the earlier, and the next look finds out
        self.record = read_record(folder)
        self._is_of = _edition_of(self.record)

    @property
    def manifest(self) -> Manifest:
        """Raises DatasetError for rows that no build has made."""
        return require_manifest(self.record, self._folder)

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Raise if what is read inside may be of another build, or fails because there is another."""
        try:
            yield
        except Exception:
            self.require()
            raise
        self.require()

    def require(self) -> None:
        """Raise if another build is in the folder now. Further formats, or the same build once more, are no other."""
        stamp = self._stamp_now()
        if stamp == self._stamp:
            return
        try:
            found = _edition_of(read_record(self._folder))
        except DatasetError as error:
            raise DatasetError(f"{str(error).rstrip('.')}. It was there when it was opened: open it again.") from None
        if found != self._is_of:
            raise DatasetError(
                f"the dataset in {str(self._folder)!r} was rebuilt while it was being read: open it again."
            )
        self._stamp = stamp

    def _stamp_now(self) -> tuple[int, int, int] | None:
        try:
            facts = os.stat(self._folder / MANIFEST)
        except OSError:
            return None
        return facts.st_ino, facts.st_size, facts.st_mtime_ns

    def __getstate__(self) -> tuple[Path, tuple[int, int, int] | None, tuple[str, str]]:
        """Without the manifest: it goes along with every file that is read in another process."""
        return self._folder, self._stamp, self._is_of

    def __setstate__(self, state: tuple[Path, tuple[int, int, int] | None, tuple[str, str]]) -> None:
        self._folder, self._stamp, self._is_of = state


@contextmanager
def reading(edition: Edition | None) -> Iterator[None]:
    """Raise DatasetError if data files cannot be read, or may be of another build; None: they are of no dataset."""
    if edition is None:
        yield
        return
    try:
        with edition.reading():
            yield
    except OSError as error:
        raise DatasetError(f"cannot read {error.filename!r}: {error.strerror}.") from None


@contextmanager
def opened(path: Path, edition: Edition | None) -> Iterator[BinaryIO]:
    """A data file of this build; what is open stays, whatever becomes of its name."""
    with ExitStack() as stack:
        with reading(edition):
            stream = stack.enter_context(open_plain(path))
        yield stream


def _edition_of(record: RowsRecord) -> tuple[str, str]:
    """The same settings, sources and rows, the same bytes."""
    return record.fingerprint, record.content_sha256


def write_manifest(manifest: RowsRecord, folder: Path, *, is_synced: bool = True) -> None:
    """`is_synced=False`: into a folder that is synced as a whole before it counts."""
    content = msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n"
    write_atomically(folder / MANIFEST, content, is_synced=is_synced)


def read_manifest(folder: Path) -> Manifest:
    """Raises DatasetError for rows that no build has made."""
    head = _head(folder)
    made_by = head.get("made_by", BUILD)
    if made_by != BUILD:
        raise _no_manifest(folder, made_by)
    return _manifest(head, folder / MANIFEST)


def read_record(folder: Path) -> RowsRecord:
    head, path = _head(folder), folder / MANIFEST
    if head.get("made_by", BUILD) == BUILD:
        return _manifest(head, path)
    rows = _converted(head, ForeignRows, path)
    if not 1 <= rows.window_length <= LONGEST_WINDOW:
        raise DatasetError(f"{str(path)!r} is damaged: no window has {rows.window_length} ids.")
    _require_sane(rows, path)
    return rows


def _no_manifest(folder: Path, made_by: Any) -> DatasetError:
    return DatasetError(
        f"{str(folder)!r} was made by {made_by}, not by {BUILD}: it keeps no record of files, so that there is nothing "
        "to hold its rows against."
    )


def _head(folder: Path) -> dict[str, Any]:
    """What is in manifest.json, whoever wrote it."""
    path = folder / MANIFEST
    try:
        content = read_plain(path)
    except (FileNotFoundError, NotADirectoryError):
        lack = f"it has no {MANIFEST}" if folder.is_dir() else "there is no such folder"
        lack = "it is a file" if folder.is_file() else lack
        raise DatasetError(f"{str(folder)!r} is not a dataset: {lack}.") from None
    except OSError as error:
        raise DatasetError(f"cannot read {str(path)!r}: {error.strerror}.") from None
    try:
        head = msgspec.json.decode(content, type=dict[str, Any])
        if "gristmill" not in head:
            raise DatasetError(f"{str(folder)!r} is not a dataset: its {MANIFEST} is something else.")
        if head.get("format") != FORMAT:
            raise DatasetError(f"{str(folder)!r} has format {head.get('format')!r}, this gristmill reads {FORMAT}.")
        if any(abs(number) > LARGEST_NUMBER for number in _whole_numbers(head)):
            raise DatasetError(f"{str(path)!r} is damaged: it has numbers that no dataset has.")
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise DatasetError(f"{str(path)!r} is damaged: {error}.") from None
    return head


def _converted(head: dict[str, Any], kind: type[Kind], path: Path) -> Kind:
    try:
        return msgspec.convert(head, kind)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise DatasetError(f"{str(path)!r} is damaged: {error}.") from None


def _manifest(head: dict[str, Any], path: Path) -> Manifest:
    manifest = _converted(head, Manifest, path)
    if not manifest.formats or manifest.formats != [name for name in FORMATS if name in manifest.formats]:
        raise DatasetError(f"{str(path)!r} is damaged: formats {manifest.formats!r}.")
    if any(not 0 <= rows < MOST_ROWS for shards in manifest.shards.values() for rows in shards):
        raise DatasetError(f"{str(path)!r} is damaged: it tells of windows that no dataset has.")
    if max(len(manifest.run.seconds), len(manifest.counts.redactions)) > MOST_TOLD:
        raise DatasetError(f"{str(path)!r} is damaged: it tells of more than any dataset has.")
    _require_sane(manifest, path)
    return manifest


def _whole_numbers(tree: Any) -> Iterator[int]:
    if isinstance(tree, int):
        yield tree
    elif isinstance(tree, dict | list):
        for one in tree.values() if isinstance(tree, dict) else tree:
            yield from _whole_numbers(one)


def _require_sane(record: RowsRecord, path: Path) -> None:
    """Numbers that no dataset has: what goes by them would fail in the middle. And files are in the folder."""
    facts = record.tokenizer
    named = (facts.pad_id, facts.end_id, facts.mask_id)
    ids = [*facts.prefix, *facts.suffix, *facts.closing, *(one for one in named if one is not None)]
    if not 0 < facts.vocab_size <= LARGEST_VOCABULARY or any(not 0 <= one < LARGEST_VOCABULARY for one in ids):
        raise DatasetError(f"{str(path)!r} is damaged: no tokenizer has its ids.")
    if any(not 0 <= one.windows < MOST_ROWS for one in record.splits.values()):
        raise DatasetError(f"{str(path)!r} is damaged: it tells of windows that no dataset has.")
    for name, file in record.files.items():
        is_path = not any(part in {"", ".", ".."} for part in name.split("/"))
        if not is_path or not 0 <= (file.rows or 0) < MOST_ROWS:
            raise DatasetError(f"{str(path)!r} is damaged: it names a file {name!r} with {file.rows} rows.")
