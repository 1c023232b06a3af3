"""What a manifest says of the splits, beside what was asked for."""

from gristmill.manifest import Manifest
from gristmill.records import Split
from gristmill.reporting.facts import SplitLine
from gristmill.sections import asked_shares


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
