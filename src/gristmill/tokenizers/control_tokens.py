"""List the names of control tokens: text boundaries, masks, fill-in-the-middle, repositories, chat roles and tools.

Tokenizers differ in which of these tokens they mark as special. Qwen and DeepSeek do not mark the tokens for
fill-in-the-middle, repositories and tools. gristmill treats every added token with one of these names as a control
token, marked or not, so that the same text in a source file remains text. Any other unmarked added token, such as
Gemma's runs of spaces, is text if the files of the tokenizer give it no role (definition.py).
"""

import re
from typing import NamedTuple

BEGIN_NAMES = ("<|begin_of_text|>", "<\uff5cbegin▁of▁sentence\uff5c>")
"""Begin tokens of Llama 3 and DeepSeek. They precede every text in training, even if tokenizer.json has no template."""
END_NAMES = (
    "<|endoftext|>",  # StarCoder, Qwen, Granite, GPT
    "</s>",  # Llama 2, Code Llama, Mistral, T5
    "<|end_of_text|>",  # Llama 3
    "<eos>",  # Gemma
    "<\uff5cend▁of▁sentence\uff5c>",  # DeepSeek
    "<|eot_id|>",
    "[SEP]",
)
"""Tokens that end texts in the training data of base models."""
CHAT_END_NAMES = frozenset({"<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|EOT|>", "<|eot|>", "<end_of_turn>", "<|end|>"})
"""Tokens that end a turn in a chat. Instruct models use one of them as eos_token. None may end a source file."""
PAD_NAMES = ("<pad>", "[PAD]", "<|pad|>", "<|padding|>", "<PAD>")
MASK_NAMES = ("<mask>", "[MASK]", "<|mask|>", "<extra_id_0>", "<mask_1>")


class FimFamily(NamedTuple):
    """Fill-in-the-middle tokens of a family of models.

    A text `a b c` with the middle `b` is written in one of two orders:

    PSM   <prefix> a <suffix> c <middle> b
    SPM   <prefix> <suffix> c <middle> a b
    """

    models: str
    prefix: str
    middle: str
    suffix: str
    spm_share: float
    """Share of training rows in SPM order."""
    end: str | None = None
    """Token after the middle. None if the family uses the token that ends a text."""


FIM_FAMILIES = (
    FimFamily("StarCoder, StarCoder 2, Granite", "<fim_prefix>", "<fim_middle>", "<fim_suffix>", 0.5),
    FimFamily(
        "CodeGemma", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", 0.0, end="<|file_separator|>"
    ),  # in CodeGemma, SPM rows start with the suffix token, and prompts use PSM
    FimFamily("Qwen coder", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", 0.0),
    FimFamily("SantaCoder", "<fim-prefix>", "<fim-middle>", "<fim-suffix>", 0.5),
    FimFamily("Code Llama", "▁<PRE>", "▁<MID>", "▁<SUF>", 0.5, end="▁<EOT>"),
    FimFamily("Code Llama", "<PRE>", "<MID>", "<SUF>", 0.5, end="<EOT>"),
    # These names contain fullwidth bars. The token with `hole` marks the start of the suffix.
    FimFamily("DeepSeek coder", "<\uff5cfim▁begin\uff5c>", "<\uff5cfim▁end\uff5c>", "<\uff5cfim▁hole\uff5c>", 0.0),
    FimFamily("tokenizers with these names", "[PREFIX]", "[MIDDLE]", "[SUFFIX]", 0.5),
    FimFamily("tokenizers with these names", "<|code_prefix|>", "<|code_middle|>", "<|code_suffix|>", 0.5),
    FimFamily("tokenizers with these names", "▁<PRE>", "▁<MID>", "▁<SUF>", 0.5),
    FimFamily("tokenizers with these names", "<PRE>", "<MID>", "<SUF>", 0.5),
)
"""Families in order of precedence: a tokenizer belongs to the first family whose tokens it has.

Sources: the papers of StarCoder (arXiv 2305.06161), Code Llama (2308.12950), DeepSeek-Coder (2401.14196), CodeGemma
(2406.11409) and Qwen2.5-Coder (2409.12186).
"""
FIM_NAMES = tuple(dict.fromkeys((one.prefix, one.middle, one.suffix) for one in FIM_FAMILIES))
REPO_NAMES = (
    ("<repo_name>", "<file_sep>"),  # StarCoder 2
    ("<|repo_name|>", "<|file_sep|>"),  # Qwen 2.5 coder
    ("<reponame>", "<filename>"),  # StarCoder, Granite
)
ROLES = ("bos_token", "eos_token", "cls_token", "sep_token", "mask_token", "pad_token")
"""Settings of tokenizer_config.json that name a control token."""

_HTML_TAG_NAMES = frozenset({"<s>", "</s>"})
"""Names that are also HTML tags, as in Gemma's vocabulary.

A token with such a name is a control token only if it is marked as special or has a role.
"""
_NAMES_BY_PURPOSE = {
    "begin": ("<bos>", "[CLS]", "[BOS]"),
    "end": (*END_NAMES, "[EOS]", "<EOT>", "▁<EOT>"),
    "padding": (*PAD_NAMES, "<fim_pad>", "<fim-pad>"),
    "mask": MASK_NAMES,
    "fill-in-the-middle": tuple(name for names in FIM_NAMES for name in names),
    "repositories and files": (
        *(name for names in REPO_NAMES for name in names),
        *("<gh_stars>", "<issue_start>", "<issue_comment>", "<issue_closed>", "<commit_before>", "<commit_msg>"),
        *(
            "<commit_after>",
            "<jupyter_start>",
            "<jupyter_text>",
            "<jupyter_code>",
            "<jupyter_output>",
            "<empty_output>",
        ),
    ),
    "chat": (
        *("[INST]", "[/INST]", "<<SYS>>", "<</SYS>>", "<start_of_turn>", "<end_of_turn>"),
        *("[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "<think>", "</think>", "[THINK]", "[/THINK]"),
    ),
    "tools": (
        *("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<tools>", "</tools>"),
        *("[TOOL_CALLS]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]"),
    ),
}
_NAMES = frozenset(name for names in _NAMES_BY_PURPOSE.values() for name in names) - _HTML_TAG_NAMES
_NAME_PATTERN = re.compile(r"<([|\uff5c])[^\s<>]+\1>|<extra_id_\d+>|<mask_\d+>")
"""Forms of names that only control tokens have, such as `<|im_start|>`, with ASCII or fullwidth bars."""
_COMMON_IN_CODE = _HTML_TAG_NAMES | {"<PRE>", "<mask>", "<filename>"}
"""Names that are common in source code, as HTML or SVG elements, or as placeholders in usage messages.

In a text, such a name is treated as a control token only if the tokenizer has this token.
"""
KNOWN_SPELLINGS = tuple(sorted(_NAMES - _COMMON_IN_CODE))
"""Texts that the tokenizer of some model family would recognize as a control token."""
_NAME = "(?:[0-9A-Za-z_]|▁)(?:[0-9A-Za-z_.:/-]|▁)*"
_NUMBERED = "<(?:extra_id_|mask_|SPECIAL_)[0-9]+>"
SPELLING_SHAPES = (rf"<\|{_NAME}\|>", f"<\uff5c{_NAME}\uff5c>", _NUMBERED)
"""Regular expressions for control tokens that are not in KNOWN_SPELLINGS, valid for str and for UTF-8 bytes.

Bars around punctuation, as in `<|-|>`, do not match, because they occur in ordinary code.
"""


def is_control_name(content: str) -> bool:
    """Return True if an added token of this name is a control token even if it is not marked as special."""
    return content in _NAMES or _NAME_PATTERN.fullmatch(content) is not None
