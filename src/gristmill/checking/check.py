"""gristmill check: verifies a finished dataset from its files alone, without the code that built it.

1. digests   every file against the manifest
2. rows      data files in parts, over processes: JSON, columns, ids, special tokens -> runs of windows, file by file
3. files     runs against files.jsonl and the manifest: places, fresh tokens, counts, groups
4. texts     what the windows spell, over processes: secrets, and the source where it is given
5. leakage   held-out tokens against train

Faults in one check hide nothing of another: each takes what the one before could read.
"""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

import gristmill
from gristmill.checking.digests import check_digests
from gristmill.checking.files import (
    Rows,
    check_duplicates,
    check_rows_against_table,
    check_split_facts,
    check_windows,
)
from gristmill.checking.leakage import check_leakage
from gristmill.checking.reading import read_data_files
from gristmill.checking.result import CHECK_FILE, Faults, Report, Verdict, result_of
from gristmill.checking.settings import Settings
from gristmill.checking.sources import folders_by_repo, location_of
from gristmill.checking.tables import FilesTable, check_counts, check_groups, read_files_table
from gristmill.checking.texts import TextRules, TextTask, read_texts
from gristmill.errors import OutputError
from gristmill.layout import write_atomically
from gristmill.manifest import read_manifest
from gristmill.progress import Progress
from gristmill.runners.local import LocalRunner, num_cores, num_workers

CHECKS = (
    *("digests", "schema", "ids", "special_tokens", "windows", "fresh", "duplicates", "files_table", "groups"),
    *("leakage", "secrets", "source"),
)
TOKENS_PER_TASK = 1 << 18
DATA_BYTES_PER_SOURCE_BYTE = 4
"""About; `num_workers` counts by source."""

Verdicts = dict[str, Verdict]


def check(
    folder: str | os.PathLike[str],
    sources: Sequence[str] = (),
    *,
    progress: Progress | None = None,
    workers: int | Literal["auto"] = "auto",
) -> Report:
    """Writes check.json into the folder and nothing else; raises DatasetError where there is no manifest to go by."""
    started_at = time.perf_counter()
    progress = progress or Progress()
    path = Path(os.path.expanduser(folder))
    manifest = read_manifest(path)
    faults = Faults()
    settings = Settings.of(path, manifest, faults)
    num_bytes = sum(facts.bytes for facts in manifest.files.values() if facts.split is not None)
    with LocalRunner(num_workers(workers, num_bytes // DATA_BYTES_PER_SOURCE_BYTE)) as runner:
        with progress.phase("digests", len(manifest.files)):
            check_digests(path, manifest, faults)
        with progress.phase("rows", num_bytes, "bytes") as step:
            rows = read_data_files(settings, runner, faults, step.advance)
        table = read_files_table(path, faults)
        verdicts = _check_files(rows, table, settings, faults)
        texts = _Texts(rows, table, settings, sources)
        with progress.phase("texts", len(rows.by_file)) as step:
            verdicts |= texts.check(runner, faults, step.advance)
    with progress.phase("leakage", 0):
        verdicts["leakage"] = check_leakage(rows, settings.decontaminate, num_cores(), faults)
    report = Report(
        ok=not faults.counts.total(),
        fingerprint=manifest.fingerprint,
        gristmill=gristmill.__version__,
        checks=[result_of(name, verdicts[name], faults) for name in CHECKS],
        bytes=num_bytes,
        seconds=round(time.perf_counter() - started_at, 3),
    )
    _write(path, report)
    return report


def _check_files(rows: Rows, table: FilesTable, settings: Settings, faults: Faults) -> Verdicts:
    manifest = settings.manifest
    check_rows_against_table(rows, table, faults)
    check_counts(table, manifest, faults)
    check_groups(table, faults)
    drops_touched = settings.decontaminate == "drop"
    num_tail_tokens = check_windows(rows, table, settings.shape, faults, drops_touched=drops_touched)
    check_split_facts(rows, table, manifest, num_tail_tokens, faults)
    num_alike = check_duplicates(rows, faults)
    num_tokens = sum(file.tokens - file.cut_tokens for file in table.kept.values())
    special = [*settings.rules.prefix, "…", *settings.rules.suffix]
    num_rows = f"{rows.num_rows:,} rows"
    alike = f"; {num_alike:,} have the ids of one in another file" if num_alike else ""
    return {
        "digests": Verdict(f"{len(manifest.files)} files"),
        "schema": Verdict(f"{num_rows} of {len(manifest.columns)} columns"),
        "ids": Verdict(f"{rows.num_ids:,} ids, all below {manifest.tokenizer.vocab_size:,}"),
        "special_tokens": Verdict(f"{num_rows}: {' '.join(map(str, special))}"),
        "windows": Verdict(f"{num_rows} of {len(rows.by_file):,} files"),
        "fresh": Verdict(f"{num_tokens:,} tokens, each fresh once"),
        "duplicates": Verdict(
            f"{num_rows}{alike}", "reported" if num_alike else "ok", {"windows_as_in_another_file": num_alike}
        ),
        "files_table": Verdict(f"{len(table):,} files, {len(table.kept):,} of them kept"),
        "groups": Verdict(f"{len({file.group for file in table.kept.values()}):,} groups, each in one split"),
    }


class _Texts(NamedTuple):
    rows: Rows
    table: FilesTable
    settings: Settings
    sources: Sequence[str]

    def check(self, runner: LocalRunner, faults: Faults, advance: Callable[[int], None]) -> Verdicts:
        folders = folders_by_repo(self.sources)
        secrets = self.settings.secrets
        why_no_secrets = "--secrets keep" if secrets.action == "keep" else self._why_not_spelled()
        rules = TextRules(self.settings.spelling, why_no_secrets is None, secrets.emails, self.settings.notebooks)
        num_at_cuts = num_compared = 0
        if rules.looks_for_secrets or folders:
            tasks = list(self._tasks(folders, faults))
            num_compared = sum(task.location is not None for batch in tasks for task in batch)
            for batch, found in zip(tasks, runner.map(partial(read_texts, rules), tasks), strict=True):
                faults.merge(found.faults)
                num_at_cuts += found.num_at_cuts
                advance(len(batch))
        if folders and not num_compared:
            repos = ", ".join(sorted({repo for repo, _ in self.table.kept}))
            faults.add("source", f"this dataset is not of these sources: it is of {repos}")
        looked = Verdict(f"none in {len(self.rows.by_file):,} files", facts={"at_cuts": num_at_cuts})
        compared = Verdict(f"{num_compared:,} of {len(self.table.kept):,} files compared")
        return {
            "secrets": looked if why_no_secrets is None else Verdict(why_no_secrets, "skipped"),
            "source": compared if folders else Verdict("no source was given", "skipped"),
        }

    def _why_not_spelled(self) -> str | None:
        if self.settings.no_tokenizer is not None:
            return self.settings.no_tokenizer
        return None if self.settings.spelling.is_close else "this tokenizer does not give the text back"

    def _tasks(self, folders: dict[str, str], faults: Faults) -> Iterator[list[TextTask]]:
        """Files in batches; a source file that cannot be is a fault."""
        batch, size = list[TextTask](), 0
        for key, runs in self.rows.by_file.items():
            folder = folders.get(key[0])
            location = location_of(folder, key[1]) if folder is not None else None
            if folder is not None and location is None:
                faults.add("source", "its path leads out of the source", path="/".join(key))
            for run, file, _ in runs:
                batch.append(TextTask(run, file, self.table.kept.get(key), location))
                size += sum(len(stretch.ids) for stretch in run.stretches)
            if size >= TOKENS_PER_TASK:
                yield batch
                batch, size = [], 0
        if batch:
            yield batch


def _write(folder: Path, report: Report) -> None:
    content = msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n"
    try:
        write_atomically(folder / CHECK_FILE, content)
    except OSError as error:
        raise OutputError(f"cannot write {str(folder / CHECK_FILE)!r}: {error.strerror}.") from None
