"""End-to-end tests: build a dataset and read the files that the build writes."""

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from functools import cache
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gristmill import (
    Config,
    DuplicatesConfig,
    InputError,
    OutputConfig,
    OutputError,
    Progress,
    RunConfig,
    ScanConfig,
    SplitConfig,
    TokenizerConfig,
    WindowConfig,
    build,
    open_dataset,
)
from gristmill.cli import main
from gristmill.core.layout import CARDS
from gristmill.core.manifest import read_manifest
from gristmill.core.records import DropReason, Split
from support import trained_tokenizers as made
from support.builds import command, copy_with_work, running, started, work_folder_of
from support.environment import default_signals
from support.source_trees import git, write_tree

# With these settings, a build cuts no file and drops no near-duplicates.
UNCUT = {"split": SplitConfig(decontaminate="off"), "duplicates": DuplicatesConfig(near="keep")}


def make(source, out, **sections):
    return build(Config(sources=[str(source)], out=str(out), **sections))


def contents(folder):
    """Return the files except the manifest and cards, and the manifest entries that depend only on the input."""
    files = {path.name: path.read_bytes() for path in sorted(folder.iterdir())}
    manifest = json.loads(files.pop("manifest.json"))
    manifest.pop("run")
    manifest.pop("previous_splits")
    for name in CARDS:  # the cards depend on the removed entries
        files.pop(name)
    return files, manifest


def files_table(folder):
    return [json.loads(line) for line in (folder / "files.jsonl").read_bytes().splitlines()]


def all_rows(folder):
    dataset = open_dataset(folder)
    return [(split, row) for split in dataset for row in dataset[split]]


def test_bytes_do_not_depend_on_workers_batches_earlier_builds_or_directory(built, corpus, tmp_path, monkeypatch):
    expected = contents(built[0])
    for workers in (1, 2, 4):
        make(corpus, tmp_path / f"w{workers}", run=RunConfig(workers=workers))
        assert contents(tmp_path / f"w{workers}") == expected
    make(corpus, tmp_path / "w1", run=RunConfig(workers=2))
    assert contents(tmp_path / "w1") == expected
    make(corpus, tmp_path / "batches", run=RunConfig(workers=2, batch_bytes=10_000, batch_files=3))
    assert contents(tmp_path / "batches") == expected
    monkeypatch.chdir(corpus.parent)
    build(Config(sources=["stdlib"], out="../elsewhere"))
    assert contents(corpus.parent / "../elsewhere") == expected
    shutil.rmtree(corpus.parent / "../elsewhere")


def test_compressed_bytes_with_text_and_padding_do_not_depend_on_workers(corpus, tmp_path):
    output = OutputConfig(compress="zstd", with_text=True, pad=True)
    for workers in (1, 3):
        make(corpus, tmp_path / f"w{workers}", output=output, run=RunConfig(workers=workers, batch_files=5 * workers))
    assert contents(tmp_path / "w1") == contents(tmp_path / "w3")


def test_fresh_tokens_join_to_the_text_of_each_file(built, corpus, codebert):
    texts: dict[str, bytes] = {}
    for _, row in all_rows(built[0]):
        content = row["input_ids"][1:-1]
        assert (row["input_ids"][0], row["input_ids"][-1]) == (0, 2)
        assert len(row["input_ids"]) <= 512
        texts[row["path"]] = texts.get(row["path"], b"") + codebert.decode(content[-row["fresh"] :])
    kept = [row for row in files_table(built[0]) if row["status"] == "kept"]
    assert set(texts) == {row["path"] for row in kept}
    assert any(row["cuts"] for row in kept)
    for row in kept:
        source = (corpus / row["path"]).read_bytes()
        text = source if row["encoding"] == "utf-8" else source.decode(row["encoding"]).encode()
        assert (texts[row["path"]] == text) == (not row["cut_tokens"])


def test_lines_match_the_text_of_the_window(built, corpus, codebert):
    checked = 0
    for _, row in all_rows(built[0])[::37]:
        source = (corpus / row["path"]).read_bytes()
        before = codebert.decode(codebert.encode(source).ids[: row["start"]])
        first = 1 + before.count(b"\n")
        window = codebert.decode(row["input_ids"][1:-2])
        assert row["lines"] == [first, first + window.count(b"\n")]
        checked += 1
    assert checked > 50


def test_rows_are_in_path_order_and_unique(built):
    for split in Split:
        keys = [(row["repo"], row["path"], row["start"]) for row in open_dataset(built[0])[split]]
        assert keys == sorted(set(keys))


def test_each_file_is_in_one_split_and_kept_and_dropped_files_add_up(built, corpus):
    out, manifest = built
    table = files_table(out)
    splits_of = {}
    for split, row in all_rows(out):
        splits_of.setdefault(row["path"], set()).add(split)
    kept = {row["path"]: row for row in table if row["status"] == "kept"}
    assert splits_of == {path: {row["split"]} for path, row in kept.items()}
    assert manifest.counts.found == len(table) == sum(path.is_file() for path in corpus.rglob("*"))
    assert manifest.counts.kept + manifest.counts.dropped == manifest.counts.found
    assert Counter(row["reason"] for row in table if row["reason"]) == manifest.counts.dropped_by_reason
    assert all(list(row) == list(table[0]) for row in table)
    assert [row["path"] for row in table] == sorted(row["path"] for row in table)


def test_manifest_matches_the_files(built):
    out, manifest = built
    assert read_manifest(out) == manifest
    assert set(manifest.files) | {"manifest.json", *CARDS} == set(os.listdir(out))
    for name, facts in manifest.files.items():
        content = (out / name).read_bytes()
        assert (facts.bytes, facts.sha256) == (len(content), hashlib.sha256(content).hexdigest())
        assert facts.rows is None or facts.rows == content.count(b"\n")
    kept = [row for row in files_table(out) if row["status"] == "kept"]
    for split, facts in manifest.splits.items():
        rows = list(open_dataset(out)[split])
        assert facts.windows == len(rows)
        assert facts.emitted_tokens == sum(len(row["input_ids"]) for row in rows)
        assert facts.tokens == sum(row["tokens"] - row["cut_tokens"] for row in kept if row["split"] == split)
        assert facts.tokens == sum(row["fresh"] for row in rows)
        assert all(list(row) == manifest.columns for row in rows)
    assert sum(sum(by_split.values()) for by_split in manifest.tokens_by_language.values()) == sum(
        row["tokens"] - row["cut_tokens"] for row in kept
    )
    phases = {"load", "scan", "prepare", "decide", "compare", "shape", "finish", "total"}
    assert phases == set(manifest.run.seconds)


def test_splits_have_the_requested_shares_before_cuts_and_actual_shares_are_recorded(built):
    before = built[1].decontamination.tokens_before
    shares = [num_tokens / sum(before.values()) for num_tokens in before.values()]
    assert shares == pytest.approx([0.85, 0.10, 0.05], abs=0.01)
    facts = built[1].splits.values()
    after = [one.tokens for one in facts]
    assert sum(after) < sum(before.values())
    assert [one.share for one in facts] == pytest.approx([num_tokens / sum(after) for num_tokens in after], abs=1e-6)


def test_dataset_contains_no_absolute_path(built, corpus):
    for path in built[0].iterdir():
        assert str(corpus.parent).encode() not in path.read_bytes()


def test_dropped_exact_duplicate_names_the_kept_file(tree, tmp_path):
    make(tree({"b/x.py": "same", "a.py": "other", "c.py": "same"}), tmp_path / "out")
    rows = {row["path"]: row for row in files_table(tmp_path / "out")}
    assert rows["c.py"]["reason"] == "exact_duplicate"
    assert rows["c.py"]["detail"] == "same text as repo/b/x.py"
    assert rows["b/x.py"]["status"] == "kept"


def test_rebuild_keeps_files_in_their_split(corpus, tmp_path):
    source = shutil.copytree(corpus, tmp_path / "stdlib")
    make(source, tmp_path / "out", split=SplitConfig(seed=3))
    before = {row["path"]: row["split"] for row in files_table(tmp_path / "out") if row["split"]}
    for path in sorted(source.rglob("*.py"))[::3]:
        path.write_text(path.read_text() + "\n# changed\n")
    for path in sorted(source.rglob("*.py"))[::7]:
        path.unlink()
    write_tree(source, {f"new/{index}.py": f"x = {index}\n" * index for index in range(1, 40)})
    manifest = make(source, tmp_path / "out")
    after = {row["path"]: row["split"] for row in files_table(tmp_path / "out") if row["split"]}
    survivors = set(before) & set(after)
    assert len(survivors) > 100
    assert all(after[path] == before[path] for path in survivors)
    kept = {row["path"] for row in files_table(tmp_path / "out") if row["status"] == "kept"}
    assert manifest.previous_splits.num_files_kept_in_place >= len(survivors & kept)
    fresh = make(source, tmp_path / "out", split=SplitConfig(fresh=True))
    assert fresh.previous_splits is None
    assert {row["path"]: row["split"] for row in files_table(tmp_path / "out") if row["split"]} != after


def test_previous_splits_can_come_from_a_different_folder(corpus, tmp_path):
    make(corpus, tmp_path / "one", split=SplitConfig(seed=8))
    digest = hashlib.sha256((tmp_path / "one/files.jsonl").read_bytes()).hexdigest()
    manifest = make(corpus, tmp_path / "two", split=SplitConfig(previous=str(tmp_path / "one/files.jsonl")))
    assert manifest.previous_splits.sha256 == digest
    assert (tmp_path / "one/files.jsonl").read_bytes() == (tmp_path / "two/files.jsonl").read_bytes()


def test_shares_that_contradict_previous_splits_give_a_warning(built, corpus, tmp_path):
    copy_with_work(built[0], tmp_path / "out")
    manifest = make(corpus, tmp_path / "out", split=SplitConfig(shares="60/20/20"))
    assert any("--fresh-splits" in warning for warning in manifest.warnings)


@pytest.mark.parametrize("overlap", [0, 128, 384])
@pytest.mark.parametrize("tail", ["keep", "shift", "drop"])
def test_windows_overlap_as_configured(corpus, tmp_path, overlap, tail):
    source = corpus / "logging"
    manifest = make(source, tmp_path / "out", window=WindowConfig(overlap=overlap, tail=tail), **UNCUT)
    by_path = {}
    for _, row in all_rows(tmp_path / "out"):
        by_path.setdefault(row["path"], []).append(row)
    tokens = {row["path"]: row["tokens"] for row in files_table(tmp_path / "out") if row["status"] == "kept"}
    num_covered = 0
    for path, rows in by_path.items():
        ends = [row["start"] + len(row["input_ids"]) - 2 for row in rows]
        shared = [end - row["start"] for end, row in zip(ends, rows[1:], strict=False)]
        assert set(shared[:-1]) <= {overlap}
        assert tail == "shift" or set(shared) <= {overlap}
        assert ends[-1] <= tokens[path]
        num_covered += ends[-1]
    assert num_covered + manifest.counts.tail_tokens_dropped == sum(tokens.values())
    assert tail == "drop" or manifest.counts.tail_tokens_dropped == 0


def test_padded_rows_have_a_mask_and_the_text(corpus, tmp_path):
    source = corpus / "json"
    output, window = OutputConfig(pad=True, with_text=True), WindowConfig(overlap=0)
    make(source, tmp_path / "out", output=output, window=window, **UNCUT)
    texts = {}
    for _, row in all_rows(tmp_path / "out"):
        assert len(row["input_ids"]) == len(row["attention_mask"]) == 512
        real = sum(row["attention_mask"])
        assert row["input_ids"][real - 1] == 2
        assert set(row["input_ids"][real:]) <= {1}
        texts[row["path"]] = texts.get(row["path"], "") + row["text"]
    assert texts == {path.name: path.read_text() for path in source.glob("*.py")}


def test_large_split_is_written_in_shards(built, corpus, tmp_path):
    make(corpus, tmp_path / "many", output=OutputConfig(shard_bytes=9_000_000))
    shards = sorted(path.name for path in (tmp_path / "many").glob("train-*"))
    assert shards[0] == f"train-00000-of-{len(shards):05d}.jsonl"
    assert len(shards) > 1
    joined = b"".join((tmp_path / "many" / name).read_bytes() for name in shards)
    assert joined == (built[0] / "train.jsonl").read_bytes()
    assert list(open_dataset(tmp_path / "many")["train"]) == list(open_dataset(built[0])["train"])


def test_several_sources_are_recorded_by_name(corpus, tmp_path):
    sources = [str(corpus / "json"), str(corpus / "logging"), str(corpus / "xml/__init__.py")]
    manifest = build(Config(sources=sources, out=str(tmp_path / "out")))
    assert [source.repo for source in manifest.sources] == ["json", "logging", "xml"]
    assert {row["repo"] for row in files_table(tmp_path / "out")} == {"json", "logging", "xml"}


def test_git_commit_is_recorded(tree, tmp_path):
    root = tree({"a.py": "x"})
    git(root, "init", "-q")
    git(root, "add", ".")
    git(root, "commit", "-qm", "c")
    assert make(root, tmp_path / "out").sources[0].commit == git(root, "rev-parse", "HEAD").decode().strip()


def test_output_inside_the_source_is_not_scanned(tree):
    root = tree({"a.py": "x"})
    for _ in range(2):
        manifest = make(root, root / "dataset")
        assert manifest.counts.found == 1


def test_unusual_file_names_are_preserved(tree, tmp_path):
    names = ["a b.py", "new\nline.py", "\x1b[31m.py", "n" * 252 + ".py", 'quo"te\\.py']
    root = tree({name: name for name in names})
    (root / os.fsdecode(b"caf\xe9.py")).write_text("latin name")
    make(root, tmp_path / "out")
    paths = {row["path"] for _, row in all_rows(tmp_path / "out")}
    assert paths == {*names[:-1], 'quo"te\\\\.py', r"caf\xe9.py"}


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "there are no files"),
        ({"a.bin": b"\0", "b.bin": b"\1\0"}, "no usable file in.*2 files found, none kept \\(2 binary: .*a.bin"),
        ({".gitignore": "*", "x.py": "x"}, "there are no files"),
    ],
)
def test_build_without_usable_files_fails_and_gives_the_reason(tree, tmp_path, files, message):
    with pytest.raises(InputError, match=message):
        make(tree(files), tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert not (tmp_path / "out.work").exists()


def test_too_few_files_for_three_splits_give_a_warning(tree, tmp_path):
    manifest = make(tree({"a.py": "x"}), tmp_path / "out")
    assert any("of the tokens: there are too few files (1 file)" in warning for warning in manifest.warnings)
    assert not (tmp_path / "out/validation.jsonl").exists()
    assert len(open_dataset(tmp_path / "out")["validation"]) == 0


@pytest.mark.parametrize("text", [made.word_piece(), made.unigram(), made.sentence_piece_bpe(), made.byte_level()])
@pytest.mark.parametrize("workers", [1, 2])
def test_rows_of_other_tokenizers_match_the_reference(corpus, tmp_path, text, workers):
    from tokenizers import Tokenizer

    (tmp_path / "tokenizer.json").write_text(text)
    tokenizer = TokenizerConfig(name=str(tmp_path / "tokenizer.json"))
    source = corpus / "json"
    manifest = make(
        source, tmp_path / "out", tokenizer=tokenizer, output=OutputConfig(with_text=True),
        window=WindowConfig(overlap=0), run=RunConfig(workers=workers, batch_files=2), preset="mlm", **UNCUT,
    )  # fmt: skip
    reference = Tokenizer.from_str(text)
    texts = {}
    for _, row in all_rows(tmp_path / "out"):
        ids = row["input_ids"]
        ends = len(manifest.tokenizer.prefix), len(ids) - len(manifest.tokenizer.suffix)
        assert (tuple(ids[: ends[0]]), tuple(ids[ends[1] :])) == (manifest.tokenizer.prefix, manifest.tokenizer.suffix)
        texts.setdefault(row["path"], []).append((ids[ends[0] : ends[1]], row["text"]))
    for path in source.glob("*.py"):
        content = path.read_text()
        assert "".join(text for _, text in texts[path.name]) == content
        ids = [index for part, _ in texts[path.name] for index in part]
        assert ids == reference.encode(content, add_special_tokens=False).ids


def test_control_tokens_in_source_are_encoded_as_text(tree, tmp_path, codebert):
    text = "x = '</s><mask><s>'  # <pad> <|endoftext|>\n"
    make(tree({"a.py": text}), tmp_path / "out")
    (_, row), *_ = all_rows(tmp_path / "out")
    assert not codebert.definition.control_ids.intersection(row["input_ids"][1:-1])
    assert codebert.decode(row["input_ids"][1:-1]) == text.encode()


def test_load_dataset_reads_all_splits(built, tmp_path, monkeypatch):
    import datasets

    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    datasets.disable_progress_bars()
    loaded = datasets.load_dataset(str(built[0]), cache_dir=str(tmp_path))
    dataset = open_dataset(built[0])
    assert set(loaded) == set(dataset)
    for split in dataset:
        assert len(loaded[split]) == len(dataset[split])
        assert loaded[split][3] == dataset[split][3]


def test_load_dataset_reads_compressed_files(corpus, tmp_path):
    import datasets

    make(corpus / "json", tmp_path / "out", output=OutputConfig(compress="zstd"))
    loaded = datasets.load_dataset(str(tmp_path / "out"), cache_dir=str(tmp_path / "cache"))
    assert loaded["train"][0] == open_dataset(tmp_path / "out")["train"][0]


def test_auto_tokenizer_loads_from_the_dataset(built, corpus):
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(str(built[0]))
    row = open_dataset(built[0])["train"][0]
    text = (corpus / row["path"]).read_text()
    ids = tokenizer(text, truncation=True, max_length=512)["input_ids"]
    assert ids == row["input_ids"]
    assert (tokenizer.pad_token_id, tokenizer.mask_token_id, tokenizer.model_max_length) == (1, 50264, 512)


@pytest.mark.parametrize("text", [made.word_piece(), made.unigram(), made.byte_level()])
def test_auto_tokenizer_loads_other_tokenizers_from_the_dataset(corpus, tmp_path, text):
    from transformers import AutoTokenizer

    (tmp_path / "tokenizer.json").write_text(text)
    window = WindowConfig(pack="none")
    make(corpus / "json", tmp_path / "out", tokenizer=TokenizerConfig(name=str(tmp_path)), window=window)
    row = open_dataset(tmp_path / "out")["train"][0]
    source = (corpus / "json" / row["path"]).read_text()
    ids = AutoTokenizer.from_pretrained(str(tmp_path / "out"))(source)["input_ids"]
    assert ids[:100] == row["input_ids"][:100]


TREES = st.dictionaries(
    st.sampled_from([f"{folder}{name}" for folder in ("", "a/", "a/b/") for name in ("x.py", "y.rs", "z", "w.png")]),
    st.text(max_size=400).map(str.encode) | st.binary(max_size=40),
    min_size=1,
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(TREES, st.sampled_from([(8, 0), (8, 3), (16, 13)]), st.sampled_from(["keep", "shift", "drop"]))
def test_files_of_any_tree_are_dropped_or_restored_from_rows(tmp_path_factory, codebert, files, shape, tail):
    root = write_tree(tmp_path_factory.mktemp("any") / "repo", files)
    out = root.parent / "out"
    window = WindowConfig(length=shape[0], overlap=shape[1], tail=tail)
    try:
        manifest = make(root, out, window=window, run=RunConfig(workers=1))
    except InputError:
        return
    table = {row["path"]: row for row in files_table(out)}
    assert set(table) == set(files)
    assert manifest.counts.kept + manifest.counts.dropped == len(files)
    joined = {}
    for _, row in all_rows(out):
        content = row["input_ids"][1:-1]
        joined[row["path"]] = joined.get(row["path"], []) + content[len(content) - row["fresh"] :]
    for path, ids in joined.items():
        encoding = table[path]["encoding"]
        mark = {"utf-16-le": b"\xff\xfe", "utf-16-be": b"\xfe\xff"}.get(encoding, b"")
        text = files[path][len(mark) :].decode(encoding).encode()
        restored = codebert.decode(ids)
        assert text.startswith(restored)
        assert tail == "drop" or restored == text


def mount_small_disk(folder: Path, megabytes: int) -> None:
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounting a small disk needs root")


@pytest.fixture(scope="module")
def uninterrupted(corpus, tmp_path_factory):
    """Return a function that returns the contents of an uninterrupted build with a given compression."""

    @cache
    def built(compress):
        out = tmp_path_factory.mktemp("uninterrupted") / "out"
        make(corpus, out, output=OutputConfig(compress=compress), run=RunConfig(workers=1, batch_bytes=200_000))
        return contents(out)

    return built


@pytest.mark.parametrize(
    "case",
    [(1, "none", 1), (3, "none", 2), (3, "zstd", 1), (12, "none", 1), (12, "none", 2), (12, "zstd", 2)],
    ids=str,
)
def test_build_on_a_full_disk_fails_and_can_be_resumed(corpus, tmp_path, uninterrupted, case):
    """1 MB is too small for the tokenizer, 3 MB for the ids and 12 MB for uncompressed rows."""
    megabytes, compress, workers = case
    disk = tmp_path / "disk"
    mount_small_disk(disk, megabytes)
    try:
        sections = {"output": OutputConfig(compress=compress), "run": RunConfig(workers=workers, batch_bytes=200_000)}
        if megabytes == 12 and compress == "zstd":
            make(corpus, disk / "out", **sections)
            return
        with pytest.raises(OutputError, match=r"space|MB are free"):
            make(corpus, disk / "out", **sections)
        assert not (disk / "out").exists()
        # Completed work is kept. With more space, the same command resumes the build and gives the expected dataset.
        subprocess.run(["mount", "-o", "remount,size=40m", str(disk)], check=True)
        make(corpus, disk / "out", **sections)
        assert contents(disk / "out") == uninterrupted(compress)
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_full_disk_leaves_the_earlier_dataset_unchanged(corpus, tmp_path):
    disk = tmp_path / "disk"
    mount_small_disk(disk, 14)
    try:
        make(corpus / "json", disk / "out")
        before = contents(disk / "out")
        with pytest.raises(OutputError):
            make(corpus, disk / "out")
        assert contents(disk / "out") == before
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_file_deleted_after_the_scan_is_recorded_as_vanished(corpus, tmp_path, monkeypatch):
    from gristmill.pipeline import inputs

    source = shutil.copytree(corpus / "json", tmp_path / "json")

    def scan_then_remove(*arguments, **options):
        files = list(plain_scan(*arguments, **options))
        (source / "tool.py").unlink()
        return iter(files)

    plain_scan = inputs.iter_files
    monkeypatch.setattr(inputs, "iter_files", scan_then_remove)
    manifest = make(source, tmp_path / "out")
    assert manifest.counts.dropped_by_reason == {DropReason.VANISHED: 1}


def test_first_files_are_prepared_during_the_scan(tmp_path, monkeypatch):
    """The scan yields its last file only after the build has written a part: the prepared files of one batch."""
    from gristmill.pipeline import inputs

    def waiting_scan(*arguments, **options):
        *first, last = plain_scan(*arguments, **options)
        yield from first
        deadline = time.monotonic() + 60
        while not list((tmp_path / "out.work").rglob("*.part")):
            assert time.monotonic() < deadline
            time.sleep(0.005)
        yield last

    write_tree(tmp_path / "repo", {f"{name}.py": f"{name} = '{name}'\n" * 9 for name in "abcdefghijkl"})
    scanned_first = make(tmp_path / "repo", tmp_path / "at-once", run=RunConfig(batch_files=2))
    plain_scan = inputs.iter_files
    monkeypatch.setattr(inputs, "iter_files", waiting_scan)
    manifest = make(tmp_path / "repo", tmp_path / "out", run=RunConfig(batch_files=2, workers=2))
    assert manifest.content_sha256 == scanned_first.content_sha256


def test_language_include_and_exclude_settings_select_files(corpus, tmp_path):
    manifest = make(
        corpus, tmp_path / "out", scan=ScanConfig(languages=["python"], include=["json/**"], exclude=["tool.py"])
    )
    assert manifest.counts.kept == 4
    assert manifest.counts.dropped_by_reason[DropReason.EXCLUDED_BY_USER] == 1


def run_main(words, errors):
    with errors.open("w") as stream:
        os.dup2(stream.fileno(), 2)
    sys.argv = ["gristmill", *map(str, words)]
    with default_signals():
        main.main()


def interrupt(process, kind, work, pattern, min_files):
    """Send a signal once at least `min_files` files in `work` match `pattern`. Return the exit code of the process.

    If the process ends earlier, no signal is sent.
    """
    deadline = time.monotonic() + 60
    while process.exitcode is None and len(list(work.glob(pattern))) < min_files:
        assert time.monotonic() < deadline
        time.sleep(0.005)
    with suppress(ProcessLookupError):
        os.kill(process.pid, kind)
    process.join(60)
    return process.exitcode


@pytest.mark.parametrize("kind", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_build_leaves_no_partial_output(corpus, tmp_path, kind):
    """An interrupted build exits with 130 and prints no traceback. The next build gives the expected dataset."""
    source, out, errors = corpus / "email", tmp_path / "out", tmp_path / "errors"
    work = work_folder_of(out)
    words = ("build", source, "--out", out, "--workers", 2, "--batch-bytes", 1)
    codes = []
    for pattern, min_files in (
        *(("lock", 1), ("prepared/*.part", 1), ("prepared/*.part", 5), ("prepared/*.part", 12)),
        *(("dataset/*", 1), ("dataset/*.jsonl", 1)),
    ):
        shutil.rmtree(work, ignore_errors=True)  # a build that reuses parts might end before the signal
        with started(run_main, words, errors) as process:
            codes.append(interrupt(process, kind, work, pattern, min_files))
        if codes[-1] == 0:
            assert (out / "manifest.json").is_file()
        else:
            assert codes[-1] == 130
            last = errors.read_text().strip().splitlines()[-1]
            assert last == "gristmill: interrupted. No incomplete output was left behind."
            assert "Traceback" not in errors.read_text()
        if out.exists():
            assert sum(len(rows) for rows in open_dataset(out).values()) > 0
            shutil.rmtree(out)
    assert 130 in codes
    make(source, out)
    make(source, tmp_path / "uninterrupted")
    assert contents(out) == contents(tmp_path / "uninterrupted")


@pytest.mark.parametrize("kind", [signal.SIGINT, signal.SIGTERM])
def test_build_interrupted_during_imports_leaves_no_output(corpus, tmp_path, kind):
    for delay in (0.05, 0.3):
        with running(command("build", corpus, "--out", tmp_path / "out"), stderr=subprocess.PIPE, text=True) as process:
            time.sleep(delay)
            process.send_signal(kind)
            _, errors = process.communicate(timeout=60)
        if process.returncode == 1 and "<frozen site>" in errors:
            continue  # the signal arrived while Python was starting, and Python reported it
        # Before Python runs the first line of gristmill, a signal ends the interpreter.
        assert process.returncode in {0, 130, -kind}
        assert process.returncode != 130 or "Traceback" not in errors
        assert process.returncode == 0 or not (tmp_path / "out").exists()


def test_manifest_is_json_with_complete_settings(built):
    manifest = json.loads((built[0] / "manifest.json").read_bytes())
    assert manifest["settings"]["window"] == {
        "length": 512,
        "overlap": 256,
        "tail": "keep",
        "min_fresh": 32,
        "pack": "none",
        "repo_order": "path",
        "repo_order_seed": 0,
        "special_tokens": "template",
        "end_token": None,
    }
    assert manifest["settings"]["preset"] == "mlm"
    assert len(manifest["fingerprint"]) == 64
    assert msgspec.json.encode(built[1])


def test_rebuild_with_a_different_tokenizer_replaces_all_rows(corpus, tmp_path):
    from tokenizers import Tokenizer

    make(corpus / "json", tmp_path / "out")
    (tmp_path / "tokenizer.json").write_text(made.byte_level())
    make(corpus / "json", tmp_path / "out", preset="mlm", tokenizer=TokenizerConfig(name=str(tmp_path)))
    dataset = open_dataset(tmp_path / "out")
    row = dataset["train"][0]
    text = (corpus / "json" / row["path"]).read_text()
    assert row["input_ids"] == Tokenizer.from_str(made.byte_level()).encode(text).ids[: len(row["input_ids"])]
    assert (
        dataset.tokenizer.decode(row["input_ids"]) == text.encode()[: len(dataset.tokenizer.decode(row["input_ids"]))]
    )


def test_newlines_without_tokens_count_in_line_numbers(tree, tmp_path):
    (tmp_path / "tokenizer.json").write_text(made.word_piece())
    source = tree({"a.py": "\n\n\ndef x\n\ny\n"})
    make(source, tmp_path / "out", tokenizer=TokenizerConfig(name=str(tmp_path)))
    assert all_rows(tmp_path / "out")[0][1]["lines"] == [4, 6]


def test_progress_shared_by_two_builds_times_each_build_separately(tree, tmp_path):
    progress = Progress()
    source = tree({"a.py": "x"})
    for name in ("one", "two"):
        manifest = build(Config(sources=[str(source)], out=str(tmp_path / name)), progress)
        phases = {phase: value for phase, value in manifest.run.seconds.items() if phase != "total"}
        assert sum(phases.values()) <= manifest.run.seconds["total"] + 0.01
