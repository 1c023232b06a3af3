"""A comment goes, and the tokens around it stay apart: by a line feed where there was one, otherwise by a blank.

JavaScript and Go end statements at line feeds, those within a comment included.
"""

from collections.abc import Iterator

from gristmill.shaping.variants.commenting.moving_comments import BLANKS
from gristmill.shaping.variants.edits import Edit, Span


def remove(text: bytes, going: list[Span]) -> Iterator[Edit]:
    """Each is looked at only as far as the next one: one pass, however long the line."""
    spans = [Span(0, 0), *_joined(text, going), Span(len(text), len(text))]
    for number in range(1, len(spans) - 1):
        edit = _removal(text, spans[number], spans[number - 1].end, spans[number + 1].start)
        if edit:
            yield edit


def _joined(text: bytes, spans: list[Span]) -> list[Span]:
    """Those with only blanks between them are one."""
    joined: list[Span] = []
    for span in spans:
        if joined and not text[joined[-1].end : span.start].strip(BLANKS):
            joined[-1] = Span(joined[-1].start, span.end)
        else:
            joined.append(span)
    return joined


def _removal(text: bytes, span: Span, done: int, following: int) -> Edit | None:
    """None: with the comment gone, a backslash would end the line."""
    start, end = span
    line_start = max(done, text.rfind(b"\n", done, start) + 1)
    line_end = text.find(b"\n", end, following)
    before, after = text[line_start:start], text[end : following if line_end < 0 else line_end]
    is_first = not before.strip(BLANKS) and (line_start > done or not done)
    is_last = not after.strip() and (line_end >= 0 or following == len(text))
    if is_first and is_last:
        return Edit(line_start, len(text) if line_end < 0 else line_end + 1, b"")
    if is_first:
        return Edit(start, end + _num_blanks_first(after), b"")
    if is_last:
        return (
            None
            if before.rstrip().endswith(b"\\")
            else Edit(start - _num_blanks_last(before), end + _num_blanks_first(after), b"")
        )
    return Edit(start - _num_blanks_last(before), end + _num_blanks_first(after), _between(text[start:end]))


def _between(comment: bytes) -> bytes:
    if b"\n" not in comment:
        return b" "
    return b"\r\n" if b"\r\n" in comment else b"\n"


def _num_blanks_first(piece: bytes) -> int:
    return len(piece) - len(piece.lstrip(BLANKS))


def _num_blanks_last(piece: bytes) -> int:
    return len(piece) - len(piece.rstrip(BLANKS))
