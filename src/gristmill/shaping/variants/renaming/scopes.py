"""Scopes and what is bound in them: which binding does a name mean at a place in the text?

All of it from ranges that a query captured; renaming.py says what the captures mean.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import TypeAlias

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
