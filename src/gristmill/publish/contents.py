"""What of a dataset's folder goes to the Hub: what its manifest names, the manifest, cards and a fresh check.json.

Nothing else that lies there goes, and no link that leads out of the folder.
"""

import hashlib
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec

from gristmill.cards.card_files import write_cards
from gristmill.checks.findings import Report, report_file
from gristmill.core.errors import ConfigError, DatasetError, OutputError
from gristmill.core.layout import CARDS, CHECK, MANIFEST
from gristmill.core.manifest import FileFacts, Manifest, facts_of, read_manifest, write_manifest
from gristmill.core.output_formats import FORMATS
from gristmill.core.plain_files import open_plain
from gristmill.pipeline.work_folder import temporary_folder


class Outgoing(NamedTuple):
    """A file as it goes."""

    name: str
    facts: FileFacts
    content: bytes | Path


class Chosen(NamedTuple):
    """A dataset with the formats that go, as a folder that can be checked by itself."""

    folder: Path
    manifest: Manifest


@contextmanager
def chosen(folder: Path, manifest: Manifest, formats: Sequence[str] | None) -> Iterator[Chosen]:
    """The dataset itself; or, with some of its formats only, links to its files beside manifest and cards of these."""
    wanted = _wanted(manifest, formats)
    for name in (*manifest.files, MANIFEST, *CARDS):
        _require_inside(folder, name)
    if wanted == manifest.formats:
        yield Chosen(folder, manifest)
        return
    part = msgspec.structs.replace(
        manifest,
        formats=wanted,
        files={name: facts for name, facts in manifest.files.items() if facts.format in {None, *wanted}},
    )
    with temporary_folder("gristmill-push-") as temporary:
        place = temporary / folder.name
        place.mkdir()
        _link(folder, part, place)
        yield Chosen(place, part)


def _link(folder: Path, manifest: Manifest, place: Path) -> None:
    try:
        write_cards(manifest, place, folder)
        for name in manifest.files:
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            (place / name).symlink_to(os.path.realpath(folder / name))
        write_manifest(manifest, place, is_synced=False)
    except OSError as error:
        raise OutputError(f"cannot write into {str(place)!r}: {error.strerror or error}.") from None


def _wanted(manifest: Manifest, formats: Sequence[str] | None) -> list[str]:
    for name in formats or ():
        if name not in manifest.formats:
            there = ", ".join(manifest.formats)
            known = f" Try gristmill export --format {name}." if name in FORMATS else ""
            raise ConfigError(f"--format {name!r} is not in this dataset, which has {there}.{known}")
    return [name for name in manifest.formats if formats is None or name in formats]


def _require_inside(folder: Path, name: str) -> None:
    path = Path(os.path.realpath(folder / name))
    if not path.is_relative_to(os.path.realpath(folder)):
        raise DatasetError(f"{str(folder / name)!r} is a link that leads out of the dataset's folder. Remove it.")


def outgoing(place: Chosen, report: Report) -> list[Outgoing]:
    """Every file that goes, by name."""
    folder, manifest = place
    small = {MANIFEST: _read(folder, MANIFEST), CHECK: report_file(report), **_cards(place)}
    if read_manifest(folder) != manifest:
        raise DatasetError(f"{str(folder)!r} has become another dataset in the meantime. Push it again.")
    is_told = report["digests"].status == "ok"
    files = [Outgoing(name, _facts_of_bytes(content), content) for name, content in small.items()]
    for name, facts in manifest.files.items():
        if name not in small:
            measured = facts if is_told else _measured(folder, name, facts)
            files.append(Outgoing(name, measured, folder / name))
    return sorted(files)


def _cards(place: Chosen) -> dict[str, bytes]:
    """As they lie in the folder."""
    for name in CARDS:
        if (place.folder / name).is_symlink():
            raise DatasetError(f"{str(place.folder / name)!r} is a link to something else. Remove it.")
    return {name: _read(place.folder, name) for name in CARDS if os.path.lexists(place.folder / name)}


def _read(folder: Path, name: str) -> bytes:
    try:
        with open_plain(folder / name) as stream:
            return stream.read()
    except OSError as error:
        raise DatasetError(f"cannot read {str(folder / name)!r}: {error.strerror or error}.") from None


def _measured(folder: Path, name: str, facts: FileFacts) -> FileFacts:
    """Of a file that is not what the manifest says."""
    try:
        found = facts_of(folder / name)
    except OSError as error:
        raise DatasetError(f"cannot read {str(folder / name)!r}: {error.strerror or error}.") from None
    return msgspec.structs.replace(facts, bytes=found.bytes, sha256=found.sha256)


def _facts_of_bytes(content: bytes) -> FileFacts:
    return FileFacts(bytes=len(content), sha256=hashlib.sha256(content).hexdigest())
