"""Variants of Python keep the meaning: programs pass their own tests as before, whatever was varied in them."""

import urllib.error

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


@pytest.mark.parametrize("vary", [rename, vary_comments, lay_out_again], ids=lambda vary: vary.__name__)
def test_a_program_passes_its_tests_as_before(program, vary, tmp_path_factory):
    sdist, before = program
    num_varied = 0

    def varied(text):
        nonlocal num_varied
        variant = vary(parse(text, "python"), Dice(sdist.name))
        num_varied += variant is not None
        return text if variant is None else variant

    assert outcomes(sdist, varied, tmp_path_factory.getbasetemp(), tmp_path_factory.mktemp("after")) == before
    assert num_varied > 1
