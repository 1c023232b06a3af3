"""Texts that the GPU tokenizer could get wrong, and comparisons with the CPU, for tests with and without a GPU.

This module needs only numpy and the two CPU engines, so it also works without the test dependencies.
"""

import json
import random
from functools import cache, lru_cache
from itertools import islice, pairwise, product

import numpy as np

from gristmill.tokenizers.cuda.merge_tables import byte_characters
from gristmill.tokenizers.cuda.patterns import CL100K, GPT2, QWEN2, STARCODER2
from gristmill.tokenizers.definition import Definition
from gristmill.tokenizers.huggingface import ReferenceTokenizer
from gristmill.tokenizers.locate import locate
from gristmill.tokenizers.tokenizer import tokenizer_for
from support import trained_tokenizers as made

PATTERNS = (GPT2, STARCODER2, CL100K, QWEN2)
TRAINED = ("codebert", *(pattern.name for pattern in PATTERNS))
REVEALING = tuple(f"revealing {pattern.name}" for pattern in PATTERNS)
SCALARS = "".join(map(chr, (*range(0xD800), *range(0xE000, 0x110000))))
"""All Unicode scalar values in one string. A list of a million strings would take 100 MB."""
CONTRACTIONS = ("s", "S", "t", "re", "RE", "rE", "ve", "m", "ll", "LL", "d", "D", "l", "r", "v", "x", "\u017f", "")
NOT_UTF8 = {
    "continuation at the start": b"\x80abc",
    "two continuations at the start": b"\xbf\xbf",
    "cut after 1 of 2": b"abc\xc3",
    "cut after 1 of 3": b"abc\xe2",
    "cut after 2 of 3": b"abc\xe2\x82",
    "cut after 1 of 4": b"abc\xf0",
    "cut after 3 of 4": b"abc\xf0\x9f\x99",
    "cut in the middle": b"ab\xe2\x82 cd",
    "overlong in two": b"x\xc0\xafy",
    "last overlong in two": b"x\xc1\xbfy",
    "overlong in three": b"x\xe0\x80\xafy",
    "last overlong in three": b"x\xe0\x9f\xbfy",
    "overlong in four": b"x\xf0\x80\x80\xafy",
    "last overlong in four": b"x\xf0\x8f\xbf\xbfy",
    "the first surrogate": b"x\xed\xa0\x80y",
    "the last surrogate": b"x\xed\xbf\xbfy",
    "beyond the last code point": b"x\xf4\x90\x80\x80y",
    "five bytes": b"x\xf8\x88\x80\x80\x80y",
    "invalid lead byte": b"x\xf5\x80\x80\x80y",
    "FE and FF": b"\xfe\xff",
    "eight FF": b"\xff" * 8,
    "fifteen FF": b" " + b"\xff" * 15,
    "Latin-1": "déjà vu, naïve".encode("latin-1"),
    "UTF-16": "def f(): pass".encode("utf-16"),
    "one continuation too many": b"caf\xc3\xa9\xa9 x",
}
UTF8_AT_EDGES = ["é", "€x", "x🙂", "", "字", "plain", "\U0010ffff", "\ud7ff\ue000", "aé"]


def definition_of(tokenizer_json: str, name: str = "test") -> Definition:
    return Definition(name=name, json=tokenizer_json.encode(), config=b"{}")


@cache
def definition_named(name: str) -> Definition:
    if name == "codebert":
        return locate(name)
    if name.startswith("revealing "):
        return revealing(definition_named(name.removeprefix("revealing ")), name)
    (pattern,) = (pattern for pattern in PATTERNS if pattern.name == name)
    return definition_of(made.byte_level_for(pattern), name)


def revealing(trained: Definition, name: str) -> Definition:
    """Return the tokenizer with a vocabulary whose ids show where words start.

    Two neighboring bytes of a word merge if one of them is `a`, `7`, `!`, a space, a line feed or an apostrophe. The
    last byte of a character and the first byte of the next character also merge, if neither character is ASCII. A
    trained vocabulary has no merged tokens of rare characters or digits, so its ids do not show where words with such
    characters start.
    """
    characters, around = byte_characters(), [byte_characters()[byte] for byte in b"a7! \n'"]
    leads, continuations = characters[0xC2:0xF5], characters[0x80:0xC0]
    pairs = [*product(characters, around), *product(around, characters), *product(continuations, leads)]
    tree = json.loads(trained.json)
    tree["model"] |= json.loads(made.byte_level_with(list(dict.fromkeys(pairs))))["model"]
    return definition_of(json.dumps(tree | {"added_tokens": []}), name)


@lru_cache(maxsize=12)  # enough for the named definitions, because most other definitions are used by one test
def reference_for(definition: Definition) -> ReferenceTokenizer:
    return ReferenceTokenizer(definition)


def ids_by_reference(definition, documents):
    """Encode documents with Hugging Face's `tokenizers`."""
    engine = reference_for(definition)._engine
    encodings = engine.encode_batch_fast([document.decode() for document in documents], add_special_tokens=False)
    return [np.array(encoding.ids, np.uint32) for encoding in encodings]


def ids_by_cpu(definition, documents):
    """Encode documents on the CPU, with gigatoken if it supports the tokenizer."""
    cpu = tokenizer_for(definition)
    return [cpu.encode(document).ids for document in documents]


def assert_same(batch, documents, expected):
    """Assert that all ids and document offsets are equal. The message shows the first document that differs."""
    offsets = np.cumsum([0, *map(len, expected)])
    ids = np.concatenate(expected) if expected else np.zeros(0, np.uint32)
    assert len(batch.offsets) == len(documents) + 1
    if not (np.array_equal(batch.offsets, offsets) and np.array_equal(batch.ids, ids)):
        raise AssertionError(_first_difference(batch, documents, expected))


def _first_difference(batch, documents, expected):
    ranges = pairwise(batch.offsets.tolist())
    for number, ((start, end), document, ids) in enumerate(zip(ranges, documents, expected, strict=True)):
        if not np.array_equal(batch.ids[start:end], ids):
            return _difference(number, document, batch.ids[start:end], ids)
    return (
        f"the ids are equal, but offsets from {batch.offsets[0]} to {batch.offsets[-1]} "
        f"do not cover all {len(batch.ids)} ids"
    )


def _difference(number, document, found, expected):
    shared = min(len(found), len(expected))
    unequal = np.flatnonzero(found[:shared] != expected[:shared])
    at = int(unequal[0]) if len(unequal) else shared
    return (
        f"document {number} of {len(document)} bytes, {document[:80]!r}: {len(found)} ids, expected {len(expected)}. "
        f"From id {at} on: {found[at : at + 8].tolist()}, expected {expected[at : at + 8].tolist()}"
    )


def scalars_in_context(step=1, all_below=0):
    """Return one document per character, with the character next to every class of characters and to contractions."""
    chosen = [*SCALARS[:all_below], *SCALARS[all_below::step]]
    return [f"a{one}a7{one}7!{one}! {one} \n{one}\n{one}{one}'s{one}'VE".encode() for one in chosen]


def apostrophes():
    """Return contractions and similar texts, after and before every class of character."""
    contexts = ("", "a", "é", "7", "!", "'", " ", "\n", "\u00a0", "字", "🙂")
    return [
        f"{left}'{letters}{right}".encode()
        for left in contexts
        for letters in CONTRACTIONS
        for right in (*contexts, "s")
    ]


def runs_of(lengths):
    """Return runs of characters with special rules, alone or alternating in pairs, between other characters."""
    repeated = (" ", "\n", "\t", "\r\n", " \n", "\n ", "7", "\u0663", "'", "!", "\u2003", "\u3000", "a", "é")
    contexts = (("", ""), ("x", "y"), ("! ", "\n"), ("7", "'s"), ("}\n", " 1"), ("x\n", "\ny"))
    return [
        (left + (one * length)[:length] + right).encode()
        for one in repeated
        for length in lengths
        for left, right in contexts
    ]


def runs_end_to_end(longest):
    """Return documents that repeat one character, in every length below `longest`.

    A run must end with its document, even if the next document begins with the same character.
    """
    return [
        (one * length).encode()
        for one in ("7", "\n", " ", "\r", "\u0663", "'", "!", "a")
        for length in range(1, longest)
    ]


def documents_around(edge, seed=0):
    """Return documents that end a few bytes before or after a multiple of `edge`.

    The documents begin and end with text for which a rule might wrongly read across the edge of a document.
    """
    generator, ends = random.Random(seed), ["it's", "a ", " \n", "é", "12", "🙂", "\r", "'", "字's", "!\n", "\u3000"]
    documents, total = list[bytes](), 0
    for number in range(30):
        tail, head = generator.choice(ends).encode(), generator.choice(ends).encode()
        length = edge - total % edge + number % 7 - 3 - len(head) - len(tail)
        documents.append(head + code_like(max(length, 0), number) + tail)
        total += len(documents[-1])
        documents += [b""] * (number % 3 == 0)
    return documents


def contractions_at_edges():
    """Return contractions around multiples of 32 bytes, some of them split between two documents.

    A contraction must not continue in the next document.
    """
    documents = list[bytes]()
    for position in range(27, 34):
        for contraction in ("'s", "'ll", "'re", "'LL", "'\u017f"):
            for cut in range(len(contraction) + 1):
                first, second = (b"x" * position + contraction[:cut].encode()), (contraction[cut:].encode() + b"lo's")
                documents += [first, second, b"." * (64 - len(first + second))]
    return documents


def code_like(num_bytes, seed=0):
    """Return lines that look like code, with spaces, digits, quotes and operators."""
    generator = np.random.default_rng(seed)
    words = ["def", "return", "self", "x", "i", "it's", "value", "number_of_things", "if", "we'll", "HTTPServer", "éa"]
    marks = [
        " ",
        " ",
        " ",
        "\n",
        "\n    ",
        "(",
        ")",
        ", ",
        " = ",
        ".",
        " == ",
        "\n\n\n",
        "  # ",
        "12",
        "3.14",
        "'",
        "\t",
    ]
    pieces = [
        piece
        for word, mark in zip(generator.integers(len(words), size=num_bytes // 5 + 2), generator.integers(len(marks), size=num_bytes // 5 + 2), strict=True)
        for piece in (words[word], marks[mark])
    ]  # fmt: skip
    return "".join(pieces).encode()[:num_bytes].decode("utf-8", "ignore").encode().ljust(num_bytes, b".")


def words_of_one_id(definition, num_words, first=0):
    """Return a text of words, each of which is one token together with the space before it. Each word occurs twice."""
    words = (token for token in definition.ids_by_token if token.startswith("Ġ") and token[1:].isascii())
    chosen = islice((word for word in words if word[1:].isalpha() and len(word) >= 3), first, first + num_words)
    return 2 * "".join(chosen).replace("Ġ", " ").encode()


def random_letters(num_bytes, seed=0, alphabet=b"abcdefghijklmnopqrstuvwxyz"):
    chosen = np.random.default_rng(seed).integers(len(alphabet), size=num_bytes)
    return np.frombuffer(alphabet, np.uint8)[chosen].tobytes()


def english_without_spaces(num_bytes, seed=0):
    words = b"the return of value and number with string object for get set list index error name file type".split()
    chosen = np.random.default_rng(seed).integers(len(words), size=num_bytes // 2)
    return b"".join(words[at] for at in chosen)[:num_bytes]


def runs_that_are_one_word(num_bytes):
    """Return runs of a character, each of which is one word. The character has one to three bytes in UTF-8."""
    return [(one * (num_bytes // len(one.encode()) + 1)).encode()[: num_bytes // 3 * 3 // 6 * 6] for one in "-a=é字"]


def periodic(num_bytes):
    return [
        (period * (num_bytes // len(period) + 1))[:num_bytes] for period in (b"ab", b"abc", b"=-", b"get", b"value")
    ]


def around_not_utf8(kind):
    """Yield lists of documents in which only documents[2] is not UTF-8, next to characters of every length."""
    bad = NOT_UTF8[kind]
    for number, text in enumerate(UTF8_AT_EDGES):
        before, after = text.encode(), UTF8_AT_EDGES[-number].encode()
        yield [b"x", before, (bad, bad + bad, b"x" * 31 + bad)[number % 3], after]


def is_utf8(document):
    try:
        document.decode()
    except UnicodeDecodeError:
        return False
    return True


def joined(documents):
    """Return the concatenated documents, and an array with the offset of each document and the end of the last one."""
    offsets = np.zeros(len(documents) + 1, np.int64)
    np.cumsum([len(document) for document in documents], out=offsets[1:])
    return np.frombuffer(b"".join(documents), np.uint8), offsets


def with_ids_above(definition, first_id):
    """Return the tokenizer with `first_id` added to all ids, for ids that do not fit into 16 bits."""
    tree = json.loads(definition.json)
    tree["model"]["vocab"] = {token: index + first_id for token, index in tree["model"]["vocab"].items()}
    for token in tree["added_tokens"]:
        token["id"] += first_id
    return definition_of(json.dumps(tree), f"{definition.name} above {first_id}")


EXCEPTION_BYTES = (2, 3, 4, 7, 8, 9, 14, 15, 16, 17, 63, 64, 65, 300, 512, 513, 1500)
"""Lengths of exceptional words, around the limits of the kernels.

An exceptional word is one token although no merges produce the token, as in Llama 3. The kernels treat words of up to
15, up to 64, up to 512 and more bytes in different ways. Eight bytes are hashed and compared at once.
"""


def exceptional_words():
    letters = [random_letters(num_bytes, 100 + num_bytes) for num_bytes in EXCEPTION_BYTES]
    after_space = [b" " + random_letters(num_bytes, 200 + num_bytes) for num_bytes in EXCEPTION_BYTES]
    return [*letters, *after_space, b"-" * 9, b"=" * 80, "ééé".encode(), "字字字字字字".encode(), b"wordsofsamehashx"]


def around_exceptions():
    """Return each exceptional word alone, repeated, inside a longer word, cut short, and next to other words."""
    around = (b"%b", b"%b %b", b"%bx", b"x%b", b"%b%b", b" %b", b"  %b\n", b"(%b)", b"7%b7%b!", b"%b's")
    complete = [form.replace(b"%b", word) for word in exceptional_words() for form in around]
    cut = [word[:-1] for word in exceptional_words() if word.isascii()]
    return [*complete, *cut, b" ".join(exceptional_words()), b"AOfzMayhMzUtNLlX wordsofsamehashx"]


def with_exceptions(definition, words):
    """Return the tokenizer with added exceptional words."""
    tree, alphabet = json.loads(definition.json), byte_characters()
    vocabulary = tree["model"]["vocab"]
    first_id = 1 + max(vocabulary.values())
    tokens = ["".join(alphabet[byte] for byte in word) for word in words]
    vocabulary |= {token: first_id + at for at, token in enumerate(tokens)}
    tree["model"]["ignore_merges"] = True
    return definition_of(json.dumps(tree), f"{definition.name} with exceptions")


def with_random_merges(seed, num_merges=40, *, is_shuffled=False):
    """Return a tokenizer with long tokens of `a` and `b`, each of which needs many merges.

    A kernel merges a long word in overlapping windows. With such tokens, neighboring windows often disagree about where
    tokens start.
    """
    generator, tokens, merges = random.Random(seed), ["a", "b"], dict[tuple[str, str], None]()
    while len(merges) < num_merges:
        left, right = generator.choice(tokens[-12:]), generator.choice(tokens)
        if len(left + right) <= 40:
            merges[left, right] = None
            tokens.append(left + right)
    ordered = generator.sample(list(merges), num_merges) if is_shuffled else list(merges)
    return definition_of(made.byte_level_with(ordered), f"random merges {seed}")


def words_of_two_letters(seed, num_words=40, longest=1500):
    """Return words of random repeated pieces of `a` and `b`, so that windows are joined in all possible ways."""
    generator = random.Random(seed)
    words = list[str]()
    for _ in range(num_words):
        pieces = ["".join(generator.choices("ab", k=generator.randint(1, 60))) for _ in range(generator.randint(1, 4))]
        words.append("".join(generator.choices(pieces, k=longest // 30))[: generator.randint(65, longest)])
    return [word.encode() for word in words]


def with_nfc(definition, *, in_sequence=False):
    """Return the tokenizer with the normalizer NFC, as in Qwen 2."""
    tree, nfc = json.loads(definition.json), {"type": "NFC"}
    tree["normalizer"] = {"type": "Sequence", "normalizers": [nfc]} if in_sequence else nfc
    return definition_of(json.dumps(tree), f"{definition.name} with NFC")


def changed_by_nfc():
    """Return documents, and the number of documents that NFC may change.

    NFC may change every second document. The characters that may change come after 0 to 30 other bytes.
    """
    marks = ("e\u0301", "A\u030a", "\u212b", "\u2126", "q\u0323\u0307", "q\u0307\u0323", "\u0301", "=\u0338", "x\u0335")
    others = (
        "\u1112\u1161\u11ab",
        "\uac00\u11a8",
        "\u1100\u1161",
        "\u0958",
        "\u0915\u093c",
        "\u09c7\u09be",
        "\u0344",
        "\uf900",
    )
    unknown = ("\u0378", "\U0001e900\U0001e94a", "\U0002f800", "\U000e0fff", "e" + "\u0301" * 40)
    changed = [left + one + "x" for one in (*marks, *others, *unknown) for left in ("", "e", "def f(): 12 ", "é" * 15)]
    kept = ["é = 'ß'", "e", "각 字", "x" * 31 + "é", "\u1112", ""]
    return [text.encode() for at, one in enumerate(changed) for text in (one, kept[at % len(kept)])], len(changed)


def with_merges_out_of_order(definition, seed=0):
    """Return the tokenizer with shuffled merges. Many merges then precede the merges that produce their parts."""
    tree = json.loads(definition.json)
    random.Random(seed).shuffle(tree["model"]["merges"])
    return definition_of(json.dumps(tree), f"{definition.name} out of order")
