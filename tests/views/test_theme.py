"""Colors are readable and distinguishable, even for color-blind people."""

import itertools
import math

import pytest

from gristmill.views.theme import (
    BACKGROUNDS,
    DARK,
    DARK_LINE_COLORS,
    LIGHT,
    LINE_COLORS,
    MARKERS,
    TEXT_COLORS,
    Style,
    page_variables,
    scoped_variables,
)

# Color vision deficiencies at full severity, in linear RGB (Machado, Oliveira and Fernandes 2009).
VISION = {
    "all": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanopia": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deuteranopia": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.01182, 0.04294, 0.968881)),
    "tritanopia": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.3039)),
}
# Conversion of linear RGB to Oklab: CONES gives cone responses, and OKLAB converts the cube roots of the responses.
CONES = ((0.41222, 0.53633, 0.05145), (0.2119, 0.6807, 0.1074), (0.0883, 0.28172, 0.62998))
OKLAB = ((0.21045, 0.79362, -0.00407), (1.978, -2.42859, 0.45059), (0.0259, 0.78277, -0.80868))


def multiply(matrix, vector):
    return [sum(a * b for a, b in zip(row, vector, strict=True)) for row in matrix]


def linear_rgb(color):
    parts = [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    return [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]


def perceived(color, matrix):
    cones = multiply(CONES, [max(0.0, part) for part in multiply(matrix, linear_rgb(color))])
    return multiply(OKLAB, [cone ** (1 / 3) for cone in cones])


def contrast(one, other):
    luminances = sorted(0.05 + multiply([(0.2126, 0.7152, 0.0722)], linear_rgb(color))[0] for color in (one, other))
    return luminances[1] / luminances[0]


@pytest.mark.parametrize(("colors", "ground"), [(LINE_COLORS, LIGHT["page"]), (DARK_LINE_COLORS, DARK["card"])])
def test_line_colors_are_distinguishable_for_all_readers(colors, ground):
    assert all(contrast(color, ground) >= 3 for color in colors)
    for one, other in itertools.combinations(colors, 2):
        assert all(math.dist(perceived(one, matrix), perceived(other, matrix)) >= 0.09 for matrix in VISION.values())


@pytest.mark.parametrize("palette", [LIGHT, DARK], ids=["light", "dark"])
def test_every_text_color_is_readable_on_every_background(palette):
    for background, text in itertools.product(BACKGROUNDS, TEXT_COLORS):
        assert contrast(palette[background], palette[text]) >= 4.5, (background, text)
    assert contrast(palette["link"], palette["on-link"]) >= 4.5
    assert contrast(palette["found"], palette["found-ink"]) >= 4.5


def test_light_and_dark_palettes_have_the_same_names():
    assert list(LIGHT) == list(DARK)
    for css in (page_variables(), scoped_variables(".here")):
        assert all(css.count(f"--{name}:") >= 2 for name in LIGHT)


def test_24_lines_have_different_styles():
    assert len({(style.color, style.marker_index, style.dash) for style in map(Style, range(24))}) == 24
    assert len(MARKERS) == len(LINE_COLORS) == len(DARK_LINE_COLORS)
