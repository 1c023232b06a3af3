"""Builds with --rows documents: a row is the text of a kept file, or of one piece of the file if the file was cut."""

import json
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gristmill
from gristmill import Config, ConfigError, OutputConfig, RunConfig, SplitConfig, VariantsConfig, WindowConfig, build
from gristmill.checks.check import check
from gristmill.cleaning.control_spellings import restore
from gristmill.core.files_table import read_file_rows
from gristmill.core.manifest import require_ids, require_windows
from gristmill.core.records import Split
from support.builds import called, refusal
from support.made_code import made_module
from support.source_trees import write_tree
from support.trained_tokenizers import unigram, word_piece

SHARED = "".join(f"def shared_{word}(first):\n    return first.{word} + {word!r}\n\n" for word in "abcdefghijklmnop")
HOSTILE = {
    "hostile/end.py": 'END = "<|endoftext|>"\n# <|end<|endoftext|>oftext|>\nprint(END)\n',
    "hostile/fim.py": "PROMPT = '<|fim_prefix|>{}<fim_suffix>{}<｜fim▁hole｜>'\nprint(PROMPT.format(1, 2), '<s>', '</s>')\n",
    "hostile/latin.py": "# caf\xe9 <|im_start|>\nprint('x')\n".encode("latin-1"),
    "hostile/note.ipynb": json.dumps(
        {"cells": [{"cell_type": "code", "source": ["print('<|im_end|>')\n", "x = 1"]}], "metadata": {}, "nbformat": 4}
    ),
    "hostile/secret.py": "TOKEN = 'ghp_A1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q7r8'\nEND = '<|endoftext|>'\nprint(TOKEN, END)\n",
}


def config_for(source, out, **more):
    output = {"rows": "documents", **more.pop("output", {})}
    return Config(sources=[str(source)], out=str(out), output=OutputConfig(**output), **more)


@pytest.fixture(scope="module")
def source(tmp_path_factory, corpus):
    root = tmp_path_factory.mktemp("documents") / "repo"
    shutil.copytree(corpus / "json", root / "json")
    for name in range(14):
        unique_code = "".join(f"value_{name}_{line} = compute({line}, {name * line})\n" for line in range(60))
        write_tree(root, {f"cut{name}.py": f"# {name}\n{unique_code}\n{SHARED}\n{unique_code[::-1]}\n"})
    return write_tree(root, HOSTILE)


@pytest.fixture(scope="module")
def built_documents(source, tmp_path_factory):
    out = tmp_path_factory.mktemp("built") / "dataset"
    output = {"formats": ["jsonl", "parquet"]}
    return out, build(config_for(source, out, output=output, split=SplitConfig(shares="60/20/20")))


def rows_in(folder):
    return {split: list(gristmill.open_dataset(folder)[split]) for split in Split}


def without_row_numbers(row):
    return {name: value for name, value in row.items() if name not in {"row", "number"}}


def test_each_kept_file_is_one_row_with_its_final_text(built_documents, source):
    out, manifest = built_documents
    rows = {(row["path"], row["start"]): row for split_rows in rows_in(out).values() for row in split_rows}
    kept = [row for row in read_file_rows(out / "files.jsonl") if row.status == "kept"]
    assert manifest.columns == ["text", "path", "repo", "language", "lines", "start", "tokens"]
    unchanged = [file for file in kept if not file.cuts and not file.respellings and not file.redactions]
    assert len(unchanged) > 10
    for file in unchanged:
        row = rows[file.path, 0]
        assert row["text"] == (source / file.path).read_text()
        assert (row["tokens"], row["language"]) == (file.tokens, file.language)
    assert sum(file.windows for file in kept) == len(rows)


def test_cut_file_is_split_into_several_rows(built_documents, source):
    out, _ = built_documents
    files = {row.path: row for row in read_file_rows(out / "files.jsonl")}
    rows = [row for split in ("validation", "test") for row in rows_in(out)[split] if files[row["path"]].cuts]
    assert len(rows) > len({row["path"] for row in rows}) > 0
    for row in rows:
        text = (source / row["path"]).read_text()
        assert row["text"] in text
        assert row["text"] != text
        first = text[: text.index(row["text"])].count("\n") + 1
        assert row["lines"][0] == first or row["start"] > 0
        cuts = [(cut.start, cut.end) for cut in files[row["path"]].cuts]
        assert all(end <= row["start"] or row["start"] + row["tokens"] <= start for start, end in cuts)


def test_no_text_contains_a_control_token_and_originals_can_be_restored(built_documents, source):
    out, manifest = built_documents
    rows = {row["path"]: row["text"] for split_rows in rows_in(out).values() for row in split_rows}
    files = {row.path: row for row in read_file_rows(out / "files.jsonl")}
    assert "< |endoftext|>" in rows["hostile/end.py"]
    assert not any(
        name in text for text in rows.values() for name in ("<|endoftext|>", "<|fim_prefix|>", "<s>", "</s>")
    )
    for path in ("hostile/end.py", "hostile/fim.py"):
        back = restore(rows[path].encode(), files[path].respellings)
        assert back == (source / path).read_bytes()
    assert restore(rows["hostile/latin.py"].encode(), files["hostile/latin.py"].respellings).decode() == (
        (source / "hostile/latin.py").read_bytes().decode("latin-1")
    )
    assert manifest.counts.respellings["<|endoftext|>"] == 3
    assert files["hostile/secret.py"].redactions
    assert files["hostile/secret.py"].respellings[0].line == 2


def test_check_passes_and_compares_all_source_files(built_documents, source):
    report = check(built_documents[0], [str(source)], workers=1)
    assert report.ok, [one for one in report.checks if one.status == "failed"]
    num_kept = built_documents[1].counts.kept
    assert report["source"].summary == f"{num_kept} of {num_kept} files compared"
    assert "searched for the text of control tokens" in report["special_tokens"].summary


def test_all_formats_have_the_same_content(built_documents, source, tmp_path):
    out, manifest = built_documents
    stored = gristmill.open_dataset(out)
    for split in Split:
        rows = list(map(without_row_numbers, stored[split]))
        again = [json.loads(line) for line in stored.stored_split("parquet", split)]
        assert again == rows
    outputs = ({"formats": ["parquet"]}, {"compress": "zstd"}, {"shard_bytes": 20_000, "formats": ["jsonl", "parquet"]})
    for number, output in enumerate(outputs):
        folder = tmp_path / str(number)
        other = build(config_for(source, folder, output=output, split=SplitConfig(shares="60/20/20")))
        assert other.content_sha256 == manifest.content_sha256
        assert check(folder, workers=1).ok
    gristmill.export(tmp_path / "1", "parquet", workers=1)
    assert check(tmp_path / "1", workers=1).ok


def test_bytes_do_not_depend_on_workers_or_batches(source, tmp_path):
    folders = []
    for number, run in enumerate((RunConfig(workers=1), RunConfig(workers=2, batch_bytes=2_000))):
        folders.append(tmp_path / str(number))
        build(config_for(source, folders[-1], output={"formats": ["jsonl", "parquet"]}, run=run))
    names = sorted(str(path.relative_to(folders[0])) for path in folders[0].rglob("*") if path.is_file())
    for name in names:
        if name != "manifest.json":
            assert (folders[0] / name).read_bytes() == (folders[1] / name).read_bytes(), name


def test_rebuild_after_a_change_equals_a_build_from_scratch(source, tmp_path):
    copy = shutil.copytree(source, tmp_path / "repo")
    build(config_for(copy, tmp_path / "out"))
    write_tree(copy, {"hostile/end.py": "print('<|im_start|>', 1)\n", "json/new.py": "VALUE = '<eos>'\nprint(VALUE)\n"})
    (copy / "cut3.py").unlink()
    splits = SplitConfig(previous=str(shutil.copy(tmp_path / "out/files.jsonl", tmp_path / "files.jsonl")))
    again = build(config_for(copy, tmp_path / "out"))
    fresh = build(config_for(copy, tmp_path / "fresh", split=splits))
    assert again.content_sha256 == fresh.content_sha256
    assert (tmp_path / "out/files.jsonl").read_bytes() == (tmp_path / "fresh/files.jsonl").read_bytes()


@pytest.mark.parametrize("action", ["drop", "keep"])
def test_files_with_control_tokens_can_be_dropped_or_kept(source, tmp_path, action):
    manifest = build(config_for(source, tmp_path / "out", output={"control_spellings": action}))
    texts = "".join(row["text"] for split_rows in rows_in(tmp_path / "out").values() for row in split_rows)
    report = check(tmp_path / "out", [str(source)], workers=1)
    assert report.ok
    if action == "drop":
        assert manifest.counts.dropped_by_reason["control_spelling"] == 5
        assert "<|endoftext|>" not in texts
    else:
        assert not manifest.counts.respellings
        assert "<|endoftext|>" in texts
        assert report["special_tokens"].status == "skipped"


def test_weights_variants_and_decontamination_work_with_documents(source, tmp_path):
    more = {
        "sampling": gristmill.SamplingConfig(weights={"json/**": 3}),
        "variants": VariantsConfig(rates={"rename": 1.0, "comments": 1.0}),
        "split": SplitConfig(shares="60/20/20", decontaminate="drop"),
    }
    manifest = build(config_for(source, tmp_path / "out", **more))
    assert manifest.columns[-3:] == ["repeat", "variant", "variant_seed"]
    assert manifest.variants["rename"].made
    report = check(tmp_path / "out", [str(source)], workers=1)
    assert report.ok, [one for one in report.checks if one.status == "failed"]


def test_variant_that_would_contain_a_control_token_is_not_made(tmp_path):
    """Without its comment, `<|end/* c */oftext|>` is a control token."""
    body = "".join(f"int f{number}(int a) {{ return a + {number}; }}\n" for number in range(9))
    files = {f"{name}.c": f"/* {name} */\nchar *s = x<|end/* c */oftext|>y;\n{body}" for name in ("a", "b", "c")}
    source = write_tree(tmp_path / "repo", files)
    more = {"variants": VariantsConfig(rates={"comments": 1.0}), "split": SplitConfig(shares="100/0/0")}
    manifest = build(config_for(source, tmp_path / "out", duplicates=gristmill.DuplicatesConfig(near="keep"), **more))
    assert check(tmp_path / "out", workers=1).ok
    assert not any("<|endoftext|>" in row["text"] for row in gristmill.open_dataset(tmp_path / "out")["train"])
    assert manifest.variants["comments"].chosen == 3


@pytest.mark.parametrize("make", [unigram, word_piece])
def test_tokenizers_that_do_not_reproduce_the_text_are_supported(source, tmp_path, make):
    (tmp_path / "tokenizer.json").write_text(make())
    tokenizer = gristmill.TokenizerConfig(name=str(tmp_path / "tokenizer.json"))
    split = SplitConfig(shares="60/20/20")
    build(config_for(source, tmp_path / "out", tokenizer=tokenizer, split=split))
    report = check(tmp_path / "out", [str(source)], workers=1)
    assert report.ok, [one for one in report.checks if one.status == "failed"]
    assert any(row.cuts for row in read_file_rows(tmp_path / "out/files.jsonl"))


def test_file_that_begins_with_blank_lines_passes_the_check(tree, tmp_path):
    (tmp_path / "tokenizer.json").write_text(word_piece())
    tokenizer = gristmill.TokenizerConfig(name=str(tmp_path / "tokenizer.json"))
    source = tree({f"{name}.py": "\n\n" + made_module(f"{name}.py", 800) for name in "abcdef"})
    build(config_for(source, tmp_path / "out", tokenizer=tokenizer))
    assert check(tmp_path / "out", [str(source)], workers=1).ok


@settings(max_examples=8)
@given(st.lists(st.text("ab<|>é🦀 \n_endoftx/s", min_size=1, max_size=60), min_size=1, max_size=6, unique=True))
def test_random_texts_can_be_restored(texts):
    with tempfile.TemporaryDirectory() as folder:
        files = {f"{number}.py": f"# {number}\nvalue = {number}\n{text}" for number, text in enumerate(texts)}
        source = write_tree(Path(folder, "repo"), files)
        rules = gristmill.RulesConfig(alphabetic=False, too_short=False)
        duplicates = gristmill.DuplicatesConfig(near="keep")
        split = SplitConfig(shares="100/0/0")
        config = config_for(source, f"{folder}/out", rules=rules, duplicates=duplicates, split=split)
        build(config)
        found = {row.path: row for row in read_file_rows(Path(folder, "out/files.jsonl"))}
        for row in gristmill.open_dataset(f"{folder}/out")["train"]:
            assert restore(row["text"].encode(), found[row["path"]].respellings).decode() == files[row["path"]]
        assert check(f"{folder}/out", [str(source)], workers=1).ok


def test_load_dataset_and_pandas_read_the_rows(built_documents, tmp_path):
    datasets, pandas = pytest.importorskip("datasets"), pytest.importorskip("pandas")
    out, _ = built_documents
    expected = rows_in(out)
    loaded = datasets.load_dataset(str(out), cache_dir=str(tmp_path))
    for split in Split:
        assert loaded[split].column_names[0] == "text"
        assert loaded[split].to_list() == list(map(without_row_numbers, expected[split]))
        table = pandas.read_parquet(out / f"parquet/{split}.parquet")
        assert table["text"].tolist() == [row["text"] for row in expected[split]]


REFUSED = {
    "--pack best-fit": "--pack best-fit",
    "--pack repo": "--pack repo",
    "--pad": "--pad",
    "--overlap 32": "--overlap 32",
    "--tail drop": "--tail drop",
    "--window 128": "--window 128",
    "--special-tokens template": "--special-tokens template",
    "--end-token none": "--end-token none",
    "--variants noise": "--variants noise",
    "--format npy": "Try --format jsonl or parquet",
    "--format arrow": "Try --format jsonl or parquet",
}


@pytest.mark.parametrize("options", REFUSED)
def test_window_options_are_refused(tree, tmp_path, options):
    done = called(
        "build", tree({"a.py": "x = 1\n"}), "--out", tmp_path / "out", "--rows", "documents", *options.split()
    )
    code, line = refusal(done)
    assert code == 2
    assert line.startswith("--rows documents has no ")
    assert REFUSED[options] in line


@pytest.mark.parametrize("preset", ["mlm", "causal"])
def test_presets_do_not_pack_documents(tree, tmp_path, preset):
    done = called(
        "build", tree({"a.py": "x = 1\n"}), "--out", tmp_path / "out", "--rows", "documents", "--preset", preset
    )
    assert done.returncode == 0, done.stderr
    assert "documents" in done.stdout


def test_control_spellings_require_documents():
    with pytest.raises(ConfigError, match="needs --rows documents"):
        OutputConfig(control_spellings="drop")
    assert Config(sources=["."], out="o", window=WindowConfig(length=64)).output.rows == "windows"


def test_commands_that_need_ids_refuse_documents(built_documents, tmp_path):
    out, manifest = built_documents
    for require in (require_ids, require_windows):
        with pytest.raises(ConfigError, match="gristmill train needs ids"):
            require(manifest, out, "gristmill train")
    code, line = refusal(called("tokenizer", "train", out, "--out", tmp_path / "tokenizer"))
    assert (code, "was built with --rows documents" in line) == (2, True)
    code, line = refusal(called("export", out, "--format", "mds"))
    assert code == 2
    assert "Try --format jsonl or parquet" in line
    with pytest.raises(ConfigError, match="padding needs ids"):
        gristmill.open_dataset(out)["train"].padded()


def test_commands_describe_documents(built_documents, source, tmp_path):
    out, manifest = built_documents
    printed = called("show", out, "train:0", "--no-color", "--json")
    view = json.loads(printed.stdout)
    assert view["num_room"] is None
    assert "".join(stroke[2] for stroke in view["strokes"]) == rows_in(out)["train"][0]["text"]
    assert "gristmill-row" in gristmill.open_dataset(out)["train"][0]._repr_html_()
    explained = called("explain", out, "hostile/end.py").stdout
    assert "line 1: a space was inserted into <|endoftext|>" in explained
    card = (out / "README.md").read_text()
    assert "texts, one file per row" in card
    assert "## Control tokens" in card
    assert "`output.rows`" in card
    assert "window.length" not in card
    planned = called("plan", source, "--rows", "documents", "--split", "60/20/20", "--out", tmp_path / "o", "--json")
    plan = json.loads(planned.stdout)
    assert plan["overlaps"][0]["windows"] == sum(facts.windows for facts in manifest.splits.values())
    assert "--rows documents" in plan["command"]
    assert "--overlap" not in plan["command"]
    assert called("diff", out, out).returncode == 0
    assert called("report", out, "--out", tmp_path / "report.html").returncode == 0
