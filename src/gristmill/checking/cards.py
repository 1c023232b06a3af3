"""`cards`: what readers go by in README.md and croissant.json is what the manifest says; the rest is people's."""

from pathlib import Path

from gristmill.cards.cards import card_files
from gristmill.cards.keeping import PARTS
from gristmill.checking.result import Faults, Verdict
from gristmill.errors import DatasetError
from gristmill.layout import CARDS
from gristmill.manifest import Manifest
from gristmill.plainfile import open_plain

CHECK = "cards"
LARGEST_BYTES = 1 << 26


def check_cards(folder: Path, manifest: Manifest, faults: Faults) -> Verdict:
    told = [f"no {name}" for name in CARDS if not (folder / name).exists()]
    try:
        cards = card_files(manifest) if len(told) < len(CARDS) else {}
    except DatasetError as error:
        faults.add(CHECK, str(error))
        return Verdict("none can be told")
    for name, wanted in cards.items():
        if not (folder / name).exists():
            continue
        try:
            with open_plain(folder / name) as stream:
                found = stream.read(LARGEST_BYTES)
        except OSError as error:
            faults.add(CHECK, f"cannot be read: {error.strerror}", file=name)
            continue
        if found == wanted:
            told.append(name)
            continue
        wrong = PARTS[name].wrong(found, wanted)
        for part in wrong:
            faults.add(CHECK, f"{part} is not what the manifest says. A build, or an export, tells it anew", file=name)
        told.append(f"{name}, changed by hand")
    return Verdict(", ".join(told), "ok" if told == list(CARDS) else "reported")
