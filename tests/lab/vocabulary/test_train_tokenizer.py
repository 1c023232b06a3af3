"""A vocabulary of one's own: learnt from train alone, the same every time, and of use to a build."""

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
from gristmill.lab.vocabulary.learn import pieces_of
from gristmill.lab.vocabulary.tokenizer_files import PATTERN_NAMES, SMALLEST, SPECIAL_TOKENS, TEMPLATE_NAMES
from gristmill.lab.vocabulary.train_tokenizer import DEFAULT_SIZE
from gristmill.tokenizers.cuda.patterns import Pattern
from gristmill.tokenizers.gigatoken import FastTokenizer
from gristmill.tokenizers.huggingface import ReferenceTokenizer
from gristmill.tokenizers.locate import locate
from gristmill.tokenizers.sentinels import fim_ids, mask_id
from gristmill.windows.cut import WindowShape, cut
from support.late_imports import late
from support.source_trees import write_tree
from support.tokenizers_made_here import word_piece

(AutoTokenizer,) = late("transformers", "AutoTokenizer")
SECRET = "AKIA" + "QYLPMN5HHHFPZAM2"
SIZE = 3000


def word(*seed, length=6):
    digest = hashlib.sha256(repr(seed).encode()).digest()
    return "".join(chr(97 + byte % 26) for byte in digest[:length])


OWN_WORDS = [word("own", number, length=24) for number in range(40)]


def digests(folder):
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


def splits_of(folder):
    rows = map(json.loads, (folder / "files.jsonl").read_text().splitlines())
    return {(row["repo"], row["path"]): row["split"] for row in rows if row["status"] == "kept"}


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """Forty modules; each has words of its own, so that none is another's duplicate and none shares a span."""
    files = {}
    for number in range(40):
        lines = [f"    value_{number}_{line} = {word(number, line)}(total, {line})" for line in range(60)]
        own = OWN_WORDS[number]
        lines.append(f"    {own} = {own} + {own}  # {own}")
        files[f"m{number:02}.py"] = f"def function_{number}(total):\n" + "\n".join(lines) + "\n    return total\n"
    files["m03.py"] += f'KEY = "{SECRET}"\n' * 5
    return write_tree(tmp_path_factory.mktemp("vocabulary") / "repo", files)


@pytest.fixture(scope="module")
def trained(tmp_path_factory, source):
    out = tmp_path_factory.mktemp("trained") / "tok"
    return out, gristmill.train_tokenizer(Config(sources=[str(source)], out=str(out)), SIZE)


def spelled(out):
    """Every token as the text it stands for."""
    engine = FastTokenizer.load(locate(str(out)))
    return [engine.decode([index]) for index in range(engine.vocab_size)]


def test_special_tokens_have_fixed_ids_and_roles(trained):
    out, made = trained
    definition = locate(str(out))
    assert [definition.id_of(token) for token in SPECIAL_TOKENS] == list(range(len(SPECIAL_TOKENS)))
    assert (mask_id(definition), tuple(fim_ids(definition)), definition.pad_id, definition.end_id) == (
        3,
        (4, 5, 6),
        1,
        2,
    )
    assert (definition.template.prefix, definition.template.suffix) == ((0,), (2,))
    assert made.special_tokens == {token: index for index, token in enumerate(SPECIAL_TOKENS)}
    assert Pattern.of(definition).name == "cl100k"  # a GPU takes it


def test_a_corpus_too_small_for_the_size_is_said(trained):
    out, made = trained
    assert made.size < SIZE
    assert made.size == locate(str(out)).vocab_size == len(SPECIAL_TOKENS) + 256 + made.merges
    assert any(f"the vocabulary has {made.size:,} ids, not 3,000" in warning for warning in made.warnings)


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
    whole = Reference.from_file(str(out))

    @settings(max_examples=150, deadline=None)
    @given(CODE)
    def same(text):
        ids = engine.encode(text.encode()).ids.tolist()
        assert ids == reference.encode(text.encode()).ids.tolist()
        assert engine.decode(ids) == text.encode()
        if not any(token in text for token in SPECIAL_TOKENS):
            assert whole.encode(text).ids == ids

    same()


def test_what_is_held_out_is_not_learnt(trained):
    out, _ = trained
    splits, tokens = splits_of(out), spelled(out)
    assert {*splits.values()} == {"train", "validation", "test"}
    seen = {"train": 0, "held out": 0}
    for (_, path), split in splits.items():
        own = OWN_WORDS[int(path[1:3])].encode()
        is_spelled = any(own[at : at + 12] in token for token in tokens for at in range(len(own) - 11))
        seen["train" if split == "train" else "held out"] += is_spelled
    assert seen["held out"] == 0
    assert seen["train"] == sum(split == "train" for split in splits.values())


def test_a_secret_is_not_learnt(trained):
    out, _ = trained
    assert splits_of(out)["repo", "m03.py"] == "train"
    assert not any(SECRET[at : at + 6].encode() in token for token in spelled(out) for at in range(len(SECRET) - 5))
    for path in out.iterdir():
        assert SECRET.encode() not in path.read_bytes()


def test_what_a_benchmark_has_too_is_not_learnt(source, tmp_path):
    out, splits = tmp_path / "tok", splits_of_build(source, tmp_path)
    path = next(path for (_, path), split in splits.items() if split == "train" and path != "m03.py")
    own = OWN_WORDS[int(path[1:3])].encode()
    split = SplitConfig(against=[str(source / path)])
    gristmill.train_tokenizer(Config(sources=[str(source)], out=str(out), split=split), SIZE)
    assert not any(own[:12] in token for token in spelled(out))


def splits_of_build(source, folder):
    gristmill.build(Config(sources=[str(source)], out=str(folder / "plain")))
    return splits_of(folder / "plain")


@pytest.mark.parametrize(("threads", "seed"), [(1, "1"), (4, "77")])
def test_the_same_bytes_for_any_threads_hashes_and_workers(threads, seed, source, trained, tmp_path):
    out, _ = trained
    again = tmp_path / "tok"
    environment = {**os.environ, "RAYON_NUM_THREADS": str(threads), "PYTHONHASHSEED": seed}
    words = ["tokenizer", "train", source, "--out", again, "--size", str(SIZE), "--workers", threads, "--quiet"]
    words += ["--batch-bytes", 9000 * threads]
    subprocess.run([sys.executable, "-m", "gristmill", *map(str, words)], check=True, env=environment)
    assert digests(again) == digests(out)


def test_a_build_keeps_every_file_in_its_split(source, trained, tmp_path):
    tok, _ = trained
    out = tmp_path / "dataset"
    split = SplitConfig(previous=str(tok))
    tokenizer = gristmill.TokenizerConfig(name=str(tok))
    more = {"variants": gristmill.VariantsConfig(rates={"noise": 1.0}), "fim": gristmill.FimConfig(rate=1.0)}
    config = Config(sources=[str(source)], out=str(out), preset="mlm", split=split, tokenizer=tokenizer, **more)
    made = gristmill.build(config)
    assert made.previous_splits.num_files_moved == 0
    kept = splits_of(out)
    assert {key: split for key, split in splits_of(tok).items() if key in kept}.items() <= kept.items()
    assert made.variants["noise"].made
    assert made.fim.rewritten
    assert gristmill.check(out).ok


def test_a_second_run_keeps_the_splits_and_the_bytes(source, tmp_path):
    out = tmp_path / "tok"
    config = Config(sources=[str(source)], out=str(out))
    gristmill.train_tokenizer(config, 500)
    first, splits = digests(out), splits_of(out)
    again = gristmill.train_tokenizer(Config(sources=[str(source)], out=str(out), split=SplitConfig(seed=5)), 500)
    assert splits_of(out) == splits
    assert again.previous_splits.num_files_moved == 0
    assert digests(out)["tokenizer.json"] == first["tokenizer.json"]


def test_a_dataset_is_taken_as_it_is(source, trained, tmp_path):
    """Windows are drawn several times, and variants are there too: of the text, each is learnt once."""
    plain, _ = trained
    dataset = tmp_path / "dataset"
    sampling = gristmill.SamplingConfig(target_windows=2500)
    variants = gristmill.VariantsConfig(rates={"noise": 0.5})
    window = WindowConfig(length=64, overlap=16)
    gristmill.build(
        Config(sources=[str(source)], out=str(dataset), sampling=sampling, variants=variants, window=window)
    )
    made = gristmill.train_tokenizer(Config(sources=[str(dataset)], out=str(tmp_path / "tok")), SIZE)
    assert (tmp_path / "tok/tokenizer.json").read_bytes() == (plain / "tokenizer.json").read_bytes()
    assert (tmp_path / "tok/files.jsonl").read_bytes() == (dataset / "files.jsonl").read_bytes()
    assert made.decided_by.name == "codebert"


@pytest.mark.parametrize(
    ("more", "said"),
    [({"split": SplitConfig(seed=3)}, "split"), ({"tokenizer": gristmill.TokenizerConfig(name="x")}, "tokenizer")],
)
def test_a_dataset_takes_no_other_settings(more, said, built, tmp_path):
    with pytest.raises(ConfigError, match=f"leave out the settings of {said}"):
        gristmill.train_tokenizer(Config(sources=[str(built[0])], out=str(tmp_path / "tok"), **more), 500)


def test_a_damaged_dataset_is_said(source, tmp_path):
    dataset = tmp_path / "dataset"
    gristmill.build(Config(sources=[str(source)], out=str(dataset)))
    rows = (dataset / "train.jsonl").read_bytes()
    (dataset / "train.jsonl").write_bytes(rows.replace(b'"start":0', b'"start":x', 3))
    with pytest.raises(DatasetError, match=r"row train:0 in .* is damaged: "):
        gristmill.train_tokenizer(Config(sources=[str(dataset)], out=str(tmp_path / "tok")), 500)
    assert not (tmp_path / "tok").exists()
    assert not list(tmp_path.glob("*.tmp"))


def test_a_file_and_a_folder_are_the_same_tokenizer(source, tmp_path):
    folder = gristmill.train_tokenizer(Config(sources=[str(source)], out=str(tmp_path / "tok")), 500)
    file = gristmill.train_tokenizer(Config(sources=[str(source)], out=str(tmp_path / "other.json")), 500)
    assert folder == file
    assert (tmp_path / "other.json").read_bytes() == (tmp_path / "tok/tokenizer.json").read_bytes()
    assert {path.name for path in tmp_path.iterdir()} == {"tok", *(f"other.{name}" for name in ("json", "files.jsonl", "vocabulary.json"))}  # fmt: skip
    assert locate(str(tmp_path / "other.json")).end_id == locate(str(tmp_path / "tok")).end_id == 2
    out = tmp_path / "dataset"
    words = ["build", str(source), "--out", str(out), "--tokenizer", str(tmp_path / "other.json"), "--quiet"]
    assert run([*words, "--splits", str(tmp_path / "other.files.jsonl")]) == 0


@pytest.mark.parametrize("size", [-1, 0, SMALLEST - 1, (1 << 20) + 1])
def test_a_size_that_cannot_be_is_refused(size, source, tmp_path):
    with pytest.raises(ConfigError, match=f"size must be from {SMALLEST} .* got {size}"):
        gristmill.train_tokenizer(Config(sources=[str(source)], out=str(tmp_path / "tok")), size)


def test_what_is_somebody_elses_stays(source, tmp_path):
    folder = write_tree(tmp_path / "mine", {"tokenizer.json": "{}"})
    write_tree(tmp_path, {"file": "x", "tok.json": "{}", "sub/tokenizer_config.json": "{}"})
    for out in ("mine", "file", "tok.json", "sub/a.json"):
        with pytest.raises(OutputError, match=r"--out|Name a new folder"):
            gristmill.train_tokenizer(Config(sources=[str(source)], out=str(tmp_path / out)), 500)
    assert (folder / "tokenizer.json").read_text() == "{}"
    with pytest.raises(ConfigError, match=r"folder or a \.json file here"):
        gristmill.train_tokenizer(Config(sources=[str(source)], out="s3://bucket/tok"), 500)


def test_nothing_in_train_is_said(source, tmp_path):
    config = Config(sources=[str(source)], out=str(tmp_path / "tok"), split=SplitConfig(shares="0/50/50"))
    with pytest.raises(InputError, match="no file is in train"):
        gristmill.train_tokenizer(config, 500)


def test_a_place_inside_the_source_is_left_out_and_noted(source, tmp_path):
    tree = write_tree(tmp_path / "repo", {path.name: path.read_bytes() for path in source.iterdir()})
    config = Config(sources=[str(tree)], out=str(tree / "tok"))
    first = gristmill.train_tokenizer(config, 500)
    again = gristmill.train_tokenizer(config, 500)
    assert first.sha256 == again.sha256
    assert any("tok lies in its own source" in warning for warning in first.warnings)


def test_the_table_is_a_direct_count(source, trained, codebert, tmp_path):
    tok, made = trained
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
            assert one.tokens_by_split[split] == sum(counts[path] for (_, path), own in splits.items() if own == split)
        assert one.tokens_by_language == {"python": one.tokens}
        assert one.unknown_tokens == 0
    assert table.splits_of == str(tok)
    assert {split: facts.bytes for split, facts in table.splits.items()} == {
        split: facts.bytes for split, facts in made.splits.items()
    }
    assert [one.has_fim for one in table.tokenizers] == [False, True]
    for split, facts in made.splits.items():
        assert table.tokenizers[0].tokens_by_split[split] == facts.tokens_before
        assert table.tokenizers[1].tokens_by_split[split] == facts.tokens


def test_a_dataset_shows_its_own_tokenizer(built, capsys):
    dataset, manifest = built
    assert run(["tokenizer", "show", str(dataset), "--json"]) == 0
    table = json.loads(capsys.readouterr().out)
    assert [one["name"] for one in table["tokenizers"]] == ["codebert"]
    counts = {split: facts.tokens for split, facts in manifest.splits.items()}
    assert sum(counts.values()) == pytest.approx(table["tokenizers"][0]["tokens"], rel=1e-3)


def test_pieces_are_the_text_and_end_with_lines():
    text = "äöü€😀 line\n".encode() * 50 + "😀".encode() * 100
    pieces = list(pieces_of(text, 64))
    assert b"".join(pieces) == text
    assert max(map(len, pieces)) <= 64
    assert all(piece.decode() for piece in pieces)


def test_the_command_tells_the_build_that_goes_with_it(source, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run(["tokenizer", "train", str(source), "--out", "tok", "--size", "600", "--seed", "4"]) == 0
    told = capsys.readouterr().out
    line = told.splitlines()[-1].strip()
    assert line == f"gristmill build {source} --out repo-dataset --tokenizer tok --splits tok --seed 4"
    assert "600 ids: 10 special tokens, 256 bytes, 334 merges" in told
    assert run(line.split()[1:]) == 0
    capsys.readouterr()
    assert run(["tokenizer", "show", str(source), "--tokenizer", "codebert", "--tokenizer", "tok"]) == 0
    told = capsys.readouterr().out
    assert "validation and test were held out when tok was trained" in told
    assert {"codebert", "tok"} <= {line.split()[0] for line in told.splitlines() if line}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["shwo"], "unknown command 'tokenizer shwo'. Did you mean 'show'?"),
        (["train", "x"], "no output folder was given"),
        (["train", "--out", "t"], "no source was named"),
        (["train", "x", "--out", "t", "--sise", "9"], "Did you mean '--size'?"),
        (
            ["train", "x", "--out", "t", "--pattern", "gpt9"],
            "--pattern must be one of cl100k, qwen2, gpt2, got 'gpt9'.",
        ),
        (["show", "x", "--tokenizer", "a", "--tokenizer", "a"], "'a' is named twice"),
    ],
)
def test_wrong_words_are_told_in_one_line(words, said, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("x").mkdir()
    assert run(["tokenizer", *words]) == 2
    told = capsys.readouterr().err
    assert said in told
    assert told.count("\n") == 1


@pytest.mark.parametrize("words", [["--help"], ["train", "--help"], ["show", "--help"]])
def test_help_tells_the_way(words, capsys):
    assert run(["tokenizer", *words]) == 0
    told = capsys.readouterr().out
    assert told.startswith(f"usage: gristmill tokenizer {words[0].removeprefix('--help')}")


def test_of_more_text_than_is_read_some_files_are_taken(source, tmp_path, monkeypatch):
    monkeypatch.setattr(learn, "MOST_BYTES", 20_000)
    config = Config(sources=[str(source)], out=str(tmp_path / "tok"))
    made = gristmill.train_tokenizer(config, 500)
    assert 5_000 < made.learnt_bytes <= 20_000 < made.splits["train"].bytes
    assert any(f"learnt from {made.learnt_bytes:,} of" in warning for warning in made.warnings)


def test_the_command_offers_what_there_is():
    assert (tokenizing.PATTERNS, tokenizing.TEMPLATES) == (PATTERN_NAMES, TEMPLATE_NAMES)
    assert tokenizing.DEFAULT_SIZE == DEFAULT_SIZE


def test_tokenizers_of_one_name_are_told_apart(source, trained, tmp_path):
    tok, _ = trained
    shutil.copytree(tok, tmp_path / "tok")
    config = Config(sources=[str(source)], out=str(tmp_path / "none"))
    table = gristmill.compare_tokenizers(config, [str(tok), str(tmp_path / "tok")])
    assert [one.name for one in table.tokenizers] == [str(tok), str(tmp_path / "tok")]
    assert len({one.tokens for one in table.tokenizers}) == 1


def test_a_decider_that_gives_no_text_back_decides_too(source, tmp_path):
    """Its text is kept beside its ids."""
    (tmp_path / "wp").mkdir()
    (tmp_path / "wp/tokenizer.json").write_text(word_piece())
    tokenizer, split = gristmill.TokenizerConfig(name=str(tmp_path / "wp")), SplitConfig(decontaminate="off")
    config = Config(sources=[str(source)], out=str(tmp_path / "tok"), tokenizer=tokenizer, split=split)
    made = gristmill.train_tokenizer(config, 500)
    texts = [path.read_text().replace(SECRET, "<SECRET:aws-access-key>") for path in source.iterdir()]
    assert made.decided_by.name == "wp"
    assert sum(one.bytes for one in made.splits.values()) == sum(map(len, texts))


def test_a_place_that_cannot_be_written_is_said(source, tmp_path):
    (tmp_path / "file").write_text("x")
    gristmill.build(Config(sources=[str(source)], out=str(tmp_path / "dataset")))
    for one in tmp_path / "dataset", source:
        with pytest.raises(OutputError, match="cannot write at"):
            gristmill.train_tokenizer(Config(sources=[str(one)], out=str(tmp_path / "file/tok")), 500)


def test_a_build_by_other_splits_than_the_vocabularys_is_told_which(trained, source, tmp_path, capsys):
    out, _ = trained
    build = ["build", str(source), "--tokenizer", str(out)]
    assert run([*build, "--out", str(tmp_path / "other")]) == 0
    assert f"--splits {out} so that it has seen no held-out file" in capsys.readouterr().err
    assert run([*build, "--out", str(tmp_path / "same"), "--splits", str(out)]) == 0
    assert "holds nothing out" not in capsys.readouterr().err
