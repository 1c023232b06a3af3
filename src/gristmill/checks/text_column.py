"""The `text` column: where a tokenizer does not give the text back, secrets are looked for in it, row by row."""

from collections.abc import Sequence
from itertools import zip_longest
from typing import NamedTuple

from gristmill.checks.findings import Faults
from gristmill.checks.packs import PackRules
from gristmill.checks.rows import Row
from gristmill.checks.secrets import LOOK_AHEAD_BYTES, LOOK_BACK_BYTES, secrets_in
from gristmill.checks.spelling import Spelling
from gristmill.checks.tokens import RowRules
from gristmill.core.records import VariantKind


class PartRules(NamedTuple):
    """All that a process must know to read a part of a data file."""

    rows: RowRules
    spelling: Spelling
    looks_for_secrets: bool
    """In the column; where the ids spell the text, that is looked at as a whole."""
    emails: bool
    pack: PackRules | None = None
    """Of rows that hold windows of several files."""

    def of_file(self, name: str) -> "PartRules":
        return self._replace(rows=self.rows._replace(file=name))


def _whose(row: Row) -> tuple[object, ...]:
    return tuple(map(row.fields.get, ("repo", "path", "repeat", "variant")))


def secrets_in_column(rows: Sequence[Row], rules: PartRules, faults: Faults) -> None:
    """What touches an edge of a window is judged in the window beside it, which shows more."""
    if not rules.looks_for_secrets:
        return
    for row, after in zip_longest(rows, rows[1:]):
        fields = row.fields
        if fields.get("variant") == VariantKind.FIM:  # the file's text in another order, which `variants` checks
            continue
        is_last = after is not None and _whose(after) != _whose(row)
        text = fields["text"].encode()
        for kind, start, end in secrets_in(text, emails=rules.emails):
            is_at_end = not is_last and end >= len(text) - LOOK_AHEAD_BYTES
            if is_at_end or (fields["start"] and start < LOOK_BACK_BYTES):
                continue
            line = fields["lines"][0] + text.count(b"\n", 0, start)
            path = f"{fields['repo']}/{fields['path']}"
            faults.add("secrets", f"{kind} in line {line}", file=rules.rows.file, row=row.number, path=path)
