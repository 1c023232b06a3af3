"""`digests`: every file that the manifest names is there as it says, and no data file beside them."""

import hashlib
from pathlib import Path

from gristmill.checking.result import Faults
from gristmill.layout import MANIFEST, TOKENIZER
from gristmill.manifest import Manifest

CHECK = "digests"


def check_digests(folder: Path, manifest: Manifest, faults: Faults) -> None:
    for name, facts in manifest.files.items():
        try:
            with (folder / name).open("rb") as stream:
                size = stream.seek(0, 2)
                stream.seek(0)
                sha256 = hashlib.file_digest(stream, "sha256").hexdigest()
        except OSError as error:
            faults.add(CHECK, f"cannot be read: {error.strerror}", file=name)
            continue
        if facts.split is not None and not name.startswith(facts.split):
            faults.add(CHECK, f"the manifest says it is of {facts.split}", file=name)
        if size != facts.bytes:
            faults.add(CHECK, f"{size} bytes, the manifest says {facts.bytes}", file=name)
        if sha256 != facts.sha256:
            faults.add(CHECK, "its sha256 is not the manifest's", file=name)
    for path in sorted(folder.iterdir()):
        if path.name.endswith((".jsonl", ".jsonl.zst")) and path.name not in manifest.files:
            faults.add(CHECK, "the manifest does not name it", file=path.name)
    tokenizer = manifest.files.get(TOKENIZER)
    if tokenizer is None or tokenizer.sha256 != manifest.tokenizer.sha256:
        faults.add(CHECK, f"two digests for {TOKENIZER}, or none", file=MANIFEST)
