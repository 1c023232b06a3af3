"""Each fault planted in a dataset with fill-in-the-middle is reported by the responsible check."""

import json
import random
import shutil
from itertools import pairwise

import pytest

from gristmill import Config, FimConfig, WindowConfig, build, load_tokenizer
from support.codebert_with import MARKERS, codebert_with
from support.planted import Planted

END, REPO, FILE, PREFIX, MIDDLE, SUFFIX = range(50_265, 50_271)


@pytest.fixture(scope="module")
def good(tmp_path_factory, corpus):
    folder = tmp_path_factory.mktemp("planted-fim")
    config = Config(
        sources=[str(corpus / name) for name in ("json", "concurrent")],
        out=str(folder / "dataset"),
        preset="fim",
        tokenizer=codebert_with(MARKERS, folder / "tokenizer", is_causal=True),
        window=WindowConfig(length=256, pack="none"),
        fim=FimConfig(rate=0.6),
    )
    build(config)
    return folder / "dataset"


@pytest.fixture
def planted(good, tmp_path):
    return Planted(shutil.copytree(good, tmp_path / "dataset"))


def first_row(planted, **columns):
    rows = (row for row in planted.rows["train"] if row["fim"])
    return next(row for row in rows if all(row[name] == value for name, value in columns.items()))


def test_unchanged_dataset_passes(planted):
    assert planted.check() == {}
    assert {row["fim"] for row in planted.rows["train"]} == {"", "psm", "spm"}


def remove_sentinel(planted):
    first_row(planted)["input_ids"].remove(MIDDLE)


def swap_sentinels(planted):
    row = first_row(planted)
    swap = {MIDDLE: SUFFIX, SUFFIX: MIDDLE}
    row["input_ids"] = [swap.get(one, one) for one in row["input_ids"]]


def change_id(planted):
    ids = first_row(planted, fim="psm")["input_ids"]
    ids[2] = 1437 if ids[2] != 1437 else 1438


def swap_prefix_and_suffix(planted):
    """Swap the prefix and the suffix, but leave the sentinels in place."""
    rows = (row for row in planted.rows["train"] if row["fim"] == "psm")
    row = next(one for one in rows if 2 < one["input_ids"].index(SUFFIX) < one["input_ids"].index(MIDDLE) - 1)
    ids = row["input_ids"]
    suffix, middle = ids.index(SUFFIX), ids.index(MIDDLE)
    row["input_ids"] = [ids[0], *ids[suffix + 1 : middle], SUFFIX, *ids[1:suffix], *ids[middle:]]


def swap_rows_of_a_file(planted):
    rows = [row for row in planted.rows["train"] if row["fim"]]
    one, other = next(
        (one, two) for one, two in pairwise(rows) if (one["path"], one["fim"]) == (two["path"], two["fim"])
    )
    for name in ("input_ids", "middle", "middle_tokens"):
        one[name], other[name] = other[name], one[name]


def lengthen_middle(planted):
    first_row(planted, fim="psm")["middle_tokens"] += 1


def change_form(planted):
    first_row(planted, fim="psm")["fim"] = "spm"


def declare_middle_as_lines(planted):
    first_row(planted, middle="arguments")["middle"] = "lines"


def decrease_count_in_table(planted):
    file = planted.file_of(first_row(planted))
    file["fim"]["rewritten"] -= 1


def remove_fim_from_table(planted):
    planted.file_of(first_row(planted))["fim"] = None


def change_rate_in_manifest(planted):
    planted.manifest["fim"]["rate"] = 0.5


def increase_count_in_manifest(planted):
    planted.manifest["fim"]["rewritten"] += 1


def change_middles_in_manifest(planted):
    planted.manifest["fim"]["middles"]["lines"] += 1


@pytest.mark.parametrize(
    "plant",
    [
        remove_sentinel,
        swap_sentinels,
        change_id,
        swap_prefix_and_suffix,
        swap_rows_of_a_file,
        lengthen_middle,
        change_form,
        declare_middle_as_lines,
        decrease_count_in_table,
        remove_fim_from_table,
        change_rate_in_manifest,
        increase_count_in_manifest,
        change_middles_in_manifest,
    ],
    ids=lambda plant: plant.__name__,
)
def test_fault_is_reported(planted, plant):
    plant(planted)
    assert "fim" in planted.check()


def test_missing_row_is_reported(planted):
    planted.rows["train"].remove(next(row for row in planted.rows["train"] if row["fim"] and row["start"]))
    assert {"windows", "files_table"} <= set(planted.check())


def test_missing_end_token_is_reported(planted):
    assert first_row(planted)["input_ids"].pop() == END
    assert "special_tokens" in planted.check()


def test_rewritten_row_in_held_out_split_is_reported(planted):
    row = planted.rows["test"][-1]
    row |= {"fim": "psm", "middle": "lines", "middle_tokens": 3}
    assert "fim" in planted.check()


def test_unexpected_sentinel_is_reported(planted):
    next(row for row in planted.rows["train"] if not row["fim"])["input_ids"][4] = PREFIX
    assert "special_tokens" in planted.check()


def test_tokenizer_without_sentinels_is_reported(planted):
    tree = json.loads((planted.folder / "tokenizer.json").read_text())
    for token in tree["added_tokens"]:
        token["content"] = token["content"].replace("fim_", "fam_")
    (planted.folder / "tokenizer.json").write_text(json.dumps(tree))
    assert "no fill-in-the-middle tokens" in str(planted.check()["special_tokens"])


def test_leak_across_the_edge_of_a_middle_is_reported(planted):
    """Leakage is measured on the original tokens, so a span across the edge of a middle is found."""
    held_out, tokenizer = planted.rows["test"][0], load_tokenizer(str(planted.folder))
    rows = (row for row in planted.rows["train"] if row["fim"] == "psm")
    ids = next(row["input_ids"] for row in rows if 50 < row["input_ids"].index(SUFFIX) < 150)[:-1]
    at, to = ids.index(SUFFIX), ids.index(MIDDLE)
    text = b"".join(tokenizer.decode(part) for part in (ids[1:at], ids[to + 1 :], ids[at + 1 : to]))
    original = tokenizer.encode(text).ids.tolist()
    middle = len(tokenizer.encode(tokenizer.decode(ids[1:at])).ids)
    around = original[max(0, middle - 40) : middle + 40]
    assert len(around) >= 60
    content = held_out["input_ids"]
    held_out["input_ids"] = [*around, *content[len(around) :]]
    assert "leakage" in planted.check()


def change_row(row, rng):
    """Change one random value in a row, without changing its type."""
    name = rng.choice(["input_ids", "input_ids", "fim", "middle", "middle_tokens", "start", "fresh", "lines"])
    ids = row["input_ids"]
    match name:
        case "input_ids":
            at = rng.randrange(len(ids))
            ids[at : at + rng.choice([0, 1, 1, 30])] = rng.choices([1, 1437, END, PREFIX, MIDDLE, SUFFIX], k=1)
        case "fim":
            row["fim"] = ""
        case "middle":
            row["middle"] = ""
        case "middle_tokens":  # the check cannot verify where the middle of an SPM row starts
            row[name] = 0 if row["fim"] == "spm" else row[name] + 1
        case "lines":
            row["lines"] = [row["lines"][0] + 1, row["lines"][1]]
        case _:
            row[name] += rng.choice([1, 7, 1 << 20])


@pytest.mark.parametrize("seed", range(12))
def test_any_change_is_reported_without_raising(good, tmp_path, seed):
    rng = random.Random(seed)
    for number in range(5):
        planted = Planted(shutil.copytree(good, tmp_path / str(number)))
        rewritten = [row for row in planted.rows["train"] if row["fim"]]
        before = json.dumps(rewritten)
        for row in rng.sample(rewritten, rng.choice([1, 3])):
            change_row(row, rng)
        assert bool(planted.check()) == (json.dumps(rewritten) != before)
        shutil.rmtree(planted.folder)
