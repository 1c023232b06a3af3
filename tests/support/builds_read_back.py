"""A dataset of this project's own tests, and whether a format, read by whomever, holds the same."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from gristmill import Config, build
from gristmill.core.records import Split
from gristmill.core.schema import Schema
from gristmill.formats.batch import WindowBatch
from gristmill.formats.content_digest import Content, row_digests
from gristmill.formats.format import Format, Target
from gristmill.formats.jsonl_rows import batch_of_lines
from support.source_trees import ROOT


class Built(NamedTuple):
    schema: Schema
    content_sha256: str
    rows: dict[Split, WindowBatch]

    @classmethod
    def of_tests(cls, out: Path) -> "Built":
        manifest = build(Config(sources=[str(ROOT / "tests")], out=str(out)))
        schema = Schema.of(manifest)
        rows = {split: out.joinpath(f"{split}.jsonl").read_bytes().splitlines() for split in manifest.splits}
        batches = {split: batch_of_lines(lines, schema) for split, lines in rows.items() if lines}
        return cls(schema, manifest.content_sha256, batches)

    def write(self, form: Format, folder: Path) -> None:
        for split, batch in self.rows.items():
            form.write([batch], Target(folder, split, self.schema))

    def require_content(self, read: Callable[[Split], WindowBatch]) -> None:
        assert len(self.rows) > 1
        found = content_of({split: [row_digests(split, read(split))] for split in self.rows})
        assert found == self.content_sha256

    def require_rows(self, folder: Path) -> None:
        """In <split>.jsonl, as a library read them."""
        lines = {split: folder.joinpath(f"{split}.jsonl").read_bytes().splitlines() for split in self.rows}
        self.require_content(lambda split: batch_of_lines(lines[split], self.schema))

    def require_read(self, form: Format, folder: Path) -> None:
        """By our own reader."""
        readers = {split: form.open(folder, split, self.schema) for split in self.rows}
        self.require_content(lambda split: readers[split].read(0, len(readers[split])))


def content_of(rows: Mapping[Split, Iterable[bytes]]) -> str:
    """Of the digests of each split's rows, in their order."""
    content = Content()
    for split, digests in rows.items():
        for some in digests:
            content.add(split, some)
    return content.sha256()
