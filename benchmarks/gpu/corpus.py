"""Takes a corpus to a machine that does not have its files: packs the documents of a folder, and makes files of them.

    python benchmarks/gpu/corpus.py pack SOURCE PACKED       PACKED/corpus.zst, offsets.npy and names.json
    python benchmarks/gpu/corpus.py unpack PACKED FOLDER     FOLDER/000000/name, FOLDER/000001/name, …

1. The documents are those that `gristmill bench` takes: found as a build finds them, UTF-8, and with tokens.
2. corpus.zst has their bytes one after the other; document i is [offsets[i], offsets[i + 1]) of what it unpacks to.
3. Unpacked, each lies in a folder of its own, by number: the order stays, and no name of a folder that git tracked
   (`build/`, `dist/`) is left for the scan to leave out.
"""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import zstandard

from gristmill import Progress, load_tokenizer
from gristmill.bench.corpus import gather
from gristmill.bench.documents import Documents

CORPUS, OFFSETS, NAMES = "corpus.zst", "offsets.npy", "names.json"
LEVEL = 10
"""Of zstd: the standard library, 34 MB, becomes 6.3 MB in about a second."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__.partition("\n")[0], formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("pack", "unpack"))
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    given = parser.parse_args()
    work = {"pack": pack, "unpack": unpack}[given.what]
    print(f"{work(given.source, given.target):,} documents in {given.target}")


def pack(source: Path, packed: Path) -> int:
    progress = Progress(quiet=False)
    documents = Documents.read(gather(str(source), load_tokenizer(), progress).files, progress)
    packed.mkdir(parents=True, exist_ok=True)
    (packed / CORPUS).write_bytes(zstandard.ZstdCompressor(LEVEL, threads=-1).compress(documents.joined.data))
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
    """The name of each, and its text."""
    text = memoryview(zstandard.ZstdDecompressor().decompress((packed / CORPUS).read_bytes()))
    offsets = np.load(packed / OFFSETS).tolist()
    for name, start, end in zip(json.loads((packed / NAMES).read_text()), offsets[:-1], offsets[1:], strict=True):
        if Path(name).name != name:
            raise SystemExit(f"{packed / NAMES} has {name!r}, which is no file's name. Pack the corpus again.")
        yield name, bytes(text[start:end])


if __name__ == "__main__":
    main()
