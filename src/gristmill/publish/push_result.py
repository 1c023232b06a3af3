"""What would go to the Hub, or has gone: every file, every gate and its verdict, as text for people and as JSON."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec

from gristmill.core.names import counted, printable
from gristmill.core.text import size_text, table_text

NAMES_SHOWN = 5

Change = Literal["new", "changed", "same"]
MOST_FILES = 12
"""Of one format, that are listed one by one."""
Verdict = Literal["ok", "allowed", "refuses"]
Visibility = Literal["private", "public"]


class Gate(msgspec.Struct, frozen=True, kw_only=True):
    """One reason for which a dataset may have to stay here."""

    name: str
    verdict: Verdict
    """`allowed`: it would refuse, and was told not to."""
    why: str


class PushedFile(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    bytes: int
    format: str | None
    """Of a file with rows, or that belongs to some."""
    change: Change
    """Against what lies there; a file that is the same is not sent again."""


class Push(msgspec.Struct, kw_only=True):
    repo_id: str
    revision: str
    url: str
    visibility: Visibility
    """Of the repository as it is there, or as it would be made."""
    is_new: bool | None
    """Whether the repository has to be made; None: the Hub could not be asked."""
    files: list[PushedFile]
    """All that the dataset has there afterwards."""
    deleted: list[str]
    """What an earlier push has brought, and the dataset no longer has."""
    left_here: list[str]
    """What lies in the folder, and is not of the dataset."""
    gates: list[Gate]
    num_names: int
    """Of files that were found, kept or dropped: files.jsonl names them."""
    is_unchanged: bool
    """What lies there is this dataset already."""
    commit: str | None = None
    """Where to look at what was sent; None: nothing was."""

    @property
    def ok(self) -> bool:
        """No gate refuses."""
        return all(gate.verdict != "refuses" for gate in self.gates)


def push_json(push: Push) -> str:
    return msgspec.json.encode({"ok": push.ok, **msgspec.to_builtins(push)}).decode()


def push_text(push: Push, *, upload: bool) -> str:
    files = list(_file_rows(push))
    gates = [(gate.name, gate.verdict, printable(gate.why)) for gate in push.gates]
    lines = [
        table_text(("file", "there", "format", "size"), files, left=3),
        *_size_lines(push.files),
        _place_line(push),
        *_name_lines("deletes", push.deleted),
        *_name_lines("stays", push.left_here),
        f"tells    files.jsonl has the names of all {counted(push.num_names, 'file')} found, dropped ones too",
        "",
        *_gate_lines(gates),
        "",
        _outcome(push, upload=upload),
    ]
    return "\n".join(lines)


def _file_rows(push: Push) -> Iterator[tuple[str, str, str, str]]:
    """A format of many files is one row."""
    counts = Counter(one.format for one in push.files if one.format is not None)
    for one in push.files:
        change = "-" if push.is_new is None else one.change
        if one.format is None or counts[one.format] <= MOST_FILES:
            yield printable(one.name), change, one.format or "-", size_text(one.bytes)
    for name in sorted(name for name, count in counts.items() if count > MOST_FILES):
        own = [one for one in push.files if one.format == name]
        changes = "-" if push.is_new is None else ", ".join(sorted({one.change for one in own}))
        yield f"{counted(len(own), 'file')} of {name}", changes, name, size_text(sum(one.bytes for one in own))


def _gate_lines(gates: Sequence[tuple[str, str, str]]) -> list[str]:
    return [f"{name:<10} {verdict:<8} {why}" for name, verdict, why in [("gate", "verdict", "why"), *gates]]


def _size_lines(files: list[PushedFile]) -> list[str]:
    """Per format, and what goes with them."""
    lines: list[str] = []
    for name in dict.fromkeys(sorted((one.format for one in files), key=lambda name: (name is None, name or ""))):
        sizes = [one.bytes for one in files if one.format == name]
        told = f"{size_text(sum(sizes))} {f'of {name}' if name else 'beside them'} in {len(sizes)} file"
        lines.append(f"{'' if lines else 'size':<8} {told}{'s' if len(sizes) > 1 else ''}")
    return lines


def _place_line(push: Push) -> str:
    state = {True: "new", False: "there already", None: "not asked"}[push.is_new]
    revision = "" if push.revision == "main" else f", revision {printable(push.revision)}"
    return f"to       {printable(push.url)}: {push.visibility}, {state}{revision}"


def _name_lines(what: str, names: list[str]) -> list[str]:
    if not names:
        return []
    more = f" and {len(names) - NAMES_SHOWN:,} more" if len(names) > NAMES_SHOWN else ""
    return [f"{what:<8} {', '.join(map(printable, names[:NAMES_SHOWN]))}{more}"]


def _outcome(push: Push, *, upload: bool) -> str:
    refusing = [gate.name for gate in push.gates if gate.verdict == "refuses"]
    if refusing:
        return f"refused by {', '.join(refusing)}: nothing was sent"
    if push.commit is not None:
        return f"pushed   {printable(push.commit)}"
    if push.is_unchanged:
        return "unchanged: the same dataset is there already, and nothing was sent"
    return "" if upload else "nothing was sent: this is what --upload would do"
