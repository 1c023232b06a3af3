"""The text of a corpus by split, as a build would show it: what is dropped, redacted, cut or held out is so here too.

Sources go through the steps of a build, into a folder that is thrown away. A dataset is taken as it is.
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
from gristmill.core.files_table import file_rows
from gristmill.core.layout import FILES, is_dataset_folder
from gristmill.core.manifest import PreviousSplits, require_windows
from gristmill.core.progress import Progress
from gristmill.core.records import FileKey, PlacedDocument, Range, Split
from gristmill.dataset.dataset import Dataset
from gristmill.dataset.row_windows import ShownWindow, join_windows, read_rows
from gristmill.dataset.stretches import Stretch
from gristmill.pipeline.context import Context
from gristmill.pipeline.decide import decide
from gristmill.pipeline.decision import Decision, Judged
from gristmill.pipeline.document_rows import natural_windows
from gristmill.pipeline.facts import split_warnings
from gristmill.pipeline.finish import FilesTable
from gristmill.pipeline.intake import Intake, check_settings, take_in
from gristmill.pipeline.parts import Block, read_blocks
from gristmill.pipeline.prepare import batches, in_order, prepare_all
from gristmill.pipeline.work_folder import temporary_folder
from gristmill.runners.local import LocalRunner, num_workers
from gristmill.sources.benchmark_files import read_benchmarks
from gristmill.tokenizers.cuda.serving import server_for
from gristmill.tokenizers.definition import Definition
from gristmill.tokenizers.locate import locate


class Text(NamedTuple):
    """What windows show of one file, each token once."""

    name: str
    language: str
    stretches: list[bytes]
    """UTF-8; several where something was cut out between them."""
    num_tokens: int
    """By the tokenizer that decided about the splits."""


class Corpus(Protocol):
    tokenizer: Definition
    """By which it was decided who is in which split, and what is cut."""
    settings: dict[str, Any] | None
    """Those of a build that decided; None where a dataset was."""
    num_files: dict[Split, int]
    num_bytes: dict[Split, int]
    """Of the files as they were found: what is shown of them may be less."""
    previous: PreviousSplits | None
    """Earlier splits that were kept to."""
    warnings: list[str]

    def texts(self, split: Split) -> Iterator[Text]:
        """In path order, one at a time."""
        ...

    def write_files_table(self, path: Path) -> None:
        """Who is in which split: a files.jsonl that --splits takes."""
        ...


class SourceCorpus:
    def __init__(self, context: Context, tokenizer: Definition, intake: Intake, judged: Judged) -> None:
        self.tokenizer, self._context, self._judged = tokenizer, context, judged
        self.settings: dict[str, Any] | None = context.config.settings()
        decision = judged.decision
        self._documents = {split: [one for one in decision.kept if one.split is split] for split in Split}
        self.num_files = {split: len(members) for split, members in self._documents.items()}
        self.num_bytes = {split: sum(one.size for one in members) for split, members in self._documents.items()}
        self.previous = decision.previous
        self.warnings = [*intake.found.warnings, *_split_warnings(context.config, decision, judged)]

    def texts(self, split: Split) -> Iterator[Text]:
        context = self._context
        for document, block in read_blocks(context.prepared, self._documents[split], context.tokenizer.vocab_size):
            ranges = list(_shown(document, context))
            stretches = [self._stretch(block, one, document.num_tokens) for one in ranges]
            yield Text(document.name, document.language, stretches, sum(end - start for start, end in ranges))

    def write_files_table(self, path: Path) -> None:
        FilesTable(path, self._context, self._judged).finish()

    def _stretch(self, block: Block, shown: Range, num_tokens: int) -> bytes:
        start, end = shown
        if block.text is not None:
            text = block.text.utf8[int(block.text.starts[start]) : int(block.text.starts[end])]
        else:
            text = self._context.tokenizer.decode(block.ids[start:end])
        return text if shown == (0, num_tokens) else whole_characters(text)


def whole_characters(text: bytes) -> bytes:
    """Without what a cut has left of a character at either end."""
    return text.decode("utf-8", "ignore").encode()


def _shown(document: PlacedDocument, context: Context) -> Iterator[Range]:
    """The ranges of tokens that its windows show, each as long as it goes without a gap."""
    windows = natural_windows(document, context.window_shape)
    if not len(windows):
        return
    gaps = np.flatnonzero(windows.starts[1:] > windows.ends[:-1])
    firsts, lasts = windows.starts[[0, *(gaps + 1)]], windows.ends[[*gaps, len(windows) - 1]]
    yield from zip(firsts.tolist(), lasts.tolist(), strict=True)


@contextmanager
def corpus_of_sources(config: Config, progress: Progress, leave_out: Sequence[Path]) -> Iterator[SourceCorpus]:
    """While it is open, the ids lie in a folder for what is of the moment. `leave_out`: folders and files."""
    config = _natural(config)
    check_settings(config)
    benchmarks = read_benchmarks(config.split.against)
    with errors_as_ours(), temporary_folder("gristmill-tokenizer-") as folder:
        with progress.phase("load"):
            definition = locate(config.tokenizer.name, cache_dir=config.tokenizer.cache_dir)
            context = _context(config, definition, folder)
        with server_for(config.run, context.tokenizer, context.tokenizer_folder) as server:
            with progress.phase("scan") as step:
                intake = take_in(config, benchmarks, folder / "fetched", leave_out=leave_out)
                step.advance(len(intake.found.files))
            with LocalRunner(num_workers(config.run.workers, intake.found.num_bytes)) as runner:
                tasks = batches(intake.found.files, config.run)
                parts = in_order(prepare_all(context, intake.sources, tasks, runner, progress, server=server))
                judged = decide(context, intake, parts, runner, progress)
        yield SourceCorpus(context, definition, intake, judged)


def _natural(config: Config) -> Config:
    """Each text once, whatever is drawn of it and made of it afterwards: none of that changes its split."""
    window = msgspec.structs.replace(config.window, pack="none", repo_order="path", repo_order_seed=0)
    sections = (SamplingConfig(), FimConfig(rate=0), VariantsConfig(), RewriteConfig())
    sampling, fim, variants, rewrite = sections
    return msgspec.structs.replace(
        config, window=window, sampling=sampling, fim=fim, variants=variants, rewrite=rewrite
    )


def _context(config: Config, definition: Definition, folder: Path) -> Context:
    context = Context.of(config, definition, folder)
    if context.tokenizer.gives_text_back:
        return context
    output = msgspec.structs.replace(config.output, with_text=True)
    return Context.of(msgspec.structs.replace(config, output=output), definition, folder)


def _split_warnings(config: Config, decision: Decision, judged: Judged) -> Iterator[str]:
    return split_warnings(config.split, decision, judged.decontamination)


@contextmanager
def errors_as_ours() -> Iterator[None]:
    """What the system refuses while writing; sources that cannot be read never come here."""
    try:
        yield
    except OSError as error:
        place = error.filename or tempfile.gettempdir()
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            told = f"no space left at {str(place)!r}. Free some, or set TMPDIR to a folder with more."
        else:
            told = f"cannot write at {str(place)!r}: {error.strerror or error}."
        raise OutputError(told) from error


# A finished dataset as a corpus: what its rows show of each file, each token once, in the splits it has.


class DatasetCorpus:
    def __init__(self, folder: Path) -> None:
        self._dataset = Dataset(folder)
        manifest = self._dataset.manifest
        require_windows(manifest, folder, "gristmill tokenizer")
        self._engine = self._dataset.tokenizer
        if not self._engine.gives_text_back:
            raise DatasetError(
                f"the tokenizer of {str(folder)!r} does not give its text back. Name the sources it was built from."
            )
        self.tokenizer = msgspec.structs.replace(
            self._engine.definition, name=manifest.tokenizer.name, revision=manifest.tokenizer.revision
        )
        self.settings: dict[str, Any] | None = None
        with self._dataset.edition.reading():
            rows = [row for row in file_rows(folder / FILES) if row.status == "kept"]
        self._languages: dict[FileKey, str] = {row.key: row.language or "" for row in rows}
        self.num_files = {split: sum(row.split is split for row in rows) for split in Split}
        self.num_bytes = {split: sum(row.bytes or 0 for row in rows if row.split is split) for split in Split}
        self.previous: PreviousSplits | None = None
        self.warnings: list[str] = []

    def texts(self, split: Split) -> Iterator[Text]:
        """Variants are no text of the corpus, and a window that is drawn twice is one."""
        rows = read_rows(self._dataset, split)
        own = ((window.file, row.shown(window)) for row in rows for window in row.windows if not window.variant)
        for key, windows in groupby(own, key=itemgetter(0)):
            stretches = self._stretches(window for _, window in windows)
            texts = [whole_characters(self._engine.decode(stretch.ids)) for stretch in stretches]
            num_tokens = sum(len(stretch.ids) for stretch in stretches)
            yield Text("/".join(key), self._languages.get(key, ""), texts, num_tokens)

    def write_files_table(self, path: Path) -> None:
        with self._dataset.edition.reading():
            shutil.copyfile(self._dataset.folder / FILES, path)

    def _stretches(self, windows: Iterable[ShownWindow]) -> list[Stretch]:
        found = join_windows(self._dataset, windows)
        if found is None:
            raise DatasetError(
                f"{str(self._dataset.folder)!r} is damaged: two windows of a file contradict each other. "
                "Build the dataset again."
            )
        return found


def dataset_in(config: Config) -> Path | None:
    """The one source, if it is a dataset; its splits are as they are, so that no setting may say otherwise."""
    folders = [Path(source).expanduser() for source in config.sources]
    datasets = [folder for folder in folders if is_dataset_folder(folder)]
    if not datasets:
        return None
    if len(folders) > 1:
        raise ConfigError(f"{str(datasets[0])!r} is a dataset, and is taken by itself. Name no other source with it.")
    plain = Config(sources=config.sources, out=config.out, window=config.window).settings()
    changed = next((name for name, section in config.settings().items() if section != plain[name]), None)
    if config.tokenizer.name != default_of("tokenizer.name"):
        changed = "tokenizer"
    if changed is not None or config.split.previous is not None:
        raise ConfigError(
            f"{str(datasets[0])!r} is a dataset, whose text and splits are as they are: leave out the settings of "
            f"{changed or 'split'}, or name the sources it was built from."
        )
    return datasets[0]
