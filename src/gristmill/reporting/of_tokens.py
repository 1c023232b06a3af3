"""Where the tokens are: by language, by folder, by licence."""

from collections.abc import Iterator
from typing import NamedTuple

from gristmill.drawing.table import Cell, Table
from gristmill.naming import counted
from gristmill.records import Split
from gristmill.reporting.charts import Bars, Series, Treemap, compact, hint, label
from gristmill.reporting.facts import Facts, Folder, Share
from gristmill.reporting.section import Figure, Section, listed, paragraph, share_text, short_number

MOST_BARS = 12
MOST_TOLD = 3
ALL_SOURCES = "all"
"""The box's id; those of the others begin with a number."""
SPLIT_STYLES = {Split.TRAIN: 1, Split.VALIDATION: 0, Split.TEST: 2}
"""Colour and pattern, the same in all charts."""


class _Box(NamedTuple):
    id: str
    parent: str
    name: str
    told: str
    files: int
    tokens: int


def tokens_section(facts: Facts) -> Section:
    """`tokens` are counted once each, however many windows show them."""
    told = (
        f"{short_number(facts.tokens)} tokens, each counted once, from {counted(facts.kept, 'file')} in "
        f"{counted(len(facts.languages), 'language')}."
    )
    figures = [
        *([_shares("languages", "Tokens by language", "language", facts.languages)] if facts.languages else []),
        *([_shares("licenses", "Tokens by licence", "licence", facts.licenses)] if facts.licenses else []),
        *([_folders(facts)] if facts.folders else []),
    ]
    empty = [paragraph("There are no tokens to tell of.")] if not figures else []
    return Section("tokens", "Where the tokens are", told, figures, empty)


def total(share: Share) -> int:
    return sum(share.tokens.values())


def _shares(name: str, title: str, what: str, shares: list[Share]) -> Figure:
    everything = sum(map(total, shares))
    most = [f"{one.name} has {share_text(total(one), everything)}" for one in shares[:MOST_TOLD]]
    drawn = _with_others(shares)
    return Figure(
        name,
        title,
        f"{listed(most)} of the tokens.",
        Bars(
            labels=[label(one.name) for one in drawn],
            series=[_series(split, drawn, everything) for split in splits_of(shares)],
            totals=[label(share_text(total(one), everything)) for one in drawn],
            is_stacked=True,
            axis="tokens",
        ),
        shares_table(title, what, shares),
    )


def splits_of(shares: list[Share]) -> list[Split]:
    return [split for split in Split if any(one.tokens.get(split) for one in shares)]


def _with_others(shares: list[Share]) -> list[Share]:
    """The largest, and the others as one."""
    if len(shares) <= MOST_BARS:
        return shares
    others = shares[MOST_BARS - 1 :]
    tokens = {split: sum(one.tokens.get(split, 0) for one in others) for split in Split}
    name = counted(len(others), "other")
    return [*shares[: MOST_BARS - 1], Share(name=name, files=sum(one.files for one in others), tokens=tokens)]


def _series(split: Split, shares: list[Share], everything: int) -> Series:
    return Series(
        name=str(split),
        values=[one.tokens.get(split, 0) for one in shares],
        hints=[
            hint(
                one.name,
                f"{split}: {counted(one.tokens.get(split, 0), 'token')}",
                f"in all {total(one):,} ({share_text(total(one), everything)}), {counted(one.files, 'file')}",
            )
            for one in shares
        ],
        style=SPLIT_STYLES[split],
    )


def shares_table(title: str, what: str, shares: list[Share]) -> Table:
    splits = splits_of(shares)
    everything = sum(map(total, shares))
    has_files = any(one.files for one in shares)
    rows: list[list[Cell]] = [
        [
            *([one.name, one.files] if has_files else [one.name]),
            *(total(one), share_text(total(one), everything)),
            *(one.tokens.get(split, 0) for split in splits),
        ]
        for one in shares
    ]
    heads = [what, *(["files"] if has_files else []), "tokens", "share", *map(str, splits)]
    return Table(title, heads, rows)


def _folders(facts: Facts) -> Figure:
    left_out = facts.num_folders_left_out
    told = "A folder's area is its tokens. A click on it looks inside; the line above the drawing leads back."
    told += f" {counted(left_out, 'small folder')} counted in the one above." if left_out else ""
    return Figure("folders", "Tokens by folder", told, _treemap(facts.folders), _folders_table(facts), is_wide=True)


def _treemap(folders: list[Folder]) -> Treemap:
    boxes = list(_boxes(folders))
    return Treemap(
        labels=[label(box.name) for box in boxes],
        ids=[box.id for box in boxes],
        parents=[box.parent for box in boxes],
        values=[box.tokens for box in boxes],
        texts=[compact(box.tokens) for box in boxes],
        hints=[hint(box.told, f"{counted(box.tokens, 'token')} in {counted(box.files, 'file')}") for box in boxes],
    )


def _boxes(folders: list[Folder]) -> Iterator[_Box]:
    """Each folder, and where there are folders in it, what is in it besides them; around several sources one box more.

    Without that box nothing could be seen to click on that leads back from a source to all of them.
    """
    numbers = {folder.id: str(number) for number, folder in enumerate(folders)}
    sources = [folder for folder in folders if not folder.parent]
    if len(sources) > 1:
        files, tokens = sum(one.files for one in sources), sum(one.tokens for one in sources)
        yield _Box(ALL_SOURCES, "", "all sources", "all sources", files, tokens)
    inner: dict[str, list[Folder]] = {}
    for folder in folders:
        inner.setdefault(folder.parent, []).append(folder)
    for folder in folders:
        number = numbers[folder.id]
        parent = numbers.get(folder.parent, ALL_SOURCES if len(sources) > 1 else "")
        yield _Box(number, parent, folder.name, folder.id, folder.files, folder.tokens)
        files, tokens = (
            getattr(folder, name) - sum(getattr(one, name) for one in inner.get(folder.id, []))
            for name in ("files", "tokens")
        )
        if inner.get(folder.id) and tokens > 0:
            yield _Box(f"{number}-files", number, "other files", f"{folder.id}: other files", files, tokens)


def _folders_table(facts: Facts) -> Table:
    rows: list[list[Cell]] = [
        [folder.id, folder.files, folder.tokens, share_text(folder.tokens, facts.tokens)] for folder in facts.folders
    ]
    return Table("Tokens by folder", ["folder", "files", "tokens", "share"], rows)
