"""`datasets` loads a dataset with its README.md, and no name in a repository can break the file."""

import json
import re
from contextlib import chdir

import msgspec
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from gristmill import (
    Config,
    OutputConfig,
    SamplingConfig,
    SplitConfig,
    VariantsConfig,
    build,
    check,
    export,
    open_dataset,
)
from gristmill.cards.card_files import card_files
from gristmill.cards.front_matter import size_category
from gristmill.cards.hub_licenses import hub_license, license_entries
from gristmill.cards.readme import readme
from gristmill.cards.snippets import loading_code
from gristmill.core.columns import COLUMNS, IDS, Kind
from gristmill.core.layout import CROISSANT, README
from gristmill.core.manifest import FileFacts, SourceFacts
from gristmill.core.markdown import name_as_code, safe_title, to_yaml
from gristmill.core.records import Split, VariantKind
from support.card_inputs import HOSTILE, hostile_manifest, with_parquet, write_sources

BUILDS = {
    "plain": {},
    "shards": {"output": OutputConfig(shard_bytes=20_000)},
    "zstd": {"output": OutputConfig(compress="zstd")},
    "padded": {"output": OutputConfig(pad=True, with_text=True)},
    "varied": {
        "variants": VariantsConfig(rates={VariantKind.RENAME: 1.0, VariantKind.NOISE: 1.0}),
        "sampling": SamplingConfig(weights={"*.py": 3.0, "*.md": 0.5}),
    },
    "weighted": {"sampling": SamplingConfig(weights={"*.py": 3.0}, weights_only=True)},
}


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Build each dataset in BUILDS and write its cards. Return (folder, manifest) of each build, by name."""
    root = tmp_path_factory.mktemp("cards")
    source = write_sources(root / "code")
    result = {}
    for kind, sections in BUILDS.items():
        folder = root / kind
        manifest = build(
            Config(sources=[str(source)], out=str(folder), split=SplitConfig(shares="70/15/15"), **sections)
        )
        for name, content in card_files(manifest).items():
            (folder / name).write_bytes(content)
        result[kind] = folder, manifest
    return result


def split_card(card: bytes):
    """Return the parsed front matter and the text below it."""
    _, front, text = card.decode().split("---\n", 2)
    return yaml.safe_load(front), text


def markdown_tokens(text):
    found = []
    for token in MarkdownIt("commonmark").enable("table").parse(text):
        found += [token, *(token.children or ())]
    return found


@pytest.mark.parametrize("kind", BUILDS)
def test_load_dataset_finds_splits_and_columns_from_the_card(built, kind, tmp_path, monkeypatch):
    import datasets

    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    datasets.disable_progress_bars()
    folder, manifest = built[kind]
    loaded = datasets.load_dataset(str(folder), cache_dir=str(tmp_path))
    assert {name: len(rows) for name, rows in loaded.items()} == {s: f.windows for s, f in manifest.splits.items()}
    for split in Split:
        assert list(loaded[split]) == list(open_dataset(folder)[split])
    features = loaded["train"].features
    assert list(features) == manifest.columns
    assert features[IDS] == datasets.List(datasets.Value("int32"))


def test_all_shards_are_listed(built):
    front, _ = split_card(readme(built["shards"][1]))
    train = front["configs"][0]["data_files"][0]
    assert train["split"] == "train"
    assert train["path"] == [f"train-{n:05}-of-{len(train['path']):05}.jsonl" for n in range(len(train["path"]))]
    assert len(train["path"]) > 1


@pytest.mark.parametrize("kind", BUILDS)
def test_card_does_not_depend_on_time_and_machine(built, kind):
    _, manifest = built[kind]
    run = msgspec.structs.replace(
        manifest.run, started_at="1970-01-01", seconds={"total": 9.0}, workers=99, platform="Plan 9", python="2.7"
    )
    assert card_files(msgspec.structs.replace(manifest, run=run)) == card_files(manifest)


def test_front_matter_has_the_fields_of_the_hub(built):
    front, _ = split_card(readme(built["plain"][1]))
    assert front["pretty_name"] == "Code from code"
    assert front["language"] == ["code"]
    assert front["task_categories"] == ["fill-mask"]
    assert front["size_categories"] == ["n<1K"]
    assert {"code", "gristmill", "python", "markdown"} <= set(front["tags"])
    info = front["dataset_info"]
    assert info["download_size"] == sum((built["plain"][0] / f"{split}.jsonl").stat().st_size for split in Split)
    assert [split["num_examples"] for split in info["splits"]] == [
        built["plain"][1].splits[split].windows for split in Split
    ]


def test_text_lists_drops_redactions_and_variants(built):
    _, manifest = built["varied"]
    _, text = split_card(readme(manifest))
    for reason, count in manifest.counts.dropped_by_reason.items():
        assert f"| `{reason}` | {count} | {reason.meaning} |" in text
    assert manifest.counts.dropped_by_reason
    assert manifest.counts.redactions
    for kind, count in manifest.counts.redactions.items():
        assert f"| `{kind}` | {count} |" in text
    for digest in (manifest.fingerprint, manifest.content_sha256, manifest.tokenizer.sha256):
        assert digest in text
    assert '| `sampling.weights` | `[["*.py",3.0],["*.md",0.5]]` |' in text
    assert "| rename | 1 |" in text


def test_missing_decontamination_is_stated(tmp_path):
    source = write_sources(tmp_path / "code")
    manifest = build(Config(sources=[str(source)], out=str(tmp_path / "out"), split=SplitConfig(decontaminate="off")))
    _, text = split_card(readme(manifest))
    assert "were **not** removed, so held-out scores may be too high" in text


@pytest.mark.parametrize("name", HOSTILE, ids=ascii)
def test_hostile_names_do_not_become_markup(built, name):
    manifest = built["varied"][1]
    card = readme(hostile_manifest(manifest, name))
    front, text = split_card(card)
    assert set(front) <= {*split_card(readme(manifest))[0], "license_name", "license_link"}
    assert front["configs"] == split_card(readme(manifest))[0]["configs"]
    kinds = {token.type for token in markdown_tokens(text)}
    assert not kinds & {"html_inline", "html_block", "image", "link_open"}
    assert all(char.isprintable() or char == "\n" for char in card.decode())
    plain = [token.content for token in markdown_tokens(text) if token.type == "text"]
    assert not any("evil" in one or "onerror" in one for one in plain), "a name is plain text instead of a code span"
    headings = [token for token in markdown_tokens(text) if token.type == "heading_open"]
    assert len(headings) == len(
        [token for token in markdown_tokens(split_card(readme(manifest))[1]) if token.type == "heading_open"]
    )


def test_source_folder_with_a_hostile_name_is_built_and_listed(tmp_path):
    import datasets

    source = write_sources(tmp_path / "<img src=x onerror=alert(1)>|`---\nlicense: gpl\n\u202e")
    manifest = build(Config(sources=[str(source)], out=str(tmp_path / "out")))
    for name, content in card_files(manifest).items():
        (tmp_path / "out" / name).write_bytes(content)
    front, text = split_card((tmp_path / "out" / README).read_bytes())
    assert front["license"] != "gpl"
    assert "`<img src=x onerror=alert(1)>\\x7c\\x60---\\nlicense: gpl\\n\\u202e`" in text
    datasets.disable_progress_bars()
    loaded = datasets.load_dataset(str(tmp_path / "out"), cache_dir=str(tmp_path / "cache"))
    assert loaded["train"][0]["repo"] == source.name


def test_long_lists_are_truncated_and_counted(built):
    manifest = built["plain"][1]
    many = [SourceFacts(repo=f"r{number}", commit=None, found=1) for number in range(1000)]
    licenses = {f"LicenseRef-{number}": 1 for number in range(100)}
    counts = msgspec.structs.replace(manifest.counts, licenses=licenses)
    card = readme(msgspec.structs.replace(manifest, sources=many, counts=counts)).decode()
    assert "And 950 more sources in manifest.json." in card
    assert "And 70 more licenses in files.jsonl." in card
    assert "# Code from `r0`, `r1`, `r2` and 997 more" in card


values = st.recursive(
    st.text(min_size=1) | st.integers(),
    lambda inner: (
        st.lists(inner, min_size=1, max_size=3)
        | st.dictionaries(
            st.from_regex(r"[a-z_]{3,8}", fullmatch=True).filter(
                lambda k: k not in {"yes", "off", "true", "null", "false"}
            ),
            inner,
            min_size=1,
            max_size=3,
        )
    ),
    max_leaves=5,
)


@settings(max_examples=40)  # PyYAML is slow
@given(st.dictionaries(st.just("key"), values, min_size=1))
def test_yaml_round_trip(value):
    assert yaml.safe_load(to_yaml(value)) == value
    assert not re.search(r"^(---|\.\.\.)", to_yaml(value), re.MULTILINE)


@given(st.text() | st.sampled_from(HOSTILE))
def test_name_in_a_table_is_one_code_span(name):
    text = f"| a | b |\n| --- | --- |\n| {name_as_code(name)} | after |\n"
    found = markdown_tokens(text)
    assert [token.type for token in found].count("td_open") == 2
    inner = [token for token in found if token.type in {"code_inline", "html_inline", "link_open", "image"}]
    assert [token.type for token in inner] == ([] if name_as_code(name) == "(no name)" else ["code_inline"])
    assert "\n" not in name_as_code(name)


@given(st.text())
def test_title_has_no_markup(name):
    assert not set(safe_title(name)) & set("<>[]()`|&*:\\\"'{}\n")
    assert safe_title(name).isprintable()


@pytest.mark.parametrize(
    ("spdx", "expected"),
    [
        ("MIT", "mit"),
        ("Apache-2.0", "apache-2.0"),
        ("GPL-3.0-or-later", "gpl-3.0"),
        ("AGPL-3.0-only", "agpl-3.0"),
        ("LGPL-2.1-only", "lgpl-2.1"),
        ("GFDL-1.3-no-invariants-only", "gfdl"),
        ("ODC-By-1.0", "odc-by"),
        ("CC0-1.0", "cc0-1.0"),
        ("NOASSERTION", "unknown"),
        ("MIT OR Apache-2.0", "other"),
        ("Python-2.0", "other"),
    ],
)
def test_license_has_the_identifier_of_the_hub(spdx, expected):
    assert hub_license(spdx) == expected


def test_several_licenses_are_a_list_and_a_single_unknown_one_is_named():
    assert license_entries(["MIT"]) == {"license": "mit"}
    assert license_entries(["MIT", "NOASSERTION", "Python-2.0", "NCSA"]) == {
        "license": ["mit", "unknown", "other", "ncsa"]
    }
    assert license_entries(["Python-2.0"]) == {
        "license": "other",
        "license_name": "python-2.0",
        "license_link": "https://spdx.org/licenses/Python-2.0.html",
    }
    assert license_entries(["MIT OR ISC"]) == {"license": "other"}
    assert license_entries([]) == {"license": "unknown"}


def test_every_license_in_the_table_is_an_spdx_id():
    from packaging.licenses import canonicalize_license_expression

    from gristmill.cards.hub_licenses import OTHER_NAME, SAME_NAME

    for name in SAME_NAME | OTHER_NAME.keys():
        assert canonicalize_license_expression(name).lower() == name


@pytest.mark.parametrize(
    ("num_rows", "expected"),
    [
        (0, "n<1K"),
        (999, "n<1K"),
        (1000, "1K<n<10K"),
        (123_456, "100K<n<1M"),
        (10**12 - 1, "100B<n<1T"),
        (10**12, "n>1T"),
    ],
)
def test_size_categories(num_rows, expected):
    assert size_category(num_rows) == expected


@pytest.mark.parametrize("formats", [["jsonl", "parquet"], ["parquet"]], ids=",".join)
def test_loading_code_of_each_format_works(built, formats, tmp_path, monkeypatch):
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    datasets.disable_progress_bars()
    folder, manifest = built["plain"]
    both = msgspec.structs.replace(with_parquet(folder, tmp_path / "DIR", manifest), formats=formats)
    (tmp_path / "DIR" / README).write_bytes(readme(both))
    rows = {str(split): list(open_dataset(folder)[split]) for split in Split}
    assert list(loading_code(both)) == formats
    with chdir(tmp_path):
        for imports, line in loading_code(both).values():
            names = {}
            exec(imports, names)
            assert {name: list(found) for name, found in eval(line, names).items()} == rows
            assert line in readme(both).decode()


def test_formats_that_datasets_cannot_read_have_their_own_loading_code(built):
    manifest = built["plain"][1]
    names = {
        "arrow": "arrow/train/data-00000-of-00001.arrow",
        "npy": "npy/train.npy",
        "bin": "bin/train.bin",
        "megatron": "megatron/train.bin",
        "mds": "mds/train/shard.00000.mds",
        "litdata": "litdata/train/chunk-0-0.bin",
    }
    files = {
        name: FileFacts(bytes=1, sha256="0" * 64, rows=1, split=Split.TRAIN, format=kind)
        for kind, name in names.items()
    }
    other = msgspec.structs.replace(manifest, files=files, formats=list(names))
    front, text = split_card(readme(other))
    assert "export-DIR---format-parquet" in front["configs"][0]["data_files"]
    assert "dataset_info" not in front
    for line in (
        'load_from_disk("DIR/arrow")  # arrow',
        'numpy.load("DIR/npy/train.npy", mmap_mode="r")  # npy',
        'numpy.memmap("DIR/bin/train.bin", numpy.uint16, mode="r")  # bin',
        'IndexedDataset("DIR/megatron/train")  # megatron',
        'StreamingDataset(local="DIR/mds", split="train")  # mds',
        'StreamingDataset("DIR/litdata/train")  # litdata',
    ):
        assert line in text


def test_every_column_is_described():
    from gristmill.cards.columns import describe_column, features

    assert all(map(describe_column, COLUMNS))
    assert features([IDS, "segments"]) is None, (
        "features() must return None if a column contains objects, because `datasets` infers their type"
    )
    simple = [name for name, column in COLUMNS.items() if column.kind is not Kind.OBJECTS]
    assert [one["name"] for one in features(simple)] == simple


def test_cards_are_not_listed_in_the_manifest(built):
    manifest = built["plain"][1]
    assert list(card_files(manifest)) == [README, CROISSANT] == ["README.md", "croissant.json"]
    assert not {README, CROISSANT} & set(manifest.files)


def test_manual_changes_are_kept_and_loader_entries_are_updated(tmp_path):
    from datasets import load_dataset

    source = write_sources(tmp_path / "code")
    config = Config(sources=[str(source)], out=str(tmp_path / "out"))
    build(config)
    readme_path, croissant_path = tmp_path / "out" / README, tmp_path / "out" / CROISSANT
    card = readme_path.read_text().replace("## Limitations\n", "## My notes\n", 1)
    card = card.replace("task_categories:\n", "license_name: mine\ntask_categories:\n", 1)
    readme_path.write_text(card)
    described = json.loads(croissant_path.read_text())
    croissant_path.write_text(json.dumps({**described, "version": "2.0.0", "creator": "me", "distribution": []}))
    (source / "more.py").write_text("".join(f"more_{line} = {line} + {line * 7}\n" for line in range(300)))
    rebuilt = build(config)
    export(tmp_path / "out", "parquet")
    front, text = split_card(readme_path.read_bytes())
    assert "## My notes" in text
    assert front["license_name"] == "mine"
    num_examples = {one["name"]: one["num_examples"] for one in front["dataset_info"]["splits"]}
    assert num_examples["train"] == rebuilt.splits[Split.TRAIN].windows
    new = json.loads(croissant_path.read_text())
    assert (new["version"], new["creator"]) == ("2.0.0", "me")
    assert {one["name"] for one in new["distribution"]} > {"train.jsonl", "parquet/train.parquet"}
    report = check(tmp_path / "out")
    assert report.ok
    assert report["cards"].status == "reported"
    loaded = load_dataset(str(tmp_path / "out"), cache_dir=str(tmp_path / "cache"))
    assert len(loaded["train"]) == num_examples["train"]
    readme_path.write_text(card)
    assert "dataset_info does not match the manifest" in check(tmp_path / "out")["cards"].examples[0]


def test_foreign_readme_gets_only_the_loader_entries(tmp_path):
    source = write_sources(tmp_path / "code")
    config = Config(sources=[str(source)], out=str(tmp_path / "out"))
    build(config)
    (tmp_path / "out" / README).write_text("# Mine\n")
    build(config)
    front, text = split_card((tmp_path / "out" / README).read_bytes())
    assert (set(front), text) == ({"configs", "dataset_info"}, "# Mine\n")
    build(config)
    assert split_card((tmp_path / "out" / README).read_bytes()) == (front, text)
