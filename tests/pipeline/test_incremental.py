"""A rebuild gives the same dataset as a build from scratch, and prepares only the batches of changed files again."""

import json
import os
import random
import shutil
from functools import partial

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gristmill import (
    Config,
    DatasetError,
    DuplicatesConfig,
    LicensesConfig,
    OutputConfig,
    RunConfig,
    ScanConfig,
    SecretsConfig,
    SplitConfig,
    TokenizerConfig,
    WindowConfig,
    build,
)
from gristmill.checks.rebuild import compare_with_clean_build
from gristmill.core.errors import OutputError
from gristmill.core.partition import consecutive_groups, stable_groups
from support import trained_tokenizers as made
from support.builds import called, everything, make, parts, refusal, work_folder_of
from support.source_trees import write_tree

SMALL = RunConfig(workers=1, batch_bytes=20_000)


@pytest.fixture
def source(tmp_path, corpus):
    return source_in(tmp_path, corpus)


def source_in(folder, corpus):
    root = folder / "stdlib"
    for package in ("importlib", "json"):
        shutil.copytree(corpus / package, root / package)
    shutil.copytree(corpus / "encodings", root / "encodings", ignore=lambda _, names: sorted(names)[20:])
    return root


def build_and_compare(config, folder):
    """Build, and assert that the dataset equals a build from scratch with the same previous splits.

    Also assert that `compare_with_clean_build` reports no difference.
    """
    out = folder / "out"
    earlier = folder / "previous.jsonl"
    earlier.unlink(missing_ok=True)
    if (out / "files.jsonl").is_file() and not config.split.fresh:
        shutil.copy(out / "files.jsonl", earlier)
    manifest = build(config)
    split = config.split
    if earlier.exists():
        split = msgspec.structs.replace(split, previous=str(earlier))
    build(msgspec.structs.replace(config, out=str(folder / "clean"), split=split, run=RunConfig(cache_bytes=0)))
    assert everything(out) == everything(folder / "clean")
    assert compare_with_clean_build(out) == []
    shutil.rmtree(folder / "clean")
    return manifest


# Random edits.


def append(rng, root, path):
    with path.open("ab") as stream:
        stream.write(b"\n# note %d\n" % rng.randrange(1000))


def rewrite(rng, root, path):
    """Change some bytes of a file, but not its size."""
    content = bytearray(path.read_bytes())
    for _ in range(min(20, len(content))):
        content[rng.randrange(len(content))] = rng.choice(b"abcxyz_ ")
    path.write_bytes(content)


def shorten(rng, root, path):
    os.truncate(path, path.stat().st_size // 2)


def touch(rng, root, path):
    os.utime(path)


def remove(rng, root, path):
    path.unlink()


def copy(rng, root, path):
    shutil.copy(path, path.with_name(f"copy_{rng.randrange(1000)}_{path.name}"))


def nearly_copy(rng, root, path):
    path.with_name(f"near_{rng.randrange(1000)}_{path.name}").write_bytes(path.read_bytes() + b"\nlast = 1\n")


def rename(rng, root, path):
    path.rename(path.with_name(f"a{rng.randrange(1000)}_{path.name}"))


def move(rng, root, path):
    folder = rng.choice(sorted(entry for entry in root.rglob("*") if entry.is_dir()))
    path.rename(folder / path.name)


def move_a_folder(rng, root, path):
    if path.parent != root:
        path.parent.rename(root / f"moved{rng.randrange(1000)}")


def add(rng, root, path):
    lines = [f"value_{rng.randrange(10**6)} = {rng.random()}\n" for _ in range(rng.randrange(1, 300))]
    write_tree(root, {f"{rng.choice('abc')}/new_{rng.randrange(1000)}.py": "".join(lines)})


def exchange(rng, root, path):
    """Swap the contents of two files."""
    other = rng.choice([one for one in sorted(root.rglob("*")) if one.is_file()])
    content = path.read_bytes()
    path.write_bytes(other.read_bytes())
    other.write_bytes(content)


EDITS = (append, rewrite, shorten, touch, remove, copy, nearly_copy, rename, move, move_a_folder, add, exchange)


def edit(rng, root, num_edits):
    for _ in range(num_edits):
        files = [path for path in sorted(root.rglob("*")) if path.is_file()]
        rng.choice(EDITS)(rng, root, rng.choice(files))


@pytest.mark.parametrize("seed", range(4))
def test_build_after_random_edits_equals_a_build_from_scratch(source, tmp_path, seed):
    rng = random.Random(seed)
    output = OutputConfig(compress=rng.choice(["none", "zstd"]), shard_bytes=rng.choice([200_000, 1 << 29]))
    config = Config(sources=[str(source)], out=str(tmp_path / "out"), run=SMALL, output=output)
    for num_edits in (0, 0, 1, 3, 12):
        edit(rng, source, num_edits)
        build_and_compare(config, tmp_path)


def test_build_after_each_kind_of_edit_equals_a_build_from_scratch(source, tmp_path):
    rng = random.Random(0)
    config = Config(sources=[str(source)], out=str(tmp_path / "out"), run=SMALL)
    build(config)
    for change in EDITS:
        files = [path for path in sorted(source.rglob("*")) if path.is_file() and path.stat().st_size]
        change(rng, source, rng.choice(files))
        shutil.copy(tmp_path / "out/files.jsonl", tmp_path / "previous.jsonl")
        build(config)
        split = SplitConfig(previous=str(tmp_path / "previous.jsonl"))
        make(source, tmp_path / "clean", split=split, run=RunConfig(cache_bytes=0))
        assert everything(tmp_path / "out") == everything(tmp_path / "clean"), change.__name__
        shutil.rmtree(tmp_path / "clean")


def test_build_after_changed_settings_equals_a_build_from_scratch(source, tmp_path):
    (tmp_path / "tokenizer.json").write_text(made.byte_level())
    rng = random.Random(1)
    plain = Config(sources=[str(source)], out=str(tmp_path / "out"), run=SMALL)
    replace = partial(msgspec.structs.replace, plain)
    changed = [
        plain,
        replace(window=WindowConfig(overlap=64)),
        replace(secrets=SecretsConfig(action="drop", emails=True)),
        replace(duplicates=DuplicatesConfig(near="group")),
        replace(duplicates=DuplicatesConfig(near="keep")),
        replace(split=SplitConfig(decontaminate="off")),
        replace(split=SplitConfig(decontaminate="train")),
        replace(split=SplitConfig(fresh=True, seed=7)),
        replace(output=OutputConfig(compress="zstd", shard_bytes=300_000)),
        replace(output=OutputConfig(pad=True, with_text=True)),
        replace(tokenizer=TokenizerConfig(name=str(tmp_path / "tokenizer.json"))),
        replace(run=RunConfig(workers=2, batch_bytes=70_000)),
        replace(run=RunConfig(workers=1, batch_files=1)),
        replace(scan=ScanConfig(exclude=["json/"])),
        replace(licenses=LicensesConfig(allow=["NOASSERTION"])),
        plain,
    ]
    for config in changed:
        try:
            build_and_compare(config, tmp_path)
        except Exception as error:
            error.add_note(str(config))
            raise
        edit(rng, source, 1)


def test_intermediate_build_of_different_sources_has_no_effect(source, tmp_path):
    config = Config(sources=[str(source)], out=str(tmp_path / "out"), run=SMALL)
    other = msgspec.structs.replace(config, sources=[str(source / "json"), str(source / "importlib")])
    for one in (config, other, config):
        build_and_compare(one, tmp_path)


# Only changed files are prepared again.


def test_unchanged_source_is_not_prepared_again(source, tmp_path):
    make(source, tmp_path / "out", run=SMALL)
    before = parts(tmp_path / "out")
    assert len(before) > 20
    for path in source.rglob("*"):
        os.utime(path)
    make(source, tmp_path / "out", run=SMALL)
    make(source, tmp_path / "out", run=msgspec.structs.replace(SMALL, workers=2))
    make(source, tmp_path / "out", run=SMALL, output=OutputConfig(compress="zstd"), split=SplitConfig(seed=3))
    assert parts(tmp_path / "out") == before


def test_only_the_batch_of_a_changed_file_is_prepared_again(source, tmp_path):
    for path in ("json/decoder.py", "importlib/_bootstrap.py", "importlib/abc.py"):
        make(source, tmp_path / "out", run=SMALL)
        before = parts(tmp_path / "out")
        content = (source / path).read_bytes()
        (source / path).write_bytes(content[:-20].replace(b"return", b"xeturn") + b"\n" * 20)
        make(source, tmp_path / "out", run=SMALL)
        after = parts(tmp_path / "out")
        assert after.items() >= before.items()
        assert len(after) == len(before) + 1


@pytest.mark.parametrize("change", [append, shorten, remove, rename, add, copy, move])
def test_few_batches_are_prepared_again_after_an_edit(source, tmp_path, change):
    """Only batches near the old position and, if the file is moved, near its new position are prepared again."""
    make(source, tmp_path / "out", run=SMALL)
    before = parts(tmp_path / "out")
    change(random.Random(5), source, source / "importlib/util.py")
    make(source, tmp_path / "out", run=SMALL)
    after = parts(tmp_path / "out")
    assert after.items() >= before.items()
    assert len(after) - len(before) <= 6


# Runs: stable groups of neighboring items.

ITEMS = st.lists(st.tuples(st.text("abcd/", min_size=1, max_size=6), st.integers(0, 120)), max_size=60, unique_by=lambda item: item[0]).map(sorted)  # fmt: skip
LIMIT = 100


def runs_of(items, max_items):
    return list(stable_groups(items, lambda item: item[0], lambda item: item[1], LIMIT, max_items))


def is_edge(item, max_items):
    """Return True if the item begins a run regardless of the items before it."""
    return len(runs_of([("", 0), item], max_items)) == 2 and item[1] <= LIMIT


def between_edges(items, position, max_items):
    """Return the range from the last edge before `position` to the first edge after `position`."""
    edges = [number for number, item in enumerate(items) if is_edge(item, max_items)]
    first = max((number for number in edges if number < position), default=0)
    return first, min((number for number in edges if number > position), default=len(items))


@settings(max_examples=300, deadline=None)
@given(ITEMS, st.sampled_from([None, 5]))
def test_runs_contain_all_items_in_order_and_respect_the_limits(items, max_items):
    runs = runs_of(items, max_items)
    assert [item for run in runs for item in run] == items
    assert all(run for run in runs)
    assert all(len(run) == 1 or sum(size for _, size in run) <= LIMIT for run in runs)
    assert all(len(run) <= (max_items or len(run)) for run in runs)


@settings(max_examples=500, deadline=None)
@given(ITEMS.filter(bool), st.sampled_from([None, 5]), st.data())
def test_removing_or_resizing_an_item_changes_only_nearby_runs(items, max_items, data):
    position = data.draw(st.integers(0, len(items) - 1))
    name, _ = items[position]
    items_without = items[:position] + items[position + 1 :]
    resized = [*items[:position], (name, data.draw(st.integers(0, 120))), *items[position + 1 :]]
    first, last = between_edges(items, position, max_items)
    names_nearby = {item[0] for item in items[first:last]}
    before = {tuple(run) for run in runs_of(items, max_items)}
    for changed in (items_without, resized):
        after = {tuple(run) for run in runs_of(changed, max_items)}
        for one in before ^ after:
            assert {item[0] for item in one} <= names_nearby


def test_removed_item_changes_fewer_than_two_runs_on_average():
    rng = random.Random(0)
    items = sorted({(f"{rng.choice('abcdef')}/{rng.randrange(10**6)}.py", rng.randrange(20)) for _ in range(4000)})
    before = {tuple(run) for run in runs_of(items, None)}
    assert 0.4 < sum(size for _, size in items) / LIMIT / len(before) < 0.9
    assert len(before) < 2.5 * len(list(consecutive_groups(items, lambda item: item[1], LIMIT)))
    changed = []
    for position in rng.sample(range(len(items)), 200):
        after = {tuple(run) for run in runs_of(items[:position] + items[position + 1 :], None)}
        changed.append(len(after - before))
    assert sum(changed) / len(changed) < 2
    assert max(changed) < 12


# gristmill check DIR --against-clean


@pytest.fixture(scope="module")
def built_twice(tmp_path_factory, corpus):
    """Two folders: `here` has a source and its dataset after two builds, and `original` is a copy of `here`."""
    folder = tmp_path_factory.mktemp("twice")
    source = source_in(folder / "here", corpus)
    make(source, folder / "here/out", run=SMALL)
    (source / "json/decoder.py").unlink()
    make(source, folder / "here/out", run=SMALL)
    shutil.copytree(folder / "here", folder / "original")
    return folder


@pytest.fixture
def dataset(built_twice):
    shutil.rmtree(built_twice / "here")
    shutil.copytree(built_twice / "original", built_twice / "here")
    return built_twice / "here/out"


def test_against_clean_reports_identical_datasets(dataset):
    done = called("check", dataset, "--against-clean")
    assert done.returncode == 0
    assert done.stdout == f"{dataset} is byte-identical to a clean build\n"
    done = called("check", dataset, "--against-clean", "--json")
    assert (done.returncode, json.loads(done.stdout)) == (0, {"ok": True, "differences": []})
    assert sorted(entry.name for entry in dataset.parent.iterdir()) == ["out", "out.work", "stdlib"]


def test_against_clean_detects_a_changed_source(dataset):
    source = dataset.with_name("stdlib")
    (source / "json/encoder.py").write_text("x = 1\n" * 30)
    done = called("check", dataset, "--against-clean", "--json")
    answer = json.loads(done.stdout)
    assert (done.returncode, answer["ok"]) == (1, False)
    assert any(line.startswith("files.jsonl: sha256 ") for line in answer["differences"])
    done = called("check", dataset, "--against-clean")
    assert done.returncode == 1
    assert done.stdout.endswith(f"{dataset} differs from a clean build\n")
    assert called("check", dataset, "--against-clean", "--quiet").stdout == done.stdout


@pytest.mark.parametrize("name", ["train.jsonl", "files.jsonl", "tokenizer.json", "test.jsonl"])
def test_against_clean_detects_an_altered_file(dataset, name):
    content = bytearray((dataset / name).read_bytes())
    content[len(content) // 2] ^= 1
    (dataset / name).write_bytes(content)
    (line,) = compare_with_clean_build(dataset)
    assert line.startswith(f"{name}: sha256 ")


def test_against_clean_detects_a_missing_file(dataset):
    (dataset / "validation.jsonl").unlink()
    (line,) = compare_with_clean_build(dataset)
    assert line.startswith("validation.jsonl: no file, but a clean build gives sha256 ")


@pytest.mark.parametrize(("table", "field"), [("counts", "kept"), ("files", "train.jsonl")])
def test_against_clean_detects_an_altered_manifest(dataset, table, field):
    manifest = json.loads((dataset / "manifest.json").read_bytes())
    manifest[table][field] = manifest[table]["test.jsonl"] if table == "files" else 0
    (dataset / "manifest.json").write_text(json.dumps(manifest))
    assert f"manifest.json: {table} differs in a clean build" in compare_with_clean_build(dataset)


def test_against_clean_requires_the_record_of_the_build(dataset):
    source = dataset.with_name("stdlib")
    shutil.rmtree(work_folder_of(dataset))
    code, line = refusal(called("check", dataset, "--against-clean"))
    assert code == 4
    assert line.startswith(f"{str(work_folder_of(dataset))!r} has no record of how {str(dataset)!r} was built")
    with pytest.raises(DatasetError, match="Build the dataset again"):
        compare_with_clean_build(dataset)
    code, line = refusal(called("check", dataset, "--against-clean", "--source", source))
    assert (code, line) == (2, "--against-clean uses the sources that the dataset was built from. Omit --source.")
    code, _ = refusal(called("check", dataset.parent / "nothing", "--against-clean"))
    assert code == 4
    assert not work_folder_of(dataset).exists()


def test_against_clean_reports_a_missing_source(dataset):
    source = dataset.with_name("stdlib")
    before = everything(dataset)
    shutil.rmtree(source)
    code, line = refusal(called("check", dataset, "--against-clean"))
    assert (code, str(source) in line) == (3, True)
    assert everything(dataset) == before


def test_against_clean_resolves_sources_from_the_directory_of_the_build(source, tmp_path, monkeypatch):
    monkeypatch.chdir(source.parent)
    build(Config(sources=["stdlib"], out="out", run=SMALL))
    monkeypatch.chdir("/")
    assert compare_with_clean_build(tmp_path / "out") == []


def test_against_clean_does_not_scan_a_dataset_inside_the_source(source):
    build(Config(sources=[str(source)], out=str(source / "data"), run=SMALL))
    build(Config(sources=[str(source)], out=str(source / "data"), run=SMALL))
    assert compare_with_clean_build(source / "data") == []


def test_user_folder_with_the_name_of_a_data_file_is_not_replaced(tmp_path):
    write_tree(tmp_path / "source", {"a.py": "a = 1\n" * 100})
    out = tmp_path / "out"
    make(tmp_path / "source", out)
    (out / "train.jsonl").unlink()
    (out / "train.jsonl").mkdir()
    (out / "train.jsonl" / "mine").touch()
    with pytest.raises(OutputError, match="has the name of a dataset file"):
        make(tmp_path / "source", out)
    assert (out / "train.jsonl" / "mine").exists()
