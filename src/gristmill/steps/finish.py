"""Step 4, once: files.jsonl, the digests, and, last, the manifest."""

import hashlib
import platform
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

import gristmill
from gristmill.config import SplitConfig, fingerprint
from gristmill.intake.trees import Scan
from gristmill.layout import FILES, TOKENIZER, TOKENIZER_CONFIG, write_atomically
from gristmill.manifest import FORMAT, Counts, FileFacts, Manifest, Run, SourceFacts, SplitFacts, TokenizerFacts
from gristmill.records import Drop, PreparedDocument, Split
from gristmill.steps.context import Context
from gristmill.steps.decide import Decision
from gristmill.tokenizing.definition import Definition

VERSIONED = ("gigatoken", "identify", "msgspec", "numpy", "orjson", "pathspec", "zstandard")
WORTH_A_WARNING = 0.01


def write_files_table(path: Path, decision: Decision, drops: Sequence[Drop]) -> None:
    """Kept and dropped together, in path order, every row with the same columns."""
    rows = [
        *((document.key, _kept_row(document, decision)) for document in decision.kept),
        *(((drop.repo, drop.path), _dropped_row(drop)) for drop in drops),
    ]
    rows.sort(key=lambda row: row[0])
    write_atomically(path, b"".join(msgspec.json.encode(row) + b"\n" for _, row in rows))


def _kept_row(document: PreparedDocument, decision: Decision) -> dict[str, Any]:
    return {
        "repo": document.repo,
        "path": document.path,
        "status": "kept",
        "split": decision.split_of[document.key],
        "group": decision.group_of[document.key],
        "language": document.language,
        "encoding": document.encoding,
        "bytes": document.size,
        "lines": document.num_lines,
        "tokens": document.num_tokens,
        "windows": document.num_windows,
        "sha256": document.sha256,
        "reason": None,
        "detail": None,
    }


def _dropped_row(drop: Drop) -> dict[str, Any]:
    return {
        "repo": drop.repo,
        "path": drop.path,
        "status": "dropped",
        **dict.fromkeys(("split", "group")),
        "language": drop.language,
        "encoding": None,
        "bytes": drop.size,
        **dict.fromkeys(("lines", "tokens", "windows")),
        "sha256": drop.sha256,
        "reason": drop.reason,
        "detail": drop.detail,
    }


class Outcome(NamedTuple):
    """All that a finished build knows about itself."""

    tokenizer: Definition
    """As it was located: with its name and revision."""
    scan: Scan
    decision: Decision
    drops: Sequence[Drop]
    data_files: Mapping[str, FileFacts]


def describe(context: Context, outcome: Outcome, run: Run) -> Manifest:
    located, scan, decision, drops, data_files = outcome
    definition = context.tokenizer.definition
    splits = _split_facts(decision)
    found = Counter([*(document.repo for document in decision.kept), *(drop.repo for drop in drops)])
    own_files = {name: _digest_of(context.dataset / name) for name in (FILES, TOKENIZER, TOKENIZER_CONFIG)}
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
        columns=context.row_format.columns,
        counts=Counts(
            found=found.total(),
            kept=len(decision.kept),
            dropped=len(drops),
            dropped_by_reason=dict(sorted(Counter(drop.reason for drop in drops).items())),
            tail_tokens_dropped=sum(document.num_tail_tokens_dropped for document in decision.kept),
        ),
        splits=splits,
        tokens_by_language=_tokens_by_language(decision),
        files={**data_files, **own_files},
        warnings=[*scan.warnings, *_split_warnings(context.config.split, splits, decision)],
        run=run,
    )


def machine() -> dict[str, str]:
    return {"python": platform.python_version(), "platform": f"{platform.system()} {platform.machine()}"}


def _digest_of(path: Path) -> FileFacts:
    content = path.read_bytes()
    return FileFacts(bytes=len(content), sha256=hashlib.sha256(content).hexdigest())


def _split_facts(decision: Decision) -> dict[Split, SplitFacts]:
    members: dict[Split, list[PreparedDocument]] = {split: [] for split in Split}
    for document in decision.kept:
        members[decision.split_of[document.key]].append(document)
    total = sum(document.num_tokens for document in decision.kept)
    return {
        split: SplitFacts(
            files=len(documents),
            groups=len({decision.group_of[document.key] for document in documents}),
            windows=sum(document.num_windows for document in documents),
            tokens=sum(document.num_tokens for document in documents),
            emitted_tokens=sum(document.num_emitted_tokens for document in documents),
            share=round(sum(document.num_tokens for document in documents) / total, 6),
        )
        for split, documents in members.items()
    }


def _tokens_by_language(decision: Decision) -> dict[str, dict[Split, int]]:
    """Most tokens first."""
    tokens: dict[str, dict[Split, int]] = {}
    for document in decision.kept:
        by_split = tokens.setdefault(document.language, dict.fromkeys(Split, 0))
        by_split[decision.split_of[document.key]] += document.num_tokens
    return dict(sorted(tokens.items(), key=lambda item: (-sum(item[1].values()), item[0])))


def _split_warnings(config: SplitConfig, splits: Mapping[Split, SplitFacts], decision: Decision) -> Iterator[str]:
    for split, fraction in config.fractions().items():
        facts = splits[split]
        if fraction and not facts.files:
            why = "the earlier build's splits" if decision.previous else f"only {len(decision.kept)} files"
            yield f"{split} is empty: {why} leave nothing to give it {fraction:.0%} of the tokens."
        elif decision.previous and abs(facts.share - fraction) > WORTH_A_WARNING:
            yield (
                f"{split} has {facts.share:.1%} of the tokens where {fraction:.1%} were asked for: "
                "files stay in the split of the earlier build. Use --fresh-splits to start over."
            )
