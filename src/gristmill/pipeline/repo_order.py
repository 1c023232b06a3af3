"""Order of the files of a repository in step 3 with --pack repo, as set by --repo-order.

path      by path
imports   each file after the files that it imports
shuffle   random, by a seed
"""

import heapq
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain, groupby
from typing import Any, NamedTuple

import msgspec

from gristmill.core.manifest import OrderFacts
from gristmill.core.records import PlacedDocument
from gristmill.core.seeded_random import stable_hash
from gristmill.pipeline.context import Context
from gristmill.pipeline.parts import Block, read_blocks
from gristmill.runners.runner import Runner
from gristmill.sources.imports import GO_MOD, IMPORT_LANGUAGES, Import, RepoFiles, find_imports
from gristmill.windows.cut import uncut_spans

TOKENS_PER_TASK = 1 << 19


class OrderedDocuments(NamedTuple):
    """Documents of a split in the configured order, repository by repository."""

    documents: list[PlacedDocument]
    facts: OrderFacts | None
    """Facts about the import order, or None for other orders."""


def order_documents(context: Context, documents: Sequence[PlacedDocument], runner: Runner) -> OrderedDocuments:
    """Return the documents of a split in the configured order. `documents` must be in path order."""
    window = context.config.window
    if window.repo_order == "imports":
        return _by_imports(context, documents, runner)
    if window.repo_order == "shuffle":
        shuffled = (sorted(files, key=partial(_shuffle_key, window.repo_order_seed)) for files in _by_repo(documents))
        return OrderedDocuments(list(chain.from_iterable(shuffled)), None)
    return OrderedDocuments(list(documents), None)


def _by_repo(documents: Sequence[PlacedDocument]) -> Iterator[list[PlacedDocument]]:
    return (list(files) for _, files in groupby(documents, key=lambda document: document.repo))


def _shuffle_key(seed: int, document: PlacedDocument) -> tuple[int, str]:
    return stable_hash("repo order", seed, document.repo, document.path), document.path


# Import order: workers read the imports. This process stores only the import graph of one repository at a time.


class ImportTask(msgspec.Struct, frozen=True):
    documents: list[PlacedDocument]

    def __reduce__(self) -> tuple[Any, ...]:
        return _decode_task, (msgspec.msgpack.encode(self),)


def _decode_task(content: bytes) -> ImportTask:
    return msgspec.msgpack.decode(content, type=ImportTask)


def _by_imports(context: Context, documents: Sequence[PlacedDocument], runner: Runner) -> OrderedDocuments:
    to_read = ((document for _, document in _readable(files)) for files in _by_repo(documents))
    tasks = _tasks(chain.from_iterable(to_read))
    read = chain.from_iterable(runner.map(partial(read_imports, context), tasks))
    ordered: list[PlacedDocument] = []
    num_repos = num_imports = num_broken = 0
    for files in _by_repo(documents):
        order = import_order(_edges(files, read))
        ordered += (files[index] for index in order.indices)
        num_repos += order.num_imports > 0
        num_imports += order.num_imports
        num_broken += order.num_broken
    return OrderedDocuments(ordered, OrderFacts(repos=num_repos, imports=num_imports, broken=num_broken))


def _readable(documents: Sequence[PlacedDocument]) -> list[tuple[int, PlacedDocument]]:
    """Return the documents whose imports can be read, each with its index. All go.mod files come first."""
    found = [(index, one) for index, one in enumerate(documents) if one.language in IMPORT_LANGUAGES]
    return sorted(found, key=lambda one: one[1].language != GO_MOD)


def _tasks(documents: Iterator[PlacedDocument]) -> Iterator[ImportTask]:
    gathered, num_tokens = list[PlacedDocument](), 0
    for document in documents:
        gathered.append(document)
        num_tokens += document.num_file_tokens
        if num_tokens >= TOKENS_PER_TASK:
            yield ImportTask(gathered)
            gathered, num_tokens = [], 0
    if gathered:
        yield ImportTask(gathered)


def read_imports(context: Context, task: ImportTask) -> list[list[Import]]:
    """Return the imports of each document, read from its text without the cuts."""
    files = [document.before_rewriting() for document in task.documents]
    blocks = read_blocks(context.prepared, files, context.tokenizer.vocab_size)
    return [find_imports(_uncut_text(context, document, block), document.language) for document, block in blocks]


def _uncut_text(context: Context, document: PlacedDocument, block: Block) -> bytes:
    """Return the text outside the cuts, with a line break in place of each cut."""
    tokenizer, text = context.tokenizer, block.text
    spans = uncut_spans(document.num_tokens, [(one.start, one.end) for one in document.cuts])
    if tokenizer.decodes_exactly:
        return b"\n".join(tokenizer.decode(block.ids[start:end]) for start, end in spans)
    assert text is not None, "Context.keeps_text is True"
    return b"\n".join(text.utf8[text.starts[start] : text.starts[end]] for start, end in spans)


def _edges(documents: Sequence[PlacedDocument], read: Iterator[list[Import]]) -> list[list[int]]:
    """Return, for each document of a repository, the indices of the documents that it imports."""
    files = RepoFiles([document.path for document in documents])
    edges: list[list[int]] = [[] for _ in documents]
    for index, document in _readable(documents):
        imports = next(read)
        if document.language == GO_MOD:
            files.add_go_module(index, imports)
        else:
            edges[index] = files.imported_by(index, document.language, imports)
    return edges


class ImportOrder(NamedTuple):
    indices: list[int]
    num_imports: int
    num_broken: int
    """Number of imports whose imported file comes after the importing file."""


def import_order(imported: Sequence[Sequence[int]]) -> ImportOrder:
    """Order files so that each comes after the files that it imports.

    `imported` has the indices of the files that each file imports. The next file is always the file with the lowest
    index whose imports have all been placed. If there is no such file, the next file is one whose missing imports are
    all in its own import cycle: the file with the fewest missing imports and, among these, the lowest index. So an
    import is broken only inside a cycle.
    """
    cycle_of = _Cycles(imported).cycle_of
    importers: list[list[int]] = [[] for _ in imported]
    num_outside, num_inside = [0] * len(imported), [0] * len(imported)
    """For each file, the number of its imports that are not placed yet, outside and inside its own cycle."""
    for index, imports in enumerate(imported):
        for one in imports:
            importers[one].append(index)
            is_inside = cycle_of[one] == cycle_of[index]
            num_inside[index] += is_inside
            num_outside[index] += not is_inside
    waiting = [(num_inside[index], index) for index in range(len(imported)) if not num_outside[index]]
    heapq.heapify(waiting)
    is_placed = [False] * len(imported)
    indices: list[int] = []
    num_broken = 0
    while waiting:
        count, index = heapq.heappop(waiting)
        if is_placed[index] or count != num_inside[index]:
            continue  # the file is already placed, or the heap also has a newer entry for it
        is_placed[index] = True
        indices.append(index)
        num_broken += count
        for one in importers[index]:
            is_inside = cycle_of[one] == cycle_of[index]
            num_inside[one] -= is_inside
            num_outside[one] -= not is_inside
            if not num_outside[one] and not is_placed[one]:
                heapq.heappush(waiting, (num_inside[one], one))
    return ImportOrder(indices, sum(map(len, imported)), num_broken)


class _Cycles:
    """Search for import cycles with Tarjan's algorithm, without recursion.

    `cycle_of` has a number for each file. Files have the same number if they are in the same cycle.
    """

    def __init__(self, imported: Sequence[Sequence[int]]) -> None:
        self._imported = imported
        self._found_at: dict[int, int] = {}
        self._earliest: dict[int, int] = {}
        """For each file, the smallest discovery number among the reachable files whose cycle is not complete yet."""
        self._stack: list[int] = []
        self.cycle_of = [-1] * len(imported)
        for index in range(len(imported)):
            if index not in self._found_at:
                self._search(index)

    def _search(self, root: int) -> None:
        path = [(root, self._enter(root))]
        while path:
            index, rest = path[-1]
            one = next((one for one in rest if one not in self._found_at), None)
            if one is not None:
                path.append((one, self._enter(one)))
            else:
                path.pop()
                self._leave(index)

    def _enter(self, index: int) -> Iterator[int]:
        self._found_at[index] = self._earliest[index] = len(self._found_at)
        self._stack.append(index)
        return iter(self._imported[index])

    def _leave(self, index: int) -> None:
        reached = (self._earliest[one] for one in self._imported[index] if self.cycle_of[one] < 0)
        self._earliest[index] = min((self._found_at[index], *reached))
        if self._earliest[index] == self._found_at[index]:
            while self.cycle_of[index] < 0:
                self.cycle_of[self._stack.pop()] = index
