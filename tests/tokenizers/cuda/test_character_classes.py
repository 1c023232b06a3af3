"""Compare the table of characters that NFC leaves unchanged with `unicodedata` and with `tokenizers`."""

import random
import unicodedata
from functools import cache

import numpy as np
import pytest
from tokenizers import normalizers

from gristmill.core.errors import NotOnGpuError
from gristmill.tokenizers.cuda.character_classes import LEFT_TO_CPU, character_classes, stable_code_points
from gristmill.tokenizers.cuda.patterns import QWEN2, Pattern
from gristmill.tokenizers.tokenizer import tokenizer_for
from support.gpu_texts import SCALARS, definition_named, definition_of, with_nfc


@cache
def stable():
    return "".join(map(chr, stable_code_points().tolist()))


def assert_unchanged(text):
    assert unicodedata.normalize("NFC", text) == text
    assert normalizers.NFC().normalize_str(text) == text


def test_each_stable_character_alone():
    assert all(unicodedata.normalize("NFC", one) == one for one in stable())
    assert_unchanged("\n".join(stable()))


def test_stable_characters_in_any_order():
    assert_unchanged(stable())
    for seed in range(5):
        assert_unchanged("".join(random.Random(seed).sample(stable(), len(stable()))))


def test_no_stable_character_composes_with_a_preceding_one():
    """Put each character that can start a composition before every 7th stable character and before adjacent ones."""
    decomposed = {unicodedata.normalize("NFD", one) for one in SCALARS}
    first = sorted({one[0] for one in decomposed if len(one) > 1}.union("\uac00\ud788").intersection(stable()))
    candidates = np.array([one for one in stable() if unicodedata.category(one) != "Co"])
    assert len(first) > 300
    for at, one in enumerate(first):
        near = candidates[np.abs(np.searchsorted(candidates, one) - np.arange(len(candidates))) < 300]
        text = "".join(f"{one}{other}" for other in [*candidates[at % 7 :: 7], *near])
        assert unicodedata.normalize("NFC", text) == text
        if at % 20 == 0:
            assert_unchanged(text)


def test_characters_that_the_normalizer_changes_are_not_stable():
    changed = {one for one in SCALARS if normalizers.NFC().normalize_str(one) != one}
    assert "\u212b" in changed
    assert changed.isdisjoint(stable())


@pytest.mark.parametrize(
    "one",
    {
        "a mark": "\u0301",
        "a mark that nothing composes with": "\u0335",
        "a singleton": "\u212b",
        "a composition exclusion": "\u0958",
        "a vowel sign of class 0 that joins": "\u09be",
        "Hangul's first vowel": "\u1161",
        "Hangul's last final": "\u11c2",
        "not assigned": "\u0378",
        "the last code point, not assigned": "\U0010ffff",
        "a surrogate": "\ud800",
    }.items(),
    ids=lambda named: named[0],
)
def test_unstable_characters_are_left_to_the_cpu(one):
    assert one[1] not in stable()


def test_ascii_and_common_characters_of_source_code_are_stable():
    assert set(map(chr, range(128))) | set("éßäñ字漢각が→≠…’“µ🙂\u00a0\u200b\ufeff\u1100\ue000") <= set(stable())


def test_nfc_changes_only_the_classes_of_unstable_characters():
    plain, checked = (character_classes(QWEN2._replace(with_nfc=with_nfc)) for with_nfc in (False, True))
    assert np.array_equal(np.flatnonzero(checked != LEFT_TO_CPU), stable_code_points())
    assert np.array_equal(checked[stable_code_points()], plain[stable_code_points()])
    assert not (plain == LEFT_TO_CPU).any()


@pytest.mark.parametrize("in_sequence", [False, True])
def test_nfc_is_supported_with_the_reference_as_fallback(in_sequence):
    definition = with_nfc(definition_named("qwen2"), in_sequence=in_sequence)
    assert Pattern.of(definition) == QWEN2._replace(with_nfc=True)
    assert " and tokenizers " in tokenizer_for(definition).engine


@pytest.mark.parametrize("more", [b'{"type":"NFKC"}', b'{"type":"NFC"},{"type":"Lowercase"}', b""])
def test_other_normalizers_are_rejected(more):
    changed = definition_named("qwen2").json.replace(
        b'"normalizer":null', b'"normalizer":{"type":"Sequence","normalizers":[%b]}' % more
    )
    with pytest.raises(NotOnGpuError, match="its normalizer Sequence"):
        Pattern.of(definition_of(changed.decode()))
