"""Variants of Python keep the meaning: programs pass their own tests as before, whatever was varied in them."""

import urllib.error
from collections import Counter

import pytest

from gristmill.core.seeded_random import Dice
from gristmill.variants.code_layout import lay_out_again
from gristmill.variants.comments import vary_comments
from gristmill.variants.grammars import parse
from gristmill.variants.rename import rename
from support.sdists import SDISTS, outcomes


@pytest.fixture(scope="module", params=SDISTS, ids=lambda sdist: sdist.name)
def program(request, tmp_path_factory):
    """One with its tests, and how they end."""
    try:
        before = outcomes(request.param, bytes, tmp_path_factory.getbasetemp(), tmp_path_factory.mktemp("before"))
    except urllib.error.URLError as error:
        pytest.skip(f"no index of packages: {error}")
    assert [*before.values()].count("passed") > 100
    return request.param, before


def test_a_program_passes_its_tests_as_before(program, tmp_path_factory):
    """With all kinds, one on top of the other: what one of them breaks, no other mends."""
    sdist, before = program
    num_varied = Counter()

    def varied(text):
        for vary in (rename, vary_comments, lay_out_again):
            variant = vary(parse(text, "python"), Dice(sdist.name))
            if variant is not None:
                num_varied[vary] += 1
                text = variant
        return text

    assert outcomes(sdist, varied, tmp_path_factory.getbasetemp(), tmp_path_factory.mktemp("after")) == before
    assert len(num_varied) == 3
    assert min(num_varied.values()) > 1
