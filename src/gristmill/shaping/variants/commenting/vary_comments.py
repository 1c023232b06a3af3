"""Comments gone or elsewhere, and the program the same: all of them stripped, a part of them, or each moved by a line.

What a compiler, a checker or a lawyer reads stays (directives.py, comments.py). So do all but a few docstrings
(docstrings.py): a program can see them.

    x = f(a)  # why    ->    x = f(a)    or    # why
                                               x = f(a)
"""

from collections.abc import Callable
from heapq import merge

from gristmill.shaping.chance import Dice
from gristmill.shaping.variants.commenting.comments import Comments, find_comments
from gristmill.shaping.variants.commenting.docstrings import strip_docstrings
from gristmill.shaping.variants.commenting.moving_comments import move_comments
from gristmill.shaping.variants.commenting.removing_comments import remove
from gristmill.shaping.variants.edits import Edit, apply_edits
from gristmill.shaping.variants.grammars import Parsed, parse
from gristmill.shaping.variants.plain_text import may_be_rewritten

LOWEST_SHARE = 0.3
HIGHEST_SHARE = 0.8
"""How many of a file's comments go when a part of them goes: fewer is hardly another text, more is nearly all."""

Mode = Callable[[Parsed, Comments, Dice], list[Edit]]


def vary_comments(parsed: Parsed, dice: Dice) -> bytes | None:
    """None: the text has no comment that can go or move, or nothing but comments."""
    text = parsed.text
    if not may_be_rewritten(parsed) or _is_all_wrong(parsed):
        return None
    comments = find_comments(parsed)
    modes: list[Mode] = [_strip_all, _strip_some, move_comments]
    dice.shuffle(modes)
    for mode in modes:
        edits = mode(parsed, comments, dice)
        variant = _with_last_line_as(text, apply_edits(text, edits)) if edits else b""
        if variant.strip() and not _has_more_errors(variant, parsed):
            return variant
    return None


def _has_more_errors(variant: bytes, parsed: Parsed) -> bool:
    """Only what is wrong already can become worse: parsing it again would halve the speed of the rest."""
    if not parsed.tree.root_node.has_error:
        return False
    return parse(variant, parsed.language).num_errors > parsed.num_errors


def _is_all_wrong(parsed: Parsed) -> bool:
    """Python's grammar is at home in Python: what it does not understand is another language. C's is not."""
    return parsed.language == "python" and parsed.tree.root_node.has_error


def _with_last_line_as(text: bytes, variant: bytes) -> bytes:
    """The line before the last ends in a line feed: where the last one went, and had none, so does it."""
    return variant if text.endswith(b"\n") else variant.rstrip(b"\r\n")


def _strip_all(parsed: Parsed, comments: Comments, _: Dice) -> list[Edit]:
    going = remove(parsed.text, [comments.spans[number] for number in comments.loose])
    return list(merge(going, strip_docstrings(parsed)))


def _strip_some(parsed: Parsed, comments: Comments, dice: Dice) -> list[Edit]:
    share = LOWEST_SHARE + (HIGHEST_SHARE - LOWEST_SHARE) * dice.fraction()
    going = remove(parsed.text, [comments.spans[number] for number in comments.loose if dice.fraction() < share])
    return list(merge(going, [edit for edit in strip_docstrings(parsed) if dice.fraction() < share]))
