"""Curves and their bands: paths with gaps where there is no value, markers, and values as hints under the mouse."""

import math
from collections.abc import Iterator, Sequence

from gristmill.views.curves.frame import Frame
from gristmill.views.curves.panel import Line, Panel
from gristmill.views.numbers import value_text
from gristmill.views.svg import shortened, shown
from gristmill.views.theme import DASHED, Style

# Which of many points are drawn: as many as a picture can show, with every peak among them.


def kept_indexes(columns: Sequence[Sequence[float]], most: int) -> list[int]:
    """Of equally long columns: first and last, and of each stretch the least and greatest in each column.

    A stretch with a gap (NaN) in it keeps that too. `most` is about how many are kept.
    """
    count = len(columns[0])
    if count <= most:
        return list(range(count))
    num_stretches = max(1, (most - 2) // (2 * len(columns)))
    kept = {0, count - 1}
    for number in range(num_stretches):
        stretch = range(count * number // num_stretches, count * (number + 1) // num_stretches)
        whole = [index for index in stretch if not any(math.isnan(column[index]) for column in columns)]
        if len(whole) < len(stretch):
            kept.add(next(index for index in stretch if any(math.isnan(column[index]) for column in columns)))
        for column in columns if whole else ():
            kept |= {min(whole, key=column.__getitem__), max(whole, key=column.__getitem__)}
    return sorted(kept)


def spread_indexes(count: int, most: int, shift: float = 0.0) -> list[int]:
    """Evenly many of so many, the last among them; `shift`, from 0 to 1, moves the others by that much of a stride."""
    if count <= most:
        return list(range(count))
    stride = (count - 1) / most
    return sorted({int(stride * (number + shift)) for number in range(most)} | {count - 1})


Place = tuple[float, float]

POINTS_PER_CHART, MOST_POINTS, LEAST_POINTS = 5000, 600, 24
"""A point is 12 bytes; a line has its share of them."""
HINTS_PER_CHART, MOST_HINTS = 480, 60
"""A hint is about 90 bytes."""
ALL_MARKED, MARKERS_PER_LINE = 16, 8
"""A line of so many points shows each of them; a longer one just enough to be known by its marker."""
HINT_NAME_WIDTH = 300


def line_parts(line: Line, panel: Panel, frame: Frame, style: Style, num_lines: int) -> Iterator[str]:
    """`num_lines` share what a picture can hold."""
    most = max(LEAST_POINTS, min(MOST_POINTS, POINTS_PER_CHART // num_lines))
    places = [_place(frame.at(*point)) for point in line.points]
    kept = [places[index] for index in kept_indexes([[y for _, y in places]], most)] if places else []
    yield f'<g class="line{style.place}" color="{style.colour}">'
    yield from _band_parts(line, frame, most)
    yield f'<path d="{curve(kept)}" fill="none" stroke="currentColor" {_pen(line, style)}/>'
    if not line.faint:
        marked = [place for place in kept if not math.isnan(place[1])]
        most_marked = len(marked) if len(marked) <= ALL_MARKED else MARKERS_PER_LINE
        chosen = spread_indexes(len(marked), most_marked, style.place / 6)
        yield f'<path d="{"".join(_spot(marked[index]) + style.marker for index in chosen)}" fill="currentColor"/>'
        yield from _hints(line, panel, places, max(1, min(MOST_HINTS, HINTS_PER_CHART // num_lines)))
    yield "</g>"


def _place(place: Place) -> Place:
    """A gap in one is a gap in both."""
    return place if not any(map(math.isnan, place)) else (math.nan, math.nan)


def _spot(place: Place) -> str:
    return f"M{place[0]:.1f} {place[1]:.1f}"


def _pen(line: Line, style: Style) -> str:
    dash = DASHED if line.dashed else style.dash
    dashes = f' stroke-dasharray="{dash}"' if dash else ""
    weight = 'stroke-width="1" opacity="0.4"' if line.faint else 'stroke-width="1.8"'
    return f'{weight} stroke-linejoin="round" stroke-linecap="round"{dashes}'


def curve(places: Sequence[Place]) -> str:
    """`M1 2L3 4`, anew after each gap; a place alone between gaps is a dot."""
    return "".join(
        _spot(run[0]) + ("L" + " ".join(f"{x:.1f},{y:.1f}" for x, y in run[1:]) if len(run) > 1 else "h0")
        for run in _runs(places)
    )


def _runs(places: Sequence[Place]) -> Iterator[Sequence[Place]]:
    start = 0
    for index, (_, y) in enumerate((*places, (math.nan, math.nan))):
        if math.isnan(y):
            if start < index:
                yield places[start:index]
            start = index + 1


def _band_parts(line: Line, frame: Frame, most: int) -> Iterator[str]:
    edges = [_edges(frame, *one) for one in line.band()]
    if not edges:
        return
    xs, lows, highs = zip(*edges, strict=True)
    kept = kept_indexes([lows, highs], most // 2)  # each is a point of both edges
    runs = _runs([(float(index), lows[index]) for index in kept])
    shapes = [[int(index) for index, _ in run] for run in runs]
    path = "".join("M" + " ".join(f"{x:.1f},{y:.1f}" for x, y in _around(run, xs, lows, highs)) + "z" for run in shapes)
    paint = 'fill="currentColor" fill-opacity="0.16" stroke="currentColor" stroke-opacity="0.25"'
    yield f'<path class="band" d="{path}" {paint}/>'


def _around(
    run: Sequence[int], xs: Sequence[float], lows: Sequence[float], highs: Sequence[float]
) -> Iterator[tuple[float, float]]:
    """Along the upper edge, and back along the lower."""
    yield from ((xs[index], highs[index]) for index in run)
    yield from ((xs[index], lows[index]) for index in reversed(run))


def _edges(frame: Frame, x: float, low: float, high: float) -> tuple[float, float, float]:
    """On a log scale a band may reach down to zero and below: it is drawn as far as the panel goes."""
    scale = frame.y.scale
    floor = scale.low if scale.log and math.isfinite(low) and low <= 0 else low
    places = frame.x.scale.at(x), scale.at(floor), scale.at(high)
    return places if not any(map(math.isnan, places)) else (math.nan, math.nan, math.nan)


def _hints(line: Line, panel: Panel, places: Sequence[Place], most: int) -> Iterator[str]:
    shown_indexes = [index for index, (_, y) in enumerate(places) if not math.isnan(y)]
    name = shortened(line.name, HINT_NAME_WIDTH)
    yield '<g stroke="transparent" stroke-width="12" stroke-linecap="round">'
    for chosen in spread_indexes(len(shown_indexes), most):
        index = shown_indexes[chosen]
        x, y = line.points[index]
        told = shown(f"{name}: {value_text(y)} at {panel.x_label} {value_text(x)}")
        yield f'<path d="{_spot(places[index])}h0"><title>{told}</title></path>'
    yield "</g>"
