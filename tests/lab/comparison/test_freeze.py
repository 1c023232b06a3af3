"""The frozen test set: its contents, and its separation from every train split."""

import hashlib
import json
import random
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gristmill import (
    ConfigError,
    DatasetError,
    OutputConfig,
    Progress,
    SplitConfig,
    TokenizerConfig,
    VariantsConfig,
    WindowConfig,
    open_dataset,
)
from gristmill.dataset.row_windows import TextKey
from gristmill.lab.comparison.freeze import freeze
from gristmill.lab.comparison.frozen import Frozen
from gristmill.lab.comparison.train_scan import FrozenGrams, TrainScan
from support.builds import files_table, make
from support.foreign_datasets import made_foreign
from support.short_trainings import causal_dataset
from support.source_trees import write_tree
from support.trained_tokenizers import byte_level

ALL_TRAIN, ALL_TEST = SplitConfig(shares="100/0/0"), SplitConfig(shares="0/0/100")
SPAN = 50


def frozen_of(*folders: Path, test: Path | None = None, min_tokens: int = 1) -> Frozen:
    datasets = [open_dataset(folder) for folder in folders]
    return freeze(datasets, None if test is None else open_dataset(test), Progress(), min_tokens=min_tokens)


def words(count: int, seed: int) -> list[str]:
    chance = random.Random(seed)
    return [f"{chance.choice('abcdefgh')}{chance.randrange(1000)}" for _ in range(count)]


def lines(some: list[str]) -> str:
    return "".join(f"{' '.join(some[at : at + 8])}\n" for at in range(0, len(some), 8))


def grams(ids) -> list[bytes]:
    content = np.ascontiguousarray(ids, np.uint32).tobytes()
    return [content[at : at + 4 * SPAN] for at in range(0, len(content) - 4 * (SPAN - 1), 4)]


def as_shuffled_rows(folder: Path, to: Path) -> Path:
    """Copy a dataset as rows that gristmill did not build: shuffled, without `fresh` and files.jsonl."""
    shutil.copytree(folder, to)
    made_foreign(to)
    for path in to.glob("*.jsonl"):
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        random.Random(1).shuffle(rows)
        path.write_text(
            "".join(json.dumps({name: value for name, value in row.items() if name != "fresh"}) + "\n" for row in rows)
        )
    return to


@pytest.fixture(scope="module")
def source(corpus):
    return corpus / "asyncio"


@pytest.fixture(scope="module")
def seeds(tmp_path_factory, source):
    """Build two datasets of the same files with different splits. The windows of the second dataset do not overlap."""
    folder = tmp_path_factory.mktemp("seeds")
    make(source, folder / "one", split=SplitConfig(shares="60/20/20"))
    make(source, folder / "two", split=SplitConfig(shares="60/20/20", seed=7), window=WindowConfig(overlap=0))
    return folder / "one", folder / "two"


@pytest.fixture(scope="module")
def frozen(seeds):
    return frozen_of(*seeds)


def slow_shared(frozen: list[int], train: list[list[int]]) -> list[bool]:
    """Return whether each frozen token is in a range of joined 50-grams of train with 8 or more distinct ids."""
    train_grams = {tuple(text[at : at + SPAN]) for text in train for at in range(len(text) - SPAN + 1)}
    starts = [at for at in range(len(frozen) - SPAN + 1) if tuple(frozen[at : at + SPAN]) in train_grams]
    ranges: list[list[int]] = []
    for start in starts:
        if ranges and start <= ranges[-1][1]:
            ranges[-1][1] = start + SPAN
        else:
            ranges.append([start, start + SPAN])
    kept = [(start, end) for start, end in ranges if len(set(frozen[start:end])) >= 8]
    return [any(start <= at < end for start, end in kept) for at in range(len(frozen))]


@st.composite
def frozen_and_train(draw):
    """Generate frozen and train texts from common pieces: long and short, with many and few distinct ids."""
    piece = st.tuples(
        st.integers(0, 200), st.sampled_from([1, 20, 49, 50, 51, 70, 120]), st.sampled_from([2, 7, 8, 500])
    )
    texts = [
        [(start + at) % vocabulary for at in range(length)]
        for start, length, vocabulary in draw(st.lists(piece, min_size=1, max_size=8))
    ]
    order = st.lists(st.sampled_from(range(len(texts))), max_size=5)
    sides = draw(st.lists(order, min_size=1, max_size=3)), draw(st.lists(order, max_size=3))
    return tuple([[one for number in text for one in texts[number]] for text in side] for side in sides)


@given(frozen_and_train())
def test_shared_tokens_match_a_set_of_50_grams(sides):
    frozen, train = sides
    index = FrozenGrams([np.array(text, np.uint32) for text in frozen])
    found = index.find_shared(np.array(text, np.uint32) for text in train)
    assert [flags.tolist() for flags in found] == [slow_shared(text, train) for text in frozen]


def test_no_frozen_50_gram_is_in_any_train_split(frozen, seeds, source, codebert):
    """The test searches complete source files, and so finds 50-grams that span two windows."""
    found = {}
    for window in frozen.windows:
        content = window.input_ids[1:-1]
        found |= {gram: content[at : at + SPAN] for at, gram in enumerate(grams(content))}
    assert len(found) > 10_000
    for folder in seeds:
        for row in files_table(folder).values():
            if row["split"] == "train" and row["status"] == "kept":
                ids = codebert.encode((source / row["path"]).read_bytes()).ids
                shared = [found[gram] for gram in grams(ids) if gram in found]
                assert all(len(set(gram.tolist())) < 8 for gram in shared), row["path"]


def test_frozen_files_are_held_out_by_all_datasets(frozen, seeds):
    tables = [files_table(folder).values() for folder in seeds]
    held_out = [{row["path"] for row in rows if row["split"] in {"validation", "test"}} for rows in tables]
    files = {window.path for window in frozen.windows}
    assert files <= held_out[0] & held_out[1]
    assert files
    assert frozen.facts.files == len(files)


def test_order_of_the_datasets_does_not_matter(frozen, seeds):
    back = frozen_of(*reversed(seeds))
    assert frozen.facts.sha256 == back.facts.sha256
    assert frozen.facts.against == tuple(reversed(back.facts.against))


def test_each_token_is_fresh_once_and_windows_have_special_tokens(frozen):
    positions = [
        (window.path, window.start + len(window.input_ids) - 2 - 1 - back)
        for window in frozen.windows
        for back in range(window.fresh)
    ]
    assert len(set(positions)) == len(positions) == frozen.facts.tokens
    assert frozen.facts.tokens <= frozen.facts.tokens_before
    assert {(window.input_ids[0], window.input_ids[-1]) for window in frozen.windows} == {(0, 2)}
    assert max(len(window.input_ids) for window in frozen.windows) == frozen.facts.window_length == 512
    assert all(len(frozen.fresh_ids(window)) == window.fresh for window in frozen.windows)


def test_written_test_set_is_read_back(frozen, tmp_path):
    frozen.write(tmp_path)
    again = Frozen.read(tmp_path)
    assert again.facts == frozen.facts
    assert again.facts.sha256 == hashlib.sha256((tmp_path / "test.jsonl").read_bytes()).hexdigest()
    for one, other in zip(frozen.windows, again.windows, strict=True):
        assert one[:4] == other[:4]
        assert one.input_ids.tolist() == other.input_ids.tolist()
    (tmp_path / "test.jsonl").write_bytes((tmp_path / "test.jsonl").read_bytes()[:-2] + b"\n\n")
    with pytest.raises(DatasetError, match=r"does not match the digest in test\.json"):
        Frozen.read(tmp_path)


@pytest.mark.parametrize("is_shuffled", [False, True])
def test_span_across_two_train_windows_is_removed(tmp_path, codebert, is_shuffled):
    text = lines(words(1200, 1))
    ids = codebert.encode(text.encode()).ids
    across = codebert.decode(ids[510 - 40 : 510 + 40]).decode()  # 40 tokens on each side of the end of the first window
    make(
        write_tree(tmp_path / "src", {"a.py": text}),
        tmp_path / "train",
        split=ALL_TRAIN,
        window=WindowConfig(overlap=0),
    )
    other = lines(words(400, 2))
    make(write_tree(tmp_path / "else", {"b.py": f"{other}{across}\n{other[::-1]}"}), tmp_path / "test", split=ALL_TEST)
    train = as_shuffled_rows(tmp_path / "train", tmp_path / "shuffled") if is_shuffled else tmp_path / "train"
    frozen = frozen_of(train, test=tmp_path / "test")
    frozen_text = b"".join(codebert.decode(frozen.fresh_ids(window)) for window in frozen.windows).decode()
    assert across[8:-8] not in frozen_text
    assert other[:-20] in frozen_text
    (against,) = frozen.facts.against
    assert 75 <= against.span_tokens <= 82
    assert frozen.facts.tokens == frozen.facts.tokens_before - against.span_tokens


@pytest.mark.parametrize("window", [WindowConfig(), WindowConfig(pack="best-fit")], ids=["plain", "packed"])
def test_near_duplicate_of_a_train_file_is_removed(tmp_path, window):
    """Every 20th word is different, so no 50 consecutive tokens are shared, but most 5-grams are.

    With packing, the last window of the train file shares a row with other files.
    """
    text, other = words(1000, 1), words(1000, 2)
    near_duplicate = [other[at] if at % 20 == 10 else word for at, word in enumerate(text)]
    files = {"a.py": lines(text), **{f"b{number}.py": lines(words(150, number)) for number in range(3, 9)}}
    make(write_tree(tmp_path / "src", files), tmp_path / "train", split=ALL_TRAIN, window=window)
    files = {"similar.py": lines(near_duplicate), "own.py": lines(other)}
    make(write_tree(tmp_path / "else", files), tmp_path / "test", split=ALL_TEST)
    frozen = frozen_of(tmp_path / "train", test=tmp_path / "test")
    assert {window.path for window in frozen.windows} == {"own.py"}
    (against,) = frozen.facts.against
    assert (against.near_duplicate_files, against.span_tokens) == (1, 0)


def test_files_with_different_text_are_not_the_same(tmp_path):
    source = write_tree(tmp_path / "src", {"a.py": lines(words(300, 1)), "b.py": lines(words(300, 2))})
    make(source, tmp_path / "one", split=ALL_TEST)
    (source / "b.py").write_text(lines(words(300, 3)))
    make(source, tmp_path / "two", split=ALL_TEST)
    assert {window.path for window in frozen_of(tmp_path / "one", tmp_path / "two").windows} == {"a.py"}
    shuffled = as_shuffled_rows(tmp_path / "two", tmp_path / "three")
    assert {window.path for window in frozen_of(tmp_path / "one", shuffled).windows} == {"a.py"}


def test_file_that_has_grown_is_not_the_same(tmp_path):
    """The new file begins with the old text, so the rows agree where they overlap, but the digests of the texts differ."""
    source = write_tree(tmp_path / "src", {"a.py": lines(words(300, 1)), "b.py": lines(words(300, 2))})
    make(source, tmp_path / "one", split=ALL_TEST)
    (source / "b.py").write_text(lines(words(300, 2)) + lines(words(80, 3)))
    make(source, tmp_path / "two", split=ALL_TEST)
    assert {window.path for window in frozen_of(tmp_path / "one", tmp_path / "two").windows} == {"a.py"}


def test_without_files_table_a_file_with_a_train_row_is_not_held_out(seeds, tmp_path):
    shuffled = as_shuffled_rows(seeds[0], tmp_path / "shuffled")
    before = {window.path for window in frozen_of(shuffled).windows}
    assert before == {window.path for window in frozen_of(seeds[0]).windows}
    moved, *rest = (shuffled / "test.jsonl").read_text().splitlines(keepends=True)
    with (shuffled / "train.jsonl").open("a") as train:
        train.write(moved)
    (shuffled / "test.jsonl").write_text("".join(rest))
    manifest = json.loads((shuffled / "manifest.json").read_text())
    manifest["files"]["test.jsonl"]["rows"] -= 1
    manifest["files"]["train.jsonl"]["rows"] += 1
    (shuffled / "manifest.json").write_text(json.dumps(manifest))
    assert before - {window.path for window in frozen_of(shuffled).windows} == {json.loads(moved)["path"]}


def test_output_format_does_not_change_the_test_set(tmp_path, source, seeds):
    output = OutputConfig(pad=True, compress="zstd", with_text=True)
    make(source, tmp_path / "padded", split=SplitConfig(shares="60/20/20"), output=output)
    plain, padded = frozen_of(seeds[0]).facts, frozen_of(tmp_path / "padded").facts
    assert padded.sha256 == plain.sha256
    assert padded.against[0].ids == plain.against[0].ids


def test_packed_rows_give_the_same_test_set(tmp_path, source, seeds):
    packed = tmp_path / "packed"
    make(source, packed, split=SplitConfig(shares="60/20/20"), window=WindowConfig(pack="best-fit"))
    plain, facts = frozen_of(seeds[0]).facts, frozen_of(packed).facts
    assert facts.sha256 == plain.sha256
    assert facts.tokens == plain.tokens
    for name in ("span_tokens", "near_duplicate_files"):
        assert getattr(facts.against[0], name) == getattr(plain.against[0], name)
    rows = open_dataset(packed)["train"]
    assert (facts.against[0].windows, facts.against[0].ids) == (len(rows), sum(len(row["input_ids"]) for row in rows))
    # Both datasets contain the same complete documents.
    texts = [
        {text: span.ids.tolist() for text, span in TrainScan(open_dataset(one), lambda _: None)._spans()}
        for one in (seeds[0], packed)
    ]
    assert texts[0] == texts[1]


@pytest.mark.parametrize("pack", ["none", "best-fit", "repo"])
def test_fill_in_the_middle_is_compared_in_original_order(tmp_path, pack):
    """Train rows contain the parts of a file in a different order, but are compared in the original order."""
    window = WindowConfig(length=64, pack=pack, overlap=0)
    plain, rewritten = (causal_dataset(tmp_path, window, fim=rate) for rate in (0.0, 1.0))
    assert any(one.window.fim for one in TrainScan(open_dataset(rewritten), lambda _: None)._windows())
    texts = [
        {(text, span.start): span.ids.tolist() for text, span in TrainScan(open_dataset(one), lambda _: None)._spans()}
        for one in (plain, rewritten)
    ]
    assert texts[0] == texts[1]


def windows_of(folder):
    return [(one.window.text_key, one.span) for one in TrainScan(open_dataset(folder), lambda _: None)._windows()]


def test_labels_of_noisy_windows_count_as_train_text(tmp_path, corpus):
    variants = VariantsConfig(rates={"noise": 1.0})
    make(corpus / "json", tmp_path / "noisy", split=ALL_TRAIN, variants=variants)
    windows = windows_of(tmp_path / "noisy")
    noisy = [number for number, (text, _) in enumerate(windows) if text.variant == "noise"]
    assert noisy
    clean = {number + 1 for number in noisy}
    original = {
        (text, window.start): window.ids
        for number, (text, window) in enumerate(windows)
        if not text.variant and number not in clean
    }
    assert original
    for number in noisy:
        text, window = windows[number + 1]
        assert text == TextKey(*windows[number][0].file)
        assert window.ids.tolist() == original[text, window.start].tolist()
        assert window.ids.tolist() != windows[number][1].ids.tolist()


def test_train_spans_are_the_tokens_of_the_files(built, corpus, codebert):
    out, _ = built
    spans = list(TrainScan(open_dataset(out), lambda _: None)._spans())
    for text, span in spans:
        assert span.ids.tolist() == codebert.encode((corpus / text.path).read_bytes()).ids.tolist()
    assert len(spans) == len({text for text, _ in spans})


def test_different_special_tokens_are_rejected_with_the_option(tmp_path):
    source = write_tree(tmp_path / "src", {"a.py": lines(words(300, 1))})
    make(source, tmp_path / "one", split=ALL_TEST)
    make(source, tmp_path / "two", split=ALL_TEST, window=WindowConfig(special_tokens="documents"))
    with pytest.raises(ConfigError, match=r"same special tokens around a window .* --special-tokens or --preset"):
        frozen_of(tmp_path / "one", tmp_path / "two")


def test_different_tokenizer_is_rejected_in_one_line(tmp_path):
    source = write_tree(tmp_path / "src", {"a.py": lines(words(300, 1))})
    (tmp_path / "small.json").write_text(byte_level())
    make(source, tmp_path / "one", split=ALL_TEST)
    make(source, tmp_path / "two", split=ALL_TEST, tokenizer=TokenizerConfig(name=str(tmp_path / "small.json")))
    with pytest.raises(ConfigError, match="must have the same tokenizer") as rejected:
        frozen_of(tmp_path / "one", tmp_path / "two")
    message = str(rejected.value)
    assert "one' has 'codebert'" in message
    assert "two' has " in message
    assert "\n" not in message


def test_too_few_tokens_are_rejected_with_advice(seeds):
    with pytest.raises(ConfigError, match=r"has [\d,]+ tokens in \d+ files, but 100,000,000 are needed") as rejected:
        frozen_of(*seeds, min_tokens=100_000_000)
    assert "--test DATASET" in str(rejected.value)
    assert re.search(
        r"gristmill build OTHER-CODE --out held-out --split 0/0/100\. Or accept wide intervals with --min-test-tokens \d+$",
        str(rejected.value),
    )


def test_datasets_without_common_held_out_files_are_rejected(tmp_path):
    for name in ("one", "two"):
        make(write_tree(tmp_path / f"{name}-src", {"a.py": lines(words(300, 1))}), tmp_path / name, split=ALL_TEST)
    with pytest.raises(
        ConfigError, match="has 0 tokens in 0 files, but 1 are needed: the files held out by all datasets have 0 tokens"
    ):
        frozen_of(tmp_path / "one", tmp_path / "two")


@pytest.mark.parametrize(
    ("found", "planted"),
    [(b'"input_ids":[0,', b'"input_ids":[0,99999999,'), (b'"start":', b'"start":-'), (b'"path":', b'"path":7,"x":')],
)
def test_damaged_rows_are_reported(seeds, tmp_path, found, planted):
    shutil.copytree(seeds[0], tmp_path / "damaged")
    path = tmp_path / "damaged" / "train.jsonl"
    *others, last = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(others) + last.replace(found, planted, 1))
    with pytest.raises(DatasetError, match=r"row train:\d+ in '.*damaged' is damaged: .*"):
        frozen_of(tmp_path / "damaged")


def test_repeated_dataset_is_rejected(seeds):
    with pytest.raises(ConfigError, match="is given twice"):
        frozen_of(seeds[0], seeds[0])


def test_folders_with_the_same_name_get_unique_names(seeds, tmp_path):
    shutil.copytree(seeds[0], tmp_path / "other" / "one")
    names = [one.name for one in frozen_of(seeds[0], tmp_path / "other" / "one").facts.against]
    assert names == [f"{seeds[0].parent.name}/one", "other/one"]


def test_windows_are_numbered_by_file_in_file_order(frozen):
    by_file = dict.fromkeys([window.path for window in frozen.windows], 0)
    for window in frozen.windows:
        by_file[window.path] += len(frozen.fresh_ids(window))
    fresh = [window.fresh for window in frozen.windows]
    assert np.bincount(frozen.file_numbers(), weights=fresh).tolist() == list(by_file.values())
