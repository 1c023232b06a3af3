"""Summary of a build, as text for people and as JSON for scripts."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import msgspec

from gristmill.cards.provenance import repo_order_text
from gristmill.config.presets import preset_text
from gristmill.config.settings import requested_shares
from gristmill.core.manifest import (
    Decontamination,
    EpochFacts,
    FimFacts,
    GpuFacts,
    Manifest,
    PreviousSplits,
    Run,
    SamplingFacts,
    VariantFacts,
)
from gristmill.core.names import counted, path_text, printable
from gristmill.core.records import Split, VariantKind, WhyNoVariant
from gristmill.core.text import size_text, table_text

MAX_LANGUAGES = 5
MAX_LICENSES = 4
MAX_SPELLINGS = 4
MIN_EPOCHS_TO_NAME_FILE = 2


def summary_json(manifest: Manifest, out: str) -> str:
    summary = {
        "out": path_text(out),
        "fingerprint": manifest.fingerprint,
        "preset": manifest.settings["preset"],
        "counts": manifest.counts,
        "splits": manifest.splits,
        "asked_shares": requested_shares(manifest.settings),
        "near_duplicates": manifest.near_duplicates,
        "decontamination": manifest.decontamination,
        "sampling": manifest.sampling,
        "fim": manifest.fim,
        "variants": manifest.variants,
        "epochs": manifest.epochs,
        "bytes": sum(facts.bytes for facts in manifest.files.values() if facts.format is not None),
        "tokens_by_language": manifest.tokens_by_language,
        "seconds": manifest.run.seconds,
        "workers": manifest.run.workers,
        "gpu": manifest.run.gpu,
        "warnings": manifest.warnings,
    }
    return msgspec.json.encode(summary).decode()


def summary_text(manifest: Manifest, out: str) -> str:
    counts, seconds = manifest.counts, manifest.run.seconds
    tokens = sum(facts.tokens for facts in manifest.splits.values())
    source_rate = size_text(manifest.run.source_bytes / seconds["total"])
    workers = counted(manifest.run.workers, "process", "processes")
    phases = ", ".join(f"{phase} {value:.2f}" for phase, value in seconds.items() if phase != "total")
    lines = [
        _splits_table(manifest),
        *sampling_lines(manifest.sampling, manifest.settings["sampling"]),
        *fim_lines(manifest.fim),
        *variant_lines(manifest.variants),
        _preset_line(manifest),
        f"files    {counts.found:,} found, {counts.kept:,} kept{_without_rows(manifest)}, {counts.dropped:,} dropped",
        *(f"{count:>15,} {reason}: {reason.meaning}" for reason, count in counts.dropped_by_reason.items()),
        f"tokens   {tokens:,} kept; {_emitted_text(manifest)}",
        *language_lines(manifest.tokens_by_language),
        *_epoch_lines(manifest.epochs),
        *_tail_line(counts.tail_tokens_dropped),
        *previous_lines(manifest.previous_splits),
        *_cut_lines(manifest.decontamination),
        *_redaction_lines(counts.redactions),
        *_respelling_lines(counts.respellings),
        *_license_lines(counts.licenses),
        *_packing_line(manifest),
        formats_text(manifest),
        f"seconds  {seconds['total']:.2f} ({workers}): {phases}",
        f"         {tokens / seconds['total']:,.0f} tokens/s, {source_rate}/s of source",
        *_gpu_lines(manifest.run),
        f"dataset  {printable(out)}",
    ]
    return "\n".join(lines)


def _splits_table(manifest: Manifest) -> str:
    """Return a table of the splits, with the requested and the actual share of the tokens after cuts and sampling."""
    requested = requested_shares(manifest.settings)
    rows = [
        (
            *(str(split), f"{facts.files:,}", f"{facts.windows:,}", f"{facts.tokens:,}"),
            *(f"{requested[split]:.1%}" if split in requested else "", f"{facts.share:.1%}"),
        )
        for split, facts in manifest.splits.items()
    ]
    return table_text(("split", "files", f"{manifest.row_unit}s", "tokens", "requested", "actual"), rows)


def _preset_line(manifest: Manifest) -> str:
    facts = manifest.tokenizer
    name = preset_text(manifest.settings["preset"], has_mask=facts.mask_id is not None)
    end = printable(facts.end_token) if facts.end_token is not None else facts.end_id
    return f"preset   {name}" + (f"; {end} after each document" if facts.closing else "")


def _emitted_text(manifest: Manifest) -> str:
    emitted = sum(facts.emitted_tokens for facts in manifest.splits.values())
    if manifest.has_documents:
        return f"{emitted:,} in the rows, which hold text and no ids"
    return f"{counted(emitted, 'id')} in the rows, special tokens and padding included"


def _without_rows(manifest: Manifest) -> str:
    num = manifest.counts.kept - manifest.num_files_with_rows
    return f" ({num:,} without a row)" if num else ""


def language_lines(tokens_by_language: Mapping[str, Mapping[Split, int]]) -> list[str]:
    """Return a line with the languages that have the most tokens, and the sum of the others."""
    sums = Counter({language: sum(tokens.values()) for language, tokens in tokens_by_language.items()})
    named = [(name, tokens) for name, tokens in sums.most_common(MAX_LANGUAGES) if tokens]
    others = sum(tokens > 0 for tokens in sums.values()) - len(named)
    if others:
        named.append((counted(others, "other"), sums.total() - sum(tokens for _, tokens in named)))
    text = (f"{printable(name)} {tokens:,} ({tokens / sums.total():.1%})" for name, tokens in named)
    return [f"language {', '.join(text)}"] if named else []


def sampling_lines(facts: SamplingFacts | None, settings: Mapping[str, Any]) -> list[str]:
    if facts is None:
        return []
    if not facts.groups:
        natural, drawn = sum(facts.natural_windows.values()), sum(facts.windows.values())
        text = f"{drawn:,} of {counted(natural, 'window')}, from each file in proportion to its windows"
        return [f"sample   {text} (--sample-seed {settings['seed']})"]
    rows = [
        (
            *(group.name, f"{group.weight:g}", f"{group.files:,}", f"{group.natural_share:.1%}"),
            *(f"{group.requested_share:.1%}", f"{group.realised_share:.1%}", f"{group.epochs:.2f}"),
            str(group.largest_repeat),
        )
        for group in facts.groups
    ]
    if [group.weight for group in facts.groups] == [1]:
        group = facts.groups[0]
        windows = counted(group.windows, "window")
        return [f"target   {windows} in train, {group.epochs:.2f} times the {group.natural_windows:,} before sampling"]
    headings = ("weights for train", "weight", "files", "natural", "requested", "realized", "epochs", "max repeats")
    undrawn = ["The build did not sample rows. A trainer that samples rows by weight gets the realized shares.", ""]
    return [table_text(headings, rows), *(undrawn if settings["weights_only"] else [])]


def fim_lines(facts: FimFacts | None) -> list[str]:
    """Return lines about fill-in-the-middle: windows by kind of middle, and unchanged files by reason."""
    if facts is None:
        return []
    num_windows = sum(facts.forms.values())
    forms = ", ".join(f"{count:,} {form}" for form, count in facts.forms.items())
    middles = ", ".join(f"{kind} {count:,}" for kind, count in facts.middles.items())
    files = f"{facts.rewritten:,} of {counted(facts.chosen, 'chosen train file')}"
    return [
        f"fim      rate {facts.rate:g}: {files} rewritten, in {counted(num_windows, 'window')} ({forms})",
        *([f"         middles: {middles}"] if middles else []),
        *(f"{count:>15,} {why}: {why.meaning}" for why, count in facts.missing.items()),
        "",
    ]


def variant_lines(facts: Mapping[VariantKind, VariantFacts]) -> list[str]:
    """Return a table of the variants, and the number of missing variants by reason."""
    if not facts:
        return []
    rows = [
        (str(kind), f"{one.rate:g}", f"{one.chosen:,}", f"{one.made:,}", f"{one.windows:,}")
        for kind, one in facts.items()
    ]
    missing: dict[WhyNoVariant, dict[VariantKind, int]] = {}
    for kind, one in facts.items():
        for why, count in one.missing.items():
            missing.setdefault(why, {})[kind] = count
    return [
        table_text(("variants in train", "rate", "files chosen", "made", "windows"), rows).rstrip("\n"),
        *(_missing_line(why, counts) for why, counts in missing.items()),
        "",
    ]


def _missing_line(why: WhyNoVariant, counts: Mapping[VariantKind, int]) -> str:
    kinds = ", ".join(f"{kind} {count:,}" for kind, count in counts.items())
    return f"{sum(counts.values()):>15,} {why}: {why.meaning} ({kinds})"


def _epoch_lines(facts: EpochFacts | None) -> list[str]:
    """Return lines about repetition, or no lines if each window of train occurs once."""
    if facts is None or (facts.shown, facts.varied) == (1, 0):
        return []
    varied = (
        f", and {facts.varied:.2f} times as a variant (a variant counts as {facts.variant_worth:g})"
        if facts.varied
        else ""
    )
    shown = f"on average, train contains each window {facts.shown:.2f} times{varied}"
    most = f"{printable(facts.most_in)} ({facts.most:.2f})"
    return [
        f"epochs   {facts.effective:.2f} effective: {shown}",
        *([f"         most repeated file: {most}"] if facts.most >= MIN_EPOCHS_TO_NAME_FILE else []),
    ]


def _tail_line(num_tokens: int) -> list[str]:
    return (
        [f"         {num_tokens:,} of the kept tokens have no window, because --tail drop removed the ends of files"]
        if num_tokens
        else []
    )


def _cut_lines(facts: Decontamination) -> list[str]:
    lines = []
    for split, cut in facts.tokens_cut.items():
        if cut:
            share = cut / facts.tokens_before[split]
            elsewhere = "in train"
            if split is Split.TRAIN:
                elsewhere = "in held-out files" if facts.how == "train" and not facts.against else "in a benchmark"
                elsewhere += " or in held-out files" if facts.how == "train" and facts.against else ""
            files = counted(facts.files_cut[split], f"{split} file")
            where = "in windows with spans" if facts.how == "drop" and split is not Split.TRAIN else "in spans"
            lines.append(
                f"{counted(cut, 'token')} of {files} ({share:.1%} of {split}), {where} that also occur {elsewhere}"
            )
    lines += [
        f"{counted(one.tokens_cut, 'token')} of train, in spans that also occur in the benchmark {printable(one.name)} "
        f"({counted(one.texts, 'text')}, {one.texts_too_short:,} too short to be detected)"
        for one in facts.against
    ]
    return [f"{'cut' if not number else '':<8} {line}" for number, line in enumerate(lines)]


def previous_lines(facts: PreviousSplits | None) -> list[str]:
    if facts is None:
        return []
    moved = f", {facts.num_files_moved:,} moved" if facts.num_files_moved else ""
    kept = facts.num_files_kept_in_place
    kept_text = f"{counted(kept, 'file')} kept in {'its' if kept == 1 else 'their'} earlier split"
    return [f"splits   {kept_text}{moved} (--fresh-splits starts over)"]


def _redaction_lines(redactions: dict[str, int]) -> list[str]:
    if not redactions:
        return []
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in redactions.items())
    return [f"secrets  {sum(redactions.values()):,} redacted: {kinds}"]


def _respelling_lines(respellings: dict[str, int]) -> list[str]:
    if not respellings:
        return []
    named = [f"{count:,} {printable(name)}" for name, count in list(respellings.items())[:MAX_SPELLINGS]]
    more = f", {counted(len(respellings) - MAX_SPELLINGS, 'other')}" if len(respellings) > MAX_SPELLINGS else ""
    return [
        (
            f"escaped  {counted(sum(respellings.values()), 'control token')} by inserting a space: "
            f"{', '.join(named)}{more}"
        )
    ]


def _license_lines(licenses: dict[str, int]) -> list[str]:
    listed = [f"{count:,} {spdx}" for spdx, count in list(licenses.items())[:MAX_LICENSES]]
    more = f", {counted(len(licenses) - MAX_LICENSES, 'other')}" if len(licenses) > MAX_LICENSES else ""
    return [f"license  {', '.join(listed)}{more}"]


def _gpu_lines(run: Run) -> list[str]:
    gpu = run.gpu
    if gpu is None:
        return []
    if not gpu.documents:
        return [f"gpu      {'nothing to tokenize' if gpu.trouble is None else 'the CPU tokenized all documents'}"]
    documents = f"{counted(gpu.documents, 'document')} ({gpu.documents_on_cpu:,} on the CPU)"
    seconds = f"busy {gpu.seconds_busy:.2f} s of {gpu.seconds_ready:.1f} s"
    return [f"gpu      {size_text(gpu.bytes)}, {documents}; {seconds}: {_bottleneck(gpu, run.seconds)}"]


def _bottleneck(gpu: GpuFacts, seconds: Mapping[str, float]) -> str:
    """Return the bottleneck of the build: the GPU, reading and cleaning (step 1), or writing (step 3)."""
    if gpu.seconds_busy > gpu.seconds_ready / 2:
        return "workers waited for the GPU"
    if seconds.get("shape", 0.0) > seconds.get("prepare", 0.0):
        return "writing took longer than reading, cleaning and tokenizing"
    return "the GPU waited for reading and cleaning"


def _packing_line(manifest: Manifest) -> list[str]:
    if manifest.packing is None:
        return []
    order = repo_order_text(manifest)
    how = manifest.settings["window"]["pack"] if order is None else f"repo, files {order}"
    rows, segments = (sum(getattr(one, name) for one in manifest.packing.values()) for name in ("rows", "segments"))
    num_slots = rows * manifest.window_length
    empty = 1 - sum(one.ids for one in manifest.packing.values()) / num_slots
    packed = f"{counted(segments, 'segment')} of files in {counted(rows, 'row')}"
    return [f"packed   {packed} ({how}); {empty:.2%} of their space is empty"]


def formats_text(manifest: Manifest) -> str:
    """Return one line per format, with the size of its files."""
    lines: list[str] = []
    for name in manifest.formats:
        sizes = [facts.bytes for facts in manifest.files.values() if facts.format == name]
        text = f"{size_text(sum(sizes))} of {name} in {counted(len(sizes), 'file')}"
        lines.append(f"{'' if lines else 'size':<8} {text}")
    return "\n".join(lines)
