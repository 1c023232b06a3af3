"""Verify a finished dataset from its files. Most checks use other algorithms than the build.

1. digests   Compare the digest of every file with the manifest.
2. rows      Read the rows of JSONL, or of the first format if there is no JSONL, in parallel. Check their JSON,
             columns, ids and special tokens, and group adjacent rows of a file into a run. If each row is a
             document, tokenize its text again. Compare the digests of the other formats with those of these rows.
3. files     Restore the text of fill-in-the-middle rows. Compare the runs with files.jsonl and the manifest: positions,
             fresh tokens (tokens that no earlier window of the file contains), counts and groups.
4. texts     Decode the windows in parallel. Scan their texts for secrets, and compare the texts with the sources
             if any are given.
5. leakage   Search train for token spans of held-out files.

A fault does not stop the later checks: each check uses all data that the previous checks could read.
"""

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from gristmill.checks.counts import check_counts, check_sampling_facts
from gristmill.checks.data_files import read_data_files
from gristmill.checks.digests import check_cards, check_digests
from gristmill.checks.documents import trim_cut_edges
from gristmill.checks.file_rows import FilesTable, check_groups, read_files_table
from gristmill.checks.fim import check_fim
from gristmill.checks.findings import Faults, Report, Verdict, Verdicts, make_result, report_file
from gristmill.checks.formats import RowDigests, check_formats
from gristmill.checks.repo_order import ORDER_NAMES, RepoOrders, check_repo_order
from gristmill.checks.requirements import Settings
from gristmill.checks.source_texts import folders_by_repo
from gristmill.checks.spans import check_leakage
from gristmill.checks.texts import Texts
from gristmill.checks.variants import check_variants
from gristmill.checks.windows_by_file import (
    Rows,
    check_duplicates,
    check_ends,
    check_order,
    check_repeats,
    check_rows_against_table,
    check_split_facts,
    check_windows,
)
from gristmill.core.layout import CHECK, write_atomically
from gristmill.core.manifest import Manifest, OpenedBuild
from gristmill.core.names import counted
from gristmill.core.progress import Progress
from gristmill.core.version import __version__
from gristmill.runners.local import LocalRunner, num_cores, num_workers

CHECKS = (
    *(
        "digests",
        "cards",
        "formats",
        "schema",
        "ids",
        "special_tokens",
        "windows",
        "fresh",
        "duplicates",
        "files_table",
    ),
    *("fim", "variants", "groups", "leakage", "secrets", "source"),
)
DATA_BYTES_PER_SOURCE_BYTE = 4
"""Approximate ratio of data size to source size. `num_workers` expects the size of the source."""


def check(
    folder: str | os.PathLike[str],
    sources: Sequence[str] = (),
    *,
    progress: Progress | None = None,
    workers: int | Literal["auto"] = "auto",
) -> Report:
    """Verify a dataset and write the report to check.json in its folder.

    `sources` are the folders and files that the dataset was built from. If given, they are compared
    with the texts of the dataset.
    Raises DatasetError if the manifest is missing or damaged, and InputError if a source does not exist.
    """
    path = Path(os.path.expanduser(folder))
    edition = OpenedBuild(path)
    manifest = edition.manifest
    with edition.guard_reading():
        report = _check(path, manifest, sources, progress or Progress(), workers)
    report.written = _write(path, report)
    return report


def _check(
    path: Path, manifest: Manifest, sources: Sequence[str], progress: Progress, workers: int | Literal["auto"]
) -> Report:
    started_at = time.perf_counter()
    faults = Faults()
    settings = Settings.of(path, manifest, faults)
    folders = folders_by_repo(sources)
    num_bytes = sum(facts.bytes for facts in manifest.files.values() if facts.format == manifest.formats[0])
    with LocalRunner(num_workers(workers, num_bytes // DATA_BYTES_PER_SOURCE_BYTE)) as runner:
        with progress.phase("digests", len(manifest.files)):
            check_digests(path, manifest, faults)
            cards = check_cards(path, manifest, faults)
        is_jsonl = "jsonl" in manifest.formats
        total = num_bytes if is_jsonl else sum(facts.windows for facts in manifest.splits.values())
        with progress.phase("rows", total, "bytes" if is_jsonl else "rows") as step:
            rows, content_sha256, lines_sha256 = read_data_files(settings, runner, faults, step.advance)
        num_windows = sum(facts.windows for facts in manifest.splits.values()) * (len(manifest.formats) - 1)
        with progress.phase("formats", num_windows, "windows") as step:
            formats = check_formats(settings, RowDigests(content_sha256, lines_sha256), runner, faults, step.advance)
        table = read_files_table(path, faults)
        with progress.phase("fim", 0):
            rows, fim = check_fim(rows, table, settings, runner, faults)
        orders = check_repo_order(rows, table, settings, runner, faults)
        checked = _check_files(rows, table, settings, orders, faults)
        verdicts = {"cards": cards, "formats": formats, "fim": fim, **checked}
        texts = Texts(rows, table, settings, folders)
        with progress.phase("texts", texts.num_tasks) as step:
            verdicts |= texts.check(runner, faults, step.advance)
    with progress.phase("leakage", 0):
        if settings.rules.has_documents:
            rows = _trim_cut_edges(rows, table)
        verdicts["leakage"] = check_leakage(rows, settings.decontaminate, num_cores(), faults)
        if settings.rules.has_documents and settings.decoder.tokenizer_key is None:
            verdicts["leakage"] = Verdict(settings.no_tokenizer_reason or "the tokenizer is missing", "skipped")
    return Report(
        ok=not faults.counts.total(),
        fingerprint=manifest.fingerprint,
        content_sha256=manifest.content_sha256,
        gristmill=__version__,
        checks=[make_result(name, verdicts[name], faults) for name in CHECKS],
        bytes=num_bytes,
        seconds=round(time.perf_counter() - started_at, 3),
    )


def _trim_cut_edges(rows: Rows, table: FilesTable) -> Rows:
    by_file = {
        key: [one._replace(run=trim_cut_edges(one.run, table.kept.get(key))) for one in runs]
        for key, runs in rows.by_file.items()
    }
    return rows._replace(by_file=by_file)


def _check_files(rows: Rows, table: FilesTable, settings: Settings, orders: RepoOrders, faults: Faults) -> Verdicts:
    manifest = settings.manifest
    check_rows_against_table(rows, table, faults)
    check_order(rows, faults)
    check_counts(table, manifest, faults)
    check_groups(table, faults)
    num_tail_tokens = check_windows(rows, table, settings, faults)
    check_ends(rows, table, settings, orders.by_repo, faults)
    check_repeats(rows, table, settings.sampling.max_epochs, faults)
    check_sampling_facts(rows, table, settings, faults)
    check_split_facts(rows, table, manifest, num_tail_tokens, faults)
    num_variants = check_variants(rows, table, settings, faults)
    num_same = check_duplicates(rows, faults)
    num_tokens = sum(file.covered_tokens for file in table.kept.values())
    prefix, suffix, closing = settings.rules.prefix, settings.rules.suffix, settings.rules.closing
    special_texts: list[str] = ["markers between files"] if settings.is_packed_by_repo else []
    if not special_texts and (prefix or suffix):
        special_texts.append(f"the special ids {_ids_text((*prefix, '…', *suffix))} around windows")
    if closing:
        special_texts.append(f"the special {'id' if len(closing) == 1 else 'ids'} {_ids_text(closing)} after documents")
    num_rows = counted(rows.num_rows, "row")
    num_ids = rows.num_ids if rows.packed is None else sum(one.num_ids for one in rows.packed.values())
    content = "text" if settings.rules.has_documents else "ids"
    unit = manifest.row_unit
    same_text = (
        f"; {counted(num_same, unit)} {'has' if num_same == 1 else 'have'} the same {content} as a {unit} of "
        "another file"
        if num_same
        else ""
    )
    ids = Verdict(f"{counted(num_ids, 'id')} in a vocabulary of {manifest.tokenizer.vocab_size:,}")
    special_tokens = Verdict(f"{num_rows} with {' and '.join(special_texts) or 'no special ids'}")
    if settings.rules.has_documents:
        ids = Verdict(f"{counted(num_ids, 'token')} according to the rows")
        exception = " other than fill-in-the-middle tokens" if settings.fim.is_enabled else ""
        special_tokens = Verdict(f"{num_rows} searched for the text of control tokens{exception}")
        if not settings.rules.control_spellings:
            special_tokens = Verdict("the dataset was built with --control-spellings keep", "skipped")
    return {
        "digests": Verdict(counted(len(manifest.files), "file")),
        "schema": Verdict(f"{num_rows} with {counted(len(manifest.columns), 'column')}"),
        "ids": ids,
        "special_tokens": special_tokens,
        "windows": Verdict(
            f"{num_rows} of {counted(len(rows.by_file), 'file')}{_order_text(settings, orders)}",
            "ok" if orders.skip_reason is None else "reported",
        ),
        "fresh": Verdict(f"{counted(num_tokens, 'token')} of {counted(len(table.kept), 'file')}"),
        "duplicates": Verdict(
            f"{num_rows}{same_text}", "reported" if num_same else "ok", {"windows_as_in_another_file": num_same}
        ),
        "files_table": Verdict(f"{counted(len(table), 'file')}, {len(table.kept):,} of them kept"),
        "variants": Verdict(f"{counted(num_variants, 'variant')} of {counted(len(rows.variants), 'train file')}")
        if settings.variants.rates
        else Verdict("no variants are configured", "skipped"),
        "groups": Verdict(counted(len({file.group for file in table.kept.values()}), "group")),
    }


def _ids_text(ids: Sequence[int | str]) -> str:
    return " ".join(map(str, ids))


def _order_text(settings: Settings, orders: RepoOrders) -> str:
    if not settings.is_packed_by_repo:
        return ""
    unchecked = "" if orders.skip_reason is None else f" (not checked: {orders.skip_reason})"
    return f"; the files of each repository are in {ORDER_NAMES[settings.repo_order]}{unchecked}"


def _write(folder: Path, report: Report) -> bool:
    try:
        write_atomically(folder / CHECK, report_file(report))
    except OSError:
        return False
    return True
