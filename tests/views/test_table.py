"""Tables, and number formats in tables and on axes."""

import math

import pytest

from gristmill.core.errors import GristmillError
from gristmill.views.numbers import log_tick_text, tick_texts, value_text
from gristmill.views.table import Table, markdown_table


def test_ticks_and_values_are_formatted():
    assert tick_texts([0, 500_000, 1_000_000, 1_500_000], 500_000) == ["0", "0.5M", "1.0M", "1.5M"]
    assert tick_texts([0, 2500, 5000], 2500) == ["0", "2,500", "5,000"]
    assert tick_texts([10_000, 20_000], 10_000) == ["10k", "20k"]
    assert tick_texts([0.4, 0.45], 0.05) == ["0.40", "0.45"]
    assert tick_texts([0, 2e-5], 2e-5) == ["0", "2e-5"]
    assert [log_tick_text(tick) for tick in (1e-5, 0.02, 500, 2000, 1e7)] == ["1e-5", "0.02", "500", "2k", "10M"]
    assert [value_text(value) for value in (0.41234, 12345, 0, 2.5e-5, math.nan)] == [
        "0.4123",
        "12,345",
        "0",
        "2.5e-5",
        "-",
    ]


def test_markdown_table_aligns_numbers_right():
    table = Table("t", ["name", "loss", "share", "note"], [["a|b_c\n", 0.5, "85.7%", "x"], ["d", None, "≈9 ± 1%", "2"]])
    assert markdown_table(table).splitlines() == [
        "| name | loss | share | note |",
        "| :-- | --: | --: | :-- |",
        r"| a\|b\_c\\n | 0.5000 | 85.7% | x |",
        "| d | - | ≈9 ± 1% | 2 |",
    ]


def test_row_with_missing_cells_is_rejected():
    with pytest.raises(GristmillError, match="Row 2 of table 't' has 1 cell for 2 columns"):
        Table("t", ["a", "b"], [[1, 2], [1]])
