import pickle

import msgspec
import pytest

from gristmill.config.config import setting_names
from gristmill.core.records import (
    INDEPENDENT_WINDOW_KINDS,
    LABELED_KINDS,
    VARIANTS,
    DropReason,
    DropStage,
    VariantKind,
    WhyNoVariant,
)


@pytest.mark.parametrize("reason", [*DropReason, *WhyNoVariant])
def test_every_reason_has_a_meaning_and_is_serialized_as_its_name(reason):
    kind = type(reason)
    assert reason.meaning
    assert reason == reason.name.lower() == f"{reason}"
    assert msgspec.json.decode(msgspec.json.encode(reason), type=kind) is reason
    assert msgspec.convert(str(reason), kind) is pickle.loads(pickle.dumps(reason)) is reason


def test_every_stage_has_a_drop_reason():
    assert {reason.stage for reason in DropReason} == set(DropStage)


# Columns: makes, keeps, needs_grammar, needs_mask, has_labels, needs_model, settings.
EXPECTED_VARIANTS = {
    "rename": ("text", ("tree", "meaning"), True, False, False, False, ()),
    "comments": ("text", ("meaning",), True, False, False, False, ()),
    "format": ("text", ("meaning",), True, False, False, False, ()),
    "rewrite": ("text", (), True, False, False, True, ("rewrite.",)),
    "noise": (
        *("windows", (), False, True, True, False),
        ("variants.noise_mask", "variants.noise_span", "variants.noise_delete"),
    ),
}


def test_variant_table_matches_the_documented_properties():
    found = {
        str(kind): (
            *(one.makes, one.keeps, one.needs_grammar, one.needs_mask, one.has_labels, one.needs_model),
            one.settings,
        )
        for kind, one in VARIANTS.items()
    }
    assert found == EXPECTED_VARIANTS
    assert list(VARIANTS) == list(VariantKind), (
        "VARIANTS must have the order of VariantKind, in which the variants of a file are written"
    )
    assert {"noise"} == INDEPENDENT_WINDOW_KINDS
    assert {"noise"} == LABELED_KINDS


@pytest.mark.parametrize("kind", VARIANTS)
def test_settings_of_each_variant_kind_exist(kind):
    for name in VARIANTS[kind].settings:
        assert any(known.startswith(name) for known in setting_names()), name
