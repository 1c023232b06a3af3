"""`cards`: what readers go by in README.md and croissant.json is what the manifest says; the rest is people's."""

from pathlib import Path

from gristmill.cards.cards import card_files
from gristmill.cards.keeping import PARTS
from gristmill.checking.opening import open_plain
from gristmill.checking.result import Faults, Verdict
from gristmill.manifest import Manifest

CHECK = "cards"
LARGEST_BYTES = 1 << 26


def check_cards(folder: Path, manifest: Manifest, faults: Faults) -> Verdict:
    told = []
    for name, wanted in card_files(manifest).items():
        if not (folder / name).exists():
            told.append(f"no {name}")
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
    is_as_made = told == list(card_files(manifest))
    return Verdict(", ".join(told), "ok" if is_as_made else "reported")
