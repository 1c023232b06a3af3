"""Check `digests`: every file in the manifest exists with the recorded digest, and there are no other data files.

Also check `cards`: the machine-readable parts of README.md and croissant.json match the manifest.
"""

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

from gristmill.cards.card_files import CARD_FORMATS, card_files
from gristmill.checks.findings import Faults, Verdict
from gristmill.core.errors import DatasetError
from gristmill.core.layout import CARDS, FILES, MANIFEST, TOKENIZER, data_file_name
from gristmill.core.manifest import Manifest
from gristmill.core.names import counted
from gristmill.core.output_formats import FORMATS
from gristmill.core.plain_files import open_plain
from gristmill.core.records import Split

# `cards`: only the parts that programs read must match the manifest. The rest of a card may be edited.

CARDS_CHECK = "cards"
MAX_CARD_BYTES = 1 << 26


def check_cards(folder: Path, manifest: Manifest, faults: Faults) -> Verdict:
    """Compare the machine-readable parts of the dataset's cards with the manifest."""
    summaries = [f"no {name}" for name in CARDS if not (folder / name).exists()]
    try:
        cards = card_files(manifest) if len(summaries) < len(CARDS) else {}
    except DatasetError as error:
        faults.add(CARDS_CHECK, str(error))
        return Verdict("the cards cannot be compared")
    for name, expected in cards.items():
        if not (folder / name).exists():
            continue
        try:
            with open_plain(folder / name) as stream:
                found = stream.read(MAX_CARD_BYTES)
        except OSError as error:
            faults.add(CARDS_CHECK, f"the file cannot be read: {error.strerror}", file=name)
            continue
        if found == expected:
            summaries.append(name)
            continue
        outdated_parts = CARD_FORMATS[name].find_outdated(found, expected)
        for part in outdated_parts:
            faults.add(CARDS_CHECK, f"{part} does not match the manifest. Build or export the dataset again", file=name)
        summaries.append(f"{name} (edited, or written by another version)")
    return Verdict(", ".join(summaries), "ok" if summaries == list(CARDS) else "reported")


CHECK = "digests"
DATA_FILE = re.compile(rf"({'|'.join(Split)})(?:-[0-9]{{5,}}-of-[0-9]{{5,}})?\.jsonl(\.zst)?")


def check_digests(folder: Path, manifest: Manifest, faults: Faults) -> None:
    """Compare size and digest of every file with the manifest. Report data files that the manifest does not list."""
    for name, facts in manifest.files.items():
        try:
            with open_plain(folder / name) as stream:
                size = stream.seek(0, 2)
                stream.seek(0)
                sha256 = hashlib.file_digest(stream, "sha256").hexdigest()
        except OSError as error:
            faults.add(CHECK, f"the file cannot be read: {error.strerror}", file=name)
            continue
        if size != facts.bytes:
            faults.add(
                CHECK, f"the file has {counted(size, 'byte')}, but the manifest records {facts.bytes}", file=name
            )
        if sha256 != facts.sha256:
            faults.add(CHECK, "sha256 differs from the manifest", file=name)
    for name in _data_names(folder):
        if name not in manifest.files:
            faults.add(CHECK, "the file is not listed in the manifest", file=name)
    tokenizer = manifest.files.get(TOKENIZER)
    if tokenizer is None or tokenizer.sha256 != manifest.tokenizer.sha256:
        faults.add(
            CHECK, f"the digest of {TOKENIZER} is missing, or is recorded with two different values", file=MANIFEST
        )
    _check_names(manifest, faults)


def _data_names(folder: Path) -> Iterator[str]:
    """Yield the names of all files that a reader of any format could take for data files."""
    for path in sorted(folder.iterdir()):
        if path.name.endswith((".jsonl", ".jsonl.zst")) or (path.name in FORMATS and path.is_symlink()):
            yield path.name
        elif path.name in FORMATS and path.is_dir():
            yield from sorted(one.relative_to(folder).as_posix() for one in path.rglob("*") if not one.is_dir())


def _check_names(manifest: Manifest, faults: Faults) -> None:
    """Check that the name of each data file matches its format, split, shard number and number of shards."""
    counts = dict.fromkeys(Split, 0)
    for name, facts in manifest.files.items():
        if facts.split is not None and facts.format == "jsonl":
            counts[facts.split] += 1
        folder_format = name.partition("/")[0] if "/" in name else "jsonl"
        if facts.format is not None and (facts.format != folder_format or folder_format not in manifest.formats):
            faults.add(
                CHECK,
                f"the name is not valid for the format {facts.format}, or the manifest does not list this format",
                file=name,
            )
    names = {
        data_file_name(split, index, count, compressed=compressed): split
        for split, count in counts.items()
        for index in range(count)
        for compressed in (False, True)
    }
    for name, facts in manifest.files.items():
        if facts.split is not None and facts.format == "jsonl" and names.get(name) is not facts.split:
            message = f"the name is not valid for {facts.split}, which has {counted(counts[facts.split], 'JSONL file')}"
            faults.add(CHECK, message, file=name)
        if (facts.split is None or facts.format is None) and DATA_FILE.fullmatch(name):
            faults.add(CHECK, "the manifest does not record the split or the format of this file", file=name)


def check_fingerprint(manifest: Manifest, tokenizer_key: str, faults: Faults) -> None:
    """Check that the fingerprint matches the settings, the tokenizer, the version and the digest of files.jsonl."""
    files = manifest.files.get(FILES)
    inputs = [manifest.settings, tokenizer_key, manifest.gristmill, files.sha256 if files is not None else ""]
    encoded = msgspec.json.encode(inputs, order="deterministic")
    if hashlib.sha256(encoded).hexdigest() != manifest.fingerprint:
        message = f"fingerprint does not match the settings, the tokenizer, the version and {FILES}"
        faults.add(CHECK, message, file=MANIFEST)
