"""A dataset built from this project's tests, and assertions that a format returns the same rows."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from gristmill import Config, build
from gristmill.core.records import Split
from gristmill.core.schema import Schema
from gristmill.formats.batch import WindowBatch
from gristmill.formats.content_digest import ContentDigest, row_digests
from gristmill.formats.format import Format, Target
from gristmill.formats.jsonl_rows import parse_lines
from support.source_trees import ROOT


class BuiltDataset(NamedTuple):
    schema: Schema
    content_sha256: str
    rows: dict[Split, WindowBatch]

    @classmethod
    def build_from_tests(cls, out: Path) -> "BuiltDataset":
        manifest = build(Config(sources=[str(ROOT / "tests")], out=str(out)))
        schema = Schema.of(manifest)
        rows = {split: out.joinpath(f"{split}.jsonl").read_bytes().splitlines() for split in manifest.splits}
        batches = {split: parse_lines(lines, schema) for split, lines in rows.items() if lines}
        return cls(schema, manifest.content_sha256, batches)

    def write(self, form: Format, folder: Path) -> None:
        for split, batch in self.rows.items():
            form.write([batch], Target(folder, split, self.schema))

    def require_content(self, read: Callable[[Split], WindowBatch]) -> None:
        """Assert that the rows that `read` returns have the content digest of the build."""
        assert len(self.rows) > 1
        found = content_of({split: [row_digests(split, read(split))] for split in self.rows})
        assert found == self.content_sha256

    def require_rows(self, folder: Path) -> None:
        """Assert that the rows in <split>.jsonl, written by a library, have the content digest of the build."""
        lines = {split: folder.joinpath(f"{split}.jsonl").read_bytes().splitlines() for split in self.rows}
        self.require_content(lambda split: parse_lines(lines[split], self.schema))

    def require_read(self, form: Format, folder: Path) -> None:
        """Assert that the rows that gristmill's reader returns have the content digest of the build."""
        readers = {split: form.open(folder, split, self.schema) for split in self.rows}
        self.require_content(lambda split: readers[split].read(0, len(readers[split])))


def content_of(rows: Mapping[Split, Iterable[bytes]]) -> str:
    """Compute the content digest of a dataset from the row digests of each split, which must be in row order."""
    content = ContentDigest()
    for split, digests in rows.items():
        for rows_digest in digests:
            content.add(split, rows_digest)
    return content.sha256()
