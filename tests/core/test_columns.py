"""The table of columns, held against what datasets are promised to have."""

import pytest

from gristmill.config.settings import (
    FimConfig,
    OutputConfig,
    SamplingConfig,
    VariantsConfig,
    WindowConfig,
    conditions_met,
)
from gristmill.core.columns import COLUMNS, PER_ID, Kind, When, row_columns, window_columns

SCHEMA = {
    "input_ids": (Kind.NUMBERS, When.ALWAYS),
    "segment_ids": (Kind.NUMBERS, When.PACK),
    "position_ids": (Kind.NUMBERS, When.PACK),
    "segments": (Kind.OBJECTS, When.PACK),
    "path": (Kind.TEXT, When.ALWAYS),
    "repo": (Kind.TEXT, When.ALWAYS),
    "language": (Kind.TEXT, When.ALWAYS),
    "lines": (Kind.NUMBERS, When.ALWAYS),
    "start": (Kind.NUMBER, When.ALWAYS),
    "fresh": (Kind.NUMBER, When.ALWAYS),
    "attention_mask": (Kind.NUMBERS, When.PAD),
    "text": (Kind.TEXT, When.TEXT),
    "repeat": (Kind.NUMBER, When.DRAWN),
    "labels": (Kind.NUMBERS, When.NOISE),
    "weight": (Kind.FRACTION, When.WEIGHTS),
    "variant": (Kind.TEXT, When.VARIANTS),
    "variant_seed": (Kind.NUMBER, When.VARIANTS),
    "fim": (Kind.TEXT, When.FIM),
    "middle": (Kind.TEXT, When.FIM),
    "middle_tokens": (Kind.NUMBER, When.FIM),
}
"""What whoever reads a dataset relies on, beside the code: names, kinds and order of its columns."""
PLAIN = ["input_ids", "path", "repo", "language", "lines", "start", "fresh"]
OPTIONS = {
    When.ALWAYS: {},
    When.PAD: {"output": OutputConfig(pad=True)},
    When.TEXT: {"output": OutputConfig(with_text=True)},
    When.DRAWN: {"sampling": SamplingConfig(weights={"*": 2})},
    When.NOISE: {"variants": VariantsConfig(rates={"noise": 1.0})},
    When.WEIGHTS: {"sampling": SamplingConfig(weights={"*": 2}, weights_only=True)},
    When.VARIANTS: {"variants": VariantsConfig(rates={"rename": 1.0})},
    When.FIM: {"fim": FimConfig(rate=0.5)},
    When.PACK: {"window": WindowConfig(pack="best-fit")},
}


def test_columns_are_those_that_datasets_are_promised_to_have():
    assert {name: (column.kind, column.when) for name, column in COLUMNS.items()} == SCHEMA
    assert list(COLUMNS) == list(SCHEMA)
    assert PER_ID == {"segment_ids": 0, "position_ids": 0, "attention_mask": 0, "labels": -100}


def columns_with(**sections):
    defaults = {
        "window": WindowConfig(),
        "output": OutputConfig(),
        "sampling": SamplingConfig(),
        "fim": FimConfig(),
        "variants": VariantsConfig(),
    }
    return conditions_met(**{**defaults, **sections})


@pytest.mark.parametrize("when", When, ids=lambda when: when.name)
def test_an_option_brings_its_columns(when):
    met = columns_with(**OPTIONS[when])
    assert set(window_columns(met)) == {name for name, (_, one) in SCHEMA.items() if one in met - {When.PACK}}
    assert set(met) - {When.ALWAYS, when} <= ({When.VARIANTS} if when is When.NOISE else set())


def test_rows_have_columns_in_the_promised_order():
    assert list(row_columns(columns_with())) == PLAIN
    everything = set(When) - {When.PACK}
    more = ["attention_mask", "text", "repeat", "labels", "weight", "variant", "variant_seed"]
    more += ["fim", "middle", "middle_tokens"]
    assert list(row_columns(everything)) == [*PLAIN, *more]
    packed = ["input_ids", "segment_ids", "position_ids", "segments"]
    assert list(row_columns({When.ALWAYS, When.PACK, When.TEXT})) == packed
    assert list(row_columns({*When})) == [*packed, "attention_mask"]
