"""What a vocabulary looks like: its special tokens, how it splits text into words, and the files that spell it."""

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
    "<pad>",  # id 1, as in RoBERTa, whose models count positions from it
    "</s>",
    "<mask>",
    "<fim_prefix>",  # these are StarCoder's names
    "<fim_middle>",
    "<fim_suffix>",
    "<fim_pad>",
    "<repo_name>",
    "<file_sep>",
)
"""Their places are their ids. There is none for the unknown: every byte is a token."""
ROLES = {
    "bos_token": "<s>",
    "cls_token": "<s>",
    "eos_token": "</s>",
    "sep_token": "</s>",
    "pad_token": "<pad>",
    "mask_token": "<mask>",
}
NUM_BYTES = 256
SMALLEST = len(SPECIAL_TOKENS) + NUM_BYTES + 1
LARGEST = 1 << 20


def _byte_level(*, splits_itself: bool) -> dict[str, Any]:
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": splits_itself}


def _split_first(regex: str) -> dict[str, Any]:
    split = {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False}
    return {"type": "Sequence", "pretokenizers": [split, _byte_level(splits_itself=False)]}


# Text is split alike by `tokenizers`, gigatoken and the kernels of a GPU: StarCoder 2's way, which gigatoken does not
# take, is not among them.
PRE_TOKENIZERS: Mapping[str, dict[str, Any]] = {
    "cl100k": _split_first(CL100K_REGEX),
    "qwen2": _split_first(QWEN2_REGEX),
    "gpt2": _byte_level(splits_itself=True),
}


def tokenizer_tree(
    vocab: Mapping[str, int], merges: Sequence[Sequence[str]], pattern: PatternName, template: TemplateName
) -> dict[str, Any]:
    """The tokenizer.json."""
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [_special(index, token) for index, token in enumerate(SPECIAL_TOKENS)],
        "normalizer": None,
        "pre_tokenizer": PRE_TOKENIZERS[pattern],
        "post_processor": _around() if template == "roberta" else None,
        "decoder": _byte_level(splits_itself=True),
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


def _around() -> dict[str, Any]:
    first, last = "<s>", "</s>"
    ends = {"cls": [first, SPECIAL_TOKENS.index(first)], "sep": [last, SPECIAL_TOKENS.index(last)]}
    return {"type": "RobertaProcessing", **ends, "trim_offsets": True, "add_prefix_space": False}


def _special(index: int, content: str) -> dict[str, Any]:
    # A mask takes the blank before it along, as RoBERTa's does: the word in its place would have begun with it.
    flags = {"single_word": False, "lstrip": content == "<mask>", "rstrip": False, "normalized": False}
    return {"id": index, "content": content, **flags, "special": True}


def definition_of(
    name: str,
    vocab: Mapping[str, int],
    merges: Sequence[Sequence[str]],
    pattern: PatternName,
    template: TemplateName,
) -> Definition:
    """As the two files that AutoTokenizer reads."""
    tree = tokenizer_tree(vocab, merges, pattern, template)
    # Any other class would put its own way of splitting in place of the file's.
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False, **ROLES}
    return Definition(name=name, json=msgspec.json.encode(tree) + b"\n", config=msgspec.json.encode(config) + b"\n")
