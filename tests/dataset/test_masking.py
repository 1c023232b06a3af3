"""Masking selects tokens at the requested rate, never selects special tokens, and changes only selected tokens."""

import numpy as np
import pytest

from gristmill import load_tokenizer
from gristmill.core.errors import ConfigError
from gristmill.core.seeded_random import stable_hash
from gristmill.dataset.frame import Frame
from gristmill.dataset.masking import Masking
from gristmill.dataset.token_edges import TokenProperties, token_bytes
from support.late_imports import Late, late
from support.trained_tokenizers import word_piece

torch = Late("torch")
CausalCollator, MaskedCollator = late("gristmill.dataset.collators", "CausalCollator", "MaskedCollator")

FRAME = Frame(length=512, num_prefix=1, num_suffix=1, pad_id=1, vocab_size=50_265)
MASK_ID = 50264
SOURCE = b"def number_of_windows(total_length, overlapping):\n    return overlapping // total_length + 1\n"


def item(ids, position=0, epoch=0, fresh=None):
    ids = torch.tensor([0, *ids, 2])
    fresh = len(ids) - 2 if fresh is None else fresh
    return {"input_ids": ids, "epoch": epoch, "position": position, "row": 0, "fresh": fresh}


@pytest.fixture(scope="module")
def ids(codebert):
    return codebert.encode(SOURCE * 12).ids[:500].tolist()


@pytest.fixture(scope="module")
def many_items(ids):
    return [item(ids[: 100 + position % 400], position) for position in range(400)]


def test_default_rates_select_15_percent_and_mask_80_percent_of_these(codebert, many_items):
    batch = MaskedCollator(FRAME, codebert)(many_items)
    labels, seen = batch["labels"].numpy(), batch["input_ids"].numpy()
    hidden = labels != -100
    num_tokens = sum(len(one["input_ids"]) - 2 for one in many_items)
    assert hidden.sum() / num_tokens == pytest.approx(0.15, abs=0.005)
    assert (seen[hidden] == MASK_ID).mean() == pytest.approx(0.8, abs=0.01)
    assert (seen[hidden] == labels[hidden]).mean() == pytest.approx(0.1, abs=0.01)


def test_selected_tokens_have_labels_and_others_are_unchanged(codebert, many_items):
    batch = MaskedCollator(FRAME, codebert)(many_items)
    plain = CausalCollator(FRAME)(many_items)["input_ids"]
    hidden = batch["labels"] != -100
    assert torch.equal(batch["input_ids"][~hidden], plain[~hidden])
    assert torch.equal(batch["labels"][hidden], plain[hidden])


def test_special_tokens_and_padding_are_never_selected_or_inserted(codebert, many_items):
    control = sorted(codebert.definition.control_ids)
    with_control = [item([*control, 5, 6, 7] * 50, position) for position in range(100)]
    for items in (many_items, with_control):
        plain = CausalCollator(FRAME)(items)["input_ids"].numpy()
        batch = MaskedCollator(FRAME, codebert, rate=1.0)(items)
        labels, seen = batch["labels"].numpy(), batch["input_ids"].numpy()
        is_control = np.isin(plain, control)
        assert (labels[is_control] == -100).all()
        assert (labels[~is_control] != -100).all()
        replaced = seen[(seen != plain) & (seen != MASK_ID)]
        assert len(replaced) > 100
        assert not np.isin(replaced, control).any()


def test_mask_depends_on_the_draw_and_not_on_the_batch(codebert, ids):
    collate = MaskedCollator(FRAME, codebert, seed=3)
    together = collate([item(ids[:60], 7), item(ids, 8), item(ids[:60], 9), item(ids[:60], 7, epoch=1)])
    (alone,) = collate([item(ids[:60], 7)])["labels"]
    assert torch.equal(together["labels"][0, :62], alone)
    assert not torch.equal(together["labels"][2, :62], alone)
    assert not torch.equal(together["labels"][3, :62], alone)
    assert not torch.equal(MaskedCollator(FRAME, codebert, seed=4)([item(ids[:60], 7)])["labels"][0], alone)


def mix_bits(state):
    """Mix the bits of a number as in SplitMix64, with Python integers."""
    state = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    state = (state ^ (state >> 27)) * 0x94D049BB133111EB % 2**64
    return state ^ (state >> 31)


def test_masks_match_a_pure_python_hash():
    step, (epoch, position), rate = 0x9E3779B97F4A7C15, (2, 1000), 0.5
    ids, random_ids = list(range(20, 60)), list(range(10, 90))
    window = mix_bits(
        (mix_bits((stable_hash("feeding", "mask", 5) + (epoch + 1) * step) % 2**64) + (position + 1) * step) % 2**64
    )
    expected = []
    for index, one in enumerate(ids):
        bits = mix_bits((window + (index + 1) * step) % 2**64)
        choice = mix_bits((bits + step) % 2**64)
        other = random_ids[mix_bits((choice + step) % 2**64) * len(random_ids) >> 64]
        seen = 99 if choice < 0.8 * 2**64 else other if choice < 0.9 * 2**64 else one
        expected.append(seen if bits < rate * 2**64 else one)
    masking = Masking(99, np.array(random_ids), rate=rate, seed=5)
    all_maskable = np.ones((1, len(ids)), bool)
    found = masking.mask(np.array([ids]), all_maskable, np.array([epoch]), np.array([position])).ids
    assert found[0].tolist() == expected
    assert 99 in expected


def test_tokens_of_an_identifier_are_selected_together(codebert, ids):
    collate = MaskedCollator(FRAME, codebert, whole_identifiers=True)
    items = [item(ids, position) for position in range(300)]
    hidden = (collate(items)["labels"] != -100).numpy()[:, 1:-1]
    assert hidden.mean() == pytest.approx(0.15, abs=0.01)
    words, word = [], 0
    token_texts = token_bytes(codebert)
    for before, after in zip(
        [b" ", *(token_texts[one] for one in ids)], (token_texts[one] for one in ids), strict=False
    ):
        joined = (before + b"|" + after).decode()
        left, right = joined[joined.index("|") - 1], joined[joined.index("|") + 1]
        word += not ((left.isalnum() or left == "_") and (right.isalnum() or right == "_"))
        words.append(word)
    assert len(set(words)) < 0.8 * len(words)
    for number in set(words):
        members = hidden[:, np.array(words) == number]
        assert (members.all(axis=1) | ~members.any(axis=1)).all()


def test_fresh_only_limits_labels_but_not_masks(codebert, ids):
    items = [item(ids[:200], position, fresh=50) for position in range(50)]
    batch = MaskedCollator(FRAME, codebert, fresh_only=True)(items)
    everywhere = MaskedCollator(FRAME, codebert)(items)
    assert torch.equal(batch["input_ids"], everywhere["input_ids"])
    assert torch.equal(batch["labels"][:, 151:], everywhere["labels"][:, 151:])
    assert (batch["labels"][:, :151] == -100).all()
    assert (everywhere["labels"][:, :151] != -100).any()


def test_causal_labels_exclude_special_tokens(ids):
    batch = CausalCollator(FRAME)([item(ids[:5]), item(ids[:3], fresh=1)])
    assert batch["labels"].tolist() == [[-100, *ids[:5], -100], [-100, *ids[:3], -100, -100, -100]]
    assert batch["attention_mask"].tolist() == [[1] * 7, [1] * 5 + [0] * 2]
    fresh = CausalCollator(FRAME, fresh_only=True)([item(ids[:5]), item(ids[:3], fresh=1)])
    assert fresh["labels"].tolist() == [[-100, *ids[:5], -100], [-100] * 3 + [ids[2]] + [-100] * 3]


@pytest.mark.parametrize(("options", "width"), [({}, 7), ({"multiple_of": 8}, 8), ({"pad": "length"}, 512)])
def test_batches_are_padded_to_the_longest_item_a_multiple_or_the_window_length(ids, options, width):
    batch = CausalCollator(FRAME, **options)([item(ids[:5]), item(ids[:3])])
    assert {tuple(tensor.shape) for tensor in batch.values()} == {(2, width)}
    assert (batch["input_ids"][1, 5:] == 1).all()


def test_token_properties_match_the_tokenizer(codebert, ids):
    vocabulary = TokenProperties.of(codebert)
    assert vocabulary.num_bytes[ids].sum() == len(codebert.decode(ids))
    assert set(np.flatnonzero(vocabulary.is_control)) == codebert.definition.control_ids


def test_whole_identifiers_need_a_tokenizer_that_restores_the_text(tmp_path):
    (tmp_path / "tokenizer.json").write_text(word_piece())
    tokenizer = load_tokenizer(str(tmp_path / "tokenizer.json"))
    assert TokenProperties.of(tokenizer).num_bytes is None
    with pytest.raises(ConfigError, match="whole_identifiers"):
        MaskedCollator(FRAME, tokenizer, whole_identifiers=True)


def test_items_without_a_draw_are_rejected(codebert, ids):
    with pytest.raises(ConfigError, match=r"dataset\.loader"):
        MaskedCollator(FRAME, codebert)([{"input_ids": torch.tensor(ids)}])
