"""CodeBERT's tokenizer, with tokens of other models beside its own."""

import json
from collections.abc import Sequence
from pathlib import Path

from gristmill import TokenizerConfig, load_tokenizer
from support.source_trees import write_tree

END = "<|endoftext|>"
FIM = ("<fim_prefix>", "<fim_middle>", "<fim_suffix>")
MARKERS = (END, "<repo_name>", "<file_sep>", *FIM)
"""As StarCoder has them."""
FIRST_ADDED = 50_265
NOTHING_AROUND = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False}


def codebert_with(
    names: Sequence[str], folder: Path, *, is_causal: bool = False, is_marked: bool = True
) -> TokenizerConfig:
    """Causal: with nothing around a text. The end token of MARKERS, if it is among the names, ends texts.

    Not marked: as Qwen and DeepSeek have theirs, `special: false`.
    """
    definition = load_tokenizer().definition
    tree, config = json.loads(definition.json), json.loads(definition.config)
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    tree["added_tokens"] += [
        {"id": index, "content": name, "special": is_marked, **flags} for index, name in enumerate(names, FIRST_ADDED)
    ]
    if is_causal:
        tree["post_processor"], config = NOTHING_AROUND, {"pad_token": "<pad>"}
    if END in names:
        config["eos_token"] = END
    write_tree(folder, {"tokenizer.json": json.dumps(tree), "tokenizer_config.json": json.dumps(config)})
    return TokenizerConfig(name=str(folder))
