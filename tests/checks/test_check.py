"""Valid datasets of every kind pass all checks, and measurements match slow, obvious references."""

import json
import random
import re
import shutil
import string
import sys
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from gristmill import (
    Config,
    DatasetError,
    InputError,
    OutputConfig,
    SplitConfig,
    TokenizerConfig,
    WindowConfig,
    build,
)
from gristmill.checks import data_files, spans
from gristmill.checks.check import CHECKS, check
from gristmill.checks.findings import report_text, value_text
from gristmill.checks.secrets import scan_for_secrets
from gristmill.checks.source_texts import locate_file
from gristmill.checks.windows import Shape, expected_windows
from gristmill.cleaning.secrets import find_secrets, redact
from gristmill.config.settings import DuplicatesConfig, SecretsConfig
from gristmill.core.digits import parse_numbers
from gristmill.core.layout import CARDS
from gristmill.core.records import Cut, Split
from support import trained_tokenizers as made


@pytest.fixture(scope="module")
def source(tmp_path_factory, corpus):
    root = tmp_path_factory.mktemp("checked") / "repo"
    for package in ("json", "importlib/metadata", "concurrent"):
        shutil.copytree(corpus / package, root / package)
    token = "".join(random.Random(1).choices(string.ascii_letters + string.digits, k=36))
    (root / "secret.py").write_text(f"# some settings\nTOKEN = 'ghp_{token}'\nprint('and more of the same')\n")
    (root / "wide.py").write_bytes(
        b"\xff\xfe" + ("# grüße 😀😀 überall\nprint('hello, world')\n" * 40).encode("utf-16-le")
    )
    (root / "latin.py").write_bytes("# größe über alles in der Welt\nx = 'straße'\n".encode("latin-1") * 20)
    (root / "emoji.md").write_text("Text mit 😀😀 und 中文字符 überall, " * 300)
    (root / r"odd\name é.py").write_text("def function_in_an_odd_place(argument):\n    return argument + 1\n" * 5)
    cells = [
        {"cell_type": "markdown", "source": ["# Title\n", "some text in a cell"]},
        {"cell_type": "code", "source": "import os\n\nprint(os.getcwd(), os.listdir('.'))\n", "outputs": []},
        {"cell_type": "raw", "source": "left out"},
    ]
    (root / "notes.ipynb").write_text(json.dumps({"cells": cells, "metadata": {}, "nbformat": 4}))
    (root / "empty.py").write_text("")
    return root


def _failed_checks(report):
    return {one.name: one.examples for one in report.checks if one.status == "failed"}


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"output": OutputConfig(pad=True, with_text=True)},
        {"output": OutputConfig(with_text=True, compress="zstd")},
        {"output": OutputConfig(compress="zstd", shard_bytes=200_000)},
        {"output": OutputConfig(shard_bytes=100_000)},
        {"window": WindowConfig(tail="shift")},
        {"window": WindowConfig(tail="drop", length=64, overlap=7)},
        {"window": WindowConfig(length=100, overlap=0)},
        {"window": WindowConfig(length=40, overlap=37, tail="shift")},
        {"split": SplitConfig(decontaminate="drop"), "window": WindowConfig(tail="drop")},
        {"split": SplitConfig(decontaminate="train"), "window": WindowConfig(tail="shift")},
        {"split": SplitConfig(decontaminate="off")},
        {"split": SplitConfig(shares="100/0/0")},
        {"split": SplitConfig(shares="0/50/50")},
        {"secrets": SecretsConfig(action="keep")},
        {"secrets": SecretsConfig(action="drop", emails=True)},
    ],
    ids=str,
)
def test_valid_dataset_passes(source, tmp_path, changed):
    build(Config(sources=[str(source)], out=str(tmp_path / "out"), **changed))
    report = check(tmp_path / "out", [str(source)], workers=1)
    assert _failed_checks(report) == {}
    assert report.ok
    assert report["source"].summary.split()[0] == report["source"].summary.split()[2]


CELLS = (
    {
        "cell_type": "markdown",
        "source": ["# Half a pair \\ud83d", "\\ude00 in each string, a whole one 😀 \\ud83d\\ude00\n"],
    },
    {"cell_type": "code", "source": ["import os\n", "print(os.getcwd(), 'and more of the same')\n"], "outputs": []},
)
UNUSUAL_METADATA = (
    {"kernelspec": None},
    {"kernelspec": "python"},
    [1],
    None,
    "python",
    {"language_info": {"name": 5}},
    {"language_info": {"name": "C++17"}},
    {"kernelspec": {"language": None}, "language_info": {"name": "rust"}},
)


def test_notebooks_with_unusual_metadata_pass(source, tmp_path):
    root = tmp_path / "repo"
    for number, metadata in enumerate(UNUSUAL_METADATA):
        cells = [*CELLS, {"cell_type": "code", "source": f"value_{number} = {number} * {list(range(number * 20))}"}]
        content = json.dumps({"cells": cells, "metadata": metadata, "number": 0}, ensure_ascii=False)
        path = root / f"{number}.ipynb"
        path.parent.mkdir(exist_ok=True)
        path.write_text(content.replace("\\\\u", "\\u").replace('"number": 0', f'"number": {"9" * 5000}'))
    settings = {"duplicates": DuplicatesConfig(near="keep"), "split": SplitConfig(decontaminate="off")}
    build(Config(sources=[str(root)], out=str(tmp_path / "out"), **settings))
    report = check(tmp_path / "out", [str(root)], workers=1)
    assert _failed_checks(report) == {}
    assert report["source"].summary == f"{len(UNUSUAL_METADATA)} of {len(UNUSUAL_METADATA)} files compared"


@pytest.mark.parametrize(
    "kind", [made.byte_level, made.sentence_piece_bpe, made.unigram, made.word_piece, made.word_piece_on_spaces]
)
def test_datasets_of_other_tokenizers_pass(source, tmp_path, kind):
    """Some of these tokenizers have no special tokens, and some do not decode to the original text."""
    (tmp_path / "tokenizer.json").write_text(kind())
    tokenizer = TokenizerConfig(name=str(tmp_path / "tokenizer.json"))
    output = OutputConfig(with_text=kind in {made.byte_level, made.sentence_piece_bpe})
    build(Config(sources=[str(source)], out=str(tmp_path / "out"), tokenizer=tokenizer, output=output))
    report = check(tmp_path / "out", [str(source)], workers=1)
    assert _failed_checks(report) == {}
    assert (report["secrets"].status == "ok") == (kind in {made.byte_level, made.sentence_piece_bpe})


@pytest.fixture
def changed_by_nfc(tmp_path):
    """Build a dataset with a tokenizer that normalizes to NFC. Of its 21 files, 19 are not in NFC."""
    changed = ["e\u0301", "\u212a", "\u1112\u1161\u11ab", "a\u0316\u0301", "a\u0301\u0316", "x\u0302"]
    (tmp_path / "repo").mkdir()
    (tmp_path / "repo/plain.py").write_text("label = 'é and others'\n" * 9)
    (tmp_path / "repo/ascii.py").write_text("label = 'only ASCII in this file'\n" * 9)
    for number in range(19):
        text = "".join(random.Random(number).choices([*changed, "é", "word", "\n", " "], k=400))
        (tmp_path / f"repo/{number}.py").write_text(f"value = '{text}'\n")
    (tmp_path / "tokenizer.json").write_text(made.byte_level(nfc=True))
    settings = {
        "tokenizer": TokenizerConfig(name=str(tmp_path / "tokenizer.json")),
        "output": OutputConfig(with_text=True),
        "window": WindowConfig(length=24, overlap=6, pack="none"),
        "split": SplitConfig(shares="100/0/0"),
        "duplicates": DuplicatesConfig(near="keep"),
    }
    build(Config(sources=[str(tmp_path / "repo")], out=str(tmp_path / "out"), **settings))
    return tmp_path


def test_text_that_the_tokenizer_normalizes_is_compared_with_the_source(changed_by_nfc):
    report = check(changed_by_nfc / "out", [str(changed_by_nfc / "repo")], workers=1)
    assert _failed_checks(report) == {}
    assert report["source"].summary == "21 of 21 files compared"
    report = check(changed_by_nfc / "out", workers=1)
    assert _failed_checks(report) == {}
    assert "so 19 texts can only be compared with the source" in report["source"].summary


@pytest.mark.parametrize(
    ("name", "failed"),
    [("plain.py", {"schema", "source"}), ("ascii.py", {"ids", "schema", "source"}), ("3.py", {"source"})],
)
def test_wrong_id_of_a_tokenizer_that_normalizes_is_reported(changed_by_nfc, name, failed):
    path = changed_by_nfc / "out/train.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    row = next(row for row in rows if row["path"] == name)
    tokenizer = Tokenizer.from_file(str(changed_by_nfc / "tokenizer.json"))
    row["input_ids"][0] = max(tokenizer.get_vocab().items(), key=lambda one: len(one[0]) * one[0].isalpha())[1]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    assert failed <= set(_failed_checks(check(changed_by_nfc / "out", [str(changed_by_nfc / "repo")], workers=1)))
    assert (failed - {"source"}) <= set(_failed_checks(check(changed_by_nfc / "out", workers=1)))


def test_text_column_is_scanned_if_ids_do_not_decode_to_the_text(source, tmp_path):
    (tmp_path / "tokenizer.json").write_text(made.unigram())
    settings = {
        "tokenizer": TokenizerConfig(name=str(tmp_path / "tokenizer.json")),
        "output": OutputConfig(with_text=True),
    }
    build(Config(sources=[str(source)], out=str(tmp_path / "out"), **settings))
    report = check(tmp_path / "out", workers=1)
    assert _failed_checks(report) == {}
    assert report["secrets"].status == "ok"
    path = tmp_path / "out" / "train.jsonl"
    rows = path.read_text().splitlines()
    number = next(number for number, row in enumerate(rows) if "SECRET:github-token" in row)
    token = "".join(random.Random(2).choices(string.ascii_letters + string.digits, k=36))
    rows[number] = rows[number].replace("<SECRET:github-token>", f"ghp_{token}")
    path.write_text("\n".join(rows) + "\n")
    report = check(tmp_path / "out", workers=1)
    assert f"train.jsonl row {number + 1} (repo/secret.py): github-token in line 2" in report["secrets"].examples
    assert token not in (tmp_path / "out" / "check.json").read_text()


def test_report_lists_all_checks_and_is_written(built, tmp_path):
    folder = shutil.copytree(built[0], tmp_path / "copy")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    report = check(folder)
    assert [one.name for one in report.checks] == list(CHECKS)
    written = json.loads((folder / "check.json").read_text())
    assert written["ok"] is True
    assert written["fingerprint"] == built[1].fingerprint
    assert {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "check.json"} == before
    text = report_text(report)
    assert "no check failed" in text
    assert all(re.search(rf"^{name} +(ok|reported|skipped)", text, re.MULTILINE) for name in CHECKS)
    assert check(folder).ok


def test_redaction_in_wrong_line_is_reported(source, tmp_path):
    build(Config(sources=[str(source)], out=str(tmp_path / "out")))
    path = tmp_path / "out" / "files.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    redacted = next(row for row in rows if row["redactions"])
    for line, name, message in ((3, "source", "the list of redacted lines"), (99, "files_table", "redactions")):
        redacted["redactions"][0]["line"] = line
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        failed = _failed_checks(check(tmp_path / "out", [str(source)], workers=1))
        assert any(message in example for example in failed[name])


def test_leaking_files_are_listed(source, tmp_path):
    build(Config(sources=[str(source)], out=str(tmp_path / "out"), split=SplitConfig(decontaminate="off")))
    report = check(tmp_path / "out", workers=1)
    assert report["leakage"].status == "reported"
    worst = report["leakage"].facts["worst_files"]
    assert worst[0]["l50"] >= worst[-1]["l50"] > 0
    assert worst[0]["name"] in report_text(report)


def test_folder_without_manifest_is_rejected(tmp_path):
    with pytest.raises(DatasetError, match="is not a dataset"):
        check(tmp_path)


@pytest.mark.parametrize("window", [{"length": "long"}, {"length": 5, "overlap": 5}, {"length": -1}, None])
def test_invalid_settings_are_rejected(built, tmp_path, window):
    folder = shutil.copytree(built[0], tmp_path / "copy")
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["settings"]["window"] = window
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(DatasetError, match="damaged"):
        check(folder)


def test_part_size_and_workers_do_not_change_the_report(source, tmp_path, monkeypatch):
    """Parts end in the middle of rows and files, and once exactly at the start of the second row."""
    build(Config(sources=[str(source)], out=str(tmp_path / "out")))
    expected = check(tmp_path / "out", workers=1)
    first_row = (tmp_path / "out/train.jsonl").read_bytes().index(b"\n") + 1
    for part_bytes, workers in ((first_row, 1), (5_000, 1), (5_000, 2)):
        monkeypatch.setattr(data_files, "PART_BYTES", part_bytes)
        report = check(tmp_path / "out", workers=workers)
        assert report.checks == expected.checks


def test_part_size_of_compressed_files_does_not_change_the_report(source, tmp_path, monkeypatch):
    build(Config(sources=[str(source)], out=str(tmp_path / "out"), output=OutputConfig(compress="zstd")))
    expected = check(tmp_path / "out", workers=1)
    monkeypatch.setattr(data_files, "PART_BYTES", 1)
    assert check(tmp_path / "out", workers=1).checks == expected.checks


@pytest.mark.parametrize("compress", ["none", "zstd"])
def test_any_damage_is_reported_without_raising(source, tmp_path, compress):
    build(Config(sources=[str(source / "json")], out=str(tmp_path / "out"), output=OutputConfig(compress=compress)))
    names = [path.name for path in (tmp_path / "out").iterdir() if path.name != "manifest.json"]
    for seed in range(60):
        rng = random.Random(seed)
        folder = shutil.copytree(tmp_path / "out", tmp_path / f"damaged{seed}")
        path = folder / rng.choice(names)
        content = bytearray(path.read_bytes())
        for _ in range(rng.choice((1, 20))):
            position = rng.randrange(len(content) or 1)
            content[position : position + rng.choice((0, 1, 1, 50))] = rng.choice(
                (b"\n", b"]", b'"', b"-", b"9" * 30, b"[" * 2000, b"\xff", b"null", b"NaN", b",", b"")
            )
        if bytes(content) != path.read_bytes():
            path.write_bytes(content)
            report = check(folder, workers=1)
            assert "digests" in _failed_checks(report) if path.name not in CARDS else report["cards"].status != "ok"


@pytest.mark.timeout(30)
@pytest.mark.parametrize(("byte", "times"), [(b"\n", 10_000_000), (b"x", 80_000_000)], ids=["lines", "line"])
def test_millions_of_empty_lines_or_one_huge_line_are_rejected(built, tmp_path, byte, times):
    folder = shutil.copytree(built[0], tmp_path / "copy")
    (folder / "train.jsonl").write_bytes(byte * times)
    assert "cannot be read" in check(folder, workers=1)["schema"].examples[0]


# Measurements, compared with slow, obvious references.

token_lists = st.lists(st.lists(st.integers(0, 11), max_size=180), max_size=4)


def _reference_overlap(held_out, train):
    """Return counts for each held-out text: tokens in shared spans, 13-grams, and 13-grams that are also in train."""
    train_grams = {n: {tuple(ids[i : i + n]) for ids in train for i in range(len(ids) - n + 1)} for n in (13, 50)}
    answers = []
    for ids in held_out:
        inside, start = set(), None
        is_shared = [tuple(ids[i : i + 50]) in train_grams[50] for i in range(max(0, len(ids) - 49))]
        for i, shared in enumerate([*is_shared, False]):
            if shared and start is None:
                start = i
            if not shared and start is not None:
                if len(set(ids[start : i + 49])) >= 8:
                    inside |= set(range(start, i + 49))
                start = None
        grams = [tuple(ids[i : i + 13]) in train_grams[13] for i in range(max(0, len(ids) - 12))]
        answers.append((len(inside), len(grams), sum(grams)))
    return answers


@settings(max_examples=150, deadline=None)
@given(token_lists, token_lists, st.data())
def test_shared_spans_match_a_reference_with_sets(held_out, train, data):
    for _ in range(data.draw(st.integers(0, 4))):  # copy part of a train text into a held-out text
        if train and held_out:
            one = data.draw(st.sampled_from(train))
            start, length = data.draw(st.integers(0, 100)), data.draw(st.integers(10, 120))
            target = data.draw(st.integers(0, len(held_out) - 1))
            position = data.draw(st.integers(0, len(held_out[target])))
            held_out[target] = held_out[target][:position] + one[start : start + length] + held_out[target][position:]
    arrays = [[np.array(ids, np.uint16) for ids in side] for side in (held_out, train)]
    assert [tuple(one) for one in spans.measure_overlap(*arrays)] == _reference_overlap(held_out, train)


def test_batch_size_does_not_change_shared_spans(monkeypatch):
    rng = random.Random(5)
    train = [[rng.randrange(20) for _ in range(300)] for _ in range(20)]
    held_out = [train[number][50:250] + [rng.randrange(20) for _ in range(100)] for number in range(0, 20, 3)]
    expected = _reference_overlap(held_out, train)
    monkeypatch.setattr(spans, "BATCH_TOKENS", 500)
    monkeypatch.setattr(spans, "HELD_OUT_BATCH_TOKENS", 700)
    arrays = [[np.array(ids, np.uint32) for ids in side] for side in (held_out, train)]
    assert [tuple(one) for one in spans.measure_overlap(*arrays, num_threads=3)] == expected
    assert sum(num_tokens for num_tokens, _, _ in expected) > 1000


def test_threads_do_not_change_shared_spans(monkeypatch):
    """The result is deterministic, although many batches share 50-grams and different 50-grams share a key."""
    rng = random.Random(6)
    shared = [rng.randrange(9) for _ in range(200)]
    train = [np.array(shared + [rng.randrange(900) for _ in range(60)], np.uint16) for _ in range(60)]
    held_out = [np.array(shared[number:] + shared[:number], np.uint16) for number in range(0, 100, 9)]
    compute = spans.compute_keys
    few_keys = lambda ids: spans.GramKeys(  # noqa: E731
        compute(ids).grams50 >> np.uint64(58) << np.uint64(58), compute(ids).grams13
    )
    monkeypatch.setattr(spans, "BATCH_TOKENS", 300)
    monkeypatch.setattr(spans, "compute_keys", few_keys)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        results = [spans.measure_overlap(held_out, train, threads) for threads in (1, 2, 4) for _ in range(12)]
    finally:
        sys.setswitchinterval(interval)
    assert all(result == results[0] for result in results)


def test_key_collision_is_not_a_leak(monkeypatch):
    """All keys are equal in this test, but only equal ids are a leak."""
    same = lambda ids: spans.GramKeys(  # noqa: E731
        np.full(max(0, len(ids) - 49), 7, np.uint64), np.full(max(0, len(ids) - 12), 7, np.uint64)
    )
    monkeypatch.setattr(spans, "compute_keys", same)
    held_out, train = [np.arange(100, dtype=np.uint16)], [np.arange(200, 300, dtype=np.uint16)]
    assert spans.measure_overlap(held_out, train)[0].num_span_tokens == 0


@given(st.lists(st.lists(st.one_of(st.integers(0, 300), st.integers(0, 99_999_999)), min_size=1), min_size=1))
def test_digits_are_parsed_as_numbers(rows):
    ids, offsets = parse_numbers([",".join(map(str, row)).encode() for row in rows])
    assert [ids[start:end].tolist() for start, end in pairwise(offsets)] == rows


@given(st.lists(st.text("0123456789,", max_size=12), min_size=1))
def test_only_plain_digits_are_parsed(texts):
    plain = all(re.fullmatch(r"(0|[1-9]\d{0,7})(,(0|[1-9]\d{0,7}))*", text) for text in texts)
    assert (parse_numbers([text.encode() for text in texts]) is not None) == plain


@pytest.mark.parametrize("text", [b"1 2", b"-1", b"1.5", b"a", b"1,2]", b"\xff", b"+3"])
def test_other_text_is_not_parsed_as_digits(text):
    assert parse_numbers([b"1,2", text, b"3"]) is None


@settings(max_examples=200)
@given(
    st.integers(1, 400),
    st.integers(1, 30).flatmap(lambda content: st.tuples(st.just(content), st.integers(0, content - 1))),
    st.sampled_from(["keep", "shift", "drop"]),
    st.lists(st.integers(0, 400), max_size=6),
    st.booleans(),
)
def test_expected_windows_cover_all_tokens_outside_of_cuts(num_tokens, sizes, tail, edges, drops_touched):
    num_content, overlap = sizes
    edges = sorted({edge for edge in edges if edge <= num_tokens})
    cuts = [Cut(start, end, "x") for start, end in zip(edges[::2], edges[1::2], strict=False)]
    shape = Shape(num_content, num_content - overlap, tail, 5)
    expected = expected_windows(num_tokens, cuts, shape, drops_touched=drops_touched)
    windows, num_tail = expected.windows(max_windows=1000), expected.num_tail_tokens_dropped
    covered = {token for start, end in windows for token in range(start, end)}
    cut = {token for one in cuts for token in range(one.start, one.end)}
    assert not covered & cut
    assert windows == sorted(windows)
    assert all(1 <= end - start <= num_content for start, end in windows)
    assert (tail == "drop") or not num_tail
    if not cuts:
        assert len(covered) + num_tail == num_tokens


def _values(rng):
    def word(length):
        return "".join(rng.choices(string.ascii_letters + string.digits, k=length))

    return [
        "ghp_" + word(36),
        "AKIA" + "".join(rng.choices(string.ascii_uppercase + string.digits, k=16)),
        f"api_key = '{word(40)}'",
        f"postgres://admin:{word(14)}@db.internal/x",
        "mail: jane.doe@company.org",
        f'user@config.password = "{word(24)}"',
        f"'x@{word(4)}.token': '{word(30)}'",
    ]


def test_check_finds_the_secrets_that_the_build_finds(corpus):
    """In real files with planted secrets, the check finds all kinds that the build finds, and nothing after redaction."""
    rng = random.Random(9)
    values = _values(rng)
    for number, path in enumerate(sorted(corpus.rglob("*.py"))):
        text = path.read_bytes()
        position = rng.randrange(len(text) + 1)
        text = text[:position] + b"\n" + values[number % len(values)].encode() + b"\n" + text[position:]
        for emails in (False, True):
            kinds = {one.kind for one in find_secrets(text, emails=emails)}
            assert kinds <= {one.kind for one in scan_for_secrets(text, emails=emails)}
            redacted = redact(text, "python", SecretsConfig(emails=emails))
            assert redacted is None or not list(scan_for_secrets(redacted.text, emails=emails))


@pytest.mark.parametrize("emails", [False, True])
def test_email_address_does_not_hide_another_secret(emails):
    text = _values(random.Random(3))[5].encode()
    assert "assigned-secret" in {one.kind for one in scan_for_secrets(text, emails=emails)}


def test_missing_source_is_rejected(built):
    with pytest.raises(InputError, match="does not exist"):
        check(built[0], ["/nowhere/at/all"], workers=1)


def test_values_in_messages_have_no_python_syntax():
    assert value_text({"python": {Split.TRAIN: 5, Split.TEST: 0}}) == "python train 5, test 0"
    assert value_text([0, 1]) == "0, 1"
    assert [value_text(value) for value in (None, {}, [])] == ["none"] * 3


def test_paths_outside_of_a_source_are_not_opened(tmp_path):
    (tmp_path / "repo").mkdir()
    (tmp_path / "repo" / "link").symlink_to("/etc/passwd")
    folder = str(tmp_path / "repo")
    assert locate_file(folder, "a/b.py") == f"{folder}/a/b.py"
    assert locate_file(folder, r"a\\b\xff") == f"{folder}/a\\b\udcff"
    for path in ("../x", "/etc/passwd", "link", "a/../../x"):
        assert locate_file(folder, path) is None
