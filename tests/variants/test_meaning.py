"""Variants of Python programs keep their meaning: the tests of a program have the same outcomes as before."""

import urllib.error
from collections import Counter

import pytest

from gristmill.core.seeded_random import SeededRandom
from gristmill.variants.code_layout import vary_layout
from gristmill.variants.comments import vary_comments
from gristmill.variants.grammars import parse
from gristmill.variants.rename import rename
from support.sdists import SDISTS, outcomes


@pytest.fixture(scope="module", params=SDISTS, ids=lambda sdist: sdist.name)
def program(request, tmp_path_factory):
    """A program, and the outcomes of its tests before any variant."""
    try:
        before = outcomes(request.param, bytes, tmp_path_factory.getbasetemp(), tmp_path_factory.mktemp("before"))
    except urllib.error.URLError as error:
        pytest.skip(f"the package index is not available: {error}")
    assert [*before.values()].count("passed") > 100
    return request.param, before


def test_varied_program_passes_its_tests(program, tmp_path_factory):
    """Three kinds are applied one after the other, because no kind can repair what a different kind breaks."""
    sdist, before = program
    num_varied = Counter()

    def apply_variants(text):
        for make_variant in (rename, vary_comments, vary_layout):
            variant = make_variant(parse(text, "python"), SeededRandom(sdist.name))
            if variant is not None:
                num_varied[make_variant] += 1
                text = variant
        return text

    assert outcomes(sdist, apply_variants, tmp_path_factory.getbasetemp(), tmp_path_factory.mktemp("after")) == before
    assert len(num_varied) == 3
    assert min(num_varied.values()) > 1
