"""Panels of curves as one SVG, with a background of its own and no fonts: it reads the same on light and dark pages."""

from collections.abc import Iterator, Sequence

from gristmill.views.curves.captions import told_of
from gristmill.views.curves.frame import Box
from gristmill.views.curves.legend import entries_of, height_of, legend_parts, placed_entries
from gristmill.views.curves.panel import Panel, styles_of
from gristmill.views.curves.plot import aligned, labels_fit, plot_of, plot_parts
from gristmill.views.svg import shortened, shown, words
from gristmill.views.theme import BACKGROUND, BORDER, FONT

CURVES_HEAD = "<!-- curves drawn by gristmill -->"
"""The first line: by it a chart is known as one of these."""
WIDTH, MARGIN, GAP = 1000, 24, 36
PANEL_HEIGHT, ROW_GAP = 320, 20
TITLE_BASE, SUBTITLE_BASE, TOP = 34, 54, 70
TITLE_SIZE = 16
COLUMNS = 2


def curves_svg(title: str, subtitle: str, panels: Sequence[Panel]) -> str:
    """Two panels to a row; one that is left over takes the whole of it."""
    top = TOP if subtitle else SUBTITLE_BASE
    boxes = _boxes(len(panels), top)
    with_labels = all(map(labels_fit, panels, boxes))
    legend = [] if with_labels else placed_entries(entries_of(panels), WIDTH - 2 * MARGIN)
    boxes = _boxes(len(panels), top + height_of(legend) + 8 * bool(legend))
    height = max((box.top + box.height for box in boxes), default=top) + MARGIN - 8
    area = f'viewBox="0 0 {WIDTH} {height:.0f}" width="{WIDTH}" height="{height:.0f}"'
    edge = f'rx="8" fill="{BACKGROUND}" stroke="{BORDER}"'
    parts = [
        CURVES_HEAD,
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" {area} font-family="{FONT}" font-size="12">',
        f"<title>{shown(title)}</title>",
        f"<desc>{shown(' '.join(map(told_of, panels)))}</desc>",
        f'<rect x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1:.0f}" {edge}/>',
        words(MARGIN, TITLE_BASE, shortened(title, WIDTH - 2 * MARGIN, TITLE_SIZE + 1), bold=True, size=TITLE_SIZE),
        words(MARGIN, SUBTITLE_BASE, shortened(subtitle, WIDTH - 2 * MARGIN), faint=True),
        *legend_parts(legend, MARGIN, top - 4),
        *_plots(panels, boxes, with_labels=with_labels),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _boxes(count: int, top: float) -> list[Box]:
    width = (WIDTH - 2 * MARGIN - GAP) / COLUMNS
    boxes = []
    for number in range(count):
        row, column = divmod(number, COLUMNS)
        is_alone = column == 0 and number == count - 1
        left = MARGIN + column * (width + GAP)
        at = top + row * (PANEL_HEIGHT + ROW_GAP)
        boxes.append(Box(left, at, WIDTH - 2 * MARGIN if is_alone else width, PANEL_HEIGHT))
    return boxes


def _plots(panels: Sequence[Panel], boxes: Sequence[Box], *, with_labels: bool) -> Iterator[str]:
    styles = styles_of(panels)
    num_lines = sum(len(panel.lines) for panel in panels)
    plots = [plot_of(panel, box, with_labels=with_labels) for panel, box in zip(panels, boxes, strict=True)]
    for plot in aligned(plots):
        yield from plot_parts(plot, styles, num_lines, with_labels=with_labels)
