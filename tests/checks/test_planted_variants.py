"""Each fault planted in a dataset with repeats and variants is reported by the responsible check."""

import shutil

import pytest

from gristmill import Config, SamplingConfig, VariantsConfig, build
from gristmill.checks.variants import INDEPENDENT_WINDOW_CHECKS
from gristmill.core.records import INDEPENDENT_WINDOW_KINDS
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


def first_row(planted, **columns):
    return next(row for row in planted.rows["train"] if all(row[name] == value for name, value in columns.items()))


def variant_row(planted, row, kind):
    return next(one for one in planted.file_of(row)["variants"] if one["kind"] == kind)


def test_unchanged_dataset_passes(planted):
    assert planted.check() == {}
    assert any(row["repeat"] for row in planted.rows["train"])


def change_seed(planted):
    first_row(planted, variant="rename")["variant_seed"] += 1


def remove_row(planted):
    planted.rows["train"].remove(first_row(planted, variant="rename"))


def change_id_of_rename(planted):
    rows = (row for row in planted.rows["train"] if row["variant"] == "rename")
    # Choose a variant with all its windows, so that the check can decode the complete text.
    row = next(row for row in rows if variant_row(planted, row, "rename")["draw"] is None)
    row["input_ids"][3] = row["input_ids"][3] % 1000 + 1


def swap_labels(planted):
    rows = [row for row in planted.rows["train"] if row["variant"] == "noise"]
    rows[0]["labels"], rows[1]["labels"] = rows[1]["labels"], rows[0]["labels"]


def remove_noise(planted):
    row = first_row(planted, variant="noise")
    row["input_ids"] = row["labels"]


def change_label(planted):
    first_row(planted, variant="")["labels"][3] += 1


def change_kind_in_table(planted):
    row = first_row(planted, variant="rename")
    variant_row(planted, row, "rename")["kind"] = "comments"


def remove_all_rows_of_variant(planted):
    row = first_row(planted, variant="noise")
    rows = planted.rows["train"]
    planted.rows["train"] = [
        one for one in rows if (one["path"], one["repo"], one["variant"]) != (row["path"], row["repo"], "noise")
    ]


@pytest.mark.parametrize(
    "plant",
    [
        change_seed,
        remove_row,
        change_id_of_rename,
        swap_labels,
        remove_noise,
        change_label,
        change_kind_in_table,
        remove_all_rows_of_variant,
    ],
    ids=lambda plant: plant.__name__,
)
def test_fault_in_variant_is_reported(planted, plant):
    plant(planted)
    assert "variants" in planted.check()


def test_variant_in_held_out_split_is_reported(planted):
    row = first_row(planted, variant="rename")
    planted.rows["test"].append({**row, "path": planted.rows["test"][-1]["path"]})
    assert "variants" in planted.check()


def test_unexpected_sentinel_is_reported(planted):
    first_row(planted, variant="rename")["input_ids"][4] = 50_265
    assert "special_tokens" in planted.check()


def test_mask_outside_of_noise_is_reported(planted):
    first_row(planted, variant="")["input_ids"][4] = 50_264
    assert "special_tokens" in planted.check()


def repeated_row(planted):
    return next(row for row in planted.rows["train"] if row["repeat"] == 1)


def test_wrong_repeat_number_is_reported(planted):
    repeated_row(planted)["repeat"] = 5
    assert "windows" in planted.check()


def test_duplicate_row_is_reported(planted):
    row = first_row(planted, variant="", repeat=0)
    planted.rows["train"].insert(planted.rows["train"].index(row), dict(row))
    failed = planted.check()
    assert {"duplicates", "windows"} & set(failed)


def test_repeat_with_different_ids_is_reported(planted):
    row = repeated_row(planted)
    row["input_ids"][5] = row["input_ids"][5] % 1000 + 1
    assert "windows" in planted.check()


def test_fresh_tokens_in_repeat_are_reported(planted):
    repeated_row(planted)["fresh"] = 7
    assert "fresh" in planted.check()


def test_draw_that_differs_from_rows_is_reported(planted):
    file = planted.file_of(repeated_row(planted))
    file["draw"][0] += 1
    assert "windows" in planted.check()


def test_repeats_without_a_draw_are_reported(planted):
    file = planted.file_of(repeated_row(planted))
    file["draw"] = None
    assert "windows" in planted.check()


def test_variant_with_text_of_its_file_is_reported(planted):
    row = first_row(planted, variant="rename")
    table = variant_row(planted, row, "rename")
    table["text_sha256"] = planted.file_of(row)["text_sha256"]
    assert "variants" in planted.check()


def test_original_window_in_variant_is_reported(planted):
    rows = planted.rows["train"]
    chosen = first_row(planted, variant="rename")
    own = [row for row in rows if (row["path"], row["repo"]) == (chosen["path"], chosen["repo"])]
    original_rows = {row["start"]: row for row in own if not row["variant"]}
    for row in own:
        if row["variant"] == "rename" and row["start"] in original_rows:
            row["input_ids"] = row["labels"] = original_rows[row["start"]]["input_ids"]
            break
    assert "variants" in planted.check()


def test_repeated_held_out_file_is_reported(planted):
    row = planted.rows["test"][0]
    planted.file_of(row)["draw"] = [2, 0]
    assert "held out, but used 2 times" in str(planted.check()["windows"])


def test_too_many_epochs_are_reported(planted):
    planted.manifest["settings"]["sampling"]["max_epochs"] = 1
    assert "max_epochs is 1" in str(planted.check()["windows"])


def test_draw_with_wrong_seed_is_reported(planted):
    planted.manifest["settings"]["sampling"]["seed"] = 99
    assert "but the seed draws" in str(planted.check())


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
def test_wrong_fact_in_manifest_is_reported(planted, section, name, value):
    facts = planted.manifest[section]
    facts = facts["rename"] if section == "variants" else facts
    facts[name] = value
    assert "files_table" in planted.check()


def test_shares_that_do_not_add_up_are_reported(planted):
    planted.manifest["sampling"]["groups"][0]["realised_share"] += 0.3
    assert "files_table" in planted.check()


def test_missing_reason_is_reported(planted):
    for file in planted.files:
        file["variants"] = [row for row in file["variants"] if row["missing"] is None]
    has_missing = any(facts["missing"] for facts in planted.manifest["variants"].values())
    assert ("files_table" in planted.check()) == has_missing
    assert has_missing


def test_every_kind_with_independent_windows_has_a_check():
    assert set(INDEPENDENT_WINDOW_CHECKS) == INDEPENDENT_WINDOW_KINDS
