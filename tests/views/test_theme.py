"""Colours that everybody can read and tell apart."""

import itertools
import math

import pytest

from gristmill.views.theme import (
    DARK,
    DARK_LINES,
    INKS,
    LIGHT,
    LINES,
    MARKERS,
    PAPERS,
    Style,
    page_variables,
    variables_under,
)

# How colour-blind people see, in linear light (Machado, Oliveira and Fernandes 2009, in full strength).
SEEN = {
    "all": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanopia": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deuteranopia": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.01182, 0.04294, 0.968881)),
    "tritanopia": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.3039)),
}
CONES = ((0.41222, 0.53633, 0.05145), (0.2119, 0.6807, 0.1074), (0.0883, 0.28172, 0.62998))
OKLAB = ((0.21045, 0.79362, -0.00407), (1.978, -2.42859, 0.45059), (0.0259, 0.78277, -0.80868))


def times(matrix, vector):
    return [sum(a * b for a, b in zip(row, vector, strict=True)) for row in matrix]


def light_of(colour):
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    return [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]


def seen(colour, matrix):
    cones = times(CONES, [max(0.0, part) for part in times(matrix, light_of(colour))])
    return times(OKLAB, [cone ** (1 / 3) for cone in cones])


def contrast(one, other):
    lights = sorted(0.05 + times([(0.2126, 0.7152, 0.0722)], light_of(colour))[0] for colour in (one, other))
    return lights[1] / lights[0]


@pytest.mark.parametrize(("colours", "ground"), [(LINES, LIGHT["page"]), (DARK_LINES, DARK["card"])])
def test_colours_are_told_apart_by_everybody(colours, ground):
    assert all(contrast(colour, ground) >= 3 for colour in colours)
    for one, other in itertools.combinations(colours, 2):
        assert all(math.dist(seen(one, matrix), seen(other, matrix)) >= 0.09 for matrix in SEEN.values())


@pytest.mark.parametrize("palette", [LIGHT, DARK], ids=["light", "dark"])
def test_every_ink_is_readable_on_every_paper(palette):
    for paper, ink in itertools.product(PAPERS, INKS):
        assert contrast(palette[paper], palette[ink]) >= 4.5, (paper, ink)
    assert contrast(palette["link"], palette["on-link"]) >= 4.5
    assert contrast(palette["found"], palette["found-ink"]) >= 4.5


def test_light_and_dark_have_the_same_colours():
    assert list(LIGHT) == list(DARK)
    for made in (page_variables(), variables_under(".here")):
        assert all(made.count(f"--{name}:") >= 2 for name in LIGHT)


def test_no_two_of_24_lines_look_alike():
    assert len({(style.colour, style.marker, style.dash) for style in map(Style, range(24))}) == 24
    assert len(MARKERS) == len(LINES) == len(DARK_LINES)
