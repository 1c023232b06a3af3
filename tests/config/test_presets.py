"""A preset changes only settings that the configuration does not set."""

import pytest

from gristmill import Config, ConfigError, FimConfig, OutputConfig, WindowConfig
from gristmill.config.presets import PRESETS, preset_text, with_preset

EXPECTED = {
    # (preset, has mask token): (overlap, packing, special tokens, fill-in-the-middle rate)
    ("mlm", True): (256, "none", "template", 0.0),
    ("causal", True): (0, "best-fit", "documents", 0.0),
    ("fim", False): (0, "best-fit", "documents", 0.5),
    (None, True): (256, "none", "template", 0.0),
    (None, False): (0, "best-fit", "documents", 0.0),
}


def config(**more):
    return Config(sources=["."], out="out", **more)


def preset_values(config, *, has_mask):
    window, fim = (chosen := with_preset(config, has_mask=has_mask)).window, chosen.fim
    return window.overlap, window.pack, window.special_tokens, fim.rate


@pytest.mark.parametrize(("preset", "has_mask"), EXPECTED)
def test_preset_sets_its_values(preset, has_mask):
    assert preset_values(config(preset=preset), has_mask=has_mask) == EXPECTED[preset, has_mask]


@pytest.mark.parametrize("preset", PRESETS)
def test_explicit_settings_are_kept(preset):
    window = WindowConfig(overlap=7, pack="none", special_tokens="template")
    explicit = config(preset=preset, window=window, fim=FimConfig(rate=0.25))
    assert preset_values(explicit, has_mask=False) == (7, "none", "template", 0.25)


def test_explicit_packing_has_no_overlap():
    assert preset_values(config(window=WindowConfig(pack="best-fit")), has_mask=True)[:2] == (0, "best-fit")


def test_documents_are_not_packed():
    chosen = with_preset(config(preset="fim", output=OutputConfig(rows="documents")), has_mask=False)
    assert (chosen.window.pack, chosen.fim.rate) == ("none", 0.5)


def test_fim_rate_selects_the_fim_preset():
    assert preset_values(config(fim=FimConfig(rate=0.3)), has_mask=True) == (0, "best-fit", "documents", 0.3)
    assert preset_values(config(fim=FimConfig(rate=0.0)), has_mask=True) == EXPECTED[None, True]


def test_preset_is_applied_once():
    once = with_preset(config(), has_mask=False)
    assert with_preset(once, has_mask=True) == once


def test_conflict_with_the_preset_is_refused_with_a_suggestion():
    with pytest.raises(ConfigError, match=r"--tail drop\. .*The preset causal sets --pack best-fit; add --pack none"):
        with_preset(config(preset="causal", window=WindowConfig(tail="drop")), has_mask=True)


def test_preset_text_gives_the_reason():
    assert preset_text("mlm", has_mask=True) == "mlm (the default for a tokenizer with a mask token)"
    assert preset_text("causal", has_mask=False) == "causal (the default for a tokenizer without a mask token)"
    assert preset_text("fim", has_mask=False) == "fim (as configured)"
