"""A comparison as curves: the frozen score and each dataset's own validation, with bands over the seeds."""

from collections.abc import Sequence

from gristmill.comparing.result import Band, Comparison, curves_of
from gristmill.comparing.telling import HEADINGS, budget_text, dataset_cells, frozen_text, notes
from gristmill.drawing.chart import curves_svg
from gristmill.drawing.page import curves_html
from gristmill.drawing.panel import Line, Panel, Point
from gristmill.drawing.table import Table
from gristmill.naming import printable

TITLE = "Which dataset trains the better model"


def comparison_svg(comparison: Comparison) -> str:
    return curves_svg(TITLE, f"{comparison.model}, {budget_text(comparison)}", panels_of(comparison))


def comparison_html(comparison: Comparison) -> str:
    facts = [
        *(("at the end", printable(verdict.text)) for verdict in comparison.verdicts),
        *(("at best validation", printable(verdict.text)) for verdict in comparison.verdicts_at_best),
        ("model", f"{printable(comparison.model)}, {budget_text(comparison)}"),
        ("test", frozen_text(comparison.frozen)),
        *(("note", printable(note)) for note in notes(comparison)),
        ("command", printable(comparison.command)),
    ]
    table = Table("Datasets", HEADINGS, [dataset_cells(facts, comparison) for facts in comparison.datasets])
    return curves_html(TITLE, facts, panels_of(comparison), [table], None)


def panels_of(comparison: Comparison) -> list[Panel]:
    curves = curves_of(comparison)
    test = [_line(curve.dataset, curve.tokens, curve.test) for curve in curves]
    own = [_line(curve.dataset, curve.tokens, curve.validation) for curve in curves if curve.validation is not None]
    unit = comparison.unit
    return [
        Panel("Frozen test set", "tokens trained on", unit, test),
        Panel("Own validation", "tokens trained on", unit, own),
    ]


def _line(name: str, tokens: Sequence[int], band: Band) -> Line:
    return Line(name, [Point(x, y) for x, y in zip(tokens, band.mean, strict=True)], band.low, band.high)
