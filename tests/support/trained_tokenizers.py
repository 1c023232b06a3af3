"""Small tokenizers of every model type. They are made when a test needs them, so that no test downloads a vocabulary."""

import json
from collections.abc import Sequence
from functools import cache

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from gristmill.tokenizers.cuda.patterns import CL100K, CL100K_REGEX, GPT2, QWEN2, QWEN2_REGEX, Pattern
from support.codebert_with import MARKERS
from support.made_code import made_module

BYTES = [f"<0x{byte:02X}>" for byte in range(256)]


def _trained(model, trainer, pre_tokenizer=None, normalizer=None):
    tokenizer = Tokenizer(model)
    if pre_tokenizer is not None:
        tokenizer.pre_tokenizer = pre_tokenizer
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    text = made_module("vocabulary.py", 14_000)
    tokenizer.train_from_iterator([text[at : at + 200] for at in range(0, len(text), 200)], trainer)
    return tokenizer


@cache
def word_piece() -> str:
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer = _trained(
        models.WordPiece(unk_token="[UNK]"),
        trainers.WordPieceTrainer(vocab_size=400, special_tokens=special, show_progress=False),
        pre_tokenizers.BertPreTokenizer(),
        normalizers.BertNormalizer(),
    )
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return tokenizer.to_str()


@cache
def word_piece_on_spaces() -> str:
    """Train a tokenizer that splits only at whitespace, so that `[MASK]` is looked up as one word."""
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    return _trained(
        models.WordPiece(unk_token="[UNK]"),
        trainers.WordPieceTrainer(vocab_size=400, special_tokens=special, show_progress=False),
        pre_tokenizers.WhitespaceSplit(),
    ).to_str()


@cache
def unigram() -> str:
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    tokenizer = _trained(
        models.Unigram(),
        trainers.UnigramTrainer(vocab_size=400, special_tokens=special, unk_token="<unk>", show_progress=False),
        pre_tokenizers.Metaspace(),
    )
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    return tokenizer.to_str()


@cache
def sentence_piece_bpe() -> str:
    tokenizer = _trained(
        models.BPE(byte_fallback=True, unk_token="<unk>"),
        trainers.BpeTrainer(vocab_size=700, special_tokens=["<unk>", "<s>", "</s>", *BYTES], show_progress=False),
        None,
        normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]),
    )
    tree = json.loads(tokenizer.to_str())
    tree["added_tokens"] = [token for token in tree["added_tokens"] if token["content"] not in BYTES]
    tree["decoder"] = {
        "type": "Sequence",
        "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
            {"type": "ByteFallback"},
            {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0},
        ],
    }
    return json.dumps(tree)


@cache
def byte_level(
    pattern: str | None = None, *, add_prefix_space: bool = False, nfc: bool = False, digits_apart: bool = False
) -> str:
    plain = pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space, use_regex=pattern is None)
    first = [] if pattern is None else [pre_tokenizers.Split(Regex(pattern), "isolated")]
    first += [pre_tokenizers.Digits(individual_digits=True)] if digits_apart else []
    before = pre_tokenizers.Sequence([*first, plain]) if first else plain
    tokenizer = _trained(
        models.BPE(),
        trainers.BpeTrainer(
            vocab_size=600,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            special_tokens=["<|endoftext|>"],
            show_progress=False,
        ),
        before,
        normalizers.NFC() if nfc else None,
    )
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer.to_str()


def byte_level_for(pattern: Pattern) -> str:
    """Train a tokenizer with a pattern that the GPU supports."""
    if pattern.digits == "apart":
        return byte_level(digits_apart=True)
    regexes = {GPT2: None, CL100K: CL100K_REGEX, QWEN2: QWEN2_REGEX}
    return byte_level(regexes[pattern])


def byte_level_with(
    merges: Sequence[tuple[str, str]], tokens: Sequence[str] = (), *, ignore_merges: bool = False
) -> str:
    """Return an untrained tokenizer with these merges, and with `tokens`, which no merge produces."""
    merged = [left + right for left, right in merges]
    vocabulary = dict.fromkeys((*sorted(pre_tokenizers.ByteLevel.alphabet()), *merged, *tokens))
    model = models.BPE(
        {token: index for index, token in enumerate(vocabulary)}, list(merges), ignore_merges=ignore_merges
    )
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    return tokenizer.to_str()


@cache
def roberta_like(vocab_size: int = 500) -> str:
    """Train a tokenizer like that of CodeBERT, but so small that a model with it trains in seconds."""
    control = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    tokenizer = _trained(
        models.BPE(),
        trainers.BpeTrainer(
            vocab_size=vocab_size,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            special_tokens=control,
            show_progress=False,
        ),
        pre_tokenizers.ByteLevel(add_prefix_space=False),
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=False)
    return tokenizer.to_str()


@cache
def starcoder_like(vocab_size: int = 500) -> str:
    """Train a tokenizer for causal models.

    The tokenizer adds no tokens around a text. It has an end token, and markers for repositories, files and
    fill-in-the-middle.
    """
    tokenizer = _trained(
        models.BPE(),
        trainers.BpeTrainer(
            vocab_size=vocab_size,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            special_tokens=list(MARKERS),
            show_progress=False,
        ),
        pre_tokenizers.ByteLevel(add_prefix_space=False),
    )
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer.to_str()
