"""Files of a trained tokenizer: special tokens, the pattern that splits text into words, and tokenizer.json."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

import msgspec

from gristmill.tokenizers.cuda.patterns import CL100K_REGEX, QWEN2_REGEX
from gristmill.tokenizers.definition import Definition

PatternName = Literal["cl100k", "qwen2", "gpt2"]
TemplateName = Literal["roberta", "none"]
PATTERN_NAMES: tuple[str, ...] = get_args(PatternName)
TEMPLATE_NAMES: tuple[str, ...] = get_args(TemplateName)

SPECIAL_TOKENS = (
    "<s>",
    "<pad>",  # id 1 as in RoBERTa, whose models number positions from the padding id
    "</s>",
    "<mask>",
    "<fim_prefix>",  # this and the following names are those of StarCoder
    "<fim_middle>",
    "<fim_suffix>",
    "<fim_pad>",
    "<repo_name>",
    "<file_sep>",
)
"""Special tokens, sorted by id. No unknown token is needed, because every byte is a token."""
TOKEN_ROLES = {
    "bos_token": "<s>",
    "cls_token": "<s>",
    "eos_token": "</s>",
    "sep_token": "</s>",
    "pad_token": "<pad>",
    "mask_token": "<mask>",
}
NUM_BYTES = 256
MIN_SIZE = len(SPECIAL_TOKENS) + NUM_BYTES + 1
MAX_SIZE = 1 << 20


def _byte_level(*, use_regex: bool) -> dict[str, Any]:
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": use_regex}


def _split_by_regex(regex: str) -> dict[str, Any]:
    split = {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False}
    return {"type": "Sequence", "pretokenizers": [split, _byte_level(use_regex=False)]}


# Patterns with which `tokenizers`, gigatoken and the GPU kernels split text into the same words. The pattern of
# StarCoder 2 is missing, because gigatoken does not support it.
PRE_TOKENIZERS: Mapping[str, dict[str, Any]] = {
    "cl100k": _split_by_regex(CL100K_REGEX),
    "qwen2": _split_by_regex(QWEN2_REGEX),
    "gpt2": _byte_level(use_regex=True),
}


def tokenizer_tree(
    vocab: Mapping[str, int], merges: Sequence[Sequence[str]], pattern: PatternName, template: TemplateName
) -> dict[str, Any]:
    """Return the content of tokenizer.json."""
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [_special_token(index, token) for index, token in enumerate(SPECIAL_TOKENS)],
        "normalizer": None,
        "pre_tokenizer": PRE_TOKENIZERS[pattern],
        "post_processor": _roberta_processor() if template == "roberta" else None,
        "decoder": _byte_level(use_regex=True),
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": vocab,
            "merges": merges,
        },
    }


def _roberta_processor() -> dict[str, Any]:
    first, last = "<s>", "</s>"
    tokens = {"cls": [first, SPECIAL_TOKENS.index(first)], "sep": [last, SPECIAL_TOKENS.index(last)]}
    return {"type": "RobertaProcessing", **tokens, "trim_offsets": True, "add_prefix_space": False}


def _special_token(index: int, content: str) -> dict[str, Any]:
    # As in RoBERTa, the mask token includes the space before it, because the word that it replaces includes this space.
    flags = {"single_word": False, "lstrip": content == "<mask>", "rstrip": False, "normalized": False}
    return {"id": index, "content": content, **flags, "special": True}


def make_definition(
    name: str,
    vocab: Mapping[str, int],
    merges: Sequence[Sequence[str]],
    pattern: PatternName,
    template: TemplateName,
) -> Definition:
    """Return a definition with the two files that AutoTokenizer reads, tokenizer.json and tokenizer_config.json."""
    tree = tokenizer_tree(vocab, merges, pattern, template)
    # Any other tokenizer class would replace the pre-tokenizer in tokenizer.json with its own.
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False, **TOKEN_ROLES}
    return Definition(name=name, json=msgspec.json.encode(tree) + b"\n", config=msgspec.json.encode(config) + b"\n")
