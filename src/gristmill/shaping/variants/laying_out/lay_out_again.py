"""The same tokens in another layout: deeper or flatter indents, the other quotes, more or fewer blank lines.

Chosen by the dice for a file as a whole, so that it is as consistent as before:

    def f():                     def f():
        return 'x'       ->        return "x"
"""

from collections.abc import Sequence
from typing import NamedTuple, TypeVar

from gristmill.shaping.chance import Dice
from gristmill.shaping.variants.grammars import Parsed
from gristmill.shaping.variants.laying_out.blank_lines import Spacing, possible_spacings, space_again
from gristmill.shaping.variants.laying_out.indents import UNITS, indent_again, indents_of, is_mixed, prefixes_of
from gristmill.shaping.variants.laying_out.page_lines import lines_of
from gristmill.shaping.variants.laying_out.quotes import find_quotes, quote_again
from gristmill.shaping.variants.plain_text import may_be_rewritten

Choice = TypeVar("Choice")


class Layout(NamedTuple):
    unit: bytes | None
    quote: bytes | None
    spacing: Spacing | None


def lay_out_again(parsed: Parsed, dice: Dice) -> bytes | None:
    """None: the grammar does not understand all of the text, Python's indents are mixed, or nothing can change."""
    if parsed.tree.root_node.has_error or not may_be_rewritten(parsed):
        return None
    places = find_quotes(parsed)
    lines = lines_of(parsed)
    prefixes = prefixes_of(lines)
    if parsed.language == "python" and is_mixed(prefixes):
        return None
    indents = indents_of(parsed, lines, prefixes)
    units = [unit for unit in UNITS if unit != indents.unit] if indents else []
    layout = _drawn(units, [quote for quote in places if places[quote]], possible_spacings(lines), dice)
    if layout.quote:
        lines = lines.with_text(quote_again(parsed.text, places[layout.quote], layout.quote))
    if layout.unit and indents:
        lines = indent_again(lines, indents, layout.unit)
    texts = space_again(lines, layout.spacing) if layout.spacing else lines.texts
    return b"\n".join(texts) if any(layout) else None


def _drawn(units: list[bytes], quotes: list[bytes], spacings: list[Spacing], dice: Dice) -> Layout:
    """Something changes if anything can: where the dice leave all as it is, the first that can has to."""
    drawn = Layout(_one_or_none(units, dice), _one_or_none(quotes, dice), _one_or_none(spacings, dice))
    if any(drawn):
        return drawn
    if units:
        return drawn._replace(unit=dice.one_of(units))
    if quotes:
        return drawn._replace(quote=dice.one_of(quotes))
    return drawn._replace(spacing=dice.one_of(spacings)) if spacings else drawn


def _one_or_none(choices: Sequence[Choice], dice: Dice) -> Choice | None:
    return dice.one_of([None, *choices])
