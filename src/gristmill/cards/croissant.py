"""croissant.json: the metadata of a dataset in Croissant 1.1, generated from the manifest only.

The file lacks `url`, `creator`, `datePublished` and `citeAs`, which only the publisher can provide. It describes the
rows in only one format, the one that most readers support. It lists every file in the manifest with its digest.
"""

import json
from typing import Any

from gristmill.cards.columns import croissant_type, describe_column
from gristmill.cards.front_matter import dataset_title, languages_by_tokens
from gristmill.cards.hub_licenses import license_page
from gristmill.cards.provenance import get_setting, notable_settings
from gristmill.cards.readme import limitations
from gristmill.cards.snippets import LOADABLE_FORMATS, data_files
from gristmill.core.layout import FILES
from gristmill.core.manifest import Manifest
from gristmill.core.markdown import display_name, safe_title
from gristmill.core.names import counted
from gristmill.core.output_formats import FORMATS
from gristmill.core.records import DropReason, Split

FIRST_VERSION = "1.0.0"
CROISSANT_1_1 = "http://mlcommons.org/croissant/1.1"
RAI_1_0 = "http://mlcommons.org/croissant/RAI/1.0"
CROISSANT_TERMS = (
    *("annotation", "arrayShape", "citeAs", "column", "containedIn", "equivalentProperty", "excludes", "extract"),
    *("field", "fileObject", "fileProperty", "fileSet", "format", "includes", "isArray", "isLiveDataset", "jsonPath"),
    *("key", "md5", "parentField", "path", "readLines", "recordSet", "references", "regex", "repeated", "replace"),
    *("samplingRate", "sdVersion", "separator", "source", "subField", "transform", "unArchive", "value"),
)
CONTEXT: dict[str, Any] = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "sc": "https://schema.org/",
    "cr": "http://mlcommons.org/croissant/",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "dct": "http://purl.org/dc/terms/",
    "prov": "http://www.w3.org/ns/prov#",
    "conformsTo": "dct:conformsTo",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "description": {"@container": "@language"},
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "name": {"@container": "@language"},
    **{term: f"cr:{term}" for term in CROISSANT_TERMS},
}
ENCODINGS = {
    **{f".{name}": one.media_type for name, one in FORMATS.items() if one.media_type is not None},
    ".json": "application/json",
}
SPLIT_URLS = {Split.TRAIN: "cr:TrainingSplit", Split.VALIDATION: "cr:ValidationSplit", Split.TEST: "cr:TestSplit"}
ROWS = "rows"
SPLITS = "splits"
ROW_FILES = "row-files"
MAX_SOURCES = 1000


def croissant(manifest: Manifest) -> bytes:
    """Return the content of croissant.json."""
    content = {
        "@context": CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": [CROISSANT_1_1, RAI_1_0],
        "name": dataset_title(manifest, safe_title),
        "description": _description(manifest),
        "version": FIRST_VERSION,
        "license": [license_page(display_name(spdx)) for spdx in manifest.counts.licenses],
        "keywords": ["code", "language modeling", *map(safe_title, languages_by_tokens(manifest))],
        "isLiveDataset": False,
        **_provenance(manifest),
        **_responsibility(manifest),
        "distribution": [*_file_objects(manifest), *_file_sets(manifest)],
        "recordSet": _record_sets(manifest),
    }
    return json.dumps(content, indent=2, ensure_ascii=False).encode() + b"\n"


def _description(manifest: Manifest) -> str:
    tokens = sum(facts.tokens for facts in manifest.splits.values())
    windows = sum(facts.windows for facts in manifest.splits.values())
    rows = f"{counted(windows, 'window')} of at most {manifest.window_length:,} token ids"
    if manifest.has_documents:
        rows = f"{counted(windows, 'text')}"
    return (
        f"Source code of {counted(manifest.num_files_with_rows, 'file')} as {rows}: {counted(tokens, 'token')} with "
        f"the tokenizer {display_name(manifest.tokenizer.name)}. "
        "No file is in more than one split."
    )


def _provenance(manifest: Manifest) -> dict[str, Any]:
    sources = [
        {"@type": "prov:Entity", "prov:label": display_name(one.repo)}
        | ({} if one.commit is None else {"sc:identifier": display_name(one.commit)})
        for one in manifest.sources[:MAX_SOURCES]
    ]
    made_by = {"@type": "prov:SoftwareAgent", "prov:label": f"gristmill {display_name(manifest.gristmill)}"}
    activity = {
        "@type": "prov:Activity",
        "prov:label": display_name(manifest.made_by),
        "prov:wasAssociatedWith": made_by,
    }
    return {
        "sc:identifier": f"sha256:{display_name(manifest.content_sha256)}",
        "prov:wasDerivedFrom": sources,
        "prov:wasGeneratedBy": activity,
    }


def _responsibility(manifest: Manifest) -> dict[str, Any]:
    counts = manifest.counts
    settings = (f"{name} = {value}" for name, value in notable_settings(manifest).items())
    return {
        "rai:dataCollection": f"{counted(counts.found, 'file')} found in {counted(len(manifest.sources), 'source')}: "
        f"{counts.kept:,} kept and {counts.dropped:,} dropped. {FILES} has the reason for each dropped file.",
        "rai:dataPreprocessingProtocol": [display_name(one) for one in settings],
        "rai:dataLimitations": limitations(manifest),
        "rai:personalSensitiveInformation": [_secrets_text(manifest)],
    }


def _secrets_text(manifest: Manifest) -> str:
    if get_setting(manifest, "secrets", "action") == "keep":
        return "The files were not scanned for secrets."
    counts = manifest.counts
    removed = ", ".join(f"{num:,} {display_name(kind)}" for kind, num in counts.redactions.items())
    num_dropped = counts.dropped_by_reason.get(DropReason.HOLDS_SECRET, 0)
    texts = [
        *([f"Secrets in known formats were removed: {removed}."] if removed else []),
        *([f"Files with secrets were dropped: {num_dropped:,}."] if num_dropped else []),
    ]
    return " ".join(texts) or "No secrets in known formats were found."


def _file_objects(manifest: Manifest) -> list[dict[str, Any]]:
    return [
        {
            "@type": "cr:FileObject",
            "@id": name,
            "name": name,
            "contentUrl": name,
            "contentSize": f"{facts.bytes} B",
            "sha256": facts.sha256,
            "encodingFormat": encodings(name),
        }
        for name, facts in manifest.files.items()
    ]


def encodings(name: str) -> str | list[str]:
    """Return the media type of a file, or a list of two media types if the file is compressed."""
    if name.endswith(".zst"):
        return [str(encodings(name.removesuffix(".zst"))), "application/zstd"]
    return next((kind for suffix, kind in ENCODINGS.items() if name.endswith(suffix)), "application/octet-stream")


def _row_files(manifest: Manifest) -> list[str]:
    """Return the data files of the preferred format.

    Compressed files are used only if no format has uncompressed files, because mlcroissant cannot decompress them.
    """
    by_format = [
        [name for files in data_files(manifest, one).values() for name in files]
        for one in LOADABLE_FORMATS
        if one in manifest.formats
    ]
    return min((names for names in by_format if names), key=lambda names: names[0].endswith(".zst"), default=[])


def _file_sets(manifest: Manifest) -> list[dict[str, Any]]:
    names = _row_files(manifest)
    if not names:
        return []
    file_set = {"@type": "cr:FileSet", "@id": ROW_FILES, "name": ROW_FILES}
    return [{**file_set, "encodingFormat": encodings(names[0]), "includes": names}]


def _record_sets(manifest: Manifest) -> list[dict[str, Any]]:
    if not _row_files(manifest):
        return []
    splits = [split for split, facts in manifest.splits.items() if facts.windows]
    split_records = {
        "@type": "cr:RecordSet",
        "@id": SPLITS,
        "name": SPLITS,
        "dataType": "cr:Split",
        "key": {"@id": f"{SPLITS}/name"},
        "field": [
            {"@type": "cr:Field", "@id": f"{SPLITS}/name", "dataType": "sc:Text"},
            {"@type": "cr:Field", "@id": f"{SPLITS}/url", "dataType": "sc:URL"},
        ],
        "data": [{f"{SPLITS}/name": str(split), f"{SPLITS}/url": SPLIT_URLS[split]} for split in splits],
    }
    row_records = {
        "@type": "cr:RecordSet",
        "@id": ROWS,
        "name": ROWS,
        "description": f"One {manifest.row_unit} per row.",
        "field": [_split_field(), *(field for column in manifest.columns if (field := _field(column)) is not None)],
    }
    return [split_records, row_records]


def _split_field() -> dict[str, Any]:
    """Return the field that extracts the split from a file name such as `train-00000-of-00002.jsonl`.

    mlcroissant applies the regex twice, so the regex must also match its own result, the name of the split.
    """
    return {
        "@type": "cr:Field",
        "@id": f"{ROWS}/split",
        "name": "split",
        "dataType": "sc:Text",
        "references": {"field": {"@id": f"{SPLITS}/name"}},
        "source": {
            "fileSet": {"@id": ROW_FILES},
            "extract": {"fileProperty": "filename"},
            "transform": {"regex": f"^({'|'.join(Split)})"},
        },
    }


def _field(column: str) -> dict[str, Any] | None:
    kind = croissant_type(column)
    if kind is None:
        return None
    data_type, is_array = kind
    return {
        "@type": "cr:Field",
        "@id": f"{ROWS}/{column}",
        "name": column,
        "description": describe_column(column),
        "dataType": data_type,
        **({"isArray": True, "arrayShape": "-1"} if is_array else {}),
        "source": {"fileSet": {"@id": ROW_FILES}, "extract": {"column": column}},
    }
