"""Builds with fill-in-the-middle rewrite documents of train, and the original text can be restored from the rows."""

import json
import re
import shutil

import pytest
from tokenizers import Tokenizer

from gristmill import (
    Config,
    ConfigError,
    DuplicatesConfig,
    FimConfig,
    OutputConfig,
    RunConfig,
    SamplingConfig,
    SplitConfig,
    TokenizerConfig,
    VariantsConfig,
    WindowConfig,
    check,
    load_tokenizer,
    open_dataset,
)
from gristmill.checks.rebuild import compare_with_clean_build
from gristmill.core.records import FimForm, MiddleKind
from gristmill.pipeline.separate_steps import Shard, decide_all, finish_all, prepare_shard, shape_shard
from gristmill.tokenizers.window_frame import fim_frame
from support.builds import called, everything, files_table, make, refusal
from support.codebert_with import END as END_NAME
from support.codebert_with import FIM, MARKERS, codebert_with
from support.made_code import made_module
from support.real_tokenizers import tokenizer_path
from support.source_trees import write_tree
from support.trained_tokenizers import byte_level, sentence_piece_bpe, unigram

END, REPO, FILE, PREFIX, MIDDLE, SUFFIX = range(50_265, 50_271)
NAMES = (
    "argparse",
    "ast",
    "bisect",
    "calendar",
    "cmd",
    "copy",
    "csv",
    "fnmatch",
    "heapq",
    "queue",
    "shlex",
    "textwrap",
)


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """Modules of a few thousand tokens, a file in a language without a grammar, and a file too short for a middle."""
    files = {f"{name}.py": made_module(f"{name}.py", 9_000) for name in NAMES}
    files["README.md"] = "\n".join(f"- point {number} of the things to read first" for number in range(80))
    files["tiny.py"] = "a = 1\n"
    return write_tree(tmp_path_factory.mktemp("rewritten") / "project", files)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    return codebert_with(MARKERS, tmp_path_factory.mktemp("tokenizer") / "causal", is_causal=True)


def settings(tokenizer, rate=0.6, pack="none", **more):
    window = {"length": 256, "pack": pack, **more.pop("window", {})}
    fim = FimConfig(rate=rate, **more.pop("fim", {}))
    return {"preset": "fim", "tokenizer": tokenizer, "window": WindowConfig(**window), "fim": fim, **more}


@pytest.fixture(scope="module")
def plain_dataset(source, tokenizer, tmp_path_factory):
    out = tmp_path_factory.mktemp("plain") / "dataset"
    make(source, out, **settings(tokenizer, rate=0.0))
    return out


@pytest.fixture(scope="module")
def rewritten_dataset(source, tokenizer, tmp_path_factory):
    out = tmp_path_factory.mktemp("fim") / "dataset"
    make(source, out, **settings(tokenizer))
    return out


def rows_of(out, split="train"):
    return list(open_dataset(out)[split].unpacked())


def failed_checks(out, source):
    return {one.name: one.examples for one in check(out, [str(source)], workers=1).checks if one.status == "failed"}


def join_parts(ids, decode):
    """Restore `a b c` from `<prefix> a <suffix> c <middle> b` or from `<prefix> <suffix> c <middle> a b`."""
    at, to = ids.index(SUFFIX), ids.index(MIDDLE)
    return b"".join(decode(part) for part in (ids[1:at], ids[to + 1 :], ids[at + 1 : to]))


def test_share_of_train_is_rewritten_and_held_out_files_are_unchanged(rewritten_dataset, plain_dataset):
    for split in ("validation", "test"):
        without_fim = [{name: row[name] for name in row if name not in {"fim", "middle", "middle_tokens"}}
                for row in rows_of(rewritten_dataset, split)]  # fmt: skip
        assert without_fim == rows_of(plain_dataset, split)
        assert not any(row["fim"] for row in rows_of(rewritten_dataset, split))
    table = files_table(rewritten_dataset)
    chosen = {path for path, row in table.items() if row["fim"]}
    train = {path for path, row in table.items() if row["split"] == "train"}
    assert 0.25 * len(train) < len(chosen) < 0.95 * len(train)
    own = {path: [row["input_ids"] for row in rows_of(plain_dataset) if row["path"] == path] for path in train}
    for path in train:
        rows = [row for row in rows_of(rewritten_dataset) if row["path"] == path]
        is_rewritten = bool(table[path]["fim"]) and table[path]["fim"]["missing"] is None
        assert any(row["fim"] for row in rows) == is_rewritten
        if not is_rewritten:
            assert [row["input_ids"] for row in rows] == own[path]
        else:
            assert sum(bool(row["fim"]) for row in rows) == table[path]["fim"]["rewritten"]


def test_rows_join_to_the_file_and_rewritten_rows_end_with_the_end_token(rewritten_dataset, source, tokenizer):
    decode = load_tokenizer(tokenizer.name).decode
    texts, next_start = {}, {}
    for row in rows_of(rewritten_dataset):
        if files_table(rewritten_dataset)[row["path"]]["fim"]:
            assert row["start"] == next_start.get(row["path"], 0)
            next_start[row["path"]] = row["start"] + row["fresh"]
            ids = row["input_ids"]
            if row["fim"]:
                assert ids[-1] == END
                piece = join_parts(ids[:-1], decode)
            else:
                piece = decode([one for one in ids if one != END])
            texts[row["path"]] = texts.get(row["path"], b"") + piece
    assert len(texts) > 3
    for path, text in texts.items():
        assert text == (source / path).read_bytes()
        assert next_start[path] == files_table(rewritten_dataset)[path]["tokens"]


def test_check_restores_the_original_text_from_the_rows(rewritten_dataset, source):
    report = check(rewritten_dataset, [str(source)], workers=1)
    assert report.ok, report
    (verdict,) = [one for one in report.checks if one.name == "fim"]
    assert re.fullmatch(r"\d+ rows of \d+ files checked", verdict.summary)


def test_manifest_counts_windows_by_form_and_kind(rewritten_dataset):
    facts = open_dataset(rewritten_dataset).manifest.fim
    rows = rows_of(rewritten_dataset)
    assert facts.forms == {form: sum(row["fim"] == form for row in rows) for form in FimForm}
    assert facts.middles == {
        kind: count for kind in MiddleKind if (count := sum(row["middle"] == kind for row in rows))
    }
    assert facts.chosen == facts.rewritten + sum(facts.missing.values())
    assert min(facts.forms.values()) > 5
    assert {"lines", "characters"} < set(facts.middles)
    assert {"statement", "block", "body", "arguments"} & set(facts.middles)


def test_middles_match_their_kind(rewritten_dataset, tokenizer):
    decode = load_tokenizer(tokenizer.name).decode
    for row in rows_of(rewritten_dataset):
        if row["fim"]:
            middle = decode(row["input_ids"][-1 - row["middle_tokens"] : -1])
            assert middle.strip()
            if row["middle"] == "arguments":
                assert (middle[:1], middle[-1:]) == (b"(", b")")
            if row["middle"] == "lines":
                assert middle.endswith(b"\n")


CASES = {
    "best-fit": {"pack": "best-fit"},
    "repo": {"pack": "repo"},
    "repo by imports": {"pack": "repo", "window": {"repo_order": "imports"}},
    "repo shuffled": {"pack": "repo", "window": {"repo_order": "shuffle"}},
    "padded, with text": {"output": OutputConfig(pad=True, with_text=True)},
    "template": {"window": {"special_tokens": "template"}},
    "no end": {"window": {"end_token": "none"}, "pack": "best-fit"},
    "drawn": {"sampling": SamplingConfig(weights={"a*.py": 3.0, "c*.py": 0.5}, target_windows=260)},
    "a sample": {"sampling": SamplingConfig(max_windows=60)},
    "with variants": {"variants": VariantsConfig(rates={"rename": 1.0, "noise": 0.5})},
    "documents": {"output": OutputConfig(rows="documents", formats=["jsonl", "parquet"]), "pack": None},
    "drawn documents": {
        "output": OutputConfig(rows="documents", compress="zstd"),
        "pack": None,
        "sampling": SamplingConfig(weights={"a*.py": 3.0, "c*.py": 0.5}, target_windows=200),
    },
    "streams": {"output": OutputConfig(formats=["bin", "megatron", "parquet"])},
    "cut out of train": {"split": SplitConfig(decontaminate="train", shares="60/20/20")},
}


@pytest.mark.parametrize("case", CASES)
def test_check_passes_for_all_settings(case, source, tokenizer, tmp_path):
    chosen = codebert_with(MARKERS, tmp_path / "masked") if case == "with variants" else tokenizer
    make(source, tmp_path / "out", **settings(chosen, rate=0.7, **CASES[case]))
    assert failed_checks(tmp_path / "out", source) == {}
    assert open_dataset(tmp_path / "out").manifest.fim.rewritten > 3


def test_bytes_do_not_depend_on_workers(source, tokenizer, tmp_path):
    for name, pack in (("none", "none"), ("repo", "repo")):
        sections = settings(tokenizer, pack=pack)
        make(source, tmp_path / name / "one", **sections, run=RunConfig(workers=1, batch_files=3))
        make(source, tmp_path / name / "two", **sections, run=RunConfig(workers=2))
        one, two = (everything(tmp_path / name / which) for which in ("one", "two"))
        assert one == two


def test_manual_steps_give_the_same_dataset(source, tokenizer, tmp_path):
    make(source, tmp_path / "whole", **settings(tokenizer))
    config = Config(sources=[str(source)], out=str(tmp_path / "out"), **settings(tokenizer))
    prepare_shard(config, Shard(1, 1))
    decide_all(config)
    shape_shard(config, Shard(1, 1))
    finish_all(config)
    assert everything(tmp_path / "out") == everything(tmp_path / "whole")


def test_rebuild_equals_a_clean_build(source, tokenizer, tmp_path):
    project = shutil.copytree(source, tmp_path / "project")
    make(project, tmp_path / "out", **settings(tokenizer))
    (project / "new.py").write_text(made_module("new.py", 4_000))
    (project / "LICENSE").write_text("MIT License\n\nPermission is hereby granted, free of charge, to any person\n")
    make(project, tmp_path / "out", **settings(tokenizer))
    assert compare_with_clean_build(tmp_path / "out") == []


def test_new_files_do_not_change_how_existing_files_are_rewritten(source, tokenizer, rewritten_dataset, tmp_path):
    project = shutil.copytree(source, tmp_path / "project")
    (project / "more.py").write_text(made_module("more.py", 4_000))
    make(
        project,
        tmp_path / "out",
        **settings(tokenizer),
        split=SplitConfig(previous=str(rewritten_dataset / "files.jsonl")),
    )
    before, after = (
        {(row["path"], row["start"]): row["input_ids"] for row in rows_of(out) if row["fim"]}
        for out in (rewritten_dataset, tmp_path / "out")
    )
    assert before
    assert before.items() <= after.items()


def test_documents_contain_sentinels_as_text_and_no_end_token(source, tokenizer, tmp_path):
    output = OutputConfig(rows="documents")
    make(source, tmp_path / "out", **settings(tokenizer, rate=1.0, pack=None, output=output))
    rows = [row for row in rows_of(tmp_path / "out") if row["fim"]]
    assert len(rows) > 50
    next_start = {}
    for row in rows:
        _, prefix, rest = row["text"].partition("<fim_prefix>")
        before, suffix, rest = rest.partition("<fim_suffix>")
        after, middle, tail = rest.partition("<fim_middle>")
        assert all((prefix, suffix, middle))
        assert "<|endoftext|>" not in row["text"]
        text = (source / row["path"]).read_text()
        assert before + tail + after == text[next_start.get(row["path"], 0) :][: len(before + tail + after)]
        next_start[row["path"]] = next_start.get(row["path"], 0) + len(before + tail + after)
    assert failed_checks(tmp_path / "out", source) == {}


def test_repository_rows_contain_only_complete_rewritten_files(source, tokenizer, tmp_path):
    make(source, tmp_path / "out", **settings(tokenizer, pack="repo"))
    rows = list(open_dataset(tmp_path / "out")["train"])
    num_rewritten = 0
    for row in rows:
        ids = row["input_ids"]
        for one in row["segments"]:
            own = ids[one["at"] : one["at"] + one["length"]]
            assert (
                (own[0], own.count(SUFFIX), own.count(MIDDLE), own[-1]) == (PREFIX, 1, 1, END)
                if one["fim"]
                else (not {PREFIX, SUFFIX, MIDDLE, END} & set(own))
            )
            if one["fim"]:
                num_rewritten += 1
                before = ids[: one["at"]]
                assert FILE in before, "no file name precedes the rewritten file"
    assert num_rewritten > 20


def test_sentinels_in_source_are_encoded_as_text(source, tmp_path):
    project = shutil.copytree(source, tmp_path / "project")
    code = "".join(f'PRE_{at} = "<fim_prefix>"  # <fim_middle>{at}\n' for at in range(30))
    (project / "sentinels.py").write_text(code)
    for is_special in (True, False):
        chosen = codebert_with(FIM, tmp_path / f"tokenizer-{is_special}", is_special=is_special)
        for with_text in (True, False):
            out = tmp_path / f"{is_special}-{with_text}"
            more = {"split": SplitConfig(shares="100/0/0"), "output": OutputConfig(with_text=with_text)}
            make(project, out, **settings(chosen, rate=1.0, window={"end_token": "none"}, **more))
            assert failed_checks(out, project) == {}
            fim = files_table(out)["sentinels.py"]["fim"]
            # In rows with a `text` column, a trainer that tokenizes the text would find these sentinels. Without
            # this column, rows contain no sentinels from the source, so the file can be rewritten.
            assert fim["missing"] == ("spells_control_token" if with_text else None)
            if with_text:
                reference = Tokenizer.from_file(str(tmp_path / f"tokenizer-{is_special}/tokenizer.json"))
                for row in (row for row in rows_of(out) if row["fim"]):
                    assert reference.encode(row["text"], add_special_tokens=False).ids == row["input_ids"][1:]


def test_repository_rows_work_with_a_tokenizer_that_does_not_reproduce_all_texts(tmp_path):
    """A text that the tokenizer does not reproduce is not rewritten. `check` does not verify the import order."""
    code = "".join(f"def part_{number}(value):\n    return value + {number}\n" for number in range(60))
    files = {f"{name}.py": f"import {name}x\n" + code.replace("part", name) for name in "abcdefgh"}
    source = write_tree(tmp_path / "project", files | {"odd.py": code + 'print("?!")\n'})
    tree = json.loads(unigram())
    first, flags = len(tree["model"]["vocab"]), dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    names = (*FIM, "<repo_name>", "<file_sep>", END_NAME)
    tree["added_tokens"] += [
        {"id": first + at, "content": name, "special": True, **flags} for at, name in enumerate(names)
    ]
    write_tree(tmp_path / "tokenizer", {"tokenizer.json": json.dumps(tree)})
    chosen = TokenizerConfig(name=str(tmp_path / "tokenizer"))
    more = {"duplicates": DuplicatesConfig(near="keep"), "split": SplitConfig(shares="100/0/0")}
    make(source, tmp_path / "out", **settings(chosen, 1.0, "repo", window={"repo_order": "imports"}, **more))
    assert failed_checks(tmp_path / "out", source) == {}
    assert open_dataset(tmp_path / "out").manifest.fim.rewritten == len(files)
    assert files_table(tmp_path / "out")["odd.py"]["fim"]["missing"] == "text_not_given_back"


def test_tokenizer_that_adds_a_space_before_texts_is_supported(source, tmp_path):
    tree = json.loads(sentence_piece_bpe())
    first, flags = len(tree["model"]["vocab"]), dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    tree["added_tokens"] += [
        {"id": first + at, "content": name, "special": True, **flags} for at, name in enumerate(FIM)
    ]
    write_tree(tmp_path / "tokenizer", {"tokenizer.json": json.dumps(tree)})
    chosen = settings(TokenizerConfig(name=str(tmp_path / "tokenizer")), rate=1.0)
    make(source, tmp_path / "out", **chosen)
    assert failed_checks(tmp_path / "out", source) == {}
    token_by_id = {index: token for token, index in tree["model"]["vocab"].items()}
    rows = [row for row in rows_of(tmp_path / "out") if row["fim"]]
    assert len(rows) > 50
    special = set(open_dataset(tmp_path / "out").manifest.tokenizer.closing)
    for row in rows:
        ids = [one for one in row["input_ids"] if one not in special]
        ids = ids[ids.index(first) :]
        suffix, middle = ids.index(first + 2), ids.index(first + 1)
        words = (token_by_id[index] for index in (*ids[1:suffix], *ids[middle + 1 :], *ids[suffix + 1 : middle]))
        text = b"".join(bytes.fromhex(word[3:-1]) if word.startswith("<0x") else word.encode() for word in words)
        assert text.replace("▁".encode(), b" ") in (source / row["path"]).read_bytes()
    with pytest.raises(ConfigError, match="--with-text cannot be combined with --fim"):
        make(source, tmp_path / "out", output=OutputConfig(with_text=True), **chosen)


# Sentinels, end token and share of suffix-prefix-middle (SPM) windows in different model families.


@pytest.mark.parametrize(("name", "end", "spm"), [("qwen2_5", "<|endoftext|>", 0.0), ("qwen3", "<|endoftext|>", 0.0)])
def test_qwen_uses_its_own_sentinels_without_spm(name, end, spm, source, tmp_path):
    if not tokenizer_path(name).exists():
        pytest.skip(f"the tokenizer {name} was not fetched")
    write_tree(tmp_path / "tokenizer", {"tokenizer.json": tokenizer_path(name).read_text()})
    chosen = TokenizerConfig(name=str(tmp_path / "tokenizer"))
    make(source, tmp_path / "out", **settings(chosen, rate=1.0, pack="best-fit"))
    assert failed_checks(tmp_path / "out", source) == {}
    dataset = open_dataset(tmp_path / "out")
    definition = dataset.tokenizer.definition
    frame = fim_frame(WindowConfig(special_tokens="documents"), definition)
    assert frame.spm_share == spm
    assert dataset.manifest.fim.forms["spm"] == 0
    sentinels = ("<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>")
    assert (frame.prefix, frame.middle, frame.suffix) == tuple(map(definition.id_of, sentinels))
    for row in dataset["train"]:
        for one in row["segments"]:
            if one["fim"]:
                ids = row["input_ids"][one["at"] : one["at"] + one["length"] + 1]
                assert (ids[0], ids[-1]) == (frame.prefix, definition.id_of(end))


def test_code_llama_middle_ends_with_the_eot_token(source, tmp_path):
    tree = json.loads(byte_level())
    names = ("</s>", "▁<PRE>", "▁<MID>", "▁<SUF>", "▁<EOT>")
    ids = range(1000, 1005)
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    tree["added_tokens"] = [
        {"id": index, "content": name, "special": True, **flags} for index, name in zip(ids, names, strict=True)
    ]
    config = {"eos_token": "</s>"}
    write_tree(
        tmp_path / "tokenizer", {"tokenizer.json": json.dumps(tree), "tokenizer_config.json": json.dumps(config)}
    )
    chosen = TokenizerConfig(name=str(tmp_path / "tokenizer"))
    make(source, tmp_path / "out", **settings(chosen, rate=1.0))
    assert failed_checks(tmp_path / "out", source) == {}
    rows = rows_of(tmp_path / "out")
    assert {row["input_ids"][-1] for row in rows if row["fim"]} == {1004}
    assert {"psm", "spm"} == {row["fim"] for row in rows if row["fim"]}


# Command line.


def test_tokenizer_without_sentinels_is_refused_before_any_work(source, tmp_path):
    code, line = refusal(called("build", source, "--out", tmp_path / "out", "--fim", "0.5"))
    assert code == 2
    assert "'codebert' has no fill-in-the-middle tokens" in line
    assert not (tmp_path / "out.work/prepared").exists() or not any((tmp_path / "out.work/prepared").iterdir())


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["--fim", "2"], "fim.rate must be from 0 to 1"),
        (["--fim-spm", "-1"], "fim.spm must be from 0 to 1"),
        (["--fim-middles", "sintax"], "Did you mean 'syntax'"),
        (["--fim-middles", "lines=many"], "KIND=SHARE"),
        (["--fim-middles", "lines=0"], "must have at least one share above 0"),
        (["--fim-max-middle", "0"], "at least 1"),
        (["--variants", "fim"], "Try --fim 0.5"),
    ],
)
def test_invalid_settings_are_refused_in_one_line(words, part, source, tmp_path):
    code, line = refusal(called("build", source, "--out", tmp_path / "out", *words))
    assert code == 2
    assert part in line


def test_summary_explain_and_show_describe_rewritten_windows(source, tokenizer, tmp_path):
    words = ["--tokenizer", tokenizer.name, "--preset", "fim", "--pack", "none", "--window", 256, "--fim", 1]
    done = called("build", source, "--out", tmp_path / "out", *words)
    assert done.returncode == 0, done.stderr
    assert re.search(
        r"fim +rate 1: \d+ of \d+ chosen train files rewritten, in \d+ windows \(\d+ psm, \d+ spm\)", done.stdout
    )
    number, row = next((number, row) for number, row in enumerate(rows_of(tmp_path / "out")) if row["fim"])
    explained = called("explain", tmp_path / "out", row["path"]).stdout
    assert re.search(r"fim +\d+ windows? rewritten for fill-in-the-middle, seed \d+", explained)
    printed = called("show", tmp_path / "out", "--row", number).stdout
    assert "the middle that the model fills in" in " ".join(printed.split())
    assert printed.count("▸") == 2
