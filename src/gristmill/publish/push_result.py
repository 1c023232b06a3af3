"""Result of a push: every file and the result of every safety check, as text and as JSON."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec

from gristmill.core.names import counted, printable
from gristmill.core.text import size_text, table_text

MAX_NAMES_SHOWN = 5

Change = Literal["new", "changed", "same"]
MAX_FILES_LISTED = 12
"""Maximum number of files of one format that are listed one by one."""
Verdict = Literal["ok", "allowed", "refuses"]
VERDICT_TEXT: dict[Verdict, str] = {"ok": "passed", "allowed": "overridden", "refuses": "failed"}
Visibility = Literal["private", "public"]


class GateResult(msgspec.Struct, frozen=True, kw_only=True):
    """Result of one safety check."""

    name: str
    verdict: Verdict
    """`ok` if the check passed, `refuses` if it failed, `allowed` if it failed and was overridden."""
    why: str
    """Reason for the verdict."""


class PushedFile(msgspec.Struct, frozen=True, kw_only=True):
    """One file of the dataset to upload."""

    name: str
    bytes: int
    format: str | None
    """Output format that the file belongs to. None for files such as the manifest."""
    change: Change
    """Comparison with the repository. A file with the value `same` is not uploaded again."""


class PushResult(msgspec.Struct, kw_only=True):
    """Result of a push, or of a dry run (`upload=False`)."""

    repo_id: str
    revision: str
    url: str
    visibility: Visibility
    """Visibility of the repository, or of the repository to create."""
    is_new: bool | None
    """True if the repository must be created. None if the Hub could not be read."""
    files: list[PushedFile]
    """All files that the dataset has in the repository after the push."""
    deleted: list[str]
    """Files of an earlier push that the dataset no longer has. The push deletes them."""
    skipped: list[str]
    """Files in the dataset folder that are not part of the dataset. They are not uploaded."""
    gates: list[GateResult]
    """Results of the safety checks."""
    num_names: int
    """Number of source files that the build found, including dropped files. files.jsonl contains their names."""
    is_unchanged: bool
    """True if the repository already has this dataset."""
    commit: str | None = None
    """URL of the commit. None if nothing was uploaded."""

    @property
    def ok(self) -> bool:
        """True if no safety check failed."""
        return all(gate.verdict != "refuses" for gate in self.gates)


def push_json(push: PushResult) -> str:
    """Return the result as JSON, with `ok` added."""
    return msgspec.json.encode({"ok": push.ok, **msgspec.to_builtins(push)}).decode()


def push_text(push: PushResult, *, upload: bool) -> str:
    """Return the result as text for a terminal. `upload` is False for a dry run."""
    files = list(_file_rows(push))
    gates = [(gate.name, VERDICT_TEXT[gate.verdict], printable(gate.why)) for gate in push.gates]
    lines = [
        table_text(("file", "change", "format", "size"), files, num_left_aligned=3),
        *_size_lines(push.files),
        _repository_line(push),
        *_name_lines("deletes", push.deleted),
        *_name_lines("skips", push.skipped),
        f"note     {_names_note(push)}",
        "",
        *_gate_lines(gates),
        "",
        _outcome(push, upload=upload),
    ]
    return "\n".join(lines)


def _names_note(push: PushResult) -> str:
    return f"files.jsonl lists the name of every file found, including dropped files ({push.num_names:,} in total)"


def _file_rows(push: PushResult) -> Iterator[tuple[str, str, str, str]]:
    """Yield a row per file, but only one row for a format with more than MAX_FILES_LISTED files."""
    counts = Counter(file.format for file in push.files if file.format is not None)
    for file in push.files:
        change = "-" if push.is_new is None else file.change
        if file.format is None or counts[file.format] <= MAX_FILES_LISTED:
            yield printable(file.name), change, file.format or "-", size_text(file.bytes)
    for name in sorted(name for name, count in counts.items() if count > MAX_FILES_LISTED):
        files = [file for file in push.files if file.format == name]
        changes = "-" if push.is_new is None else ", ".join(sorted({file.change for file in files}))
        yield counted(len(files), f"{name} file"), changes, name, size_text(sum(file.bytes for file in files))


def _gate_lines(gates: Sequence[tuple[str, str, str]]) -> list[str]:
    return [
        f"{name:<13} {result:<11} {reason}" for name, result, reason in [("safety check", "result", "reason"), *gates]
    ]


def _size_lines(files: list[PushedFile]) -> list[str]:
    """Return a line with the total size of each format, and a line for the other files."""
    lines: list[str] = []
    for name in dict.fromkeys(sorted((file.format for file in files), key=lambda name: (name is None, name or ""))):
        sizes = [file.bytes for file in files if file.format == name]
        count = counted(len(sizes), f"{name or 'other'} file")
        lines.append(f"{'' if lines else 'size':<8} {size_text(sum(sizes))} in {count}")
    return lines


def _repository_line(push: PushResult) -> str:
    state = {True: "new", False: "exists", None: "could not be read"}[push.is_new]
    revision = "" if push.revision == "main" else f", revision {printable(push.revision)}"
    return f"to       {printable(push.url)}: {push.visibility}, {state}{revision}"


def _name_lines(label: str, names: list[str]) -> list[str]:
    if not names:
        return []
    more = f" and {len(names) - MAX_NAMES_SHOWN:,} more" if len(names) > MAX_NAMES_SHOWN else ""
    return [f"{label:<8} {', '.join(map(printable, names[:MAX_NAMES_SHOWN]))}{more}"]


def _outcome(push: PushResult, *, upload: bool) -> str:
    failed = [gate.name for gate in push.gates if gate.verdict == "refuses"]
    if failed:
        return f"failed safety checks: {', '.join(failed)}. Nothing was uploaded."
    if push.commit is not None:
        return f"pushed   {printable(push.commit)}"
    if push.is_unchanged:
        return "unchanged: the repository already has this dataset. Nothing was uploaded."
    return "" if upload else "dry run: nothing was uploaded. Add --upload to upload."
