"""Faults planted into a dataset with fill in the middle: each is found, by the check that is about it."""

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


def first(planted, **wanted):
    rows = (row for row in planted.rows["train"] if row["fim"])
    return next(row for row in rows if all(row[name] == value for name, value in wanted.items()))


def test_the_dataset_is_good_before(planted):
    assert planted.check() == {}
    assert {row["fim"] for row in planted.rows["train"]} == {"", "psm", "spm"}


def a_sentinel_less(planted):
    first(planted)["input_ids"].remove(MIDDLE)


def sentinels_in_another_order(planted):
    row = first(planted)
    swap = {MIDDLE: SUFFIX, SUFFIX: MIDDLE}
    row["input_ids"] = [swap.get(one, one) for one in row["input_ids"]]


def one_id_is_another(planted):
    ids = first(planted, fim="psm")["input_ids"]
    ids[2] = 1437 if ids[2] != 1437 else 1438


def parts_in_another_order(planted):
    """Prefix and suffix change places; the sentinels stay."""
    rows = (row for row in planted.rows["train"] if row["fim"] == "psm")
    row = next(one for one in rows if 2 < one["input_ids"].index(SUFFIX) < one["input_ids"].index(MIDDLE) - 1)
    ids = row["input_ids"]
    suffix, middle = ids.index(SUFFIX), ids.index(MIDDLE)
    row["input_ids"] = [ids[0], *ids[suffix + 1 : middle], SUFFIX, *ids[1:suffix], *ids[middle:]]


def a_piece_of_another_place(planted):
    rows = [row for row in planted.rows["train"] if row["fim"]]
    one, other = next(
        (one, two) for one, two in pairwise(rows) if (one["path"], one["fim"]) == (two["path"], two["fim"])
    )
    for name in ("input_ids", "middle", "middle_tokens"):
        one[name], other[name] = other[name], one[name]


def a_longer_middle(planted):
    first(planted, fim="psm")["middle_tokens"] += 1


def the_other_form(planted):
    first(planted, fim="psm")["fim"] = "spm"


def lines_that_are_none(planted):
    first(planted, middle="arguments")["middle"] = "lines"


def fewer_in_the_table(planted):
    file = planted.file_of(first(planted))
    file["fim"]["rewritten"] -= 1


def not_in_the_table(planted):
    planted.file_of(first(planted))["fim"] = None


def another_rate_in_the_manifest(planted):
    planted.manifest["fim"]["rate"] = 0.5


def more_files_in_the_manifest(planted):
    planted.manifest["fim"]["rewritten"] += 1


def other_middles_in_the_manifest(planted):
    planted.manifest["fim"]["middles"]["lines"] += 1


@pytest.mark.parametrize(
    "plant",
    [
        a_sentinel_less,
        sentinels_in_another_order,
        one_id_is_another,
        parts_in_another_order,
        a_piece_of_another_place,
        a_longer_middle,
        the_other_form,
        lines_that_are_none,
        fewer_in_the_table,
        not_in_the_table,
        another_rate_in_the_manifest,
        more_files_in_the_manifest,
        other_middles_in_the_manifest,
    ],
    ids=lambda plant: plant.__name__,
)
def test_a_fault_is_found(planted, plant):
    plant(planted)
    assert "fim" in planted.check()


def test_a_missing_row_is_found(planted):
    planted.rows["train"].remove(next(row for row in planted.rows["train"] if row["fim"] and row["start"]))
    assert {"windows", "files_table"} <= set(planted.check())


def test_a_missing_end_token_is_found(planted):
    assert first(planted)["input_ids"].pop() == END
    assert "special_tokens" in planted.check()


def test_a_rewritten_row_in_a_held_out_split_is_found(planted):
    row = planted.rows["test"][-1]
    row |= {"fim": "psm", "middle": "lines", "middle_tokens": 3}
    assert "fim" in planted.check()


def test_a_sentinel_where_none_belongs_is_found(planted):
    next(row for row in planted.rows["train"] if not row["fim"])["input_ids"][4] = PREFIX
    assert "special_tokens" in planted.check()


def test_a_tokenizer_without_the_tokens_is_found(planted):
    tree = json.loads((planted.folder / "tokenizer.json").read_text())
    for token in tree["added_tokens"]:
        token["content"] = token["content"].replace("fim_", "fam_")
    (planted.folder / "tokenizer.json").write_text(json.dumps(tree))
    assert "no tokens for fill in the middle" in str(planted.check()["special_tokens"])


def test_text_of_train_in_a_held_out_file_is_found_across_the_seams(planted):
    """Leakage is measured on the file's own tokens: a span that the cut goes through is found too."""
    held_out, tokenizer = planted.rows["test"][0], load_tokenizer(str(planted.folder))
    rows = (row for row in planted.rows["train"] if row["fim"] == "psm")
    ids = next(row["input_ids"] for row in rows if 50 < row["input_ids"].index(SUFFIX) < 150)[:-1]
    at, to = ids.index(SUFFIX), ids.index(MIDDLE)
    text = b"".join(tokenizer.decode(part) for part in (ids[1:at], ids[to + 1 :], ids[at + 1 : to]))
    own = tokenizer.encode(text).ids.tolist()
    middle = len(tokenizer.encode(tokenizer.decode(ids[1:at])).ids)
    around = own[max(0, middle - 40) : middle + 40]
    assert len(around) >= 60
    content = held_out["input_ids"]
    held_out["input_ids"] = [*around, *content[len(around) :]]
    assert "leakage" in planted.check()


def changed(row, dice):
    """Change one thing in a row, still of the right type."""
    name = dice.choice(["input_ids", "input_ids", "fim", "middle", "middle_tokens", "start", "fresh", "lines"])
    ids = row["input_ids"]
    match name:
        case "input_ids":
            at = dice.randrange(len(ids))
            ids[at : at + dice.choice([0, 1, 1, 30])] = dice.choices([1, 1437, END, PREFIX, MIDDLE, SUFFIX], k=1)
        case "fim":
            row["fim"] = ""
        case "middle":
            row["middle"] = ""
        case "middle_tokens":  # of SPM, where the middle begins cannot be seen
            row[name] = 0 if row["fim"] == "spm" else row[name] + 1
        case "lines":
            row["lines"] = [row["lines"][0] + 1, row["lines"][1]]
        case _:
            row[name] += dice.choice([1, 7, 1 << 20])


@pytest.mark.parametrize("seed", range(12))
def test_any_change_is_found_and_none_raises(good, tmp_path, seed):
    dice = random.Random(seed)
    for number in range(5):
        planted = Planted(shutil.copytree(good, tmp_path / str(number)))
        rewritten = [row for row in planted.rows["train"] if row["fim"]]
        before = json.dumps(rewritten)
        for row in dice.sample(rewritten, dice.choice([1, 3])):
            changed(row, dice)
        assert bool(planted.check()) == (json.dumps(rewritten) != before)
        shutil.rmtree(planted.folder)
