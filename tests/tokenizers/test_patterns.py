"""Test that gigatoken splits every character as `tokenizers` does, for the patterns of current code models.

Texts that gigatoken would split differently are left to `tokenizers`.
"""

import json
import random
import unicodedata

import numpy as np
import pytest

from gristmill.tokenizers.gigatoken import FastTokenizer
from gristmill.tokenizers.huggingface import ReferenceTokenizer
from gristmill.tokenizers.unicode_versions import is_nfc, is_within_unicode_16
from support import trained_tokenizers as made
from support.gpu_texts import SCALARS, definition_of, ids_by_reference, revealing

BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
LOWER, UPPER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]", r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"


def cased(contractions, numbers):
    """Return a pattern in which a word ends where an uppercase letter follows a lowercase letter."""
    words = (
        rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+{contractions}|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*{contractions}"
    )
    return rf"{words}|{numbers}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def uncased(numbers):
    words = rf"{CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|{numbers}"
    return rf"{words}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


DEEPSEEK = (
    r"\p{N}{1,3}",
    "[一-龥぀-ゟ゠-ヿ]+",
    (
        "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
        "| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"
    ),
)
PATTERNS = {
    "GPT-2": (),
    "Llama 3": (uncased(r"\p{N}{1,3}"),),
    "Qwen": (uncased(r"\p{N}"),),
    "GPT-4o": (cased(f"{CONTRACTIONS}?", r"\p{N}{1,3}"),),
    "Mistral NeMo": (cased("", r"\p{N}"),),
    "DeepSeek V3": DEEPSEEK,
}
OF_EVERY_CLASS = ("GPT-4o", "DeepSeek V3")
"""Two patterns that together use every character class in PATTERNS."""


def definition(regexes, normalizer=None):
    splits = [
        {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False} for regex in regexes
    ]
    tree = json.loads(made.byte_level_with([])) | {"normalizer": normalizer}
    if splits:
        tree["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [*splits, BYTE_LEVEL]}
    return revealing(definition_of(json.dumps(tree)), "revealing")


@pytest.fixture(scope="module", params=PATTERNS)
def pattern(request):
    return request.param


@pytest.fixture(scope="module")
def engines(pattern):
    revealed = definition(PATTERNS[pattern])
    fast = FastTokenizer.load(revealed)
    assert fast is not None
    return fast, ReferenceTokenizer(revealed)


@pytest.fixture(scope="module")
def newer():
    return [one for one in SCALARS[:0x40000] if not is_within_unicode_16(one.encode())]


def in_context(characters):
    return "".join(f"a{one}7{one}!{one}\n" for one in characters).encode()


def test_every_character_in_context(pattern, engines, newer):
    """Test planes 0 to 3 (for most patterns, every seventh character) and some characters of the other planes."""
    fast, reference = engines
    step = 1 if pattern in OF_EVERY_CLASS else 7
    chosen = [*SCALARS[: 0x40000 - 0x800 : step], *SCALARS[0x40000 - 0x800 :: 97]]
    settled = sorted(set(chosen) - set(newer))
    for at in range(0, len(settled), 20_000):
        text = in_context(settled[at : at + 20_000])
        (expected,) = ids_by_reference(reference.definition, [text])
        assert np.array_equal(fast.encode(text).ids, expected)


def test_characters_that_a_newer_unicode_added_are_left_to_the_reference(engines, newer):
    assert len(newer) == 4803, "Unicode 17.0 added 4,803 characters"
    fast, reference = engines
    text = in_context(newer)
    (expected,) = ids_by_reference(reference.definition, [text])
    assert np.array_equal(fast.encode(text).ids, expected)
    assert not np.array_equal(fast._encode(text), expected), "the engines agree, so the exception is no longer needed"


def test_random_texts(engines):
    fast, reference = engines
    pieces = [*"aZ7! '\n\t\r.-_", "'s", "'LL", "\r\n", "  ", *"éßſıÅ字かカ각１Ⅷ²€→😀\u200b\u00a0\u3000\u0301\ufe0f"]
    pick = random.Random(1)
    for _ in range(600):
        text = "".join(pick.choices(pieces, k=pick.randrange(30))).encode()
        ours, expected = fast.encode(text, with_starts=True), reference.encode(text)
        assert np.array_equal(ours.ids, expected.ids)
        assert np.array_equal(ours.newline_tokens, expected.newline_tokens)
        assert [*ours.starts] == [0, *np.cumsum([len(fast.decode([one])) for one in ours.ids.tolist()])]


@pytest.mark.parametrize("normalizer", [{"type": "NFC"}, {"type": "Sequence", "normalizers": [{"type": "NFC"}]}])
def test_texts_that_nfc_changes_are_left_to_the_reference(normalizer):
    revealed = definition(PATTERNS["Qwen"], normalizer)
    fast, reference = FastTokenizer.load(revealed), ReferenceTokenizer(revealed)
    assert "tokenizers" in fast.engine
    assert not fast.decodes_exactly
    changed = [one for one in SCALARS if unicodedata.normalize("NFC", one) != one]
    texts = ["é = 1\n", "e\u0301 = 1\n", "\u212b\n", "각", "\u1100\u1161\u11a8", "a\u0323\u0307b\u0307\u0323\n"]
    for text in (*texts, "".join(changed)):
        ours, expected = (one.encode(text, with_starts=True) for one in (fast, reference))
        assert np.array_equal(ours.ids, expected.ids)
        assert np.array_equal(ours.newline_tokens, expected.newline_tokens)
        if not is_nfc(text.encode()):
            assert np.array_equal(ours.starts, expected.starts)
            annotated = fast.annotate(ours.ids, np.array([0, len(ours.ids)]), [text.encode()])
            assert np.array_equal(annotated.newline_tokens, expected.newline_tokens)


def test_is_nfc_accepts_only_text_that_nfc_leaves_unchanged():
    for one in SCALARS[::5]:
        for text in (one, f"e{one}", f"{one}\u0301"):
            assert not is_nfc(text.encode()) or unicodedata.normalize("NFC", text) == text
    assert is_nfc("größe 字 각 😀\n".encode())
    assert not is_nfc("e\u0301".encode())
    assert not is_nfc("\u0378".encode()), "an unassigned character must not be accepted"


@pytest.mark.parametrize("steps", [[], None])
def test_an_empty_normalizer_has_no_effect(steps):
    normalizer = None if steps is None else {"type": "Sequence", "normalizers": steps}
    fast = FastTokenizer.load(definition(PATTERNS["DeepSeek V3"], normalizer))
    assert fast is not None
    assert fast.decodes_exactly


@pytest.mark.parametrize("step", ["NFKC", "NFD", "Lowercase", "StripAccents"])
def test_any_other_normalizer_is_left_to_the_reference(step):
    assert FastTokenizer.load(definition(PATTERNS["Qwen"], {"type": step})) is None
    both = {"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": step}]}
    assert FastTokenizer.load(definition(PATTERNS["Qwen"], both)) is None
