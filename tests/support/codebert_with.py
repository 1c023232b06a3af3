"""CodeBERT's tokenizer with added tokens of other models."""

import json
from collections.abc import Sequence
from pathlib import Path

from gristmill import TokenizerConfig, load_tokenizer
from support.source_trees import write_tree

END = "<|endoftext|>"
FIM = ("<fim_prefix>", "<fim_middle>", "<fim_suffix>")
MARKERS = (END, "<repo_name>", "<file_sep>", *FIM)
"""Control tokens of StarCoder."""
FIRST_ADDED = 50_265
NO_SPECIAL_TOKENS = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False}


def codebert_with(
    names: Sequence[str], folder: Path, *, is_causal: bool = False, is_special: bool = True
) -> TokenizerConfig:
    """Write CodeBERT's tokenizer with added tokens to a folder, and return settings that select it.

    A causal tokenizer puts no tokens around a text. If END is one of `names`, END becomes the end token. Without
    `is_special`, the added tokens have `special: false`, like some tokens of Qwen and DeepSeek.
    """
    definition = load_tokenizer().definition
    tree, config = json.loads(definition.json), json.loads(definition.config)
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    tree["added_tokens"] += [
        {"id": index, "content": name, "special": is_special, **flags} for index, name in enumerate(names, FIRST_ADDED)
    ]
    if is_causal:
        tree["post_processor"], config = NO_SPECIAL_TOKENS, {"pad_token": "<pad>"}
    if END in names:
        config["eos_token"] = END
    write_tree(folder, {"tokenizer.json": json.dumps(tree), "tokenizer_config.json": json.dumps(config)})
    return TokenizerConfig(name=str(folder))
