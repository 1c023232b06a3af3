"""`digests`: every file that the manifest names is there as it says, and no data file beside them."""

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

from gristmill.cards.card_files import PARTS, card_files
from gristmill.checks.findings import Faults, Verdict
from gristmill.core.errors import DatasetError
from gristmill.core.layout import CARDS, FILES, MANIFEST, TOKENIZER, data_file_name
from gristmill.core.manifest import Manifest
from gristmill.core.names import counted
from gristmill.core.output_formats import FORMATS
from gristmill.core.plain_files import open_plain
from gristmill.core.records import Split

# `cards`: what readers go by in README.md and croissant.json is what the manifest says; the rest is people's.

CARDS_CHECK = "cards"
LARGEST_BYTES = 1 << 26


def check_cards(folder: Path, manifest: Manifest, faults: Faults) -> Verdict:
    told = [f"no {name}" for name in CARDS if not (folder / name).exists()]
    try:
        cards = card_files(manifest) if len(told) < len(CARDS) else {}
    except DatasetError as error:
        faults.add(CARDS_CHECK, str(error))
        return Verdict("none can be told")
    for name, wanted in cards.items():
        if not (folder / name).exists():
            continue
        try:
            with open_plain(folder / name) as stream:
                found = stream.read(LARGEST_BYTES)
        except OSError as error:
            faults.add(CARDS_CHECK, f"cannot be read: {error.strerror}", file=name)
            continue
        if found == wanted:
            told.append(name)
            continue
        wrong = PARTS[name].wrong(found, wanted)
        for part in wrong:
            faults.add(
                CARDS_CHECK, f"{part} is not what the manifest says. A build, or an export, tells it anew", file=name
            )
        told.append(f"{name}, changed by hand")
    return Verdict(", ".join(told), "ok" if told == list(CARDS) else "reported")


CHECK = "digests"
DATA_FILE = re.compile(rf"({'|'.join(Split)})(?:-[0-9]{{5,}}-of-[0-9]{{5,}})?\.jsonl(\.zst)?")


def check_digests(folder: Path, manifest: Manifest, faults: Faults) -> None:
    for name, facts in manifest.files.items():
        try:
            with open_plain(folder / name) as stream:
                size = stream.seek(0, 2)
                stream.seek(0)
                sha256 = hashlib.file_digest(stream, "sha256").hexdigest()
        except OSError as error:
            faults.add(CHECK, f"cannot be read: {error.strerror}", file=name)
            continue
        if size != facts.bytes:
            faults.add(CHECK, f"{counted(size, 'byte')}, the manifest says {facts.bytes}", file=name)
        if sha256 != facts.sha256:
            faults.add(CHECK, "its sha256 is not the manifest's", file=name)
    for name in _data_names(folder):
        if name not in manifest.files:
            faults.add(CHECK, "the manifest does not name it", file=name)
    tokenizer = manifest.files.get(TOKENIZER)
    if tokenizer is None or tokenizer.sha256 != manifest.tokenizer.sha256:
        faults.add(CHECK, f"two digests for {TOKENIZER}, or none", file=MANIFEST)
    _check_names(manifest, faults)


def _data_names(folder: Path) -> Iterator[str]:
    """What a reader of one of the formats may take for data."""
    for path in sorted(folder.iterdir()):
        if path.name.endswith((".jsonl", ".jsonl.zst")) or (path.name in FORMATS and path.is_symlink()):
            yield path.name
        elif path.name in FORMATS and path.is_dir():
            yield from sorted(one.relative_to(folder).as_posix() for one in path.rglob("*") if not one.is_dir())


def _check_names(manifest: Manifest, faults: Faults) -> None:
    """A data file's name says its format, its split, and which of how many it is."""
    counts = dict.fromkeys(Split, 0)
    for name, facts in manifest.files.items():
        if facts.split is not None and facts.format == "jsonl":
            counts[facts.split] += 1
        home = name.partition("/")[0] if "/" in name else "jsonl"
        if facts.format is not None and (facts.format != home or home not in manifest.formats):
            faults.add(CHECK, f"not the name of a file of {facts.format}, or not of one of its formats", file=name)
    names = {
        data_file_name(split, index, count, compressed=compressed): split
        for split, count in counts.items()
        for index in range(count)
        for compressed in (False, True)
    }
    for name, facts in manifest.files.items():
        if facts.split is not None and facts.format == "jsonl" and names.get(name) is not facts.split:
            what = f"not the name of one of {counted(counts[facts.split], 'file')} of {facts.split}"
            faults.add(CHECK, what, file=name)
        if (facts.split is None or facts.format is None) and DATA_FILE.fullmatch(name):
            faults.add(CHECK, "the manifest does not say of which split it is", file=name)


def check_fingerprint(manifest: Manifest, tokenizer_key: str, faults: Faults) -> None:
    """It is made of the settings, the tokenizer, the version and the table of files."""
    files = manifest.files.get(FILES)
    inputs = [manifest.settings, tokenizer_key, manifest.gristmill, files.sha256 if files is not None else ""]
    encoded = msgspec.json.encode(inputs, order="deterministic")
    if hashlib.sha256(encoded).hexdigest() != manifest.fingerprint:
        what = f"its fingerprint is not that of its settings, tokenizer, version and {FILES}"
        faults.add(CHECK, what, file=MANIFEST)
