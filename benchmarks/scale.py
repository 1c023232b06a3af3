"""Measure time and memory of builds of 100,000 files (2 GB) and of a tenth of the files, and of rebuilds after changes.

    python benchmarks/gather.py corpus --tenth corpus-tenth
    python benchmarks/scale.py corpus corpus-tenth     # prints the contents of benchmarks/scale.md; about 25 minutes

The script changes files of the corpus in place, and restores the files at the end.
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

from measure import GRISTMILL, machine_text

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
    """None in a timed build, because sampling memory slows a build down."""
    manifest: Manifest

    @property
    def phases(self) -> str:
        return ", ".join(f"{name} {took:.1f}" for name, took in self.manifest.run.seconds.items() if name != "total")


def build(sources: Sequence[str], out: Path, *options: str, watched: bool = False) -> Built:
    command = [GRISTMILL, "build", *sources, "--quiet", "--out", str(out), *options]
    ran = run("build", command, progress=Progress(), watched=watched)
    built = Built(ran.seconds, ran.peak_mb, read_manifest(out))
    memory = f", {built.peak_mb:.0f} MB" if built.peak_mb else ""
    log(f"{' '.join(sources)} {' '.join(options)}: {built.seconds:.1f} s{memory} ({built.phases})")
    return built


def peak_mb(sources: Sequence[str], folder: Path, *options: str) -> str:
    """Return the peak memory of an additional build from scratch."""
    out = folder / "watched"
    built = build(sources, out, *options, watched=True)
    for written in (out, out.with_name("watched.work")):
        shutil.rmtree(written)
    return f"{built.peak_mb:,.0f} MB"


def log(text: str) -> None:
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
def change_one_percent(folder: str) -> Iterator[int]:
    """Insert a line into one in a hundred files, chosen by hashed path, and restore the files at the end.

    Hard links to these files in other folders keep the old content.
    """
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
    """Replace the file with a new file, because changing the existing file would change all its hard links."""
    temporary = path.with_name(path.name + ".new")
    temporary.write_bytes(content)
    os.replace(temporary, path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus")
    parser.add_argument("tenth")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=".") as name:
        print("# Time and memory at scale\n")
        print(f"`python benchmarks/scale.py CORPUS TENTH`. {machine_text('gristmill', 'gigatoken', 'numpy')}.\n")
        print(f"The corpus: {Corpus.of(options.corpus)}, source distributions from PyPI (benchmarks/gather.py).")
        print(f"A tenth of the corpus: {Corpus.of(options.tenth)}.\n")
        cold_builds = print_growth(options.corpus, options.tenth, Path(name))
        print_rebuilds(options.corpus, Path(name), cold_builds)
        print_large_file(options.corpus, options.tenth, Path(name))


def print_growth(corpus: str, tenth: str, folder: Path) -> dict[str, Built]:
    print("## Time and memory as the source grows\n")
    print("Memory is measured in a separate build, because sampling it takes time.\n")
    print("| rows | source | seconds | ms per MB | peak memory, all processes | seconds by phase |")
    print("| --- | --- | --- | --- | --- | --- |")
    cold_builds = {}
    for rows in FORMATS:
        per_mb = []
        for label, source in (("a tenth", tenth), ("all", corpus)):
            built = cold_builds[rows] = build(
                [source], folder / f"{NAMES[rows]}-{label.replace(' ', '-')}", "--compress", rows
            )
            per_mb.append(1e9 * built.seconds / Corpus.of(source).num_bytes)
            peak = peak_mb([source], folder, "--compress", rows)
            print(f"| {NAMES[rows]} | {label} | {built.seconds:.1f} | {per_mb[-1]:.1f} | {peak} | {built.phases} |")
        print(f"| {NAMES[rows]} | all : a tenth | | {per_mb[1] / per_mb[0]:.2f} | | |", flush=True)
    return cold_builds


def print_rebuilds(corpus: str, folder: Path, cold_builds: dict[str, Built]) -> None:
    print("\n## After a change\n")
    print(
        "`again` is a rebuild without changes. `files changed` is a rebuild after a line was added to one in a hundred "
        "files."
    )
    print(
        "`times as fast` is relative to the build from scratch above. `data` is the result of comparing the rebuilt "
        "dataset with a"
    )
    print("clean build of the same files (`gristmill check --against-clean`).\n")
    print("| rows | build | seconds | times as fast | data | seconds by phase |")
    print("| --- | --- | --- | --- | --- | --- |")
    for rows in FORMATS:
        out = folder / f"{NAMES[rows]}-all"
        again = build([corpus], out, "--compress", rows)
        faster = cold_builds[rows].seconds / again.seconds
        print(f"| {NAMES[rows]} | again | {again.seconds:.1f} | {faster:.1f} | | {again.phases} |")
        with change_one_percent(corpus) as count:
            changed = build([corpus], out, "--compress", rows)
            equality = "equal" if equals_clean_build(out) else "DIFFERENT"
        faster = cold_builds[rows].seconds / changed.seconds
        print(
            f"| {NAMES[rows]} | {count:,} files changed | {changed.seconds:.1f} | {faster:.1f} | {equality} "
            f"| {changed.phases} |",
            flush=True,
        )


def equals_clean_build(out: Path) -> bool:
    command = [GRISTMILL, "check", "--against-clean", "--json", str(out)]
    process = subprocess.run(command, stdout=subprocess.PIPE, check=False)
    return bool(json.loads(process.stdout)["ok"])


def print_large_file(corpus: str, tenth: str, folder: Path) -> None:
    """Measure builds without and with one large file, which contains the text of about 25,000 kept files.

    The large file contains no text of dropped files, because with such text the rules might drop the large file.
    """
    source = folder / "large"
    source.mkdir()
    size = 0
    with (source / "large.py").open("wb") as stream, (folder / "zstd-all" / "files.jsonl").open("rb") as rows:
        for row in map(json.loads, rows):
            if row["status"] == "kept" and row["path"].endswith(".py") and size < LARGE_FILE_BYTES:
                size += stream.write((Path(corpus) / row["path"]).read_bytes() + b"\n")
    options = ("--compress", "zstd", "--max-file-bytes", "1000000000")
    print("\n## One large file\n")
    print(
        "Builds of the tenth, without and with one large file. The size limit is raised for the large file, and the "
        "file"
    )
    print("is a batch of its own in a separate process.\n")
    print("| source | seconds | peak memory, all processes | seconds by phase |")
    print("| --- | --- | --- | --- |")
    for label, sources in (("a tenth", [tenth]), (f"a tenth and a file of {size / 1e6:,.0f} MB", [tenth, str(source)])):
        built = build(sources, folder / f"large-{len(sources)}", *options)
        print(f"| {label} | {built.seconds:.1f} | {peak_mb(sources, folder, *options)} | {built.phases} |", flush=True)


if __name__ == "__main__":
    main()
