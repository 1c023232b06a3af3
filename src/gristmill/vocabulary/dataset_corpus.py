"""A finished dataset as a corpus: what its rows show of each file, each token once, in the splits it has."""

import shutil
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import msgspec

from gristmill.comparing.reading import Ids, ShownWindow, windows_of
from gristmill.comparing.stretches import whole
from gristmill.config import Config, default_of
from gristmill.dataset import Dataset
from gristmill.errors import ConfigError, DatasetError
from gristmill.layout import FILES, is_dataset_folder
from gristmill.manifest import BUILD, PreviousSplits, require_windows
from gristmill.plainfile import open_plain
from gristmill.records import FileKey, Split
from gristmill.vocabulary.corpus import Text, whole_characters


class _FileRow(msgspec.Struct, frozen=True):
    repo: str
    path: str
    status: str
    split: Split | None = None
    language: str | None = None
    bytes: int | None = None


class DatasetCorpus:
    def __init__(self, folder: Path) -> None:
        self._dataset = Dataset(folder)
        manifest = self._dataset.manifest
        require_windows(manifest, folder, "gristmill tokenizer")
        if manifest.made_by != BUILD:
            raise DatasetError(f"{str(folder)!r} was made by {manifest.made_by}, whose splits are not by file.")
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
            rows = list(self._file_rows())
        self._languages: dict[FileKey, str] = {(row.repo, row.path): row.language or "" for row in rows}
        self.num_files = {split: sum(row.split is split for row in rows) for split in Split}
        self.num_bytes = {split: sum(row.bytes or 0 for row in rows if row.split is split) for split in Split}
        self.previous: PreviousSplits | None = None
        self.warnings: list[str] = []

    def texts(self, split: Split) -> Iterator[Text]:
        """Variants are no text of the corpus, and a window that is drawn twice is one."""
        own = (window for window in windows_of(self._dataset, split) if not window.text.variant and window.num_ids)
        for (repo, path), windows in groupby(own, key=lambda window: window.text.file):
            stretches = self._stretches(windows)
            texts = [whole_characters(self._engine.decode(ids)) for ids in stretches]
            num_tokens = sum(map(len, stretches))
            yield Text(f"{repo}/{path}", self._languages.get((repo, path), ""), texts, num_tokens)

    def write_files_table(self, path: Path) -> None:
        with self._dataset.edition.reading():
            shutil.copyfile(self._dataset.folder / FILES, path)

    def _stretches(self, windows: Iterable[ShownWindow]) -> list[Ids]:
        found = whole((window.start, window.ids) for window in windows)
        if found is None:
            raise self._damaged("two windows of a file contradict each other")
        return [ids for _, ids in found]

    def _file_rows(self) -> Iterator[_FileRow]:
        decoder = msgspec.json.Decoder(_FileRow)
        try:
            with open_plain(self._dataset.folder / FILES) as stream:
                rows = map(decoder.decode, stream)
                yield from (row for row in rows if row.status == "kept")
        except OSError as error:
            raise self._damaged(f"{FILES}: {error.strerror}") from None
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise self._damaged(f"{FILES}: {error}") from None

    def _damaged(self, how: str) -> DatasetError:
        return DatasetError(f"{str(self._dataset.folder)!r} is damaged: {how}. Build the dataset again.")


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
