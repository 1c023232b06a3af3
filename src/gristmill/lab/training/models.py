"""Models to train: three sizes with random weights, or a pretrained model from a folder or the Hub.

A pretrained model is checked against the tokenizer and window length of the dataset. A `Learner` is a model with the
weights to train: all weights, or those of a LoRA adapter (peft).
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
from gristmill.core.names import counted, shell_quote
from gristmill.core.plain_files import read_plain, require_plain_files
from gristmill.lab.training.train_config import ALL_LINEAR, FRESH_MODELS, ObjectiveName, TrainConfig
from gristmill.tokenizers import hub
from gristmill.tokenizers.definition import Definition
from gristmill.tokenizers.locate import locate

MAX_ROBERTA_PAD_ID = 64
"""Largest padding id for RoBERTa, which numbers positions from the padding id upwards. With a large padding id, most
positions would be unused."""
PICKLE_SUFFIXES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
ADAPTER_WEIGHTS = "adapter_model.safetensors"
BASE_DIGEST = "base.sha256"
"""File in an adapter's checkpoint with the digest of the base weights that the adapter was trained for."""
MAX_LISTED = 3
SAFE_LOADING: dict[str, Any] = {"trust_remote_code": False, "use_safetensors": True}
"""Options for loading weights from any source: no pickle, and no code from the model's folder."""


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
"""Shape and learning rate of each of FRESH_MODELS."""
_FRESH_MODEL_NAMES = ", ".join(FRESH_MODELS)


class ModelRequirements(NamedTuple):
    """Window length and tokenizer of the dataset, which a model must support."""

    window_length: int
    definition: Definition


def learning_rate_for(config: TrainConfig) -> float:
    """Return the configured peak learning rate, or the default for the model and objective."""
    default = config.recipe.learning_rate
    return config.learning_rate or (SIZES[config.model].learning_rate if default is None else default)


def make_model(name: str, objective: ObjectiveName, requirements: ModelRequirements) -> PreTrainedModel:
    """Create or load a model. Random weights depend only on the state of torch's generator.

    Raises ConfigError or InputError if a pretrained model cannot be loaded or does not fit the dataset.
    """
    if name not in SIZES:
        return _load_pretrained(name, objective, requirements)
    config = (
        _causal_config(SIZES[name], requirements)
        if objective == "causal"
        else _masked_config(SIZES[name], requirements)
    )
    auto: Any = AutoModelForCausalLM if objective == "causal" else AutoModelForMaskedLM
    model: PreTrainedModel = auto.from_config(config, attn_implementation="sdpa")
    return model


def _causal_config(size: Size, requirements: ModelRequirements) -> transformers.PretrainedConfig:
    definition = requirements.definition
    return transformers.GPT2Config(
        vocab_size=definition.vocab_size,
        n_positions=requirements.window_length,
        n_embd=size.width,
        n_layer=size.layers,
        n_head=size.heads,
        bos_token_id=next(iter(definition.template.prefix), None),
        eos_token_id=next(iter(definition.template.suffix), None),
        pad_token_id=definition.pad_id,
    )


def _masked_config(size: Size, requirements: ModelRequirements) -> transformers.PretrainedConfig:
    """Return a RoBERTa configuration, or a BERT configuration if the padding id is large or missing.

    The two kinds of model differ in how they number positions.
    """
    pad_id = requirements.definition.pad_id
    is_roberta = pad_id is not None and pad_id <= MAX_ROBERTA_PAD_ID
    kind = transformers.RobertaConfig if is_roberta else transformers.BertConfig
    return kind(
        vocab_size=requirements.definition.vocab_size,
        max_position_embeddings=requirements.window_length + (pad_id + 1 if is_roberta and pad_id is not None else 0),
        hidden_size=size.width,
        num_hidden_layers=size.layers,
        num_attention_heads=size.heads,
        intermediate_size=4 * size.width,
        type_vocab_size=1,
        layer_norm_eps=1e-5,
        bos_token_id=next(iter(requirements.definition.template.prefix), None),
        eos_token_id=next(iter(requirements.definition.template.suffix), None),
        pad_token_id=pad_id,
    )


def _load_pretrained(name: str, objective: ObjectiveName, requirements: ModelRequirements) -> PreTrainedModel:
    path = os.path.expanduser(name)
    is_folder = os.path.isdir(path)
    if not is_folder and (os.path.exists(path) or not hub.is_repo_id(name)):
        raise ConfigError(
            f"no model {name!r} found. Use {_FRESH_MODEL_NAMES}, a folder, or a Hub id such as 'org/name' or 'gpt2'."
        )
    _require_same_tokenizer(name, path, requirements.definition)
    repo, _, revision = name.partition("@")
    source, options = (path, {}) if is_folder else (repo, {"revision": revision or "main"})
    auto: Any = AutoModelForCausalLM if objective == "causal" else AutoModelForMaskedLM
    try:
        if is_folder:
            require_plain_files(source)
            _require_safetensors(name, source)
        config = AutoConfig.from_pretrained(source, trust_remote_code=False, **options)
        _require_capacity(name, config, requirements)
        # A config.json may name kernels on the Hub in these two settings. Kernels are code, so both are cleared.
        config._attn_implementation = config._experts_implementation = None  # noqa: SLF001
        model: PreTrainedModel = auto.from_pretrained(
            source, config=config, dtype=torch.float32, **SAFE_LOADING, **options
        )
    except (ConfigError, InputError):
        raise
    except Exception as error:  # noqa: BLE001 - loading an arbitrary folder may raise any error
        first = str(error).strip().partition("\n")[0].rstrip(".")
        raise InputError(f"cannot load the model {name!r} for the objective {objective}: {first}.") from None
    return model


def _require_same_tokenizer(name: str, path: str, expected: Definition) -> None:
    """Raise ConfigError unless the dataset was built with the model's own tokenizer."""
    try:
        found = locate(path if os.path.isdir(path) else name)
    except TokenizerError as error:
        if not os.path.isdir(path):
            raise InputError(
                f"the model {name!r} is neither one of {_FRESH_MODEL_NAMES} nor a folder, and its tokenizer cannot "
                f"be loaded: {error}"
            ) from None
        raise ConfigError(
            f"the model {name!r} has no tokenizer in its folder, so the dataset's ids cannot be checked. "
            "Put the tokenizer.json that the model was trained with into this folder."
        ) from None
    if differences := list(_differences(expected, found)):
        raise ConfigError(
            f"the dataset was built with the tokenizer {expected.name!r} ({expected.vocab_size:,} ids), but the model "
            f"{name!r} has a different tokenizer ({found.vocab_size:,} ids): {'; '.join(differences)}. "
            f"Build the dataset with --tokenizer {shell_quote(name)}."
        )


def _differences(expected: Definition, found: Definition) -> Iterable[str]:
    """Describe the differences between the ids of the dataset and of the model."""
    dataset_ids, model_ids = expected.ids_by_token, found.ids_by_token
    changed = sorted(token for token in dataset_ids.keys() & model_ids.keys() if dataset_ids[token] != model_ids[token])
    if changed:
        texts = (
            f"{token!r} has id {dataset_ids[token]} in the dataset and {model_ids[token]} in the model"
            for token in changed
        )
        yield f"{counted(len(changed), 'token')} with a different id ({_first_few(texts, len(changed))})"
    for ids, other_ids, owner in ((dataset_ids, model_ids, "dataset"), (model_ids, dataset_ids, "model")):
        if tokens := sorted(ids.keys() - other_ids.keys(), key=ids.__getitem__):
            yield f"{counted(len(tokens), 'token')} only in the {owner} ({_first_few(map(repr, tokens), len(tokens))})"
    for role, dataset_value, model_value in (
        ("begins texts with", expected.begin_ids, found.begin_ids),
        ("ends texts with", expected.end_id, found.end_id),
    ):
        if dataset_value != model_value and dataset_ids == model_ids:
            names = _token_names(expected, dataset_value), _token_names(found, model_value)
            yield f"the dataset's tokenizer {role} {names[0]}, the model's with {names[1]}"


def _first_few(texts: Iterable[str], count: int) -> str:
    first = [text for text, _ in zip(texts, range(MAX_LISTED), strict=False)]
    return ", ".join(first) + (", …" if count > MAX_LISTED else "")


def _token_names(definition: Definition, ids: tuple[int, ...] | int | None) -> str:
    all_ids = (ids,) if isinstance(ids, int) else ids or ()
    tokens = {index: token for token, index in definition.ids_by_token.items()}
    return " ".join(repr(tokens.get(one, one)) for one in all_ids) or "none"


def _require_safetensors(name: str, folder: str) -> None:
    """Raise InputError if the weights in a folder are pickled, because loading them may run code."""
    files = os.listdir(folder)
    pickled = [file for file in sorted(files) if file.endswith(PICKLE_SUFFIXES)]
    if pickled and not any(file.endswith(".safetensors") for file in files):
        raise InputError(
            f"cannot load the model {name!r}: its weights are pickled ({pickled[0]}), and loading a pickle may run "
            "code. Only safetensors are supported. If you trust the model, load it with transformers and save it again "
            "with save_pretrained()."
        )


def _require_capacity(name: str, config: Any, requirements: ModelRequirements) -> None:
    length = getattr(config, "max_position_embeddings", None)
    if getattr(config, "model_type", None) in {"roberta", "xlm-roberta", "camembert"} and length is not None:
        length -= (config.pad_token_id or 0) + 1
    if length is not None and length < requirements.window_length:
        raise ConfigError(
            f"the model {name!r} takes up to {counted(length, 'id')}, but the dataset's windows have "
            f"{requirements.window_length} ids. Build the dataset with --window {length}."
        )
    if config.vocab_size < requirements.definition.vocab_size:
        raise ConfigError(
            f"the model {name!r} has {config.vocab_size:,} ids, but the dataset's tokenizer has "
            f"{requirements.definition.vocab_size:,} ids. Choose a different model."
        )


class Learner:
    """A model with the weights to train: all weights, or those of a LoRA adapter."""

    def __init__(self, model: PreTrainedModel, config: TrainConfig) -> None:
        """With `config.lora`, add an adapter to the model and freeze the model's own weights."""
        self.model, self._name = model, config.model
        self._base_digest = _weights_digest(model) if config.lora else ""
        self._adapter = _add_adapter(model, config) if config.lora else None

    @property
    def num_adapter_weights(self) -> int | None:
        """Number of weights in the adapter. None without an adapter."""
        if self._adapter is None:
            return None
        return sum(weights.numel() for weights in self.model.parameters() if weights.requires_grad)

    def save(self, folder: Path) -> None:
        """Save the trained weights in the format of `from_pretrained`."""
        if self._adapter is None:
            self.model.save_pretrained(folder)
            return
        # Without this option, peft would ask the Hub whether the vocabulary has grown.
        self._adapter.save_pretrained(str(folder), save_embedding_layers=False)
        write_atomically(folder / BASE_DIGEST, self._base_digest.encode(), is_synced=False)

    def save_with_tokenizer(self, requirements: ModelRequirements, folder: Path) -> None:
        """Save the trained weights and the tokenizer, so that `AutoTokenizer` can also load the folder."""
        self.save(folder)
        # Callers that truncate texts to model_max_length get windows as long as in training.
        settings = {
            **msgspec.json.decode(requirements.definition.config),
            "model_max_length": requirements.window_length,
        }
        msgspec.structs.replace(requirements.definition, config=msgspec.json.encode(settings)).write(folder)

    def load(self, folder: Path) -> None:
        """Load the weights that `save` wrote. Raises if they belong to a different base model or adapter."""
        if self._adapter is None:
            load_weights(self.model, folder)
            return
        from peft import set_peft_model_state_dict  # noqa: PLC0415 - only with --lora

        require_plain_files(folder)
        if read_plain(folder / BASE_DIGEST).decode() != self._base_digest:
            raise ConfigError(
                f"the weights of {self._name!r} have changed since this adapter was trained. Restore them, or train "
                "into a new folder."
            )
        found: Any = set_peft_model_state_dict(self._adapter, safetensors.torch.load_file(folder / ADAPTER_WEIGHTS))
        missing = [name for name in found.missing_keys if "lora_" in name]
        if missing or found.unexpected_keys:
            other = (missing or found.unexpected_keys)[0]
            raise DatasetError(
                f"{str(folder)!r} contains a different adapter: {other!r} does not match. Train into a new folder."
            )


def _add_adapter(model: PreTrainedModel, config: TrainConfig) -> Any:
    require_lora()
    from peft import LoraConfig, get_peft_model  # noqa: PLC0415 - only with --lora

    layers: str | list[str] = ALL_LINEAR if config.lora_targets == ALL_LINEAR else config.lora_layers
    settings = LoraConfig(
        r=config.lora_rank,
        lora_alpha=config.lora_alpha,
        lora_dropout=config.lora_dropout,
        target_modules=layers,
        # The layers of GPT-2 store their weights transposed.
        fan_in_fan_out=any(isinstance(module, Conv1D) for module in model.modules()),
        task_type="CAUSAL_LM" if config.objective == "causal" else None,
    )
    try:
        with warnings.catch_warnings():
            # peft uses a deprecated name of a transformers property.
            warnings.filterwarnings("ignore", "`is_gradient_checkpointing` is deprecated", FutureWarning)
            adapter: Any = get_peft_model(model, settings)
    except ValueError as error:
        first = str(error).strip().partition("\n")[0].rstrip(".")
        raise ConfigError(
            f"--lora-targets {config.lora_targets} does not fit the model {config.model!r}: {first}."
        ) from None
    # peft stores a set of names. Sorting the names gives adapter_config.json the same bytes every time.
    peft_config = adapter.active_peft_config
    peft_config.target_modules = sorted(peft_config.target_modules)
    return adapter


def _weights_digest(model: PreTrainedModel) -> str:
    digest = hashlib.sha256()
    for name, weights in model.state_dict().items():
        digest.update(f"{name} {tuple(weights.shape)}\n".encode())
        digest.update(weights.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return digest.hexdigest()


def load_weights(model: PreTrainedModel, folder: Path) -> None:
    """Load weights into the model from a folder that `save_pretrained` wrote."""
    require_plain_files(folder)
    # Use the absolute path, because `run/model` could be an id on the Hub.
    saved = type(model).from_pretrained(folder.resolve(), config=model.config, local_files_only=True, **SAFE_LOADING)
    model.load_state_dict(saved.state_dict())
