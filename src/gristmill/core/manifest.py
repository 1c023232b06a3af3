"""The manifest of a dataset: its settings, sources, versions, counts and digests.

Everything except `run` is the same for the same input, so two builds can be compared by their manifests.
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
    MAX_VOCAB_SIZE,
    MAX_WINDOW_LENGTH,
    NO_LIMIT,
    DropReason,
    FimForm,
    MiddleKind,
    Split,
    VariantKind,
    WhyNotRewritten,
    WhyNoVariant,
)

Kind = TypeVar("Kind")

MANIFEST_VERSION = 4
"""Version of the manifest's structure."""
BUILD = "gristmill build"
MAX_ROWS = 1 << 48
MAX_NUMBER = 1 << 63
MAX_ENTRIES = 1000
"""Maximum number of phases, and of kinds of secrets, in a manifest. Real datasets have a few."""


class TokenizerFacts(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    sha256: str
    """Digest of tokenizer.json in the dataset folder."""
    revision: str | None
    vocab_size: int
    engine: str
    """Library that encoded the text. Every engine gives the same ids."""
    prefix: tuple[int, ...]
    """Special ids at the start of each window."""
    suffix: tuple[int, ...]
    """Special ids at the end of each window."""
    pad_id: int | None
    end_id: int | None
    """Id that ends a document in a token stream."""
    closing: tuple[int, ...] = ()
    """Special ids at the end of the last window of a document."""
    mask_id: int | None = None
    """Id of the mask token. None if the tokenizer has none."""
    end_token: str | None = None
    """Literal text of the end token."""


class SourceFacts(msgspec.Struct, frozen=True, kw_only=True):
    repo: str
    commit: str | None
    found: int
    is_table: bool = False
    """True if the source is a table, whose rows are files. For a table, `found` covers all its repositories."""


class BenchmarkFacts(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    sha256: str
    texts: int
    texts_too_short: int
    """Number of texts with fewer than 50 tokens, which cannot contain a shared span."""
    tokens_cut: int


class PreviousSplits(msgspec.Struct, frozen=True, kw_only=True):
    sha256: str
    num_files_kept_in_place: int
    num_files_moved: int
    """Number of files that were moved into the split of their group. files.jsonl has their earlier split
    (`moved_from`)."""


class NearDuplicates(msgspec.Struct, frozen=True, kw_only=True):
    clusters: int
    files: int
    """Number of files in all clusters."""
    dropped: int


class Decontamination(msgspec.Struct, frozen=True, kw_only=True):
    """Removal of spans of 50 or more tokens that are in two splits, or in train and in a benchmark."""

    how: str
    files_cut: dict[Split, int]
    tokens_before: dict[Split, int]
    tokens_cut: dict[Split, int]
    against: list[BenchmarkFacts]


class WeightFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A group of train files with the same weight. Shares are fractions of the tokens in train's windows.

    With --weights-only, `realised_share` and `epochs` are those of a trainer that samples rows by weight.
    """

    name: str
    weight: float
    files: int
    natural_windows: int
    natural_share: float
    requested_share: float
    realised_share: float
    """Actual share in the dataset, variants included."""
    windows: int
    """Number of rows, including repeats but not variants."""
    epochs: float
    """Average number of rows per window."""
    largest_repeat: int
    shadowed_files: int
    """For a group without files: the number of files that match this group, but are in a later group that also
    matches."""


class SamplingFacts(msgspec.Struct, frozen=True, kw_only=True):
    natural_windows: dict[Split, int]
    wanted_windows: dict[Split, int]
    windows: dict[Split, int]
    """Number of rows in the dataset, without variants."""
    groups: list[WeightFacts]
    """Groups of train files by weight. Empty if neither weights nor `--target-windows` are set."""


class VariantFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Variants of one kind."""

    rate: float
    chosen: int
    """Number of train files chosen for this kind."""
    made: int
    windows: int
    tokens: int
    missing: dict[WhyNoVariant, int]
    """Number of chosen files without a variant, by reason."""
    model: str | None = None
    """Language model that wrote the variants."""


class FimFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Documents of train that are rewritten for fill-in-the-middle."""

    rate: float
    chosen: int
    """Number of train files chosen for rewriting."""
    rewritten: int
    forms: dict[FimForm, int]
    """Number of rewritten windows by order of their parts. A window with several rows is counted once."""
    middles: dict[MiddleKind, int]
    """Number of rewritten windows by kind of middle."""
    plain: int
    """Number of windows without a middle in rewritten files. Such a window is too short or only whitespace."""
    missing: dict[WhyNotRewritten, int]
    """Number of chosen files that are not rewritten, by reason."""


class EpochFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Average number of times that train contains each token of its files. A token in an overlap is counted once."""

    shown: float
    """Average number of occurrences in rows that are not variants. 1 without sampling."""
    varied: float
    """Average number of occurrences in variants."""
    effective: float
    """`shown` + `variant_worth` * `varied`."""
    variant_worth: float
    most: float
    """Highest value of `effective` for a single file."""
    most_in: str
    """File with the highest value of `effective`."""


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    found: int
    kept: int
    dropped: int
    dropped_by_reason: dict[DropReason, int]
    tail_tokens_dropped: int
    redactions: dict[str, int]
    """Number of redacted secrets, by kind."""
    respellings: dict[str, int] = {}
    """Number of spaces inserted into the text of control tokens, by token, in rows of documents."""
    licenses: dict[str, int]
    """Number of kept files, by SPDX id."""


class SplitFacts(msgspec.Struct, frozen=True, kw_only=True):
    files: int
    """Number of files with at least one row, including rows of variants."""
    groups: int
    """Number of groups of files in the split. The files of a group are always in the same split."""
    windows: int
    """Number of rows, including repeats and variants."""
    tokens: int
    """Number of distinct content tokens: each token of a file is counted once, and cut tokens are not counted."""
    emitted_tokens: int
    """Number of ids in all rows, including overlaps, special tokens and padding."""
    share: float
    """Fraction of all content tokens that is in this split. The settings record the requested share."""


class OrderFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Imports between files of the same repository and split, with `--repo-order imports`."""

    repos: int
    """Number of repositories with imports between their files."""
    imports: int
    """Number of pairs of files in which one file imports the other."""
    broken: int
    """Number of imports whose imported file comes after the importing file. This happens only in import cycles."""


class PackingFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Packing of a split whose rows hold windows of several files."""

    rows: int
    segments: int
    """Number of segments in the rows. A segment is a window, or a part of a file with `--pack repo`."""
    ids: int
    """Number of ids, without padding."""
    empty_share: float
    """Fraction of the rows' capacity that is padding or unused."""
    order: OrderFacts | None = None
    """None if files are not ordered by imports."""


class FileFacts(msgspec.Struct, frozen=True, kw_only=True):
    bytes: int
    sha256: str
    rows: int | None = None
    split: Split | None = None
    format: str | None = None
    """Format that the file belongs to. None for files that belong to no format, such as files.jsonl."""


def file_facts(path: Path) -> FileFacts:
    """Return the size and digest of a file."""
    with open_plain(path) as stream:
        digest = hashlib.file_digest(stream, "sha256")
        return FileFacts(bytes=stream.tell(), sha256=digest.hexdigest())


class GpuFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Use of the GPU in step 1, with `--device cuda`."""

    documents: int = 0
    documents_on_cpu: int = 0
    """Number of documents that the CPU encoded, because NFC might change them or the GPU had no room for their new
    words."""
    bytes: int = 0
    seconds_busy: float = 0.0
    seconds_ready: float = 0.0
    """Time from when the GPU was ready to the end of step 1. Until the GPU is ready, the CPU does the work."""
    trouble: str | None = None
    """Reason why the CPU took over from the GPU. None if the GPU did not fail."""


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """Facts that may differ between two builds of the same input."""

    started_at: str
    seconds: dict[str, float]
    workers: int
    source_bytes: int
    python: str
    platform: str
    gpu: GpuFacts | None = None
    """None with `--device cpu`."""


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """Record of a dataset, stored as manifest.json: settings, sources, versions, counts and digests.

    `build` returns the manifest, and `open_dataset(folder).manifest` reads it. Everything except `run` is the same for
    the same input.
    """

    format: int
    """Version of the manifest's structure."""
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
    """None if every window is in the dataset once."""
    fim: FimFacts | None
    """None if no document is rewritten for fill-in-the-middle."""
    variants: dict[VariantKind, VariantFacts]
    epochs: EpochFacts
    columns: list[str]
    segment_columns: list[str]
    """Keys of each entry in a row's `segments`. Empty without --pack."""
    formats: list[str]
    """Formats of the dataset. Each contains all rows."""
    content_sha256: str
    """Digest of the split, repository, path, start and ids of every window, or the text if rows are documents. The same
    in every format."""
    shards: dict[Split, list[int]]
    """Number of rows in each JSONL file of a split. Another format with several files per split begins a new file at
    least where JSONL does."""
    counts: Counts
    splits: dict[Split, SplitFacts]
    packing: dict[Split, PackingFacts] | None
    """None if each row is a window of one file."""
    tokens_by_language: dict[str, dict[Split, int]]
    files: dict[str, FileFacts]
    warnings: list[str]
    made_by: str = BUILD
    """Command that made the dataset. Rows that were not made by a build have a ForeignRows record instead of a
    manifest."""
    run: Run

    @property
    def num_files_with_rows(self) -> int:
        """Number of kept files with at least one row. A file in several splits, as bench may write, is counted once."""
        return min(self.counts.kept, sum(facts.files for facts in self.splits.values()))

    @property
    def has_documents(self) -> bool:
        """True if a row is a document's text, without ids."""
        return IDS not in self.columns

    @property
    def row_unit(self) -> str:
        """Word for a row in messages and tables."""
        return "document" if self.has_documents else "window"

    @property
    def preset(self) -> str:
        """Name of the preset, or an empty string if the manifest records none."""
        found = self.settings.get("preset")
        return found if isinstance(found, str) else ""

    @property
    def window_length(self) -> int:
        """Maximum number of ids in a window, special tokens included. NO_LIMIT if rows are documents."""
        if self.has_documents:
            return NO_LIMIT
        found = self.settings.get("window")
        length = found.get("length") if isinstance(found, dict) else None
        if not isinstance(length, int) or not 1 <= length <= MAX_WINDOW_LENGTH:
            raise DatasetError(
                "the manifest is damaged: it does not record the window length. Build the dataset again."
            )
        return length

    def _repr_html_(self) -> str:
        """Return HTML for a notebook. `gristmill.views` is imported by name, because `core` must not depend on it."""
        return str(importlib.import_module("gristmill.views.notebook").manifest_html(self))


class RowCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of a split that was not made by a build."""

    files: int
    windows: int
    """Number of rows."""
    tokens: int
    """Number of distinct content tokens. Rows that do not name a file are treated as windows of one file."""
    emitted_tokens: int
    """Number of ids in all rows, including overlaps, special tokens and padding."""


class ForeignRows(msgspec.Struct, frozen=True, kw_only=True):
    """Record of rows that no build made. Reading, training and comparing accept this record instead of a manifest."""

    format: int
    gristmill: str
    made_by: str
    tokenizer: TokenizerFacts
    window_length: int
    """Maximum number of ids in a row, special tokens included."""
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
        """None, because each row is a window of one file."""
        return

    @property
    def fingerprint(self) -> str:
        """Digest of all files."""
        digests = sorted((name, facts.sha256) for name, facts in self.files.items())
        return hashlib.sha256(msgspec.json.encode(digests)).hexdigest()

    @property
    def content_sha256(self) -> str:
        return self.fingerprint


RowsRecord = Manifest | ForeignRows
"""Record of a folder's rows: a Manifest if a build made them, otherwise a ForeignRows."""


def require_manifest(record: RowsRecord, folder: Path) -> Manifest:
    """Return the manifest, or raise DatasetError if the rows were not made by a build."""
    if not isinstance(record, Manifest):
        raise _no_manifest_error(folder, record.made_by)
    return record


def require_ids(record: RowsRecord, folder: Path, what: str) -> None:
    """Raise ConfigError if rows have no ids. `what` names the command, function or setting that needs ids."""
    if record.has_documents:
        raise ConfigError(
            f"{str(folder)!r} was built with --rows documents: its rows are texts without ids, and {what} needs ids. "
            "Build the dataset with --rows windows."
        )


def require_windows(record: RowsRecord, folder: Path, what: str) -> None:
    """Raise ConfigError if rows have no ids or hold several files. `what` names the command that needs windows."""
    require_ids(record, folder, what)
    if record.packing is not None:
        raise ConfigError(
            f"{str(folder)!r} was built with --pack: its rows hold several files, which {what} cannot separate. "
            "Build the dataset with --pack none."
        )


class OpenedBuild:
    """A build that a reader opened. A later build may replace the dataset in the folder at any time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stamp = self._current_stamp()  # before reading, so that a later check notices a rebuild in between
        self.record = read_record(folder)
        self._identity = _identity_of(self.record)

    @property
    def manifest(self) -> Manifest:
        """The manifest. Raises DatasetError if the rows were not made by a build."""
        return require_manifest(self.record, self._folder)

    @contextmanager
    def guard_reading(self) -> Iterator[None]:
        """Raise DatasetError on exit if a later build has replaced this build."""
        try:
            yield
        except Exception:
            self.require_unchanged()
            raise
        self.require_unchanged()

    def require_unchanged(self) -> None:
        """Raise DatasetError if the folder now has a different build. The same build with more formats is accepted."""
        stamp = self._current_stamp()
        if stamp == self._stamp:
            return
        try:
            found = _identity_of(read_record(self._folder))
        except DatasetError as error:
            raise DatasetError(f"the dataset changed after it was opened: {error}") from None
        if found != self._identity:
            raise DatasetError(
                f"the dataset in {str(self._folder)!r} was rebuilt while it was being read: open it again."
            )
        self._stamp = stamp

    def _current_stamp(self) -> tuple[int, int, int] | None:
        try:
            facts = os.stat(self._folder / MANIFEST)
        except OSError:
            return None
        return facts.st_ino, facts.st_size, facts.st_mtime_ns

    def __getstate__(self) -> tuple[Path, tuple[int, int, int] | None, tuple[str, str]]:
        """Return the state without the manifest, because the state is pickled with every file that a worker reads."""
        return self._folder, self._stamp, self._identity

    def __setstate__(self, state: tuple[Path, tuple[int, int, int] | None, tuple[str, str]]) -> None:
        self._folder, self._stamp, self._identity = state


@contextmanager
def guard_reading(edition: OpenedBuild | None) -> Iterator[None]:
    """Raise DatasetError if data files cannot be read or were replaced. If `edition` is None, check nothing."""
    if edition is None:
        yield
        return
    try:
        with edition.guard_reading():
            yield
    except OSError as error:
        raise DatasetError(f"cannot read {error.filename!r}: {error.strerror}.") from None


@contextmanager
def open_data_file(path: Path, edition: OpenedBuild | None) -> Iterator[BinaryIO]:
    """Open a data file of the build `edition`, or without a check if `edition` is None.

    The open file stays readable even if a later build replaces it.
    """
    with ExitStack() as stack:
        with guard_reading(edition):
            stream = stack.enter_context(open_plain(path))
        yield stream


def _identity_of(record: RowsRecord) -> tuple[str, str]:
    """Return the digests that identify a build. Equal settings, sources and rows give equal digests."""
    return record.fingerprint, record.content_sha256


def write_manifest(manifest: RowsRecord, folder: Path, *, is_synced: bool = True) -> None:
    """Write manifest.json. Use `is_synced=False` if the complete folder is synced before the file is used."""
    content = msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n"
    write_atomically(folder / MANIFEST, content, is_synced=is_synced)


def read_manifest(folder: Path) -> Manifest:
    """Read the manifest. Raise DatasetError if the manifest is damaged or the rows were not made by a build."""
    head = _read_json(folder)
    made_by = head.get("made_by", BUILD)
    if made_by != BUILD:
        raise _no_manifest_error(folder, made_by)
    return _parse_manifest(head, folder / MANIFEST)


def read_record(folder: Path) -> RowsRecord:
    """Read the record of a folder's rows: a Manifest or a ForeignRows. Raise DatasetError if the record is damaged."""
    head, path = _read_json(folder), folder / MANIFEST
    if head.get("made_by", BUILD) == BUILD:
        return _parse_manifest(head, path)
    rows = _convert(head, ForeignRows, path)
    if not 1 <= rows.window_length <= MAX_WINDOW_LENGTH:
        raise _damaged_error(path, f"it records the impossible window length {rows.window_length}")
    _check_values(rows, path)
    return rows


def _no_manifest_error(folder: Path, made_by: Any) -> DatasetError:
    return DatasetError(
        f"{str(folder)!r} was made by {made_by}, not by {BUILD}, so it has no record of files. Name a dataset that "
        f"{BUILD} made."
    )


def _damaged_error(path: Path, fault: str) -> DatasetError:
    return DatasetError(f"{str(path)!r} is damaged: {fault}. Build the dataset again.")


def _read_json(folder: Path) -> dict[str, Any]:
    """Read manifest.json into a dict. Raise DatasetError if the file is missing or is not a manifest."""
    path = folder / MANIFEST
    try:
        content = read_plain(path)
    except (FileNotFoundError, NotADirectoryError):
        problem = f"it has no {MANIFEST}" if folder.is_dir() else "there is no such folder"
        problem = "it is a file" if folder.is_file() else problem
        raise DatasetError(f"{str(folder)!r} is not a dataset: {problem}.") from None
    except OSError as error:
        raise DatasetError(f"cannot read {str(path)!r}: {error.strerror}.") from None
    try:
        head = msgspec.json.decode(content, type=dict[str, Any])
        if "gristmill" not in head:
            raise DatasetError(f"{str(folder)!r} is not a dataset: its {MANIFEST} was not written by gristmill.")
        if head.get("format") != MANIFEST_VERSION:
            raise DatasetError(
                f"{str(folder)!r} has format {head.get('format')!r}, but this version of gristmill reads only format "
                f"{MANIFEST_VERSION}. Build the dataset again."
            )
        if any(abs(number) > MAX_NUMBER for number in _integers(head)):
            raise _damaged_error(path, "it contains a number of more than 63 bits")
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise _damaged_error(path, str(error)) from None
    return head


def _convert(head: dict[str, Any], kind: type[Kind], path: Path) -> Kind:
    try:
        return msgspec.convert(head, kind)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise _damaged_error(path, str(error)) from None


def _parse_manifest(head: dict[str, Any], path: Path) -> Manifest:
    manifest = _convert(head, Manifest, path)
    if not manifest.formats or manifest.formats != [name for name in FORMATS if name in manifest.formats]:
        found = (
            f"the impossible list of formats {', '.join(manifest.formats)[:200]}" if manifest.formats else "no format"
        )
        raise _damaged_error(path, f"it records {found}")
    if any(not 0 <= rows < MAX_ROWS for shards in manifest.shards.values() for rows in shards):
        raise _damaged_error(path, "it records an impossible number of rows")
    if max(len(manifest.run.seconds), len(manifest.counts.redactions)) > MAX_ENTRIES:
        raise _damaged_error(path, f"it records more than {MAX_ENTRIES:,} phases or kinds of secrets")
    _check_values(manifest, path)
    return manifest


def _integers(tree: Any) -> Iterator[int]:
    if isinstance(tree, int):
        yield tree
    elif isinstance(tree, dict | list):
        for one in tree.values() if isinstance(tree, dict) else tree:
            yield from _integers(one)


def _check_values(record: RowsRecord, path: Path) -> None:
    """Raise DatasetError if a number is impossible and would cause an error later, or a file is outside the folder."""
    facts = record.tokenizer
    optional_ids = (facts.pad_id, facts.end_id, facts.mask_id)
    ids = [*facts.prefix, *facts.suffix, *facts.closing, *(one for one in optional_ids if one is not None)]
    if not 0 < facts.vocab_size <= MAX_VOCAB_SIZE or any(not 0 <= one < MAX_VOCAB_SIZE for one in ids):
        raise _damaged_error(path, "it records impossible token ids")
    if any(not 0 <= one.windows < MAX_ROWS for one in record.splits.values()):
        raise _damaged_error(path, "it records an impossible number of rows")
    for name, file in record.files.items():
        is_path = not any(part in {"", ".", ".."} for part in name.split("/"))
        if not is_path or not 0 <= (file.rows or 0) < MAX_ROWS:
            raise _damaged_error(path, f"it lists the file {name[:200]!r}, whose name or number of rows is impossible")
