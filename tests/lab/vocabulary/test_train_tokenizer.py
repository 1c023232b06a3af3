"""A trained tokenizer is learned only from train, is reproducible, and can be used in a build."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as Reference

import gristmill
from gristmill import Config, ConfigError, DatasetError, InputError, OutputError, SplitConfig, WindowConfig
from gristmill.cli import tokenizer as tokenizing
from gristmill.cli.main import run
from gristmill.core.records import Split
from gristmill.lab.vocabulary import learn
from gristmill.lab.vocabulary.learn import split_pieces
from gristmill.lab.vocabulary.tokenizer_files import MIN_SIZE, PATTERN_NAMES, SPECIAL_TOKENS, TEMPLATE_NAMES
from gristmill.lab.vocabulary.train_tokenizer import DEFAULT_SIZE
from gristmill.tokenizers.cuda.patterns import Pattern
from gristmill.tokenizers.gigatoken import FastTokenizer
from gristmill.tokenizers.huggingface import ReferenceTokenizer
from gristmill.tokenizers.locate import locate
from gristmill.tokenizers.sentinels import fim_ids, mask_id
from gristmill.windows.cut import WindowShape, cut
from support.late_imports import late
from support.source_trees import write_tree
from support.trained_tokenizers import word_piece

(AutoTokenizer,) = late("transformers", "AutoTokenizer")
SECRET = "AKIA" + "QYLPMN5HHHFPZAM2"
SIZE = 3000


def word(*seed, length=6):
    digest = hashlib.sha256(repr(seed).encode()).digest()
    return "".join(chr(97 + byte % 26) for byte in digest[:length])


UNIQUE_WORDS = [word("own", number, length=24) for number in range(40)]


def digests(folder):
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


def splits_of(folder):
    rows = map(json.loads, (folder / "files.jsonl").read_text().splitlines())
    return {(row["repo"], row["path"]): row["split"] for row in rows if row["status"] == "kept"}


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """Forty modules with unique words, so that there are no duplicates and no shared spans."""
    files = {}
    for number in range(40):
        lines = [f"    value_{number}_{line} = {word(number, line)}(total, {line})" for line in range(60)]
        unique_word = UNIQUE_WORDS[number]
        lines.append(f"    {unique_word} = {unique_word} + {unique_word}  # {unique_word}")
        files[f"m{number:02}.py"] = f"def function_{number}(total):\n" + "\n".join(lines) + "\n    return total\n"
    files["m03.py"] += f'KEY = "{SECRET}"\n' * 5
    return write_tree(tmp_path_factory.mktemp("vocabulary") / "repo", files)


@pytest.fixture(scope="module")
def trained(tmp_path_factory, source):
    out = tmp_path_factory.mktemp("trained") / "tok"
    return out, gristmill.train_tokenizer(Config(sources=[str(source)], out=str(out)), SIZE)


def token_texts(out):
    """Return the text of every token."""
    engine = FastTokenizer.load(locate(str(out)))
    return [engine.decode([index]) for index in range(engine.vocab_size)]


def test_special_tokens_have_fixed_ids_and_roles(trained):
    out, vocabulary = trained
    definition = locate(str(out))
    assert [definition.id_of(token) for token in SPECIAL_TOKENS] == list(range(len(SPECIAL_TOKENS)))
    assert (mask_id(definition), tuple(fim_ids(definition)), definition.pad_id, definition.end_id) == (
        3,
        (4, 5, 6),
        1,
        2,
    )
    assert (definition.template.prefix, definition.template.suffix) == ((0,), (2,))
    assert vocabulary.special_tokens == {token: index for index, token in enumerate(SPECIAL_TOKENS)}
    assert Pattern.of(definition).name == "cl100k"  # the GPU tokenizer supports this pattern


def test_corpus_too_small_for_the_size_is_a_warning(trained):
    out, vocabulary = trained
    assert vocabulary.size < SIZE
    assert vocabulary.size == locate(str(out)).vocab_size == len(SPECIAL_TOKENS) + 256 + vocabulary.merges
    assert any(f"the vocabulary has {vocabulary.size:,} ids, not 3,000" in warning for warning in vocabulary.warnings)


def test_transformers_loads_the_folder(trained):
    out, _ = trained
    loaded, engine = AutoTokenizer.from_pretrained(str(out)), FastTokenizer.load(locate(str(out)))
    text = "def f(x):\n        return x_1[12345] + 'ä€😀'\n"
    ids = engine.encode(text.encode()).ids.tolist()
    assert loaded(text)["input_ids"] == [0, *ids, 2]
    assert loaded.decode(ids) == text
    assert (loaded.mask_token, loaded.pad_token_id, loaded.eos_token, loaded.bos_token) == ("<mask>", 1, "</s>", "<s>")


CODE = st.text(st.sampled_from("def return self._x(){}[] \n\t\r0123456789'sS%äß€😀\u0301\u2028\x00=-*\"#")) | st.text()


@pytest.mark.parametrize("pattern", PATTERN_NAMES)
def test_both_engines_give_the_same_ids(pattern, source, tmp_path):
    out = tmp_path / "tok.json"
    config = Config(sources=[str(source)], out=str(out))
    gristmill.train_tokenizer(config, 1000, pattern=pattern, template="none")
    definition = locate(str(out))
    engine, reference = FastTokenizer.load(definition), ReferenceTokenizer(definition)
    complete = Reference.from_file(str(out))

    @settings(max_examples=150, deadline=None)
    @given(CODE)
    def check_same_ids(text):
        ids = engine.encode(text.encode()).ids.tolist()
        assert ids == reference.encode(text.encode()).ids.tolist()
        assert engine.decode(ids) == text.encode()
        if not any(token in text for token in SPECIAL_TOKENS):
            assert complete.encode(text).ids == ids

    check_same_ids()


def test_held_out_text_is_not_learned(trained):
    out, _ = trained
    splits, tokens = splits_of(out), token_texts(out)
    assert {*splits.values()} == {"train", "validation", "test"}
    seen = {"train": 0, "held out": 0}
    for (_, path), split in splits.items():
        unique_word = UNIQUE_WORDS[int(path[1:3])].encode()
        is_learned = any(unique_word[at : at + 12] in token for token in tokens for at in range(len(unique_word) - 11))
        seen["train" if split == "train" else "held out"] += is_learned
    assert seen["held out"] == 0
    assert seen["train"] == sum(split == "train" for split in splits.values())


def test_secret_is_not_learned(trained):
    out, _ = trained
    assert splits_of(out)["repo", "m03.py"] == "train"
    assert not any(SECRET[at : at + 6].encode() in token for token in token_texts(out) for at in range(len(SECRET) - 5))
    for path in out.iterdir():
        assert SECRET.encode() not in path.read_bytes()


def test_benchmark_text_is_not_learned(source, tmp_path):
    out, splits = tmp_path / "tok", splits_of_build(source, tmp_path)
    path = next(path for (_, path), split in splits.items() if split == "train" and path != "m03.py")
    unique_word = UNIQUE_WORDS[int(path[1:3])].encode()
    split = SplitConfig(against=[str(source / path)])
    gristmill.train_tokenizer(Config(sources=[str(source)], out=str(out), split=split), SIZE)
    assert not any(unique_word[:12] in token for token in token_texts(out))


def splits_of_build(source, folder):
    gristmill.build(Config(sources=[str(source)], out=str(folder / "plain")))
    return splits_of(folder / "plain")


@pytest.mark.parametrize(("threads", "seed"), [(1, "1"), (4, "77")])
def test_output_does_not_depend_on_threads_hash_seed_or_workers(threads, seed, source, trained, tmp_path):
    out, _ = trained
    second = tmp_path / "tok"
    environment = {**os.environ, "RAYON_NUM_THREADS": str(threads), "PYTHONHASHSEED": seed}
    arguments = ["tokenizer", "train", source, "--out", second, "--size", str(SIZE), "--workers", threads, "--quiet"]
    arguments += ["--batch-bytes", 9000 * threads]
    subprocess.run([sys.executable, "-m", "gristmill", *map(str, arguments)], check=True, env=environment)
    assert digests(second) == digests(out)


def test_build_keeps_every_file_in_its_split(source, trained, tmp_path):
    tok, _ = trained
    out = tmp_path / "dataset"
    split = SplitConfig(previous=str(tok))
    tokenizer = gristmill.TokenizerConfig(name=str(tok))
    sections = {"variants": gristmill.VariantsConfig(rates={"noise": 1.0}), "fim": gristmill.FimConfig(rate=1.0)}
    config = Config(sources=[str(source)], out=str(out), preset="mlm", split=split, tokenizer=tokenizer, **sections)
    manifest = gristmill.build(config)
    assert manifest.previous_splits.num_files_moved == 0
    kept = splits_of(out)
    assert {key: split for key, split in splits_of(tok).items() if key in kept}.items() <= kept.items()
    assert manifest.variants["noise"].made
    assert manifest.fim.rewritten
    assert gristmill.check(out).ok


def test_second_run_keeps_the_splits_and_the_bytes(source, tmp_path):
    out = tmp_path / "tok"
    config = Config(sources=[str(source)], out=str(out))
    gristmill.train_tokenizer(config, 500)
    first, splits = digests(out), splits_of(out)
    second = gristmill.train_tokenizer(Config(sources=[str(source)], out=str(out), split=SplitConfig(seed=5)), 500)
    assert splits_of(out) == splits
    assert second.previous_splits.num_files_moved == 0
    assert digests(out)["tokenizer.json"] == first["tokenizer.json"]


def test_dataset_gives_the_same_tokenizer_as_its_source(source, trained, tmp_path):
    """The dataset has repeated windows and variants, but each text is learned once."""
    plain, _ = trained
    dataset = tmp_path / "dataset"
    sampling = gristmill.SamplingConfig(target_windows=2500)
    variants = gristmill.VariantsConfig(rates={"noise": 0.5})
    window = WindowConfig(length=64, overlap=16)
    gristmill.build(
        Config(sources=[str(source)], out=str(dataset), sampling=sampling, variants=variants, window=window)
    )
    vocabulary = gristmill.train_tokenizer(Config(sources=[str(dataset)], out=str(tmp_path / "tok")), SIZE)
    assert (tmp_path / "tok/tokenizer.json").read_bytes() == (plain / "tokenizer.json").read_bytes()
    assert (tmp_path / "tok/files.jsonl").read_bytes() == (dataset / "files.jsonl").read_bytes()
    assert vocabulary.split_tokenizer.name == "codebert"


@pytest.mark.parametrize(
    ("sections", "expected"),
    [({"split": SplitConfig(seed=3)}, "split"), ({"tokenizer": gristmill.TokenizerConfig(name="x")}, "tokenizer")],
)
def test_settings_that_the_dataset_determines_are_refused(sections, expected, built, tmp_path):
    with pytest.raises(ConfigError, match=f"Leave out the {expected} settings"):
        gristmill.train_tokenizer(Config(sources=[str(built[0])], out=str(tmp_path / "tok"), **sections), 500)


def test_damaged_dataset_is_an_error(source, tmp_path):
    dataset = tmp_path / "dataset"
    gristmill.build(Config(sources=[str(source)], out=str(dataset)))
    rows = (dataset / "train.jsonl").read_bytes()
    (dataset / "train.jsonl").write_bytes(rows.replace(b'"start":0', b'"start":x', 3))
    with pytest.raises(DatasetError, match=r"row train:0 in .* is damaged: "):
        gristmill.train_tokenizer(Config(sources=[str(dataset)], out=str(tmp_path / "tok")), 500)
    assert not (tmp_path / "tok").exists()
    assert not list(tmp_path.glob("*.tmp"))


def test_file_and_folder_output_are_the_same_tokenizer(source, tmp_path):
    folder = gristmill.train_tokenizer(Config(sources=[str(source)], out=str(tmp_path / "tok")), 500)
    file = gristmill.train_tokenizer(Config(sources=[str(source)], out=str(tmp_path / "other.json")), 500)
    assert folder == file
    assert (tmp_path / "other.json").read_bytes() == (tmp_path / "tok/tokenizer.json").read_bytes()
    assert {path.name for path in tmp_path.iterdir()} == {"tok", *(f"other.{name}" for name in ("json", "files.jsonl", "vocabulary.json"))}  # fmt: skip
    assert locate(str(tmp_path / "other.json")).end_id == locate(str(tmp_path / "tok")).end_id == 2
    out = tmp_path / "dataset"
    arguments = ["build", str(source), "--out", str(out), "--tokenizer", str(tmp_path / "other.json"), "--quiet"]
    assert run([*arguments, "--splits", str(tmp_path / "other.files.jsonl")]) == 0


@pytest.mark.parametrize("size", [-1, 0, MIN_SIZE - 1, (1 << 20) + 1])
def test_invalid_size_is_refused(size, source, tmp_path):
    with pytest.raises(ConfigError, match=f"size must be from {MIN_SIZE} .* got {size}"):
        gristmill.train_tokenizer(Config(sources=[str(source)], out=str(tmp_path / "tok")), size)


def test_files_of_the_user_are_not_overwritten(source, tmp_path):
    folder = write_tree(tmp_path / "mine", {"tokenizer.json": "{}"})
    write_tree(tmp_path, {"file": "x", "tok.json": "{}", "sub/tokenizer_config.json": "{}"})
    for out in ("mine", "file", "tok.json", "sub/a.json"):
        with pytest.raises(OutputError, match=r"--out|Name a new folder"):
            gristmill.train_tokenizer(Config(sources=[str(source)], out=str(tmp_path / out)), 500)
    assert (folder / "tokenizer.json").read_text() == "{}"
    with pytest.raises(ConfigError, match=r"local folder or \.json file"):
        gristmill.train_tokenizer(Config(sources=[str(source)], out="s3://bucket/tok"), 500)


def test_empty_train_split_is_an_error(source, tmp_path):
    config = Config(sources=[str(source)], out=str(tmp_path / "tok"), split=SplitConfig(shares="0/50/50"))
    with pytest.raises(InputError, match="the train split has no files"):
        gristmill.train_tokenizer(config, 500)


def test_output_inside_the_source_is_ignored_with_a_warning(source, tmp_path):
    tree = write_tree(tmp_path / "repo", {path.name: path.read_bytes() for path in source.iterdir()})
    config = Config(sources=[str(tree)], out=str(tree / "tok"))
    first = gristmill.train_tokenizer(config, 500)
    second = gristmill.train_tokenizer(config, 500)
    assert first.sha256 == second.sha256
    assert any("tok is inside a source" in warning for warning in first.warnings)


def test_table_equals_a_direct_count(source, trained, codebert, tmp_path):
    tok, vocabulary = trained
    window = WindowConfig(length=128, overlap=32)
    config = Config(sources=[str(source)], out=str(tmp_path / "none"), window=window)
    table = gristmill.compare_tokenizers(config, ["codebert", str(tok)])
    engine, splits = FastTokenizer.load(locate(str(tok))), splits_of(tok)
    texts = {path: (source / path).read_bytes() for _, path in splits if path != "m03.py"}
    redacted = (source / "m03.py").read_bytes().replace(SECRET.encode(), b"<SECRET:aws-access-key>")
    texts["m03.py"] = redacted
    for one, tokenizer in zip(table.tokenizers, (codebert, engine), strict=True):
        counts = {path: len(tokenizer.encode(text).ids) for path, text in texts.items()}
        shape = WindowShape.of(window, 2)
        assert one.tokens == sum(counts.values())
        assert one.windows == sum(len(cut(number, shape)) for number in counts.values())
        assert one.bytes_per_token == round(sum(map(len, texts.values())) / one.tokens, 4)
        for split in Split:
            assert one.tokens_by_split[split] == sum(
                counts[path] for (_, path), file_split in splits.items() if file_split == split
            )
        assert one.tokens_by_language == {"python": one.tokens}
        assert one.unknown_tokens == 0
    assert table.splits_of == str(tok)
    assert {split: facts.bytes for split, facts in table.splits.items()} == {
        split: facts.bytes for split, facts in vocabulary.splits.items()
    }
    assert [one.has_fim for one in table.tokenizers] == [False, True]
    for split, facts in vocabulary.splits.items():
        assert table.tokenizers[0].tokens_by_split[split] == facts.tokens_before
        assert table.tokenizers[1].tokens_by_split[split] == facts.tokens


def test_show_of_a_dataset_uses_its_tokenizer(built, capsys):
    dataset, manifest = built
    assert run(["tokenizer", "show", str(dataset), "--json"]) == 0
    table = json.loads(capsys.readouterr().out)
    assert [one["name"] for one in table["tokenizers"]] == ["codebert"]
    counts = {split: facts.tokens for split, facts in manifest.splits.items()}
    assert sum(counts.values()) == pytest.approx(table["tokenizers"][0]["tokens"], rel=1e-3)


def test_pieces_join_to_the_text_and_end_at_characters():
    text = "äöü€😀 line\n".encode() * 50 + "😀".encode() * 100
    pieces = list(split_pieces(text, 64))
    assert b"".join(pieces) == text
    assert max(map(len, pieces)) <= 64
    assert all(piece.decode() for piece in pieces)


def test_command_prints_the_matching_build_command(source, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run(["tokenizer", "train", str(source), "--out", "tok", "--size", "600", "--seed", "4"]) == 0
    output = capsys.readouterr().out
    line = output.splitlines()[-1].strip()
    assert line == f"gristmill build {source} --out repo-dataset --tokenizer tok --splits tok --seed 4"
    assert "600 ids: 10 special tokens, 256 bytes, 334 merges" in output
    assert run(line.split()[1:]) == 0
    capsys.readouterr()
    assert run(["tokenizer", "show", str(source), "--tokenizer", "codebert", "--tokenizer", "tok"]) == 0
    output = capsys.readouterr().out
    assert "tok was trained on train; validation and test were held out" in output
    assert {"codebert", "tok"} <= {line.split()[0] for line in output.splitlines() if line}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["shwo"], "unknown command 'tokenizer shwo'. Did you mean 'show'?"),
        (["train", "x"], "no output folder is given"),
        (["train", "--out", "t"], "no source is given"),
        (["train", "x", "--out", "t", "--sise", "9"], "Did you mean '--size'?"),
        (
            ["train", "x", "--out", "t", "--pattern", "gpt9"],
            "--pattern must be one of cl100k, qwen2, gpt2, got 'gpt9'.",
        ),
        (["show", "x", "--tokenizer", "a", "--tokenizer", "a"], "'a' is named twice"),
    ],
)
def test_wrong_arguments_are_a_one_line_error(arguments, expected, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("x").mkdir()
    assert run(["tokenizer", *arguments]) == 2
    output = capsys.readouterr().err
    assert expected in output
    assert output.count("\n") == 1


@pytest.mark.parametrize("arguments", [["--help"], ["train", "--help"], ["show", "--help"]])
def test_help_starts_with_the_usage(arguments, capsys):
    assert run(["tokenizer", *arguments]) == 0
    output = capsys.readouterr().out
    assert output.startswith(f"usage: gristmill tokenizer {arguments[0].removeprefix('--help')}")


def test_too_much_text_is_sampled_by_file(source, tmp_path, monkeypatch):
    monkeypatch.setattr(learn, "MAX_BYTES", 20_000)
    config = Config(sources=[str(source)], out=str(tmp_path / "tok"))
    vocabulary = gristmill.train_tokenizer(config, 500)
    assert 5_000 < vocabulary.learned_bytes <= 20_000 < vocabulary.splits["train"].bytes
    assert any(
        f"learned from a sample of files: {vocabulary.learned_bytes:,} of" in warning for warning in vocabulary.warnings
    )


def test_command_choices_equal_the_library_choices():
    assert (tokenizing.PATTERNS, tokenizing.TEMPLATES) == (PATTERN_NAMES, TEMPLATE_NAMES)
    assert tokenizing.DEFAULT_SIZE == DEFAULT_SIZE


def test_tokenizers_with_the_same_name_are_distinguished(source, trained, tmp_path):
    tok, _ = trained
    shutil.copytree(tok, tmp_path / "tok")
    config = Config(sources=[str(source)], out=str(tmp_path / "none"))
    table = gristmill.compare_tokenizers(config, [str(tok), str(tmp_path / "tok")])
    assert [one.name for one in table.tokenizers] == [str(tok), str(tmp_path / "tok")]
    assert len({one.tokens for one in table.tokenizers}) == 1


def test_splits_can_be_assigned_with_a_tokenizer_without_exact_decoding(source, tmp_path):
    """The ids of such a tokenizer do not decode to the exact text, so the text is stored next to them."""
    (tmp_path / "wp").mkdir()
    (tmp_path / "wp/tokenizer.json").write_text(word_piece())
    tokenizer, split = gristmill.TokenizerConfig(name=str(tmp_path / "wp")), SplitConfig(decontaminate="off")
    config = Config(sources=[str(source)], out=str(tmp_path / "tok"), tokenizer=tokenizer, split=split)
    vocabulary = gristmill.train_tokenizer(config, 500)
    texts = [path.read_text().replace(SECRET, "<SECRET:aws-access-key>") for path in source.iterdir()]
    assert vocabulary.split_tokenizer.name == "wp"
    assert sum(one.bytes for one in vocabulary.splits.values()) == sum(map(len, texts))


def test_unwritable_output_is_an_error(source, tmp_path):
    (tmp_path / "file").write_text("x")
    gristmill.build(Config(sources=[str(source)], out=str(tmp_path / "dataset")))
    for one in tmp_path / "dataset", source:
        with pytest.raises(OutputError, match="cannot write to"):
            gristmill.train_tokenizer(Config(sources=[str(one)], out=str(tmp_path / "file/tok")), 500)


def test_build_without_the_splits_of_the_tokenizer_prints_a_note(trained, source, tmp_path, capsys):
    out, _ = trained
    build = ["build", str(source), "--tokenizer", str(out)]
    assert run([*build, "--out", str(tmp_path / "other")]) == 0
    assert f"--splits {out} to hold out only files that the tokenizer has not seen" in capsys.readouterr().err
    assert run([*build, "--out", str(tmp_path / "same"), "--splits", str(out)]) == 0
    assert "holds nothing out" not in capsys.readouterr().err
