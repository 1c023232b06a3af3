"""Text of a corpus by split, with the same drops, redactions, cuts and splits as in a build.

Sources go through the steps of a build in a temporary folder. The text of a dataset is read from its rows.
"""

import errno
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import msgspec
import numpy as np

from gristmill.config.config import Config, default_of
from gristmill.config.settings import FimConfig, RewriteConfig, SamplingConfig, VariantsConfig
from gristmill.core.errors import ConfigError, DatasetError, OutputError
from gristmill.core.files_table import read_file_rows
from gristmill.core.layout import FILES, is_dataset_folder
from gristmill.core.manifest import PreviousSplits, require_windows
from gristmill.core.progress import Progress
from gristmill.core.records import FileKey, PlacedDocument, Range, Split
from gristmill.dataset.dataset import Dataset
from gristmill.dataset.row_windows import WindowWithIds, join_windows, read_rows
from gristmill.dataset.token_spans import TokenSpan
from gristmill.pipeline.context import Context
from gristmill.pipeline.decide import decide
from gristmill.pipeline.decision import Decided, Decision
from gristmill.pipeline.document_rows import natural_windows
from gristmill.pipeline.facts import split_warnings
from gristmill.pipeline.finish import FilesTable
from gristmill.pipeline.inputs import Inputs, check_settings, read_inputs
from gristmill.pipeline.parts import Block, read_blocks
from gristmill.pipeline.prepare import make_batches, prepare_all, sort_parts
from gristmill.pipeline.work_folder import temporary_folder
from gristmill.runners.local import LocalRunner, num_workers
from gristmill.sources.benchmark_files import read_benchmarks
from gristmill.tokenizers.cuda.serving import server_for
from gristmill.tokenizers.definition import Definition
from gristmill.tokenizers.locate import locate


class Text(NamedTuple):
    """The part of a file's text that is in windows. Text that is in several windows occurs once."""

    name: str
    language: str
    spans: list[bytes]
    """UTF-8 text, in several spans if text between the spans was cut out."""
    num_tokens: int
    """Number of tokens according to the tokenizer of the corpus, which was used to assign the splits."""


class Corpus(Protocol):
    """Texts by split, from sources or from a dataset."""

    tokenizer: Definition
    """Tokenizer that was used to assign the splits and to cut spans."""
    settings: dict[str, Any] | None
    """Settings of the build that assigned the splits, or None for a dataset."""
    num_files: dict[Split, int]
    num_bytes: dict[Split, int]
    """Size of the source files in each split. The text in the corpus may be shorter."""
    previous: PreviousSplits | None
    """Earlier splits that were reused, or None."""
    warnings: list[str]

    def texts(self, split: Split) -> Iterator[Text]:
        """Yield the texts of a split in path order, one at a time."""
        ...

    def write_files_table(self, path: Path) -> None:
        """Write the split of each file as a files.jsonl that --splits accepts."""
        ...


class SourceCorpus:
    """Corpus of sources, made by the steps of a build up to the decision about splits and cuts."""

    def __init__(self, context: Context, tokenizer: Definition, inputs: Inputs, decided: Decided) -> None:
        self.tokenizer, self._context, self._decided = tokenizer, context, decided
        self.settings: dict[str, Any] | None = context.config.settings()
        decision = decided.decision
        self._documents = {split: [one for one in decision.kept if one.split is split] for split in Split}
        self.num_files = {split: len(members) for split, members in self._documents.items()}
        self.num_bytes = {split: sum(one.size for one in members) for split, members in self._documents.items()}
        self.previous = decision.previous
        self.warnings = [*inputs.found.warnings, *_split_warnings(context.config, decision, decided)]

    def texts(self, split: Split) -> Iterator[Text]:
        context = self._context
        for document, block in read_blocks(context.prepared, self._documents[split], context.tokenizer.vocab_size):
            ranges = list(_window_ranges(document, context))
            spans = [self._span_text(block, one, document.num_tokens) for one in ranges]
            yield Text(document.name, document.language, spans, sum(end - start for start, end in ranges))

    def write_files_table(self, path: Path) -> None:
        FilesTable(path, self._context, self._decided).finish()

    def _span_text(self, block: Block, token_range: Range, num_tokens: int) -> bytes:
        start, end = token_range
        if block.text is not None:
            text = block.text.utf8[int(block.text.starts[start]) : int(block.text.starts[end])]
        else:
            text = self._context.tokenizer.decode(block.ids[start:end])
        return text if token_range == (0, num_tokens) else strip_partial_characters(text)


def strip_partial_characters(text: bytes) -> bytes:
    """Remove the incomplete characters that a cut has left at either end."""
    return text.decode("utf-8", "ignore").encode()


def _window_ranges(document: PlacedDocument, context: Context) -> Iterator[Range]:
    """Yield the ranges of tokens that the windows cover. Windows without a gap between them are one range."""
    windows = natural_windows(document, context.window_shape)
    if not len(windows):
        return
    gaps = np.flatnonzero(windows.starts[1:] > windows.ends[:-1])
    firsts, lasts = windows.starts[[0, *(gaps + 1)]], windows.ends[[*gaps, len(windows) - 1]]
    yield from zip(firsts.tolist(), lasts.tolist(), strict=True)


@contextmanager
def open_source_corpus(config: Config, progress: Progress, leave_out: Sequence[Path]) -> Iterator[SourceCorpus]:
    """Run the steps prepare and decide of a build on the sources, and yield the corpus.

    The corpus reads token ids from a temporary folder, which is deleted at the end. Folders and files in `leave_out`
    are ignored.
    """
    config = _plain_config(config)
    check_settings(config)
    benchmarks = read_benchmarks(config.split.against)
    with write_errors_as_output_errors(), temporary_folder("gristmill-tokenizer-") as folder:
        with progress.phase("load"):
            definition = locate(config.tokenizer.name, cache_dir=config.tokenizer.cache_dir)
            context = _context(config, definition, folder)
        with server_for(config.run, context.tokenizer, context.tokenizer_folder) as server:
            with progress.phase("scan") as step:
                inputs = read_inputs(config, benchmarks, folder / "fetched", leave_out=leave_out)
                step.advance(len(inputs.found.files))
            with LocalRunner(num_workers(config.run.workers, inputs.found.num_bytes)) as runner:
                tasks = make_batches(inputs.found.files, config.run)
                parts = sort_parts(prepare_all(context, inputs.sources, tasks, runner, progress, server=server))
                decided = decide(context, inputs, parts, runner, progress)
        yield SourceCorpus(context, definition, inputs, decided)


def _plain_config(config: Config) -> Config:
    """Return the configuration without packing, sampling, fill-in-the-middle and variants, and with windows as rows.

    With this configuration, each text occurs once. None of the replaced settings changes the split of a text.
    """
    window = msgspec.structs.replace(config.window, pack="none", repo_order="path", repo_order_seed=0)
    output = msgspec.structs.replace(config.output, rows="windows", control_spellings="respell")
    sections = (SamplingConfig(), FimConfig(rate=0), VariantsConfig(), RewriteConfig())
    sampling, fim, variants, rewrite = sections
    return msgspec.structs.replace(
        config, window=window, output=output, sampling=sampling, fim=fim, variants=variants, rewrite=rewrite
    )


def _context(config: Config, definition: Definition, folder: Path) -> Context:
    """Make the context of a build. If the tokenizer does not decode exactly, texts are stored next to the ids."""
    context = Context.of(config, definition, folder)
    if context.tokenizer.decodes_exactly:
        return context
    output = msgspec.structs.replace(config.output, with_text=True)
    return Context.of(msgspec.structs.replace(config, output=output), definition, folder)


def _split_warnings(config: Config, decision: Decision, decided: Decided) -> Iterator[str]:
    return split_warnings(config.split, decision, decided.decontamination)


@contextmanager
def write_errors_as_output_errors() -> Iterator[None]:
    """Turn each OSError in the block into an OutputError. Code in the block must handle read errors itself."""
    try:
        yield
    except OSError as error:
        path = error.filename or tempfile.gettempdir()
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            message = f"no space left at {str(path)!r}. Free some space, or set TMPDIR to a folder with more space."
        else:
            message = f"cannot write to {str(path)!r}: {error.strerror or error}."
        raise OutputError(message) from error


class DatasetCorpus:
    """Corpus of a finished dataset, with its splits. The text of each file is joined from the rows."""

    def __init__(self, folder: Path) -> None:
        self._dataset = Dataset(folder)
        manifest = self._dataset.manifest
        require_windows(manifest, folder, "gristmill tokenizer")
        self._engine = self._dataset.tokenizer
        if not self._engine.decodes_exactly:
            raise DatasetError(
                f"the tokenizer of {str(folder)!r} does not decode to the exact text. Name the sources instead of the "
                "dataset."
            )
        self.tokenizer = msgspec.structs.replace(
            self._engine.definition, name=manifest.tokenizer.name, revision=manifest.tokenizer.revision
        )
        self.settings: dict[str, Any] | None = None
        with self._dataset.edition.guard_reading():
            rows = [row for row in read_file_rows(folder / FILES) if row.status == "kept"]
        self._languages: dict[FileKey, str] = {row.key: row.language or "" for row in rows}
        self.num_files = {split: sum(row.split is split for row in rows) for split in Split}
        self.num_bytes = {split: sum(row.bytes or 0 for row in rows if row.split is split) for split in Split}
        self.previous: PreviousSplits | None = None
        self.warnings: list[str] = []

    def texts(self, split: Split) -> Iterator[Text]:
        """Yield the texts of a split, without variants. Repeated windows are used once."""
        rows = read_rows(self._dataset, split)
        file_windows = (
            (window.file, row.with_ids(window)) for row in rows for window in row.windows if not window.variant
        )
        for key, windows in groupby(file_windows, key=itemgetter(0)):
            spans = self._join_windows(window for _, window in windows)
            texts = [strip_partial_characters(self._engine.decode(span.ids)) for span in spans]
            num_tokens = sum(len(span.ids) for span in spans)
            yield Text("/".join(key), self._languages.get(key, ""), texts, num_tokens)

    def write_files_table(self, path: Path) -> None:
        with self._dataset.edition.guard_reading():
            shutil.copyfile(self._dataset.folder / FILES, path)

    def _join_windows(self, windows: Iterable[WindowWithIds]) -> list[TokenSpan]:
        found = join_windows(self._dataset, windows)
        if found is None:
            raise DatasetError(
                f"{str(self._dataset.folder)!r} is damaged: two windows of a file contradict each other. "
                "Build the dataset again."
            )
        return found


def find_dataset_source(config: Config) -> Path | None:
    """Return the folder of the only source if that source is a dataset. Return None if no source is a dataset.

    Raises ConfigError if a dataset is not the only source, or if the settings would change its text or splits.
    """
    folders = [Path(source).expanduser() for source in config.sources]
    datasets = [folder for folder in folders if is_dataset_folder(folder)]
    if not datasets:
        return None
    if len(folders) > 1:
        raise ConfigError(
            f"{str(datasets[0])!r} is a dataset, and a dataset must be the only source. Leave out the other sources."
        )
    default_settings = Config(sources=config.sources, out=config.out, window=config.window).settings()
    changed = next((name for name, section in config.settings().items() if section != default_settings[name]), None)
    if config.tokenizer.name != default_of("tokenizer.name"):
        changed = "tokenizer"
    if changed is not None or config.split.previous is not None:
        raise ConfigError(
            f"{str(datasets[0])!r} is a dataset, whose text and splits are fixed. Leave out the "
            f"{changed or 'split'} settings, or name the sources instead of the dataset."
        )
    return datasets[0]
