"""Select the files of a dataset to upload: the files in its manifest, the manifest itself, cards and a new check.json.

Other files in the dataset folder are not uploaded. A symbolic link to a file outside the folder raises DatasetError.
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
from gristmill.core.manifest import FileFacts, Manifest, file_facts, read_manifest, write_manifest
from gristmill.core.names import shell_quote
from gristmill.core.output_formats import FORMATS
from gristmill.core.plain_files import open_plain
from gristmill.pipeline.work_folder import temporary_folder


class UploadFile(NamedTuple):
    """A file to upload."""

    name: str
    facts: FileFacts
    content: bytes | Path
    """The bytes of the manifest, check.json or a card, or the path of any other file."""


class Selection(NamedTuple):
    """A dataset with only the formats to upload, in a folder that can be checked like any dataset."""

    folder: Path
    manifest: Manifest


@contextmanager
def select_formats(folder: Path, manifest: Manifest, formats: Sequence[str] | None) -> Iterator[Selection]:
    """Yield the dataset with only these formats, or with all its formats if `formats` is None.

    If formats are left out, yield a temporary folder with its own manifest and cards, and links to the data files.
    """
    selected = _selected_formats(folder, manifest, formats)
    for name in (*manifest.files, MANIFEST, *CARDS):
        _require_inside(folder, name)
    if selected == manifest.formats:
        yield Selection(folder, manifest)
        return
    part = msgspec.structs.replace(
        manifest,
        formats=selected,
        files={name: facts for name, facts in manifest.files.items() if facts.format in {None, *selected}},
    )
    with temporary_folder("gristmill-push-") as temporary:
        target = temporary / folder.name
        target.mkdir()
        _link_files(folder, part, target)
        yield Selection(target, part)


def _link_files(folder: Path, manifest: Manifest, target: Path) -> None:
    try:
        write_cards(manifest, target, folder)
        for name in manifest.files:
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            (target / name).symlink_to(os.path.realpath(folder / name))
        write_manifest(manifest, target, is_synced=False)
    except OSError as error:
        raise OutputError(f"cannot write to {str(target)!r}: {error.strerror or error}.") from None


def _selected_formats(folder: Path, manifest: Manifest, formats: Sequence[str] | None) -> list[str]:
    for name in formats or ():
        if name not in manifest.formats:
            available = ", ".join(manifest.formats)
            command = f"gristmill export {shell_quote(str(folder))} --format {name}"
            advice = f"First run {command}." if name in FORMATS else f"Known formats: {', '.join(FORMATS)}."
            raise ConfigError(f"--format {name}: the dataset has no rows in this format, only in {available}. {advice}")
    return [name for name in manifest.formats if formats is None or name in formats]


def _require_inside(folder: Path, name: str) -> None:
    path = Path(os.path.realpath(folder / name))
    if not path.is_relative_to(os.path.realpath(folder)):
        raise DatasetError(f"{str(folder / name)!r} is a link to a file outside the dataset folder. Remove it.")


def list_upload_files(selection: Selection, report: Report) -> list[UploadFile]:
    """Return every file to upload, sorted by name."""
    folder, manifest = selection
    small_files = {MANIFEST: _read(folder, MANIFEST), CHECK: report_file(report), **_read_cards(selection)}
    if read_manifest(folder) != manifest:
        raise DatasetError(f"the dataset in {str(folder)!r} changed during the push. Push it again.")
    has_valid_digests = report["digests"].status == "ok"
    files = [UploadFile(name, _facts_of_bytes(content), content) for name, content in small_files.items()]
    for name, facts in manifest.files.items():
        if name not in small_files:
            actual = facts if has_valid_digests else _measure(folder, name, facts)
            files.append(UploadFile(name, actual, folder / name))
    return sorted(files)


def _read_cards(selection: Selection) -> dict[str, bytes]:
    for name in CARDS:
        if (selection.folder / name).is_symlink():
            raise DatasetError(f"{str(selection.folder / name)!r} is a link instead of a regular file. Remove it.")
    return {name: _read(selection.folder, name) for name in CARDS if os.path.lexists(selection.folder / name)}


def _read(folder: Path, name: str) -> bytes:
    try:
        with open_plain(folder / name) as stream:
            return stream.read()
    except OSError as error:
        raise DatasetError(f"cannot read {str(folder / name)!r}: {error.strerror or error}.") from None


def _measure(folder: Path, name: str, facts: FileFacts) -> FileFacts:
    """Return the facts with the actual size and digest of a file that may differ from the manifest."""
    try:
        found = file_facts(folder / name)
    except OSError as error:
        raise DatasetError(f"cannot read {str(folder / name)!r}: {error.strerror or error}.") from None
    return msgspec.structs.replace(facts, bytes=found.bytes, sha256=found.sha256)


def _facts_of_bytes(content: bytes) -> FileFacts:
    return FileFacts(bytes=len(content), sha256=hashlib.sha256(content).hexdigest())
