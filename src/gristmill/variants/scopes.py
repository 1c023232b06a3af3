"""Scopes and what is bound in them: which binding does a name mean at a place in the text?

All of it from ranges that a query captured; rename.py says what the captures mean.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, TypeAlias

from gristmill.variants.grammars import Parsed

if TYPE_CHECKING:
    from tree_sitter import Node


MAX_DEPTH = 200
"""Scopes inside one another; every name is looked up through all of them."""

SCOPES = ("outside", "scope.class", "scope.wall", "scope.item", "scope.function", "scope.local", "scope")
"""Of two with the same range the first is around the other."""

FUNCTIONS = ("scope.item", "scope.function")
WALLS = ("scope.wall", "scope.item")
WHOLE_FILE = 0
"""The scope around all others."""


Range: TypeAlias = tuple[int, int, int]
"""Start, -end and kind, by its place in SCOPES: when sorted, what is around others comes before them."""


class Binding:
    """A name of one scope."""

    __slots__ = ("is_kept", "num_places", "root", "tied", "visible_from")

    def __init__(self, root: int, *, is_kept: bool) -> None:
        self.root = root
        self.is_kept = is_kept
        self.visible_from = 0
        """Before this place the name means something else."""
        self.num_places = 0
        self.tied: list[Binding] = []
        """What is renamed with it or not at all: a place may mean the one or the other."""

    def tie(self, other: "Binding") -> None:
        self.tied.append(other)
        other.tied.append(self)


class Regions:
    """Ranges inside one another: which is the innermost at a place? 0 is the whole text."""

    def __init__(self, ranges: Iterable[Range], num_bytes: int) -> None:
        self.ranges: list[Range] = [(0, -num_bytes - 1, len(SCOPES) - 1), *sorted(set(ranges))]
        self.parents = [0]
        self.depth = 0
        self._starts = [0]
        self._innermost = [0]
        self._nest(num_bytes)

    def _nest(self, num_bytes: int) -> None:
        around, ends = [0], [num_bytes + 1]
        starts, innermost = self._starts, self._innermost
        for index, (start, minus_end, _) in enumerate(self.ranges[1:], start=1):
            while ends[-1] <= start:
                starts.append(ends.pop())
                around.pop()
                innermost.append(around[-1])
            self.parents.append(around[-1])
            around.append(index)
            ends.append(-minus_end)
            starts.append(start)
            innermost.append(index)
            self.depth = max(self.depth, len(around))
        while len(ends) > 1:
            starts.append(ends.pop())
            around.pop()
            innermost.append(around[-1])

    def replace(self, others: Sequence[int]) -> None:
        """Another index for each."""
        self._innermost = [others[index] for index in self._innermost]

    def at(self, place: int) -> int:
        return self._innermost[bisect_right(self._starts, place) - 1]

    def around(self, place: int) -> Range:
        return self.ranges[self.at(place)]


class Scopes:
    def __init__(self, ranges: Iterable[Range], num_bytes: int) -> None:
        self._regions = Regions(ranges, num_bytes)
        self.ranges = self._regions.ranges
        self.kinds = [SCOPES[rank] for _, _, rank in self.ranges]
        self.is_too_deep = self._regions.depth > MAX_DEPTH
        self.parents = self._resolve_outside()
        self.roots = self._find_roots()
        self.bound: list[dict[bytes, Binding]] = [{} for _ in self.ranges]
        self.at = self._regions.at

    def _resolve_outside(self) -> list[int]:
        """What is captured as outside belongs to the scope around its scope."""
        scopes = list(range(len(self.ranges)))
        parents = [WHOLE_FILE - 1] * len(scopes)
        for index, around in enumerate(self._regions.parents[1:], start=1):
            if self.kinds[index] == "outside":
                scopes[index] = max(parents[scopes[around]], WHOLE_FILE)
            else:
                parents[index] = scopes[around]
        self._regions.replace(scopes)
        return parents

    def _find_roots(self) -> list[int]:
        """Of each scope the outermost function around it; the whole file: none."""
        roots = [WHOLE_FILE] * len(self.ranges)
        for scope, parent in enumerate(self.parents[1:], start=1):
            is_function = self.kinds[scope] in FUNCTIONS or self.kinds[scope] == "scope.local"
            roots[scope] = roots[parent] or (scope if is_function else WHOLE_FILE)
        return roots

    def roots_touching(self, start: int, end: int) -> set[int]:
        """The outermost functions of which some part is in the range, or next to it."""
        first = bisect_left(self.ranges, start, key=itemgetter(0))
        last = bisect_right(self.ranges, end, key=itemgetter(0))
        return {self.roots[self.at(max(start - 1, 0))], self.roots[self.at(start)], *self.roots[first:last]}

    def function_of(self, scope: int) -> int:
        while scope > WHOLE_FILE and self.kinds[scope] not in FUNCTIONS and self.kinds[scope] != "scope.class":
            scope = self.parents[scope]
        return scope

    def bind(self, scope: int, name: bytes) -> Binding:
        """Kept where others may look for it: in the file, and in a class."""
        binding = self.bound[scope].get(name)
        if binding is None:
            root = self.roots[scope]
            is_kept = root == WHOLE_FILE or self.kinds[scope] == "scope.class"
            binding = self.bound[scope][name] = Binding(root, is_kept=is_kept)
        return binding

    def visible(self, place: int, name: bytes) -> list[Binding]:
        """All that the name might mean here, whatever comes first; from the inside out."""
        found = []
        scope = self.at(place)
        while scope >= WHOLE_FILE:
            if name in self.bound[scope]:
                found.append(self.bound[scope][name])
            scope = self.parents[scope]
        return found

    def resolve(self, place: int, name: bytes) -> Binding | None:
        here = scope = self.at(place)
        binding = self.bound[here].get(name)
        if binding is not None and place >= binding.visible_from:  # so for most, and this is in the hot loop
            return binding
        inner = None
        is_behind_wall = False
        while scope >= WHOLE_FILE:
            binding = self.bound[scope].get(name)
            kind = self.kinds[scope]
            if binding is not None and (kind != "scope.class" or scope == here):
                binding.is_kept |= is_behind_wall
                if inner is not None:
                    inner.tie(binding)
                inner = binding
                if place >= binding.visible_from:
                    return binding
            is_behind_wall |= kind in WALLS
            scope = self.parents[scope]
        if inner is not None:
            inner.is_kept = True
        return inner


# What the captures of a query bind, and where it is used.

Found: TypeAlias = "dict[str, list[Node]]"
Place: TypeAlias = tuple[int, bytes, Binding]

ORDERED = frozenset({"rust", "go", "java", "c", "c++"})
"""Here a name counts from its declaration on; elsewhere in all of its scope."""

PREPROCESSED = frozenset({"c", "c++"})
"""A macro may use a variable by its name: one that nothing else uses stays."""

LOOKING = {
    "python": frozenset(b"locals vars dir eval exec _getframe currentframe stack query evaluate".split()),
    **dict.fromkeys(("javascript", "jsx", "typescript", "tsx"), frozenset({b"eval"})),
}
"""Functions that may look for a variable by its name."""
LOOKING_ANYHOW = frozenset({b"locals", b"vars", b"eval", b"exec"})
"""Also where they are only handed on: map(eval, names)"""
CALLED = re.compile(rb"\s*\(")

WORDS = {
    "pin": re.compile(rb"\w+"),
    "hold": re.compile(rb"\w+"),
    "forbid": re.compile(rb"\w+"),
    "pin.format": re.compile(rb"(?<=\{)\s*\w+|\w+(?=\$)"),
    "pin.tokens": re.compile(rb"\w+(?=\s*(?:=(?!=)|:(?!:)))|(?<=\.)\s+\w+"),
}

MEMBERS = re.compile(rb"(?<!\.)\.(?=\w)")
"""Among the tokens of a macro in Rust a field looks like any other name."""


class Places:
    """Where names that might be renamed are used, and for which binding."""

    def __init__(self, parsed: Parsed, found: Found, names: frozenset[bytes]) -> None:
        self._parsed = parsed
        self._found = found
        self._names = names - {name for _, name in self._words("forbid", names)}
        self._scopes = Scopes(self._ranges(SCOPES), len(parsed.text))
        self._declarations = Regions(self._ranges(["late"]), len(parsed.text))
        self._defined: dict[int, Binding] = {}
        """By their places."""

    def renamable(self, errors: Iterable[tuple[int, int]]) -> list[Place]:
        """In the order of the text."""
        if self._scopes.is_too_deep:
            return []
        self._bind()
        self._pin()
        left_alone = {WHOLE_FILE}.union(*(self._scopes.roots_touching(start, end) for start, end in errors))
        places = self._uses(left_alone)
        for node in self._found.get("dynamic", ()):
            left_alone |= self._scopes.roots_touching(node.start_byte, node.end_byte)
        places.sort(key=itemgetter(0))
        _spread_kept(binding for _, _, binding in places)
        fewest = 2 if self._parsed.language in PREPROCESSED else 1
        return [
            place
            for place in places
            if not place[2].is_kept and place[2].num_places >= fewest and place[2].root not in left_alone
        ]

    def _bind(self) -> None:
        scopes = self._scopes
        for start, name in self._named("define"):
            self._define(scopes.at(start), start, name)
        for start, name in self._named("keep"):
            scopes.bind(scopes.at(start), name).is_kept = True
        for start, name in self._named("keep.outer"):
            scopes.bind(max(scopes.parents[scopes.at(start)], WHOLE_FILE), name).is_kept = True
        for start, name in self._words("hold", self._names):
            scopes.bind(scopes.at(start), name).is_kept = True
        self._bind_in_functions()

    def _bind_in_functions(self) -> None:
        """catch (e) { var e = 1 } means two of them."""
        hoisted = list(self._named("define.function"))
        for start, name in hoisted:
            self._define(self._scopes.function_of(self._scopes.at(start)), start, name)
        for start, name in hoisted:
            meant = self._scopes.resolve(start, name)
            if meant is not None and meant is not self._defined[start]:
                meant.tie(self._defined[start])

    def _define(self, scope: int, start: int, name: bytes) -> None:
        binding = self._defined[start] = self._scopes.bind(scope, name)
        if self._parsed.language in ORDERED:
            known_from = self._end_of_declaration(start, scope)
            binding.visible_from = min(known_from, binding.visible_from or known_from)

    def _end_of_declaration(self, start: int, scope: int) -> int:
        """Not of one around the scope: let a = |b| b + 1"""
        declared_at, minus_end, _ = self._declarations.around(start)
        return -minus_end if declared_at > self._scopes.ranges[scope][0] else start

    def _pin(self) -> None:
        for kind in WORDS:
            for start, name in self._words(kind, self._names):
                for binding in self._scopes.visible(start, name):
                    binding.is_kept = True

    def _uses(self, left_alone: set[int]) -> list[Place]:
        """The hot loop: all the identifiers of a file. Functions that look for names are added to those left alone."""
        text, resolve, defined = self._parsed.text, self._scopes.resolve, self._defined
        looking = LOOKING.get(self._parsed.language, frozenset())
        watched = self._names | looking
        skipped = {node.start_byte for kind in ("skip", "keep.outer") for node in self._found.get(kind, ())}
        if self._parsed.language == "rust":
            skipped.update(dot.end() for dot in MEMBERS.finditer(text))
        places = []
        for node in self._found["use"]:
            start = node.start_byte
            name = text[start : node.end_byte]
            if name not in watched:
                continue
            binding = None if start in skipped else defined.get(start) or resolve(start, name)
            if binding is not None:
                binding.num_places += 1
                places.append((start, name, binding))
            elif name in looking and (name in LOOKING_ANYHOW or CALLED.match(text, node.end_byte)):
                left_alone |= self._scopes.roots_touching(start, start)
        return places

    def _named(self, kind: str) -> Iterator[tuple[int, bytes]]:
        text = self._parsed.text
        for node in self._found.get(kind, ()):
            name = text[node.start_byte : node.end_byte]
            if name in self._names:
                yield node.start_byte, name

    def _words(self, kind: str, names: Collection[bytes]) -> Iterator[tuple[int, bytes]]:
        text = self._parsed.text
        for node in self._found.get(kind, ()):
            for word in WORDS[kind].finditer(text, node.start_byte, node.end_byte):
                if word[0].strip() in names:
                    yield word.start(), word[0].strip()

    def _ranges(self, kinds: Iterable[str]) -> list[Range]:
        return [
            (node.start_byte, -node.end_byte, rank)
            for rank, kind in enumerate(kinds)
            for node in self._found.get(kind, ())
        ]


def _spread_kept(bindings: Iterable[Binding]) -> None:
    """To what is tied to those that stay."""
    todo = [binding for binding in bindings if binding.is_kept]
    while todo:
        for tied in todo.pop().tied:
            if not tied.is_kept:
                tied.is_kept = True
                todo.append(tied)
