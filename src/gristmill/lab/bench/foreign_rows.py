"""The manifest of rows that no build made: what was found in them, and nothing that was not."""

import hashlib
import os
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from gristmill.config.config import Config, fingerprint
from gristmill.config.settings import (
    DuplicatesConfig,
    OutputConfig,
    RulesConfig,
    SecretsConfig,
    SplitConfig,
    WindowConfig,
    rule_names,
)
from gristmill.core.errors import OutputError
from gristmill.core.layout import FILES, TOKENIZER, TOKENIZER_CONFIG, data_file_name, sync_folder, sync_tree
from gristmill.core.manifest import (
    FORMAT,
    Counts,
    Decontamination,
    FileFacts,
    Manifest,
    NearDuplicates,
    Run,
    SourceFacts,
    SplitFacts,
    TokenizerFacts,
    facts_of,
    write_manifest,
)
from gristmill.core.records import Split
from gristmill.core.version import __version__
from gristmill.formats.content_digest import content_of, place_of, row_digest
from gristmill.lab.bench.job import WINDOW_LENGTH, Job
from gristmill.lab.bench.method_rows import Row, data_files, decoded, raw_rows
from gristmill.lab.bench.quality import Shown
from gristmill.pipeline.finish import machine
from gristmill.pipeline.keys import versions
from gristmill.tokenizers.definition import Definition


class KeptRun(NamedTuple):
    """How the rows came about."""

    method: str
    started_at: datetime
    seconds: dict[str, float]
    """By phase, and `total`."""
    workers: int


class KeptSplit:
    """What was found in one split's rows."""

    def __init__(self, split: Split, num_special: int) -> None:
        self._split, self._num_special = split, num_special
        self.digests: list[bytes] = []
        self.shown = Shown()
        self.columns: list[str] = []
        self.num_windows = self.num_emitted = 0
        self.files: dict[str, FileFacts] = {}

    def add(self, row: Row) -> None:
        self.shown.add(row.key, row.start, max(0, row.num_ids - self._num_special))
        self.num_windows += 1
        self.num_emitted += len(row.input_ids)
        self.digests.append(row_digest(self._split, place_of(row.repo, row.path, row.start), row.window().tobytes()))

    @property
    def num_files(self) -> int:
        return len(self.shown.files())

    @property
    def num_tokens(self) -> int:
        return sum(map(self.shown.num_tokens, self.shown.files()))


def describe(folder: Path, splits: dict[Split, KeptSplit], job: Job, run: KeptRun, definition: Definition) -> Manifest:
    columns = next((kept.columns for kept in splits.values() if kept.columns), [])
    own_files = {name: facts_of(folder / name) for name in (TOKENIZER, TOKENIZER_CONFIG)}
    files = {name: facts for kept in splits.values() for name, facts in kept.files.items()}
    config = _config(splits, is_padded="attention_mask" in columns, num_special=len(job.prefix) + len(job.suffix))
    digests = [facts.sha256 for facts in files.values()]
    return Manifest(
        format=FORMAT,
        gristmill=__version__,
        fingerprint=fingerprint(config, definition.key, __version__, run.method, *digests),
        settings=config.settings(),
        versions=versions(),
        tokenizer=_tokenizer_facts(job, run.method, definition),
        sources=[
            SourceFacts(repo=repo, commit=None, found=found)
            for repo, found in sorted(Counter(file.repo for file in job.files).items())
        ],
        previous_splits=None,
        near_duplicates=NearDuplicates(clusters=0, files=0, dropped=0),
        sampling=None,
        variants={},
        epochs=None,
        decontamination=Decontamination(
            how="off",
            files_cut=dict.fromkeys(Split, 0),
            tokens_before={split: kept.num_tokens for split, kept in splits.items()},
            tokens_cut=dict.fromkeys(Split, 0),
            against=[],
        ),
        columns=columns,
        segment_columns=[],
        formats=["jsonl"],
        content_sha256=content_of({split: kept.digests for split, kept in splits.items()}),
        shards={split: [facts.rows or 0 for facts in kept.files.values()] for split, kept in splits.items()},
        counts=_counts(splits, job),
        splits=_split_facts(splits),
        packing=None,
        tokens_by_language=_tokens_by_language(splits, job),
        files={**files, **own_files},
        warnings=[f"made by the method {run.method!r} of gristmill bench, not by a build"],
        made_by=f"the method {run.method!r} of gristmill bench",
        run=Run(
            started_at=run.started_at.isoformat(timespec="seconds"),
            seconds=run.seconds,
            workers=run.workers,
            source_bytes=sum(file.num_bytes for file in job.files),
            gpu=None,
            **machine(),
        ),
    )


def _config(splits: dict[Split, KeptSplit], *, is_padded: bool, num_special: int) -> Config:
    """The settings of a build that does no more to the files than the method did."""
    rules = dict.fromkeys(rule_names(), False)
    return Config(
        sources=["."],
        out=".",
        window=WindowConfig(length=WINDOW_LENGTH, overlap=_overlap(splits, WINDOW_LENGTH - num_special)),
        output=OutputConfig(pad=is_padded),
        split=SplitConfig(shares=_shares(splits), decontaminate="off"),
        rules=msgspec.convert(rules, RulesConfig),
        secrets=SecretsConfig(action="keep"),
        duplicates=DuplicatesConfig(near="keep"),
    )


def _overlap(splits: dict[Split, KeptSplit], num_content: int) -> int:
    """As the rows show it: every file's first window begins at 0, and its second a stride later."""
    starts = [
        start
        for kept in splits.values()
        for file in kept.shown.files()
        for start, _ in kept.shown.ranges(file)
        if start > 0
    ]
    return max(0, num_content - min(starts)) if starts else 0


def _shares(splits: dict[Split, KeptSplit]) -> str:
    """Percent of the windows, as `85/10/5`."""
    total = max(1, sum(kept.num_windows for kept in splits.values()))
    held_out = [round(100 * splits[split].num_windows / total) for split in (Split.VALIDATION, Split.TEST)]
    return "/".join(map(str, (100 - sum(held_out), *held_out)))


def _tokenizer_facts(job: Job, method: str, definition: Definition) -> TokenizerFacts:
    return TokenizerFacts(
        name=definition.name,
        sha256=definition.sha256,
        revision=definition.revision,
        vocab_size=definition.vocab_size,
        engine=f"that of the method {method!r}",
        prefix=job.prefix,
        suffix=job.suffix,
        pad_id=definition.pad_id,
        end_id=definition.end_id,
    )


def _counts(splits: dict[Split, KeptSplit], job: Job) -> Counts:
    num_kept = len({file for kept in splits.values() for file in kept.shown.files()})
    return Counts(
        found=len(job.files),
        kept=num_kept,
        dropped=len(job.files) - num_kept,
        dropped_by_reason={},
        tail_tokens_dropped=0,
        redactions={},
        licenses={},
    )


def _split_facts(splits: dict[Split, KeptSplit]) -> dict[Split, SplitFacts]:
    """A file is a group of its own, and may be in several splits."""
    total = max(1, sum(kept.num_tokens for kept in splits.values()))
    return {
        split: SplitFacts(
            files=kept.num_files,
            groups=kept.num_files,
            windows=kept.num_windows,
            tokens=kept.num_tokens,
            emitted_tokens=kept.num_emitted,
            share=round(kept.num_tokens / total, 6),
        )
        for split, kept in splits.items()
    }


def _tokens_by_language(splits: dict[Split, KeptSplit], job: Job) -> dict[str, dict[Split, int]]:
    tokens: dict[str, dict[Split, int]] = {}
    for file in job.files:
        by_split = tokens.setdefault(file.language, dict.fromkeys(Split, 0))
        for split, kept in splits.items():
            by_split[split] += kept.shown.num_tokens((file.repo, file.path))
    return dict(sorted(tokens.items(), key=lambda item: (-sum(item[1].values()), item[0])))


# Leaves what a method wrote as a dataset folder that `open_dataset` and `datasets.load_dataset` read.


def keep_as_dataset(out: Path, target: Path, job: Job, run: KeptRun, definition: Definition) -> None:
    """Takes `out` apart: its rows are moved where that is enough."""
    with _beside(target) as folder:
        if (out / FILES).is_file():
            for path in sorted(out.iterdir()):
                shutil.move(path, folder / path.name)
            return
        definition.write(folder)
        splits = {split: _take(split, out, folder, job) for split in Split}
        write_manifest(describe(folder, splits, job, run, definition), folder, is_synced=False)


@contextmanager
def _beside(target: Path) -> Iterator[Path]:
    folder = target.with_name(target.name + ".part")
    try:
        if target.exists():
            raise OutputError(f"{str(target)!r} exists already. Move it, or name another folder.")
        folder.mkdir(parents=True)
    except FileExistsError:
        raise OutputError(f"{str(folder)!r} is in the way, left by an earlier run. Remove it.") from None
    except OSError as error:
        raise OutputError(f"cannot write beside {str(target)!r}: {error.strerror}.") from None
    try:
        yield folder
        sync_tree(folder)
        os.rename(folder, target)
        sync_folder(target.parent)
    except OSError as error:
        raise OutputError(f"cannot write {str(target)!r}: {error.strerror}.") from None
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _take(split: Split, out: Path, folder: Path, job: Job) -> KeptSplit:
    """Brings over a split's rows; of one without rows, nothing."""
    kept = KeptSplit(split, num_special=len(job.prefix) + len(job.suffix))
    paths = [path for path in data_files(out, split) if next(raw_rows(path), None) is not None]
    for index, path in enumerate(paths):
        name = data_file_name(split, index, len(paths), compressed=False)
        if path.name.endswith(".jsonl"):
            shutil.move(path, folder / name)
        else:
            _write_rows(path, folder / name)
        kept.files[name] = _measure(folder / name, split, kept)
    return kept


def _write_rows(path: Path, target: Path) -> None:
    encoder = msgspec.json.Encoder()
    with target.open("wb") as stream:
        for row in decoded(path, raw_rows(path), dict[str, Any]):
            stream.write(encoder.encode(row) + b"\n")


def _measure(path: Path, split: Split, kept: KeptSplit) -> FileFacts:
    digest, num_bytes, num_rows = hashlib.sha256(), 0, 0

    def lines() -> Iterator[bytes]:
        nonlocal num_bytes, num_rows
        for line in raw_rows(path):
            digest.update(line)
            num_bytes += len(line)
            num_rows += 1
            yield line

    kept.columns = kept.columns or list(next(decoded(path, raw_rows(path), dict[str, Any])))
    for row in decoded(path, lines(), Row):
        kept.add(row)
    return FileFacts(bytes=num_bytes, sha256=digest.hexdigest(), rows=num_rows, split=split, format="jsonl")
