"""README.md of a dataset: a dataset card for the Hugging Face Hub, generated from the manifest only.

The card does not depend on when or where the build ran: manifests that differ only in `run` give the same bytes.
"""

from collections.abc import Callable, Iterator, Sequence

from gristmill.cards.columns import describe_column
from gristmill.cards.front_matter import dataset_title, front_matter, languages_by_tokens
from gristmill.cards.provenance import build_section, get_setting, reproduce_section
from gristmill.cards.snippets import default_format, loading_code
from gristmill.config.settings import requested_shares
from gristmill.core.manifest import Manifest
from gristmill.core.markdown import more_line, name_as_code, table
from gristmill.core.names import counted
from gristmill.core.records import Split, WhyNoVariant


def limitations(manifest: Manifest) -> list[str]:
    """Return the limitations of a dataset, for README.md and croissant.json."""
    emails = ", except for e-mail addresses" if get_setting(manifest, "secrets", "emails") else ""
    shared = "Held-out files and train may share spans of fewer than 50 tokens, or equivalent code written differently."
    return [
        "Secrets, generated code and near-duplicates are detected by rules and similarity sketches, so some remain.",
        shared if manifest.decontamination.how != "off" else "Held-out files and train may share code of any length.",
        f"Names and other personal data in comments and code were kept{emails}.",
        "Licenses come from file headers, package manifests, license files and tables. They were not reviewed.",
        "The code was not run, compiled or reviewed. It may be wrong, insecure or offensive.",
    ]


MAX_LISTED = 30
"""Maximum number of rows in a table of languages, licenses or control tokens."""
DECONTAMINATION_TEXTS = {
    "cut": "Spans of 50 or more tokens that a held-out file shares with train were cut out of the held-out file.",
    "drop": "Held-out windows that overlap a span of 50 or more tokens that is also in train were dropped.",
    "train": "Spans of 50 or more tokens that train shares with a held-out file were cut out of train.",
    "off": "Spans that train shares with held-out files were **not** removed, so held-out scores may be too high.",
}


def readme(manifest: Manifest) -> bytes:
    """Return the content of README.md."""
    sections: Sequence[Callable[[Manifest], Iterator[str]]] = (
        *(_summary, _loading, build_section, _splits, _filters, _secrets, _control_tokens, _licenses),
        *(_languages, _sampling, _fim, _variants, _limitations, reproduce_section),
    )
    text = "\n".join(line for section in sections for line in section(manifest))
    return f"{front_matter(manifest)}\n{text}\n".encode()


def _summary(manifest: Manifest) -> Iterator[str]:
    yield f"# {dataset_title(manifest, name_as_code)}\n"
    tokens = sum(facts.tokens for facts in manifest.splits.values())
    content = f"windows of at most {manifest.window_length:,} token ids for training language models"
    if manifest.has_documents:
        content = "texts, one file per row, for trainers that tokenize themselves"
    yield (
        f"Source code as {content}: "
        f"{counted(manifest.num_files_with_rows, 'file')} from {counted(len(manifest.sources), 'source')}, "
        f"{counted(tokens, 'token')} with the tokenizer {name_as_code(manifest.tokenizer.name)}. "
        f"Created with {name_as_code(manifest.made_by)}, version {name_as_code(manifest.gristmill)}.\n"
    )
    configured = requested_shares(manifest.settings)
    rows = [
        (
            *(str(split), f"{facts.files:,}", f"{facts.windows:,}", f"{facts.tokens:,}"),
            *(f"{configured[split]:.1%}" if split in configured else "", f"{facts.share:.1%}"),
        )
        for split, facts in manifest.splits.items()
    ]
    row_unit = f"{manifest.row_unit}s"
    yield from table(("split", "files", row_unit, "tokens", "configured share", "actual share"), rows)
    cut_text = " A file from which spans were cut has one row per remaining piece." if manifest.has_documents else ""
    yield f"`files` counts files with at least one row, and `tokens` counts each token once.{cut_text}\n"
    yield from table(
        ("column", "description"), [(name_as_code(name), describe_column(name)) for name in manifest.columns]
    )


def _loading(manifest: Manifest) -> Iterator[str]:
    yield "## How to load it\n"
    yield "Replace `DIR` with the path of this folder. For `load_dataset`, `DIR` can also be the name on the Hub.\n"
    yield "```python"
    for name, lines in loading_code(manifest).items():
        is_default = name == default_format(manifest)
        yield from (line for line in lines[:-1])
        yield f"{lines[-1]}{'' if is_default else f'  # {name}'}\n"
    yield "import gristmill"
    yield 'gristmill.open_dataset("DIR")["train"][0]  # any format'
    yield "```\n"
    yield "`AutoTokenizer.from_pretrained` loads the tokenizer from this folder. `files.jsonl` lists every file that"
    yield "was found, with its split or the reason why it was dropped. `croissant.json` describes the dataset in"
    yield "Croissant 1.1, without `url`, `creator` and `datePublished`, which the publisher adds.\n"


def _splits(manifest: Manifest) -> Iterator[str]:
    facts = manifest.decontamination
    yield "## Splits and leakage\n"
    yield f"{_split_unit_text(manifest)} Files in validation and test are held out from training."
    yield f"{DECONTAMINATION_TEXTS.get(facts.how, '')}\n"
    rows = [
        (str(split), f"{facts.files_cut[split]:,}", f"{cut:,}", f"{cut / max(1, facts.tokens_before[split]):.2%}")
        for split, cut in facts.tokens_cut.items()
    ]
    yield from table(("split", "files cut", "tokens cut", "share of tokens cut"), rows)
    if facts.against:
        yield "Spans that train shares with these benchmarks were cut out of train:\n"
        benchmarks = [
            (
                name_as_code(one.name),
                name_as_code(one.sha256),
                f"{one.texts:,}",
                f"{one.texts_too_short:,}",
                f"{one.tokens_cut:,}",
            )
            for one in facts.against
        ]
        yield from table(("benchmark", "sha256", "texts", "texts too short to detect", "tokens cut"), benchmarks)


def _split_unit_text(manifest: Manifest) -> str:
    unit = {"directory": "folder", "repo": "source"}.get(get_setting(manifest, "split", "by"), "file")
    if get_setting(manifest, "duplicates", "near") == "keep":
        return f"Each {unit} is in one split only. Near-duplicates were **not** detected and may be in several splits."
    return f"Each {unit} is in one split only, and files that are near-duplicates are in the same split."


def _filters(manifest: Manifest) -> Iterator[str]:
    counts, near = manifest.counts, manifest.near_duplicates
    yield "## Filters\n"
    yield f"{counted(counts.found, 'file')} found, {counts.kept:,} kept, {counts.dropped:,} dropped.\n"
    if manifest.num_files_with_rows < counts.kept:
        files = counted(counts.kept - manifest.num_files_with_rows, "kept file")
        yield f"Sampling selected no rows from {files}.\n"
    rows = [(f"`{reason}`", f"{num:,}", reason.meaning) for reason, num in counts.dropped_by_reason.items()]
    yield from table(("reason", "files", "meaning"), rows)
    if near.clusters:
        clusters = f"{counted(near.clusters, 'cluster')} with {counted(near.files, 'file')}"
        yield f"Near-duplicates: {clusters}, {near.dropped:,} dropped.\n"
    if counts.tail_tokens_dropped:
        yield f"Short tails of files were dropped: {counted(counts.tail_tokens_dropped, 'token')}.\n"


def _secrets(manifest: Manifest) -> Iterator[str]:
    yield "## Secrets\n"
    action = get_setting(manifest, "secrets", "action")
    if action == "keep":
        yield "Files were **not** scanned for secrets.\n"
        return
    action_text = (
        "Files with a match were dropped." if action == "drop" else "Each match was replaced with a placeholder."
    )
    yield f"Files were scanned for keys, tokens and passwords in known formats. {action_text}\n"
    yield from table(("kind", "removed"), [(name_as_code(k), f"{n:,}") for k, n in manifest.counts.redactions.items()])


def _control_tokens(manifest: Manifest) -> Iterator[str]:
    if not manifest.has_documents:
        return
    yield "## Control tokens\n"
    action = get_setting(manifest, "output", "control_spellings")
    if action == "keep":
        yield "Texts were **not** scanned for names of control tokens. A tokenizer may treat such names as control"
        yield "tokens.\n"
        return
    action_text = (
        "Files with a match were dropped."
        if action == "drop"
        else "A space was added after the first character of each match. "
        "`respellings` in `files.jsonl` lists all matches."
    )
    yield f"Texts were scanned for names of control tokens, such as {name_as_code('<|endoftext|>')}. {action_text}\n"
    found = list(manifest.counts.respellings.items())
    yield from table(
        ("control token", "changed"), [(name_as_code(name), f"{num:,}") for name, num in found[:MAX_LISTED]]
    )
    yield from more_line(len(found) - MAX_LISTED, "control tokens", "manifest.json")


def _licenses(manifest: Manifest) -> Iterator[str]:
    yield "## Licenses\n"
    yield "Each file remains under its own license. `files.jsonl` records the license and where it was found."
    yield "`NOASSERTION` means that no license was recognized, so no rights are granted.\n"
    found = list(manifest.counts.licenses.items())
    yield from table(("SPDX", "files"), [(name_as_code(spdx), f"{num:,}") for spdx, num in found[:MAX_LISTED]])
    yield from more_line(len(found) - MAX_LISTED, "licenses", "files.jsonl")


def _languages(manifest: Manifest) -> Iterator[str]:
    yield "## Languages\n"
    names = languages_by_tokens(manifest)
    rows = [
        (name_as_code(n), *(f"{manifest.tokens_by_language[n].get(s, 0):,}" for s in Split)) for n in names[:MAX_LISTED]
    ]
    yield from table(("language", *(f"tokens in {split}" for split in Split)), rows)
    yield from more_line(len(names) - MAX_LISTED, "languages", "manifest.json")


def _sampling(manifest: Manifest) -> Iterator[str]:
    facts, epochs = manifest.sampling, manifest.epochs
    if facts is None:
        return
    yield "## Sampling\n"
    splits = [(str(s), f"{facts.natural_windows[s]:,}", f"{num:,}") for s, num in facts.windows.items()]
    yield from table(("split", "windows before sampling", "windows after sampling"), splits)
    groups = [
        (
            name_as_code(one.name),
            f"{one.weight:g}",
            f"{one.natural_share:.1%}",
            f"{one.realised_share:.1%}",
            f"{one.epochs:.2f}",
        )
        for one in facts.groups
    ]
    yield from table(("weighted group", "weight", "share before sampling", "share in train", "epochs"), groups)
    yield f"Train contains each window {epochs.shown:.2f} times on average.\n"


def _fim(manifest: Manifest) -> Iterator[str]:
    facts = manifest.fim
    if facts is None:
        return
    yield "## Fill-in-the-middle\n"
    yield (
        f"Rewritten: {facts.rewritten:,} of {counted(facts.chosen, 'chosen train file')}. In each window of a "
        "rewritten file, the middle comes last. Held-out files were not rewritten. The columns `fim`, `middle` and "
        "`middle_tokens` describe each row.\n"
    )
    rows = [(f"`{name}`", f"{count:,}") for name, count in (*facts.forms.items(), *facts.middles.items())]
    yield from table(("form or kind of middle", "windows"), rows)
    missing = [(f"`{why}`", f"{count:,}", why.meaning) for why, count in facts.missing.items()]
    yield from table(("reason for not rewriting a chosen file", "files", "meaning"), missing)


def _variants(manifest: Manifest) -> Iterator[str]:
    if not manifest.variants:
        return
    yield "## Variants\n"
    yield "Train also contains variants (changed copies) of its files. The column `variant` has the kind of variant.\n"
    rows = [
        (
            str(kind),
            f"{one.rate:g}",
            f"{one.made:,}",
            f"{one.windows:,}",
            "" if one.model is None else name_as_code(one.model),
        )
        for kind, one in manifest.variants.items()
    ]
    yield from table(("kind", "rate", "files", "windows", "model"), rows)
    missing: dict[str, int] = {}
    for one in manifest.variants.values():
        for why, num in one.missing.items():
            missing[why] = missing.get(why, 0) + num
    yield from table(
        ("reason why a chosen file has no variant", "files", "meaning"),
        [(f"`{why}`", f"{missing[why]:,}", why.meaning) for why in WhyNoVariant if why in missing],
    )


def _limitations(manifest: Manifest) -> Iterator[str]:
    yield "## Limitations\n"
    yield from (f"- {one}" for one in limitations(manifest))
    yield ""
