"""Safety checks before an upload. A failed check prevents the upload unless the option for this check is given.

check      fails if gristmill check fails                                          --allow-failed-check
secrets    fails if secrets remain or were not searched for                        --allow-secrets
licenses   fails if some files have no known license                               --allow-unlicensed
paths      fails if the manifest, check.json or a card names a local folder        --allow-paths
hub        fails if the Hub cannot be read, or if the repository is public and --public was not given
"""

import os
import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from gristmill.checks.findings import Report
from gristmill.checks.secrets import scan_for_secrets
from gristmill.cleaning.licenses import canonical_expression
from gristmill.core.manifest import Manifest
from gristmill.core.names import counted
from gristmill.core.records import DropReason
from gristmill.publish.hub_repository import RemoteContents
from gristmill.publish.push_result import GateResult

OVERRIDES = {
    "check": "--allow-failed-check",
    "secrets": "--allow-secrets",
    "licenses": "--allow-unlicensed",
    "paths": "--allow-paths",
}
"""Options that override safety checks, keyed by the name of the check."""
MAX_LICENSES_SHOWN = 3


def dataset_gates(
    manifest: Manifest,
    report: Report,
    small_files: Mapping[str, bytes],
    local_folders: Collection[str],
    overridden: Collection[str],
) -> list[GateResult]:
    """Run the safety checks that need only the dataset, not the Hub.

    `small_files` has the content of the manifest, check.json and the cards, keyed by name. `local_folders` has paths
    that these files must not contain. `overridden` has the names of safety checks that do not prevent the upload if
    they fail.
    """
    return [
        _gate("check", _failed_checks(report), "no check failed", overridden),
        _gate(
            "secrets", _remaining_secrets(manifest, report, small_files), _secrets_text(manifest, report), overridden
        ),
        _gate("licenses", _unlicensed_files(manifest), _licenses_text(manifest), overridden),
        _gate(
            "paths",
            _local_path(small_files, local_folders),
            "the manifest, check.json and the cards name no local folder",
            overridden,
        ),
    ]


def _gate(name: str, problem: str | None, text_if_passed: str, overridden: Collection[str]) -> GateResult:
    if problem is None:
        return GateResult(name=name, verdict="ok", why=text_if_passed)
    if name in overridden:
        return GateResult(name=name, verdict="allowed", why=problem)
    return GateResult(name=name, verdict="refuses", why=f"{problem} (override with {OVERRIDES[name]})")


def _failed_checks(report: Report) -> str | None:
    """Describe the failed checks of the report, except `secrets`, which has its own safety check."""
    failed = [check for check in report.checks if check.status == "failed" and check.name != "secrets"]
    if not failed:
        return None
    example = next((f", for example {check.examples[0]}" for check in failed if check.examples), "")
    return f"{', '.join(check.name for check in failed)} failed{example}"


def _remaining_secrets(manifest: Manifest, report: Report, small_files: Mapping[str, bytes]) -> str | None:
    settings = manifest.settings.get("secrets")
    if not isinstance(settings, dict) or settings.get("action") == "keep":
        return "the build did not search for secrets (--secrets keep)"
    if report["secrets"].status == "failed":
        return f"gristmill check found {report['secrets'].summary}"
    if report["secrets"].status == "skipped":
        return f"gristmill check could not search for secrets: {report['secrets'].summary}"
    for name, content in small_files.items():
        for finding in scan_for_secrets(content, emails=False):
            return f"{name} contains a secret ({finding.kind}) in line {_line_number(content, finding.start)}"
    return None


def _secrets_text(manifest: Manifest, report: Report) -> str:
    num_redacted = sum(manifest.counts.redactions.values())
    num_dropped = manifest.counts.dropped_by_reason.get(DropReason.HOLDS_SECRET, 0)
    redacted = f"{num_redacted:,} redacted" if num_redacted else "none redacted"
    dropped = f", {counted(num_dropped, 'file')} with secrets dropped" if num_dropped else ""
    return f"{redacted}{dropped}, none found in {report['secrets'].summary}"


def _unlicensed_files(manifest: Manifest) -> str | None:
    num_known = sum(_known_licenses(manifest).values())
    num_unknown = manifest.counts.kept - num_known
    if num_unknown <= 0:
        return None
    ids = ",".join(list(_known_licenses(manifest))[:MAX_LICENSES_SHOWN]) or "MIT,Apache-2.0"
    have = "has" if num_unknown == 1 else "have"
    problem = f"{num_unknown:,} of {counted(manifest.counts.kept, 'file')} {have} no known license"
    return f"{problem}; build with --license-allow {ids} to leave them out"


def _licenses_text(manifest: Manifest) -> str:
    known = _known_licenses(manifest)
    counts = [f"{count:,} {spdx}" for spdx, count in list(known.items())[:MAX_LICENSES_SHOWN]]
    more = [counted(len(known) - MAX_LICENSES_SHOWN, "other license")] if len(known) > MAX_LICENSES_SHOWN else []
    return ", ".join((*counts, *more)) or "no files"


def _known_licenses(manifest: Manifest) -> dict[str, int]:
    """Return the number of files per valid SPDX expression."""
    return {spdx: count for spdx, count in manifest.counts.licenses.items() if canonical_expression(spdx) is not None}


def _local_path(small_files: Mapping[str, bytes], local_folders: Collection[str]) -> str | None:
    for name, content in small_files.items():
        for folder in local_folders:
            found = re.search(rb"(?<![\w./-])%b(?![\w-])" % re.escape(os.fsencode(folder)), content)
            if found is not None:
                return f"{name} names the local folder {folder!r} in line {_line_number(content, found.start())}"
    return None


def _line_number(content: bytes, offset: int) -> int:
    return content.count(b"\n", 0, offset) + 1


def local_folders(folder: Path) -> Iterator[str]:
    """Yield local paths that must not be published: the home directory, the dataset folder and its parent.

    Top-level folders such as `/data` reveal nothing and are left out, except for the home directory.
    """
    home, dataset = os.path.expanduser("~"), os.path.realpath(folder)
    for path in dict.fromkeys((home, dataset, os.path.dirname(dataset))):
        if path.count("/") > 1 or path == home != "/":
            yield path


def hub_gate(remote: RemoteContents | None, problem: str | None, *, private: bool) -> GateResult:
    """Check that the upload may go to this repository.

    `remote` is None if the repository does not exist yet. `problem` is the error if the Hub could not be read.
    """
    if problem is not None:
        return GateResult(name="hub", verdict="refuses", why=problem)
    if remote is None:
        return GateResult(name="hub", verdict="ok", why="the repository will be created")
    if private and not remote.private:
        why = "the repository is public. Add --public, or make the repository private on the Hub"
        return GateResult(name="hub", verdict="refuses", why=why)
    if not private and remote.private:
        return GateResult(
            name="hub", verdict="ok", why="the repository remains private; change that in its settings on the Hub"
        )
    dataset = "a dataset, which will be replaced" if remote.manifest_files is not None else "no dataset yet"
    return GateResult(
        name="hub", verdict="ok", why=f"the repository has {counted(len(remote.files), 'file')} and {dataset}"
    )
