"""Faults planted into a dataset with repeats and variants: each is found, by the check that is about it."""

import shutil

import pytest

from gristmill import Config, SamplingConfig, VariantsConfig, build
from gristmill.checks.variants import CHECKS_BY_THEMSELVES
from gristmill.core.records import BY_THEMSELVES
from support.codebert_with import FIM, codebert_with
from support.planted import Planted

RATES = {"rename": 1.0, "noise": 1.0}


@pytest.fixture(scope="module")
def good(tmp_path_factory, corpus):
    folder = tmp_path_factory.mktemp("planted-variants")
    config = Config(
        sources=[str(corpus / name) for name in ("json", "concurrent", "clients/README.md")],
        out=str(folder / "dataset"),
        tokenizer=codebert_with(FIM, folder / "with-fim"),
        sampling=SamplingConfig(weights={"**/h*.py": 2.0, "**/_*.py": 0.5, "**/t*.py": 3.0}),
        variants=VariantsConfig(rates=RATES),
    )
    build(config)
    return folder / "dataset"


@pytest.fixture
def planted(good, tmp_path):
    return Planted(shutil.copytree(good, tmp_path / "dataset"))


def first(planted, **wanted):
    return next(row for row in planted.rows["train"] if all(row[name] == value for name, value in wanted.items()))


def row_of(planted, row, kind):
    return next(one for one in planted.file_of(row)["variants"] if one["kind"] == kind)


def test_the_dataset_is_good_before(planted):
    assert planted.check() == {}
    assert any(row["repeat"] for row in planted.rows["train"])


def other_seed(planted):
    first(planted, variant="rename")["variant_seed"] += 1


def one_row_less(planted):
    planted.rows["train"].remove(first(planted, variant="rename"))


def one_id_of_a_rename(planted):
    rows = (row for row in planted.rows["train"] if row["variant"] == "rename")
    row = next(
        row for row in rows if row_of(planted, row, "rename")["draw"] is None
    )  # all of it is there to be spelled
    row["input_ids"][3] = row["input_ids"][3] % 1000 + 1


def labels_of_another(planted):
    rows = [row for row in planted.rows["train"] if row["variant"] == "noise"]
    rows[0]["labels"], rows[1]["labels"] = rows[1]["labels"], rows[0]["labels"]


def noise_without_noise(planted):
    row = first(planted, variant="noise")
    row["input_ids"] = row["labels"]


def labels_that_are_not_the_ids(planted):
    first(planted, variant="")["labels"][3] += 1


def a_kind_that_files_does_not_know(planted):
    row = first(planted, variant="rename")
    row_of(planted, row, "rename")["kind"] = "comments"


def a_variant_that_is_only_told(planted):
    row = first(planted, variant="noise")
    rows = planted.rows["train"]
    planted.rows["train"] = [
        one for one in rows if (one["path"], one["repo"], one["variant"]) != (row["path"], row["repo"], "noise")
    ]


@pytest.mark.parametrize(
    "plant",
    [
        other_seed,
        one_row_less,
        one_id_of_a_rename,
        labels_of_another,
        noise_without_noise,
        labels_that_are_not_the_ids,
        a_kind_that_files_does_not_know,
        a_variant_that_is_only_told,
    ],
    ids=lambda plant: plant.__name__,
)
def test_a_fault_in_a_variant_is_found(planted, plant):
    plant(planted)
    assert "variants" in planted.check()


def test_a_variant_in_a_held_out_split_is_found(planted):
    row = first(planted, variant="rename")
    planted.rows["test"].append({**row, "path": planted.rows["test"][-1]["path"]})
    assert "variants" in planted.check()


def test_a_sentinel_where_none_belongs_is_found(planted):
    first(planted, variant="rename")["input_ids"][4] = 50_265
    assert "special_tokens" in planted.check()


def test_a_mask_outside_of_noise_is_found(planted):
    first(planted, variant="")["input_ids"][4] = 50_264
    assert "special_tokens" in planted.check()


def repeated(planted):
    return next(row for row in planted.rows["train"] if row["repeat"] == 1)


def test_a_repeat_that_is_counted_wrong_is_found(planted):
    repeated(planted)["repeat"] = 5
    assert "windows" in planted.check()


def test_a_hidden_copy_is_found(planted):
    row = first(planted, variant="", repeat=0)
    planted.rows["train"].insert(planted.rows["train"].index(row), dict(row))
    failed = planted.check()
    assert {"duplicates", "windows"} & set(failed)


def test_a_repeat_with_other_ids_is_found(planted):
    row = repeated(planted)
    row["input_ids"][5] = row["input_ids"][5] % 1000 + 1
    assert "windows" in planted.check()


def test_fresh_tokens_in_a_repeat_are_found(planted):
    repeated(planted)["fresh"] = 7
    assert "fresh" in planted.check()


def test_a_draw_that_is_not_what_the_rows_show_is_found(planted):
    file = planted.file_of(repeated(planted))
    file["draw"][0] += 1
    assert "windows" in planted.check()


def test_repeats_of_a_file_that_is_said_to_be_shown_once_are_found(planted):
    file = planted.file_of(repeated(planted))
    file["draw"] = None
    assert "windows" in planted.check()


def test_a_hidden_copy_that_is_called_a_variant_is_found(planted):
    row = first(planted, variant="rename")
    table = row_of(planted, row, "rename")
    table["text_sha256"] = planted.file_of(row)["text_sha256"]
    assert "variants" in planted.check()


def test_the_files_own_rows_under_the_name_of_a_variant_are_found(planted):
    rows = planted.rows["train"]
    chosen = first(planted, variant="rename")
    own = [row for row in rows if (row["path"], row["repo"]) == (chosen["path"], chosen["repo"])]
    clean = {row["start"]: row for row in own if not row["variant"]}
    for row in own:
        if row["variant"] == "rename" and row["start"] in clean:
            row["input_ids"] = row["labels"] = clean[row["start"]]["input_ids"]
            break
    assert "variants" in planted.check()


def test_a_held_out_file_that_is_shown_twice_is_found(planted):
    row = planted.rows["test"][0]
    planted.file_of(row)["draw"] = [2, 0]
    assert "held out, and shown 2 times" in str(planted.check()["windows"])


def test_more_epochs_than_were_allowed_are_found(planted):
    planted.manifest["settings"]["sampling"]["max_epochs"] = 1
    assert "max_epochs is 1" in str(planted.check()["windows"])


def test_windows_that_another_seed_would_draw_are_found(planted):
    planted.manifest["settings"]["sampling"]["seed"] = 99
    assert "is drawn" in str(planted.check())


@pytest.mark.parametrize(
    ("section", "name", "value"),
    [
        ("variants", "made", 999),
        ("variants", "windows", 1),
        ("variants", "chosen", 0),
        ("variants", "missing", {"more_errors": 3}),
        ("epochs", "effective", 50.0),
        ("sampling", "windows", {"train": 1, "validation": 1, "test": 1}),
    ],
)
def test_what_the_manifest_tells_wrong_is_found(planted, section, name, value):
    facts = planted.manifest[section]
    facts = facts["rename"] if section == "variants" else facts
    facts[name] = value
    assert "files_table" in planted.check()


def test_shares_that_do_not_add_up_are_found(planted):
    planted.manifest["sampling"]["groups"][0]["realised_share"] += 0.3
    assert "files_table" in planted.check()


def test_a_reason_that_is_gone_is_found(planted):
    for file in planted.files:
        file["variants"] = [row for row in file["variants"] if row["missing"] is None]
    is_any = any(facts["missing"] for facts in planted.manifest["variants"].values())
    assert ("files_table" in planted.check()) == is_any
    assert is_any


def test_every_kind_whose_windows_are_by_themselves_has_a_check_of_its_own():
    assert set(CHECKS_BY_THEMSELVES) == BY_THEMSELVES
