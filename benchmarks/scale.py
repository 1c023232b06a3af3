"""Does it scale? Time and memory of 100,000 files / 2 GB against a tenth of it, and of a build after 1 % has changed.

    python benchmarks/gather.py corpus --tenth corpus-tenth
    python benchmarks/scale.py corpus corpus-tenth     # prints benchmarks/scale.md; about 25 minutes

Files are changed in place, and changed back in the end.
"""

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from measure import GRISTMILL, machine

from gristmill.core.manifest import Manifest, read_manifest
from gristmill.core.progress import Progress
from gristmill.lab.bench.process import run

CHANGED_ONE_IN = 100
LARGE_FILE_BYTES = 500_000_000
FORMATS = ("none", "zstd")
NAMES = {"none": "plain", "zstd": "zstd"}


class Built(NamedTuple):
    seconds: float
    peak_mb: float | None
    """If it was watched, which costs time."""
    manifest: Manifest

    @property
    def phases(self) -> str:
        return ", ".join(f"{name} {took:.1f}" for name, took in self.manifest.run.seconds.items() if name != "total")


def build(sources: Sequence[str], out: Path, *options: str, watched: bool = False) -> Built:
    command = [GRISTMILL, "build", *sources, "--quiet", "--out", str(out), *options]
    ran = run("build", command, progress=Progress(), watched=watched)
    built = Built(ran.seconds, ran.peak_mb, read_manifest(out))
    memory = f", {built.peak_mb:.0f} MB" if built.peak_mb else ""
    say(f"{' '.join(sources)} {' '.join(options)}: {built.seconds:.1f} s{memory} ({built.phases})")
    return built


def peak_mb(sources: Sequence[str], folder: Path, *options: str) -> str:
    """Of one more build, from scratch."""
    out = folder / "watched"
    built = build(sources, out, *options, watched=True)
    for place in (out, out.with_name("watched.work")):
        shutil.rmtree(place)
    return f"{built.peak_mb:,.0f} MB"


def say(text: str) -> None:
    print(f"  {text}", file=sys.stderr, flush=True)


class Corpus(NamedTuple):
    num_files: int
    num_bytes: int

    @classmethod
    def of(cls, folder: str) -> "Corpus":
        sizes = [path.stat().st_size for path in Path(folder).rglob("*") if path.is_file()]
        return cls(len(sizes), sum(sizes))

    def __str__(self) -> str:
        return f"{self.num_files:,} files, {self.num_bytes / 1e6:,.0f} MB"


@contextmanager
def one_percent_changed(folder: str) -> Iterator[int]:
    """Every file in a hundred, by its name, gets a line more; hard links elsewhere keep what they had."""
    before: dict[Path, bytes] = {}
    try:
        for path in sorted(Path(folder).rglob("*")):
            name = str(path.relative_to(folder)).encode("utf-8", "surrogateescape")
            if path.is_file() and int.from_bytes(hashlib.sha256(name).digest()[:4], "big") % CHANGED_ONE_IN == 0:
                before[path] = path.read_bytes()
                lines = before[path].split(b"\n")
                lines.insert(len(lines) // 2, b"changed = %d" % len(before))
                replace(path, b"\n".join(lines))
        yield len(before)
    finally:
        for path, content in before.items():
            replace(path, content)


def replace(path: Path, content: bytes) -> None:
    beside = path.with_name(path.name + ".new")
    beside.write_bytes(content)
    os.replace(beside, path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus")
    parser.add_argument("tenth")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=".") as name:
        print("# Does it scale\n")
        print(f"`python benchmarks/scale.py CORPUS TENTH`. {machine('gristmill', 'gigatoken', 'numpy')}.\n")
        print(f"The corpus: {Corpus.of(options.corpus)}, source distributions from PyPI (benchmarks/gather.py).")
        print(f"A tenth of it: {Corpus.of(options.tenth)}.\n")
        scratch = linear(options.corpus, options.tenth, Path(name))
        incremental(options.corpus, Path(name), scratch)
        large_file(options.corpus, options.tenth, Path(name))


def linear(corpus: str, tenth: str, folder: Path) -> dict[str, Built]:
    print("## Time and memory as the source grows\n")
    print("Memory is that of one more build, as looking at it costs time.\n")
    print("| rows | source | seconds | ms per MB | peak memory, all processes | seconds by phase |")
    print("| --- | --- | --- | --- | --- | --- |")
    scratch = {}
    for rows in FORMATS:
        per_mb = []
        for label, source in (("a tenth", tenth), ("all", corpus)):
            built = scratch[rows] = build(
                [source], folder / f"{NAMES[rows]}-{label.replace(' ', '-')}", "--compress", rows
            )
            per_mb.append(1e9 * built.seconds / Corpus.of(source).num_bytes)
            peak = peak_mb([source], folder, "--compress", rows)
            print(f"| {NAMES[rows]} | {label} | {built.seconds:.1f} | {per_mb[-1]:.1f} | {peak} | {built.phases} |")
        print(f"| {NAMES[rows]} | all : a tenth | | {per_mb[1] / per_mb[0]:.2f} | | |", flush=True)
    return scratch


def incremental(corpus: str, folder: Path, scratch: dict[str, Built]) -> None:
    print("\n## After a change\n")
    print(
        "Again: nothing has changed. Changed: every hundredth file has a line more. Times as fast as the build above,"
    )
    print(
        "from scratch. What comes out is compared with a clean build of the same (`gristmill check --against-clean`).\n"
    )
    print("| rows | build | seconds | times as fast | bytes | seconds by phase |")
    print("| --- | --- | --- | --- | --- | --- |")
    for rows in FORMATS:
        out = folder / f"{NAMES[rows]}-all"
        again = build([corpus], out, "--compress", rows)
        faster = scratch[rows].seconds / again.seconds
        print(f"| {NAMES[rows]} | again | {again.seconds:.1f} | {faster:.1f} | | {again.phases} |")
        with one_percent_changed(corpus) as count:
            changed = build([corpus], out, "--compress", rows)
            same = "the same" if is_as_clean(out) else "OTHER BYTES"
        faster = scratch[rows].seconds / changed.seconds
        print(
            f"| {NAMES[rows]} | {count:,} files changed | {changed.seconds:.1f} | {faster:.1f} | {same} "
            f"| {changed.phases} |",
            flush=True,
        )


def is_as_clean(out: Path) -> bool:
    command = [GRISTMILL, "check", "--against-clean", "--json", str(out)]
    answer = subprocess.run(command, stdout=subprocess.PIPE, check=False)
    return bool(json.loads(answer.stdout)["ok"])


def large_file(corpus: str, tenth: str, folder: Path) -> None:
    """As much real code in one file as 25,000 have: of those that were kept, or it would be left out as they were."""
    source = folder / "large"
    source.mkdir()
    size = 0
    with (source / "large.py").open("wb") as stream, (folder / "zstd-all" / "files.jsonl").open("rb") as rows:
        for row in map(json.loads, rows):
            if row["status"] == "kept" and row["path"].endswith(".py") and size < LARGE_FILE_BYTES:
                size += stream.write((Path(corpus) / row["path"]).read_bytes() + b"\n")
    options = ("--compress", "zstd", "--max-file-bytes", "1000000000")
    print("\n## One large file\n")
    print("Beside the tenth; its limits on size are raised on purpose. It gets a batch and a process of its own.\n")
    print("| source | seconds | peak memory, all processes | seconds by phase |")
    print("| --- | --- | --- | --- |")
    for label, sources in (("a tenth", [tenth]), (f"and a file of {size / 1e6:,.0f} MB", [tenth, str(source)])):
        built = build(sources, folder / f"large-{len(sources)}", *options)
        print(f"| {label} | {built.seconds:.1f} | {peak_mb(sources, folder, *options)} | {built.phases} |", flush=True)


if __name__ == "__main__":
    main()
