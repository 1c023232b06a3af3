"""The models: three sizes with fresh weights, or one from a folder or the Hub, held against the dataset's tokenizer."""

import os
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForMaskedLM, PreTrainedModel

from gristmill.core.errors import ConfigError, InputError, TokenizerError
from gristmill.core.names import counted
from gristmill.core.plain_files import require_plain_files
from gristmill.lab.training.train_config import ObjectiveName
from gristmill.tokenizers import hub
from gristmill.tokenizers.definition import Definition
from gristmill.tokenizers.locate import locate

LARGEST_ROBERTA_PAD = 64
"""RoBERTa counts its positions from the padding id on: with a large one, most would never be used."""
TRAINED_LEARNING_RATE = 5e-5
SAFELY: dict[str, Any] = {"trust_remote_code": False, "use_safetensors": True}
"""How weights are loaded, wherever they are from: no pickle, and no code beside them."""


class Size(NamedTuple):
    layers: int
    width: int
    heads: int
    learning_rate: float


SIZES = {
    "tiny": Size(layers=4, width=128, heads=2, learning_rate=1e-3),
    "small": Size(layers=6, width=384, heads=6, learning_rate=6e-4),
    "base": Size(layers=12, width=768, heads=12, learning_rate=2e-4),
}


_KNOWN = ", ".join(SIZES)


class Needs(NamedTuple):
    """What a dataset asks of a model."""

    window_length: int
    definition: Definition


def learning_rate_of(name: str) -> float:
    return SIZES[name].learning_rate if name in SIZES else TRAINED_LEARNING_RATE


def make_model(name: str, objective: ObjectiveName, needs: Needs) -> PreTrainedModel:
    """The same weights for the same state of torch's generator."""
    if name not in SIZES:
        return _trained_model(name, objective, needs)
    config = _causal_config(SIZES[name], needs) if objective == "causal" else _masked_config(SIZES[name], needs)
    auto: Any = AutoModelForCausalLM if objective == "causal" else AutoModelForMaskedLM
    model: PreTrainedModel = auto.from_config(config, attn_implementation="sdpa")
    return model


def _causal_config(size: Size, needs: Needs) -> transformers.PretrainedConfig:
    definition = needs.definition
    return transformers.GPT2Config(
        vocab_size=definition.vocab_size,
        n_positions=needs.window_length,
        n_embd=size.width,
        n_layer=size.layers,
        n_head=size.heads,
        bos_token_id=next(iter(definition.template.prefix), None),
        eos_token_id=next(iter(definition.template.suffix), None),
        pad_token_id=definition.pad_id,
    )


def _masked_config(size: Size, needs: Needs) -> transformers.PretrainedConfig:
    """RoBERTa's; BERT's, which differs in how it counts positions, where the padding id is large or missing."""
    pad_id = needs.definition.pad_id
    is_roberta = pad_id is not None and pad_id <= LARGEST_ROBERTA_PAD
    kind = transformers.RobertaConfig if is_roberta else transformers.BertConfig
    return kind(
        vocab_size=needs.definition.vocab_size,
        max_position_embeddings=needs.window_length + (pad_id + 1 if is_roberta and pad_id is not None else 0),
        hidden_size=size.width,
        num_hidden_layers=size.layers,
        num_attention_heads=size.heads,
        intermediate_size=4 * size.width,
        type_vocab_size=1,
        layer_norm_eps=1e-5,
        bos_token_id=next(iter(needs.definition.template.prefix), None),
        eos_token_id=next(iter(needs.definition.template.suffix), None),
        pad_token_id=pad_id,
    )


def _trained_model(name: str, objective: ObjectiveName, needs: Needs) -> PreTrainedModel:
    place = os.path.expanduser(name)
    is_folder = os.path.isdir(place)
    if not is_folder and (os.path.exists(place) or not hub.is_repo_id(name)):
        raise ConfigError(
            f"there is no model {name!r}: name {_KNOWN}, a folder, or a Hub id like 'org/name' or 'gpt2'."
        )
    _require_same_tokenizer(name, place, needs.definition)
    repo, _, revision = name.partition("@")
    where, at = (place, {}) if is_folder else (repo, {"revision": revision or "main"})
    auto: Any = AutoModelForCausalLM if objective == "causal" else AutoModelForMaskedLM
    try:
        if os.path.isdir(where):
            require_plain_files(where)
        config = AutoConfig.from_pretrained(where, trust_remote_code=False, **at)
        _require_room(name, config, needs)
        # A config.json may name kernels on the Hub for these, which are code.
        config._attn_implementation = config._experts_implementation = None  # noqa: SLF001
        model: PreTrainedModel = auto.from_pretrained(where, config=config, dtype=torch.float32, **SAFELY, **at)
    except ConfigError:
        raise
    except Exception as error:  # noqa: BLE001 - a folder may hold anything, and each part has errors of its own
        first = str(error).strip().partition("\n")[0].rstrip(".")
        raise InputError(f"cannot load the model {name!r} for {objective}: {first}.") from None
    return model


def _require_same_tokenizer(name: str, place: str, ours: Definition) -> None:
    """Ids mean something to the model only if they are its own tokenizer's."""
    try:
        theirs = locate(place if os.path.isdir(place) else name)
    except TokenizerError as error:
        if not os.path.isdir(place):
            raise InputError(f"the model {name!r} is none of {_KNOWN}, no folder here, and: {error}") from None
        raise ConfigError(
            f"the model {name!r} has no tokenizer beside it, so nobody can say whether the dataset's ids mean anything "
            "to it. Put the tokenizer.json that it was trained with into its folder."
        ) from None
    if theirs.ids_by_token != ours.ids_by_token:
        raise ConfigError(
            f"the dataset was made with the tokenizer {ours.name!r} ({ours.vocab_size:,} ids), and the model {name!r} "
            f"has another ({theirs.vocab_size:,} ids): its ids mean other tokens. "
            f"Build the dataset with --tokenizer {name}."
        )


def _require_room(name: str, config: Any, needs: Needs) -> None:
    length = getattr(config, "max_position_embeddings", None)
    if getattr(config, "model_type", None) in {"roberta", "xlm-roberta", "camembert"} and length is not None:
        length -= (config.pad_token_id or 0) + 1
    if length is not None and length < needs.window_length:
        raise ConfigError(
            f"the model {name!r} takes {counted(length, 'id')}, and the dataset's windows have {needs.window_length}. "
            f"Build it with --window {length}."
        )
    if config.vocab_size < needs.definition.vocab_size:
        raise ConfigError(
            f"the model {name!r} knows {config.vocab_size:,} ids, and the dataset has {needs.definition.vocab_size:,}."
        )


def put_weights(model: PreTrainedModel, folder: Path) -> None:
    """Give the model the weights that `save_pretrained` has written to the folder."""
    require_plain_files(folder)
    # By its whole path: `run/model` would be an id on the Hub.
    kept = type(model).from_pretrained(folder.resolve(), config=model.config, local_files_only=True, **SAFELY)
    model.load_state_dict(kept.state_dict())


def save_model(model: PreTrainedModel, needs: Needs, folder: Path) -> None:
    """With its tokenizer: `AutoModel.from_pretrained` and `AutoTokenizer.from_pretrained` take the folder."""
    model.save_pretrained(folder)
    # Whoever truncates by it is to get what the model was trained on.
    settings = {**msgspec.json.decode(needs.definition.config), "model_max_length": needs.window_length}
    msgspec.structs.replace(needs.definition, config=msgspec.json.encode(settings)).write(folder)
