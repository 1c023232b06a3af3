"""Each fault planted in a copy of a valid dataset is reported with its location.

Digests, sizes and row counts are updated after planting, so only a check of the content can find the fault.
"""

import hashlib
import json
import os
import random
import re
import shutil
import string
import tracemalloc

import pytest
import zstandard

from gristmill import Config, DatasetError, SplitConfig, WindowConfig, build, open_dataset
from gristmill.checks.check import check
from gristmill.checks.findings import report_text
from gristmill.formats.zstd import Frame, encode_table, read_table
from support.planted import Planted, require_only_failure

SHARED = "".join(
    f"def shared_{word}(first, second):\n    return first.{word} + second[{word!r}]\n\n" for word in "abcdefgh"
)


@pytest.fixture(scope="module")
def source(tmp_path_factory, corpus):
    root = tmp_path_factory.mktemp("planted") / "repo"
    for package in ("json", "concurrent"):
        shutil.copytree(corpus / package, root / package)
    for name in range(12):
        own = "".join(f"value_{name}_{line} = compute({line}, {name * line})\n" for line in range(60))
        (root / f"cut{name}.py").write_text(f"# {name}\n{own}\n{SHARED}\n{own[::-1]}\n")
    (root / "empty.py").write_text("")
    return root


@pytest.fixture(scope="module")
def good(source, tmp_path_factory):
    return _build(source, tmp_path_factory, {})


@pytest.fixture
def planted(good, tmp_path):
    return Planted(shutil.copytree(good, tmp_path / "dataset"))


def _build(source, tmp_path_factory, settings):
    out = tmp_path_factory.mktemp("good") / "dataset"
    build(Config(sources=[str(source)], out=str(out), **settings))
    return out


def test_unchanged_dataset_passes(planted):
    assert planted.check() == {}
    assert any(file["cuts"] for file in planted.files)


def test_id_out_of_range_is_reported(planted):
    row = planted.rows["train"][7]
    row["input_ids"][-2] = 50265  # no other window overlaps this position
    failed = planted.check()
    assert "id 50265" in failed["ids"][0]
    assert "train.jsonl row 8" in failed["ids"][0]


def test_missing_prefix_is_reported(planted):
    row = planted.rows["train"][7]
    row["input_ids"] = row["input_ids"][1:]
    planted.manifest["splits"]["train"]["emitted_tokens"] -= 1
    require_only_failure(planted.check(), "special_tokens", row)


def test_missing_suffix_is_reported(planted):
    row = planted.rows["train"][7]
    row["input_ids"] = row["input_ids"][:-1]
    planted.manifest["splits"]["train"]["emitted_tokens"] -= 1
    require_only_failure(planted.check(), "special_tokens", row)


def test_control_token_inside_a_window_is_reported(planted, codebert):
    """The control token replaces a token without line feeds, so that the line numbers still match."""
    row = planted.long_file()[0]
    at = next(at for at in range(100, 200) if b"\n" not in codebert.decode([row["input_ids"][at]]))
    row["input_ids"][at] = 2
    failed = planted.check()
    assert set(failed) == {"special_tokens", "ids"}
    assert row["path"] in failed["special_tokens"][0]


def test_unexpected_padding_is_reported(planted):
    row = planted.long_file()[-1]
    row["input_ids"].append(1)
    planted.manifest["splits"]["train"]["emitted_tokens"] += 1
    failed = planted.check()
    assert "special_tokens" in failed
    assert "windows" in failed


def test_window_that_is_too_long_is_reported(planted):
    first, second, *_ = planted.long_file()
    first["input_ids"][-1:-1] = second["input_ids"][257:260]
    first["fresh"] += 3
    second["fresh"] -= 3
    planted.manifest["splits"]["train"]["emitted_tokens"] += 3
    failed = planted.check()
    require_only_failure(failed, "windows", first)
    assert "513 tokens, expected at most 510" in failed["windows"][0]


def test_start_off_by_one_is_reported(planted):
    row = planted.long_file()[2]
    row["start"] += 1
    failed = planted.check()
    assert set(failed) == {"windows", "fresh", "ids"}
    assert row["path"] in failed["windows"][0]


def test_gap_between_windows_is_reported(planted):
    windows = planted.long_file()
    planted.rows["train"] = [row for row in planted.rows["train"] if row not in windows[2:4]]
    planted.file_of(windows[0])["windows"] -= 2
    planted.manifest["splits"]["train"]["windows"] -= 2
    planted.manifest["splits"]["train"]["emitted_tokens"] -= 1024
    windows[4]["fresh"] = 510
    failed = planted.check()
    assert set(failed) == {"windows", "fresh"}
    assert windows[0]["path"] in failed["windows"][0]


def test_wrong_fresh_is_reported(planted):
    one, other, *_ = planted.long_file()
    one["fresh"], other["fresh"] = one["fresh"] - 1, other["fresh"] + 1
    require_only_failure(planted.check(), "fresh", one)


def test_duplicate_row_is_reported(planted):
    row = planted.long_file()[3]
    planted.rows["train"].append(row)
    failed = planted.check()
    assert "second window" in failed["duplicates"][0]
    assert row["path"] in failed["duplicates"][0]


def test_row_in_wrong_split_is_reported(planted):
    row = planted.long_file()[3]
    planted.rows["train"].remove(row)
    planted.rows["test"].append(row)
    failed = planted.check()
    assert any("in test, but files.jsonl records train" in example for example in failed["files_table"])
    assert any("rows of the file are not contiguous" in example for example in failed["windows"])


def test_group_in_two_splits_is_reported(planted):
    train = planted.file_of(planted.rows["train"][0])
    test = planted.file_of(planted.rows["test"][0])
    test["group"] = train["group"]
    failed = planted.check()
    assert "groups" in failed
    # "fresh" fails if the replaced group had only this file, because then one group is missing.
    assert set(failed) <= {"groups", "fresh"}


def test_train_text_in_held_out_file_is_reported(planted):
    windows = planted.long_file()
    split = planted.file_of(windows[0]) | {"path": "planted.py", "split": "test", "group": "repo/planted.py"}
    planted.files.append(split)
    planted.rows["test"] += [row | {"path": "planted.py"} for row in windows]
    failed = planted.check()
    assert "planted.py: 100.0% of the tokens" in failed["leakage"][0]


def test_secret_is_reported_without_its_value(planted):
    tokenizer = open_dataset(planted.folder).tokenizer
    random_part = "".join(random.Random(4).choices(string.ascii_letters + string.digits, k=36))
    text = f"# settings of a service\nurl = 'none'\nname = 'ghp_{random_part}'\nother = 17\n"
    ids = tokenizer.encode(text.encode()).ids.tolist()
    row = {**planted.rows["train"][0], "path": "zz.py", "input_ids": [0, *ids, 2], "lines": [1, 4], "start": 0}
    planted.rows["train"].append(row | {"fresh": len(ids)})
    failed = planted.check()
    assert failed["secrets"] == ["train.jsonl (repo/zz.py): github-token in line 3"]
    assert random_part not in (planted.folder / "check.json").read_text()


@pytest.mark.parametrize(
    "change",
    [
        lambda row: row.pop("fresh"),
        lambda row: row.update(more=1),
        lambda row: row.update(start="0"),
        lambda row: row.update(start=-1),
        lambda row: row.update(start=True),
        lambda row: row.update(start=1 << 200),
        lambda row: row.update(fresh=1.5),
        lambda row: row.update(lines=[1]),
        lambda row: row.update(lines=[1, None]),
        lambda row: row.update(path=None),
        lambda row: row.update(language=3),
        lambda row: row.update(input_ids="0 1 2"),
        lambda row: row.update(input_ids=[0, "1", 2]),
        lambda row: row.update(input_ids=[0, 1.0, 2]),
        lambda row: row.update(input_ids={"a": 1}),
        lambda row: row.update(path=row.pop("path")),
    ],
)
def test_missing_added_or_mistyped_column_is_reported(planted, change):
    change(planted.rows["train"][3])
    failed = planted.check()
    assert "train.jsonl row 4" in failed["schema"][0]


@pytest.mark.parametrize(
    "line", ["", "{", "[]", "nothing", '{"input_ids":[NaN]}', "[" * 3000, '{"a":' * 3000, '{"input_ids":[00]}', "\x00"]
)
def test_line_that_is_not_a_row_is_reported(planted, line):
    planted.rows["train"].insert(5, line)
    assert set(planted.check()) == {"schema"}


def test_duplicate_column_is_reported(planted):
    row = json.dumps(planted.rows["train"][3])
    planted.rows["train"][3] = row.replace('"start"', '"path": "other.py", "start"')
    assert "appears twice" in planted.check()["schema"][0]


def test_spaces_between_columns_are_not_a_fault(planted):
    planted.rows["train"] = [json.dumps(row) for row in planted.rows["train"]]
    assert planted.check() == {}


@pytest.mark.parametrize("value", [-5, 10**9, 10**30, 99_999_999])
def test_invalid_id_is_reported(planted, value):
    planted.rows["train"][3]["input_ids"][5] = value
    failed = planted.check()
    assert {"ids", "schema"} & set(failed)


def test_row_without_ids_is_reported(planted):
    planted.rows["train"][3]["input_ids"] = []
    assert "input_ids is empty" in planted.check()["windows"][0]


def test_wrong_language_is_reported(planted):
    row = planted.long_file()[2]
    row["language"] = "cobol"
    require_only_failure(planted.check(), "schema", row)


def test_row_of_dropped_file_is_reported(planted):
    row = planted.rows["train"][-1] | {"path": "empty.py"}
    planted.rows["train"].append(row)
    assert any("files.jsonl records it as dropped" in example for example in planted.check()["files_table"])


def test_row_of_unknown_file_is_reported(planted):
    planted.rows["train"].append(planted.rows["train"][-1] | {"path": "unknown.py"})
    assert any("files.jsonl does not list it" in example for example in planted.check()["files_table"])


def test_wrong_number_of_windows_is_reported(planted):
    file = planted.file_of(planted.rows["train"][0])
    file["windows"] += 1
    require_only_failure(planted.check(), "files_table", file)


@pytest.mark.parametrize("name", ["found", "kept", "dropped", "dropped_by_reason", "licenses", "redactions"])
def test_wrong_count_in_manifest_is_reported(planted, name):
    counts = planted.manifest["counts"]
    counts[name] = counts[name] + 1 if isinstance(counts[name], int) else {"empty": 77}
    failed = planted.check()
    assert list(failed) == ["files_table"]
    assert f"counts.{name}" in failed["files_table"][0]


@pytest.mark.parametrize("name", ["files", "groups", "windows", "tokens", "emitted_tokens", "share"])
def test_wrong_fact_about_split_is_reported(planted, name):
    planted.manifest["splits"]["validation"][name] += 1
    failed = planted.check()
    assert list(failed) == ["fresh"]
    assert f"splits.validation.{name}" in failed["fresh"][0]


def test_wrong_number_of_tail_tokens_is_reported(planted):
    planted.manifest["counts"]["tail_tokens_dropped"] = 3
    assert list(planted.check()) == ["fresh"]


def test_changed_token_in_overlap_is_reported(planted):
    row = planted.long_file()[2]
    row["input_ids"][40] += 1
    failed = planted.check()
    require_only_failure(failed, "windows", row)
    assert "in the overlap differ from those of the previous window" in failed["windows"][0]


def test_window_inside_a_cut_is_reported(planted):
    """Extend the recorded cut by 20 tokens, so that the window after the cut begins inside the cut."""
    file = planted.cut_file()
    windows = planted.windows_of(file["path"], file["split"])
    start, end, *more = file["cuts"][0]
    after = next(row for row in windows if row["start"] == end)
    file["cuts"][0] = [start, end + 20, *more]
    failed = planted.check()
    assert set(failed) <= {"windows", "fresh"}
    assert f"tokens {end} to {end + len(after['input_ids']) - 2}" in failed["windows"][0]


def test_cuts_out_of_order_are_reported(planted):
    file = planted.cut_file()
    file["cuts"] = [[file["tokens"], 10, *file["cuts"][0][2:]]]
    assert "cuts are not in ascending order" in planted.check()["files_table"][0]


def test_lines_beyond_the_file_are_reported(planted):
    row = planted.long_file()[-1]
    row["lines"][1] = 10**6
    require_only_failure(planted.check(), "windows", row)


def test_decreasing_lines_are_reported(planted):
    row = planted.long_file()[4]
    row["lines"] = [1, 1]
    require_only_failure(planted.check(), "windows", row)


def test_lines_that_differ_from_source_are_reported(planted, source):
    row = planted.long_file()[4]
    row["lines"][0] += 1
    require_only_failure(planted.check(), "windows", row)
    assert set(planted.check(sources=[str(source)])) == {"windows", "source"}


def test_lines_that_begin_too_early_after_a_cut_are_reported(planted):
    file = planted.cut_file()
    after = next(row for row in planted.windows_of(file["path"], file["split"]) if row["start"] == file["cuts"][0][1])
    after["lines"][0] = 1
    assert "windows" in planted.check()


def test_file_with_more_lines_than_line_feeds_is_reported(planted):
    row = planted.long_file()[-1]
    planted.file_of(row)["lines"] += 1
    require_only_failure(planted.check(), "windows", row)


def test_token_that_differs_from_source_is_reported(planted, source):
    row = planted.long_file()[0]
    row["input_ids"][5] += 1
    require_only_failure(planted.check(), "ids", row)
    assert set(planted.check(sources=[str(source)])) == {"ids", "source"}


@pytest.mark.parametrize(
    ("digest", "check_name"), [("0" * 64, "ids"), ("nonsense", "files_table"), ("A" * 64, "files_table")]
)
def test_wrong_text_digest_is_reported(planted, digest, check_name):
    file = planted.file_of(planted.long_file()[0])
    file["text_sha256"] = digest
    assert any(file["path"] in example for example in planted.check()[check_name])


def test_different_tokenizer_of_the_same_size_is_reported(planted):
    path = planted.folder / "tokenizer.json"
    tokenizer = json.loads(path.read_text())
    vocab = tokenizer["model"]["vocab"]
    vocab["a"], vocab["b"] = vocab["b"], vocab["a"]
    path.write_text(json.dumps(tokenizer))
    content = path.read_bytes()
    sha256 = hashlib.sha256(content).hexdigest()
    planted.manifest["files"]["tokenizer.json"] |= {"bytes": len(content), "sha256": sha256}
    planted.manifest["tokenizer"]["sha256"] = sha256
    assert "ids" in planted.check()


@pytest.mark.parametrize(
    ("column", "value"), [("bytes", 1), ("lines", 3), ("encoding", "utf-8-sig"), ("encoding", "latin-1")]
)
def test_fact_that_differs_from_source_is_reported(planted, source, column, value):
    file = planted.file_of(planted.long_file()[0])
    file[column] = value
    failed = planted.check(sources=[str(source)])
    assert f"{column} is {value} in files.jsonl" in failed["source"][0]


def test_changed_source_is_reported(planted, source, tmp_path):
    copy = shutil.copytree(source, tmp_path / "repo")
    (copy / "json" / "decoder.py").write_text("changed = 1\n")
    (copy / "json" / "encoder.py").unlink()
    failed = planted.check(sources=[str(copy)])
    assert list(failed) == ["source"]
    assert "decoder.py" in failed["source"][0]
    assert "encoder.py" in failed["source"][1]
    assert "the file is not in the source" in failed["source"][1]


def test_wrong_source_is_reported_once(planted, corpus):
    failed = planted.check(sources=[str(corpus / "json")])
    assert failed == {"source": ["the dataset was not built from these sources, but from repo"]}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda file: file.update(reason="boredom"), "boredom"),
        (lambda file: file.update(status="lost"), "lost"),
        (lambda file: file.update(split="dev"), "dev"),
        (lambda file: file.update(tokens=-1), ">= 0"),
        (lambda file: file.update(tokens=None), "null"),
        (lambda file: file.update(tokens=10**30), "int"),
        (lambda file: file.pop("cuts"), "cuts"),
    ],
)
def test_damaged_row_of_files_table_is_reported(planted, change, message):
    change(planted.file_of(planted.rows["train"][0]))
    assert message in planted.check()["files_table"][0]


def test_impossible_token_count_is_reported(planted):
    planted.file_of(planted.rows["train"][0])["tokens"] = 1 << 40
    failed = planted.check()
    assert re.search(r": the window has tokens (\d+) to \d+, expected \1 to \d+$", failed["windows"][0])


def test_duplicate_file_in_table_is_reported(planted):
    planted.files.append(planted.files[0])
    assert "appears twice" in planted.check()["files_table"][0]


def test_text_that_differs_from_decoded_ids_is_reported(source, tmp_path_factory):
    planted = Planted(_build(source, tmp_path_factory, {"output": _output(with_text=True)}))
    assert planted.check() == {}
    row = planted.rows["train"][5]
    row["text"] = row["text"].replace("e", "E", 1)
    require_only_failure(planted.check(), "schema", row)


def test_wrong_padding_is_reported(source, tmp_path_factory):
    planted = Planted(_build(source, tmp_path_factory, {"output": _output(pad=True)}))
    assert planted.check() == {}
    row = next(row for row in planted.rows["train"] if row["attention_mask"][-1] == 0)
    row["input_ids"][-1] = 77
    require_only_failure(planted.check(), "special_tokens", row)
    row["input_ids"][-1] = 1
    row["attention_mask"][-1] = 1
    failed = planted.check()
    assert "a 0 before a 1" in failed["schema"][0]


def test_cuts_missing_from_the_table_are_reported(source, tmp_path_factory):
    """With --decontaminate drop, no window overlaps a cut. Without recorded cuts, the check expects such windows."""
    planted = Planted(_build(source, tmp_path_factory, {"split": SplitConfig(decontaminate="drop")}))
    assert planted.check() == {}
    planted.cut_file()["cuts"] = []
    assert "windows" in planted.check()


def test_wrong_tail_setting_is_reported(source, tmp_path_factory):
    planted = Planted(_build(source, tmp_path_factory, {"window": WindowConfig(tail="shift")}))
    assert planted.check() == {}
    planted.manifest["settings"]["window"]["tail"] = "keep"
    assert "windows" in planted.check()


def _output(**settings):
    from gristmill import OutputConfig

    return OutputConfig(**settings)


@pytest.mark.parametrize("name", ["train.jsonl", "files.jsonl", "tokenizer.json"])
def test_damaged_file_does_not_match_its_digest(good, tmp_path, name):
    folder = shutil.copytree(good, tmp_path / "dataset")
    content = bytearray((folder / name).read_bytes())
    content[len(content) // 2] ^= 1
    (folder / name).write_bytes(content)
    report = check(folder, workers=1)
    assert not report.ok
    assert report["digests"].examples[-1] == f"{name}: sha256 differs from the manifest"


def test_missing_truncated_and_unknown_files_are_reported(good, tmp_path):
    folder = shutil.copytree(good, tmp_path / "dataset")
    (folder / "test.jsonl").unlink()
    (folder / "tokenizer.json").unlink()
    (folder / "extra.jsonl").write_text("{}\n")
    content = (folder / "train.jsonl").read_bytes()
    (folder / "train.jsonl").write_bytes(content[: len(content) // 2])
    report = check(folder, workers=1)
    message = " ".join(report["digests"].examples)
    for name in (
        "test.jsonl: the file cannot be read",
        "extra.jsonl: the file is not listed in the manifest",
        "train.jsonl: ",
    ):
        assert name in message
    assert report["secrets"].status == "skipped"


# Names, shapes and sizes that no build produces.


def test_splits_with_swapped_names_are_reported(planted):
    planted.rows["train"], planted.rows["test"] = planted.rows["test"], planted.rows["train"]
    files = planted.manifest["files"]
    files["train.jsonl"]["split"], files["test.jsonl"]["split"] = "test", "train"
    assert list(planted.check()) == ["digests"]


@pytest.mark.parametrize("name", ["train-00000-of-00002.jsonl", "train2.jsonl", "trains.jsonl", "a\0b", "files"])
def test_data_file_with_invalid_name_is_reported(planted, name):
    files = planted.manifest["files"]
    planted.check()
    (planted.folder / "manifest.json").write_text(json.dumps(planted.manifest | {"files": _rename_train(files, name)}))
    if "\0" not in name:
        (planted.folder / "train.jsonl").rename(planted.folder / name)
    assert check(planted.folder, workers=1)["digests"].status == "failed"


def _rename_train(files, name):
    return {name if one == "train.jsonl" else one: facts for one, facts in files.items()}


def test_data_file_without_split_is_reported(planted):
    del planted.manifest["files"]["train.jsonl"]["split"]
    assert any("does not record the split" in example for example in planted.check()["digests"])


@pytest.mark.parametrize("name", ["train.jsonl", "files.jsonl", "tokenizer.json", "tokenizer_config.json"])
@pytest.mark.parametrize(("make", "kind"), [(os.mkdir, "a folder"), (os.mkfifo, "a FIFO")])
@pytest.mark.timeout(20)
def test_folder_or_fifo_is_rejected_immediately(good, tmp_path, name, make, kind):
    folder = shutil.copytree(good, tmp_path / "dataset")
    (folder / name).unlink()
    make(folder / name)
    report = check(folder, workers=1)
    assert f"{name}: the file cannot be read: it is {kind}, not a regular file" in report["digests"].examples


@pytest.mark.timeout(20)
def test_manifest_that_is_a_fifo_is_rejected(tmp_path):
    os.mkfifo(tmp_path / "manifest.json")
    with pytest.raises(DatasetError, match="not a regular file"):
        check(tmp_path)


@pytest.mark.parametrize("column", ["path", "repo", "language", "lines", "start", "fresh", "input_ids"])
def test_column_missing_in_all_rows_is_reported(planted, column):
    planted.manifest["columns"].remove(column)
    for rows in planted.rows.values():
        for row in rows:
            del row[column]
    assert f"column {column} is missing" in planted.check()["schema"][0]


@pytest.mark.timeout(20)
@pytest.mark.parametrize("tokens", [None, 1 << 40])
def test_huge_cut_is_reported_without_computing_its_windows(planted, tokens):
    file = planted.file_of(planted.rows["train"][0])
    file["cuts"] = [[1 << 40, 1 << 41, "x", 1, 1]]
    file["tokens"] = tokens or file["tokens"]
    assert any("end after the last token" in example for example in planted.check()["files_table"])


def test_report_is_returned_if_it_cannot_be_written(good, tmp_path):
    folder = shutil.copytree(good, tmp_path / "dataset")
    assert check(folder, workers=1).written
    (folder / "check.json").unlink()
    (folder / "check.json").mkdir()
    report = check(folder, workers=1)
    assert report.ok
    assert not report.written
    assert "check.json could not be written" in report_text(report)


def test_carriage_return_is_reported(planted):
    planted.rows["train"][3] = json.dumps(planted.rows["train"][3], separators=(",", ":")) + "\r"
    assert "carriage return" in planted.check()["schema"][0]


def test_missing_final_line_feed_is_reported(planted):
    planted.check()
    for name, check_name in (("train.jsonl", "schema"), ("files.jsonl", "files_table")):
        path = planted.folder / name
        content = path.read_bytes()
        path.write_bytes(content[:-1])
        assert check(planted.folder, workers=1)[check_name].status == "failed"
        path.write_bytes(content)
    assert check(planted.folder, workers=1).ok


def test_files_not_in_path_order_are_reported(planted):
    first = planted.rows["train"][0]["path"]
    planted.rows["train"].sort(key=lambda row: row["path"] == first)
    assert any("later in path order" in example for example in planted.check()["windows"])


def test_table_not_in_path_order_is_reported(planted):
    planted.files.reverse()
    assert any("not in path order" in example for example in planted.check()["files_table"])


@pytest.mark.parametrize("name", ["tokens_cut", "tokens_before", "files_cut", "how"])
def test_wrong_fact_about_decontamination_is_reported(planted, name):
    facts = planted.manifest["decontamination"]
    facts[name] = "off" if name == "how" else facts[name] | {"train": 77}
    failed = planted.check()
    assert list(failed) == ["files_table"]
    assert f"decontamination.{name}" in failed["files_table"][0]


def test_wrong_number_of_near_duplicates_is_reported(planted):
    planted.manifest["near_duplicates"]["dropped"] += 1
    assert "near_duplicates.dropped" in planted.check()["files_table"][0]


@pytest.mark.parametrize("change", [{"twin": "repo/nowhere.py"}, {"twin": None}, {"similarity": 0.3}])
def test_invalid_twin_is_reported(planted, change):
    file = next(file for file in planted.files if file["status"] == "dropped")
    planted.manifest["counts"]["dropped_by_reason"] = {"exact_duplicate": 1}
    file |= {"reason": "exact_duplicate", "twin": planted.files[0]["repo"] + "/" + planted.files[0]["path"]}
    file |= {"similarity": 1.0, "sha256": None} | change
    assert set(planted.check()) == {"files_table"}


def test_wrong_fingerprint_is_reported(planted):
    planted.check()
    planted.manifest["fingerprint"] = "0" * 64
    (planted.folder / "manifest.json").write_text(json.dumps(planted.manifest))
    assert "fingerprint" in check(planted.folder, workers=1)["digests"].examples[0]


# Compressed files with frames that do not match the frame table.


@pytest.fixture(scope="module")
def good_zstd(source, tmp_path_factory):
    return _build(source, tmp_path_factory, {"output": _output(compress="zstd")})


class PlantedFrames:
    def __init__(self, folder):
        self.path = folder / "train.jsonl.zst"
        self.frames = read_table(self.path)
        self.bytes = self.path.read_bytes()[: sum(frame.num_compressed for frame in self.frames)]

    def check(self):
        content = self.bytes + encode_table(self.frames)
        self.path.write_bytes(content)
        manifest = json.loads((self.path.parent / "manifest.json").read_text())
        facts = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        manifest["files"][self.path.name] |= facts
        (self.path.parent / "manifest.json").write_text(json.dumps(manifest))
        report = check(self.path.parent, workers=1)
        assert report["digests"].status == "ok" or "rows, but the manifest records" in report["digests"].examples[0]
        return report["schema"].examples


@pytest.fixture
def frames(good_zstd, tmp_path):
    frames = PlantedFrames(shutil.copytree(good_zstd, tmp_path / "dataset"))
    assert frames.check() == []
    assert len(frames.frames) > 1
    return frames


def test_extra_frame_at_the_end_is_reported(frames):
    frames.bytes += zstandard.compress(b'{"input_ids":[1]}\n')
    assert "bytes precede it" in frames.check()[0]


@pytest.mark.parametrize("more", [zstandard.compress(b'{"input_ids":[1]}\n'), b"\x50\x2a\x4d\x18\x01\0\0\0x", b"x"])
def test_entry_with_more_than_one_frame_is_reported(frames, more):
    last = frames.frames[-1]
    frames.bytes += more
    frames.frames[-1] = last._replace(num_compressed=last.num_compressed + len(more))
    assert "not exactly one frame" in frames.check()[0]


def test_skippable_frame_is_reported(frames):
    hidden = b"\x50\x2a\x4d\x18\x01\0\0\0x"
    frames.bytes += hidden
    frames.frames.append(Frame(len(hidden), 0, 0))
    assert frames.check()


def test_wrong_row_counts_of_frames_are_reported(frames):
    first, second, *rest = frames.frames
    frames.frames = [
        first._replace(num_rows=first.num_rows + 1),
        second._replace(num_rows=second.num_rows - 1),
        *rest,
    ]
    assert "complete rows, but the frame table records" in frames.check()[0]


@pytest.mark.timeout(20)
@pytest.mark.parametrize("num_bytes", [50_000_000, 500_000_000])
def test_frame_of_line_feeds_is_rejected_with_little_memory(frames, num_bytes):
    more = zstandard.compress(b"\n" * num_bytes)
    frames.bytes += more
    frames.frames.append(Frame(len(more), num_bytes, num_bytes))
    tracemalloc.start()
    assert frames.check()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 200_000_000
