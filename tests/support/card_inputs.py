"""Inputs for dataset cards: source files, a dataset in two formats, and names that could break a page."""

from pathlib import Path

import msgspec

from gristmill import open_dataset
from gristmill.core.manifest import BenchmarkFacts, FileFacts, SourceFacts
from gristmill.core.records import Split

HOSTILE = (
    "<img src=x onerror=alert(1)>",
    "---\nlicense: mit\n---\n",
    "a|b|c",
    "```\n# title\n",
    "`x` ![i](http://e.example/i.png) [l](javascript:alert(1))",
    "\u202egnp.exe\u2066",
    "https://evil.example www.evil.example a@evil.example",
    "!!python/object:os.system",
    "- x: {y: [",
    "\ud800",
    "",
    "&lt;b&gt; \\` *x* _y_ ~~z~~",
)


def write_sources(folder: Path) -> Path:
    """Write different Python files, and also an empty file and a file with secrets."""
    folder.mkdir()
    for number in range(24):
        names = [f"v{number}_{index}_{(number * 7919 + index * 104729) % 1000003}" for index in range(40)]
        body = "".join(
            f"def {name}(x):\n    {name}y = x * {len(name)} + {number}\n    return {name}y\n" for name in names
        )
        (folder / f"m{number:02}.py").write_text(body)
    (folder / "empty.py").write_text("")
    (folder / "read.md").write_text("# Notes\n\nSome words about all of this, in a text that is no code.\n" * 3)
    (folder / "key.py").write_text('password = "hunter2-Zq81xLw0vB"\nAWS = "AKIAIOSFODNN7QYXWZLM"\n')
    (folder / "LICENSE").write_text("SPDX-License-Identifier: MIT\n")
    return folder


def hostile_manifest(manifest, name):
    """Return the manifest with `name` in place of every name that users or other projects choose."""
    replace = msgspec.structs.replace
    return replace(
        manifest,
        sources=[SourceFacts(repo=name, commit=name, found=1)] * 5,
        tokenizer=replace(manifest.tokenizer, name=name, revision=name, engine=name),
        tokens_by_language={name: {Split.TRAIN: 5}, "python": {Split.TRAIN: 4}},
        counts=replace(manifest.counts, licenses={name: 3, "MIT": 1}, redactions={name: 2}),
        decontamination=replace(
            manifest.decontamination,
            against=[BenchmarkFacts(name=name, sha256=name, texts=1, texts_too_short=0, tokens_cut=0)],
        ),
        settings={**manifest.settings, "scan": {"include": [name], name: name}},
        versions={name: name},
        made_by=name,
        warnings=[name],
    )


def with_parquet(folder: Path, to: Path, manifest):
    """Write the rows of a dataset to `to` as JSONL and Parquet, and return a manifest that lists both."""
    import pyarrow as pa
    from pyarrow import parquet

    (to / "parquet").mkdir(parents=True)
    files = dict(manifest.files)
    for split in Split:
        (to / f"{split}.jsonl").write_bytes((folder / f"{split}.jsonl").read_bytes())
        path = to / f"parquet/{split}.parquet"
        parquet.write_table(pa.Table.from_pylist(list(open_dataset(folder)[split])), path)
        facts = manifest.files[f"{split}.jsonl"]
        files[f"parquet/{split}.parquet"] = FileFacts(
            bytes=path.stat().st_size, sha256="0" * 64, rows=facts.rows, split=split, format="parquet"
        )
    return msgspec.structs.replace(manifest, files=files, formats=["jsonl", "parquet"])
