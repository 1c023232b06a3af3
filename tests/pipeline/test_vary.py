"""A build marks the rows of variants of train files, and files.jsonl gives a reason for each missing variant."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter

import msgspec
import pytest

from gristmill import (
    Config,
    ConfigError,
    DuplicatesConfig,
    OutputConfig,
    OutputError,
    RewriteConfig,
    RunConfig,
    SamplingConfig,
    SplitConfig,
    TokenizerConfig,
    VariantsConfig,
    build,
    check,
    open_dataset,
)
from gristmill.checks.rebuild import compare_with_clean_build
from gristmill.cli.parsers import parse_settings, parser_for
from gristmill.config.config import load_config
from gristmill.core.records import VariantKind
from gristmill.pipeline.separate_steps import Shard, decide_all, finish_all, prepare_shard, shape_shard
from gristmill.variants.kinds import MAKERS
from support.builds import called, everything, files_table, in_a_process, make, refusal
from support.chat_server import PARENT, ChatServer, answers_with, fails
from support.codebert_with import FIM, codebert_with
from support.made_code import made_module
from support.trained_tokenizers import unigram, word_piece

ALL = {"rename": 1.0, "comments": 1.0, "format": 1.0, "noise": 1.0}


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    return codebert_with(FIM, tmp_path_factory.mktemp("tokenizer") / "with-fim")


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """Python modules, and a text in a language without a grammar."""
    folder = tmp_path_factory.mktemp("varied") / "project"
    folder.mkdir()
    for name in (
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
    ):
        (folder / f"{name}.py").write_text(made_module(f"{name}.py", 12_000))
    with (folder / "calendar.py").open("a") as stream:
        stream.write("\n\nclass Calendar:\n    first_weekday = 0\n")
    (folder / "README.md").write_text(
        "\n".join(f"- point {number} of the things to read first" for number in range(80))
    )
    return folder


@pytest.fixture(scope="module")
def few_files(source, tmp_path_factory):
    """Some of the files in `source`, for tests that do not need all of them."""
    folder = tmp_path_factory.mktemp("few") / "project"
    folder.mkdir()
    for name in ("argparse.py", "bisect.py", "calendar.py", "README.md"):
        shutil.copy(source / name, folder)
    return folder


@pytest.fixture(scope="module")
def varied(source, tokenizer, tmp_path_factory):
    out = tmp_path_factory.mktemp("with") / "dataset"
    make(source, out, tokenizer=tokenizer, variants=VariantsConfig(rates=ALL))
    return out


@pytest.fixture(scope="module")
def plain(source, tokenizer, tmp_path_factory):
    out = tmp_path_factory.mktemp("without") / "dataset"
    make(source, out, tokenizer=tokenizer)
    return out


def rows_of(out, split="train"):
    return list(open_dataset(out)[split])


def test_variants_follow_their_train_file(varied, plain):
    table = files_table(varied)
    for split in ("validation", "test"):
        assert {(row["variant"], row["variant_seed"]) for row in rows_of(varied, split)} == {("", 0)}
        without_variant_columns = [
            {name: row[name] for name in row if name not in {"variant", "variant_seed", "labels"}}
            for row in rows_of(varied, split)
        ]
        assert without_variant_columns == rows_of(plain, split)
    original_rows = [row for row in rows_of(varied) if not row["variant"]]
    assert [row["input_ids"] for row in original_rows] == [row["input_ids"] for row in rows_of(plain)]
    order = ["rename", "comments", "format", "rewrite", "noise"]
    positions = [(row["path"], order.index(row["variant"]) if row["variant"] else -1) for row in rows_of(varied)]
    assert positions == sorted(positions)
    for row in rows_of(varied):
        if row["variant"]:
            (recorded,) = [one for one in table[row["path"]]["variants"] if one["kind"] == row["variant"]]
            assert recorded["seed"] == row["variant_seed"]
            assert table[row["path"]]["split"] == "train"
    made = Counter(row["variant"] for row in rows_of(varied) if row["variant"])
    assert set(made) == set(ALL)


def test_manifest_counts_variants_and_epochs(varied):
    manifest = open_dataset(varied).manifest
    train = rows_of(varied)
    for kind, facts in manifest.variants.items():
        assert facts.windows == sum(row["variant"] == kind for row in train)
        assert facts.made + sum(facts.missing.values()) == facts.chosen
    assert manifest.splits["train"].windows == len(train)
    assert manifest.epochs.shown == 1
    assert manifest.epochs.varied > 2
    assert manifest.epochs.effective == pytest.approx(1 + 0.6 * manifest.epochs.varied, abs=1e-5)
    assert manifest.epochs.most >= manifest.epochs.effective
    assert manifest.variants["rename"].missing["language_not_known"] == 1 or "README.md" not in {
        row["path"] for row in train
    }


def test_check_passes_with_variants(source, varied, tmp_path):
    report = check(shutil.copytree(varied, tmp_path / "copy"), [str(source)])
    assert report.ok, report
    (verdict,) = [one for one in report.checks if one.name == "variants"]
    assert verdict.status == "ok"


def test_load_dataset_reads_variants(varied, tmp_path, monkeypatch):
    import datasets

    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    loaded = datasets.load_dataset(str(varied), cache_dir=str(tmp_path))
    assert loaded["train"].num_rows == len(rows_of(varied))
    assert loaded["train"].features["variant"].dtype == "string"
    # load_dataset infers types from the first rows, so a null in these rows would break later rows.
    assert not any(None in row.values() for split in open_dataset(varied) for row in rows_of(varied, split))


def test_noise_changes_ids_but_not_labels(varied):
    train = rows_of(varied)
    original_ids = {(row["path"], row["start"]): row["input_ids"] for row in train if not row["variant"]}
    noisy = [row for row in train if row["variant"] == "noise"]
    assert noisy
    for row in train:
        assert (row["labels"] == row["input_ids"]) == (row["variant"] != "noise")
    for row in noisy:
        assert row["labels"] == original_ids[row["path"], row["start"]]
        assert row["input_ids"] != row["labels"]
        assert (row["input_ids"][0], row["input_ids"][-1]) == (0, 2)
        assert 50_264 in row["input_ids"]


def test_variants_are_different_texts_that_can_be_parsed(varied, source):
    import ast

    tokenizer, table = open_dataset(varied).tokenizer, files_table(varied)
    for kind in ("rename", "comments", "format"):
        texts = {}
        for row in rows_of(varied):
            if row["variant"] == kind:
                texts.setdefault(row["path"], []).extend(row["input_ids"][1:-1][-row["fresh"] :])
        complete = [
            path for path in texts if not next(v for v in table[path]["variants"] if v["kind"] == kind)["own_windows"]
        ]
        assert complete
        for path in complete:
            text = tokenizer.decode(texts[path])
            assert text != (source / path).read_bytes()
            ast.parse(text)


def test_variants_depend_on_the_seed_but_not_on_workers_or_earlier_builds(source, tokenizer, varied, tmp_path):
    for name, seed, workers in (("three", 0, 3), ("other", 1, 1)):
        variants = VariantsConfig(rates=ALL, seed=seed)
        make(source, tmp_path / name, tokenizer=tokenizer, variants=variants, run=RunConfig(workers=workers))
    assert everything(tmp_path / "three") == everything(varied)
    assert everything(tmp_path / "other")[0]["train.jsonl"] != everything(varied)[0]["train.jsonl"]
    make(source, tmp_path / "three", tokenizer=tokenizer, split=SplitConfig(fresh=True))
    make(
        source,
        tmp_path / "three",
        tokenizer=tokenizer,
        variants=VariantsConfig(rates=ALL),
        split=SplitConfig(fresh=True),
    )
    assert everything(tmp_path / "three")[0] == everything(varied)[0]


def test_rate_is_a_share_of_the_files(source, tmp_path):
    manifest = make(source, tmp_path / "out", variants=VariantsConfig(rates={"noise": 0.4}))
    facts = manifest.variants["noise"]
    assert 0 < facts.chosen < manifest.splits["train"].files
    assert make(source, tmp_path / "none", variants=VariantsConfig(rates={"noise": 0.0})).variants == {}


@pytest.mark.parametrize("setting", [{"noise_mask": 0.6, "seed": 9}, {"noise_span": 9.0}, {"noise_delete": 0.4}])
def test_changed_setting_replaces_earlier_variants(few_files, tmp_path, setting):
    first = VariantsConfig(rates={"noise": 1.0})
    second = VariantsConfig(rates={"noise": 1.0}, **setting)
    split, found = SplitConfig(fresh=True, shares="100/0/0"), []
    for out, variants in (("one", first), ("one", second), ("two", second)):
        make(few_files, tmp_path / out, variants=variants, split=split)
        found.append(everything(tmp_path / out)[0])
    assert found[0] != found[1]
    assert found[1] == found[2]


@pytest.mark.parametrize(
    "output", [{"with_text": True}, {"pad": True}, {"pad": True, "with_text": True, "compress": "zstd"}]
)
def test_check_passes_with_optional_columns(source, tokenizer, tmp_path, output):
    make(
        source, tmp_path / "out", tokenizer=tokenizer, variants=VariantsConfig(rates=ALL), output=OutputConfig(**output)
    )
    report = check(tmp_path / "out", [str(source)])
    assert report.ok, report
    if "pad" in output:
        lengths = {(len(row["input_ids"]), len(row["labels"])) for row in rows_of(tmp_path / "out")}
        assert lengths == {(512, 512)}


@pytest.mark.parametrize("made", [word_piece, unigram])
def test_variants_work_with_tokenizers_that_do_not_reproduce_the_text(source, tmp_path, made):
    (tmp_path / "tokenizer.json").write_text(made())
    tokenizer = TokenizerConfig(name=str(tmp_path / "tokenizer.json"))
    rates = {"rename": 1.0, "noise": 1.0}
    manifest = make(source, tmp_path / "out", tokenizer=tokenizer, variants=VariantsConfig(rates=rates))
    assert manifest.variants["rename"].made > 3
    assert check(tmp_path / "out", [str(source)]).ok


def test_padded_rows_have_padded_labels(varied):
    row = next(iter(open_dataset(varied)["train"].padded()))
    assert len(row["labels"]) == len(row["input_ids"]) == 512


def test_realized_share_includes_variants(source, tmp_path):
    sampling = SamplingConfig(weights={"**/a*.py": 3.0})
    manifest = make(source, tmp_path / "out", sampling=sampling, variants=VariantsConfig(rates={"rename": 1.0}))
    counts = Counter()
    for row in rows_of(tmp_path / "out"):
        counts[row["path"].startswith("a")] += len(row["input_ids"]) - 2
    assert manifest.sampling.groups[0].realised_share == pytest.approx(counts[True] / counts.total(), abs=1e-6)


@pytest.mark.parametrize("sampling", [SamplingConfig(), SamplingConfig(max_windows=60), SamplingConfig(preset="code")])
def test_no_variant_row_equals_a_row_of_its_file(source, tmp_path, sampling):
    """Windows of passages that a variant did not change are left out."""
    rates = {"rename": 1.0, "comments": 1.0, "format": 1.0}
    make(source, tmp_path / "out", sampling=sampling, variants=VariantsConfig(rates=rates))
    rows = rows_of(tmp_path / "out")
    original_rows = {(row["path"], row["start"], tuple(row["input_ids"])) for row in rows if not row["variant"]}
    varied = [row for row in rows if row["variant"]]
    assert varied
    assert not [row["path"] for row in varied if (row["path"], row["start"], tuple(row["input_ids"])) in original_rows]
    left_out = [
        one for file in files_table(tmp_path / "out").values() for one in file["variants"] if one["own_windows"]
    ]
    assert left_out
    assert check(tmp_path / "out", [str(source)]).ok


def test_sample_contains_variants_in_proportion_to_their_files(source, tmp_path):
    sampling = SamplingConfig(max_windows=60)
    manifest = make(source, tmp_path / "out", sampling=sampling, variants=VariantsConfig(rates={"rename": 1.0}))
    num_original = sum(not row["variant"] for row in rows_of(tmp_path / "out"))
    assert 0.5 * num_original < manifest.variants["rename"].windows < 1.5 * num_original
    assert check(tmp_path / "out", [str(source)]).ok


CODE = "\n".join(f"total_{number} = first_{number} * second_{number} + {number}" for number in range(12))
WITH_COMMENTS = "\n".join(
    f"{line}  # because of rule {number}, see there" for number, line in enumerate(CODE.split("\n"))
)


def test_variant_that_shares_a_span_with_a_held_out_file_is_not_made(tmp_path):
    """Comments interrupt the code that two files share. A variant without comments would contain the held-out code."""
    folder = tmp_path / "project"
    folder.mkdir()
    splits = []
    for number in range(16):
        (folder / f"train_{number}.py").write_text(
            f"begin_{number}()\n{WITH_COMMENTS}\nend_of_{number}(number={number})\n".replace("total", f"sum{number}")
        )
        splits.append({"repo": "project", "path": f"train_{number}.py", "split": "train"})
    (folder / "shared.py").write_text(f"start_here()\n{WITH_COMMENTS}\nfinish_there()\n")
    (folder / "held_out.py").write_text(f"import nothing\n{CODE}\nnothing.more()\n")
    splits += [
        {"repo": "project", "path": "shared.py", "split": "train"},
        {"repo": "project", "path": "held_out.py", "split": "test"},
    ]
    (tmp_path / "splits.jsonl").write_text("".join(json.dumps(row) + "\n" for row in splits))
    statuses = set()
    for seed in range(5):
        out = tmp_path / f"out-{seed}"
        split = SplitConfig(previous=str(tmp_path / "splits.jsonl"))
        make(folder, out, split=split, variants=VariantsConfig(rates={"comments": 1.0}, seed=seed))
        (recorded,) = files_table(out)["shared.py"]["variants"]
        statuses.add(recorded["missing"])
        assert check(out, [str(folder)]).ok
    assert "shares_span" in statuses


def test_variant_equal_to_another_file_is_not_made(tmp_path):
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "bare.py").write_text(CODE + "\n")
    (folder / "commented.py").write_text(WITH_COMMENTS + "\n")
    config = {"split": SplitConfig(shares="100/0/0"), "duplicates": DuplicatesConfig(near="keep")}
    statuses = set()
    for seed in range(6):
        make(folder, tmp_path / f"{seed}", **config, variants=VariantsConfig(rates={"comments": 1.0}, seed=seed))
        (recorded,) = files_table(tmp_path / f"{seed}")["commented.py"]["variants"]
        statuses.add(recorded["missing"])
    assert "duplicate" in statuses


def test_file_with_cuts_has_no_variants(source, tmp_path):
    benchmark = tmp_path / "benchmark.txt"
    benchmark.write_bytes((source / "heapq.py").read_bytes()[3000:6000])
    split = SplitConfig(against=[str(benchmark)], shares="100/0/0")
    make(source, tmp_path / "out", split=split, variants=VariantsConfig(rates={"rename": 1.0, "noise": 1.0}))
    row = files_table(tmp_path / "out")["heapq.py"]
    assert [one["missing"] for one in row["variants"]] == ["file_was_cut", "file_was_cut"]
    assert check(tmp_path / "out", [str(source)]).ok


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["--variants", "renam"], "Did you mean 'rename'"),
        (["--variants", "fim"], "fill-in-the-middle is not a variant"),
        (["--variants", "rename=2"], "from 0 to 1"),
        (["--variants", "rename=many"], "KIND=RATE"),
        (["--variants", "rename", "--variant-seed", str(1 << 64)], "at most"),
        (["--max-windows", "9", "--sample-seed", str(-(1 << 70))], "at least"),
        (["--variants", "rewrite"], "--rewrite-endpoint"),
        (["--variants", "paraphrase"], "--rewrite-endpoint"),
        (["--variants", "backtranslation"], "Did you mean 'back-translation'"),
        (["--variants", "paraphrase,back-translation"], "a build can use only one of the two"),
        (["--variants", "rewrite", "--rewrite-context", "0"], "rewrite.context_tokens must be at least 1, got 0"),
        (
            ["--variants", "rewrite", "--rewrite-endpoint", "http://localhost:1/v1", "--secrets", "keep"],
            "only redacted texts",
        ),
        (["--variants", "rewrite", "--rewrite-endpoint", "ftp://x"], "http"),
    ],
)
def test_invalid_options_are_refused_in_one_line(source, tmp_path, words, part):
    code, line = refusal(called("build", source, "--out", tmp_path / "out", *words))
    assert code == 2
    assert part in line


def test_missing_grammars_give_the_install_command(source, tmp_path):
    script = f"""
import sys
sys.modules["tree_sitter_rust"] = None
from gristmill.cli.main import main
sys.argv = ["gristmill", "build", {str(source)!r}, "--out", {str(tmp_path / "out")!r}, "--variants", "rename"]
sys.exit(main())
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    code, line = refusal(done)
    assert code == 2
    assert "pip install 'gristmill[variants]'" in line


def test_explain_lists_the_variants_of_a_file(varied):
    path = next(row["path"] for row in rows_of(varied) if row["variant"] == "rename")
    explained = called("explain", varied, path).stdout
    assert re.search(r"variants rename +\d+ windows, [\d,]+ tokens, seed \d+", explained)
    held_out = rows_of(varied, "test")[0]["path"]
    assert "variants none: only train files have variants" in called("explain", varied, held_out).stdout
    number = next(number for number, row in enumerate(rows_of(varied)) if row["variant"] == "noise")
    assert called("explain", varied, "--row", f"train:{number}").stdout.rstrip().endswith(", noise")


def test_manual_steps_give_the_same_dataset_as_a_build(source, tokenizer, varied, tmp_path):
    config = Config(
        sources=[str(source)], out=str(tmp_path / "out"), tokenizer=tokenizer, variants=VariantsConfig(rates=ALL)
    )
    prepare_shard(config, Shard(1, 1))
    decide_all(config)
    for number in (1, 2):
        shape_shard(config, Shard(number, 2))
    finish_all(config)
    assert everything(tmp_path / "out") == everything(varied)


def build_dying_at_a_variant(config):
    def renamed(file, settings, rng):
        return os._exit(9) if b"class Calendar" in file.text else file.text + b"# other\n"

    MAKERS[VariantKind.RENAME] = renamed
    build(config)


@pytest.mark.parametrize("workers", [1, 2])
def test_file_that_kills_workers_is_named_or_has_no_variant(source, tmp_path, workers):
    config = Config(
        sources=[str(source)],
        out=str(tmp_path / "out"),
        variants=VariantsConfig(rates={"rename": 1.0}),
        split=SplitConfig(shares="100/0/0"),
        run=RunConfig(workers=workers),
    )
    with pytest.raises(OutputError, match=r"project/calendar.py could not be varied: its worker died"):
        in_a_process(build_dying_at_a_variant, config)
    run = RunConfig(workers=workers, skip_failed=True)
    in_a_process(build_dying_at_a_variant, msgspec.structs.replace(config, run=run))
    manifest = open_dataset(tmp_path / "out").manifest
    assert manifest.variants["rename"].missing == {"failed": 1, "language_not_known": 1}
    assert manifest.variants["rename"].made == manifest.splits["train"].files - 2
    (recorded,) = files_table(tmp_path / "out")["calendar.py"]["variants"]
    assert recorded["missing"] == "failed"


def rewrite_config(folder, out, server, **more):
    return Config(
        sources=[str(folder)],
        out=str(out),
        split=SplitConfig(shares="100/0/0"),
        duplicates=DuplicatesConfig(near="keep"),
        variants=VariantsConfig(rates={"rewrite": 1.0}),
        rewrite=RewriteConfig(endpoint=server.url, model="small", retries=0, timeout_seconds=5, **more),
    )


@pytest.mark.parametrize("way", ["paraphrase", "back_translation"])
def test_language_model_receives_each_redacted_text_once(tmp_path, way):
    folder = tmp_path / "project"
    folder.mkdir()
    secret = "ghp_" + "x7Kq2mVb9TzR4wLcN8sPfY1hDjG5aEuB3oQ6"
    names = ("round", "square", "silent", "same", "broken")
    for name in names:
        (folder / f"{name}.py").write_text(f"KEY = {secret!r}\n" + PARENT.format(name=name))
    script = {
        "silent": [fails(400)],
        "broken": [answers_with("```python\ndef area_broken(:\n    return (((\n    pass pass\n```")],
    }
    with ChatServer(script if way == "paraphrase" else {}) as server:
        config = rewrite_config(folder, tmp_path / "out", server, way=way)
        facts = build(config).variants["rewrite"]
        assert server.num_asked == len(names) * (1 if way == "paraphrase" else 2)
        assert secret not in json.dumps(server.prompts())
        assert "<SECRET:" in server.prompts()[0]
        first = everything(tmp_path / "out")
        build(config)
        again = 1 if way == "paraphrase" else 0  # a request without an answer is sent again
        assert server.num_asked == len(names) * (1 if way == "paraphrase" else 2) + again
    assert facts.chosen == len(names)
    if way == "paraphrase":
        assert facts.missing == {"answer_refused": 1, "no_answer": 1}
    else:
        assert facts.made == len(names)
        assert everything(tmp_path / "out")[0] == first[0]
        assert compare_with_clean_build(tmp_path / "out") == []
    assert open_dataset(tmp_path / "out").manifest.variants["rewrite"].model == "small"
    rows = [row for row in rows_of(tmp_path / "out") if row["variant"] == "rewrite"]
    text = open_dataset(tmp_path / "out").tokenizer.decode(rows[0]["input_ids"][1:-1]).decode()
    assert "height * width" in text
    assert check(tmp_path / "out", [str(folder)]).ok


@pytest.mark.parametrize(
    "act", [answers_with("```python\ndef area_a(:"), answers_with("short", "length"), answers_with("")]
)
def test_unusable_answer_is_not_requested_again(tmp_path, act):
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "a.py").write_text(PARENT.format(name="a"))
    with ChatServer({"a": [act]}) as server:
        config = rewrite_config(folder, tmp_path / "out", server)
        manifest = build(config)
        build(config)
        assert server.num_asked == 1
    assert manifest.variants["rewrite"].missing == {"answer_refused": 1}
    assert not [warning for warning in manifest.warnings if "did not answer" in warning]


def test_text_that_is_too_long_is_not_sent(tmp_path):
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "a.py").write_text(PARENT.format(name="a"))
    (folder / "b.py").write_text(PARENT.format(name="b") + "# one of many words\n" * 500)
    with ChatServer() as server:
        manifest = build(rewrite_config(folder, tmp_path / "out", server, context_tokens=4000))
        assert server.num_asked == 1
    assert manifest.variants["rewrite"].missing == {"text_too_long": 1}
    assert manifest.settings["rewrite"] == {"model": "small", "way": "paraphrase", "context_tokens": 4000}
    (recorded,) = [one["missing"] for one in files_table(tmp_path / "out")["b.py"]["variants"]]
    assert recorded == "text_too_long"
    assert not [warning for warning in manifest.warnings if "did not answer" in warning]
    assert check(tmp_path / "out", [str(folder)]).ok


@pytest.mark.parametrize(
    ("words", "way"), [(["paraphrase=0.25"], "paraphrase"), (["rename,back-translation=0.25"], "back_translation")]
)
def test_variants_option_accepts_the_way_of_rewriting(words, way):
    options = ["src", "--out", "out", *(word for text in words for word in ("--variants", text))]
    _, values = parse_settings(parser_for("build SOURCE", ""), options, "it")
    assert values["variants.rates"]["rewrite"] == 0.25
    assert values["rewrite.way"] == way


def test_build_accepts_only_one_way_of_rewriting():
    options = ["src", "--out", "out", "--variants", "paraphrase,back-translation"]
    with pytest.raises(
        ConfigError, match="--variants names back_translation and paraphrase, but a build can use only one"
    ):
        parse_settings(parser_for("build SOURCE", ""), options, "it")


@pytest.mark.parametrize("name", ["paraphrase", "back-translation"])
def test_way_of_rewriting_is_not_a_variant_in_a_configuration_file(tmp_path, name):
    message = rf'there is no variant \'{name}\'\. Use rewrite, with rewrite.way = "{name.replace("-", "_")}"'
    (tmp_path / "gristmill.toml").write_text(f"[variants.rates]\n{name} = 0.2\n")
    with pytest.raises(ConfigError, match=message):
        load_config({"sources": ["src"], "out": "out"}, tmp_path / "gristmill.toml")
    with pytest.raises(ConfigError, match=message):
        VariantsConfig(rates={name: 0.2})


def test_secret_in_an_answer_of_the_model_is_not_stored(tmp_path):
    secret = "ghp_" + "x7Kq2mVb9TzR4wLcN8sPfY1hDjG5aEuB3oQ6"
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "a.py").write_text(PARENT.format(name="a"))
    recorded = answers_with(f"A function area_a. The token is {secret}.")
    code = answers_with(f"```python\nTOKEN = '{secret}'\ndef area_a(width, height):\n    return height * width\n```")
    with ChatServer({"a": [recorded, code]}) as server:
        build(rewrite_config(folder, tmp_path / "out", server, way="back_translation"))
        assert secret not in json.dumps(server.prompts())
        assert "<SECRET:" in server.prompts()[1]
    for path in tmp_path.rglob("*"):
        assert not path.is_file() or secret.encode() not in path.read_bytes(), path


def test_unused_endpoint_gives_a_warning(source, tmp_path):
    manifest = make(source, tmp_path / "out", rewrite=RewriteConfig(endpoint="http://127.0.0.1:9/v1"))
    assert any("is not used" in warning for warning in manifest.warnings)


def test_unreachable_endpoint_ends_the_build_with_one_line(tmp_path):
    folder = tmp_path / "project"
    folder.mkdir()
    for number in range(25):
        (folder / f"part_{number}.py").write_text(PARENT.format(name=f"n{number}") * 3)
    words = ("--near-duplicates", "keep", "--variants", "rewrite=1", "--rewrite-retries", "0", "--rewrite-model", "m")
    code, line = refusal(
        called("build", folder, "--out", tmp_path / "out", *words, "--rewrite-endpoint", "http://127.0.0.1:9/v1", "-q")
    )
    assert code == 3
    assert "127.0.0.1:9" in line
    assert not (tmp_path / "out").exists()
