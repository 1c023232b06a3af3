"""Pack the documents of a folder into an archive, and unpack the archive on a machine that does not have the files.

    python benchmarks/gpu/corpus.py pack SOURCE PACKED [--bytes 2e8]   PACKED/corpus.zst, offsets.npy and names.json
    python benchmarks/gpu/corpus.py unpack PACKED FOLDER               FOLDER/000000/name, FOLDER/000001/name, …

1. The documents are the files that `gristmill bench` uses: files that a build finds, in UTF-8, with at least one token.
   --bytes selects a sample of that size by hashed path, so that the sample is the same on every machine.
2. corpus.zst contains the concatenated bytes of the documents. Document i is bytes [offsets[i], offsets[i + 1]) of the
   decompressed content.
3. Each document is unpacked into a separate numbered folder, which preserves the order. Folder names such as `build/`
   and `dist/` are not preserved, because the scan excludes such folders if git does not track them.
"""

import argparse
import hashlib
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import zstandard

from gristmill import Progress, load_tokenizer
from gristmill.lab.bench.bench_files import Documents, gather

CORPUS, OFFSETS, NAMES = "corpus.zst", "offsets.npy", "names.json"
LEVEL = 19
PARAMETERS = zstandard.ZstdCompressionParameters.from_level(LEVEL, window_log=27, enable_ldm=True, threads=-1)
"""Compression with a window of 128 MiB. It reduces 200 MB of mixed code to a tenth."""
MAX_FILE_BYTES = 1 << 20
"""Size of the largest file that a build keeps by default."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__.partition("\n")[0], formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("pack", "unpack"))
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--bytes", type=float, help="pack a sample of this size")
    given = parser.parse_args()
    if given.what == "unpack":
        num_documents = unpack(given.source, given.target)
    elif given.bytes is None:
        num_documents = pack(given.source, given.target)
    else:
        with sample(given.source, given.bytes) as source:
            num_documents = pack(source, given.target)
    print(f"{num_documents:,} documents in {given.target}")


@contextmanager
def sample(source: Path, num_bytes: float) -> Iterator[Path]:
    """Yield a temporary folder, next to the source, with hard links to a sample of the files."""
    files = [path for path in source.rglob("*") if path.is_file() and 0 < path.stat().st_size <= MAX_FILE_BYTES]
    files.sort(key=lambda path: hashlib.sha256(os.fsencode(path.relative_to(source))).digest())
    with tempfile.TemporaryDirectory(dir=source.parent) as name:
        folder, total = Path(name, "sample"), 0
        for path in files:
            if total >= num_bytes:
                break
            total += path.stat().st_size
            link = folder / path.relative_to(source)
            link.parent.mkdir(parents=True, exist_ok=True)
            os.link(path, link)
        yield folder


def pack(source: Path, packed: Path) -> int:
    progress = Progress(quiet=False)
    documents = Documents.read(gather(str(source), load_tokenizer(), progress).files, progress)
    packed.mkdir(parents=True, exist_ok=True)
    compressor = zstandard.ZstdCompressor(compression_params=PARAMETERS)
    (packed / CORPUS).write_bytes(compressor.compress(documents.joined.data))
    np.save(packed / OFFSETS, documents.offsets)
    (packed / NAMES).write_text(json.dumps([file.path.rpartition("/")[2] for file in documents.files]))
    return len(documents)


def unpack(packed: Path, folder: Path) -> int:
    number = -1
    for number, (name, text) in enumerate(packed_documents(packed)):
        path = folder / f"{number:06}" / name
        path.parent.mkdir(parents=True)
        path.write_bytes(text)
    return number + 1


def packed_documents(packed: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the name and the text of each document."""
    text = memoryview(zstandard.ZstdDecompressor(max_window_size=1 << 27).decompress((packed / CORPUS).read_bytes()))
    offsets = np.load(packed / OFFSETS).tolist()
    for name, start, end in zip(json.loads((packed / NAMES).read_text()), offsets[:-1], offsets[1:], strict=True):
        if Path(name).name != name:
            raise SystemExit(f"{packed / NAMES} contains {name!r}, which is not a file name. Pack the corpus again.")
        yield name, bytes(text[start:end])


if __name__ == "__main__":
    main()
