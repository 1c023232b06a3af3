"""The table of columns matches the documented schema of datasets."""

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
    "input_ids": (Kind.NUMBERS, When.WINDOWS),
    "segment_ids": (Kind.NUMBERS, When.PACK),
    "position_ids": (Kind.NUMBERS, When.PACK),
    "segments": (Kind.OBJECTS, When.PACK),
    "path": (Kind.TEXT, When.ALWAYS),
    "repo": (Kind.TEXT, When.ALWAYS),
    "language": (Kind.TEXT, When.ALWAYS),
    "lines": (Kind.NUMBERS, When.ALWAYS),
    "start": (Kind.NUMBER, When.ALWAYS),
    "tokens": (Kind.NUMBER, When.DOCUMENTS),
    "fresh": (Kind.NUMBER, When.WINDOWS),
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
"""Names, kinds and order of the columns. Programs that read datasets rely on these, so the table repeats them."""
DEFAULT_COLUMNS = ["input_ids", "path", "repo", "language", "lines", "start", "fresh"]
OPTIONS = {
    When.ALWAYS: {},
    When.WINDOWS: {},
    When.DOCUMENTS: {"output": OutputConfig(rows="documents")},
    When.PAD: {"output": OutputConfig(pad=True)},
    When.TEXT: {"output": OutputConfig(with_text=True)},
    When.DRAWN: {"sampling": SamplingConfig(weights={"*": 2})},
    When.NOISE: {"variants": VariantsConfig(rates={"noise": 1.0})},
    When.WEIGHTS: {"sampling": SamplingConfig(weights={"*": 2}, weights_only=True)},
    When.VARIANTS: {"variants": VariantsConfig(rates={"rename": 1.0})},
    When.FIM: {"fim": FimConfig(rate=0.5)},
    When.PACK: {"window": WindowConfig(pack="best-fit")},
}


def test_columns_match_the_documented_schema():
    assert {name: (column.kind, column.when) for name, column in COLUMNS.items()} == SCHEMA
    assert list(COLUMNS) == list(SCHEMA)
    assert PER_ID == {"segment_ids": 0, "position_ids": 0, "attention_mask": 0, "labels": -100}


def conditions_with(**sections):
    defaults = {
        "window": WindowConfig(),
        "output": OutputConfig(),
        "sampling": SamplingConfig(),
        "fim": FimConfig(),
        "variants": VariantsConfig(),
    }
    return conditions_met(**{**defaults, **sections})


@pytest.mark.parametrize("when", When, ids=lambda when: when.name)
def test_option_adds_its_columns(when):
    conditions = conditions_with(**OPTIONS[when])
    assert set(window_columns(conditions)) == {
        name for name, (_, one) in SCHEMA.items() if one in conditions - {When.PACK}
    }
    implied = {When.NOISE: {When.VARIANTS}, When.DOCUMENTS: {When.TEXT}}.get(when, set())
    assert set(conditions) - {When.ALWAYS, When.WINDOWS, when} <= implied


def test_rows_have_columns_in_the_documented_order():
    assert list(row_columns(conditions_with())) == DEFAULT_COLUMNS
    everything = set(When) - {When.PACK, When.DOCUMENTS}
    more = ["attention_mask", "text", "repeat", "labels", "weight", "variant", "variant_seed"]
    more += ["fim", "middle", "middle_tokens"]
    assert list(row_columns(everything)) == [*DEFAULT_COLUMNS, *more]
    packed = ["input_ids", "segment_ids", "position_ids", "segments"]
    assert list(row_columns({When.ALWAYS, When.WINDOWS, When.PACK, When.TEXT})) == packed
    assert list(row_columns({*When})) == [*packed, "attention_mask"]


def test_rows_of_documents_have_their_text_first_and_no_ids():
    conditions = conditions_with(output=OutputConfig(rows="documents"))
    assert list(row_columns(conditions)) == ["text", "path", "repo", "language", "lines", "start", "tokens"]
    weighted = conditions_with(
        output=OutputConfig(rows="documents", with_text=True), sampling=SamplingConfig(weights={"*": 2})
    )
    assert list(row_columns(weighted)) == ["text", "path", "repo", "language", "lines", "start", "tokens", "repeat"]
