"""The head of a dataset card, in YAML: what the Hugging Face Hub and `datasets` go by."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

from gristmill.cards.columns import features
from gristmill.cards.hub_licenses import license_entries
from gristmill.cards.snippets import data_files, default_format
from gristmill.core.manifest import Manifest
from gristmill.core.markdown import title, yaml_of

CONFIG = "default"
NOTHING_TO_LOAD = "add-a-format-by-gristmill-export-DIR---format-parquet"
"""What `datasets` says that it does not find."""
SIZES = ("1K", "10K", "100K", "1M", "10M", "100M", "1B", "10B", "100B", "1T")
SMALLEST_SIZE = 1000
REPOS_NAMED = 3
LANGUAGES_TAGGED = 20


def front_matter(manifest: Manifest) -> str:
    return f"---\n{yaml_of(_entries(manifest))}---\n"


def named(manifest: Manifest, shown: Callable[[str], str]) -> str:
    """`Code of requests, flask and 3 more`, each name as `shown` has it."""
    first = [shown(source.repo) for source in manifest.sources[:REPOS_NAMED]] or ["nobody"]
    others = len(manifest.sources) - REPOS_NAMED
    if others > 0:
        return f"Code of {', '.join(first)} and {others:,} more"
    return f"Code of {' and '.join([', '.join(first[:-1]), first[-1]] if first[1:] else first)}"


def languages_by_tokens(manifest: Manifest) -> list[str]:
    found = manifest.tokens_by_language
    return sorted(found, key=lambda name: (-sum(found[name].values()), name))


def size_category(num_rows: int) -> str:
    """As the Hub has them: `n<1K`, `1K<n<10K` …"""
    if num_rows < SMALLEST_SIZE:
        return "n<1K"
    for number, (least, most) in enumerate(pairwise(SIZES)):
        if num_rows < SMALLEST_SIZE * 10 ** (number + 1):
            return f"{least}<n<{most}"
    return "n>1T"


def _entries(manifest: Manifest) -> dict[str, Any]:
    languages = [title(name).lower() for name in languages_by_tokens(manifest)[:LANGUAGES_TAGGED]]
    num_rows = sum(facts.windows for facts in manifest.splits.values())
    return {
        "pretty_name": named(manifest, title),
        # A human language elsewhere; `code` is the Hub's own word for what is none.
        "language": ["code"],
        **license_entries(manifest.counts.licenses),
        "size_categories": [size_category(num_rows)],
        "task_categories": ["fill-mask"] if manifest.preset == "mlm" else ["text-generation"],
        "tags": list(dict.fromkeys(["code", "gristmill", *languages])),
        **_loading(manifest),
    }


def _loading(manifest: Manifest) -> dict[str, Any]:
    name = default_format(manifest)
    if name is None:  # or `datasets` would take whatever JSON it finds for rows
        return {"configs": [{"config_name": CONFIG, "data_files": NOTHING_TO_LOAD}]}
    files = data_files(manifest, name)
    sizes = {split: sum(facts.bytes for facts in own.values()) for split, own in files.items()}
    found = features(manifest.columns)
    splits = [
        {"name": str(split), "num_bytes": sizes[split], "num_examples": sum(facts.rows or 0 for facts in own.values())}
        for split, own in files.items()
    ]
    total = sum(sizes.values())
    return {
        "configs": [
            {
                "config_name": CONFIG,
                "data_files": [{"split": str(split), "path": _one_or_all(list(own))} for split, own in files.items()],
            }
        ],
        "dataset_info": {
            "config_name": CONFIG,
            **({} if found is None else {"features": found}),
            "splits": splits,
            "download_size": total,
            "dataset_size": total,
        },
    }


def _one_or_all(names: list[str]) -> str | list[str]:
    return names[0] if len(names) == 1 else names
