"""Tokens with a task, by their names: marks for where a text begins, ends, is masked or moved, and who speaks.

Tokenizers do not agree which of them are marked as special: Qwen and DeepSeek leave out those for fill-in-the-middle,
repositories and tools. To gristmill an added token of these names is a control token, marked or not, so that a source
that spells it stays text. Every other added token that is not marked, like Gemma's runs of blanks, is text.
"""

import re

END_NAMES = ("<|endoftext|>", "</s>", "<|end_of_text|>", "<eos>", "<|eot_id|>", "[SEP]")
PAD_NAMES = ("<pad>", "[PAD]", "<|pad|>", "<|padding|>", "<PAD>")
MASK_NAMES = ("<mask>", "[MASK]", "<|mask|>", "<extra_id_0>", "<mask_1>")
FIM_NAMES = (
    ("<fim_prefix>", "<fim_middle>", "<fim_suffix>"),  # StarCoder, Granite
    ("<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>"),  # Qwen coder, CodeGemma
    ("<fim-prefix>", "<fim-middle>", "<fim-suffix>"),  # SantaCoder
    ("▁<PRE>", "▁<MID>", "▁<SUF>"),  # Code Llama
    ("<PRE>", "<MID>", "<SUF>"),
    # DeepSeek coder, whose bars are wide ones: the hole stands where the suffix begins.
    ("<\uff5cfim▁begin\uff5c>", "<\uff5cfim▁end\uff5c>", "<\uff5cfim▁hole\uff5c>"),
    ("[PREFIX]", "[MIDDLE]", "[SUFFIX]"),  # Codestral
    ("<|code_prefix|>", "<|code_middle|>", "<|code_suffix|>"),
)
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


def has_task(content: str) -> bool:
    """Whether an added token of this name is a control token even if it is not marked as special."""
    return content in _NAMES or _SHAPES.fullmatch(content) is not None
