"""Find the binding that each name in a source text refers to, and the names that can be renamed.

The input is the captures of the query for a language (queries/*.scm):

    scope               block with its own names
    scope.function      function, whose names are local
    scope.local         comprehension, whose names are local except for names that define.function binds
    scope.class         class body, whose names are not visible in the functions inside it
    scope.wall          body in which outer names may have other meanings, so outer variables used there are kept
    scope.item          function that is also a wall
    outside             range that belongs to the scope around the enclosing scope, such as a default value
    late                declaration whose names are visible only after its end
    define              name that is bound in the innermost scope
    define.function     name that is bound in the innermost function
    keep                name that is bound in the innermost scope and kept
    keep.outer          name that is bound in the scope around the innermost scope and kept
    hold                node whose words are all bound in the innermost scope and kept
    pin                 node whose words pin names: all variables with such a name that are visible at the node are kept
    pin.format          format string, in which the names between braces are pinned
    pin.tokens          tokens of a macro, in which names of fields and arguments are pinned
    forbid              node whose words are kept in the complete file
    use                 identifier
    skip                identifier that is not a variable, such as an attribute
    dynamic             node that keeps all names of the outermost function around it

A name that is kept is not renamed.
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
"""Maximum nesting of scopes. The lookup of a name may visit all scopes around the name."""

SCOPE_KINDS = ("outside", "scope.class", "scope.wall", "scope.item", "scope.function", "scope.local", "scope")
"""Captures that are scopes. If two have the same range, the earlier in this list encloses the later."""

FUNCTIONS = ("scope.item", "scope.function")
WALLS = ("scope.wall", "scope.item")
FILE_SCOPE = 0
"""Index of the scope around all other scopes."""


Range: TypeAlias = tuple[int, int, int]
"""Start, negated end and index into SCOPE_KINDS. In sorted order, a range precedes the ranges inside it."""


class Binding:
    """A name that is bound in one scope."""

    __slots__ = ("is_kept", "linked", "num_uses", "root", "visible_from")

    def __init__(self, root: int, *, is_kept: bool) -> None:
        self.root = root
        self.is_kept = is_kept
        self.visible_from = 0
        """Position before which the name refers to a different binding."""
        self.num_uses = 0
        self.linked: list[Binding] = []
        """Bindings that are renamed only together with this binding, because some use may refer to either."""

    def link(self, other: "Binding") -> None:
        self.linked.append(other)
        other.linked.append(self)


class NestedRanges:
    """Nested ranges, with lookup of the innermost range at a position. Index 0 is the complete text."""

    def __init__(self, ranges: Iterable[Range], num_bytes: int) -> None:
        self.ranges: list[Range] = [(0, -num_bytes - 1, len(SCOPE_KINDS) - 1), *sorted(set(ranges))]
        self.parents = [0]
        self.depth = 0
        self._starts = [0]
        self._innermost = [0]
        self._nest(num_bytes)

    def _nest(self, num_bytes: int) -> None:
        enclosing, ends = [0], [num_bytes + 1]
        starts, innermost = self._starts, self._innermost
        for index, (start, negated_end, _) in enumerate(self.ranges[1:], start=1):
            while ends[-1] <= start:
                starts.append(ends.pop())
                enclosing.pop()
                innermost.append(enclosing[-1])
            self.parents.append(enclosing[-1])
            enclosing.append(index)
            ends.append(-negated_end)
            starts.append(start)
            innermost.append(index)
            self.depth = max(self.depth, len(enclosing))
        while len(ends) > 1:
            starts.append(ends.pop())
            enclosing.pop()
            innermost.append(enclosing[-1])

    def remap(self, new_indices: Sequence[int]) -> None:
        """Make lookups return `new_indices[index]` instead of `index`."""
        self._innermost = [new_indices[index] for index in self._innermost]

    def index_at(self, position: int) -> int:
        return self._innermost[bisect_right(self._starts, position) - 1]

    def range_at(self, position: int) -> Range:
        return self.ranges[self.index_at(position)]


class Scopes:
    """Nested scopes of a text, and the names bound in each scope."""

    def __init__(self, ranges: Iterable[Range], num_bytes: int) -> None:
        self._nested_ranges = NestedRanges(ranges, num_bytes)
        self.ranges = self._nested_ranges.ranges
        self.kinds = [SCOPE_KINDS[rank] for _, _, rank in self.ranges]
        self.is_too_deep = self._nested_ranges.depth > MAX_DEPTH
        self.parents = self._resolve_outside()
        self.roots = self._find_roots()
        self.bindings: list[dict[bytes, Binding]] = [{} for _ in self.ranges]
        self.index_at = self._nested_ranges.index_at

    def _resolve_outside(self) -> list[int]:
        """Return the parent of each scope. A range captured as `outside` belongs one scope further out."""
        scopes = list(range(len(self.ranges)))
        parents = [FILE_SCOPE - 1] * len(scopes)
        for index, enclosing in enumerate(self._nested_ranges.parents[1:], start=1):
            if self.kinds[index] == "outside":
                scopes[index] = max(parents[scopes[enclosing]], FILE_SCOPE)
            else:
                parents[index] = scopes[enclosing]
        self._nested_ranges.remap(scopes)
        return parents

    def _find_roots(self) -> list[int]:
        """Return the outermost function around each scope, or FILE_SCOPE if there is none."""
        roots = [FILE_SCOPE] * len(self.ranges)
        for scope, parent in enumerate(self.parents[1:], start=1):
            is_function = self.kinds[scope] in FUNCTIONS or self.kinds[scope] == "scope.local"
            roots[scope] = roots[parent] or (scope if is_function else FILE_SCOPE)
        return roots

    def roots_touching(self, start: int, end: int) -> set[int]:
        """Return the outermost functions that overlap or adjoin the range."""
        first = bisect_left(self.ranges, start, key=itemgetter(0))
        last = bisect_right(self.ranges, end, key=itemgetter(0))
        return {self.roots[self.index_at(max(start - 1, 0))], self.roots[self.index_at(start)], *self.roots[first:last]}

    def enclosing_function(self, scope: int) -> int:
        """Return the innermost function or class that contains a scope, or the file scope."""
        while scope > FILE_SCOPE and self.kinds[scope] not in FUNCTIONS and self.kinds[scope] != "scope.class":
            scope = self.parents[scope]
        return scope

    def bind(self, scope: int, name: bytes) -> Binding:
        """Return the binding of a name in a scope. Create the binding if the name is not bound.

        Names bound in the file scope or in a class are kept, because other code may use them.
        """
        binding = self.bindings[scope].get(name)
        if binding is None:
            root = self.roots[scope]
            is_kept = root == FILE_SCOPE or self.kinds[scope] == "scope.class"
            binding = self.bindings[scope][name] = Binding(root, is_kept=is_kept)
        return binding

    def visible_bindings(self, position: int, name: bytes) -> list[Binding]:
        """Return all bindings that the name might refer to at a position, from the innermost scope outward."""
        found = []
        scope = self.index_at(position)
        while scope >= FILE_SCOPE:
            if name in self.bindings[scope]:
                found.append(self.bindings[scope][name])
            scope = self.parents[scope]
        return found

    def resolve(self, position: int, name: bytes) -> Binding | None:
        """Return the binding that a name refers to at a position, or None if the name is not bound.

        If the innermost binding is declared after the position, it is linked to the next outer binding, because the
        name may refer to either. If there is no outer binding, the innermost binding is kept.
        """
        innermost = scope = self.index_at(position)
        binding = self.bindings[innermost].get(name)
        if binding is not None and position >= binding.visible_from:  # the common case, in the hot loop
            return binding
        inner = None
        is_beyond_wall = False
        while scope >= FILE_SCOPE:
            binding = self.bindings[scope].get(name)
            kind = self.kinds[scope]
            if binding is not None and (kind != "scope.class" or scope == innermost):
                binding.is_kept |= is_beyond_wall
                if inner is not None:
                    inner.link(binding)
                inner = binding
                if position >= binding.visible_from:
                    return binding
            is_beyond_wall |= kind in WALLS
            scope = self.parents[scope]
        if inner is not None:
            inner.is_kept = True
        return inner


# Bindings and uses of names, as a query captures them.

Captures: TypeAlias = "dict[str, list[Node]]"
NameUse: TypeAlias = tuple[int, bytes, Binding]
"""Start of an identifier, its name, and the binding that it refers to."""

DECLARED_BEFORE_USE = frozenset({"rust", "go", "java", "c", "c++"})
"""Languages in which a name is visible only after its declaration. In others, a name is visible in its entire scope."""

PREPROCESSED = frozenset({"c", "c++"})
"""Languages in which a macro may use a variable by its name. A variable that occurs only once is therefore not renamed:
its other uses may be in macros."""

LOOKUP_FUNCTIONS = {
    "python": frozenset(b"locals vars dir eval exec _getframe currentframe stack query evaluate".split()),
    **dict.fromkeys(("javascript", "jsx", "typescript", "tsx"), frozenset({b"eval"})),
}
"""Functions that may look up a variable by its name, keyed by language."""
UNCALLED_LOOKUP_FUNCTIONS = frozenset({b"locals", b"vars", b"eval", b"exec"})
"""Lookup functions that may also be called indirectly, as in map(eval, names)."""

CALL_START = re.compile(rb"\s*\(")

WORD_PATTERNS = {
    "pin": re.compile(rb"\w+"),
    "hold": re.compile(rb"\w+"),
    "forbid": re.compile(rb"\w+"),
    "pin.format": re.compile(rb"(?<=\{)\s*\w+|\w+(?=\$)"),
    "pin.tokens": re.compile(rb"\w+(?=\s*(?:=(?!=)|:(?!:)))|(?<=\.)\s+\w+"),
}
"""Pattern of the words in a captured node, keyed by capture."""

MEMBER_DOT = re.compile(rb"(?<!\.)\.(?=\w)")
"""Dot before a member. In the tokens of a Rust macro, only this dot distinguishes a field from a variable."""


class NameUses:
    """Uses of the names that might be renamed, each with its binding."""

    def __init__(self, parsed: Parsed, found: Captures, names: frozenset[bytes]) -> None:
        self._parsed = parsed
        self._found = found
        self._names = names - {name for _, name in self._captured_words("forbid", names)}
        self._scopes = Scopes(self._captured_ranges(SCOPE_KINDS), len(parsed.text))
        self._declarations = NestedRanges(self._captured_ranges(["late"]), len(parsed.text))
        self._defined: dict[int, Binding] = {}
        """Bindings, keyed by the position of their definition."""

    def find_renamable(self, errors: Iterable[tuple[int, int]]) -> list[NameUse]:
        """Return the uses that can be renamed, in text order. `errors` are the byte ranges of syntax errors."""
        if self._scopes.is_too_deep:
            return []
        self._bind()
        self._keep_pinned()
        excluded_roots = {FILE_SCOPE}.union(*(self._scopes.roots_touching(start, end) for start, end in errors))
        uses = self._find_uses(excluded_roots)
        for node in self._found.get("dynamic", ()):
            excluded_roots |= self._scopes.roots_touching(node.start_byte, node.end_byte)
        uses.sort(key=itemgetter(0))
        _propagate_kept(binding for _, _, binding in uses)
        min_uses = 2 if self._parsed.language in PREPROCESSED else 1
        return [
            use
            for use in uses
            if not use[2].is_kept and use[2].num_uses >= min_uses and use[2].root not in excluded_roots
        ]

    def _bind(self) -> None:
        scopes = self._scopes
        for start, name in self._captured_names("define"):
            self._define(scopes.index_at(start), start, name)
        for start, name in self._captured_names("keep"):
            scopes.bind(scopes.index_at(start), name).is_kept = True
        for start, name in self._captured_names("keep.outer"):
            scopes.bind(max(scopes.parents[scopes.index_at(start)], FILE_SCOPE), name).is_kept = True
        for start, name in self._captured_words("hold", self._names):
            scopes.bind(scopes.index_at(start), name).is_kept = True
        self._bind_in_functions()

    def _bind_in_functions(self) -> None:
        """Bind names in the innermost function.

        In catch (e) { var e = 1 }, the second e may refer to two bindings, so the two bindings are linked.
        """
        hoisted = list(self._captured_names("define.function"))
        for start, name in hoisted:
            self._define(self._scopes.enclosing_function(self._scopes.index_at(start)), start, name)
        for start, name in hoisted:
            resolved = self._scopes.resolve(start, name)
            if resolved is not None and resolved is not self._defined[start]:
                resolved.link(self._defined[start])

    def _define(self, scope: int, start: int, name: bytes) -> None:
        binding = self._defined[start] = self._scopes.bind(scope, name)
        if self._parsed.language in DECLARED_BEFORE_USE:
            visible_from = self._visibility_start(start, scope)
            binding.visible_from = min(visible_from, binding.visible_from or visible_from)

    def _visibility_start(self, start: int, scope: int) -> int:
        """Return the position from which a name is visible.

        This position is the end of the declaration, or `start` if the declaration surrounds the scope, as for `b` in
        `let a = |b| b + 1`.
        """
        declaration_start, negated_end, _ = self._declarations.range_at(start)
        return -negated_end if declaration_start > self._scopes.ranges[scope][0] else start

    def _keep_pinned(self) -> None:
        for kind in WORD_PATTERNS:
            for start, name in self._captured_words(kind, self._names):
                for binding in self._scopes.visible_bindings(start, name):
                    binding.is_kept = True

    def _find_uses(self, excluded_roots: set[int]) -> list[NameUse]:
        """Find the uses of names. The loop visits every identifier of the file, so it is written for speed.

        Outermost functions that look up variables by name are added to `excluded_roots`.
        """
        text, resolve, defined = self._parsed.text, self._scopes.resolve, self._defined
        lookup_functions = LOOKUP_FUNCTIONS.get(self._parsed.language, frozenset())
        watched = self._names | lookup_functions
        skipped = {node.start_byte for kind in ("skip", "keep.outer") for node in self._found.get(kind, ())}
        if self._parsed.language == "rust":
            skipped.update(dot.end() for dot in MEMBER_DOT.finditer(text))
        uses = []
        for node in self._found["use"]:
            start = node.start_byte
            name = text[start : node.end_byte]
            if name not in watched:
                continue
            binding = None if start in skipped else defined.get(start) or resolve(start, name)
            if binding is not None:
                binding.num_uses += 1
                uses.append((start, name, binding))
            elif name in lookup_functions and (
                name in UNCALLED_LOOKUP_FUNCTIONS or CALL_START.match(text, node.end_byte)
            ):
                excluded_roots |= self._scopes.roots_touching(start, start)
        return uses

    def _captured_names(self, kind: str) -> Iterator[tuple[int, bytes]]:
        text = self._parsed.text
        for node in self._found.get(kind, ()):
            name = text[node.start_byte : node.end_byte]
            if name in self._names:
                yield node.start_byte, name

    def _captured_words(self, kind: str, names: Collection[bytes]) -> Iterator[tuple[int, bytes]]:
        text = self._parsed.text
        for node in self._found.get(kind, ()):
            for word in WORD_PATTERNS[kind].finditer(text, node.start_byte, node.end_byte):
                if word[0].strip() in names:
                    yield word.start(), word[0].strip()

    def _captured_ranges(self, kinds: Iterable[str]) -> list[Range]:
        return [
            (node.start_byte, -node.end_byte, rank)
            for rank, kind in enumerate(kinds)
            for node in self._found.get(kind, ())
        ]


def _propagate_kept(bindings: Iterable[Binding]) -> None:
    """Keep all bindings that are linked to a kept binding."""
    pending = [binding for binding in bindings if binding.is_kept]
    while pending:
        for linked in pending.pop().linked:
            if not linked.is_kept:
                linked.is_kept = True
                pending.append(linked)
