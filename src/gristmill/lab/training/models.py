"""The models: three sizes with fresh weights, or one from a folder or the Hub, held against the dataset's tokenizer.

A Learner is a model with what is trained of it: all weights, or those of a LoRA adapter (peft).
"""

import hashlib
import os
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import safetensors.torch
import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForMaskedLM, PreTrainedModel
from transformers.pytorch_utils import Conv1D

from gristmill.core.errors import ConfigError, DatasetError, InputError, TokenizerError
from gristmill.core.extras import require_lora
from gristmill.core.layout import write_atomically
from gristmill.core.names import counted, shell_word
from gristmill.core.plain_files import read_plain, require_plain_files
from gristmill.lab.training.train_config import ALL_LINEAR, FRESH_MODELS, ObjectiveName, TrainConfig
from gristmill.tokenizers import hub
from gristmill.tokenizers.definition import Definition
from gristmill.tokenizers.locate import locate

LARGEST_ROBERTA_PAD = 64
"""RoBERTa counts its positions from the padding id on: with a large one, most would never be used."""
PICKLED = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
ADAPTER_WEIGHTS = "adapter_model.safetensors"
BASE_DIGEST = "base.sha256"
"""In a checkpoint of an adapter: the digest of the weights that it was trained for."""
MOST_NAMED = 3
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
"""Sizes of FRESH_MODELS."""
_KNOWN = ", ".join(FRESH_MODELS)


class Needs(NamedTuple):
    """What a dataset asks of a model."""

    window_length: int
    definition: Definition


def learning_rate_of(config: TrainConfig) -> float:
    default = config.recipe.learning_rate
    return config.learning_rate or (SIZES[config.model].learning_rate if default is None else default)


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
        if is_folder:
            require_plain_files(where)
            _require_safetensors(name, where)
        config = AutoConfig.from_pretrained(where, trust_remote_code=False, **at)
        _require_room(name, config, needs)
        # A config.json may name kernels on the Hub for these, which are code.
        config._attn_implementation = config._experts_implementation = None  # noqa: SLF001
        model: PreTrainedModel = auto.from_pretrained(where, config=config, dtype=torch.float32, **SAFELY, **at)
    except (ConfigError, InputError):
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
    if differences := list(_differences(ours, theirs)):
        raise ConfigError(
            f"the dataset was made with the tokenizer {ours.name!r} ({ours.vocab_size:,} ids), and the model {name!r} "
            f"has another ({theirs.vocab_size:,} ids): {'; '.join(differences)}. "
            f"Build the dataset with --tokenizer {shell_word(name)}."
        )


def _differences(ours: Definition, theirs: Definition) -> Iterable[str]:
    """Name the differences between the ids of the dataset and of the model."""
    here, there = ours.ids_by_token, theirs.ids_by_token
    other = sorted(token for token in here.keys() & there.keys() if here[token] != there[token])
    if other:
        shown = (f"{token!r} is {here[token]} in the dataset and {there[token]} in the model" for token in other)
        yield f"{counted(len(other), 'token')} with another id ({_some(shown, len(other))})"
    for own, others, side in ((here, there, "dataset"), (there, here, "model")):
        if only := sorted(own.keys() - others.keys(), key=own.__getitem__):
            yield f"{counted(len(only), 'token')} only in the {side} ({_some(map(repr, only), len(only))})"
    for role, one, two in (
        ("begins texts with", ours.begin_ids, theirs.begin_ids),
        ("ends texts with", ours.end_id, theirs.end_id),
    ):
        if one != two and here == there:
            yield f"the dataset's {role} {_named(ours, one)}, the model's with {_named(theirs, two)}"


def _some(shown: Iterable[str], count: int) -> str:
    first = [text for text, _ in zip(shown, range(MOST_NAMED), strict=False)]
    return ", ".join(first) + (", …" if count > MOST_NAMED else "")


def _named(definition: Definition, ids: tuple[int, ...] | int | None) -> str:
    wanted = (ids,) if isinstance(ids, int) else ids or ()
    tokens = {index: token for token, index in definition.ids_by_token.items()}
    return " ".join(repr(tokens.get(one, one)) for one in wanted) or "none"


def _require_safetensors(name: str, folder: str) -> None:
    """Raise InputError if the folder's weights are pickled: loading them may run code."""
    files = os.listdir(folder)
    pickled = [file for file in sorted(files) if file.endswith(PICKLED)]
    if pickled and not any(file.endswith(".safetensors") for file in files):
        raise InputError(
            f"cannot load the model {name!r}: its weights are pickled ({pickled[0]}), which may run code when they are "
            "loaded. Only safetensors are read: load the model where you trust it, and save_pretrained() it again."
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


class Learner:
    """A model and what is trained of it: all its weights, or a LoRA adapter."""

    def __init__(self, model: PreTrainedModel, config: TrainConfig) -> None:
        """With `config.lora`, puts adapters into the model and freezes its own weights."""
        self.model, self._name = model, config.model
        self._base_digest = _digest_of(model) if config.lora else ""
        self._adapter = _adapter(model, config) if config.lora else None

    @property
    def num_adapter_weights(self) -> int | None:
        """None: there is no adapter."""
        if self._adapter is None:
            return None
        return sum(weights.numel() for weights in self.model.parameters() if weights.requires_grad)

    def save(self, folder: Path) -> None:
        """Save the trained weights in the format of `from_pretrained`."""
        if self._adapter is None:
            self.model.save_pretrained(folder)
            return
        # Else peft would ask the Hub whether the vocabulary has grown.
        self._adapter.save_pretrained(str(folder), save_embedding_layers=False)
        write_atomically(folder / BASE_DIGEST, self._base_digest.encode(), is_synced=False)

    def save_with_tokenizer(self, needs: Needs, folder: Path) -> None:
        """`AutoTokenizer.from_pretrained` takes the folder too."""
        self.save(folder)
        # Callers that truncate to model_max_length then get windows as long as in training.
        settings = {**msgspec.json.decode(needs.definition.config), "model_max_length": needs.window_length}
        msgspec.structs.replace(needs.definition, config=msgspec.json.encode(settings)).write(folder)

    def load(self, folder: Path) -> None:
        """Load the files that `save` wrote."""
        if self._adapter is None:
            put_weights(self.model, folder)
            return
        from peft import set_peft_model_state_dict  # noqa: PLC0415 - only with --lora

        require_plain_files(folder)
        if read_plain(folder / BASE_DIGEST).decode() != self._base_digest:
            raise ConfigError(
                f"the weights of {self._name!r} are no longer those that this adapter was trained for. Put them back, "
                "or train into a new folder."
            )
        found: Any = set_peft_model_state_dict(self._adapter, safetensors.torch.load_file(folder / ADAPTER_WEIGHTS))
        missing = [name for name in found.missing_keys if "lora_" in name]
        if missing or found.unexpected_keys:
            other = (missing or found.unexpected_keys)[0]
            raise DatasetError(f"{str(folder)!r} holds another adapter: {other!r} differs. Train into a new folder.")


def _adapter(model: PreTrainedModel, config: TrainConfig) -> Any:
    require_lora()
    from peft import LoraConfig, get_peft_model  # noqa: PLC0415 - only with --lora

    layers: str | list[str] = ALL_LINEAR if config.lora_targets == ALL_LINEAR else config.lora_layers
    settings = LoraConfig(
        r=config.lora_rank,
        lora_alpha=config.lora_alpha,
        lora_dropout=config.lora_dropout,
        target_modules=layers,
        # GPT-2's layers have their weights the other way round.
        fan_in_fan_out=any(isinstance(module, Conv1D) for module in model.modules()),
        task_type="CAUSAL_LM" if config.objective == "causal" else None,
    )
    try:
        with warnings.catch_warnings():
            # peft asks transformers for a property by its old name.
            warnings.filterwarnings("ignore", "`is_gradient_checkpointing` is deprecated", FutureWarning)
            adapter: Any = get_peft_model(model, settings)
    except ValueError as error:
        first = str(error).strip().partition("\n")[0].rstrip(".")
        raise ConfigError(f"--lora-targets {config.lora_targets} does not fit {config.model!r}: {first}.") from None
    # peft has a set of names here, and adapter_config.json would have another order each time.
    own = adapter.active_peft_config
    own.target_modules = sorted(own.target_modules)
    return adapter


def _digest_of(model: PreTrainedModel) -> str:
    digest = hashlib.sha256()
    for name, weights in model.state_dict().items():
        digest.update(f"{name} {tuple(weights.shape)}\n".encode())
        digest.update(weights.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return digest.hexdigest()


def put_weights(model: PreTrainedModel, folder: Path) -> None:
    """Give the model the weights that `save_pretrained` has written to the folder."""
    require_plain_files(folder)
    # By its whole path: `run/model` would be an id on the Hub.
    kept = type(model).from_pretrained(folder.resolve(), config=model.config, local_files_only=True, **SAFELY)
    model.load_state_dict(kept.state_dict())
