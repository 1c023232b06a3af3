"""croissant.json: mlcroissant takes it as Croissant 1.1 and reads the rows through it."""

import json
from itertools import islice
from pathlib import Path

import msgspec
import pytest

from gristmill import Config, OutputConfig, SplitConfig, VariantsConfig, build, open_dataset
from gristmill.cards.croissant import croissant
from gristmill.core.layout import CROISSANT
from gristmill.core.manifest import FileFacts
from gristmill.core.records import Split, VariantKind
from support.card_inputs import HOSTILE, hostile_manifest, with_parquet, write_sources
from support.late_imports import Late

mlc = Late("mlcroissant")

pytestmark = [  # of its own making
    pytest.mark.filterwarnings("ignore:ConjunctiveGraph is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:The inplace keyword in DataFrame.reset_index is deprecated"),
]

# Only a publisher knows these.
UNKNOWN = ("citeAs", "datePublished")
MADE = {
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
    for kind, sections in MADE.items():
        split = SplitConfig(shares="70/15/15")
        manifest = build(Config(sources=[str(source)], out=str(root / kind), split=split, **sections))
        made[kind] = root / kind, manifest
    return made


def opened(folder: Path, manifest):
    """As mlcroissant has it: without errors, and without warnings but of what is not ours to know."""
    (folder / CROISSANT).write_bytes(croissant(manifest))
    dataset = mlc.Dataset(jsonld=folder / CROISSANT)
    issues = dataset.metadata.ctx.issues
    assert not issues.errors
    assert all(any(name in warning for name in UNKNOWN) for warning in issues.warnings), issues.warnings
    assert dataset.metadata.ctx.is_v1_1()
    return dataset


def plain(record):
    """As our own reader has it: columns by name, text as text."""
    return {
        name.removeprefix("rows/"): value.decode() if isinstance(value, bytes) else value
        for name, value in record.items()
    }


def rows_of(folder, split):
    return [{"split": str(split), **row} for row in open_dataset(folder)[split]]


@pytest.mark.parametrize("kind", MADE)
def test_mlcroissant_reads_the_rows(built, kind):
    folder, manifest = built[kind]
    records = [plain(record) for record in opened(folder, manifest).records("rows")]
    assert records == [row for split in sorted(Split) for row in rows_of(folder, split)]


def test_mlcroissant_reads_parquet_where_jsonl_is_compressed(built, tmp_path):
    folder, manifest = built["plain"]
    both = with_parquet(folder, tmp_path / "data", manifest)
    files = {
        name.replace(".jsonl", ".jsonl.zst") if facts.format == "jsonl" else name: facts
        for name, facts in both.files.items()
    }
    dataset = opened(tmp_path / "data", msgspec.structs.replace(both, files=files))
    assert {f"parquet/{split}.parquet" for split in Split} == set(dataset.metadata.file_sets[0].includes)
    first = [plain(record) for record in islice(dataset.records("rows"), 3)]
    assert first == rows_of(folder, Split.TEST)[:3]


def test_splits_are_told_by_their_meaning(built):
    dataset = opened(*built["plain"])
    assert list(dataset.records("splits")) == [
        {"splits/name": "train", "splits/url": "cr:TrainingSplit"},
        {"splits/name": "validation", "splits/url": "cr:ValidationSplit"},
        {"splits/name": "test", "splits/url": "cr:TestSplit"},
    ]


def test_every_file_is_there_with_its_digest_and_size(built):
    folder, manifest = built["plain"]
    objects = {one["@id"]: one for one in json.loads(croissant(manifest))["distribution"]}
    assert {name: facts.sha256 for name, facts in manifest.files.items()} == {
        name: one["sha256"] for name, one in objects.items() if "sha256" in one
    }
    assert objects["train.jsonl"]["contentSize"] == f"{(folder / 'train.jsonl').stat().st_size} B"
    assert objects["train.jsonl"]["contentUrl"] == "train.jsonl"


def test_compressed_rows_are_described_though_mlcroissant_cannot_unpack_them(built, tmp_path):
    _, manifest = built["plain"]
    files = {
        f"{split}.jsonl.zst": FileFacts(bytes=1, sha256="0" * 64, rows=1, split=split, format="jsonl")
        for split in Split
    }
    dataset = opened(tmp_path, msgspec.structs.replace(manifest, files=files))
    assert dataset.metadata.file_sets[0].encoding_formats == ["application/jsonlines", "application/zstd"]
    with pytest.raises(mlc.GenerationError):
        next(iter(dataset.records("rows")))


@pytest.mark.parametrize("name", HOSTILE, ids=ascii)
def test_hostile_names_stay_names(built, name, tmp_path):
    _, manifest = built["plain"]
    dataset = opened(tmp_path, hostile_manifest(manifest, name))
    assert [one.id for one in dataset.metadata.record_sets] == ["splits", "rows"]
    content = (tmp_path / CROISSANT).read_text()
    assert all(char.isprintable() or char == "\n" for char in content)


def test_the_version_is_the_first(built):
    folder, manifest = built["plain"]
    assert opened(folder, manifest).metadata.version == "1.0.0"


def test_where_it_comes_from_and_what_was_done_is_told(built):
    _, manifest = built["varied"]
    told = json.loads(croissant(manifest))
    assert [one["prov:label"] for one in told["prov:wasDerivedFrom"]] == ["code"]
    assert told["prov:wasGeneratedBy"]["prov:wasAssociatedWith"]["prov:label"].startswith("gristmill ")
    assert told["sc:identifier"] == f"sha256:{manifest.content_sha256}"
    assert "variants.rates.noise = 1.0" in told["rai:dataPreprocessingProtocol"]
    assert not {"url", "creator", "datePublished", "citeAs"} & told.keys()
