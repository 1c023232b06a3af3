"""What keeps a dataset here, each with its reason and the option that lets it through.

check      it is not what it says it is                              --allow-failed-check
secrets    nobody looked for them, or some are left                  --allow-secrets
licences   files whose licence nobody knows                          --allow-unlicensed
paths      folders of this machine are named in what goes            --allow-paths
hub        it cannot go there; or all could read what is to be private
"""

import os
import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from gristmill.checks.findings import Report
from gristmill.checks.secrets import secrets_in
from gristmill.cleaning.licenses import canonical_expression
from gristmill.core.manifest import Manifest
from gristmill.core.names import counted
from gristmill.core.records import DropReason
from gristmill.publish.hub_repository import There
from gristmill.publish.push_result import Gate

OVERRIDES = {
    "check": "--allow-failed-check",
    "secrets": "--allow-secrets",
    "licences": "--allow-unlicensed",
    "paths": "--allow-paths",
}
"""Gates that can be told not to refuse."""
LICENSES_NAMED = 3


def dataset_gates(
    manifest: Manifest, report: Report, small: Mapping[str, bytes], places: Collection[str], allowed: Collection[str]
) -> list[Gate]:
    """`small`: what goes besides rows, by name; `places`: folders of this machine."""
    return [
        _gate("check", _failed_checks(report), "no check failed", allowed),
        _gate("secrets", _secrets_left(manifest, report, small), _secrets_gone(manifest, report), allowed),
        _gate("licences", _unlicensed(manifest), _licensed(manifest), allowed),
        _gate("paths", _paths_named(small, places), "no folder of this machine is named", allowed),
    ]


def _gate(name: str, trouble: str | None, fine: str, allowed: Collection[str]) -> Gate:
    if trouble is None:
        return Gate(name=name, verdict="ok", why=fine)
    if name in allowed:
        return Gate(name=name, verdict="allowed", why=trouble)
    return Gate(name=name, verdict="refuses", why=f"{trouble} ({OVERRIDES[name]} sends it all the same)")


def _failed_checks(report: Report) -> str | None:
    """But for `secrets`, which has a gate of its own."""
    failed = [check for check in report.checks if check.status == "failed" and check.name != "secrets"]
    if not failed:
        return None
    example = next((f", for example {check.examples[0]}" for check in failed if check.examples), "")
    return f"{', '.join(check.name for check in failed)} failed{example}"


def _secrets_left(manifest: Manifest, report: Report, small: Mapping[str, bytes]) -> str | None:
    settings = manifest.settings.get("secrets")
    if not isinstance(settings, dict) or settings.get("action") == "keep":
        return "built with --secrets keep: nobody has looked for any"
    if report["secrets"].status == "failed":
        return f"check found {report['secrets'].summary}"
    if report["secrets"].status == "skipped":
        return f"check could not look for any: {report['secrets'].summary}"
    for name, content in small.items():
        for finding in secrets_in(content, emails=False):
            return f"{name} has a {finding.kind} in line {_line(content, finding.start)}"
    return None


def _secrets_gone(manifest: Manifest, report: Report) -> str:
    num_redacted = sum(manifest.counts.redactions.values())
    num_dropped = manifest.counts.dropped_by_reason.get(DropReason.HOLDS_SECRET, 0)
    redacted = f"{num_redacted:,} redacted" if num_redacted else "none redacted"
    dropped = f", {counted(num_dropped, 'file')} with some dropped" if num_dropped else ""
    return f"{redacted}{dropped}; none found in {report['secrets'].summary}"


def _unlicensed(manifest: Manifest) -> str | None:
    num_known = sum(_known(manifest).values())
    num_unknown = manifest.counts.kept - num_known
    if num_unknown <= 0:
        return None
    ids = ",".join(list(_known(manifest))[:LICENSES_NAMED]) or "MIT,Apache-2.0"
    have = "has" if num_unknown == 1 else "have"
    told = f"{num_unknown:,} of {counted(manifest.counts.kept, 'file')} {have} no known licence"
    return f"{told}; a build with --license-allow {ids} leaves them out"


def _licensed(manifest: Manifest) -> str:
    known = _known(manifest)
    shown = [f"{count:,} {spdx}" for spdx, count in list(known.items())[:LICENSES_NAMED]]
    more = [counted(len(known) - LICENSES_NAMED, "other licence")] if len(known) > LICENSES_NAMED else []
    return ", ".join((*shown, *more)) or "there are no files"


def _known(manifest: Manifest) -> dict[str, int]:
    return {spdx: count for spdx, count in manifest.counts.licenses.items() if canonical_expression(spdx) is not None}


def _paths_named(small: Mapping[str, bytes], places: Collection[str]) -> str | None:
    for name, content in small.items():
        for place in places:
            found = re.search(rb"(?<![\w./-])%b(?![\w-])" % re.escape(os.fsencode(place)), content)
            if found is not None:
                return f"{name} names {place!r} in line {_line(content, found.start())}"
    return None


def _line(content: bytes, place: int) -> int:
    return content.count(b"\n", 0, place) + 1


def places_here(folder: Path) -> Iterator[str]:
    """Folders of this machine that nobody else has to know of, if their name says anything."""
    home, here = os.path.expanduser("~"), os.path.realpath(folder)
    for place in dict.fromkeys((home, here, os.path.dirname(here))):
        if place.count("/") > 1 or place == home != "/":
            yield place


def hub_gate(there: There | None, trouble: str | None, *, private: bool) -> Gate:
    """`there` is None for a repository that is not there yet."""
    if trouble is not None:
        return Gate(name="hub", verdict="refuses", why=trouble)
    if there is None:
        return Gate(name="hub", verdict="ok", why="it will be made")
    if private and not there.private:
        why = "everybody can read what is there, and it is to be private. Say --public, or make it private on the Hub"
        return Gate(name="hub", verdict="refuses", why=why)
    if not private and there.private:
        return Gate(name="hub", verdict="ok", why="it is private and stays so; its settings on the Hub change that")
    earlier = "a dataset that is replaced" if there.named is not None else "no dataset yet"
    return Gate(name="hub", verdict="ok", why=f"it has {earlier}; {counted(len(there.files), 'file')}")
