"""A build over what earlier ones have left gives what one from scratch gives, and does again only what has changed."""

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
from gristmill.checks.rebuild import against_clean
from gristmill.core.errors import OutputError
from gristmill.core.partition import neighbours, steady_neighbours
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
    """The same as from scratch: by what the program itself says, and by a build elsewhere with the same earlier splits."""
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
    assert against_clean(out) == []
    shutil.rmtree(folder / "clean")
    return manifest


# Random edits.


def append(draw, root, path):
    with path.open("ab") as stream:
        stream.write(b"\n# note %d\n" % draw.randrange(1000))


def rewrite(draw, root, path):
    """Of the same size."""
    content = bytearray(path.read_bytes())
    for _ in range(min(20, len(content))):
        content[draw.randrange(len(content))] = draw.choice(b"abcxyz_ ")
    path.write_bytes(content)


def shorten(draw, root, path):
    os.truncate(path, path.stat().st_size // 2)


def touch(draw, root, path):
    os.utime(path)


def remove(draw, root, path):
    path.unlink()


def copy(draw, root, path):
    shutil.copy(path, path.with_name(f"copy_{draw.randrange(1000)}_{path.name}"))


def nearly_copy(draw, root, path):
    path.with_name(f"near_{draw.randrange(1000)}_{path.name}").write_bytes(path.read_bytes() + b"\nlast = 1\n")


def rename(draw, root, path):
    path.rename(path.with_name(f"a{draw.randrange(1000)}_{path.name}"))


def move(draw, root, path):
    folder = draw.choice(sorted(entry for entry in root.rglob("*") if entry.is_dir()))
    path.rename(folder / path.name)


def move_a_folder(draw, root, path):
    if path.parent != root:
        path.parent.rename(root / f"moved{draw.randrange(1000)}")


def add(draw, root, path):
    lines = [f"value_{draw.randrange(10**6)} = {draw.random()}\n" for _ in range(draw.randrange(1, 300))]
    write_tree(root, {f"{draw.choice('abc')}/new_{draw.randrange(1000)}.py": "".join(lines)})


def exchange(draw, root, path):
    """Two files change places."""
    other = draw.choice([one for one in sorted(root.rglob("*")) if one.is_file()])
    content = path.read_bytes()
    path.write_bytes(other.read_bytes())
    other.write_bytes(content)


EDITS = (append, rewrite, shorten, touch, remove, copy, nearly_copy, rename, move, move_a_folder, add, exchange)


def edit(draw, root, num_edits):
    for _ in range(num_edits):
        files = [path for path in sorted(root.rglob("*")) if path.is_file()]
        draw.choice(EDITS)(draw, root, draw.choice(files))


@pytest.mark.parametrize("seed", range(4))
def test_after_any_edits_a_build_gives_what_one_from_scratch_gives(source, tmp_path, seed):
    draw = random.Random(seed)
    output = OutputConfig(compress=draw.choice(["none", "zstd"]), shard_bytes=draw.choice([200_000, 1 << 29]))
    config = Config(sources=[str(source)], out=str(tmp_path / "out"), run=SMALL, output=output)
    for num_edits in (0, 0, 1, 3, 12):
        edit(draw, source, num_edits)
        build_and_compare(config, tmp_path)


def test_every_kind_of_edit_by_itself(source, tmp_path):
    draw = random.Random(0)
    config = Config(sources=[str(source)], out=str(tmp_path / "out"), run=SMALL)
    build(config)
    for change in EDITS:
        files = [path for path in sorted(source.rglob("*")) if path.is_file() and path.stat().st_size]
        change(draw, source, draw.choice(files))
        shutil.copy(tmp_path / "out/files.jsonl", tmp_path / "previous.jsonl")
        build(config)
        split = SplitConfig(previous=str(tmp_path / "previous.jsonl"))
        make(source, tmp_path / "clean", split=split, run=RunConfig(cache_bytes=0))
        assert everything(tmp_path / "out") == everything(tmp_path / "clean"), change.__name__
        shutil.rmtree(tmp_path / "clean")


def test_back_and_forth_between_settings(source, tmp_path):
    (tmp_path / "tokenizer.json").write_text(made.byte_level())
    draw = random.Random(1)
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
        edit(draw, source, 1)


def test_another_source_in_between_changes_nothing(source, tmp_path):
    config = Config(sources=[str(source)], out=str(tmp_path / "out"), run=SMALL)
    other = msgspec.structs.replace(config, sources=[str(source / "json"), str(source / "importlib")])
    for one in (config, other, config):
        build_and_compare(one, tmp_path)


# Only what has changed.


def test_nothing_is_prepared_again_where_nothing_has_changed(source, tmp_path):
    make(source, tmp_path / "out", run=SMALL)
    there = parts(tmp_path / "out")
    assert len(there) > 20
    for path in source.rglob("*"):
        os.utime(path)
    make(source, tmp_path / "out", run=SMALL)
    make(source, tmp_path / "out", run=msgspec.structs.replace(SMALL, workers=2))
    make(source, tmp_path / "out", run=SMALL, output=OutputConfig(compress="zstd"), split=SplitConfig(seed=3))
    assert parts(tmp_path / "out") == there


def test_one_changed_file_is_prepared_again_with_its_batch_alone(source, tmp_path):
    for path in ("json/decoder.py", "importlib/_bootstrap.py", "importlib/abc.py"):
        make(source, tmp_path / "out", run=SMALL)
        there = parts(tmp_path / "out")
        content = (source / path).read_bytes()
        (source / path).write_bytes(content[:-20].replace(b"return", b"xeturn") + b"\n" * 20)
        make(source, tmp_path / "out", run=SMALL)
        after = parts(tmp_path / "out")
        assert after.items() >= there.items()
        assert len(after) == len(there) + 1


@pytest.mark.parametrize("change", [append, shorten, remove, rename, add, copy, move])
def test_one_edit_has_few_batches_prepared_again(source, tmp_path, change):
    """Those around the file and, where it is moved, around its new place."""
    make(source, tmp_path / "out", run=SMALL)
    there = parts(tmp_path / "out")
    change(random.Random(5), source, source / "importlib/util.py")
    make(source, tmp_path / "out", run=SMALL)
    after = parts(tmp_path / "out")
    assert after.items() >= there.items()
    assert len(after) - len(there) <= 6


# Neighbours that stay together.

ITEMS = st.lists(st.tuples(st.text("abcd/", min_size=1, max_size=6), st.integers(0, 120)), max_size=60, unique_by=lambda item: item[0]).map(sorted)  # fmt: skip
LIMIT = 100


def runs_of(items, max_items):
    return list(steady_neighbours(items, lambda item: item[0], lambda item: item[1], LIMIT, max_items))


def is_edge(item, max_items):
    """Whether it begins a run whatever comes before it."""
    return len(runs_of([("", 0), item], max_items)) == 2 and item[1] <= LIMIT


def between_edges(items, place, max_items):
    """From the last edge before that place to the first after it."""
    edges = [number for number, item in enumerate(items) if is_edge(item, max_items)]
    first = max((number for number in edges if number < place), default=0)
    return first, min((number for number in edges if number > place), default=len(items))


@settings(max_examples=300, deadline=None)
@given(ITEMS, st.sampled_from([None, 5]))
def test_runs_are_in_order_within_the_limit_and_lose_nothing(items, max_items):
    runs = runs_of(items, max_items)
    assert [item for run in runs for item in run] == items
    assert all(run for run in runs)
    assert all(len(run) == 1 or sum(size for _, size in run) <= LIMIT for run in runs)
    assert all(len(run) <= (max_items or len(run)) for run in runs)


@settings(max_examples=500, deadline=None)
@given(ITEMS.filter(bool), st.sampled_from([None, 5]), st.data())
def test_an_item_that_comes_goes_or_grows_changes_the_runs_around_it_alone(items, max_items, data):
    place = data.draw(st.integers(0, len(items) - 1))
    name, _ = items[place]
    without = items[:place] + items[place + 1 :]
    resized = [*items[:place], (name, data.draw(st.integers(0, 120))), *items[place + 1 :]]
    first, last = between_edges(items, place, max_items)
    around = {item[0] for item in items[first:last]}
    before = {tuple(run) for run in runs_of(items, max_items)}
    for changed in (without, resized):
        after = {tuple(run) for run in runs_of(changed, max_items)}
        for one in before ^ after:
            assert {item[0] for item in one} <= around


def test_on_average_two_runs_change():
    draw = random.Random(0)
    items = sorted({(f"{draw.choice('abcdef')}/{draw.randrange(10**6)}.py", draw.randrange(20)) for _ in range(4000)})
    before = {tuple(run) for run in runs_of(items, None)}
    assert 0.4 < sum(size for _, size in items) / LIMIT / len(before) < 0.9
    assert len(before) < 2.5 * len(list(neighbours(items, lambda item: item[1], LIMIT)))
    changed = []
    for place in draw.sample(range(len(items)), 200):
        after = {tuple(run) for run in runs_of(items[:place] + items[place + 1 :], None)}
        changed.append(len(after - before))
    assert sum(changed) / len(changed) < 2
    assert max(changed) < 12


# gristmill check DIR --against-clean


@pytest.fixture(scope="module")
def built_twice(tmp_path_factory, corpus):
    """A source, and what two builds have made of it; and the same once more, to be put in its place again."""
    folder = tmp_path_factory.mktemp("twice")
    source = source_in(folder / "here", corpus)
    make(source, folder / "here/out", run=SMALL)
    (source / "json/decoder.py").unlink()
    make(source, folder / "here/out", run=SMALL)
    shutil.copytree(folder / "here", folder / "as it was")
    return folder


@pytest.fixture
def dataset(built_twice):
    shutil.rmtree(built_twice / "here")
    shutil.copytree(built_twice / "as it was", built_twice / "here")
    return built_twice / "here/out"


def test_against_clean_says_that_all_is_the_same(dataset):
    done = called("check", dataset, "--against-clean")
    assert done.returncode == 0
    assert done.stdout == f"byte-identical to a clean build: {dataset}\n"
    done = called("check", dataset, "--against-clean", "--json")
    assert (done.returncode, json.loads(done.stdout)) == (0, {"ok": True, "differences": []})
    assert sorted(entry.name for entry in dataset.parent.iterdir()) == ["out", "out.work", "stdlib"]


def test_against_clean_finds_a_source_that_has_changed(dataset):
    source = dataset.with_name("stdlib")
    (source / "json/encoder.py").write_text("x = 1\n" * 30)
    done = called("check", dataset, "--against-clean", "--json")
    answer = json.loads(done.stdout)
    assert (done.returncode, answer["ok"]) == (1, False)
    assert any(line.startswith("files.jsonl: sha256 ") for line in answer["differences"])
    done = called("check", dataset, "--against-clean")
    assert done.returncode == 1
    assert done.stdout.endswith(f"differs from a build from scratch: {dataset}\n")
    assert called("check", dataset, "--against-clean", "--quiet").stdout == done.stdout


@pytest.mark.parametrize("name", ["train.jsonl", "files.jsonl", "tokenizer.json", "test.jsonl"])
def test_against_clean_finds_a_dataset_that_was_altered(dataset, name):
    content = bytearray((dataset / name).read_bytes())
    content[len(content) // 2] ^= 1
    (dataset / name).write_bytes(content)
    (line,) = against_clean(dataset)
    assert line.startswith(f"{name}: sha256 ")


def test_against_clean_finds_a_file_that_is_missing(dataset):
    (dataset / "validation.jsonl").unlink()
    (line,) = against_clean(dataset)
    assert line.startswith("validation.jsonl: no file, but a clean build gives sha256 ")


@pytest.mark.parametrize(("table", "field"), [("counts", "kept"), ("files", "train.jsonl")])
def test_against_clean_finds_a_manifest_that_was_altered(dataset, table, field):
    manifest = json.loads((dataset / "manifest.json").read_bytes())
    manifest[table][field] = manifest[table]["test.jsonl"] if table == "files" else 0
    (dataset / "manifest.json").write_text(json.dumps(manifest))
    assert f"manifest.json: {table} differs in a clean build" in against_clean(dataset)


def test_against_clean_needs_to_know_how_it_was_built(dataset):
    source = dataset.with_name("stdlib")
    shutil.rmtree(work_folder_of(dataset))
    code, line = refusal(called("check", dataset, "--against-clean"))
    assert code == 4
    assert line.startswith(f"{str(work_folder_of(dataset))!r} has no record of how {str(dataset)!r} was built")
    with pytest.raises(DatasetError, match="Build the dataset again"):
        against_clean(dataset)
    code, line = refusal(called("check", dataset, "--against-clean", "--source", source))
    assert (code, line) == (2, "--against-clean uses the sources that the manifest records. Omit --source.")
    code, _ = refusal(called("check", dataset.parent / "nothing", "--against-clean"))
    assert code == 4
    assert not work_folder_of(dataset).exists()


def test_against_clean_says_so_where_the_source_is_gone(dataset):
    source = dataset.with_name("stdlib")
    before = everything(dataset)
    shutil.rmtree(source)
    code, line = refusal(called("check", dataset, "--against-clean"))
    assert (code, str(source) in line) == (3, True)
    assert everything(dataset) == before


def test_against_clean_goes_from_the_folder_of_the_build(source, tmp_path, monkeypatch):
    monkeypatch.chdir(source.parent)
    build(Config(sources=["stdlib"], out="out", run=SMALL))
    monkeypatch.chdir("/")
    assert against_clean(tmp_path / "out") == []


def test_against_clean_does_not_take_the_dataset_for_a_source(source):
    build(Config(sources=[str(source)], out=str(source / "data"), run=SMALL))
    build(Config(sources=[str(source)], out=str(source / "data"), run=SMALL))
    assert against_clean(source / "data") == []


def test_a_folder_by_the_name_of_a_data_file_is_not_the_datasets(tmp_path):
    write_tree(tmp_path / "source", {"a.py": "a = 1\n" * 100})
    out = tmp_path / "out"
    make(tmp_path / "source", out)
    (out / "train.jsonl").unlink()
    (out / "train.jsonl").mkdir()
    (out / "train.jsonl" / "mine").touch()
    with pytest.raises(OutputError, match="has the name of one of its files"):
        make(tmp_path / "source", out)
    assert (out / "train.jsonl" / "mine").exists()
