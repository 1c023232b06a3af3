"""Build a training dataset from a source tree. This script replaces a hand-written create_training_dataset.py.

python create_training_dataset.py my-repo dataset
"""

import sys

from gristmill import Config, Progress, build, open_dataset

if __name__ == "__main__":
    if len(sys.argv) != 3:  # noqa: PLR2004
        sys.exit("usage: create_training_dataset.py SOURCE OUT")
    source, out = sys.argv[1:]
    manifest = build(Config(sources=[source], out=out), Progress(quiet=False))
    for split, facts in manifest.splits.items():
        print(f"{split}: {facts.windows:,} sequences from {facts.files:,} files")
    first = open_dataset(out)["train"][0]
    print(f"first row: {first['path']}, lines {first['lines']}, {len(first['input_ids'])} ids")
