"""README.md of a dataset: a card as the Hugging Face Hub has them, from the manifest alone.

Nothing in it depends on when or where the build ran: the same manifest but for `run`, the same bytes.
"""

from collections.abc import Callable, Iterator, Sequence

from gristmill.cards.columns import text_of
from gristmill.cards.front_matter import front_matter, languages_by_tokens, named
from gristmill.cards.provenance import how_it_was_made, how_to_repeat_it, setting
from gristmill.cards.snippets import default_format, reading_lines
from gristmill.config.settings import asked_shares
from gristmill.core.manifest import Manifest
from gristmill.core.markdown import in_code, more, table
from gristmill.core.names import counted
from gristmill.core.records import Split, WhyNoVariant

# What a dataset does not promise, said in its cards.


def limits(manifest: Manifest) -> list[str]:
    """What is not guaranteed."""
    emails = ", but for e-mail addresses" if setting(manifest, "secrets", "emails") else ""
    shared = "Shared code of fewer than 50 tokens, or in other words, counts as no leakage and stays."
    return [
        "Secrets, generated code and near-duplicates are found by rules and sketches, which miss some.",
        shared if manifest.decontamination.how != "off" else "Held-out files and train may share code of any length.",
        f"Names and other personal data in comments and code are left as they are{emails}.",
        "Licences are what headers, package manifests, licence files and tables say; they are not reviewed.",
        "The code was not run, compiled or reviewed: it may be wrong, insecure or offensive.",
    ]


LISTED = 30
"""Languages and licences, at most."""
SPANS = {
    "cut": "Spans of 50 tokens and more that train and a held-out file share were cut out of the held-out file.",
    "drop": "Held-out windows that touch a span of 50 tokens and more which train has too were dropped.",
    "train": "Spans of 50 tokens and more that train and a held-out file share were cut out of train.",
    "off": "Spans that train and a held-out file share were **not** looked for: held-out scores may be too good.",
}


def readme(manifest: Manifest) -> bytes:
    sections: Sequence[Callable[[Manifest], Iterator[str]]] = (
        *(_what_it_is, _how_to_load_it, how_it_was_made, _splits, _filters, _secrets, _licenses),
        *(_languages, _sampling, _fim, _variants, _limits, how_to_repeat_it),
    )
    text = "\n".join(line for section in sections for line in section(manifest))
    return f"{front_matter(manifest)}\n{text}\n".encode()


def _what_it_is(manifest: Manifest) -> Iterator[str]:
    yield f"# {named(manifest, in_code)}\n"
    tokens = sum(facts.tokens for facts in manifest.splits.values())
    yield (
        f"Source code as windows of at most {manifest.window_length:,} token ids, ready to train a language model on: "
        f"{counted(manifest.num_files_shown, 'file')} of {counted(len(manifest.sources), 'source')}, "
        f"{counted(tokens, 'token')} of the tokenizer {in_code(manifest.tokenizer.name)}. "
        f"Made by {in_code(manifest.made_by)}, version {in_code(manifest.gristmill)}.\n"
    )
    asked = asked_shares(manifest.settings)
    rows = [
        (
            *(str(split), f"{facts.files:,}", f"{facts.windows:,}", f"{facts.tokens:,}"),
            *(f"{asked[split]:.1%}" if split in asked else "", f"{facts.share:.1%}"),
        )
        for split, facts in manifest.splits.items()
    ]
    yield from table(("split", "files", "windows", "tokens", "share asked for", "share"), rows)
    yield "A token counts once; `windows` are rows; `files` give at least one.\n"
    yield from table(("column", "what it is"), [(in_code(name), text_of(name)) for name in manifest.columns])


def _how_to_load_it(manifest: Manifest) -> Iterator[str]:
    yield "## How to load it\n"
    yield "`DIR` is the path of this folder; for the first line, also its name on the Hub.\n"
    yield "```python"
    for name, lines in reading_lines(manifest).items():
        is_default = name == default_format(manifest)
        yield from (line for line in lines[:-1])
        yield f"{lines[-1]}{'' if is_default else f'  # {name}'}\n"
    yield "import gristmill"
    yield 'gristmill.open_dataset("DIR")["train"][0]  # whichever format'
    yield "```\n"
    yield "`AutoTokenizer.from_pretrained` reads the tokenizer in this folder; `files.jsonl` says of every file found"
    yield "why it is in, out or in its split; `croissant.json` describes the dataset in Croissant 1.1, to which whoever"
    yield "publishes it adds `url`, `creator` and `datePublished`.\n"


def _splits(manifest: Manifest) -> Iterator[str]:
    facts = manifest.decontamination
    yield "## Splits and leakage\n"
    yield f"{_units_split(manifest)} {SPANS.get(facts.how, '')}\n"
    rows = [
        (str(split), f"{facts.files_cut[split]:,}", f"{cut:,}", f"{cut / max(1, facts.tokens_before[split]):.2%}")
        for split, cut in facts.tokens_cut.items()
    ]
    yield from table(("split", "files cut", "tokens cut", "of its tokens"), rows)
    if facts.against:
        yield "Texts of benchmarks whose spans were cut out of train:\n"
        told = [
            (
                in_code(one.name),
                in_code(one.sha256),
                f"{one.texts:,}",
                f"{one.texts_too_short:,}",
                f"{one.tokens_cut:,}",
            )
            for one in facts.against
        ]
        yield from table(("benchmark", "sha256", "texts", "too short to be found", "tokens cut"), told)


def _units_split(manifest: Manifest) -> str:
    unit = {"directory": "folders", "repo": "sources"}.get(setting(manifest, "split", "by"), "files")
    if setting(manifest, "duplicates", "near") == "keep":
        return f"Whole {unit} are split; near-duplicates were **not** looked for, and may be in several splits."
    return f"Whole {unit} are split, and near-duplicates are in the same split."


def _filters(manifest: Manifest) -> Iterator[str]:
    counts, near = manifest.counts, manifest.near_duplicates
    yield "## Filters\n"
    yield f"{counted(counts.found, 'file')} found, {counts.kept:,} kept, {counts.dropped:,} dropped.\n"
    if manifest.num_files_shown < counts.kept:
        without = counted(counts.kept - manifest.num_files_shown, "kept file")
        yield f"The sample has no row of {without}.\n"
    rows = [(f"`{reason}`", f"{num:,}", reason.meaning) for reason, num in counts.dropped_by_reason.items()]
    yield from table(("reason", "files", "what it means"), rows)
    if near.clusters:
        clusters = f"{counted(near.clusters, 'cluster')} with {counted(near.files, 'file')}"
        yield f"Near-duplicates: {clusters}; {near.dropped:,} dropped.\n"
    if counts.tail_tokens_dropped:
        yield f"Left out: {counted(counts.tail_tokens_dropped, 'token')} in short tails of files.\n"


def _secrets(manifest: Manifest) -> Iterator[str]:
    yield "## Secrets\n"
    action = setting(manifest, "secrets", "action")
    if action == "keep":
        yield "Secrets were **not** looked for.\n"
        return
    done = "Files that hold one were dropped." if action == "drop" else "A placeholder stands in the place of each."
    yield f"Keys, tokens and passwords of known forms were looked for. {done}\n"
    yield from table(("kind", "taken out"), [(in_code(k), f"{n:,}") for k, n in manifest.counts.redactions.items()])


def _licenses(manifest: Manifest) -> Iterator[str]:
    yield "## Licences\n"
    yield "Each file stays under its own licence; `files.jsonl` says which, and where that was read. `NOASSERTION`:"
    yield "none was recognised, which is no permission.\n"
    found = list(manifest.counts.licenses.items())
    yield from table(("SPDX", "files"), [(in_code(spdx), f"{num:,}") for spdx, num in found[:LISTED]])
    yield from more(len(found) - LISTED, "licences in files.jsonl")


def _languages(manifest: Manifest) -> Iterator[str]:
    yield "## Languages\n"
    names = languages_by_tokens(manifest)
    rows = [(in_code(n), *(f"{manifest.tokens_by_language[n].get(s, 0):,}" for s in Split)) for n in names[:LISTED]]
    yield from table(("language", *(f"tokens in {split}" for split in Split)), rows)
    yield from more(len(names) - LISTED, "languages in manifest.json")


def _sampling(manifest: Manifest) -> Iterator[str]:
    facts, epochs = manifest.sampling, manifest.epochs
    if facts is None:
        return
    yield "## Sampling\n"
    drawn = [(str(s), f"{facts.natural_windows[s]:,}", f"{num:,}") for s, num in facts.windows.items()]
    yield from table(("split", "windows by nature", "windows drawn"), drawn)
    groups = [
        (
            in_code(one.name),
            f"{one.weight:g}",
            f"{one.natural_share:.1%}",
            f"{one.realised_share:.1%}",
            f"{one.epochs:.2f}",
        )
        for one in facts.groups
    ]
    yield from table(("weighted group", "weight", "share by nature", "share in train", "epochs"), groups)
    yield f"A pass over train shows each window {epochs.shown:.2f} times on average.\n"


def _fim(manifest: Manifest) -> Iterator[str]:
    facts = manifest.fim
    if facts is None:
        return
    yield "## Fill in the middle\n"
    yield (
        f"{facts.rewritten:,} of {counted(facts.chosen, 'chosen train file')} are rewritten, window by window, so that "
        "the middle comes last. Held-out files are plain. The columns `fim`, `middle` and `middle_tokens` say where.\n"
    )
    rows = [(f"`{name}`", f"{count:,}") for name, count in (*facts.forms.items(), *facts.middles.items())]
    yield from table(("form, or kind of middle", "windows"), rows)
    missing = [(f"`{why}`", f"{count:,}", why.meaning) for why, count in facts.missing.items()]
    yield from table(("why a chosen file is not rewritten", "files", "meaning"), missing)


def _variants(manifest: Manifest) -> Iterator[str]:
    if not manifest.variants:
        return
    yield "## Variants\n"
    yield "Variations of train files, beside them in train and marked in the column `variant`.\n"
    rows = [
        (
            str(kind),
            f"{one.rate:g}",
            f"{one.made:,}",
            f"{one.windows:,}",
            "" if one.model is None else in_code(one.model),
        )
        for kind, one in manifest.variants.items()
    ]
    yield from table(("kind", "rate", "files", "windows", "model"), rows)
    missing: dict[str, int] = {}
    for one in manifest.variants.values():
        for why, num in one.missing.items():
            missing[why] = missing.get(why, 0) + num
    yield from table(
        ("why a chosen file has none", "files", "what it means"),
        [(f"`{why}`", f"{missing[why]:,}", why.meaning) for why in WhyNoVariant if why in missing],
    )


def _limits(manifest: Manifest) -> Iterator[str]:
    yield "## Limits\n"
    yield from (f"- {one}" for one in limits(manifest))
    yield ""
