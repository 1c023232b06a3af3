"""Tokens with a task, by their names: marks for where a text begins, ends, is masked or moved, and who speaks.

Tokenizers do not agree which of them are marked as special: Qwen and DeepSeek leave out those for fill-in-the-middle,
repositories and tools. To gristmill an added token of these names is a control token, marked or not, so that a source
that spells it stays text. Every other added token that is not marked, like Gemma's runs of blanks, is text.
"""

import re
from typing import NamedTuple

BEGIN_NAMES = ("<|begin_of_text|>", "<\uff5cbegin▁of▁sentence\uff5c>")
"""Llama 3 and DeepSeek: models that saw one at the beginning of every text, even if tokenizer.json has no template."""
END_NAMES = (
    "<|endoftext|>",  # StarCoder, Qwen, Granite, GPT
    "</s>",  # Llama 2, Code Llama, Mistral, T5
    "<|end_of_text|>",  # Llama 3
    "<eos>",  # Gemma
    "<\uff5cend▁of▁sentence\uff5c>",  # DeepSeek
    "<|eot_id|>",
    "[SEP]",
)
"""End of a text, as base models saw it in training."""
CHAT_END_NAMES = frozenset({"<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|EOT|>", "<|eot|>", "<end_of_turn>", "<|end|>"})
"""End of a turn in a chat: instruct models name one as their eos_token. No source file ends with it."""
PAD_NAMES = ("<pad>", "[PAD]", "<|pad|>", "<|padding|>", "<PAD>")
MASK_NAMES = ("<mask>", "[MASK]", "<|mask|>", "<extra_id_0>", "<mask_1>")


class FimFamily(NamedTuple):
    """Tokens with which models of a family saw fill in the middle.

    PSM   prefix a suffix c middle b
    SPM   prefix suffix c middle a b
    """

    models: str
    prefix: str
    middle: str
    suffix: str
    spm_share: float
    """Share of SPM in the rows that they saw in training."""
    end: str | None = None
    """Token behind the middle, if it is not the end of a text."""


FIM_FAMILIES = (
    FimFamily("StarCoder, StarCoder 2, Granite", "<fim_prefix>", "<fim_middle>", "<fim_suffix>", 0.5),
    FimFamily(
        "CodeGemma", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", 0.0, end="<|file_separator|>"
    ),  # its SPM begins with the suffix; prompts are PSM
    FimFamily("Qwen coder", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", 0.0),
    FimFamily("SantaCoder", "<fim-prefix>", "<fim-middle>", "<fim-suffix>", 0.5),
    FimFamily("Code Llama", "▁<PRE>", "▁<MID>", "▁<SUF>", 0.5, end="▁<EOT>"),
    FimFamily("Code Llama", "<PRE>", "<MID>", "<SUF>", 0.5, end="<EOT>"),
    # Wide bars; the hole is where the suffix begins.
    FimFamily("DeepSeek coder", "<\uff5cfim▁begin\uff5c>", "<\uff5cfim▁end\uff5c>", "<\uff5cfim▁hole\uff5c>", 0.0),
    FimFamily("tokenizers with such names", "[PREFIX]", "[MIDDLE]", "[SUFFIX]", 0.5),
    FimFamily("tokenizers with such names", "<|code_prefix|>", "<|code_middle|>", "<|code_suffix|>", 0.5),
    FimFamily("tokenizers with such names", "▁<PRE>", "▁<MID>", "▁<SUF>", 0.5),
    FimFamily("tokenizers with such names", "<PRE>", "<MID>", "<SUF>", 0.5),
)
"""Sources: the papers of StarCoder (arXiv 2305.06161), Code Llama (2308.12950), DeepSeek-Coder (2401.14196), CodeGemma
(2406.11409) and Qwen2.5-Coder (2409.12186). The first whose tokens a tokenizer has counts."""
FIM_NAMES = tuple(dict.fromkeys((one.prefix, one.middle, one.suffix) for one in FIM_FAMILIES))
REPO_NAMES = (
    ("<repo_name>", "<file_sep>"),  # StarCoder 2
    ("<|repo_name|>", "<|file_sep|>"),  # Qwen 2.5 coder
    ("<reponame>", "<filename>"),  # StarCoder, Granite
)
ROLES = ("bos_token", "eos_token", "cls_token", "sep_token", "mask_token", "pad_token")
"""Settings of tokenizer_config.json that name a token with a task."""

_AMBIGUOUS = frozenset({"<s>", "</s>"})
"""HTML's struck-through text too, as in Gemma's vocabulary: a control token only where it is marked or has a role."""
_TASKS = {
    "begin": ("<bos>", "[CLS]", "[BOS]"),
    "end": (*END_NAMES, "[EOS]", "<EOT>", "▁<EOT>"),
    "padding": (*PAD_NAMES, "<fim_pad>", "<fim-pad>"),
    "mask": MASK_NAMES,
    "fill in the middle": tuple(name for names in FIM_NAMES for name in names),
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
_NAMES = frozenset(name for names in _TASKS.values() for name in names) - _AMBIGUOUS
_SHAPES = re.compile(r"<([|\uff5c])[^\s<>]+\1>|<extra_id_\d+>|<mask_\d+>")
"""Between bars, narrow or wide, stands nothing but the name of a task: `<|im_start|>`, `<|fim_pad|>`."""
_ORDINARY = _AMBIGUOUS | {"<PRE>", "<mask>", "<filename>"}
"""Elements of HTML and SVG, and what usage lines say: in a text a control token only for a tokenizer that has it."""
KNOWN_SPELLINGS = tuple(sorted(_NAMES - _ORDINARY))
"""Names by which a tokenizer of some family would find a control token in a text."""
_NAME = "(?:[0-9A-Za-z_]|▁)(?:[0-9A-Za-z_.:/-]|▁)*"
_NUMBERED = "<(?:extra_id_|mask_|SPECIAL_)[0-9]+>"
SPELLING_SHAPES = (rf"<\|{_NAME}\|>", f"<\uff5c{_NAME}\uff5c>", _NUMBERED)
"""Regular expressions for further control tokens, valid for str and for UTF-8 bytes. Bars around punctuation, as in
`<|-|>`, are code."""


def has_task(content: str) -> bool:
    """Whether an added token of this name is a control token even if it is not marked as special."""
    return content in _NAMES or _SHAPES.fullmatch(content) is not None
