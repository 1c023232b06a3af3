"""Documents of which not all is shown, or not once -> what their rows take. Remembered by text, cuts and draw."""

import hashlib
from collections.abc import Sequence
from functools import partial

import msgspec

from gristmill.progress import MapFunction
from gristmill.records import Cut, PreparedDocument
from gristmill.steps.blocks import read_blocks
from gristmill.steps.context import Context
from gristmill.steps.remembering import recall, remember
from gristmill.steps.rows import measured

DOCUMENTS_AT_ONCE = 64


class Measures(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """As the document has them."""

    num_windows: int
    num_emitted_tokens: int
    num_shown_tokens: int
    num_left_tokens: int
    num_tail_tokens_dropped: int
    num_cut_tokens: int
    num_row_bytes: int
    lines: tuple[tuple[int, int], ...]
    """The first and last one of each cut."""

    @classmethod
    def of(cls, document: PreparedDocument) -> "Measures":
        return cls(
            num_windows=document.num_windows,
            num_emitted_tokens=document.num_emitted_tokens,
            num_shown_tokens=document.num_shown_tokens,
            num_left_tokens=document.num_left_tokens,
            num_tail_tokens_dropped=document.num_tail_tokens_dropped,
            num_cut_tokens=document.num_cut_tokens,
            num_row_bytes=document.num_row_bytes,
            lines=tuple((one.first_line, one.last_line) for one in document.cuts),
        )

    def put_into(self, document: PreparedDocument) -> PreparedDocument:
        return msgspec.structs.replace(
            document,
            num_windows=self.num_windows,
            num_emitted_tokens=self.num_emitted_tokens,
            num_shown_tokens=self.num_shown_tokens,
            num_left_tokens=self.num_left_tokens,
            num_tail_tokens_dropped=self.num_tail_tokens_dropped,
            num_cut_tokens=self.num_cut_tokens,
            num_row_bytes=self.num_row_bytes,
            cuts=tuple(
                Cut(one.start, one.end, one.shared_with, *lines)
                for one, lines in zip(document.cuts, self.lines, strict=True)
            ),
        )


def measure_again(
    context: Context, documents: Sequence[PreparedDocument], map_tasks: MapFunction, *, name: str
) -> list[PreparedDocument]:
    """`name`: under which it is remembered."""
    path, rows_key = context.folder / name, context.rows_key
    before = recall(path, rows_key, dict[bytes, Measures]) or {}
    keys = [_key(document) for document in documents]
    new = [document for document, key in zip(documents, keys, strict=True) if key not in before]
    runs = [new[at : at + DOCUMENTS_AT_ONCE] for at in range(0, len(new), DOCUMENTS_AT_ONCE)]
    found = (document for run in map_tasks(partial(measure, context), runs) for document in run)
    answers = [
        before[key].put_into(document) if key in before else next(found)
        for document, key in zip(documents, keys, strict=True)
    ]
    remember(path, rows_key, {key: Measures.of(one) for key, one in zip(keys, answers, strict=True)})
    return answers


def measure(context: Context, documents: Sequence[PreparedDocument]) -> list[PreparedDocument]:
    blocks = read_blocks(context.prepared, documents, context.tokenizer.vocab_size)
    return [measured(document, block, context.row_format, context.window_shape) for document, block in blocks]


def _key(document: PreparedDocument) -> bytes:
    """Of all that its rows are made of."""
    cuts = [(one.start, one.end) for one in document.cuts]
    names = (document.repo, document.path, document.language, document.text_sha256)
    shown = (document.drops_touched_windows, document.draw, document.weight)
    what = msgspec.msgpack.encode((names, cuts, shown))
    return hashlib.sha256(what).digest()[:16]
