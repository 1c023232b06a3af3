"""What a build made, as a table for people and as JSON for scripts."""

import io

import msgspec

from gristmill.manifest import Manifest
from gristmill.records import DROP_REASONS

LINE_WIDTH = 100


def summary_json(manifest: Manifest, out: str) -> str:
    summary = {
        "out": out,
        "fingerprint": manifest.fingerprint,
        "counts": manifest.counts,
        "splits": manifest.splits,
        "bytes": _data_bytes(manifest),
        "tokens_by_language": manifest.tokens_by_language,
        "seconds": manifest.run.seconds,
        "workers": manifest.run.workers,
        "warnings": manifest.warnings,
    }
    return msgspec.json.encode(summary).decode()


def summary_text(manifest: Manifest, out: str) -> str:
    from rich.console import Console  # noqa: PLC0415 - slow to import, and not needed for --json
    from rich.table import Table  # noqa: PLC0415

    counts, seconds = manifest.counts, manifest.run.seconds
    table = Table(box=None, pad_edge=False, show_edge=False)
    for heading in ("split", "files", "windows", "tokens", "share"):
        table.add_column(heading, justify="left" if heading == "split" else "right")
    for split, facts in manifest.splits.items():
        table.add_row(str(split), f"{facts.files:,}", f"{facts.windows:,}", f"{facts.tokens:,}", f"{facts.share:.1%}")
    console = Console(file=io.StringIO(), width=LINE_WIDTH, color_system=None)
    console.print(table)
    tokens = sum(facts.tokens for facts in manifest.splits.values())
    emitted = sum(facts.emitted_tokens for facts in manifest.splits.values())
    workers = "1 process" if manifest.run.workers == 1 else f"{manifest.run.workers} processes"
    megabytes = manifest.run.source_bytes / 1e6
    phases = " · ".join(f"{phase} {value:.2f}" for phase, value in seconds.items() if phase != "total")
    assert isinstance(console.file, io.StringIO)
    lines = [
        console.file.getvalue(),
        f"files    {counts.found:,} found, {counts.kept:,} kept, {counts.dropped:,} dropped",
        *(f"{count:>15,} {reason}: {DROP_REASONS[reason]}" for reason, count in counts.dropped_by_reason.items()),
        f"tokens   {tokens:,} in the files, {emitted:,} in the rows ({emitted / tokens:.2f} times)",
        f"size     {_data_bytes(manifest) / 1e6:,.1f} MB in {len(_data_files(manifest))} data files",
        f"seconds  {seconds['total']:.2f} ({workers}): {phases}",
        f"         {tokens / seconds['total'] / 1e6:,.1f} million tokens/s, {megabytes / seconds['total']:,.1f} MB/s",
        f"dataset  {out}",
    ]
    return "\n".join(lines)


def _data_files(manifest: Manifest) -> list[str]:
    return [name for name, facts in manifest.files.items() if facts.split is not None]


def _data_bytes(manifest: Manifest) -> int:
    return sum(manifest.files[name].bytes for name in _data_files(manifest))
