"""Step 4: write files.jsonl and make the manifest, with the digests of all files."""

import platform
import shutil
from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Iterator
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from gristmill.cleaning.clean import redact_name
from gristmill.config.config import fingerprint
from gristmill.core.files_table import FileRow, FimRow, VariantRow
from gristmill.core.layout import FILES, TOKENIZER, TOKENIZER_CONFIG
from gristmill.core.manifest import (
    MANIFEST_VERSION,
    Counts,
    Manifest,
    PackingFacts,
    Run,
    SourceFacts,
    SplitFacts,
    TokenizerFacts,
    file_facts,
)
from gristmill.core.records import DocumentFacts, Drop, DropReason, FileKey, PlacedDocument, VariantKind
from gristmill.core.version import __version__
from gristmill.pipeline.context import Context
from gristmill.pipeline.decision import Decided, Decision
from gristmill.pipeline.facts import (
    epoch_facts,
    fim_facts,
    fim_warnings,
    sampling_warnings,
    split_facts,
    split_warnings,
    tokens_by_language,
    variant_facts,
    variant_warnings,
)
from gristmill.pipeline.keys import grammar_versions, versions
from gristmill.pipeline.other_formats import MadeFiles
from gristmill.pipeline.parts import PartReader
from gristmill.sources.trees import Scan
from gristmill.tokenizers.definition import Definition
from gristmill.tokenizers.locate import substitution_notes

BY_PATH = attrgetter("repo", "path")


class Tally(NamedTuple):
    """Counts collected while files.jsonl is written."""

    found: Counter[str]
    """Number of kept and dropped files, by repository."""
    dropped: Counter[DropReason]
    redactions: Counter[str]
    """Number of redactions in kept files, by kind."""
    respellings: Counter[str]
    """Number of respellings in kept files, by literal text of the control token."""


class FilesTable:
    """Writer of files.jsonl, which lists kept and dropped files in path order.

    A step of the writer adds the rows of one part. A part is a file with the results of step 1 for one batch of files.
    """

    def __init__(self, path: Path, context: Context, decided: Decided) -> None:
        self._tally = Tally(Counter(), Counter(), Counter(), Counter())
        self.steps = self._write(path, context, decided)
        """Iterator that writes the rows of one part per step. Steps may run at any time."""

    def finish(self) -> Tally:
        """Run the remaining steps and return the counts."""
        for _ in self.steps:
            pass
        return self._tally

    def _write(self, path: Path, context: Context, decided: Decided) -> Iterator[None]:
        encoder, tally = msgspec.json.Encoder(), self._tally
        with path.open("wb") as stream:
            for rows in _rows_in_order(context, decided):
                tally.found.update(row.repo for row in rows)
                tally.dropped.update(row.reason for row in rows if row.reason is not None)
                tally.redactions.update(redaction.kind for row in rows for redaction in row.redactions)
                tally.respellings.update(one.spelling for row in rows for one in row.respellings)
                stream.write(encoder.encode_lines(rows))
                yield


def _rows_in_order(context: Context, decided: Decided) -> Iterator[list[FileRow]]:
    """Yield the rows of each part, merged in path order with the drops of the scan and the renamed drops."""
    others = sorted(map(_dropped_row, (*decided.scan_drops, *decided.renamed)), key=BY_PATH)
    num_written = 0
    for rows in filter(None, _prepared_rows(context, decided)):
        end = bisect_right(others, BY_PATH(rows[-1]), key=BY_PATH)
        yield sorted([*rows, *others[num_written:end]], key=BY_PATH)
        num_written = end
    yield others[num_written:]


def _prepared_rows(context: Context, decided: Decided) -> Iterator[list[FileRow]]:
    """Yield the rows of the files in each part. Parts and their documents are in path order."""
    kept = iter(decided.decision.kept)
    variants = _variant_rows(decided.decision)
    missing = {(one.repo, one.path): FimRow(missing=one.why) for one in decided.decision.not_rewritten}
    drops = {(drop.repo, drop.path): drop for drop in decided.decision.drops}
    for part in decided.parts:
        reader = PartReader(context.prepared, part)
        rows = [_dropped_row(drop) for drop in reader.drops()]
        for document, facts in zip(reader.documents(), reader.facts(), strict=True):
            drop = drops.pop(key := document.key, None)
            if drop is None:
                rows.append(_kept_row(next(kept), facts, missing.get(key), tuple(variants.get(key, ()))))
            else:
                rows.append(_dropped_row(drop, facts))
        yield sorted(rows, key=BY_PATH)


def _variant_rows(decision: Decision) -> dict[FileKey, list[VariantRow]]:
    """Return the variant rows of each file, in the order of VariantKind."""
    rows: dict[FileKey, list[VariantRow]] = {}
    for one in decision.no_variants:
        rows.setdefault((one.repo, one.path), []).append(VariantRow(kind=one.kind, missing=one.why))
    for document in decision.variants:
        variant, draw = document.variant, document.draw
        assert variant is not None, "every document here is a variant"
        row = VariantRow(
            kind=variant.kind,
            seed=variant.seed,
            tokens=document.num_tokens,
            windows=document.num_windows,
            own_windows=variant.own_windows,
            draw=None if draw is None else (draw.passes, draw.extra),
            text_sha256=document.text_sha256 if variant.is_text else None,
        )
        rows.setdefault(document.key, []).append(row)
    order = {kind: index for index, kind in enumerate(VariantKind)}
    return {key: sorted(file_rows, key=lambda row: order[row.kind]) for key, file_rows in rows.items()}


def _kept_row(
    document: PlacedDocument, facts: DocumentFacts, not_rewritten: FimRow | None, variants: tuple[VariantRow, ...]
) -> FileRow:
    fim = document.fim
    return FileRow(
        repo=document.repo,
        path=document.path,
        status="kept",
        split=document.split,
        group=document.group,
        language=document.language,
        encoding=facts.encoding,
        bytes=document.size,
        lines=facts.num_lines,
        tokens=document.num_file_tokens,
        cut_tokens=document.num_cut_tokens,
        windows=document.num_windows,
        draw=None if document.draw is None else (document.draw.passes, document.draw.extra),
        left_tokens=document.num_undrawn_tokens,
        weight=document.weight,
        fim=not_rewritten if fim is None else FimRow(seed=fim.seed, rewritten=fim.num_rewritten),
        variants=variants,
        sha256=facts.sha256,
        text_sha256=document.text_sha256,
        license=document.license,
        license_from=document.license_from,
        moved_from=document.moved_from,
        reason=None,
        detail=None,
        twin=None,
        similarity=None,
        measures=_measures(facts.measures),
        redactions=facts.redactions,
        respellings=facts.respellings,
        cuts=document.cuts,
    )


def _dropped_row(drop: Drop, facts: DocumentFacts | None = None) -> FileRow:
    """Return the row of a dropped file. `facts` is given if the file was prepared before it was dropped."""
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
        draw=None,
        left_tokens=None,
        weight=None,
        fim=None,
        variants=(),
        sha256=facts.sha256 if facts else drop.sha256,
        text_sha256=drop.text_sha256,
        license=drop.license,
        license_from=drop.license_from,
        moved_from=drop.moved_from,
        reason=drop.reason,
        detail=drop.detail,
        twin=drop.twin,
        similarity=drop.similarity,
        measures=_measures(facts.measures if facts else drop.measures),
        redactions=(),
        respellings=(),
        cuts=drop.cuts,
    )


def _measures(json: bytes | None) -> Any:
    """Return the measures as encoded JSON. Decoding and encoding them would take as long as the rest of the row."""
    return None if json is None else msgspec.Raw(json)


class BuildResult(NamedTuple):
    """Results of a build that the manifest describes."""

    tokenizer: Definition
    """Definition of the tokenizer, with its name and revision."""
    scan: Scan
    decided: Decided
    tally: Tally
    made: MadeFiles


def make_manifest(context: Context, result: BuildResult, run: Run) -> Manifest:
    located, scan, decided, tally, made = result
    decision, decontamination = decided.decision, decided.decontamination
    definition, schema = context.tokenizer.definition, context.window_schema
    splits = split_facts(decision)
    if made.packing is not None:
        splits = {split: _packed_facts(facts, made.packing[split], context) for split, facts in splits.items()}
    fim = fim_facts(decision, context.config.fim)
    variants = variant_facts(decision, context.config.variants)
    own_files = {name: file_facts(context.dataset / name) for name in (FILES, TOKENIZER, TOKENIZER_CONFIG)}
    return Manifest(
        format=MANIFEST_VERSION,
        gristmill=__version__,
        fingerprint=fingerprint(context.config, definition.key, __version__, own_files[FILES].sha256),
        settings=context.config.settings(),
        versions=versions() | grammar_versions(context.config),
        tokenizer=TokenizerFacts(
            name=located.name,
            sha256=definition.sha256,
            revision=located.revision,
            vocab_size=context.tokenizer.vocab_size,
            engine=context.tokenizer.engine,
            prefix=schema.prefix,
            suffix=schema.suffix,
            pad_id=definition.pad_id,
            end_id=schema.end_id,
            closing=schema.closing,
            mask_id=definition.mask_id,
            end_token=_token_text(definition, schema.end_id),
        ),
        sources=[_source_facts(context, scan, tally, repo) for repo in sorted(scan.commits)],
        previous_splits=decision.previous,
        near_duplicates=decision.near_duplicates,
        decontamination=decontamination,
        sampling=decided.sampling,
        fim=fim,
        variants=variants,
        epochs=epoch_facts(decision, context.window_shape),
        columns=list(context.schema.columns),
        segment_columns=list(context.schema.segment_columns),
        formats=list(context.config.output.formats),
        content_sha256=made.files.content_sha256(),
        shards=made.shards,
        counts=Counts(
            found=tally.found.total(),
            kept=len(decision.kept),
            dropped=tally.dropped.total(),
            dropped_by_reason=dict(sorted(tally.dropped.items())),
            tail_tokens_dropped=sum(document.num_tail_tokens_dropped for document in decision.kept),
            redactions=_sorted_counts(tally.redactions),
            respellings=_sorted_counts(tally.respellings),
            licenses=_sorted_counts(Counter(document.license for document in decision.kept)),
        ),
        splits=splits,
        packing=made.packing,
        tokens_by_language=tokens_by_language(decision),
        files=dict(sorted({**made.files.facts, **own_files}.items())),
        warnings=[
            *sampling_warnings(decided.sampling, context.config.sampling, has_variants=bool(decision.variants)),
            *fim_warnings(fim),
            *variant_warnings(variants, context.config.rewrite),
            *scan.warnings,
            *substitution_notes(context.config.tokenizer.name, located),
            *split_warnings(context.config.split, decision, decontamination),
        ],
        run=run,
    )


def _token_text(definition: Definition, token_id: int | None) -> str | None:
    return next((token.content for token in definition.added_tokens if token.id == token_id), None)


def _source_facts(context: Context, scan: Scan, tally: Tally, repo: str) -> SourceFacts:
    name = redact_name(repo, context.config.secrets)
    is_table = repo in scan.num_rows
    found = scan.num_rows[repo] if is_table else tally.found[name]
    return SourceFacts(repo=name, commit=scan.commits[repo], found=found, is_table=is_table)


def machine_facts() -> dict[str, str]:
    return {"python": platform.python_version(), "platform": f"{platform.system()} {platform.machine()}"}


def _sorted_counts(counts: Counter[str]) -> dict[str, int]:
    """Sort counts in descending order."""
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def _packed_facts(facts: SplitFacts, packing: PackingFacts, context: Context) -> SplitFacts:
    """Return the facts of a split with packed rows, where each row counts as a window."""
    is_padded = context.window_schema.pad_id is not None
    num_ids = packing.rows * context.config.window.length if is_padded else packing.ids
    return msgspec.structs.replace(facts, windows=packing.rows, emitted_tokens=num_ids)


def delete_stale_files(context: Context, names: Collection[str]) -> None:
    """Delete data files and formats that earlier attempts have left and that are not in `names`."""
    current = {FILES, *(name.partition("/")[0] for name in names)}
    for path in context.dataset.iterdir():
        if path.is_dir() and path.name not in current:
            shutil.rmtree(path)
        elif path.name not in current and not path.name.startswith("."):
            path.unlink()
