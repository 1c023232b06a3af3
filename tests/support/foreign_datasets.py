"""Turn builds into datasets of foreign rows. Foreign rows are rows that a different program made."""

from pathlib import Path

from gristmill.core.manifest import ForeignRows, RowCounts, read_manifest, write_manifest

MADE_BY = "the method 'x' of gristmill bench"


def made_foreign(folder: Path) -> Path:
    """Replace the manifest of a build by a manifest of foreign rows, and delete files.jsonl."""
    manifest = read_manifest(folder)
    splits = {
        split: RowCounts(
            files=facts.files, windows=facts.windows, tokens=facts.tokens, emitted_tokens=facts.emitted_tokens
        )
        for split, facts in manifest.splits.items()
    }
    rows = ForeignRows(
        format=manifest.format,
        gristmill=manifest.gristmill,
        made_by=MADE_BY,
        tokenizer=manifest.tokenizer,
        window_length=manifest.window_length,
        columns=manifest.columns,
        splits=splits,
        files={name: facts for name, facts in manifest.files.items() if name != "files.jsonl"},
    )
    write_manifest(rows, folder)
    (folder / "files.jsonl").unlink()
    return folder
