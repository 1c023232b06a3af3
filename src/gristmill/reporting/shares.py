"""Kept files by language and by licence, with their tokens in each split; and those that secrets were taken out of."""

from collections import Counter

from gristmill.filestable import FileRow
from gristmill.records import Split
from gristmill.reporting.facts import Example, PerSplit, Share, brief

SECRET_FILES = 20
LINES_NAMED = 5


class Shares:
    """Counted as the rows of files.jsonl come in."""

    def __init__(self) -> None:
        self._languages: dict[str, _Tally] = {}
        self._licenses: dict[str, _Tally] = {}
        self.secret_files: list[Example] = []
        """The first of them."""

    def add(self, row: FileRow) -> None:
        if row.split is None or row.status != "kept":
            return
        for tallies, name in ((self._languages, row.language), (self._licenses, row.license)):
            tallies.setdefault(brief(name or ""), _Tally()).add(row.split, row.shown_tokens)
        if row.redactions and len(self.secret_files) < SECRET_FILES:
            self.secret_files.append(Example(name=brief(row.name), detail=brief(_redacted(row))))

    def languages(self) -> list[Share]:
        return _by_tokens(self._languages)

    def licenses(self) -> list[Share]:
        return _by_tokens(self._licenses)


class _Tally:
    def __init__(self) -> None:
        self.num_files = 0
        self.tokens: PerSplit = dict.fromkeys(Split, 0)

    def add(self, split: Split, num_tokens: int) -> None:
        self.num_files += 1
        self.tokens[split] += num_tokens


def _by_tokens(tallies: dict[str, _Tally]) -> list[Share]:
    """Most first."""
    shares = [Share(name=name, files=one.num_files, tokens=one.tokens) for name, one in tallies.items()]
    return sorted(shares, key=lambda share: (-sum(share.tokens.values()), share.name))


def _redacted(row: FileRow) -> str:
    """`2 private-key in lines 3, 9`: never what was there."""
    kinds = Counter(one.kind for one in row.redactions)
    lines = sorted({one.line for one in row.redactions})
    named = ", ".join(f"{line:,}" for line in lines[:LINES_NAMED]) + (", …" if len(lines) > LINES_NAMED else "")
    told = ", ".join(f"{count:,} {kind}" for kind, count in kinds.items())
    return f"{told} in line{'s' if len(lines) > 1 else ''} {named}"
