"""Step 4, once: files.jsonl, the digests, and, last, the manifest."""

import hashlib
import platform
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

import msgspec

import gristmill
from gristmill.config import SplitConfig, fingerprint
from gristmill.filestable import FileRow
from gristmill.intake.trees import Scan
from gristmill.layout import FILES, TOKENIZER, TOKENIZER_CONFIG
from gristmill.manifest import (
    FORMAT,
    Counts,
    Decontamination,
    FileFacts,
    Manifest,
    Run,
    SourceFacts,
    SplitFacts,
    TokenizerFacts,
)
from gristmill.records import Drop, DropReason, PreparedDocument, Split
from gristmill.steps.context import Context
from gristmill.steps.decide import Decision
from gristmill.tokenizing.definition import Definition

VERSIONED = (
    *("gigatoken", "google-re2", "identify", "msgspec", "numpy", "orjson", "packaging", "pathspec", "rensa"),
    "zstandard",
)
WORTH_A_WARNING = 0.01
MUCH_CUT = 1 / 3
FILES_NAMED = 5


def write_files_table(path: Path, decision: Decision, drops: Sequence[Drop]) -> None:
    """Kept and dropped together, in path order; one row at a time, as there may be many."""
    encoder = msgspec.json.Encoder()
    files: list[PreparedDocument | Drop] = sorted((*decision.kept, *drops), key=lambda file: (file.repo, file.path))
    with path.open("wb") as stream:
        for file in files:
            row = _dropped_row(file) if isinstance(file, Drop) else _kept_row(file, decision)
            stream.write(encoder.encode(row) + b"\n")


def _kept_row(document: PreparedDocument, decision: Decision) -> FileRow:
    return FileRow(
        repo=document.repo,
        path=document.path,
        status="kept",
        split=decision.split_of[document.key],
        group=decision.group_of[document.key],
        language=document.language,
        encoding=document.encoding,
        bytes=document.size,
        lines=document.num_lines,
        tokens=document.num_tokens,
        cut_tokens=document.num_cut_tokens,
        windows=document.num_windows,
        sha256=document.sha256,
        text_sha256=document.text_sha256,
        license=document.license,
        license_from=document.license_from,
        moved_from=decision.moved_from.get(document.key),
        reason=None,
        detail=None,
        twin=None,
        similarity=None,
        measures=_measures(document.measures),
        redactions=document.redactions,
        cuts=document.cuts,
    )


def _dropped_row(drop: Drop) -> FileRow:
    return FileRow(
        repo=drop.repo,
        path=drop.path,
        status="dropped",
        split=drop.split,
        group=drop.group,
        language=drop.language,
        encoding=None,
        bytes=drop.size,
        lines=None,
        tokens=drop.num_tokens,
        cut_tokens=None,
        windows=None,
        sha256=drop.sha256,
        text_sha256=drop.text_sha256,
        license=drop.license,
        license_from=drop.license_from,
        moved_from=drop.moved_from,
        reason=drop.reason,
        detail=drop.detail,
        twin=drop.twin,
        similarity=drop.similarity,
        measures=_measures(drop.measures),
        redactions=(),
        cuts=drop.cuts,
    )


def _measures(json: bytes | None) -> dict[str, float | str | None] | None:
    return None if json is None else msgspec.json.decode(json)


class Outcome(NamedTuple):
    """All that a finished build knows about itself."""

    tokenizer: Definition
    """As it was located: with its name and revision."""
    scan: Scan
    decision: Decision
    decontamination: Decontamination
    drops: Sequence[Drop]
    data_files: Mapping[str, FileFacts]


def describe(context: Context, outcome: Outcome, run: Run) -> Manifest:
    located, scan, decision, decontamination, drops, data_files = outcome
    definition = context.tokenizer.definition
    splits = split_facts(decision)
    found = Counter([*(document.repo for document in decision.kept), *(drop.repo for drop in drops)])
    own_files = {name: digest_of(context.dataset / name) for name in (FILES, TOKENIZER, TOKENIZER_CONFIG)}
    return Manifest(
        format=FORMAT,
        gristmill=gristmill.__version__,
        fingerprint=fingerprint(context.config, definition.key, gristmill.__version__, own_files[FILES].sha256),
        settings=context.config.settings(),
        versions={name: version(name) for name in VERSIONED},
        tokenizer=TokenizerFacts(
            name=located.name,
            sha256=definition.sha256,
            revision=located.revision,
            vocab_size=context.tokenizer.vocab_size,
            engine=context.tokenizer.engine,
            prefix=definition.template.prefix,
            suffix=definition.template.suffix,
            pad_id=definition.pad_id,
        ),
        sources=[
            SourceFacts(repo=repo, commit=commit, found=found[repo]) for repo, commit in sorted(scan.commits.items())
        ],
        previous_splits=decision.previous,
        near_duplicates=decision.near_duplicates,
        decontamination=decontamination,
        columns=context.row_format.columns,
        counts=Counts(
            found=found.total(),
            kept=len(decision.kept),
            dropped=len(drops),
            dropped_by_reason=dict(sorted(Counter(drop.reason for drop in drops).items())),
            tail_tokens_dropped=sum(document.num_tail_tokens_dropped for document in decision.kept),
            redactions=_tally(redaction.kind for document in decision.kept for redaction in document.redactions),
            licenses=_tally(document.license or "" for document in decision.kept),
        ),
        splits=splits,
        tokens_by_language=_tokens_by_language(decision),
        files={**data_files, **own_files},
        warnings=[*scan.warnings, *warnings_of(context.config.split, splits, decision, decontamination, drops)],
        run=run,
    )


def machine() -> dict[str, str]:
    return {"python": platform.python_version(), "platform": f"{platform.system()} {platform.machine()}"}


def digest_of(path: Path) -> FileFacts:
    content = path.read_bytes()
    return FileFacts(bytes=len(content), sha256=hashlib.sha256(content).hexdigest())


def _tally(names: Iterable[str]) -> dict[str, int]:
    """How often each, the most frequent first."""
    return dict(sorted(Counter(names).items(), key=lambda item: (-item[1], item[0])))


def split_facts(decision: Decision) -> dict[Split, SplitFacts]:
    members: dict[Split, list[PreparedDocument]] = {split: [] for split in Split}
    for document in decision.kept:
        members[decision.split_of[document.key]].append(document)
    total = sum(document.num_uncut_tokens for document in decision.kept)
    return {
        split: SplitFacts(
            files=len(documents),
            groups=len({decision.group_of[document.key] for document in documents}),
            windows=sum(document.num_windows for document in documents),
            tokens=sum(document.num_uncut_tokens for document in documents),
            emitted_tokens=sum(document.num_emitted_tokens for document in documents),
            share=round(sum(document.num_uncut_tokens for document in documents) / total, 6),
        )
        for split, documents in members.items()
    }


def _tokens_by_language(decision: Decision) -> dict[str, dict[Split, int]]:
    """Most tokens first."""
    tokens: dict[str, dict[Split, int]] = {}
    for document in decision.kept:
        by_split = tokens.setdefault(document.language, dict.fromkeys(Split, 0))
        by_split[decision.split_of[document.key]] += document.num_uncut_tokens
    return dict(sorted(tokens.items(), key=lambda item: (-sum(item[1].values()), item[0])))


def warnings_of(
    config: SplitConfig,
    splits: Mapping[Split, SplitFacts],
    decision: Decision,
    decontamination: Decontamination,
    drops: Sequence[Drop],
) -> Iterator[str]:
    """What a user should know about the splits."""
    if decision.moved_from:
        moves = [
            f"{repo}/{path} from {split}" for (repo, path), split in list(decision.moved_from.items())[:FILES_NAMED]
        ]
        yield (
            f"{len(decision.moved_from)} files moved into the split of the files they must be with: "
            f"{', '.join(moves)}{', …' if len(decision.moved_from) > FILES_NAMED else ''} (moved_from in {FILES})."
        )
    yield from _cut_warnings(decision, decontamination, drops)
    for one in decontamination.against:
        if 2 * one.texts_too_short > one.texts:
            yield (
                f"{one.texts_too_short:,} of {one.texts:,} texts in {one.name} have fewer than 50 tokens: "
                "they cannot be found in train, and were not taken out of it."
            )
    before = decontamination.tokens_before
    for split, fraction in config.fractions().items():
        facts, share = splits[split], before[split] / sum(before.values())
        if fraction and not facts.files:
            why = "the earlier build's splits" if decision.previous else f"only {len(decision.kept)} files"
            if before[split]:
                yield f"{split} is empty: all of its {before[split]:,} tokens were cut, for spans also elsewhere."
            else:
                yield f"{split} is empty: {why} leave nothing to give it {fraction:.0%} of the tokens."
        elif decision.previous and abs(share - fraction) > WORTH_A_WARNING:
            yield (
                f"{split} has {share:.1%} of the tokens where {fraction:.1%} were asked for: "
                "files stay in the split of the earlier build. Use --fresh-splits to start over."
            )


def _cut_warnings(decision: Decision, facts: Decontamination, drops: Sequence[Drop]) -> Iterator[str]:
    """Where much of a held-out split is in train too, a few files are often to blame."""
    for split, num_cut in facts.tokens_cut.items():
        if split is Split.TRAIN or num_cut <= MUCH_CUT * facts.tokens_before[split]:
            continue
        members = [document for document in decision.kept if decision.split_of[document.key] is split]
        worst = sorted(members, key=lambda document: (-document.num_cut_tokens, document.key))[:FILES_NAMED]
        named = ", ".join(f"{document.name} ({document.num_cut_tokens:,})" for document in worst if document.cuts)
        gone = [drop for drop in drops if drop.reason is DropReason.CONTAMINATED and drop.split is split]
        whole = f"; {len(gone)} files went whole" if gone else ""
        yield (
            f"{num_cut / facts.tokens_before[split]:.0%} of {split}'s tokens were cut, for spans also in train. "
            f"Most of them in {named or 'files that went whole'}{whole}. Exclude them, or try --split-by directory."
        )
