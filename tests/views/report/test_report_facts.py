"""Facts of a report agree with the manifest, files.jsonl and the rows."""

import json
import random
import shlex
from collections import Counter
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gristmill import (
    Config,
    DatasetError,
    DuplicatesConfig,
    OutputConfig,
    RulesConfig,
    RunConfig,
    SamplingConfig,
    ScanConfig,
    SplitConfig,
    TokenizerConfig,
    VariantsConfig,
    WindowConfig,
    build,
    open_dataset,
)
from gristmill.checks.check import check
from gristmill.cli.parsers import parse_settings, parser_for
from gristmill.config.config import load_config
from gristmill.config.presets import with_preset
from gristmill.core.files_table import FileRow, read_file_rows
from gristmill.core.manifest import read_manifest
from gristmill.core.records import Split
from gristmill.publish.export import export
from gristmill.views.report.gather import gather
from gristmill.views.report.tallies import MAX_EXAMPLES, MAX_FOLDERS, Folders, histogram_of
from support.codebert_with import MARKERS, codebert_with
from support.foreign_datasets import made_foreign
from support.source_trees import write_tree

HOSTILE = "<img src=x onerror=alert(1)>.py"


def code(number, count=60):
    """Return Python code that is unique to the number."""
    rng = random.Random(number)
    names = ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz_", k=9)) for _ in range(count)]
    lines = (f"def {one}():\n    v{one} = {rng.randrange(10**6)}\n    return v{one} + 1\n" for one in names)
    return "".join(lines)


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """Two sources with files of various lengths. A build drops some of the files."""
    root = tmp_path_factory.mktemp("sources")
    first = {f"src/part{number % 3}/{number:02}.py": code(number, 4 + 9 * (number % 9)) for number in range(24)}
    first |= {
        "LICENSE": "SPDX-License-Identifier: MIT\n",
        "header.py": f"# SPDX-License-Identifier: ISC\n{code(100, 5)}",
        "then/copy.py": first["src/part0/00.py"],
        "gen_pb2.py": code(101, 3),
        "node_modules/lib/index.js": "var x = 1\n",
        "image.dat": b"\x00\x01\x02",
        "docs/empty.md": "",
        "secret.py": "key = 'gh" + f"p_{'Ab1Cd2Ef3Gh4Jk5Lm6Np7Qr8St9Uv0Wx1Yz2'}'\n{code(102, 3)}",
    }
    write_tree(root / "first", first)
    write_tree(root / "second", {HOSTILE: code(200, 20), "a/b/c.js": code(201, 30), "a/d\u202e.rs": code(202, 9)})
    return [str(root / "first"), str(root / "second")]


def make(sources, out, **sections):
    build(Config(sources=sources, out=str(out), run=RunConfig(workers=1), **sections))
    return out


@pytest.fixture(scope="module")
def dataset(sources, tmp_path_factory):
    return make(sources, tmp_path_factory.mktemp("facts") / "dataset", split=SplitConfig(shares="60/20/20"))


@pytest.fixture(scope="module")
def facts(dataset):
    return gather(dataset)


@pytest.fixture(scope="module")
def causal(tmp_path_factory):
    return codebert_with(MARKERS, tmp_path_factory.mktemp("tokenizer") / "causal", is_causal=True)


def test_funnel_ends_at_the_kept_files(dataset, facts):
    counts = read_manifest(dataset).counts
    assert (facts.found, facts.kept, facts.dropped) == (counts.found, counts.kept, counts.dropped)
    assert [stage.name for stage in facts.funnel] == ["found", "read as text", "clean", "distinct", "kept"]
    numbers = [stage.files for stage in facts.funnel]
    assert (numbers[0], numbers[-1]) == (counts.found, counts.kept)
    assert numbers == sorted(numbers, reverse=True)
    assert facts.funnel[0].note == "in 2 sources"
    assert "1 binary" in facts.funnel[1].note
    assert facts.funnel[2].note == "1 generated"
    assert facts.funnel[3].note == "1 exact duplicate"


def test_each_reason_has_a_count_and_examples_from_several_folders(dataset, facts, tmp_path, sources):
    counts = read_manifest(dataset).counts.dropped_by_reason
    assert {reason.reason: reason.files for reason in facts.reasons} == counts
    assert all(1 <= len(reason.examples) <= MAX_EXAMPLES for reason in facts.reasons)
    generated = next(reason for reason in facts.reasons if reason.reason == "generated")
    assert generated.examples[0].name == "first/gen_pb2.py"
    assert generated.examples[0].detail
    assert generated.bytes == len(code(101, 3))
    many = {f"a/{number:02}.py": "" for number in range(12)} | {"b/x.py": "", "c/y.py": "", "c.py": "x = 1\n"}
    many_facts = gather(make([str(write_tree(tmp_path / "many", many))], tmp_path / "out"))
    names = [example.name for example in many_facts.reasons[0].examples]
    assert names == sorted([*(f"many/a/{number:02}.py" for number in range(6)), "many/b/x.py", "many/c/y.py"])


def test_tokens_by_language_and_license_match_the_manifest(dataset, facts):
    manifest = read_manifest(dataset)
    assert {share.name: share.tokens for share in facts.languages} == manifest.tokens_by_language
    assert {share.name: share.files for share in facts.licenses} == manifest.counts.licenses
    assert {"MIT", "ISC"} < {share.name for share in facts.licenses}
    for split, own in manifest.splits.items():
        for shares in (facts.languages, facts.licenses):
            assert sum(share.tokens[split] for share in shares) == own.tokens
    assert sum(share.files for share in facts.languages) == facts.kept
    assert [line.tokens for line in facts.splits] == [own.tokens for own in manifest.splits.values()]
    assert [line.requested_share for line in facts.splits] == [0.6, 0.2, 0.2]


def test_secrets_are_listed_by_kind_and_line(facts):
    assert facts.secrets == {"github-token": 1}
    assert [(one.name, one.detail) for one in facts.secret_files] == [("first/secret.py", "1 github-token in line 1")]


def test_folders_include_their_subfolders(facts):
    by_id = {folder.id: folder for folder in facts.folders}
    assert len(by_id) == len(facts.folders)
    assert {folder.id for folder in facts.folders if not folder.parent} == {"first", "second"}
    assert by_id["first/src/part0"].parent == "first/src"
    assert sum(folder.tokens for folder in facts.folders if not folder.parent) == facts.tokens
    for folder in facts.folders:
        below = [one for one in facts.folders if one.parent == folder.id]
        assert sum(one.tokens for one in below) <= folder.tokens
        assert sum(one.files for one in below) <= folder.files
    assert by_id["first/src"].files == 24


def kept_row(repo, path, tokens=10):
    row = dict.fromkeys(field.name for field in msgspec.structs.fields(FileRow))
    row |= {"repo": repo, "path": path, "status": "kept", "split": "train", "tokens": tokens}
    return msgspec.convert({**row, "variants": (), "redactions": (), "respellings": (), "cuts": ()}, FileRow)


@given(st.lists(st.tuples(st.sampled_from(["a", "a/b", "", "a~2"]), st.text("ab/~2", max_size=12)), max_size=12))
def test_folders_with_similar_names_have_unique_ids(files):
    folders = Folders()
    for repo, path in files:
        folders.add(kept_row(repo, path))
    tree, num_left_out = folders.tree()
    assert num_left_out == 0
    assert len({folder.id for folder in tree}) == len(tree)
    seen = {""}
    for folder in tree:
        assert folder.parent in seen
        assert "" not in {folder.id, folder.name}
        seen.add(folder.id)
    assert sum(folder.files for folder in tree if not folder.parent) == len(files)


def test_small_and_deep_folders_are_counted_in_their_parent():
    folders = Folders()
    for number in range(700):
        folders.add(kept_row("big", f"f{number}/x.py", 1 + number))
    folders.add(kept_row("big", f"{'d/' * 2000}x.py", 5000))
    tree, num_left_out = folders.tree()
    assert len(tree) == MAX_FOLDERS
    assert tree[0].files == 701
    assert num_left_out == 701 + 13 - MAX_FOLDERS
    assert max(folder.id.count("/") for folder in tree) == 12
    sources = Folders()
    for number in range(500):
        sources.add(kept_row(f"r{number}", "x.py"))
    tree, _ = sources.tree()
    assert tree[-1].name == "100 other sources"
    assert sum(folder.files for folder in tree) == 500


@pytest.mark.parametrize(
    "sections",
    [
        {"window": WindowConfig(length=128, overlap=32, tail="drop")},
        {"window": WindowConfig(length=128, overlap=60, tail="shift"), "output": OutputConfig(formats=["parquet"])},
        {"output": OutputConfig(pad=True, compress="zstd"), "split": SplitConfig(shares="100/0/0")},
        {"sampling": SamplingConfig(weights={"src/**": 3, "*.js": 0}, target_windows=150)},
        {"sampling": SamplingConfig(max_windows=40), "output": OutputConfig(formats=["npy"])},
        {"sampling": SamplingConfig(preset="code", weights_only=True), "split": SplitConfig(decontaminate="drop")},
        {"variants": VariantsConfig(rates={"rename": 0.5, "noise": 0.5}), "output": OutputConfig(pad=True)},
        {"window": WindowConfig(length=256, pack="best-fit"), "variants": VariantsConfig(rates={"rename": 0.5})},
        {"window": WindowConfig(length=256, overlap=64, pack="best-fit"), "output": OutputConfig(pad=True)},
        {"window": WindowConfig(length=256, pack="best-fit"), "sampling": SamplingConfig(target_windows=300)},
        {"window": WindowConfig(length=256, pack="repo"), "output": OutputConfig(formats=["bin"])},
    ],
    ids="-".join,
)
def test_parts_of_redundancy_add_up(sources, tmp_path, request, sections):
    is_by_repo = sections.get("window", WindowConfig()).pack == "repo"
    tokenizer = request.getfixturevalue("causal") if is_by_repo else TokenizerConfig()
    out = make(sources, tmp_path / "out", tokenizer=tokenizer, **sections)
    facts, manifest, opened = gather(out), read_manifest(out), open_dataset(out)
    num_tail = manifest.counts.tail_tokens_dropped
    assert sum(one.fresh for one in facts.redundancy) == facts.tokens - num_tail
    assert sum(share.tokens[split] for share in facts.languages for split in Split) == facts.tokens
    for one in facts.redundancy:
        own = manifest.splits[one.split]
        capacity = own.windows * manifest.window_length
        parts = [one.fresh, one.overlap, one.repeats, one.variants, one.special, one.padding]
        assert min(parts) >= 0
        assert sum(parts) == (own.emitted_tokens if manifest.packing is None else capacity)
        rows = list(opened[one.split])
        windows = [window for row in rows for window in row.get("segments", [row])]
        assert (one.variants > 0) == any(window.get("variant") for window in windows)
        assert (one.repeats > 0) == any(window.get("repeat") for window in windows)
        fill = Counter(sum(row["attention_mask"]) if "attention_mask" in row else len(row["input_ids"]) for row in rows)
        full = sum(count for num_ids, count in fill.items() if num_ids >= 0.95 * manifest.window_length)
        assert facts.fill.counts[one.split][-1] == full
        assert sum(facts.fill.counts[one.split]) == own.windows
    rows = [row for split in Split for row in opened[split]]
    windows = [window for row in rows for window in row.get("segments", [row])]
    assert (facts.rows, facts.windows) == (len(rows), len(windows))
    assert facts.variant_windows == sum(bool(window.get("variant")) for window in windows)
    assert facts.repeat_windows == sum(bool(window.get("repeat")) for window in windows if not window.get("variant"))
    files = {(window["repo"], window["path"]) for window in windows}
    assert facts.kept - facts.num_without_windows == len(files)
    assert facts.num_tail_tokens == num_tail
    assert [one.kind for one in facts.variants] == list(manifest.variants)
    assert (facts.redundancy[0].variants > 0) == ("variants" in sections)
    assert (facts.redundancy[0].repeats > 0) == (manifest.settings["sampling"]["target_windows"] is not None)


@given(st.dictionaries(st.sampled_from(list(Split)), st.lists(st.integers(1, 300), max_size=30)))
def test_histogram_counts_every_value_once(lists):
    values = {split: Counter(own) for split, own in lists.items()}
    edges = [1.0, 2.0, 4.0, 16.0, 64.0, 256.0, 512.0]
    found = histogram_of(values, edges)
    all_counts = sorted(value for own in lists.values() for value in own)
    for split in Split:
        own = lists.get(split, [])
        bars = [sum(low <= one < high for one in own) for low, high in pairwise(edges)]
        assert found.counts[split] == bars
    if all_counts:
        assert found.median == (all_counts[(len(all_counts) - 1) // 2] + all_counts[len(all_counts) // 2]) / 2
        assert found.mean == pytest.approx(sum(all_counts) / len(all_counts))
    assert found.largest == max(all_counts, default=0)


def test_lengths_are_token_counts_of_kept_files(dataset, facts):
    tokens = sorted(row.tokens for row in read_file_rows(dataset / "files.jsonl") if row.status == "kept")
    assert sum(sum(own) for own in facts.lengths.counts.values()) == len(tokens)
    assert (facts.lengths.largest, facts.lengths.edges[0]) == (tokens[-1], 1)
    assert facts.lengths.edges[-2] <= tokens[-1] < facts.lengths.edges[-1]


def test_certificate_of_another_dataset_is_ignored(dataset, facts, tmp_path, sources):
    assert facts.certificate is None
    other = make(sources, tmp_path / "other")
    check(other, workers=1)
    (tmp_path / "check.json").write_bytes((other / "check.json").read_bytes())
    certificate = gather(other).certificate
    assert certificate.is_ok
    assert [leak.split for leak in certificate.leaks] == ["validation", "test"]
    assert ("source", "skipped") in {(name, status) for name, status, _ in certificate.checks}
    content = json.loads((other / "check.json").read_text())
    for damaged in (b"", b"{", b"[]", json.dumps({**content, "fingerprint": "0"}).encode(), b'"\xff"'):
        (other / "check.json").write_bytes(damaged)
        assert gather(other).certificate is None
    content["checks"] = [one | {"facts": {"test": "much"}} for one in content["checks"]]
    (other / "check.json").write_text(json.dumps(content))
    assert gather(other).certificate.leaks == []


def test_certificate_is_valid_for_the_same_rows_in_another_format(tmp_path, sources):
    """After the export, rows are read from the JSONL files, whose sizes differ from those of the bin files."""
    other = make(sources, tmp_path / "other", output=OutputConfig(formats=["bin"]))
    check(other, workers=1)
    export(other, "jsonl", workers=1)
    assert gather(other).certificate.is_ok


def test_facts_are_reproducible_and_contain_no_path(dataset, facts):
    assert gather(dataset) == facts
    assert str(dataset.parent) not in msgspec.json.encode(facts).decode()


SECTIONS = [
    {},
    {"window": WindowConfig(length=300, overlap=20, tail="drop", min_fresh=7), "scan": ScanConfig(notebooks="raw")},
    {"window": WindowConfig(pack="best-fit"), "output": OutputConfig(formats=["parquet", "bin"], pad=True)},
    {
        "scan": ScanConfig(exclude=["-odd*", "it's/**", "\x1b[2J\x7f\u202e"], languages=["python"]),
        "rules": RulesConfig(longest_line=2000, generated=False, languages={"c++": {"mean_line": 0.5}, "json": {}}),
        "duplicates": DuplicatesConfig(near="group"),
    },
    {
        "sampling": SamplingConfig(weights={"src/**": 3, 'say "x"\\': 0.5}, preset="code", seed=-4),
        "variants": VariantsConfig(rates={"noise": 0.25}, noise_span=4.5),
        "split": SplitConfig(shares="90/5/5", by="directory", seed=11),
    },
    {"preset": "causal", "window": WindowConfig(end_token="none", pack="none")},
    {"preset": "fim"},
]


@pytest.mark.parametrize("sections", SECTIONS, ids="-".join)
def test_command_and_toml_give_the_same_settings(dataset, tmp_path, sections):
    from gristmill.views.report.provenance import provenance_of

    config = with_preset(Config(sources=["first", "second"], out="DIR", **sections), has_mask=True)
    manifest = msgspec.structs.replace(
        read_manifest(dataset),
        settings=json.loads(msgspec.json.encode(config.settings())),
        formats=list(config.output.formats),
    )
    provenance = provenance_of(manifest)
    toml = tmp_path / "gristmill.toml"
    toml.write_text(provenance.config)
    assert provenance.config.replace("\n", "").isprintable()
    assert provenance.command.isprintable()
    by_file = with_preset(load_config({"sources": ["first"], "out": "DIR"}, toml), has_mask=True)
    assert by_file.settings() == config.settings()
    assert by_file.output.formats == config.output.formats
    words = split_words(provenance.command)
    assert words[:4] == ["gristmill", "build", "first", "second"]
    given, values = parse_settings(parser_for("build", ""), words[2:], "it")
    by_command = with_preset(load_config(values, given.config and toml), has_mask=True)
    assert by_command.settings() == config.settings()
    assert (by_command.out, by_command.output.formats) == ("DIR", config.output.formats)


def split_words(command):
    r"""Split a command as bash does, including strings such as $'\x1b'."""
    words = shlex.split(command.replace("$'", "'"))
    return [
        word.encode().decode("unicode_escape").encode("latin-1").decode() if "\\x" in word else word for word in words
    ]


def test_secret_in_a_setting_is_redacted(dataset):
    from gristmill.views.report.provenance import provenance_of

    token = "gh" + "p_Ab1Cd2Ef3Gh4Jk5Lm6Np7Qr8St9Uv0Wx1Yz2"
    scan = ScanConfig(exclude=[token, "b*"])
    config = Config(sources=["x"], out="y", scan=scan, sampling=SamplingConfig(weights={token: 2}))
    settings = json.loads(msgspec.json.encode(config.settings()))
    provenance = provenance_of(msgspec.structs.replace(read_manifest(dataset), settings=settings))
    assert token not in msgspec.json.encode(provenance).decode()
    assert "SECRET" in provenance.command
    assert "SECRET" in provenance.config


def test_hub_tokenizer_is_named_with_its_revision(dataset):
    from gristmill.views.report.provenance import provenance_of

    manifest = read_manifest(dataset)
    tokenizer = msgspec.structs.replace(manifest.tokenizer, name="org/name@main", revision="abc123")
    provenance = provenance_of(msgspec.structs.replace(manifest, tokenizer=tokenizer))
    assert "--tokenizer org/name@abc123" in provenance.command
    assert ("revision", "abc123") in provenance.tokenizer
    assert ("ids before each window", "0") in provenance.tokenizer  # an id, not a count


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("files.jsonl", lambda content: content[:-9], "is damaged"),
        ("files.jsonl", lambda content: content[: content.index(b"\n") + 1], "lists 1 file,"),
        ("files.jsonl", lambda content: content.replace(b'"split":"train"', b'"split":null', 1), "but has no split"),
        ("manifest.json", lambda content: content.replace(b'"near": "drop"', b'"near": "drip"'), "invalid settings"),
        ("manifest.json", lambda content: content.replace(b'"weights": []', b'"weights": [1]'), "invalid settings"),
        (
            "train.jsonl",
            lambda content: content.replace(b'"start":0', b'"start":"0"', 1),
            "row train:0 in .* is damaged",
        ),
        (
            "train.jsonl",
            lambda content: content.replace(b'"fresh":', b'"fresh":1' + b"0" * 400, 1),
            "train:0 in .* is damaged",
        ),
    ],
)
def test_damaged_dataset_is_rejected(dataset, tmp_path, name, change, message):
    folder = write_tree(tmp_path / "copy", {path.name: path.read_bytes() for path in dataset.iterdir()})
    content = (folder / name).read_bytes()
    assert change(content) != content
    (folder / name).write_bytes(change(content))
    with pytest.raises(DatasetError, match=message):
        gather(folder)


def test_rows_not_made_by_a_build_are_rejected(dataset, tmp_path):
    folder = write_tree(tmp_path / "copy", {path.name: path.read_bytes() for path in dataset.iterdir()})
    with pytest.raises(DatasetError, match="has no record of files"):
        gather(made_foreign(folder))


def test_grouped_near_duplicates_are_counted(tmp_path):
    text = code(7, 40)
    files = {"a.py": text, "b.py": text + "x = 1\n", "c.py": code(8)}
    out = make([str(write_tree(tmp_path / "near", files))], tmp_path / "out", duplicates=DuplicatesConfig(near="group"))
    facts = gather(out)
    assert (facts.num_grouped, facts.num_clusters, facts.kept) == (2, 0, 3)
