"""Tests of builds with --pack: a row contains windows of several files, or successive files of a repository."""

import hashlib
import json
import shutil
from collections import Counter
from functools import cache
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gristmill import (
    Config,
    ConfigError,
    DatasetError,
    DuplicatesConfig,
    OutputConfig,
    RunConfig,
    SamplingConfig,
    SplitConfig,
    TokenizerConfig,
    VariantsConfig,
    WindowConfig,
    build,
    compare_tokenizers,
    explain,
    export,
    open_dataset,
    plan,
)
from gristmill.checks import formats as streams
from gristmill.checks.check import check
from gristmill.checks.rebuild import compare_with_clean_build
from gristmill.core.manifest import read_manifest
from gristmill.core.records import Split
from gristmill.formats.megatron import _write_index
from gristmill.pipeline.separate_steps import Shard, decide_all, finish_all, prepare_shard, shape_shard
from gristmill.pipeline.summary import summary_text
from gristmill.planning.explain import explain_row
from gristmill.views.report.provenance import provenance_of
from gristmill.windows.packing import best_fit
from support import trained_tokenizers
from support.codebert_with import MARKERS, codebert_with
from support.megatron_index import parsed_idx
from support.source_trees import write_tree

END, REPO, FILE = range(50_265, 50_268)


def fewest_rows(sizes, capacity):
    """Return the smallest possible number of rows, found by trying all combinations."""

    @cache
    def rows(sizes_left):
        if not sizes_left:
            return 0
        first, rest = sizes_left[0], sizes_left[1:]
        least = len(sizes_left)
        for chosen in range(1 << len(rest)):
            others = [size for number, size in enumerate(rest) if chosen >> number & 1]
            if first + sum(others) <= capacity:
                kept = tuple(size for number, size in enumerate(rest) if not chosen >> number & 1)
                least = min(least, 1 + rows(kept))
        return least

    return rows(tuple(sorted(sizes, reverse=True)))


@given(st.lists(st.integers(1, 20), max_size=8), st.integers(20, 40))
def test_best_fit_uses_few_rows_and_each_window_once(sizes, capacity):
    rows = best_fit(sizes, capacity)
    assert sorted(number for row in rows for number in row) == list(range(len(sizes)))
    assert all(sum(sizes[number] for number in row) <= capacity for row in rows)
    assert 9 * len(rows) <= 11 * fewest_rows(sizes, capacity) + 6
    assert rows == sorted(rows)


@given(st.lists(st.integers(1, 512), max_size=60))
def test_best_fit_matches_a_slow_search(sizes):
    """Compare with a search over all rows for the fullest row that has space for the window."""
    rows, order = [], sorted(range(len(sizes)), key=lambda number: -sizes[number])
    for number in order:
        capacities = [512 - sum(sizes[one] for one in row) for row in rows]
        fitting = [(capacity, index) for index, capacity in enumerate(capacities) if capacity >= sizes[number]]
        least = min((capacity for capacity, _ in fitting), default=None)
        if least is None:
            rows.append([number])
        else:
            rows[next(index for capacity, index in fitting if capacity == least)].append(number)
    found = best_fit(sizes, 512)
    assert sorted(sum(sizes[one] for one in row) for row in found) == sorted(
        sum(sizes[one] for one in row) for row in rows
    )


def test_window_larger_than_a_row_is_refused():
    with pytest.raises(ValueError, match="windows of 3 to 7 ids do not fit into rows of 6"):
        best_fit([3, 7], 6)


@pytest.fixture(scope="module")
def plain_tokenizer(tmp_path_factory):
    return codebert_with(MARKERS, tmp_path_factory.mktemp("tokenizer") / "causal", is_causal=True)


@pytest.fixture(scope="module")
def sources(tmp_path_factory, corpus):
    """Two repositories with long files and many short files."""
    root = tmp_path_factory.mktemp("packed")
    for repo, packages in {"first": ("json",), "second": ("concurrent", "importlib/metadata")}.items():
        for package in packages:
            shutil.copytree(corpus / package, root / repo / package)
    for number in range(40):
        lines = "".join(f"name_{number}_{line} = call_{number * line}({line})\n" for line in range(2 + number % 9))
        (root / f"first/short{number}.py").write_text(lines)
    return [str(root / "first"), str(root / "second")]


def config(sources, out, pack="best-fit", **sections):
    window = sections.pop("window", WindowConfig(length=256, pack=pack))
    return Config(sources=sources, out=str(out), window=window, **sections)


def failed_checks(report):
    return {one.name: one.examples for one in report.checks if one.status == "failed"}


@pytest.mark.parametrize(
    "sections",
    [
        {},
        {"output": OutputConfig(pad=True, with_text=True, formats=["jsonl", "bin"])},
        {"output": OutputConfig(compress="zstd", shard_bytes=100_000)},
        {"window": WindowConfig(length=256, overlap=64, pack="best-fit")},
        {"sampling": SamplingConfig(weights={"json/**": 3}, target_windows=300)},
        {"sampling": SamplingConfig(max_windows=100)},
        {"variants": VariantsConfig(rates={"rename": 0.5})},
        {"split": SplitConfig(decontaminate="drop")},
    ],
)
def test_packed_rows_pass_every_check(sources, tmp_path, sections):
    manifest = build(config(sources, tmp_path / "out", **sections))
    assert failed_checks(check(tmp_path / "out", sources, workers=1)) == {}
    assert manifest.packing is not None
    assert manifest.splits["train"].windows == manifest.packing["train"].rows < manifest.packing["train"].segments


def test_packed_rows_share_frames(sources, tmp_path):
    from gristmill.formats.zstd import read_table

    build(config(sources, tmp_path / "out", output=OutputConfig(compress="zstd")))
    frames = read_table(tmp_path / "out/train.jsonl.zst")
    assert sum(frame.num_rows for frame in frames) > 20 * len(frames)


def test_rows_are_almost_full_and_short_files_are_not_split(sources, tmp_path):
    manifest = build(config(sources, tmp_path / "out"))
    assert manifest.packing["train"].empty_share < 0.01
    dataset = open_dataset(tmp_path / "out")
    segments = [one for split in dataset for row in dataset[split] for one in row["segments"]]
    table = [json.loads(line) for line in (tmp_path / "out/files.jsonl").read_text().splitlines()]
    short = {(row["repo"], row["path"]) for row in table if row["status"] == "kept" and row["tokens"] <= 254}
    assert len(short) >= 40
    for repo, path in short:
        assert len([one for one in segments if (one["repo"], one["path"]) == (repo, path)]) == 1


def test_position_ids_restart_at_each_window_and_tokens_match_the_files(sources, tmp_path):
    build(config(sources, tmp_path / "out"))
    dataset = open_dataset(tmp_path / "out")
    several = [row for row in dataset["train"] if len(row["segments"]) > 1]
    assert several
    for row in several:
        for number, one in enumerate(row["segments"], 1):
            at, end = one["at"], one["at"] + one["length"]
            assert row["position_ids"][at - 1 : end + 1] == list(range(one["length"] + 2))
            assert set(row["segment_ids"][at - 1 : end + 1]) == {number}
            assert (row["input_ids"][at - 1], row["input_ids"][end]) == (0, 2)
        path = Path(sources[0]).parent / one["repo"] / one["path"]
        lines = path.read_bytes().splitlines(keepends=True)[one["lines"][0] - 1 : one["lines"][1]]
        assert dataset.tokenizer.decode(row["input_ids"][at:end]) in b"".join(lines)


@pytest.mark.parametrize("pack", ["best-fit", "repo"])
def test_dataset_does_not_depend_on_workers_formats_or_manual_steps(sources, tmp_path, plain_tokenizer, pack):
    settings = {"tokenizer": plain_tokenizer, "output": OutputConfig(formats=["jsonl", "bin", "npy"])}
    made = config(sources, tmp_path / "one", pack, run=RunConfig(workers=1), **settings)
    one = build(made)
    other = build(config(sources, tmp_path / "two", pack, run=RunConfig(workers=2, batch_files=7), **settings))
    by_hand = msgspec.structs.replace(made, out=str(tmp_path / "hand"))
    prepare_shard(by_hand, Shard(1, 1))
    decide_all(by_hand)
    shape_shard(by_hand, Shard(1, 1))
    third = finish_all(by_hand)
    assert one.files == other.files == third.files
    assert one.content_sha256 == other.content_sha256
    assert compare_with_clean_build(tmp_path / "one") == []
    only = build(config(sources, tmp_path / "jsonl", pack, tokenizer=plain_tokenizer))
    assert only.content_sha256 == one.content_sha256
    exported = export(tmp_path / "jsonl", ["bin", "npy"])
    assert exported.files == one.files
    assert failed_checks(check(tmp_path / "jsonl", workers=1)) == {}


def test_end_token_follows_documents_if_the_tokenizer_adds_none(sources, tmp_path, plain_tokenizer):
    build(config(sources, tmp_path / "out", tokenizer=plain_tokenizer))
    assert failed_checks(check(tmp_path / "out", sources, workers=1)) == {}
    table = {
        (row["repo"], row["path"]): row["tokens"]
        for row in map(json.loads, (tmp_path / "out/files.jsonl").read_text().splitlines())
    }
    for row in open_dataset(tmp_path / "out")["train"]:
        for one in row["segments"]:
            end = one["at"] + one["length"]
            is_end = one["start"] + one["length"] == table[one["repo"], one["path"]]
            assert (row["input_ids"][end : end + 1] == [END]) == is_end


STREAMS = ("npy", "bin", "megatron")


@pytest.fixture(scope="module", params=["best-fit", "repo"])
def stream_dataset(request, sources, plain_tokenizer, tmp_path_factory):
    """Folder and `pack` setting of a dataset in all stream formats. The tokenizer adds no end token."""
    out = tmp_path_factory.mktemp("streamed") / request.param
    formats = OutputConfig(formats=["jsonl", *STREAMS])
    build(config(sources, out, request.param, tokenizer=plain_tokenizer, output=formats))
    return out, request.param


def stream_of(folder, name, split):
    """Return the ids and document ends of a stream, read without gristmill."""
    if name == "megatron":
        kind, lengths, pointers, _ = parsed_idx((folder / f"megatron/{split}.idx").read_bytes())
        ids = np.memmap(folder / f"megatron/{split}.bin", kind, "r")
        assert list(pointers) == (ids.itemsize * np.cumsum([0, *lengths])[:-1]).tolist()
        return ids.tolist(), np.cumsum(lengths).tolist()
    ids = np.load(folder / "npy" / f"{split}.npy") if name == "npy" else np.fromfile(folder / f"bin/{split}.bin", "<u2")
    return ids.tolist(), np.load(folder / name / f"{split}.ends.npy").tolist()


@pytest.mark.parametrize("name", STREAMS)
def test_stream_of_packed_rows_has_end_tokens_only_after_documents(stream_dataset, name):
    out, pack = stream_dataset
    dataset = open_dataset(out)
    table = [json.loads(line) for line in (out / "files.jsonl").read_text().splitlines()]
    for split in dataset:
        ids, ends = stream_of(out, name, split)
        kept = [row for row in table if row["status"] == "kept" and row["split"] == split]
        sizes = [end - start for start, end in zip([0, *ends], ends, strict=False)]
        assert sizes == [len(row["input_ids"]) for row in dataset[split]]
        assert max(sizes) <= 256
        assert ids == [index for row in dataset[split] for index in row["input_ids"]]
        assert ids.count(END) == len(kept if pack == "best-fit" else {row["repo"] for row in kept})


def update_digests(folder, *names):
    """Update the manifest with the sizes and digests of changed files."""
    manifest = json.loads((folder / "manifest.json").read_text())
    for name in names:
        content = (folder / name).read_bytes()
        manifest["files"][name] |= {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    (folder / "manifest.json").write_text(json.dumps(manifest))


@pytest.mark.parametrize("name", STREAMS)
def test_check_finds_an_end_token_between_packed_rows(stream_dataset, tmp_path, name):
    """Plant an end token after the first row, as if each row were a file. Shift index and windows accordingly."""
    folder = shutil.copytree(stream_dataset[0], tmp_path / "planted")
    stream, index = (folder / name / f"train{suffix}" for suffix in streams.STREAMS[name])
    ids, ends = stream_of(folder, name, "train")
    ids.insert(ends[0], END)
    kept = read_manifest(folder)
    assert streams.find_stream_fault(folder, kept, (name, Split.TRAIN)) is None
    windows = np.load(folder / name / "train.windows.npy")
    windows["offset"][1:] += 1
    np.save(folder / name / "train.windows.npy", windows)
    ends = np.array(ends) + 1
    if name == "megatron":
        _write_index(index, ends, np.dtype("<u2"))
        np.array(ids, "<u2").tofile(stream)
    else:
        np.save(index, ends)
        np.save(stream, np.array(ids, "<u2")) if name == "npy" else np.array(ids, "<u2").tofile(stream)
    update_digests(folder, *(f"{name}/{path.name}" for path in (stream, index)), f"{name}/train.windows.npy")
    found = streams.find_stream_fault(folder, kept, (name, Split.TRAIN))
    assert found.startswith("train: ")
    assert "the documents of the index do not end where the rows end" in found
    assert any(found in one for one in failed_checks(check(folder, workers=1))["formats"])


def test_repository_rows_contain_the_names_and_texts_of_the_files(sources, tmp_path, plain_tokenizer):
    manifest = build(config(sources, tmp_path / "out", "repo", tokenizer=plain_tokenizer))
    assert failed_checks(check(tmp_path / "out", sources, workers=1)) == {}
    assert manifest.packing["train"].empty_share < 0.01
    dataset = open_dataset(tmp_path / "out")
    tokenizer = dataset.tokenizer
    rows = [row for row in dataset["train"] if {one["repo"] for one in row["segments"]} == {"first"}]
    stream = [index for row in rows for index in row["input_ids"]]
    assert stream[0] == REPO
    assert tokenizer.decode(stream[1 : stream.index(FILE)]) == b"first"
    starts = [at for at, index in enumerate(stream) if index == FILE]
    text = tokenizer.decode(stream[starts[3] + 1 : starts[4]])
    path, _, content = text.partition(b"\n")
    assert (Path(sources[0]) / path.decode()).read_bytes() == content


TREE = {
    "app/main.py": "from app.shop import cart, prices\nfrom app import nothing\n\nprint(cart.total(prices.ALL), 'in all')\n",
    "app/shop/__init__.py": "'''The shop: carts, and what is in them.'''\nfrom .cart import total\n",
    "app/shop/cart.py": "from .prices import price_of\n\n\ndef total(names):\n    return sum(map(price_of, names))\n",
    "app/shop/prices.py": "from ..zero import ZERO\n\nALL = ['apple', 'pear']\n\n\ndef price_of(name):\n    return ZERO + len(name)\n",
    "app/zero.py": "from app.ring_b import two\n\nZERO = two() - two()  # nothing at all, whatever comes\n",
    "app/ring_a.py": "from app.ring_b import two\n\n\ndef one():\n    return 1 if two else 0\n",
    "app/ring_b.py": "from app.ring_a import one\n\n\ndef two():\n    return one() + one()\n",
}
BY_IMPORTS = ["ring_a", "ring_b", "zero", "shop/prices", "shop/cart", "main", "shop/__init__"]


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    return str(write_tree(tmp_path_factory.mktemp("ordered") / "shop", TREE))


def in_one_split(source, out, tokenizer, **window):
    settings = WindowConfig(length=64, pack="repo", **window)
    kept = {"split": SplitConfig(shares="100/0/0"), "duplicates": DuplicatesConfig(near="keep"), "tokenizer": tokenizer}
    return config([source], out, window=settings, run=RunConfig(workers=1), **kept)


def paths_in(folder):
    """Return the paths of train in the order of its rows."""
    segments = [one for row in open_dataset(folder)["train"] for one in row["segments"]]
    return list(dict.fromkeys(one["path"] for one in segments))


def test_files_come_after_the_files_they_import(shop, tmp_path, plain_tokenizer):
    manifest = build(in_one_split(shop, tmp_path / "out", plain_tokenizer, repo_order="imports"))
    assert paths_in(tmp_path / "out") == [f"app/{name}.py" for name in BY_IMPORTS]
    facts = manifest.packing["train"].order
    assert (facts.repos, facts.imports, facts.broken) == (1, 8, 1)
    assert failed_checks(check(tmp_path / "out", [shop], workers=1)) == {}
    order_text = "each file after the files that it imports (8 imports, 1 ignored because of cycles)"
    assert f"| order of files in a repository | {order_text} |" in (tmp_path / "out/README.md").read_text()
    assert f"(repo, files {order_text})" in summary_text(manifest, "out")
    provenance = provenance_of(manifest)
    assert provenance.repo_order == order_text
    assert "--pack repo --repo-order imports" in provenance.command


def test_seed_changes_the_file_order_without_preparing_files_again(shop, tmp_path, plain_tokenizer):
    orders, parts = [], []
    for seed in (0, 1, 0):
        build(in_one_split(shop, tmp_path / "out", plain_tokenizer, repo_order="shuffle", repo_order_seed=seed))
        assert failed_checks(check(tmp_path / "out", [shop], workers=1)) == {}
        orders.append(paths_in(tmp_path / "out"))
        parts.append([(path.name, path.stat().st_ino) for path in sorted((tmp_path / "out.work/prepared").iterdir())])
    assert orders[0] == orders[2] != orders[1]
    assert sorted(orders[0]) == sorted(orders[1]) == sorted(TREE)
    assert parts[0] == parts[1] == parts[2]
    build(in_one_split(shop, tmp_path / "out", plain_tokenizer))
    assert paths_in(tmp_path / "out") == sorted(TREE)


@pytest.mark.parametrize("order", ["imports", "shuffle"])
def test_file_order_does_not_depend_on_workers(sources, tmp_path, plain_tokenizer, order):
    window = WindowConfig(length=256, pack="repo", repo_order=order)
    kept = {"window": window, "tokenizer": plain_tokenizer, "split": SplitConfig(shares="60/30/10")}
    one = build(config(sources, tmp_path / "one", run=RunConfig(workers=1), **kept))
    other = build(config(sources, tmp_path / "two", run=RunConfig(workers=2, batch_files=5), **kept))
    assert one.files == other.files
    assert one.packing == other.packing
    assert failed_checks(check(tmp_path / "one", sources, workers=1)) == {}
    assert compare_with_clean_build(tmp_path / "one") == []


def test_check_finds_files_in_a_wrong_order(shop, tmp_path, plain_tokenizer):
    """The manifest records an order that differs from the order of the rows."""
    planted = {"path": {"repo_order": "imports"}, "imports": {"repo_order": "path"}, "shuffle": {"repo_order_seed": 1}}
    for order, other in planted.items():
        folder = tmp_path / order
        build(in_one_split(shop, folder, plain_tokenizer, repo_order=order))
        manifest = json.loads((folder / "manifest.json").read_text())
        manifest["settings"]["window"] |= other
        (folder / "manifest.json").write_text(json.dumps(manifest))
        found = failed_checks(check(folder, workers=1))["windows"]
        assert any(" requires shop/app/" in one for one in found), found
        expected = "the shuffled order" if order == "shuffle" else f"the order by {other['repo_order']}"
        assert any(f"{expected} requires" in one for one in found)


def test_check_finds_rows_of_a_file_that_are_not_adjacent(shop, tmp_path, plain_tokenizer):
    folder = tmp_path / "out"
    build(in_one_split(shop, folder, plain_tokenizer))
    lines = (folder / "train.jsonl").read_text().splitlines(keepends=True)
    (folder / "train.jsonl").write_text("".join([*lines[1:3], lines[0], *lines[3:]]))
    update_digests(folder, "train.jsonl")
    found = failed_checks(check(folder, workers=1))["windows"]
    assert any("other files of the repository are between its tokens" in one for one in found), found


def test_check_finds_a_wrong_number_of_imports(shop, tmp_path, plain_tokenizer):
    build(in_one_split(shop, tmp_path / "out", plain_tokenizer, repo_order="imports"))
    manifest = json.loads((tmp_path / "out/manifest.json").read_text())
    manifest["packing"]["train"]["order"]["imports"] += 1
    manifest["packing"]["test"]["order"]["repos"] = 1
    (tmp_path / "out/manifest.json").write_text(json.dumps(manifest))
    in_train, in_test = failed_checks(check(tmp_path / "out", workers=1))["windows"]
    assert "packing.train.order" in in_train
    assert "packing.test.order is repos 1, imports 0, broken 0, expected repos 0, imports 0, broken 0" in in_test


def test_imports_are_read_if_the_tokenizer_does_not_reproduce_the_text(shop, tmp_path, plain_tokenizer):
    """With WordPiece, the build stores the text with the ids. `check` has no text and does not check imports."""
    tree = json.loads(trained_tokenizers.word_piece())
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    first = max([*tree["model"]["vocab"].values(), *(one["id"] for one in tree["added_tokens"])]) + 1
    tree["added_tokens"] += [
        {"id": first + number, "content": name, "special": True, **flags}
        for number, name in enumerate(("<repo_name>", "<file_sep>"))
    ]
    write_tree(tmp_path / "pieces", {"tokenizer.json": json.dumps(tree)})
    tokenizer = TokenizerConfig(name=str(tmp_path / "pieces"))
    build(in_one_split(shop, tmp_path / "out", tokenizer, repo_order="imports"))
    assert paths_in(tmp_path / "out") == [f"app/{name}.py" for name in BY_IMPORTS]
    report = check(tmp_path / "out", workers=1)
    assert failed_checks(report) == {}
    assert report["windows"].status == "reported"
    assert "not checked: this tokenizer does not reproduce the text" in report["windows"].summary


def test_repo_order_without_pack_repo_is_refused():
    for pack in (None, "none", "best-fit"):
        with pytest.raises(ConfigError, match="Add --pack repo, or leave out --repo-order"):
            WindowConfig(pack=pack, repo_order="imports")
    for order in ("path", "imports"):
        with pytest.raises(ConfigError, match="needs --repo-order shuffle"):
            WindowConfig(pack="repo", repo_order=order, repo_order_seed=3)


def test_repository_rows_are_in_reading_order_after_a_cut(tmp_path, plain_tokenizer):
    """The rows are so short that one begins with the file marker after a cut, and another one with the end token."""
    shared = "".join(f"shared_{number} = work({number * 17})\n" for number in range(12))
    own = {name: "".join(f"{name}_{number} = {name}({number * 13})\n" for number in range(30)) for name in "abcdef"}
    tree = {f"{name}.py": f"{text[:300]}\n{shared}{text[300:]}" for name, text in own.items()}
    source = write_tree(tmp_path / "code", tree)
    window, split = WindowConfig(length=4, pack="repo"), SplitConfig(shares="50/50/0")
    build(config([str(source)], tmp_path / "out", window=window, split=split, tokenizer=plain_tokenizer))
    table = map(json.loads, (tmp_path / "out/files.jsonl").read_text().splitlines())
    assert any(len(row["cuts"]) and row["cuts"][0][0] for row in table)
    assert failed_checks(check(tmp_path / "out", workers=1)) == {}


def test_incompatible_settings_are_refused(sources, tmp_path):
    for window in ({"tail": "drop"}, {"pack": "repo", "overlap": 3}):
        with pytest.raises(ConfigError, match="cannot be combined with"):
            WindowConfig(**{"pack": "best-fit", **window})
    for pack, sections in (
        ("best-fit", {"variants": VariantsConfig(rates={"noise": 1})}),
        ("repo", {"variants": VariantsConfig(rates={"rename": 1})}),
        ("repo", {"sampling": SamplingConfig(max_windows=3)}),
        ("repo", {"split": SplitConfig(decontaminate="drop")}),
        ("best-fit", {"sampling": SamplingConfig(weights={"a": 2}, weights_only=True)}),
    ):
        with pytest.raises(ConfigError, match=f"--pack {pack} cannot be combined with"):
            config(sources, tmp_path / "out", pack, **sections)
    with pytest.raises(ConfigError, match="has no tokens that mark repositories"):
        build(config(sources, tmp_path / "out", "repo"))
    with pytest.raises(ConfigError, match="plan cannot count the rows of --pack repo"):
        plan(config(sources, tmp_path / "out", "repo"))


def test_explain_lists_windows_of_a_row_and_rows_of_a_file(sources, tmp_path):
    build(config(sources, tmp_path / "out"))
    rows = open_dataset(tmp_path / "out")["train"]
    number = next(number for number, row in enumerate(rows) if len(row["segments"]) > 1)
    explained = explain_row(tmp_path / "out", "train", number)
    first, second, *_ = rows[number]["segments"]
    assert explained.file.path == first["path"]
    assert explained.beside[0].startswith(f"{second['repo']}/{second['path']}, lines {second['lines'][0]}")
    found = explain(tmp_path / "out", f"{second['repo']}/{second['path']}")
    assert f"train:{number}" in [one.row for one in found.windows]


def test_loader_gives_batches_for_causal_training(sources, tmp_path):
    pytest.importorskip("torch")
    build(config(sources, tmp_path / "out"))
    windows = open_dataset(tmp_path / "out").torch("train")
    batch = next(iter(windows.loader(4, windows.causal_collator())))
    assert set(batch) == {"input_ids", "position_ids", "labels"}
    is_first = batch["position_ids"] == 0
    assert (batch["labels"][is_first] == -100).all()
    assert (batch["labels"][~is_first] == batch["input_ids"][~is_first]).all()
    assert (batch["input_ids"] == 2).sum() == ((batch["labels"] == 2) & ~is_first).sum()
    fresh = next(iter(windows.loader(4, windows.causal_collator(fresh_only=True))))
    assert (fresh["labels"] != -100).sum() < (batch["labels"] != -100).sum()
    assert not ((fresh["labels"] != -100) & (fresh["input_ids"] == 2)).any()
    with pytest.raises(ConfigError, match="packed"):
        next(iter(windows.loader(4, windows.masked_collator())))
    with pytest.raises(ConfigError, match="was built with --pack"):
        compare_tokenizers(Config(sources=[str(tmp_path / "out")], out=str(tmp_path / "none")))


def test_model_output_for_a_packed_window_equals_that_of_the_window_alone(sources, tmp_path):
    torch = pytest.importorskip("torch")
    from transformers import LlamaConfig, LlamaForCausalLM

    build(config(sources, tmp_path / "out", window=WindowConfig(length=64, pack="best-fit")))
    row = next(row for row in open_dataset(tmp_path / "out")["train"] if len(row["segments"]) > 1)
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=50_265, **sizes)).eval()
    ids, groups = torch.tensor([row["input_ids"]]), torch.tensor(row["segment_ids"])
    with torch.no_grad():
        together = model(input_ids=ids, position_ids=torch.tensor([row["position_ids"]]), use_cache=False).logits[0]
        for group in groups.unique():
            alone = model(input_ids=ids[:, groups == group], use_cache=False).logits[0]
            assert torch.allclose(together[groups == group], alone, atol=1e-5)


@pytest.fixture(scope="module")
def packed_dataset(sources, tmp_path_factory):
    out = tmp_path_factory.mktemp("good") / "out"
    build(config(sources, out))
    return out


def plant(packed_dataset, tmp_path, change):
    """Change the first train row that has several windows, and update the digests.

    Return the failed checks and the number of the row, from 1.
    """
    folder = shutil.copytree(packed_dataset, tmp_path / "planted")
    rows = [json.loads(line) for line in (folder / "train.jsonl").read_text().splitlines()]
    number = next(number for number, row in enumerate(rows) if len(row["segments"]) > 1)
    change(rows[number])
    content = "".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows).encode()
    (folder / "train.jsonl").write_bytes(content)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"]["train.jsonl"] |= {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return failed_checks(check(folder, workers=1)), number + 1


def shift(row):
    row["segments"][1]["at"] -= 1


def swap(row):
    row["segments"].reverse()


FAULTS = {
    "wrong position": (lambda row: row["position_ids"].__setitem__(5, 9), "windows"),
    "wrong group": (lambda row: row["segment_ids"].__setitem__(5, 2), "windows"),
    "wrong offset": (shift, "special_tokens"),
    "segments in another order": (swap, "special_tokens"),
    "content instead of a separator": (lambda row: row["input_ids"].__setitem__(0, 77), "special_tokens"),
    "id beyond the vocabulary": (lambda row: row["input_ids"].__setitem__(1, 99_999), "ids"),
    "missing segment": (lambda row: row["segments"].pop(), "windows"),
    "additional column": (lambda row: row.__setitem__("more", 1), "schema"),
    "segment that is not an object": (lambda row: row["segments"].__setitem__(0, 3), "schema"),
    "segments that are not a list": (lambda row: row.__setitem__("segments", {"at": 1}), "schema"),
    "null instead of ids": (lambda row: row.__setitem__("input_ids", None), "schema"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_check_finds_planted_faults(packed_dataset, tmp_path, name):
    change, check_name = FAULTS[name]
    found, number = plant(packed_dataset, tmp_path, change)
    assert f"train.jsonl row {number}" in found[check_name][0]


@pytest.mark.parametrize("is_missing", [True, False], ids=["missing", "in the middle of a file"])
def test_check_finds_an_extra_or_missing_end_token(stream_dataset, tmp_path, is_missing):
    folder = shutil.copytree(stream_dataset[0], tmp_path / "planted")
    rows = [json.loads(line) for line in (folder / "train.jsonl").read_text().splitlines()]
    number = next(
        number for number, row in enumerate(rows) if (END in row["input_ids"]) == is_missing and row["segments"]
    )
    row = rows[number]
    at = row["input_ids"].index(END) if is_missing else row["segments"][-1]["at"] + row["segments"][-1]["length"]
    if is_missing:
        for one in row["segments"]:
            one["at"] -= one["at"] > at
        del row["input_ids"][at], row["segment_ids"][at]
    else:
        row["input_ids"][at - 1] = END
        row["segments"][-1]["length"] -= 1
    row["position_ids"] = [at for group in Counter(row["segment_ids"]).values() for at in range(group)]
    (folder / "train.jsonl").write_text("".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows))
    update_digests(folder, "train.jsonl")
    found = failed_checks(check(folder, workers=1))["special_tokens"]
    assert any(f"the end token {END}" in one or "end token for" in one for one in found), found


def test_check_finds_changed_tokens_by_the_digest(packed_dataset, tmp_path):
    found, _ = plant(packed_dataset, tmp_path, lambda row: row["input_ids"].__setitem__(2, 77))
    assert "formats" in found


def test_damaged_packed_row_is_a_dataset_error(packed_dataset, tmp_path):
    folder = shutil.copytree(packed_dataset, tmp_path / "damaged")
    (folder / "train.jsonl").write_bytes(b'{"segments":[{"path":"a","repo":"b"}],"input_ids":[1]}\n')
    with pytest.raises(DatasetError):
        export(folder, "bin")
