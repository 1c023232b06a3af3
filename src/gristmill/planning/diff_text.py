"""Format a difference as text for people and as JSON for scripts."""

from collections.abc import Iterator, Sequence

import msgspec

from gristmill.core.names import path_text, printable
from gristmill.core.text import table_text
from gristmill.planning.diff_result import FILE_KINDS, BeforeAfter, Difference, FileChange, FileKind, Step, ValueChange

SHORT_DIGEST = 12
INDENT = " " * 10


def difference_json(difference: Difference) -> str:
    names = {"before": path_text(difference.before), "after": path_text(difference.after)}
    return msgspec.json.encode(msgspec.structs.replace(difference, **names)).decode()


def difference_text(difference: Difference) -> str:
    return printable_lines(
        [
            *_summary(difference),
            *_splits(difference),
            *_files(difference),
            *_values("settings", difference.settings),
            *_values("versions", difference.versions),
            *_values("tokenizer", difference.tokenizer),
            *_removed_and_added("columns", difference.columns),
            *_removed_and_added("formats", difference.formats),
        ]
    )


def printable_lines(lines: Sequence[str]) -> str:
    """Join lines and escape control characters. A file name may contain any character, including line feeds."""
    return "\n".join(printable(line) for line in lines)


def _summary(difference: Difference) -> Iterator[str]:
    old, new = (digest[:SHORT_DIGEST] for digest in difference.content_sha256)
    yield f"content   {'the same' if old == new else 'differs'}: {old if old == new else f'{old}…, {new}'}…"
    bump = "no version bump needed" if difference.step is Step.NONE else f"{difference.step.upper()} bump needed"
    yield f"version   {bump}: {difference.why}"


def _splits(difference: Difference) -> Iterator[str]:
    if difference.is_same:
        return
    rows = [
        (str(split), *map(_numbers, (change.files, change.windows, change.tokens)))
        for split, change in difference.splits.items()
    ]
    yield ""
    yield from table_text(("split", "files", "windows", "tokens"), rows).rstrip("\n").split("\n")
    yield ""


def _numbers(numbers: BeforeAfter) -> str:
    if numbers.before == numbers.after:
        return f"{numbers.before:,}"
    return f"{numbers.before:,} -> {numbers.after:,}"


def _files(difference: Difference) -> Iterator[str]:
    for kind, changes in difference.files.items():
        if not changes.count:
            continue
        yield f"{changes.count:,} {kind.label}: {FILE_KINDS[kind]}"
        yield from (f"{INDENT}{_example(kind, change)}" for change in changes.examples)
        if changes.count > len(changes.examples):
            yield f"{INDENT}… and {changes.count - len(changes.examples):,} more (--all)"


def _example(kind: FileKind, change: FileChange) -> str:
    if kind in {FileKind.ADDED, FileKind.REMOVED} or change.before == change.after:
        return f"{change.file} ({change.after or change.before})"
    return f"{change.file} ({change.before} -> {change.after})"


def _values(title: str, changes: Sequence[ValueChange]) -> Iterator[str]:
    for change in changes:
        before, after = (msgspec.json.encode(value).decode() for value in (change.before, change.after))
        yield f"{title:<9} {change.name}: {before} -> {after}"


def _removed_and_added(title: str, names: tuple[Sequence[str], Sequence[str]]) -> Iterator[str]:
    removed, added = names
    if removed or added:
        yield f"{title:<9} {', '.join((*(f'-{one}' for one in removed), *(f'+{one}' for one in added)))}"
