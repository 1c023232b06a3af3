"""Explain why a file was kept or dropped and why it is in its split, and which file a row comes from.

explain_file("dataset", "src/app.py:120")     explain_row("dataset", "test", 123)
"""

import math
import os
from collections.abc import Callable, Iterator

import msgspec
import orjson

from gristmill.cleaning.folder_licenses import HEADER
from gristmill.cleaning.licenses import NOASSERTION
from gristmill.cleaning.rules import RULES, Limits
from gristmill.config.settings import RulesConfig
from gristmill.core.errors import ConfigError, DatasetError, InputError
from gristmill.core.files_table import FileRow, FimRow, VariantRow, read_file_rows
from gristmill.core.layout import FILES
from gristmill.core.manifest import Manifest
from gristmill.core.names import counted, did_you_mean, path_text, printable
from gristmill.core.records import INDEPENDENT_WINDOW_KINDS, Cut, FileKey, Redaction, Respelling, Split
from gristmill.dataset.dataset import Dataset, open_dataset
from gristmill.dataset.row_windows import Window, read_row, windows_of_file

MAX_NAMES = 10
MAX_LINE_DIGITS = 12
MAX_WINDOWS = 12
MINIMA = {rule.name for rule in RULES if rule.is_minimum}
RULE_WIDTH = 2 + max(len(rule.name) for rule in RULES)


class RuleResult(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a quality rule for a file."""

    rule: str
    value: float | str | None
    limit: float | None
    """None if the rule is off, or is a switch without a limit."""
    is_off: bool
    """True if the rule is off for the language of the file."""
    is_defect: bool
    """True if the file was dropped because of this rule."""


class WindowLocation(msgspec.Struct, frozen=True, kw_only=True):
    """Row and position of a window."""

    row: str
    """Split and index of the row, from 0, in the form of `--row`, like `test:123`."""
    lines: tuple[int, int]
    start: int
    """Index of the window's first token in the tokens of the text, from 0."""
    num_ids: int
    fresh: int
    """Number of tokens that are in no earlier window of the file (column `fresh` of the row)."""
    repeat: int = 0
    variant: str | None = None
    fim: str | None = None
    middle: str | None = None

    @property
    def is_numbered_as_file(self) -> bool:
        """True if lines and tokens are numbered as in the file. The text of a variant has its own numbers."""
        return self.variant is None or self.variant in INDEPENDENT_WINDOW_KINDS


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """All that a dataset records about a file."""

    file: FileRow
    line: int | None
    """Requested line. None for the complete file."""
    commit: str | None
    rules: list[RuleResult]
    group_members: list[str]
    """Other kept files that must be in the same split."""
    duplicates: list[tuple[str, float]]
    """Files that were dropped as duplicates of this file, with their similarity. 1 means the same text."""
    windows: list[WindowLocation]
    """All windows of the file, only the windows that contain `line`, or only the window in the requested row. With
    `line`, windows of variants with a text of their own are left out, because their lines have other numbers."""
    rates: dict[str, float]
    """Rates of the configured variants, keyed by kind."""
    beside: list[str] = []
    """With --pack, the other windows in the requested row."""


def explain_file(folder: str | os.PathLike[str], path: str) -> Explanation:
    """Explain why a file was kept or dropped, and list its windows.

    `path` is a path from files.jsonl or the end of such a path. It may have the repo in front and `:LINE` at the end.
    Raises InputError if `path` matches no file, or several files.
    """
    dataset = open_dataset(folder)
    manifest = dataset.manifest
    with dataset.edition.guard_reading():
        table = {row.key: row for row in read_file_rows(dataset.folder / FILES)}
        row, line = _find_file(path, table)
        return _explain(dataset, manifest, table, row, line)


def explain_row(folder: str | os.PathLike[str], split: str, number: int) -> Explanation:
    """Explain the file of a row, and list only the window in this row.

    With --pack, explain the file of the first window in the row. Raises InputError if there is no such row.
    """
    dataset = open_dataset(folder)
    manifest = dataset.manifest
    if split not in list(Split):
        raise InputError(f"there is no split {split!r}. Try --row train:0.")
    with dataset.edition.guard_reading():
        return _explain_row(dataset, manifest, split, number)


def _explain_row(dataset: Dataset, manifest: Manifest, split: str, number: int) -> Explanation:
    rows = dataset[split]
    if not 0 <= number < len(rows):
        raise InputError(f"{split} has {counted(len(rows), 'row')}, counted from 0: there is no row {number}.")
    read = read_row(dataset, split, number)
    if not read.windows:
        raise InputError(
            f"row {split}:{number} contains only special tokens, and no tokens of a file. Try another row."
        )
    window, *others = read.windows
    table = {row.key: row for row in read_file_rows(dataset.folder / FILES)}
    row = table.get(window.file)
    if row is None:
        raise DatasetError(f"row {split}:{number} belongs to no file in {FILES}. Run gristmill check DIR for details.")
    explained = _explain(dataset, manifest, table, row, None)
    beside = [f"{one.repo}/{one.path}, lines {one.lines[0]} to {one.lines[1]}" for one in others]
    location = _locate_window(f"{split}:{number}", window, len(read.ids) if manifest.packing is None else window.length)
    return msgspec.structs.replace(explained, windows=[location], beside=beside)


def _find_file(request: str, table: dict[FileKey, FileRow]) -> tuple[FileRow, int | None]:
    """Return the requested file and line.

    The request is the name, path or end of the path of a file, or a path inside an excluded folder.
    """
    path, _, digits = request.rpartition(":")
    is_line = bool(path) and digits.isascii() and digits.isdecimal() and len(digits) <= MAX_LINE_DIGITS
    choices = [(request, None), (path, int(digits))] if is_line else [(request, None)]
    for name, line in choices:
        found = _match_name(name.removeprefix("./"), table) or _match_name(path_text(name).removeprefix("./"), table)
        if len(found) > 1:
            listed = ", ".join(row.name for row in found[:MAX_NAMES])
            raise InputError(f"{name!r} matches {counted(len(found), 'file')}: {listed}. Give more of the path.")
        if found and line is not None and not 1 <= line <= (found[0].lines or line):
            raise InputError(f"{found[0].name} has {counted(found[0].lines or 0, 'line')}: there is no line {line}.")
        if found:
            return found[0], line
    paths = (row.path for row in table.values())
    default_hint = "Files that a .gitignore excludes are not listed."
    if digits.isdecimal() and path in {"", *Split}:
        default_hint = f"For a row, use --row {path or Split.TRAIN}:{digits}."
    hint = did_you_mean(choices[-1][0], paths, default_hint)
    raise InputError(f"no file {request!r} was found when this dataset was built. {hint}")


def _match_name(name: str, table: dict[FileKey, FileRow]) -> list[FileRow]:
    """Return the files that match a name, according to the first matcher that matches any file."""
    matchers: tuple[Callable[[FileRow], bool], ...] = (
        lambda row: row.name == name,
        lambda row: row.path == name,
        lambda row: f"/{row.path}".endswith(f"/{name}"),
        lambda row: row.path.endswith("/") and name.startswith((row.path, row.name)),
    )
    found = ([row for row in table.values() if matches(row)] for matches in matchers)
    return next((rows for rows in found if rows), []) if name else []


def _explain(
    dataset: Dataset, manifest: Manifest, table: dict[FileKey, FileRow], row: FileRow, line: int | None
) -> Explanation:
    commits = {source.repo: source.commit for source in manifest.sources}
    members = [
        other.name
        for other in table.values()
        if row.group and other.group == row.group and other is not row and other.status == "kept"
    ]
    dropped = [(other.name, other.similarity or 0.0) for other in table.values() if other.twin == row.name]
    return Explanation(
        file=row,
        line=line,
        commit=commits.get(row.repo),
        rules=list(_rules(row, manifest)),
        group_members=members,
        duplicates=dropped,
        rates=manifest.settings.get("variants", {}).get("rates", {}),
        windows=[
            location
            for location in _windows(dataset, row)
            if line is None or (location.is_numbered_as_file and location.lines[0] <= line <= location.lines[1])
        ],
    )


def _rules(row: FileRow, manifest: Manifest) -> Iterator[RuleResult]:
    if row.measures is None or row.language is None:
        return
    try:
        limits = Limits(msgspec.convert(manifest.settings["rules"], RulesConfig))
    except (KeyError, msgspec.ValidationError, ConfigError) as error:
        raise DatasetError(
            f"the manifest is damaged: settings.rules is missing or invalid ({error}). Build the dataset again."
        ) from None
    for rule in RULES:
        if rule.name in row.measures:
            limit = limits.limit(rule.name, row.language)
            yield RuleResult(
                rule=rule.name,
                value=row.measures[rule.name],
                limit=None if _is_switch(rule.name) else limit,
                is_off=limit is None,
                is_defect=rule.reason is row.reason,
            )


def _is_switch(rule: str) -> bool:
    return any(field.name == rule and field.type is bool for field in msgspec.structs.fields(RulesConfig))


def _windows(dataset: Dataset, row: FileRow) -> Iterator[WindowLocation]:
    if row.status != "kept" or row.split is None:
        return
    for number, (num_ids, windows) in windows_of_file(dataset, row.split, row.key):
        for window in windows:
            yield _locate_window(
                f"{row.split}:{number}", window, num_ids if dataset.manifest.packing is None else window.length
            )


def _locate_window(row: str, window: Window, num_ids: int) -> WindowLocation:
    return WindowLocation(
        row=row,
        lines=window.lines,
        start=window.start,
        num_ids=num_ids,
        fresh=window.fresh,
        repeat=window.repeat,
        variant=window.variant or None,
        fim=window.fim or None,
        middle=window.middle or None,
    )


def explanation_json(explained: Explanation) -> str:
    return orjson.dumps(msgspec.to_builtins(explained)).decode()


def explanation_text(explained: Explanation) -> str:
    file = explained.file
    lines = [
        ("file", f"{file.path} in {file.repo}" + (f" at commit {explained.commit}" if explained.commit else "")),
        ("", _facts(file)),
        ("status", status_text(file)),
        *_part("license", [_license(file)] if file.license else []),
        *_part("rules", [_rule(result, file.detail) for result in explained.rules]),
        *_part("group", _truncate([f"in the same split as {name}" for name in explained.group_members])),
        *_part(
            "copies",
            _truncate(
                [f"{name} was dropped, similarity {similarity:.3f}" for name, similarity in explained.duplicates]
            ),
        ),
        *_part("secrets", [_redaction(one) for one in file.redactions if explained.line in {None, one.line}]),
        *_part(
            "escaped", _truncate([_respelling(one) for one in file.respellings if explained.line in {None, one.line}])
        ),
        *_part("cuts", [_cut(cut) for cut in file.cuts if _contains_line(cut, explained.line)]),
        *_part("sampled", _draw_lines(file)),
        *_part(
            "weight", [f"{file.weight:g}, for trainers that sample by weight"] if file.weight not in {None, 1.0} else []
        ),
        *_part("packed", _truncate([f"with {name}" for name in explained.beside])),
        *_part("fim", [_fim(file.fim)] if file.fim is not None else []),
        *_part("variants", [*map(_variant, file.variants), *_missing_variants(explained)]),
        *_part("windows", _window_lines(explained)),
    ]
    return "\n".join(f"{name:<8} {printable(text)}" for name, text in lines)


def _part(name: str, lines: list[str]) -> Iterator[tuple[str, str]]:
    for number, line in enumerate(lines):
        yield ("" if number else name), line


def _truncate(lines: list[str]) -> list[str]:
    more = len(lines) - MAX_NAMES
    return lines if more <= 0 else [*lines[:MAX_NAMES], f"and {more:,} more"]


def _facts(file: FileRow) -> str:
    facts = [
        file.language,
        file.encoding,
        None if file.bytes is None else counted(file.bytes, "byte"),
        None if file.lines is None else counted(file.lines, "line"),
        None if file.tokens is None else counted(file.tokens, "token"),
    ]
    return ", ".join(fact for fact in facts if fact) or "not read"


def status_text(file: FileRow) -> str:
    """Explain in one sentence why a file was kept or dropped."""
    if file.reason is not None:
        return f"dropped as {file.reason}: {file.reason.meaning}. Found: {file.detail}"
    moved = f", moved there from {file.moved_from}" if file.moved_from else ""
    return f"kept in {file.split}{moved}, group {file.group}"


def _license(file: FileRow) -> str:
    if file.license == NOASSERTION:
        if file.license_from == HEADER:
            return f"{NOASSERTION}: the header names no SPDX id, or contradicts the license of the folder or table"
        found = (
            f"no license could be determined from {file.license_from}"
            if file.license_from
            else "no license file in the folder of the file or above"
        )
        return f"{NOASSERTION}: {found}"
    return f"{file.license}, from {file.license_from}"


def _rule(result: RuleResult, detail: str | None) -> str:
    value = "-" if result.value is None else result.value if isinstance(result.value, str) else f"{result.value:g}"
    bound = "at least" if result.rule in MINIMA else "at most"
    limit = "" if result.limit is None else "by name" if result.limit == math.inf else f"{bound} {result.limit:g}"
    verdict = f"FAILED: {detail}" if result.is_defect else "off" if result.is_off else "ok"
    return f"{result.rule:<{RULE_WIDTH}} {value:>12}  {limit:<14} {verdict}"


def _redaction(one: Redaction) -> str:
    return f"line {one.line}: {one.kind} was redacted (hash {one.hash})"


def _respelling(one: Respelling) -> str:
    return f"line {one.line}: a space was inserted into {one.spelling}"


def _cut(cut: Cut) -> str:
    return (
        f"lines {cut.first_line} to {cut.last_line}, tokens {cut.start:,} to {cut.end:,}: "
        f"{cut.end - cut.start:,} tokens that are also in {cut.shared_with}"
    )


def _contains_line(cut: Cut, line: int | None) -> bool:
    return line is None or cut.first_line <= line <= cut.last_line


def _draw_lines(file: FileRow) -> list[str]:
    lines = []
    if file.draw is not None:
        passes, extra = file.draw
        used = f"{counted(extra, 'window')} {'is' if extra == 1 else 'are'} used"
        if passes:
            times = "once" if passes == 1 else counted(passes, "time")
            used = f"every window is used {times}" + (f", and {used} once more" if extra else "")
        are = "is" if file.left_tokens == 1 else "are"
        left = f"; {counted(file.left_tokens, 'token')} {are} in no row" if file.left_tokens else ""
        lines.append(used + left)
    return lines


def _fim(row: FimRow) -> str:
    if row.missing is not None:
        return f"not rewritten ({row.missing}): {row.missing.meaning}"
    return f"{counted(row.rewritten, 'window')} rewritten for fill-in-the-middle, seed {row.seed}"


def _variant(row: VariantRow) -> str:
    if row.missing is not None:
        return f"{row.kind:<8} none ({row.missing}): {row.missing.meaning}"
    return f"{row.kind:<8} {counted(row.windows, 'window')}, {counted(row.tokens, 'token')}, seed {row.seed}"


def _missing_variants(explained: Explanation) -> list[str]:
    file, recorded = explained.file, {row.kind for row in explained.file.variants}
    if file.status != "kept":
        return []
    if file.split is not Split.TRAIN:
        return ["none: only train files have variants"] if explained.rates else []
    why = "the file was not selected" if file.windows else "no window of the file was drawn"
    return [f"{kind:<8} none (rate {rate:g}): {why}" for kind, rate in explained.rates.items() if kind not in recorded]


def _window_text(location: WindowLocation) -> str:
    text = f"row {location.row:<18} lines {location.lines[0]} to {location.lines[1]}, from token {location.start:,}"
    repeat = f", repeat {location.repeat}" if location.repeat else ""
    numbering = "" if location.is_numbered_as_file else " (lines and tokens of the variant)"
    variant = f", {location.variant}{numbering}" if location.variant else ""
    fim = f", {location.fim}, middle: {location.middle}" if location.fim else ""
    return f"{text}, {counted(location.fresh, 'fresh token')}{repeat}{variant}{fim}"


def _window_lines(explained: Explanation) -> list[str]:
    locations, line, file = explained.windows, explained.line, explained.file
    made = [row for row in file.variants if row.missing is None]
    searched = made if line is None else [row for row in made if row.kind in INDEPENDENT_WINDOW_KINDS]
    skipped = ", ".join(row.kind for row in made if row not in searched)
    note = [f"not searched: variants with other line numbers ({skipped})"] if skipped else []
    if not locations:
        none = "none" if line is None else f"no window contains line {line}"
        return [none, *note] if file.status == "kept" else []
    listed = [_window_text(location) for location in locations[:MAX_WINDOWS]]
    more = len(locations) - MAX_WINDOWS
    total = (file.windows or 0) + sum(row.windows for row in searched)
    summary = f"{len(locations):,} of {total:,}"
    if line is not None:
        contain = "contains" if len(locations) == 1 else "contain"
        summary = f"{len(locations):,} of {counted(total, 'window')} {contain} line {line}"
    return [
        summary,
        *listed,
        *([f"and {more:,} more"] if more > 0 else []),
        *note,
    ]
