"""mlcroissant accepts croissant.json as valid Croissant 1.1 and uses the file to read the rows of the dataset."""

import json
from itertools import islice
from pathlib import Path

import msgspec
import pytest

from gristmill import Config, OutputConfig, SplitConfig, VariantsConfig, build, open_dataset
from gristmill.cards.croissant import croissant
from gristmill.core.layout import CROISSANT
from gristmill.core.manifest import FileFacts
from gristmill.core.records import DropReason, Split, VariantKind
from support.card_inputs import HOSTILE, hostile_manifest, with_parquet, write_sources
from support.late_imports import Late

mlc = Late("mlcroissant")

pytestmark = [  # warnings that mlcroissant itself causes
    pytest.mark.filterwarnings("ignore:ConjunctiveGraph is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:The inplace keyword in DataFrame.reset_index is deprecated"),
]

# mlcroissant warns that these properties are missing. Only the publisher can provide them.
ALLOWED_WARNINGS = ("citeAs", "datePublished")
BUILDS = {
    "plain": {},
    "shards": {"output": OutputConfig(shard_bytes=20_000)},
    "padded": {"output": OutputConfig(pad=True, with_text=True)},
    "varied": {"variants": VariantsConfig(rates={VariantKind.NOISE: 1.0})},
}


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    root = tmp_path_factory.mktemp("croissant")
    source = write_sources(root / "code")
    made = {}
    for kind, sections in BUILDS.items():
        split = SplitConfig(shares="70/15/15")
        manifest = build(Config(sources=[str(source)], out=str(root / kind), split=split, **sections))
        made[kind] = root / kind, manifest
    return made


def open_card(folder: Path, manifest):
    """Open the card with mlcroissant. Fail on errors, and on warnings that are not in ALLOWED_WARNINGS."""
    (folder / CROISSANT).write_bytes(croissant(manifest))
    dataset = mlc.Dataset(jsonld=folder / CROISSANT)
    issues = dataset.metadata.ctx.issues
    assert not issues.errors
    assert all(any(name in warning for name in ALLOWED_WARNINGS) for warning in issues.warnings), issues.warnings
    assert dataset.metadata.ctx.is_v1_1()
    return dataset


def to_row(record):
    """Convert a record of mlcroissant to a row. Texts become str."""
    return {
        name.removeprefix("rows/"): value.decode() if isinstance(value, bytes) else value
        for name, value in record.items()
    }


def read_rows(folder, split):
    return [{"split": str(split), **row} for row in open_dataset(folder)[split]]


@pytest.mark.parametrize("kind", BUILDS)
def test_mlcroissant_reads_the_rows(built, kind):
    folder, manifest = built[kind]
    records = [to_row(record) for record in open_card(folder, manifest).records("rows")]
    assert records == [row for split in sorted(Split) for row in read_rows(folder, split)]


def test_mlcroissant_reads_parquet_if_jsonl_is_compressed(built, tmp_path):
    folder, manifest = built["plain"]
    both = with_parquet(folder, tmp_path / "data", manifest)
    files = {
        name.replace(".jsonl", ".jsonl.zst") if facts.format == "jsonl" else name: facts
        for name, facts in both.files.items()
    }
    dataset = open_card(tmp_path / "data", msgspec.structs.replace(both, files=files))
    assert {f"parquet/{split}.parquet" for split in Split} == set(dataset.metadata.file_sets[0].includes)
    first = [to_row(record) for record in islice(dataset.records("rows"), 3)]
    assert first == read_rows(folder, Split.TEST)[:3]


def test_splits_have_their_croissant_types(built):
    dataset = open_card(*built["plain"])
    assert list(dataset.records("splits")) == [
        {"splits/name": "train", "splits/url": "cr:TrainingSplit"},
        {"splits/name": "validation", "splits/url": "cr:ValidationSplit"},
        {"splits/name": "test", "splits/url": "cr:TestSplit"},
    ]


def test_every_file_is_listed_with_its_digest_and_size(built):
    folder, manifest = built["plain"]
    objects = {one["@id"]: one for one in json.loads(croissant(manifest))["distribution"]}
    assert {name: facts.sha256 for name, facts in manifest.files.items()} == {
        name: one["sha256"] for name, one in objects.items() if "sha256" in one
    }
    assert objects["train.jsonl"]["contentSize"] == f"{(folder / 'train.jsonl').stat().st_size} B"
    assert objects["train.jsonl"]["contentUrl"] == "train.jsonl"


def test_compressed_rows_are_described_although_mlcroissant_cannot_read_them(built, tmp_path):
    _, manifest = built["plain"]
    files = {
        f"{split}.jsonl.zst": FileFacts(bytes=1, sha256="0" * 64, rows=1, split=split, format="jsonl")
        for split in Split
    }
    dataset = open_card(tmp_path, msgspec.structs.replace(manifest, files=files))
    assert dataset.metadata.file_sets[0].encoding_formats == ["application/jsonlines", "application/zstd"]
    with pytest.raises(mlc.GenerationError):
        next(iter(dataset.records("rows")))


@pytest.mark.parametrize("name", HOSTILE, ids=ascii)
def test_hostile_names_do_not_change_the_structure(built, name, tmp_path):
    _, manifest = built["plain"]
    dataset = open_card(tmp_path, hostile_manifest(manifest, name))
    assert [one.id for one in dataset.metadata.record_sets] == ["splits", "rows"]
    content = (tmp_path / CROISSANT).read_text()
    assert all(char.isprintable() or char == "\n" for char in content)


def test_version_is_1_0_0(built):
    folder, manifest = built["plain"]
    assert open_card(folder, manifest).metadata.version == "1.0.0"


def test_files_dropped_for_secrets_are_mentioned(built):
    _, manifest = built["plain"]
    counts = msgspec.structs.replace(manifest.counts, redactions={}, dropped_by_reason={DropReason.HOLDS_SECRET: 3})
    card = json.loads(croissant(msgspec.structs.replace(manifest, counts=counts)))
    assert card["rai:personalSensitiveInformation"] == ["Files with secrets were dropped: 3."]


def test_provenance_and_settings_are_recorded(built):
    _, manifest = built["varied"]
    card = json.loads(croissant(manifest))
    assert [one["prov:label"] for one in card["prov:wasDerivedFrom"]] == ["code"]
    assert card["prov:wasGeneratedBy"]["prov:wasAssociatedWith"]["prov:label"].startswith("gristmill ")
    assert card["sc:identifier"] == f"sha256:{manifest.content_sha256}"
    assert "variants.rates.noise = 1.0" in card["rai:dataPreprocessingProtocol"]
    assert not {"url", "creator", "datePublished", "citeAs"} & card.keys()
