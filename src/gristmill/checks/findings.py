"""Findings of all checks: the number of faults with examples, and the report as text and JSON."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from gristmill.core.layout import CHECK
from gristmill.core.names import counted, printable

MAX_EXAMPLES = 10
MAX_FILES_LISTED = 10
NAME_WIDTH = 15

Status = Literal["ok", "failed", "reported", "skipped"]


def value_text(value: object) -> str:
    """Format a recorded or computed value for a message.

    `{"train": 5, "test": 0}` -> `train 5, test 0`, `[0, 1]` -> `0, 1`, and `None`, `{}` or `[]` -> `none`
    """
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {value_text(one)}" for name, one in value.items()) or "none"
    if isinstance(value, list | tuple):
        return ", ".join(map(value_text, value)) or "none"
    return "none" if value is None else str(value)


class Example(NamedTuple):
    """Message and location of one fault."""

    message: str
    file: str | None
    row: int | None
    """Row number in the file, counted from 1, as in `sed -n 17p`."""
    path: str | None

    def __str__(self) -> str:
        row = "" if self.row is None else f" row {self.row}"
        path = "" if self.path is None else self.path if self.file is None else f" ({self.path})"
        location = f"{self.file or ''}{row}{path}"
        return f"{location}: {self.message}" if location else self.message


class Faults:
    """Number of faults per check, and the first ten faults of each check. Picklable, so that workers can return it."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.examples: dict[str, list[Example]] = {}

    def add(
        self, check: str, message: str, *, file: str | None = None, row: int | None = None, path: str | None = None
    ) -> None:
        self.counts[check] += 1
        examples = self.examples.setdefault(check, [])
        if len(examples) < MAX_EXAMPLES:
            examples.append(Example(message, file, row, path))

    def renumber(self, row_numbers: Sequence[int]) -> None:
        """Replace the row number `n` of each example with `row_numbers[n]`."""
        for check, examples in self.examples.items():
            self.examples[check] = [
                one if one.row is None else one._replace(row=row_numbers[one.row]) for one in examples
            ]

    def merge(self, other: "Faults", num_rows_before: int = 0) -> None:
        self.counts += other.counts
        for check, examples in other.examples.items():
            merged = self.examples.setdefault(check, [])
            for one in examples[: MAX_EXAMPLES - len(merged)]:
                merged.append(one if one.row is None else one._replace(row=one.row + num_rows_before))


class CheckResult(msgspec.Struct, kw_only=True):
    """Result of one check."""

    name: str
    status: Status
    summary: str
    examples: list[str] = []
    """First ten faults, each with its location."""
    facts: dict[str, Any] = {}
    """Measured values, for example the leakage of each split."""


class Report(msgspec.Struct, kw_only=True):
    """Result of all checks of a dataset, as written to check.json."""

    ok: bool
    """True if no check failed."""
    fingerprint: str
    """Fingerprint of the dataset, from its manifest."""
    content_sha256: str
    """Format-independent digest of the rows, from the manifest."""
    gristmill: str
    """Version of gristmill that ran the checks."""
    checks: list[CheckResult]
    bytes: int
    """Total size of the data files in the first format."""
    seconds: float
    written: bool = True
    """False if check.json could not be written into the dataset folder."""

    def __getitem__(self, name: str) -> CheckResult:
        return next(check for check in self.checks if check.name == name)


class Verdict(NamedTuple):
    """Summary of a check, and its status if it found no fault."""

    summary: str
    status: Status = "ok"
    facts: dict[str, Any] = {}  # noqa: RUF012 - never changed


Verdicts = dict[str, Verdict]
"""Verdicts keyed by the name of the check."""


def make_result(name: str, verdict: Verdict, faults: Faults) -> CheckResult:
    num_faults = faults.counts[name]
    examples = [str(example) for example in faults.examples.get(name, ())]
    if not num_faults:
        return CheckResult(name=name, status=verdict.status, summary=verdict.summary, facts=verdict.facts)
    count = f"{num_faults:,} fault{'s' if num_faults > 1 else ''}"
    summary = f"{count}; {verdict.summary}" if verdict.status != "skipped" else count
    return CheckResult(name=name, status="failed", summary=summary, examples=examples, facts=verdict.facts)


def report_text(report: Report) -> str:
    """Format a report as a table for the terminal."""
    lines = [f"{'check':<{NAME_WIDTH}} {'status':<9} summary"]
    for check in report.checks:
        lines.append(f"{check.name:<{NAME_WIDTH}} {check.status:<9} {printable(check.summary)}")
        lines += [f"{'':{NAME_WIDTH}} - {printable(example)}" for example in check.examples]
        if check.name == "leakage":
            lines += _worst_files(check.facts.get("worst_files", []))
    num_failed = sum(check.status == "failed" for check in report.checks)
    outcome = f"{num_failed} of {counted(len(report.checks), 'check')} failed" if num_failed else "no check failed"
    lines += [] if report.written else ["", f"{CHECK} could not be written into the dataset folder"]
    rate = f"{report.bytes / max(report.seconds, 1e-9) / 1e6:,.3g}"
    return "\n".join((*lines, "", f"{outcome}, in {report.seconds:.2f} s ({rate} MB/s of data files)"))


def _worst_files(files: list[dict[str, Any]]) -> list[str]:
    return [
        f"{'':{NAME_WIDTH}} {file['l50']:>8.1%}  {file['split']}  {printable(file['name'])}"
        for file in files[:MAX_FILES_LISTED]
    ]


def report_json(report: Report) -> str:
    return msgspec.json.encode(report).decode()


def report_file(report: Report) -> bytes:
    """Encode a report as the content of check.json."""
    return msgspec.json.format(msgspec.json.encode(msgspec.structs.replace(report, written=True)), indent=2) + b"\n"
