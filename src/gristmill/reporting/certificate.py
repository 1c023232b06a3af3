"""What `gristmill check` said of a dataset: told only if it was this very one."""

from pathlib import Path
from typing import Any

import msgspec

from gristmill.checking.result import CheckResult, Report
from gristmill.layout import CHECK
from gristmill.manifest import Manifest
from gristmill.plainfile import read_plain
from gristmill.records import Split
from gristmill.reporting.facts import Certificate, Leak


class _Measured(msgspec.Struct, frozen=True):
    l50: float
    gram13: float


def certificate_in(folder: Path, manifest: Manifest) -> Certificate | None:
    """None where there is no check.json, or it is damaged, or of another dataset."""
    path = folder / CHECK
    try:
        report = msgspec.json.decode(read_plain(path) if path.is_file() else b"", type=Report)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    if (report.fingerprint, report.content_sha256) != (manifest.fingerprint, manifest.content_sha256):
        return None
    return Certificate(
        is_ok=report.ok,
        checks=[(check.name, check.status, check.summary) for check in report.checks],
        leaks=[leak for check in report.checks if check.name == "leakage" for leak in _leaks(check)],
    )


def _leaks(check: CheckResult) -> list[Leak]:
    held_out = [split for split in Split if split is not Split.TRAIN]
    measured = {split: _measured(check.facts.get(split)) for split in held_out}
    return [Leak(split=split, l50=one.l50, gram13=one.gram13) for split, one in measured.items() if one is not None]


def _measured(facts: Any) -> _Measured | None:
    try:
        return msgspec.convert(facts, _Measured)
    except msgspec.ValidationError:
        return None
