"""YAML front matter of a dataset card, which the Hugging Face Hub and `datasets` read."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

from gristmill.cards.columns import features
from gristmill.cards.hub_licenses import license_entries
from gristmill.cards.snippets import data_files, default_format
from gristmill.core.manifest import Manifest
from gristmill.core.markdown import safe_title, to_yaml

CONFIG_NAME = "default"
MISSING_FILE = "add-a-format-by-gristmill-export-DIR---format-parquet"
"""Name of a file that does not exist. The error message of `datasets` contains it and so shows how to add a format."""
SIZES = ("1K", "10K", "100K", "1M", "10M", "100M", "1B", "10B", "100B", "1T")
SMALLEST_SIZE = 1000
MAX_TITLE_REPOS = 3
MAX_LANGUAGE_TAGS = 20


def front_matter(manifest: Manifest) -> str:
    return f"---\n{to_yaml(_entries(manifest))}---\n"


def dataset_title(manifest: Manifest, format_name: Callable[[str], str]) -> str:
    """Return a title such as `Code from requests, flask and 3 more`. `format_name` formats each name."""
    repos = [format_name(source.repo) for source in manifest.sources[:MAX_TITLE_REPOS]] or ["no sources"]
    others = len(manifest.sources) - MAX_TITLE_REPOS
    if others > 0:
        return f"Code from {', '.join(repos)} and {others:,} more"
    return f"Code from {' and '.join([', '.join(repos[:-1]), repos[-1]] if repos[1:] else repos)}"


def languages_by_tokens(manifest: Manifest) -> list[str]:
    """Return the languages, sorted by number of tokens, largest first."""
    found = manifest.tokens_by_language
    return sorted(found, key=lambda name: (-sum(found[name].values()), name))


def size_category(num_rows: int) -> str:
    """Return the Hub's size category, such as `1K<n<10K`."""
    if num_rows < SMALLEST_SIZE:
        return "n<1K"
    for number, (low, high) in enumerate(pairwise(SIZES)):
        if num_rows < SMALLEST_SIZE * 10 ** (number + 1):
            return f"{low}<n<{high}"
    return "n>1T"


def _entries(manifest: Manifest) -> dict[str, Any]:
    languages = [safe_title(name).lower() for name in languages_by_tokens(manifest)[:MAX_LANGUAGE_TAGS]]
    num_rows = sum(facts.windows for facts in manifest.splits.values())
    return {
        "pretty_name": dataset_title(manifest, safe_title),
        # The Hub expects a natural language here, or `code` for source code.
        "language": ["code"],
        **license_entries(manifest.counts.licenses),
        "size_categories": [size_category(num_rows)],
        "task_categories": ["fill-mask"] if manifest.preset == "mlm" else ["text-generation"],
        "tags": list(dict.fromkeys(["code", "gristmill", *languages])),
        **_loader_entries(manifest),
    }


def _loader_entries(manifest: Manifest) -> dict[str, Any]:
    name = default_format(manifest)
    if name is None:  # without this entry, `datasets` would load other JSON files as rows
        return {"configs": [{"config_name": CONFIG_NAME, "data_files": MISSING_FILE}]}
    files = data_files(manifest, name)
    sizes = {split: sum(facts.bytes for facts in split_files.values()) for split, split_files in files.items()}
    found = features(manifest.columns)
    splits = [
        {
            "name": str(split),
            "num_bytes": sizes[split],
            "num_examples": sum(facts.rows or 0 for facts in split_files.values()),
        }
        for split, split_files in files.items()
    ]
    total = sum(sizes.values())
    return {
        "configs": [
            {
                "config_name": CONFIG_NAME,
                "data_files": [
                    {"split": str(split), "path": _unwrap_single(list(split_files))}
                    for split, split_files in files.items()
                ],
            }
        ],
        "dataset_info": {
            "config_name": CONFIG_NAME,
            **({} if found is None else {"features": found}),
            "splits": splits,
            "download_size": total,
            "dataset_size": total,
        },
    }


def _unwrap_single(names: list[str]) -> str | list[str]:
    return names[0] if len(names) == 1 else names
