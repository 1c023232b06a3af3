"""What a manifest says of the splits, beside what was asked for."""

from pathlib import Path
from typing import Any

import msgspec

from gristmill.checks.findings import CheckResult, Report
from gristmill.config.settings import asked_shares
from gristmill.core.layout import CHECK
from gristmill.core.manifest import Manifest
from gristmill.core.plain_files import read_plain
from gristmill.core.records import Split
from gristmill.views.report.facts import Certificate, Leak, SplitLine

# What `gristmill check` said of a dataset: told only if it was this very one.


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


def split_lines(manifest: Manifest) -> list[SplitLine]:
    asked = asked_shares(manifest.settings)
    return [
        SplitLine(
            split=split,
            files=facts.files,
            groups=facts.groups,
            windows=facts.windows,
            tokens=facts.tokens,
            emitted=facts.emitted_tokens,
            share=facts.share,
            asked_share=asked.get(split),
            tokens_cut=manifest.decontamination.tokens_cut.get(split, 0),
        )
        for split in Split
        if (facts := manifest.splits.get(split)) is not None
    ]
