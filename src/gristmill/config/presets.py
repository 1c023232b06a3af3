"""PRESETS: default settings for masked, causal and fill-in-the-middle training.

A preset changes only settings that the configuration does not set. The default preset depends on the tokenizer, so a
build calls with_preset() after loading the tokenizer.
"""

from typing import Literal, NamedTuple

import msgspec

from gristmill.config.config import Config
from gristmill.config.settings import PresetName
from gristmill.core.errors import ConfigError


class Preset(NamedTuple):
    text: str
    """Purpose of the preset, for the reference."""
    overlap_share: float
    """Overlap as a share of the window length, if rows are not packed."""
    pack: Literal["none", "best-fit"]
    special_tokens: Literal["template", "documents"]
    fim_rate: float


PRESETS: dict[PresetName, Preset] = {
    "mlm": Preset("masked models: CodeBERT, UniXcoder, ModernBERT", 0.5, "none", "template", 0.0),
    "causal": Preset("causal models: StarCoder 2, Qwen coder, Llama", 0.0, "best-fit", "documents", 0.0),
    "fim": Preset("causal models that also learn fill-in-the-middle, for editors", 0.0, "best-fit", "documents", 0.5),
}


def with_preset(config: Config, *, has_mask: bool) -> Config:
    """Return the configuration with the preset's value for each setting that is not set.

    `has_mask` is True if the tokenizer has a mask token.
    """
    name = config.preset or ("fim" if config.fim.is_enabled else default_preset(has_mask=has_mask))
    preset, window, fim = PRESETS[name], config.window, config.fim
    if config.has_documents:  # rows are not windows
        preset = preset._replace(overlap_share=0.0, pack="none")
    pack = window.pack or preset.pack
    overlap = window.overlap
    if overlap is None:
        overlap = 0 if pack != "none" else int(window.length * preset.overlap_share)
    try:
        window = msgspec.structs.replace(
            window,
            pack=pack,
            overlap=overlap,
            special_tokens=window.special_tokens or (None if config.has_documents else preset.special_tokens),
        )
        fim = msgspec.structs.replace(fim, rate=preset.fim_rate if fim.rate is None else fim.rate)
        return msgspec.structs.replace(config, preset=name, window=window, fim=fim)
    except ConfigError as error:
        if config.window.pack is not None or pack == "none":
            raise
        raise ConfigError(
            f"{error} The preset {name} sets --pack {pack}; add --pack none to turn packing off."
        ) from None


def default_preset(*, has_mask: bool) -> PresetName:
    """Return the preset for a tokenizer with or without a mask token."""
    return "mlm" if has_mask else "causal"


def preset_text(name: str, *, has_mask: bool) -> str:
    """Return the name of a preset, and why the build uses this preset."""
    why = f"the default for a tokenizer with{'' if has_mask else 'out'} a mask token"
    return f"{name} ({why if name == default_preset(has_mask=has_mask) else 'as configured'})"
