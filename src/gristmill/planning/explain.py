"""Why is this file in, out, or in that split; and which file does this row come from.

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
from gristmill.core.files_table import FileRow, FimRow, VariantRow, file_rows
from gristmill.core.layout import FILES
from gristmill.core.manifest import Manifest
from gristmill.core.names import counted, did_you_mean, path_text, printable
from gristmill.core.records import BY_THEMSELVES, Cut, FileKey, Redaction, Split
from gristmill.dataset.dataset import Dataset, open_dataset
from gristmill.dataset.row_windows import Window, read_row, windows_of_file

NAMES_LISTED = 10
LONGEST_LINE_DIGITS = 12
WINDOWS_LISTED = 12
MINIMA = {rule.name for rule in RULES if rule.is_minimum}
RULE_WIDTH = 2 + max(len(rule.name) for rule in RULES)


class RuleResult(msgspec.Struct, frozen=True, kw_only=True):
    rule: str
    value: float | str | None
    limit: float | None
    """None: the rule has none."""
    is_off: bool
    """For this language."""
    is_defect: bool


class WindowPlace(msgspec.Struct, frozen=True, kw_only=True):
    row: str
    """`test:123`: what `--row` takes."""
    lines: tuple[int, int]
    start: int
    num_ids: int
    fresh: int
    repeat: int = 0
    variant: str | None = None
    fim: str | None = None
    middle: str | None = None


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    file: FileRow
    line: int | None
    """What was asked about; None: the whole file."""
    commit: str | None
    rules: list[RuleResult]
    group_members: list[str]
    """Other kept files that must be in the same split."""
    duplicates: list[tuple[str, float]]
    """Files that were dropped in favour of this one, and how similar they are; 1: the same text."""
    windows: list[WindowPlace]
    """All, or those that show the line."""
    rates: dict[str, float]
    """Of the variants that were asked for."""
    beside: list[str] = []
    """What else is in the row that was asked about, with --pack."""


def explain_file(folder: str | os.PathLike[str], path: str) -> Explanation:
    """`path` as in files.jsonl, with or without its repo, with or without `:LINE` at its end."""
    dataset = open_dataset(folder)
    manifest = dataset.manifest
    with dataset.edition.reading():
        table = {row.key: row for row in file_rows(dataset.folder / FILES)}
        row, line = _find(path, table)
        return _explain(dataset, manifest, table, row, line)


def explain_row(folder: str | os.PathLike[str], split: str, number: int) -> Explanation:
    """The file that a row shows, with this one window."""
    dataset = open_dataset(folder)
    manifest = dataset.manifest
    if split not in list(Split):
        raise InputError(f"there is no split {split!r}. Try --row train:0.")
    with dataset.edition.reading():
        return _explain_row(dataset, manifest, split, number)


def _explain_row(dataset: Dataset, manifest: Manifest, split: str, number: int) -> Explanation:
    rows = dataset[split]
    if not 0 <= number < len(rows):
        raise InputError(f"{split} has {counted(len(rows), 'row')}, counted from 0: there is no row {number}.")
    read = read_row(dataset, split, number)
    if not read.windows:
        raise InputError(f"row {split}:{number} holds only the markers before a file, and no tokens of one.")
    window, *others = read.windows
    table = {row.key: row for row in file_rows(dataset.folder / FILES)}
    row = table.get(window.file)
    if row is None:
        raise DatasetError(f"row {split}:{number} is of no file in {FILES}. `gristmill check` tells more.")
    explained = _explain(dataset, manifest, table, row, None)
    beside = [f"{one.repo}/{one.path}, lines {one.lines[0]} to {one.lines[1]}" for one in others]
    place = _place(f"{split}:{number}", window, len(read.ids) if manifest.packing is None else window.length)
    return msgspec.structs.replace(explained, windows=[place], beside=beside)


def _find(asked: str, table: dict[FileKey, FileRow]) -> tuple[FileRow, int | None]:
    """By its whole name, its path, the end of its path; else by the folder that was left out as a whole."""
    path, _, digits = asked.rpartition(":")
    is_line = bool(path) and digits.isascii() and digits.isdecimal() and len(digits) <= LONGEST_LINE_DIGITS
    choices = [(asked, None), (path, int(digits))] if is_line else [(asked, None)]
    for name, line in choices:
        found = _named(name.removeprefix("./"), table) or _named(path_text(name).removeprefix("./"), table)
        if len(found) > 1:
            listed = ", ".join(row.name for row in found[:NAMES_LISTED])
            raise InputError(f"{name!r} may be one of {counted(len(found), 'file')}: {listed}. Give more of its path.")
        if found and line is not None and not 1 <= line <= (found[0].lines or line):
            raise InputError(f"{found[0].name} has {counted(found[0].lines or 0, 'line')}: there is no line {line}.")
        if found:
            return found[0], line
    paths = (row.path for row in table.values())
    otherwise = "What a .gitignore hides is not found either."
    if digits.isdecimal() and path in {"", *Split}:
        otherwise = f"A row is named with --row {path or Split.TRAIN}:{digits}."
    hint = did_you_mean(choices[-1][0], paths, otherwise)
    raise InputError(f"no file {asked!r} was found when this dataset was built. {hint}")


def _named(wanted: str, table: dict[FileKey, FileRow]) -> list[FileRow]:
    """The best way in which this names any file."""
    ways: tuple[Callable[[FileRow], bool], ...] = (
        lambda row: row.name == wanted,
        lambda row: row.path == wanted,
        lambda row: f"/{row.path}".endswith(f"/{wanted}"),
        lambda row: row.path.endswith("/") and wanted.startswith((row.path, row.name)),
    )
    found = ([row for row in table.values() if way(row)] for way in ways)
    return next((rows for rows in found if rows), []) if wanted else []


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
        windows=[place for place in _windows(dataset, row) if line is None or place.lines[0] <= line <= place.lines[1]],
    )


def _rules(row: FileRow, manifest: Manifest) -> Iterator[RuleResult]:
    if row.measures is None or row.language is None:
        return
    try:
        limits = Limits(msgspec.convert(manifest.settings["rules"], RulesConfig))
    except (KeyError, msgspec.ValidationError, ConfigError) as error:
        raise DatasetError(f"the manifest is damaged: settings.rules: {error}. Build the dataset again.") from None
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


def _windows(dataset: Dataset, row: FileRow) -> Iterator[WindowPlace]:
    if row.status != "kept" or row.split is None:
        return
    for number, (num_ids, windows) in windows_of_file(dataset, row.split, row.key):
        for window in windows:
            yield _place(
                f"{row.split}:{number}", window, num_ids if dataset.manifest.packing is None else window.length
            )


def _place(row: str, window: Window, num_ids: int) -> WindowPlace:
    return WindowPlace(
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
        *_part("licence", [_license(file)] if file.license else []),
        *_part("rules", [_rule(result, file.detail) for result in explained.rules]),
        *_part("group", _listed([f"in one split with {name}" for name in explained.group_members])),
        *_part("twins", _listed([f"{name} was dropped: {near:.3f} alike" for name, near in explained.duplicates])),
        *_part("secrets", [_redaction(one) for one in file.redactions if explained.line in {None, one.line}]),
        *_part("cuts", [_cut(cut) for cut in file.cuts if _touches(cut, explained.line)]),
        *_part("drawn", _draw_lines(file)),
        *_part("weight", [f"{file.weight:g}, for a trainer that draws"] if file.weight not in {None, 1.0} else []),
        *_part("beside", _listed([f"in the row: {name}" for name in explained.beside])),
        *_part("fim", [_fim(file.fim)] if file.fim is not None else []),
        *_part("variants", [*map(_variant, file.variants), *_not_chosen(explained)]),
        *_part("windows", _window_lines(explained)),
    ]
    return "\n".join(f"{name:<8} {printable(text)}" for name, text in lines)


def _part(name: str, lines: list[str]) -> Iterator[tuple[str, str]]:
    for number, line in enumerate(lines):
        yield ("" if number else name), line


def _listed(lines: list[str]) -> list[str]:
    more = len(lines) - NAMES_LISTED
    return lines if more <= 0 else [*lines[:NAMES_LISTED], f"and {more:,} more"]


def _facts(file: FileRow) -> str:
    facts = [
        file.language,
        file.encoding,
        None if file.bytes is None else counted(file.bytes, "byte"),
        None if file.lines is None else counted(file.lines, "line"),
        None if file.tokens is None else counted(file.tokens, "token"),
    ]
    return ", ".join(fact for fact in facts if fact) or "never read"


def status_text(file: FileRow) -> str:
    """In a sentence, why it is in or out."""
    if file.reason is not None:
        return f"dropped, {file.reason}: {file.reason.meaning}. Here: {file.detail}"
    moved = f", moved there from {file.moved_from}" if file.moved_from else ""
    return f"kept in {file.split}{moved}, group {file.group}"


def _license(file: FileRow) -> str:
    if file.license == NOASSERTION:
        if file.license_from == HEADER:
            return f"{NOASSERTION}: its first lines name no SPDX id, or in words another licence than its folder's"
        found = f"left open by {file.license_from}" if file.license_from else "no licence file in its folder or above"
        return f"{NOASSERTION}: {found}"
    return f"{file.license}, by {file.license_from}"


def _rule(result: RuleResult, detail: str | None) -> str:
    value = "-" if result.value is None else result.value if isinstance(result.value, str) else f"{result.value:g}"
    bound = "at least" if result.rule in MINIMA else "at most"
    limit = "" if result.limit is None else "by name" if result.limit == math.inf else f"{bound} {result.limit:g}"
    verdict = f"FAILED: {detail}" if result.is_defect else "off" if result.is_off else "ok"
    return f"{result.rule:<{RULE_WIDTH}} {value:>12}  {limit:<14} {verdict}"


def _redaction(one: Redaction) -> str:
    return f"line {one.line}: {one.kind} was redacted (hash {one.hash})"


def _cut(cut: Cut) -> str:
    return (
        f"lines {cut.first_line} to {cut.last_line}, tokens {cut.start:,} to {cut.end:,}: "
        f"{cut.end - cut.start:,} tokens that are also in {cut.shared_with}"
    )


def _touches(cut: Cut, line: int | None) -> bool:
    return line is None or cut.first_line <= line <= cut.last_line


def _draw_lines(file: FileRow) -> list[str]:
    lines = []
    if file.draw is not None:
        passes, extra = file.draw
        left = f"; {counted(file.left_tokens, 'token')} in none" if file.left_tokens else ""
        more = f", and {extra:,} of them once more" if extra else ""
        lines.append(
            (f"all its windows {counted(passes, 'time')}{more}" if passes else f"{extra:,} of its windows") + left
        )
    return lines


def _fim(row: FimRow) -> str:
    if row.missing is not None:
        return f"not rewritten, {row.missing}: {row.missing.meaning}"
    return f"{counted(row.rewritten, 'window')} rewritten for fill in the middle, seed {row.seed}"


def _variant(row: VariantRow) -> str:
    if row.missing is not None:
        return f"{row.kind:<8} none, {row.missing}: {row.missing.meaning}"
    return f"{row.kind:<8} {counted(row.windows, 'window')}, {counted(row.tokens, 'token')}, seed {row.seed}"


def _not_chosen(explained: Explanation) -> list[str]:
    file, told = explained.file, {row.kind for row in explained.file.variants}
    if file.status != "kept":
        return []
    if file.split is not Split.TRAIN:
        return ["none: only train files have variants"] if explained.rates else []
    why = "not chosen, at a rate of" if file.windows else "no window of it was drawn; rate"
    return [f"{kind:<8} none: {why} {rate:g}" for kind, rate in explained.rates.items() if kind not in told]


def _told(place: WindowPlace) -> str:
    told = f"row {place.row:<18} lines {place.lines[0]} to {place.lines[1]}, token {place.start:,} on"
    repeat = f", repeat {place.repeat}" if place.repeat else ""
    own = "" if place.variant in BY_THEMSELVES else " (lines and tokens of its own)"
    variant = f", {place.variant}{own}" if place.variant else ""
    fim = f", {place.fim}, middle: {place.middle}" if place.fim else ""
    return f"{told}, {place.fresh} fresh{repeat}{variant}{fim}"


def _window_lines(explained: Explanation) -> list[str]:
    places = explained.windows
    where = "" if explained.line is None else f" that show line {explained.line}"
    if not places:
        return [f"none{where}"] if explained.file.status == "kept" else []
    shown = [_told(place) for place in places[:WINDOWS_LISTED]]
    more = len(places) - WINDOWS_LISTED
    total = (explained.file.windows or 0) + sum(row.windows for row in explained.file.variants)
    return [
        f"{len(places):,} of {total:,}{where}",
        *shown,
        *([f"and {more:,} more"] if more > 0 else []),
    ]
